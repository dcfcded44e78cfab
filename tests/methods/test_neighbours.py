"""Targets from neighbours: against NumPy, by hand, in bounded memory."""

import tracemalloc

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from churn_jax.configuration.rows import Teaching
from churn_jax.methods import neighbour_targets
from tests.refusals import refusals


def in_numpy(logits, labels, k, uniform):
    """Every distance in float64, the nearest in the order of examples."""
    logits = np.asarray(logits, np.float64)
    classes, targets = np.eye(logits.shape[1]), []
    for one in logits:
        near = np.argsort(((one - logits) ** 2).sum(-1), kind="stable")[:k]
        targets.append(classes[labels[near]].mean(0))
    return uniform / logits.shape[1] + (1 - uniform) * np.array(targets)


@pytest.mark.parametrize("k", [1, 4, 20, 37])
def test_targets_equal_numpy(k, rng):
    logits = rng.normal(size=(37, 3)).astype(np.float32)
    labels = rng.integers(0, 3, 37)
    found = neighbour_targets(logits, labels, k, uniform=0.2)
    np.testing.assert_allclose(found, in_numpy(logits, labels, k, 0.2), atol=1e-6)
    np.testing.assert_allclose(found.sum(-1), 1.0, rtol=1e-6)


def test_targets_by_hand():
    # Of 0, 1, 3 and 7 the nearest two are (0, 1), (1, 0), (3, 1) and (7, 3).
    logits = jnp.array([[0.0, 0.0], [1.0, 0.0], [3.0, 0.0], [7.0, 0.0]])
    found = neighbour_targets(logits, jnp.array([0, 1, 1, 0]), 2, uniform=0.5)
    half, one = [0.5, 0.5], [0.25, 0.75]
    np.testing.assert_array_equal(found, [half, half, one, half])
    # An example is its own neighbour; of equal ones any count.
    labels = jnp.array([1, 0, 0])
    alone = neighbour_targets(jnp.eye(3), labels, 1)
    np.testing.assert_array_equal(alone, jax.nn.one_hot(labels, 3))
    equal = neighbour_targets(jnp.zeros((3, 2)), labels, 3)
    np.testing.assert_allclose(equal, [[2 / 3, 1 / 3]] * 3)


def test_distances_are_never_all_in_memory(rng):
    size = 20_000  # all distances would take 1.6 GB
    logits, labels = rng.normal(size=(size, 3)), np.zeros(size, int)
    tracemalloc.start()
    neighbour_targets(logits.astype(np.float32), labels, 5)
    assert tracemalloc.get_traced_memory()[1] < 40e6
    tracemalloc.stop()


Z, Y = np.zeros((3, 4), np.float32), np.zeros(3, int)

test_what_has_no_neighbours_is_refused = refusals(
    (np.stack([Z, Z]), np.stack([Y, Y]), 1, r"logits \[N, C\]"),
    (Z, Y, 4, "got .*, 4 and 0.0"),
    (Z, Y, 0, "at least 1; got 0"),
    (np.full_like(Z, np.nan), Y, 1, "needs finite logits"),
    (Z, Y - 1, 1, "labels from 0 to C - 1"),
    (Z, Y[1:], 1, r"\(3,\); got \(2,\)"),
    call=neighbour_targets,
)

test_a_row_without_an_offline_teacher_has_no_neighbours = refusals(
    ({"neighbours": 3}, r"neighbours needs teaching\.offline"),
    ({"offline": True, "uniform": 0.1}, r"neighbours needs teaching\.offline"),
    call=lambda options: Teaching(**options),
)
