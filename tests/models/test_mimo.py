"""A MIMO network's answers are about the image they are listed under."""

from functools import partial

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

from churn_jax.ensembles import from_linen
from churn_jax.methods import OneToOneDistillation
from churn_jax.models import MIMO, MLP, LeNet5, ResNet
from churn_jax.models.layers import ModelOutput
from churn_jax.models.mimo import draw_orders
from tests.devices import over_devices
from tests.models.linen_networks import drawn_variables, images
from tests.training import tiny

K, B = 3, 8


def shuffled(model, variables, x, seed=0):
    rngs = {"dropout": jax.random.key(seed)}
    return model.apply(variables, x, train=True, rngs=rngs)


class Copy(nn.Module):
    """Its logits are the numbers that its inputs hold."""

    layers: MIMO

    @nn.compact
    def __call__(self, x, train=False):
        x, entered = self.layers.enter(self, x, train)
        x = x.mean((1, 2))  # every image's channels, next to those of the others
        return self.layers.output(x, x, entered)


NUMBERS = np.stack([np.arange(B), -np.arange(B)], -1).astype(np.float32)
# Image b holds (b, -b); whatever the order, member m answers so at [m, b].
NUMBERED = np.broadcast_to(NUMBERS[:, None, None], (B, 2, 2, 2))


@pytest.mark.parametrize(
    "repetition", [pytest.param(0.0, marks=pytest.mark.slow), 0.5, 1.0]
)
def test_a_members_answer_for_an_image_stands_at_that_image(repetition):
    model = Copy(MIMO(K, repetition))
    alone, *answers = jax.jit(
        lambda x: (
            model.apply({}, x),
            *(shuffled(model, {}, x, seed) for seed in (0, 1)),
        )
    )(NUMBERED)
    expected = np.broadcast_to(NUMBERS, (K, B, 2))
    np.testing.assert_array_equal(alone.logits, expected)
    for output in answers:
        np.testing.assert_array_equal(output.logits, expected)
        # The features are the row's: they hold this image and the others next to it.
        own = np.asarray(output.features).reshape(K, B, K, 2)
        for m in range(K):
            np.testing.assert_array_equal(own[m, :, m], NUMBERS)
        assert (own[0, :, 1] != NUMBERS).any() == (repetition < 1)


def test_on_a_mesh_a_device_shuffles_its_own_share_of_the_batch():
    """Answers stay in place; next to image b are images of its device alone."""
    devices, share = 4, B // 4
    members = P(None, "data")
    output = over_devices(
        lambda x: shuffled(Copy(MIMO(K)), {}, x, seed=3),
        P("data"),
        out=ModelOutput(members, members),
        devices=devices,
    )(NUMBERED)
    np.testing.assert_array_equal(output.logits, np.broadcast_to(NUMBERS, (K, B, 2)))
    seen = np.asarray(output.features).reshape(K, B, K, 2)[..., 0]
    home = np.arange(B)[None, :, None] // share
    assert (seen // share == home).all()
    assert (seen != np.arange(B)[None, :, None]).any()


def test_orders_are_permutations_that_agree_as_often_as_asked():
    def draw(keys):
        both = (0.4, 0.0)
        return [jax.vmap(lambda k, p=p: draw_orders(k, 2, 50, p))(keys) for p in both]

    kept, free = map(np.asarray, jax.jit(draw)(jax.random.split(jax.random.key(0), 40)))
    for orders in (kept, free):
        expected = np.broadcast_to(range(50), (40, 2, 50))
        np.testing.assert_array_equal(np.sort(orders), expected)
    # Places that agree on purpose, and one of those left by chance: 0.4 + 0.02.
    assert abs((kept[:, 0] == kept[:, 1]).mean() - 0.42) < 0.05
    assert abs((free[:, 0] == free[:, 1]).mean() - 0.02) < 0.02
    # No place is favoured: 14 is six standard errors of a mean of 40.
    assert abs(free[:, 0].mean(0) - 24.5).max() < 14


def test_without_a_stream_and_in_evaluation_a_row_is_one_image():
    model = MLP((6,), 4, layers=MIMO(K))
    x = images(B, 5)
    variables = drawn_variables(model, x)
    both = jax.jit(
        lambda v, x: (
            model.apply(v, x),
            model.apply(v, x, train=True),
            shuffled(model, v, x),
        )
    )
    evaluated, trained, other = jax.device_get(both(variables, x))
    np.testing.assert_array_equal(evaluated.logits, trained.logits)
    assert np.abs(other.logits - trained.logits).max() > 1e-3
    # By hand: the kernel's K blocks of rows see the same image.
    p = jax.tree.map(lambda a: np.asarray(a, np.float64), variables["params"])
    hidden = np.concatenate([x] * K, 1) @ p["dense1"]["kernel"] + p["dense1"]["bias"]
    logits = np.maximum(hidden, 0) @ p["head"]["kernel"] + p["head"]["bias"]
    expected = logits.reshape(B, K, 4).transpose(1, 0, 2)
    np.testing.assert_allclose(evaluated.logits, expected, rtol=1e-5, atol=1e-6)


def test_gradients_are_those_of_the_rows_put_together_by_hand():
    model = MLP((), 2, layers=MIMO(2))  # linear: one row's gradient is an outer product
    x, outer = images(4, 3), images(2, 4, 2)
    variables = drawn_variables(model, x)

    def loss(variables, x):
        output = shuffled(model, variables, x)
        return jnp.sum(outer * output.logits), output.features

    (found, in_images), rows = jax.jit(jax.grad(loss, argnums=(0, 1), has_aux=True))(
        variables, x
    )
    kernel = np.asarray(variables["params"]["head"]["kernel"], np.float64)
    expected, of_images = np.zeros((6, 4)), np.zeros((4, 3))
    for m in range(2):
        for b in range(4):
            row, own = np.asarray(rows[m, b]), slice(2 * m, 2 * m + 2)
            expected[:, own] += np.outer(row, outer[m, b])
            for other in range(2):  # which image is the row's other one
                seen = row[3 * other : 3 * other + 3]
                (i,) = np.flatnonzero((np.asarray(x) == seen).all(1))
                of_images[i] += kernel[3 * other : 3 * other + 3, own] @ outer[m, b]
    head = found["params"]["head"]["kernel"]
    np.testing.assert_allclose(head, expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(in_images, of_images, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("build", "shape", "first", "last"),
    [
        (partial(MLP, (6,)), (8, 8, 1), 64 * 6, 6),
        (partial(LeNet5, layout="nhwc"), (28, 28, 1), 25 * 6, 84),
        (partial(ResNet, 8), (8, 8, 3), 9 * 3 * 16, 64),
    ],
    ids=["mlp", "lenet5", "resnet8"],
)
def test_only_the_ends_grow(build, shape, first, last):
    def tree(**options):
        model = build(num_classes=10, **options)
        x = np.zeros((2, *shape), "f4")
        return model, jax.eval_shape(model.init, jax.random.key(0), x)["params"]

    def count(params):
        return sum(leaf.size for leaf in jax.tree.leaves(params))

    (model, ours), (_, plain) = tree(layers=MIMO(K)), tree()
    assert count(ours) == count(plain) + (K - 1) * (first + 10 * last + 10)
    (name,) = model.input_params
    grown = [ours[name]["kernel"].shape, plain[name]["kernel"].shape]
    assert grown[0][-2] == K * grown[1][-2]


@pytest.mark.slow
def test_distillation_one_to_one_trains_it_through_the_engine():
    network = from_linen(MLP((8,), tiny.CLASSES, layers=MIMO(2)))
    assert network.heads == 2 and network.input_params == ("dense1",)
    method = OneToOneDistillation(members=2, deploy="mean_probs", perturbation="ods")
    run = tiny.make_run(method, network=network, replicas=1)
    teacher = tiny.teacher(2, replicas=1, network=tiny.LINEAR)
    stepper = tiny.stepper(run, taught_by=teacher)
    before = stepper.now()
    after = stepper.advance(1)
    assert after.alive.all() and np.isfinite(after.sums).all()
    assert tiny.largest_difference(before.params, after.params) > 1e-4
