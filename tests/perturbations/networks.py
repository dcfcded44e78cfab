"""Small tanh networks, once in JAX and once in float64 NumPy, for the same weights."""

import jax
import jax.numpy as jnp
import numpy as np

from tests.reference_losses import softmax

FEATURES, HIDDEN, CLASSES, BATCH = 6, 5, 4, 8


def weights(seed, size=1.0):
    """Weights of one network, NumPy float64; `size` multiplies its logits."""
    rng = np.random.default_rng(seed)
    return (
        rng.normal(scale=0.8, size=(FEATURES, HIDDEN)),
        rng.normal(size=HIDDEN),
        rng.normal(scale=size, size=(HIDDEN, CLASSES)),
    )


def network(weights, dtype=jnp.float32):
    """`(images [B, 2, 3]) -> logits [B, C]` in JAX."""
    first, bias, last = (jnp.asarray(w, dtype) for w in weights)

    def predict(images):
        flat = images.astype(dtype).reshape(images.shape[0], FEATURES)
        hidden = jnp.matmul(flat, first, precision="highest") + bias[None]
        return jnp.matmul(jnp.tanh(hidden), last, precision="highest")

    return predict


def networks(several):
    """`(images) -> logits [T, B, C]`."""
    each = [network(w) for w in several]
    return lambda images: jnp.stack([predict(images) for predict in each])


def probabilities(weights, images, temperature=1.0):
    """Tempered probabilities `[B, C]` in float64 NumPy."""
    first, bias, last = weights
    flat = np.asarray(images, np.float64).reshape(len(images), FEATURES)
    return softmax(np.tanh(flat @ first + bias) @ last / temperature)


def gradient(value, images, width=1e-5):
    """Central differences of `value(images) [B]`, every example by itself."""
    images = np.asarray(images, np.float64)
    found = np.zeros_like(images)
    for place in np.ndindex(images.shape[1:]):
        move = np.zeros_like(images)
        move[(slice(None), *place)] = width
        found[(slice(None), *place)] = value(images + move) - value(images - move)
    return found / (2 * width)


def unit(gradients):
    """Every example's gradient over its norm, float64."""
    flat = gradients.reshape(len(gradients), -1)
    return (flat / np.linalg.norm(flat, axis=1, keepdims=True)).reshape(gradients.shape)


def draw(seed=0, batch=BATCH):
    rng = np.random.default_rng(seed)
    images = rng.uniform(0.3, 0.7, (batch, 2, 3)).astype(np.float32)
    return jnp.asarray(images), jax.random.split(jax.random.key(seed), batch)
