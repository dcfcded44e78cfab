"""CIFAR-10 at speed: the recipe of airbench94 for R seeds at once, as epochs go by.

    python benchmarks/airbench.py cifar10.npz --runs 10
    python benchmarks/airbench.py cifar10.npz --torch-python ENV/bin/python

The network is `airbench94` of the zoo; the recipe is Jordan's (arXiv 2404.00498): batch
1,024, Nesterov SGD with a triangular rate, biases of batch norm 64 times as fast,
labels smoothed by 0.2, weights drawn every fifth update towards a slow average of
theirs, the first layer's bias frozen after three of ten epochs. What differs is listed
in `benchmarks/README.md`. With `--torch-python` an independent PyTorch script of the
same recipe (`airbench_torch.py`) trains as many runs, one after another.

On a CPU `--width 16 --epochs 4` takes a quarter of an hour. With `--out` and
`--minutes` it saves and stops with exit code 3, and the same command goes on.
"""

import argparse
import json
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import replicas

from churn_jax import data, ensembles, methods, models
from churn_jax.configuration.training import (
    OPTIMIZERS,
    OptimizerConfig,
    Seeds,
    TrainConfig,
)
from churn_jax.data.augment import Augmentation
from churn_jax.methods.batch import LossOutput, forward
from churn_jax.methods.fields import pytree
from churn_jax.training.loop import train
from churn_jax.training.run import Interrupted, Run

MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)
MOMENTUM, SMOOTHING, EVERY, FASTER = 0.85, 0.2, 5, 64.0
# Of the published numbers per 1,024 examples, 11.5 and 0.0153; see `update`.
RATE = 11.5 / (1 + 1 / (1 - MOMENTUM))
DECAY = 0.0153 / 11.5
EARLY = 3 / 9.9  # share of training with a free first bias and without an average
START, PEAK, END = 0.2, 0.23, 0.07  # of the triangle: first factor, where 1, last


@pytree
class Smoothed(methods.ERM):
    """Cross-entropy with labels of which a share is spread over all classes."""

    def loss(self, apply, variables, batch, *, teacher, step, key):
        """The mean over the batch, summed over members."""
        del teacher, step, key
        logits, labels, model_state = forward(apply, variables, batch)
        scores = jax.nn.log_softmax(logits)
        right = jnp.take_along_axis(scores, labels[..., None], axis=-1)[..., 0]
        each = (1 - SMOOTHING) * right + SMOOTHING * jnp.mean(scores, axis=-1)
        loss = -jnp.sum(batch.member_mean(each))
        return LossOutput(loss, {"cross_entropy": loss}, model_state)


class Averaged(NamedTuple):
    """State of `airbench`."""

    count: jax.Array
    momentum: Any
    slow: Any


@OPTIMIZERS.register("airbench")
def airbench(total_steps: int, steps_per_epoch: int) -> optax.GradientTransformation:
    """Nesterov SGD of the recipe, whose weights return to a slow average of theirs."""
    early = EARLY * total_steps
    first = EVERY * (int(early) // EVERY + 1)  # update that begins the average

    def init(params):
        zeros = jax.tree.map(jnp.zeros_like, params)
        return Averaged(jnp.zeros((), jnp.int32), zeros, params)

    def update(gradients, state, params):
        count = state.count + 1
        edges = jnp.asarray([0.0, int(PEAK * total_steps), total_steps])
        factor = jnp.interp(state.count, edges, jnp.asarray([START, 1.0, END]))
        keep = 0.95**EVERY * (count / total_steps) ** 3
        averages = count % EVERY == 0
        ends = (count % steps_per_epoch == 0) | (count == total_steps)

        def one(path, gradient, momentum, slow, weight):
            name = jax.tree_util.keystr(path, simple=True, separator="/")
            scale = FASTER if "norm" in name else 1.0
            gradient = gradient + DECAY / scale * weight
            momentum = gradient + MOMENTUM * momentum
            step = RATE * scale * factor * (gradient + MOMENTUM * momentum)
            new = weight - step
            if "whitening" in name:
                new = jnp.where(state.count < early, new, weight)
            moved = jnp.where(count == first, new, keep * slow + (1 - keep) * new)
            slow = jnp.where(averages & (count >= first), moved, slow)
            back = (count >= first) & (averages | ends)
            return jnp.where(back, slow, new) - weight, momentum, slow

        moved = jax.tree_util.tree_map_with_path(
            one, gradients, state.momentum, state.slow, params
        )
        moves, momentum, slow = jax.tree.transpose(
            jax.tree.structure(params), jax.tree.structure((0, 0, 0)), moved
        )
        return moves, Averaged(count, momentum, slow)

    return optax.GradientTransformation(init, update)


def make_run(args: argparse.Namespace) -> Run:
    """R runs of the recipe."""
    network = models.create(
        "airbench94", num_classes=10, width=args.width, dtype=args.dtype, views=1
    )
    config = TrainConfig(
        replicas=args.runs,
        epochs=args.epochs,
        batch_size=args.batch,
        mapping=args.mapping,
        optimizer=OptimizerConfig("airbench", learning_rate=0.0, weight_decay=0.0),
        augmentation=Augmentation(shift=2, flip=True),
        seeds=Seeds(args.seed),
    )
    group = ensembles.Group(ensembles.from_linen(network), 1)
    return Run("airbench94", Smoothed(), (group,), config)


def accuracy_of_views(args, trained, images, labels) -> np.ndarray:
    """Accuracy of every run over six views of each image."""
    network = models.create(
        "airbench94", num_classes=10, width=args.width, dtype=args.dtype
    )

    def right(variables, x, y):
        x = (x / 255.0 - jnp.asarray(MEAN)) / jnp.asarray(STD)
        return jnp.sum(network.apply(variables, x).logits.argmax(-1) == y)

    @jax.jit
    def count(variables, x, y):
        return jax.vmap(right, in_axes=(0, None, None))(variables, x, y)

    (params,), (state,) = trained.params, trained.model_state
    first = jax.tree.map(lambda x: x[:, 0], {**state, "params": params})
    counts = [
        count(first, images[i : i + 500], labels[i : i + 500])
        for i in range(0, len(labels), 500)
    ]
    return np.sum(counts, axis=0) / len(labels)


def ours(args: argparse.Namespace) -> None:
    """Trains, and prints a line per epoch and the accuracy of six views."""
    dataset = data.load(args.data, train_size=args.train_size, validation=0)
    test = dataset.test
    dataset = data.Dataset(
        dataset.name, dataset.train, test, test, 10, fingerprint=dataset.fingerprint
    )
    start = time.perf_counter()

    def told(progress):
        line = {"peer": "churn_jax", "epoch": progress.epoch}
        line |= {"accuracy": progress.accuracy, "churn": progress.churn}
        line["seconds"] = time.perf_counter() - start
        print(json.dumps(line), flush=True)

    stop = threading.Event()
    if args.minutes:
        timer = threading.Timer(60 * args.minutes, stop.set)
        timer.daemon = True
        timer.start()
    try:
        trained = train(
            make_run(args),
            dataset,
            directory=args.out,
            mean=MEAN,
            std=STD,
            loggers=(),
            on_progress=told,
            show_progress=False,
            stop=stop,
        )
    except Interrupted:
        sys.exit(3)
    views = accuracy_of_views(args, trained, test.images, test.labels)
    line = {"peer": "churn_jax", "six views": views.tolist(), "mean": views.mean()}
    line |= {"seconds": trained.seconds, "of them compiling": trained.compile_seconds}
    print(json.dumps(line), flush=True)


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", help="an .npz file or a TFDS name")
    parser.add_argument("--runs", type=int, default=1, help="R")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch", type=int, default=1024)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--dtype", default="float32", help="or bfloat16")
    parser.add_argument("--mapping", default="auto")
    parser.add_argument("--train-size", type=int, help="default all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="folder of checkpoints")
    parser.add_argument("--minutes", type=float, default=0, help="then stop")
    parser.add_argument("--torch-python", help="interpreter that has PyTorch")
    return parser.parse_args()


def main() -> None:
    args = parse_args()
    ours(args)
    if args.torch_python:
        script = Path(__file__).with_name("airbench_torch.py")
        names = ("runs", "epochs", "batch", "width", "dtype", "seed")
        options = [f"--{name}={getattr(args, name)}" for name in names]
        device = "cuda" if jax.default_backend() == "gpu" else "cpu"
        options.append(f"--device={device}")
        if args.train_size:
            options.append(f"--train-size={args.train_size}")
        command = [args.torch_python, str(script), args.data, *options]
        subprocess.run(command, check=True)
    print(replicas.machine())


if __name__ == "__main__":
    main()
