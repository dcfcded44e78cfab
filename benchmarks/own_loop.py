"""Does `churn_jax.study` with a network of one's own train as well as a plain loop?

    JAX_PLATFORMS=cpu python benchmarks/own_loop.py cifar10.npz

A small convolutional network with batch norm and dropout, AdamW with a cosine schedule,
mirrored images. The loop is written with Flax and optax alone, one run after another,
with its own order, mirroring and keys; both sides normalise by the moments of the
training images. Test accuracy of each, mean and standard error over runs, and seconds.
"""

import argparse
import datetime
import tempfile
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen as nn

import churn_jax
from churn_jax.data import load
from churn_jax.methods import ERM
from churn_jax.studies.folder import hardware


class Net(nn.Module):
    """Three convolutions of stride 2 and a dense layer."""

    width: int = 16

    @nn.compact
    def __call__(self, x, train: bool = False):
        """Logits `[B, 10]` of images `[B, 32, 32, 3]`."""
        for factor in (1, 2, 4):
            x = nn.Conv(factor * self.width, (3, 3), (2, 2), use_bias=False)(x)
            x = nn.relu(nn.BatchNorm(use_running_average=not train, momentum=0.9)(x))
        x = x.reshape(len(x), -1)
        return nn.Dense(10)(nn.Dropout(0.3, deterministic=not train)(x))


def optimizer(steps: int) -> optax.GradientTransformation:
    """The recipe of both sides."""
    return optax.adamw(optax.cosine_decay_schedule(2e-3, steps), weight_decay=1e-3)


def by_hand(dataset, epochs: int, batch: int, seed: int) -> float:
    """Test accuracy of one run of a plain loop."""
    images, labels = dataset.train.images, dataset.train.labels
    pixels = images.reshape(-1, images.shape[-1]) / 255.0
    mean, std = pixels.mean(0), pixels.std(0)
    network, steps = Net(), len(images) // batch
    update_rule = optimizer(epochs * steps)
    rng = np.random.default_rng(1000 + seed)

    def normal(x):
        return (x.astype(jnp.float32) / 255.0 - mean) / std

    @jax.jit
    def step(state, x, y, key):
        params, statistics, moments = state

        def loss(params):
            logits, new = network.apply(
                {"params": params, "batch_stats": statistics},
                normal(x),
                train=True,
                rngs={"dropout": key},
                mutable=["batch_stats"],
            )
            losses = optax.softmax_cross_entropy_with_integer_labels(logits, y)
            return losses.mean(), new["batch_stats"]

        gradient, statistics = jax.grad(loss, has_aux=True)(params)
        change, moments = update_rule.update(gradient, moments, params)
        return optax.apply_updates(params, change), statistics, moments

    @jax.jit
    def predict(state, x):
        variables: Any = {"params": state[0], "batch_stats": state[1]}
        return network.apply(variables, normal(x)).argmax(-1)

    key = jax.random.key(1000 + seed)
    made = network.init(key, jnp.zeros((1, *images.shape[1:])))
    state = made["params"], made["batch_stats"], update_rule.init(made["params"])
    for _ in range(epochs):
        order = rng.permutation(len(images))
        for k in range(steps):
            rows = order[k * batch : (k + 1) * batch]
            x = images[rows]
            mirrored = rng.random(batch) < 0.5
            x = np.where(mirrored[:, None, None, None], x[:, :, ::-1], x)
            key, own = jax.random.split(key)
            state = step(state, x, labels[rows], own)
    test, right = dataset.test, 0
    for first in range(0, len(test), 1000):
        part = slice(first, first + 1000)
        right += int((predict(state, test.images[part]) == test.labels[part]).sum())
    return right / len(test)


def by_study(dataset, epochs: int, batch: int, replicas: int) -> np.ndarray:
    """Test accuracies of the runs of a study."""
    steps = len(dataset.train) // batch
    with tempfile.TemporaryDirectory() as folder:
        result = churn_jax.study(
            data=dataset,
            methods={"baseline": ERM()},
            model=Net(),
            optimizer=optimizer(epochs * steps),
            settings={"augmentation.flip": True, "eval_every_epochs": epochs},
            **{"epochs": epochs, "batch_size": batch, "replicas": replicas},
            out=folder,
        )
        predicted = result.predictions["baseline"].argmax(-1)
    return (predicted == dataset.test.labels).mean(-1)


def main() -> None:
    """Prints both sides."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", help="an .npz file or a TFDS name")
    parser.add_argument("--train-size", type=int, default=10_000)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--runs", type=int, default=5)
    given = parser.parse_args()
    dataset = load(given.data, train_size=given.train_size, validation=2000)
    began = time.perf_counter()
    study = by_study(dataset, given.epochs, given.batch, given.runs)
    half = time.perf_counter()
    seeds = range(given.runs)
    loop = np.array([by_hand(dataset, given.epochs, given.batch, s) for s in seeds])
    end = time.perf_counter()
    print(f"{hardware()}, {datetime.date.today()}")
    for name, found, seconds in (
        ("study", study, half - began),
        ("loop", loop, end - half),
    ):
        error = found.std(ddof=1) / np.sqrt(len(found))
        print(
            f"{name:6} {100 * found.mean():.2f} +- {100 * error:.2f} %, {seconds:.0f} s"
        )
    error = np.sqrt((study.var(ddof=1) + loop.var(ddof=1)) / given.runs)
    gap = study.mean() - loop.mean()
    print(f"study - loop {100 * gap:+.2f} +- {100 * error:.2f} points")


if __name__ == "__main__":
    main()
