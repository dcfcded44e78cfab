"""What a method remembers between updates: kept, sharded, saved, frozen, checked."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import struct

from churn_jax import losses
from churn_jax.methods import LossOutput, Method, coefficient, forward, static
from churn_jax.training import MeshShape
from churn_jax.training.run import stopped_replicas
from tests.refusals import refusals
from tests.training import tiny

KEEP = 0.75


@struct.dataclass
class Remembers(Method):
    """Cross-entropy, weighted by a running frequency of the classes."""

    spoil: str = static("")
    infinite_at: float = coefficient(-1.0)
    steep_at: float = coefficient(-1.0)
    odd_at: float = coefficient(-1.0)

    def init_memory(self, num_classes):
        return {"frequency": jnp.zeros(num_classes), "updates": jnp.int32(0)}

    def loss(self, apply, variables, batch, *, teacher, step, key):
        logits, labels, model_state = forward(apply, variables, batch)
        hot = jax.nn.one_hot(batch.labels, logits.shape[-1])
        now = jnp.mean(hot, 0) if self.spoil == "local" else batch.mean(hot.T)
        old = batch.memory["frequency"]
        frequency = KEEP * old + (1 - KEEP) * now
        weights = 1.0 + jnp.take(old, labels)
        values = weights * losses.cross_entropy(logits, labels)
        loss = jnp.sum(batch.mean(values))
        # A finite loss whose gradient is not.
        loss += jnp.sqrt(jnp.where(step == self.steep_at, 0.0 * loss, 1.0))
        frequency += jnp.where(step == self.infinite_at, jnp.inf, 0.0)
        memory = {"frequency": frequency, "updates": batch.memory["updates"] + 1}
        if self.spoil == "shape":
            memory["frequency"] = frequency[None]
        if self.spoil == "nothing":
            memory = ()
        odd = jnp.where(step == self.odd_at, jnp.inf, 0.0)
        return LossOutput(loss, {"odd": odd, "weighted": loss}, model_state, memory)


# Both replicas on every device, and the turns of `vmapped_gradients`.
MESH = {"mesh": MeshShape(1, 2, 2)}
MESH["network"] = dataclasses.replace(tiny.LINEAR, has_convolutions=True)


@functools.cache
def history(way="vmap"):
    options = MESH if way == "mesh" else {}
    stepper = tiny.stepper(tiny.linear_run(Remembers(members=2), **options))
    return stepper, stepper.history(6)


def test_every_update_is_given_what_the_last_one_left():
    stepper, states = history()
    (part,), labels = stepper.session.parts, tiny.dataset().train.labels
    expected = np.zeros((2, tiny.CLASSES))
    for t, state in enumerate(states):
        np.testing.assert_allclose(state.memory["frequency"], expected, atol=1e-6)
        assert state.memory["updates"].tolist() == [t, t]
        order = np.asarray(part.inputs(t // tiny.STEPS_PER_EPOCH).order)
        start = t % tiny.STEPS_PER_EPOCH * tiny.BATCH
        rows = labels[order[:, start : start + tiny.BATCH]]
        now = np.stack([np.mean(rows == c, axis=1) for c in range(tiny.CLASSES)], 1)
        expected = KEEP * expected + (1 - KEEP) * now
    assert states[0].memory["frequency"].dtype == np.float32
    # Each replica has its own order, so its own memory.
    assert np.ptp(states[1].memory["frequency"], axis=0).max() > 1e-3


@pytest.mark.slow
def test_a_mesh_remembers_the_same():
    one, (stepper, other) = history()[1], history("mesh")
    for a, b in zip(one, other, strict=True):
        assert tiny.largest_difference(a.memory, b.memory) < 1e-6
        assert tiny.largest_difference(a.params, b.params) < 1e-5
    memory = stepper.states[0].memory["frequency"]
    assert len(memory.sharding.device_set) == 4
    assert memory.is_fully_replicated  # one replica axis, two members, two shares


@pytest.mark.slow
def test_a_stopped_replica_keeps_its_memory_and_its_neighbour_goes_on():
    run = tiny.linear_run(Remembers(members=2), optimizer=tiny.STOPPING, **MESH)
    stepper, (_, states) = tiny.stepper(run), history("mesh")
    early, late = stepper.advance(3), stepper.advance(3)
    assert late.alive.tolist() == [True, False]
    stopped = late.stopped_step[1]
    assert late.memory["updates"].tolist() == [6, stopped] and stopped < 3
    gone = [tiny.replica(s.memory, 1) for s in (early, late)]
    assert tiny.bitwise_equal(*gone) and np.isfinite(gone[0]["frequency"]).all()
    alone = [tiny.replica(s.memory, 0) for s in (late, states[6])]
    assert tiny.bitwise_equal(*alone)


@pytest.mark.parametrize(
    ("culprit", "name"),
    [("infinite_at", "memory"), ("steep_at", "gradient"), ("odd_at", "odd")],
)
def test_what_is_not_finite_stops_the_replica_by_name(culprit, name):
    """With a finite loss: what is spoilt is the next update."""
    method = Remembers(members=2, **{culprit: np.float32([-1, 2])})
    stepper = tiny.stepper(tiny.linear_run(method))
    state = stepper.advance(4)
    assert state.alive.tolist() == [True, False]
    assert state.stopped_step.tolist() == [-1, 2]
    (stopped,) = stopped_replicas(state, stepper.session.terms)
    assert (stopped.replica, stopped.term) == (1, name)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(state.params))
    assert np.isfinite(state.memory["frequency"]).all()


test_a_memory_of_another_form_is_refused = refusals(
    ("nothing", r"Remembers.loss must keep the form of its memory, .* \(\)"),
    ("shape", r"'float32\[5\]'.*; got .*'float32\[1, 5\]'"),
    ("local", "must return one memory .* differ along data "),
    call=lambda spoil: tiny.session_of(
        tiny.linear_run(Remembers(members=2, spoil=spoil), **MESH)
    ),
)


@struct.dataclass
class Returns(Method):
    """Cross-entropy, returned in a form of one's own."""

    form: str = static("")

    def loss(self, apply, variables, batch, *, teacher, step, key):
        logits, labels, state = forward(apply, variables, batch)
        each = losses.cross_entropy(logits[0], labels[0])
        loss = batch.mean(each)
        forms = {
            "a number": loss,
            "nothing": None,
            "a pair": (loss, state),
            "examples": LossOutput(each, {}, state),
            "a term of examples": LossOutput(loss, {"each": each}, state),
            "a list of terms": LossOutput(loss, [loss], state),
            "a term called loss": LossOutput(loss, {"loss": loss}, state),
            "a word": LossOutput(loss, {"word": "x"}, state),
            "a whole number": LossOutput(jnp.int32(loss), {}, state),
            "a device's mean": LossOutput(jnp.mean(each), {}, state),
            "no state": LossOutput(loss, {}, None),
            "no terms": LossOutput(loss, {}, state),
        }
        return forms[self.form]


test_what_a_loss_must_not_return_is_one_sentence = refusals(
    ("a number", r"must return methods.LossOutput.*got float32\[\]"),
    ("nothing", r"must return methods.LossOutput.*got NoneType"),
    ("a pair", r"must return methods.LossOutput.*got tuple"),
    ("examples", r"Returns.loss: loss must be one float; got float32\[16\]"),
    ("a term of examples", r"Returns.loss: each must be one float"),
    ("a term called loss", "Returns.loss: the loss itself is called loss; rename"),
    ("a word", "Returns.loss: word must be one float; got str "),
    ("a whole number", r"Returns.loss: loss must be one float; got int32\[\] "),
    ("a device's mean", "Returns.loss: loss must be averaged with batch.mean"),
    ("no state", "must return the model_state of `apply`; got NoneType"),
    ("a list of terms", "terms as a dictionary .* got list"),
    call=lambda form: tiny.stepper(tiny.linear_run(Returns(form=form))),
)


def test_a_loss_without_terms_trains_and_stops_by_the_name_of_the_loss():
    run = tiny.linear_run(Returns(form="no terms"), optimizer=tiny.STOPPING)
    stepper = tiny.stepper(run)
    state = stepper.advance(6)
    assert state.alive.tolist() == [True, False] and state.sums.shape == (2, 1)
    (stopped,) = stopped_replicas(state, stepper.session.terms)
    assert stopped.term in ("loss", "gradient") and stepper.session.terms == ()
