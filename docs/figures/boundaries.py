"""Draws how churn arises, with two networks trained here: `boundaries.png`.

python docs/figures/boundaries.py prints the accuracies and the churn it shows.
"""

from pathlib import Path

import jax
import jax.numpy as jnp
import matplotlib
import numpy as np
import optax

from churn_compare.documents.plotting import COLOURS
from churn_jax import losses, metrics

matplotlib.use("agg")
import matplotlib.pyplot as plt

STEPS, RATE, HIDDEN, NOISE = 3000, 3e-3, 64, 0.4


def moons(size: int, seed: int):
    """Points of two interleaved half circles with noise, and their classes."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(2, size=size)
    angle = np.pi * rng.random(size)
    x = np.where(labels, 1 - np.cos(angle), np.cos(angle))
    y = np.where(labels, 0.5 - np.sin(angle), np.sin(angle))
    points = np.stack([x, y], axis=-1) + NOISE * rng.normal(size=(size, 2))
    return points.astype(np.float32), labels


def network(weights, points):
    """Logits of a network with two hidden layers."""
    first, bias, second, last = weights
    return jax.nn.relu(jax.nn.relu(points @ first + bias) @ second) @ last


def trained(seed: int, points, labels):
    """Weights after full-batch training; only the initial weights depend on `seed`."""
    keys = jax.random.split(jax.random.key(seed), 4)
    weights = (
        jax.random.normal(keys[0], (2, HIDDEN)),
        jax.random.normal(keys[1], (HIDDEN,)),
        jax.random.normal(keys[2], (HIDDEN, HIDDEN)) * (2 / HIDDEN) ** 0.5,
        jax.random.normal(keys[3], (HIDDEN, 2)) / HIDDEN**0.5,
    )
    optimizer = optax.adam(RATE)

    def update(carry, _):
        weights, state = carry
        gradient = jax.grad(
            lambda w: losses.cross_entropy(network(w, points), labels).mean()
        )(weights)
        change, state = optimizer.update(gradient, state)
        return (optax.apply_updates(weights, change), state), None

    start = (weights, optimizer.init(weights))
    return jax.lax.scan(update, start, length=STEPS)[0][0]


def draw(seeds=(0, 2)):
    """Trains two runs, prints what the picture shows and writes it."""
    points, labels = moons(160, seed=0)
    test, right = moons(20_000, seed=1)
    runs = [trained(seed, points, labels) for seed in seeds]
    logits = [network(run, test) for run in runs]
    accuracy = [float(metrics.accuracy(one, right)) for one in logits]
    churn = float(metrics.churn(*logits))
    print(f"accuracy {accuracy[0]:.3f} {accuracy[1]:.3f}, churn {churn:.3f}")

    x, y = np.meshgrid(np.linspace(-2, 3, 500), np.linspace(-1.6, 2.1, 370))
    grid = jnp.stack([x, y], axis=-1)
    margins = [np.asarray(jnp.diff(network(run, grid))[..., 0]) for run in runs]
    other = ((margins[0] > 0) != (margins[1] > 0)).astype(float)
    fig, axes = plt.subplots(1, 3, figsize=(9.6, 3.1), sharey=True)
    titles = [f"Run {n + 1}: {100 * a:.1f} % right" for n, a in enumerate(accuracy)]
    titles.append(f"They differ on {100 * churn:.1f} %")
    for axis, title in zip(axes, titles):
        axis.set(xticks=[], yticks=[], title=title, xlim=(-2, 3), ylim=(-1.6, 2.1))
        for label, marker in ((0, "o"), (1, "s")):
            of = points[labels == label]
            axis.scatter(*of.T, s=12, c=COLOURS[label], marker=marker, zorder=3, lw=0)
    axes[2].contourf(x, y, other, levels=[0.5, 1], colors=[COLOURS[5]], alpha=0.45)
    for margin, axis, style in zip(margins, axes, ("-", "--")):
        shade = [COLOURS[0], COLOURS[1]]
        axis.contourf(x, y, margin > 0, levels=[-1, 0.5, 1], colors=shade, alpha=0.16)
        for one in (axis, axes[2]):
            one.contour(x, y, margin, levels=[0], colors="#1c1e21", linestyles=style)
    fig.tight_layout()
    path = Path(__file__).with_suffix(".png")
    fig.savefig(path, dpi=130, metadata={"Software": None})
    plt.close(fig)


if __name__ == "__main__":
    draw()
