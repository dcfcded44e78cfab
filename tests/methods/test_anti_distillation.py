"""What the table of methods does not hold: parts, gates, samples, memory, refusals."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from churn_jax.configuration.network import ModelConfig
from churn_jax.configuration.rows import MethodSpec
from churn_jax.configuration.training import MeshShape, OptimizerConfig
from churn_jax.ensembles import (
    Group,
    Outputs,
    apply_committee,
    from_function,
    from_linen,
)
from churn_jax.methods import UNKNOWN_LOGIT, AntiDistillation
from churn_jax.methods.anti_distillation import PENALTIES
from churn_jax.models import Gate
from churn_jax.training.predictions import predict_split
from tests import reference_losses as one
from tests.methods.cases import CLASSES, EXAMPLES, batch_of, draw, labels_of
from tests.training import tiny

MEMBERS = 3
LOGITS = draw(0, MEMBERS, EXAMPLES, CLASSES).astype(np.float32)
LABELS = labels_of(0)


@jax.jit
def loss_of(method, params, batch=None):
    """`LossOutput` of members whose parameters are their outputs."""

    def known(variables, images, train=True, extras=()):
        return Outputs(**variables["params"]), {}

    batch = batch_of(LABELS) if batch is None else batch
    return method.loss(
        known, {"params": params}, batch, teacher=None, step=jnp.int32(0), key=None
    )


def term(method, params, batch=None):
    return loss_of(method, params, batch).terms[method.penalty]


def test_every_penalty_is_the_one_of_its_name():
    methods = [AntiDistillation(members=MEMBERS, penalty=name) for name in PENALTIES]
    found = jax.jit(lambda z: [term(method, {"logits": z}) for method in methods])
    for name, value in zip(PENALTIES, found(LOGITS)):
        name = "orthogonalized_correlation" if name == "orthogonalized" else name
        expected = getattr(one, f"{name}_penalty")(LOGITS)
        np.testing.assert_allclose(value, expected, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("point", ["part", "features"])
def test_penalty_is_on_what_it_is_told_to_be(point):
    outputs = {
        "logits": LOGITS,
        "part": draw(1, MEMBERS, EXAMPLES).astype(np.float32),
        "features": draw(2, MEMBERS, EXAMPLES, 7).astype(np.float32),
    }
    method = AntiDistillation(members=MEMBERS, on=point)
    out = loss_of(method, outputs)
    expected = one.correlation_penalty(outputs[point])
    np.testing.assert_allclose(out.terms["correlation"], expected, rtol=1e-5)
    label = sum(np.mean(one.cross_entropy(z, LABELS)) for z in LOGITS)
    np.testing.assert_allclose(out.terms["cross_entropy"], label, rtol=1e-5)


@pytest.mark.parametrize("valid", [EXAMPLES, 5])
def test_lambda_against_a_summed_label_loss_is_over_the_batch_size(valid):
    mask = (np.arange(EXAMPLES) < valid).astype(np.float32)
    method = AntiDistillation(members=MEMBERS, strength=0.5, label_reduction="sum")
    z, labels = LOGITS[:, :valid], LABELS[:valid]
    label = sum(np.mean(one.cross_entropy(member, labels)) for member in z)
    expected = label + 0.5 / EXAMPLES * one.correlation_penalty(z)
    out = loss_of(method, {"logits": LOGITS}, batch_of(LABELS, mask))
    np.testing.assert_allclose(out.loss, expected, rtol=1e-5)


class TestGradients:
    """Between the ensemble's output and its components."""

    logits, weights = LOGITS, draw(3, MEMBERS, EXAMPLES).astype(np.float32)

    def gradients(self, **structure):
        method = AntiDistillation(members=MEMBERS, strength=0.0, **structure)
        params = {"logits": self.logits, "gate": self.weights}
        return jax.jit(jax.grad(lambda p: loss_of(method, p).loss))(params)

    def alone(self):
        """Gradient of each component's own cross-entropy: `(f - y) / n`."""
        return (one.softmax(self.logits) - np.eye(CLASSES)[LABELS]) / EXAMPLES

    def mixed(self):
        """Gradients of the mixture's cross-entropy, `-log sum_m w_m f_m(y)`."""
        f, onehot = one.softmax(self.logits), np.eye(CLASSES)[LABELS]
        w = one.softmax(self.weights.T).T
        right = np.sum(f * onehot, axis=-1)
        posterior = w * right / np.sum(w * right, axis=0)
        return {
            "logits": posterior[..., None] * (f - onehot) / EXAMPLES,
            "gate": (w - posterior) / EXAMPLES,
        }

    @pytest.mark.parametrize("train_on", ["components", "ensemble", "both"])
    def test_it_passes_where_the_ensemble_is_trained_and_the_gate_learns(
        self, train_on
    ):
        got, mixed = self.gradients(deploy="gate", train_on=train_on), self.mixed()
        alone, together = self.alone(), mixed["logits"]
        wanted = {"components": alone, "ensemble": together, "both": alone + together}
        np.testing.assert_allclose(got["logits"], wanted[train_on], atol=1e-7)
        np.testing.assert_allclose(got["gate"], mixed["gate"], atol=1e-7)
        assert min(np.abs(part).max() for part in mixed.values()) > 1e-2

    @pytest.mark.parametrize("average", ["mean_probs", "mean_logits"])
    def test_without_a_gate_each_component_trains_as_it_would_alone(self, average):
        got = self.gradients(deploy=average)
        np.testing.assert_allclose(got["logits"], self.alone(), atol=1e-7)
        np.testing.assert_array_equal(got["gate"], 0.0)


class TestSamples:
    """Components with samples of their own."""

    weights = np.array(
        [[2, 1, 0, 1, 0, 3, 1, 0], [1, 1, 1, 0, 0, 1, 2, 1], [1, 4, 1, 1, 0, 1, 0, 1]],
        np.float32,
    )

    def batch(self, weights, mask=None):
        return batch_of(LABELS, mask).replace(member_weights=jnp.asarray(weights))

    def method(self, **structure):
        return AntiDistillation(
            members=MEMBERS, member_sample="bootstrap", common_only=True, **structure
        )

    def test_common_only_is_over_what_all_components_hold(self):
        padded = np.array([1, 0, 1, 1, 1, 1, 1, 1], np.float32)
        for mask, rows in ((None, [0, 1, 5]), (padded, [0, 5])):
            batch = self.batch(self.weights, mask)
            got = term(self.method(), {"logits": LOGITS}, batch)
            expected = one.correlation_penalty(LOGITS[:, rows])
            np.testing.assert_allclose(got, expected, rtol=1e-5)
        whole = AntiDistillation(members=MEMBERS, member_sample="bootstrap")
        got = term(whole, {"logits": LOGITS}, self.batch(self.weights))
        np.testing.assert_allclose(got, one.correlation_penalty(LOGITS), rtol=1e-5)

    def test_label_losses_keep_their_own_samples(self):
        out = loss_of(self.method(), {"logits": LOGITS}, self.batch(self.weights))
        values = [one.cross_entropy(z, LABELS) for z in LOGITS]
        expected = np.sum(self.weights * values) / EXAMPLES
        np.testing.assert_allclose(out.terms["cross_entropy"], expected, rtol=1e-5)

    def test_nothing_in_common_is_no_penalty(self):
        batch = self.batch(np.eye(MEMBERS, EXAMPLES, dtype=np.float32))
        value, gradient = jax.jit(
            jax.value_and_grad(lambda z: term(self.method(), {"logits": z}, batch))
        )(LOGITS)
        assert value == 0.0
        np.testing.assert_array_equal(gradient, 0.0)


@pytest.mark.parametrize("penalty", ["correlation", "orthogonalized"])
def test_a_class_that_no_component_knows_is_not_penalised(penalty):
    method = AntiDistillation(members=MEMBERS, penalty=penalty)
    narrow = np.pad(LOGITS, ((0, 0), (0, 0), (0, 1)), constant_values=UNKNOWN_LOGIT)
    found = [term(method, {"logits": z}) for z in (LOGITS, narrow)]
    np.testing.assert_allclose(*found, rtol=1e-6)


@pytest.mark.parametrize("penalty", ["correlation", "covariance"])
def test_running_moments_go_from_update_to_update(penalty):
    method = AntiDistillation(members=MEMBERS, penalty=penalty, running=0.6)
    batches = [draw(s, MEMBERS, EXAMPLES, CLASSES).astype(np.float32) for s in (1, 2)]
    memory, values = method.init_memory(CLASSES), []
    for logits in batches:
        batch = batch_of(LABELS).replace(memory=memory)
        out = loss_of(method, {"logits": logits}, batch)
        memory = out.memory
        values.append(out.terms[penalty])
    for t in (1, 2):
        expected = one.running_correlation_penalty(
            batches[:t], 0.6, centred=penalty == "covariance"
        )
        np.testing.assert_allclose(values[t - 1], expected, rtol=1e-5)
    assert AntiDistillation().init_memory(CLASSES) == ()


@pytest.mark.parametrize("kind", ["input", "constant"])
def test_a_study_builds_the_gate_that_the_method_deploys(kind):
    method = AntiDistillation(members=MEMBERS, deploy="gate", gate=kind)
    groups = MethodSpec("a", "A", method).groups(ModelConfig(features=(4,)), CLASSES)
    assert [(g.size, g.gate, g.members) for g in groups] == [
        (MEMBERS, False, MEMBERS),
        (MEMBERS, True, 0),
    ]
    x = jnp.ones((EXAMPLES, 6))
    keys = jax.random.split(jax.random.key(0), MEMBERS)

    def initial():
        shapes = jax.eval_shape(groups[0].network.init, keys[0], x)
        ones = jax.tree.map(lambda leaf: jnp.ones((MEMBERS, *leaf.shape)), shapes)
        gate = jax.vmap(groups[1].network.init, (0, None))(keys, x)
        return apply_committee(groups, [ones, gate], x, train=False)[0], gate

    outputs, gate = jax.jit(initial)()
    assert outputs.logits.shape == (MEMBERS, EXAMPLES, CLASSES)
    # An untrained gate is the plain average.
    np.testing.assert_array_equal(outputs.gate, np.zeros((MEMBERS, EXAMPLES)))
    sizes = [leaf.size for leaf in jax.tree.leaves(gate)]
    assert sum(sizes) == MEMBERS * (7 if kind == "input" else 1)


# ---- through the engine: meshes, sweeps, committees

ADAGRAD = OptimizerConfig(name="adagrad", learning_rate=0.05, weight_decay=0.0)


def _init(key, x):
    wide, deep = jax.random.split(key)
    size = x[0].size
    return {
        "wide": jax.random.normal(wide, (size, tiny.CLASSES)) / size,
        "deep": jax.random.normal(deep, (size, tiny.CLASSES)) / size**0.5,
    }


def _apply(params, x):
    x = x.reshape(x.shape[0], -1)
    deep = jnp.tanh(x @ params["deep"])
    return Outputs(x @ params["wide"] + deep, features=x @ params["deep"], part=deep)


WIDE_AND_DEEP = from_function(_init, _apply, name="wide and deep")
GATE = Group(from_linen(Gate(1), name="gate"), 2, gate=True)


def run_of(method, groups=None, **options):
    options = {"optimizer": ADAGRAD, **options}
    run = tiny.make_run(method, network=WIDE_AND_DEEP, **options)
    return run if groups is None else dataclasses.replace(run, groups=tuple(groups))


def predictions(stepper):
    """What is deployed of the first eight images, `[R, 8, C]`."""
    state, program = stepper.states[0], stepper.session.program
    held, images = [(state.params, state.model_state)], stepper.session.data[0][:8]
    logits = predict_split(stepper.run, program, held, images)
    return np.asarray(logits)


@pytest.mark.slow
def test_a_mesh_computes_what_one_device_computes():
    """Replicas, members and examples are all sharded; so are gate and memory."""
    method = AntiDistillation(
        deploy="gate",
        strength=4.0,
        label_reduction="sum",
        penalty="covariance",
        running=0.5,
        member_sample="bootstrap",
        common_only=True,
    )
    groups = [Group(WIDE_AND_DEEP, 2), GATE]
    ends = []
    for shape in ((1, 1, 1), (2, 2, 2)):
        run = run_of(method, groups, mesh=MeshShape(*shape))
        stepper = tiny.stepper(run)
        first, third = stepper.advance(1), stepper.advance(2)
        ends.append((first.sums, third.sums, third.params, third.memory, third.alive))
        ends[-1] += (predictions(stepper),)
        start = first.params
    assert tiny.largest_difference(*ends) < 1e-5
    assert np.all(ends[0][4])
    # Everything moves: both parts of the networks and the gate.
    moved = jax.tree.map(lambda a, b: np.max(np.abs(a - b)), start, ends[1][2])
    assert min(jax.tree.leaves(moved)) > 1e-4


def test_the_gate_is_no_member_and_needs_a_method_that_trains_it():
    groups = [Group(WIDE_AND_DEEP, 2), GATE]
    run = run_of(AntiDistillation(deploy="gate"), groups)
    assert sum(g.members for g in run.groups) == 2
    with pytest.raises(ValueError, match="deploy='mean_probs' would not train it"):
        run_of(AntiDistillation(), groups)
    with pytest.raises(ValueError, match="2 gate groups"):
        run_of(AntiDistillation(deploy="gate"), [*groups, GATE])
    one_for_all = Group(from_linen(Gate(2), name="gate"), 1, gate=True)
    shared = run_of(
        AntiDistillation(deploy="gate"),
        [groups[0], one_for_all],
        mesh=MeshShape(2, 2, 2),
    )
    with pytest.raises(ValueError, match="1 networks of gate cannot be sharded"):
        tiny.session_of(shared)
