"""Losses and metrics in programs that are not ours: pmap, a mesh, NNX and optax.

Nothing of `churn_jax` but `losses` and `metrics` is used here. Data are the real
hand-written digits of scikit-learn.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P
from sklearn.datasets import load_digits

from churn_jax import losses, metrics

DEVICES = 8
TRAIN = 1024


@pytest.fixture(scope="module")
def digits():
    """`(images [N, 64], labels [N])` for training and for evaluation."""
    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(images))
    images = jnp.asarray(images[order] / 16.0, jnp.float32)
    labels = jnp.asarray(labels[order], jnp.int32)
    return (images[:TRAIN], labels[:TRAIN]), (images[TRAIN:], labels[TRAIN:])


def batches(data, size, steps, seed=0):
    """Random batches, drawn with replacement."""
    rng = np.random.default_rng(seed)
    for _ in range(steps):
        rows = rng.integers(len(data[0]), size=size)
        yield data[0][rows], data[1][rows]


# --- a hand-written network, a pair of them co-distilled, on eight devices ---------


def init_pair(seed):
    """Weights of two networks, stacked: `[2, ...]`."""
    k1, k2 = jax.random.split(jax.random.key(seed))
    return {
        "w1": jax.random.normal(k1, (2, 64, 32)) / 8.0,
        "b1": jnp.zeros((2, 1, 32)),
        "w2": jax.random.normal(k2, (2, 32, 10)) / 6.0,
        "b2": jnp.zeros((2, 1, 10)),
    }


def pair_logits(params, images):
    hidden = jax.nn.relu(jnp.einsum("nd,mdh->mnh", images, params["w1"]) + params["b1"])
    return hidden @ params["w2"] + params["b2"]


def pair_objective(params, images, labels):
    """Eq. 19 of the first paper: two risks, their distance, their entropies."""
    a, b = pair_logits(params, images)
    per_example = (
        losses.cross_entropy(a, labels)
        + losses.cross_entropy(b, labels)
        + 0.5 * losses.symmetric_kl(a, b)
        + 0.1 * (losses.entropy(a) + losses.entropy(b))
    )
    return jnp.mean(per_example)


objective_and_gradient = jax.jit(jax.value_and_grad(pair_objective))


def shards(x):
    return x.reshape(DEVICES, -1, *x.shape[1:])


@functools.partial(jax.pmap, axis_name="batch")
def pmapped(params, images, labels):
    found = jax.value_and_grad(pair_objective)(params, images, labels)
    return jax.lax.pmean(found, "batch")


@pytest.mark.slow
def test_pmap_gradient_equals_the_gradient_of_one_device(digits):
    (images, labels), _ = digits
    images, labels = images[:256], labels[:256]
    params = init_pair(0)
    stacked = jax.tree.map(lambda p: jnp.stack([p] * DEVICES), params)
    loss, grads = pmapped(stacked, shards(images), shards(labels))
    expected_loss, expected = objective_and_gradient(params, images, labels)
    np.testing.assert_allclose(loss, np.full(DEVICES, expected_loss), rtol=2e-6)
    for name, grad in jax.device_get(grads).items():
        everywhere = np.broadcast_to(expected[name], grad.shape)
        np.testing.assert_allclose(grad, everywhere, rtol=1e-4, atol=1e-6, err_msg=name)
    # The distance couples the two networks: each gradient depends on the other.
    other = jax.tree.map(lambda p: p.at[1].set(2.0 * p[1]), params)
    _, alone = objective_and_gradient(other, images, labels)
    assert jnp.max(jnp.abs(alone["w2"][0] - expected["w2"][0])) > 1e-4


def test_a_jitted_step_on_a_mesh_equals_one_device(digits):
    (images, labels), _ = digits
    images, labels = images[:256], labels[:256]
    params = init_pair(2)
    mesh = jax.make_mesh((DEVICES,), ("data",), axis_types=(AxisType.Auto,))
    rows = NamedSharding(mesh, P("data"))
    everywhere = NamedSharding(mesh, P())
    loss, grads = objective_and_gradient(  # the same function, partitioned for eight
        jax.device_put(params, everywhere),
        jax.device_put(images, rows),
        jax.device_put(labels, rows),
    )
    expected_loss, expected = objective_and_gradient(params, images, labels)
    assert len(loss.sharding.device_set) == DEVICES
    np.testing.assert_allclose(loss, expected_loss, rtol=2e-6)
    for name in grads:
        np.testing.assert_allclose(grads[name], expected[name], rtol=1e-4, atol=1e-6)


# --- NNX modules ---------------------------------------------------------------------


class Classifier(nnx.Module):
    def __init__(self, rngs):
        self.hidden = nnx.Linear(64, 32, rngs=rngs)
        self.head = nnx.Linear(32, 10, rngs=rngs)

    def __call__(self, x):
        return self.head(nnx.relu(self.hidden(x)))


class Pair(nnx.Module):
    def __init__(self, seeds):
        self.a, self.b = (Classifier(nnx.Rngs(seed)) for seed in seeds)


def train_nnx_pair(train, beta, steps=120):
    """The pair and its history of risks (without the distance)."""
    pair = Pair((0, 1))
    optimizer = optax.adam(5e-3)
    opt_state = optimizer.init(nnx.state(pair, nnx.Param))

    def objective(pair, x, y):
        a, b = pair.a(x), pair.b(x)
        risk = losses.cross_entropy(a, y) + losses.cross_entropy(b, y)
        distance = losses.symmetric_kl(a, b)
        return jnp.mean(risk + beta * distance), jnp.mean(risk)

    @nnx.jit
    def step(pair, opt_state, x, y):
        (_, risk), grads = nnx.value_and_grad(objective, has_aux=True)(pair, x, y)
        params = nnx.state(pair, nnx.Param)
        updates, opt_state = optimizer.update(grads, opt_state, params)
        nnx.update(pair, optax.apply_updates(params, updates))
        return opt_state, risk

    history = []
    for x, y in batches(train, 64, steps, 3):
        opt_state, risk = step(pair, opt_state, x, y)
        history.append(float(risk))
    return pair, history


@pytest.mark.slow
def test_a_codistilled_nnx_pair_agrees_more_as_beta_grows(digits):
    train, (images, labels) = digits
    before = Pair((0, 1))
    churn_before = metrics.churn(before.a(images), before.b(images))
    distances, churns = [], []
    for beta in (0.0, 0.3, 1.0):
        pair, history = train_nnx_pair(train, beta)
        a, b = pair.a(images), pair.b(images)
        assert np.mean(history[-5:]) < 0.3 * np.mean(history[:5])
        assert metrics.accuracy(a, labels) > 0.85
        distances.append(float(jnp.mean(losses.symmetric_kl(a, b))))
        churns.append(float(metrics.churn(a, b)))
    assert distances[0] > distances[1] > distances[2]
    assert churns[0] > churns[2]  # 773 examples: neighbouring weights may tie
    assert max(churns) < 0.2 < 0.7 < churn_before
