"""Optimisers and schedules against NumPy in float64, written from their formulas."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from churn_jax.methods import ERM
from churn_jax.training import OPTIMIZERS, MeshShape, OptimizerConfig
from churn_jax.training.optim import Optimizer, make_schedule
from churn_jax.training.partition import make_mesh
from churn_jax.training.state import _init_optimizer
from tests.training import tiny

STEPS, RATE, DECAY = 5, 0.2, 0.05
SHAPES = {"kernel": (3, 2), "bias": (2,), "scale": (2,)}


def draw(seed):
    rng = np.random.default_rng(seed)
    return {k: rng.normal(size=s) for k, s in SHAPES.items()}


def factor(step):
    return (1 + np.cos(np.pi * step / STEPS)) / 2


def transformation(config, rate=0.1, decay=0.5):
    """Of a training of as many updates, one epoch."""
    made = Optimizer.of(config, steps_per_epoch=STEPS, total_steps=STEPS)
    return made.transformation(learning_rate=rate, weight_decay=decay)


def reference(config, params, gradients):
    """The textbook updates, one tensor after another."""
    params = {k: v.copy() for k, v in params.items()}
    first = {k: np.zeros(s) for k, s in SHAPES.items()}
    second = {k: np.full(s, config.adagrad_accumulator) for k, s in SHAPES.items()}
    if config.name == "adam":
        second = {k: np.zeros(s) for k, s in SHAPES.items()}
    for t, step_gradients in enumerate(gradients):
        norm = np.sqrt(sum(np.sum(g**2) for g in step_gradients.values()))
        shrink = 1.0
        if config.clip_norm is not None and norm > config.clip_norm:
            shrink = config.clip_norm / norm
        for k in SHAPES:
            g = step_gradients[k] * shrink
            w = params[k]
            decayed = DECAY if config.decay_on == "all" or w.ndim > 1 else 0.0
            if config.decay == "l2":
                g = g + decayed * w
            if config.name == "sgd":
                first[k] = config.momentum * first[k] + g
                move = g + config.momentum * first[k] if config.nesterov else first[k]
            elif config.name == "adam":
                first[k] = 0.9 * first[k] + 0.1 * g
                second[k] = 0.999 * second[k] + 0.001 * g**2
                mean = first[k] / (1 - 0.9 ** (t + 1))
                variance = second[k] / (1 - 0.999 ** (t + 1))
                move = mean / (np.sqrt(variance) + 1e-8)
            else:
                second[k] = second[k] + g**2
                move = g / np.sqrt(second[k])
            if config.decay == "decoupled":
                move = move + decayed * w
            params[k] = w - RATE * factor(t) * move
    return params


def ours(config, params, gradients):
    config = dataclasses.replace(config, schedule="cosine")

    @jax.jit
    def run(params, rate, decay):
        optimizer = transformation(config, rate, decay)
        state = optimizer.init(params)
        for step_gradients in gradients:
            step_gradients = jax.tree.map(jnp.float32, step_gradients)
            updates, state = optimizer.update(step_gradients, state, params)
            params = jax.tree.map(jnp.add, params, updates)
        return params

    return run(jax.tree.map(np.float32, params), RATE, DECAY)


CONFIGS = {
    "nesterov": OptimizerConfig(),
    "momentum": OptimizerConfig(nesterov=False, decay_on="all"),
    "plain": OptimizerConfig(momentum=0.0, nesterov=False),
    "decoupled": OptimizerConfig(decay="decoupled"),
    "adam": OptimizerConfig(name="adam"),
    "adamw": OptimizerConfig(name="adam", decay="decoupled", decay_on="all"),
    "adagrad": OptimizerConfig(name="adagrad", adagrad_accumulator=2.0),
    "some clipped": OptimizerConfig(clip_norm=3.0, decay_on="all"),
    "optax": OptimizerConfig(name="optax:adamw", decay="decoupled", clip_norm=3.0),
    "own": OptimizerConfig(name=f"{__name__}:adamw", decay="decoupled"),
}


def adamw(total_steps, weight_decay, mask, b1=0.9):
    """With a rate and a schedule of its own."""
    rate = optax.cosine_decay_schedule(RATE, total_steps)
    return optax.adamw(rate, b1, weight_decay=weight_decay, mask=mask)


@pytest.mark.parametrize("name", CONFIGS)
def test_updates_equal_the_formulas_in_float64(name):
    params, gradients = draw(0), [draw(i + 1) for i in range(STEPS)]
    config = CONFIGS[name]
    got = ours(config, params, gradients)
    if ":" in config.name:
        config = dataclasses.replace(config, name="adam")
    expected = reference(config, params, gradients)
    # Adam's 1 - 0.999^t keeps four digits in float32; the others keep six.
    atol = 1e-5 if config.name == "adam" else 1e-6
    for k in SHAPES:
        np.testing.assert_allclose(got[k], expected[k], rtol=1e-5, atol=atol)


def test_clipping_looks_at_one_network_and_not_at_its_neighbours():
    """Mapped over networks, a small gradient next to a large one stays as it is."""
    config = OptimizerConfig(momentum=0.0, nesterov=False, clip_norm=1.0)

    def one(gradient):
        optimizer = transformation(config, 1.0, 0.0)
        updates, _ = optimizer.update(gradient, optimizer.init(gradient), gradient)
        return updates

    got = jax.vmap(one)(jnp.array([[0.3, 0.4], [300.0, 400.0]]))
    np.testing.assert_allclose(got, [[-0.3, -0.4], [-0.6, -0.8]], rtol=1e-6)


# A BatchEnsemble's layer of two members with its batch norm.
MEMBERS = {
    "kernel": np.full((3, 2), 2.0),
    "bias": np.full((2, 2), 2.0),
    "fast_in": np.full((2, 3), 2.0),
    "fast_out": np.full((2, 2), 2.0),
    "norm": {"scale": np.full((2, 2), 2.0), "bias": np.full((2, 2), 2.0)},
}


def moved(gradient, **options):
    """How far each leaf moves in one update at rate 0.1, without momentum."""
    config = OptimizerConfig(momentum=0.0, nesterov=False, **options)
    params = jax.tree.map(np.float32, MEMBERS)

    @jax.jit
    def update(params):
        optimizer = transformation(config)
        given = jax.tree.map(lambda p: jnp.full_like(p, gradient), params)
        return optimizer.update(given, optimizer.init(params), params)[0]

    flat = jax.tree_util.tree_leaves_with_path(jax.device_get(update(params)))
    return {
        jax.tree_util.keystr(path, simple=True, separator="/"): float(leaf.ravel()[0])
        for path, leaf in flat
    }


@pytest.mark.parametrize(
    ("name", "clip"), [("sgd", None), ("adam", 1.0), ("adagrad", None)]
)
def test_fast_weights_move_at_their_own_rate(name, clip):
    """Half as far as without `fast_rate`; Adam and clipping see the same gradients."""
    options = {"name": name, "clip_norm": clip, "decay_on": "all"}
    whole, half = moved(0.3, **options), moved(0.3, fast_rate=0.5, **options)
    for leaf, update in whole.items():
        share = 0.5 if "fast" in leaf else 1.0
        np.testing.assert_allclose(half[leaf], share * update, rtol=1e-6, err_msg=leaf)
        assert update != 0


@pytest.mark.parametrize(
    ("decay", "decay_on"), [("l2", "kernels"), ("decoupled", "all")]
)
def test_fast_weights_never_decay_and_members_biases_are_no_kernels(decay, decay_on):
    found = moved(0.0, decay=decay, decay_on=decay_on)
    vectors = -0.1 * 0.5 * 2.0 if decay_on == "all" else 0.0
    expected = {
        "kernel": -0.1 * 0.5 * 2.0,
        "bias": vectors,
        "fast_in": 0.0,
        "fast_out": 0.0,
        "norm/scale": vectors,
        "norm/bias": vectors,
    }
    assert found == pytest.approx(expected)


def factors(config, *, steps_per_epoch, epochs):
    total = steps_per_epoch * epochs
    schedule = make_schedule(config, steps_per_epoch=steps_per_epoch, total_steps=total)
    return np.asarray(jax.jit(schedule)(jnp.arange(total + 1)))


def test_warm_up_and_steps_of_the_paper():
    """15 epochs up, then a tenth at epochs 200, 300 and 400 of 450."""
    config = OptimizerConfig(
        schedule="step", warmup_epochs=15, step_epochs=(200, 300, 400)
    )
    got = factors(config, steps_per_epoch=4, epochs=450)
    update = np.arange(len(got))
    expected = np.minimum(update / 60, 1.0)
    for epoch in (200, 300, 400):
        expected = np.where(update >= 4 * epoch, expected / 10, expected)
    np.testing.assert_allclose(got, expected, rtol=1e-5)
    assert got[799] == 1.0 and got[800] < 0.11  # the first update of epoch 200


def test_milestones_in_the_warm_up_and_on_one_update_all_count():
    """Shrunk studies have them."""
    config = OptimizerConfig(schedule="step", warmup_epochs=3, step_epochs=(1, 2))
    got = factors(config, steps_per_epoch=2, epochs=5)
    np.testing.assert_allclose(got[6:], 0.01, rtol=1e-5)
    config = OptimizerConfig(schedule="step", step_epochs=(1.0, 1.1))
    got = factors(config, steps_per_epoch=2, epochs=3)
    np.testing.assert_allclose(got, [1, 1, 0.01, 0.01, 0.01, 0.01, 0.01], rtol=1e-5)


def test_cosine_falls_from_one_to_its_final_factor():
    final = 0.1
    config = OptimizerConfig(schedule="cosine", warmup_epochs=2, final_factor=final)
    got = factors(config, steps_per_epoch=5, epochs=10)
    share = np.clip((np.arange(51) - 10) / 40, 0, 1)
    expected = final + (1 - final) * (1 + np.cos(np.pi * share)) / 2
    expected[:10] = np.arange(10) / 10
    np.testing.assert_allclose(got, expected, atol=1e-6)
    assert got[-1] == np.float32(final)


def test_flat_then_linear_has_the_shape_of_the_diversity_paper():
    """0.01 to 1 by epoch 5, flat to half of 200, down to 0.01 at 90 %, flat after."""
    config = OptimizerConfig(
        schedule="flat_then_linear",
        warmup_epochs=5,
        warmup_start=0.01,
        final_factor=0.01,
    )
    got = factors(config, steps_per_epoch=3, epochs=200)
    knots, heights = [0, 15, 300, 540, 600], [0.01, 1.0, 1.0, 0.01, 0.01]
    expected = np.interp(np.arange(601), knots, heights)
    np.testing.assert_allclose(got, expected, atol=1e-6)
    # Halves of an update are rounded once: the end is update 4.5, so 4, and 5.
    for until, end in ((0.9, 4), (1.0, 5)):
        short = OptimizerConfig(schedule="flat_then_linear", linear_until=until)
        got = factors(short, steps_per_epoch=1, epochs=5)
        expected = np.interp(np.arange(6), [0, 2, end], [1.0, 1.0, 0.0])
        np.testing.assert_allclose(got, expected, atol=1e-6)
    # A longer warm-up, as in a shrunk study, does not move the end.
    config = dataclasses.replace(config, warmup_epochs=6)
    got = factors(config, steps_per_epoch=1, epochs=10)
    expected = np.interp(np.arange(11), [0, 6, 9], [0.01, 1.0, 0.01])
    np.testing.assert_allclose(got, expected, atol=1e-6)


def test_a_warm_up_that_is_longer_than_training_is_said():
    config = OptimizerConfig(warmup_epochs=9)
    run = tiny.make_run(ERM(), network=tiny.LINEAR, optimizer=config)
    (note,) = tiny.session_of(run).notes
    assert "warm-up of 9 epochs is longer than training, 3, so" in note


def test_lists_are_taken_and_options_compared():
    """Runs of equal structure share what is compiled."""
    given = OptimizerConfig(step_epochs=[1, 2], member_rates=[1.0])
    assert given == OptimizerConfig(step_epochs=(1, 2), member_rates=(1.0,))
    assert hash(given) == hash(dataclasses.replace(given))


def grown(updates, state, params=None):
    del params
    return updates, (*state, 0)


def widened(updates, state, params=None):
    del params
    return jax.tree.map(lambda u: u[None], updates), state


OWN = {
    "rate": (lambda learning_rate, rho: optax.sgd(rho), "needs 'rho'; a function can"),
    "number": (lambda: 3, "returns a int; it must return an optax.GradientTransform"),
    "line search": (optax.lbfgs(), r"all networks at once, .*arguments: 'value'"),
    "state": (optax.GradientTransformation(lambda p: (), grown), "absent and is int"),
    "shape": (optax.GradientTransformation(lambda p: (), widened), r"\[1, 1, 1, 2\]"),
}


@pytest.mark.parametrize("case", OWN)
def test_an_optimiser_that_cannot_be_mapped_over_networks_is_refused(case, monkeypatch):
    monkeypatch.setattr(OPTIMIZERS, "_registered", {})
    own, message = OWN[case]
    OPTIMIZERS.register("mine")(own)
    made = Optimizer.of(OptimizerConfig("mine"), steps_per_epoch=1, total_steps=1)
    mesh, spec = make_mesh(MeshShape()), jax.sharding.PartitionSpec()
    sharding = jax.sharding.NamedSharding(mesh, spec)
    with pytest.raises(ValueError, match=f"optimizer mine .*{message}"):
        _init_optimizer(made, sharding)(({"w": jnp.ones((1, 1, 2))},))
