"""On a GPU or a TPU: the same float64 references, to catch products of low precision.

By default a float32 matmul has 8 (TPU) or 10 (recent GPUs) bits of mantissa: errors of
1e-3. Everything here must be right to 1e-5. Run by `benchmarks/gpu.sh`; on a machine
without an accelerator `conftest.py` leaves these tests out.
"""

import os

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from churn_jax.configuration import replaced
from churn_jax.ensembles import average_logits, average_probs, gate
from churn_jax.metrics import l1_distance, pairwise, surrogate_churn
from churn_jax.models import LeNet5
from churn_jax.models.convolution import banded_convolution
from churn_jax.studies import preset
from churn_jax.studies.repeatability import Launch, measure
from tests import reference_losses, reference_metrics
from tests.losses.cases import CASES as LOSSES
from tests.losses.cases import CLASSES
from tests.methods.cases import CASES as METHODS
from tests.methods.cases import evaluate, expected, labels_of, logits_of
from tests.metrics.cases import CASES as METRICS
from tests.metrics.cases import make_inputs

pytestmark = pytest.mark.accelerator

# The accelerators' exp and log are good to a few units in the last place, not to one.
RTOL = 1e-5


def draw(seed, *shape):
    values = 3.0 * np.random.default_rng(seed).normal(size=shape)
    return jnp.asarray(values, jnp.float32)


@pytest.mark.parametrize("case", LOSSES, ids=lambda c: c.name)
def test_losses_equal_the_float64_reference(case):
    a, b = draw(0, 4096, CLASSES), draw(1, 4096, CLASSES)
    np.testing.assert_allclose(
        jax.jit(case.loss)(a, b),
        case.reference(a, b),
        rtol=RTOL,
        atol=3e-6 * max(1.0, case.scale),
    )


@pytest.mark.parametrize("case", METRICS, ids=str)
def test_metrics_equal_the_float64_reference(case):
    inputs = make_inputs(case.kind, 0, n=4096)
    actual = jax.jit(lambda values: case.function(**values))(
        jax.tree.map(jnp.asarray, inputs)
    )
    for ours, theirs in zip(
        jax.tree.leaves(actual), jax.tree.leaves(case.reference(**inputs)), strict=True
    ):
        np.testing.assert_allclose(ours, theirs, rtol=RTOL, atol=1e-6)


@pytest.mark.parametrize("case", METHODS, ids=lambda c: c.name)
def test_method_losses_equal_the_float64_reference(case):
    logits, labels = logits_of(case, 0), labels_of(0)
    (loss, _), gradient = evaluate(case, logits[None], labels[None])
    np.testing.assert_allclose(loss, expected(case, logits, labels), rtol=RTOL)
    assert np.all(np.isfinite(gradient))


@pytest.mark.parametrize(
    ("metric", "reference"),
    [
        (surrogate_churn, reference_metrics.surrogate_churn),
        (l1_distance, lambda a, b: np.mean(reference_metrics.l1_distance(a, b))),
    ],
    ids=["surrogate_churn", "l1_distance"],
)
def test_pairwise_equals_the_float64_reference(metric, reference):
    logits = draw(2, 4, 1000, 20)
    matrix = np.asarray(jax.jit(lambda z: pairwise(metric, z))(logits))
    wanted = [[reference(np.asarray(a), np.asarray(b)) for b in logits] for a in logits]
    np.testing.assert_allclose(matrix, wanted, rtol=RTOL, atol=1e-6)


def test_ensemble_averages_equal_the_float64_reference():
    logits, weights = draw(3, 4, 1000, 20), np.array([0.4, 0.3, 0.2, 0.1])
    probs = reference_losses.softmax(logits)
    for got, wanted in (
        (average_probs(logits), np.log(probs.mean(axis=0))),
        (average_logits(logits), np.mean(np.asarray(logits, np.float64), axis=0)),
        (gate(logits, np.log(weights)), np.log(np.einsum("m,mbc->bc", weights, probs))),
    ):
        np.testing.assert_allclose(got, wanted, rtol=RTOL, atol=3e-6)


def test_banded_kernels_are_copies_of_the_weights():
    """A constant image: every output is a sum of kernel entries, exact in float32."""
    kernel = jnp.round(64 * draw(4, 5, 5, 2, 3)) / 64
    images = jnp.ones((2, 8, 8, 2))
    with jax.default_matmul_precision("highest"):
        got = banded_convolution(images, kernel, padding=0)
    wanted = np.sum(np.asarray(kernel, np.float64), axis=(0, 1, 2))
    np.testing.assert_allclose(got, np.broadcast_to(wanted, got.shape), rtol=1e-6)


def test_layouts_of_lenet_agree_at_full_precision():
    images = draw(5, 8, 28, 28, 1)
    networks = [LeNet5(num_classes=10, layout=layout) for layout in ("nhwc", "banded")]
    variables = networks[0].init(jax.random.key(0), images)
    with jax.default_matmul_precision("highest"):
        a, b = (jax.jit(n.apply)(variables, images).logits for n in networks)
    np.testing.assert_allclose(a, b, atol=1e-4)


def test_the_default_device_is_the_accelerator():
    assert jax.default_backend() in ("gpu", "tpu")
    assert draw(0, 2).devices() == {jax.devices()[0]}


@pytest.mark.parametrize("model", ["mlp", "resnet20"])
def test_launches_with_deterministic_kernels_agree_bit_by_bit(model):
    # The launches see the devices that this process sees, not conftest.py's default.
    assert os.environ.get("JAX_PLATFORMS") != "cpu"
    network = [("model.name", model), ("model.features", ())]
    config = replaced(preset("digits:tiny"), network)
    drift = measure(Launch(config, updates=20), 2, deterministic=True)
    assert drift.repeats, drift.first_difference
