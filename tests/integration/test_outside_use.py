"""Losses and metrics in programs that are not ours: pmap, a mesh, NNX, Linen and optax.

Nothing of `churn_jax` but `losses` and `metrics` is used here. Data are the real
hand-written digits of scikit-learn.
"""

import flax.linen as nn
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


def pmap_train_step(learning_rate):
    def step(params, images, labels):
        loss, grads = jax.value_and_grad(pair_objective)(params, images, labels)
        loss, grads = jax.lax.pmean((loss, grads), "batch")
        params = jax.tree.map(lambda p, g: p - learning_rate * g, params, grads)
        return params, loss, grads

    return jax.pmap(step, axis_name="batch")


@pytest.mark.slow
def test_pmap_gradient_equals_the_gradient_of_one_device(digits):
    (images, labels), _ = digits
    images, labels = images[:256], labels[:256]
    params = init_pair(0)
    stacked = jax.tree.map(lambda p: jnp.stack([p] * DEVICES), params)
    _, loss, grads = pmap_train_step(0.1)(stacked, shards(images), shards(labels))
    expected_loss, expected = objective_and_gradient(params, images, labels)
    np.testing.assert_allclose(loss, np.full(DEVICES, expected_loss), rtol=2e-6)
    for name, grad in jax.device_get(grads).items():
        everywhere = np.broadcast_to(expected[name], grad.shape)
        np.testing.assert_allclose(grad, everywhere, rtol=1e-4, atol=1e-6, err_msg=name)
    # The distance couples the two networks: each gradient depends on the other.
    other = jax.tree.map(lambda p: p.at[1].set(2.0 * p[1]), params)
    _, alone = objective_and_gradient(other, images, labels)
    assert jnp.max(jnp.abs(alone["w2"][0] - expected["w2"][0])) > 1e-4


@pytest.mark.slow
def test_pmap_training_learns_and_its_metrics_equal_those_of_one_device(digits):
    train, (images, labels) = digits
    images, labels = images[:768], labels[:768]
    step = pmap_train_step(0.3)
    params = jax.tree.map(lambda p: jnp.stack([p] * DEVICES), init_pair(1))
    history = []
    for x, y in batches(train, 256, steps=60):
        params, loss, _ = step(params, shards(x), shards(y))
        history.append(float(loss[0]))
    assert np.mean(history[-5:]) < 0.4 * np.mean(history[:5])
    for leaf in jax.tree.leaves(jax.device_get(params)):
        np.testing.assert_array_equal(leaf, np.broadcast_to(leaf[:1], leaf.shape))

    @jax.pmap
    def forward(params, x):
        return pair_logits(params, x)

    def evaluate(params, x, y):
        a, b = pair_logits(params, x)
        state = metrics.ChurnState.empty().update(a, b)
        state = jax.lax.psum(state, "batch")
        return state.compute(), jax.lax.pmean(metrics.accuracy(a, y), "batch")

    churn, accuracy = jax.pmap(evaluate, axis_name="batch")(
        params, shards(images), shards(labels)
    )
    a, b = forward(params, shards(images)).swapaxes(0, 1).reshape(2, 768, 10)
    np.testing.assert_allclose(churn, np.full(DEVICES, metrics.churn(a, b)), rtol=1e-6)
    np.testing.assert_allclose(accuracy[0], metrics.accuracy(a, labels), rtol=1e-6)
    assert accuracy[0] > 0.85
    assert 0.0 < churn[0] < 0.15


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


# --- Linen and optax, in someone else's loop -----------------------------------------


class LinenClassifier(nn.Module):
    @nn.compact
    def __call__(self, x):
        return nn.Dense(10)(nn.relu(nn.Dense(32)(x)))


def train_linen(train, alpha, steps=150):
    model, optimizer = LinenClassifier(), optax.adam(3e-3)
    params = model.init(jax.random.key(0), train[0][:1])
    opt_state = optimizer.init(params)

    @jax.jit
    def step(params, opt_state, x, y):
        def objective(params):
            logits = model.apply(params, x)
            risk = losses.cross_entropy(logits, y)
            regulariser = losses.entropy(logits, top_k=5)
            return jnp.mean((1 - alpha) * risk + alpha * regulariser), jnp.mean(risk)

        grads, risk = jax.grad(objective, has_aux=True)(params)
        updates, opt_state = optimizer.update(grads, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, risk

    history = []
    for x, y in batches(train, 64, steps, 5):
        params, opt_state, risk = step(params, opt_state, x, y)
        history.append(float(risk))
    return lambda x: model.apply(params, x), history


@pytest.mark.slow
def test_the_entropy_regulariser_makes_a_linen_model_more_confident(digits):
    train, (images, labels) = digits
    entropies, confidences = [], []
    for alpha in (0.0, 0.2, 0.4):
        model, history = train_linen(train, alpha)
        logits = model(images)
        assert np.mean(history[-5:]) < 0.3 * np.mean(history[:5])
        assert metrics.accuracy(logits, labels) > 0.85
        entropies.append(float(jnp.mean(losses.entropy(logits))))
        confidences.append(float(jnp.mean(metrics.prediction_confidence(logits))))
    assert entropies[0] > entropies[1] > entropies[2]
    assert confidences[0] < confidences[1] < confidences[2]
