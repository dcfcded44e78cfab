"""One compilation per method, the state in place, nothing fetched inside an epoch."""

import functools
import os
import subprocess
import sys
import textwrap

import jax
import numpy as np
import pytest
from flax import struct

from churn_jax.ensembles import starting_from
from churn_jax.methods import ERM, Codistillation, pytree
from churn_jax.training import OptimizerConfig, TrainConfig
from churn_jax.training.partition import make_mesh
from churn_jax.training.run import stopped_replicas
from churn_jax.training.state import init_coefficients
from tests.training import tiny

PAIR = Codistillation(beta=0.3, alpha=0.1)


def epoch(stepper, inputs):
    """The updates of one epoch, dispatched as the loop does."""
    for i, part in enumerate(inputs):
        for _ in range(tiny.STEPS_PER_EPOCH):
            stepper.states[i] = stepper.step(
                stepper.states[i], part, stepper.teachers[i], *stepper.data
            )


UNROLL, LOOP = (pytest.param(m, marks=pytest.mark.slow) for m in ("unroll", "loop"))


@pytest.fixture(scope="module")
def mapped():
    """Of a mapping: a session, the first epoch done, and what its step compiled."""

    @functools.cache
    def made(mapping):
        stepper = tiny.stepper(tiny.make_run(PAIR, mapping=mapping))
        with tiny.compilations() as names:
            epoch(stepper, stepper.inputs(0))
        return stepper, [n for n in names if "steps" in n], stepper.now()

    return made


@pytest.mark.parametrize("mapping", ["vmap", UNROLL, LOOP])
def test_the_step_is_compiled_once_and_an_epoch_meets_no_host(mapped, mapping):
    """On CPU the device is the host: what the guard refuses there is host to device."""
    stepper, first, _ = mapped(mapping)
    assert len(first) == 1
    assert len(stepper.states) == (4 if mapping == "loop" else 1)
    with tiny.compilations() as names:
        for number in (1, 2):
            inputs = stepper.inputs(number)
            with jax.transfer_guard("disallow"):
                epoch(stepper, inputs)
        jax.block_until_ready(stepper.states)
    assert names == []  # no step, no data order, nothing
    with jax.transfer_guard("disallow"), pytest.raises(Exception, match="Disallowed"):
        jax.block_until_ready(stepper.states[0].step + 1.5)  # the guard is awake


@pytest.mark.parametrize("decorator", [pytree, struct.dataclass])
def test_classes_of_methods_with_equal_fields_share_no_step(decorator):
    """A cache finds what is equal; jaxlib's dataclasses are, whatever their class."""

    @decorator
    class Own(ERM):
        pass

    mesh = make_mesh(tiny.ONE)
    ours, theirs = (
        jax.tree.structure(init_coefficients(method, TrainConfig(replicas=2), mesh))
        for method in (Own(), ERM())
    )
    assert ours != theirs and hash(ours) != hash(theirs)
    if decorator is pytree:
        assert jax.tree.structure(Own()) != jax.tree.structure(ERM())


def test_runs_that_differ_in_rates_and_weights_share_what_is_compiled():
    def run(rate, value):
        given = {"params": {"kernel": np.full((64, tiny.CLASSES), value, np.float32)}}
        return tiny.make_run(
            ERM(),
            network=starting_from(tiny.LINEAR, given, name="given"),
            optimizer=OptimizerConfig(learning_rate=rate),
        )

    first = tiny.stepper(run(0.1, 0.0))
    first.advance(1)
    with tiny.compilations() as names:
        other = tiny.stepper(run(0.2, 1.0))
        kernel = other.now().params[0]["kernel"]
        other.advance(1)
    assert names == []
    assert other.step is first.step
    np.testing.assert_array_equal(kernel, 1.0)


@pytest.mark.parametrize("mapping", [UNROLL, LOOP])
def test_mappings_compute_the_same(mapped, mapping):
    ours, theirs = mapped(mapping)[2], mapped("vmap")[2]
    assert ours.step.tolist() == [tiny.STEPS_PER_EPOCH] * 4
    for field in ("params", "model_state", "opt_state"):
        gap = tiny.largest_difference(getattr(ours, field), getattr(theirs, field))
        # Four updates of momentum SGD; each rounds its sums in another order.
        assert gap < 5e-6, field
    assert tiny.largest_difference(ours.sums, theirs.sums) < 1e-5


def test_a_diverging_replica_stops_alone_and_the_others_do_not_notice(mapped):
    """Under a vmapped convolution, whose bad slots spoil their neighbours."""
    clean = mapped("vmap")[2]
    rates = OptimizerConfig(learning_rate=(0.1, 1e30, 0.1, 0.1), weight_decay=0.0)
    mixed = tiny.stepper(tiny.make_run(PAIR, optimizer=rates))
    once, state = mixed.advance(1), mixed.advance(tiny.STEPS_PER_EPOCH - 1)
    assert state.alive.tolist() == [True, False, True, True]
    for r in (0, 2, 3):
        assert tiny.bitwise_equal(tiny.replica(clean, r), tiny.replica(state, r))
    (stopped,) = stopped_replicas(state, mixed.session.terms)
    assert (stopped.replica, stopped.step) == (1, 1)
    assert stopped.term in mixed.session.terms
    # Frozen as it was before the refused update, and its sums stay finite.
    assert int(state.step[1]) == 1 and np.isfinite(state.sums).all()
    before, after = (tiny.replica(tiny.weights(s), 1) for s in (once, state))
    assert tiny.bitwise_equal(before, after)


def test_the_state_is_donated(mapped):
    stepper = mapped("vmap")[0]
    before = jax.tree.leaves(stepper.states[0])
    epoch(stepper, stepper.inputs(0))
    assert all(leaf.is_deleted() for leaf in before)
    kept = jax.tree.leaves((stepper.session.parts[0].inputs(0), *stepper.data))
    assert not any(leaf.is_deleted() for leaf in kept)


@pytest.mark.slow
def test_a_second_launch_compiles_nothing_new(tmp_path):
    program = textwrap.dedent(
        """
        import collections
        from jax import monitoring
        seen = collections.Counter()
        monitoring.register_event_listener(lambda event, **_: seen.update([event]))
        from churn_jax.methods import ERM
        from tests.training import tiny
        tiny.stepper(tiny.make_run(ERM(), replicas=2)).advance(1)
        prefix = "/jax/compilation_cache/cache_"
        print(seen[prefix + "hits"], seen[prefix + "misses"])
        """
    )
    settings = {
        "JAX_PLATFORMS": "cpu",
        "JAX_COMPILATION_CACHE_DIR": str(tmp_path),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }
    counts = []
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, **settings},
            capture_output=True,
            text=True,
            timeout=200,
        )
        assert done.returncode == 0, done.stderr[-2000:]
        counts.append([int(n) for n in done.stdout.split()])
    (_, missed), (hit, missed_again) = counts
    assert missed > 0 and any(tmp_path.iterdir())
    assert missed_again == 0 and hit >= missed
