"""Images per second of streamed input, against what a training step eats.

    python benchmarks/input.py --appetite "ResNet-50, one GPU=2500"

JPEGs of 500 x 375 pixels and 107 kB, as those of ImageNet on average, of random content
with texture, lie in memory. Measured is decoding, the Inception-style crop, resizing to
224 pixels, mirroring, batching and placing on the device, as the trainer does it
(`churn_jax.training.feed`). Contenders take turns, each with what it had read ahead
taken off first; a number is the median over repeats.

* `threads n`: n threads of this process;
* `workers n`: n processes with one thread each;
* `Pillow, full decode`: a plain loop that decodes every pixel, in one thread.

Replicas with orders or crops of their own eat R times the images that one replica does;
replicas that share them eat one replica's.
"""

import argparse
import functools
import io
import os
import time
from collections.abc import Iterator

import jax
import numpy as np
from PIL import Image
from turns import machine, rates, take_turns

from churn_jax.data.crop import random_crop
from churn_jax.data.records import EncodedImages, Reading, StreamedSplit
from churn_jax.training import Seeds, TrainConfig
from churn_jax.training.feed import Feed
from churn_jax.training.partition import make_mesh
from churn_jax.training.state import draw_sample, epoch_order

_SIZE = 224
_READY = 16  # more than any contender reads ahead
# Images/s of one step on two CPU cores, from README.md in this folder.
_APPETITES = ("LeNet5, 2 CPU cores=18537", "ResNet-20, 2 CPU cores=267")


def photograph(rng: np.random.Generator) -> bytes:
    """A JPEG with smooth shapes and fine texture."""
    width, height = 500, 375
    shapes = rng.integers(0, 256, (height // 8, width // 8, 3), dtype=np.uint8)
    smooth = Image.fromarray(shapes).resize((width, height), Image.Resampling.BICUBIC)
    pixels = np.asarray(smooth) + rng.normal(0, 12, (height, width, 3))
    file = io.BytesIO()
    image = Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8))
    image.save(file, "JPEG", quality=92)
    return file.getvalue()


def feed_batches(files: list[bytes], batch: int, reading: Reading) -> Iterator:
    """Batches on the device, one epoch after the other."""
    # So long an epoch that none ends: starting one takes a moment, once per epoch.
    numbers = np.arange(100_000)
    rows = numbers % len(files)
    source = EncodedImages([{"image": file} for file in files], _SIZE)
    split = StreamedSplit(
        "benchmark", np.zeros(len(rows), np.int32), numbers, rows, source, reading
    )
    config = TrainConfig(replicas=1, batch_size=batch)
    feed = Feed(split, config, make_mesh(config.mesh))
    sample = draw_sample(Seeds().keys("sample", [0]), len(rows), "all")
    order = epoch_order(Seeds().keys("order", [0]), sample, 0)
    for images, _ in feed.batches(order, 0):
        yield jax.block_until_ready(images)


def pillow_batches(files: list[bytes], batch: int) -> Iterator:
    """Every pixel decoded, then cut out and resized; one thread."""
    number = 0
    while True:
        images = []
        for _ in range(batch):
            image = Image.open(io.BytesIO(files[number % len(files)])).convert("RGB")
            crop = random_crop(*image.size, (0, number))
            image = image.resize(
                (_SIZE, _SIZE), Image.Resampling.BILINEAR, box=crop[:4]
            )
            pixels = np.asarray(image)
            images.append(pixels[:, ::-1] if crop.flip else pixels)
            number += 1
        yield np.stack(images)


def seconds_of(batches: Iterator, updates: int) -> float:
    """Seconds of the next batches, after those that lie ready."""
    for _ in range(_READY):
        next(batches)
    begin = time.perf_counter()
    for _ in range(updates):
        next(batches)
    return time.perf_counter() - begin


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--files", type=int, default=512)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--updates", type=int, default=8, help="batches per repeat")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--no-workers", action="store_true", help="threads only")
    parser.add_argument(
        "--appetite",
        action="append",
        metavar="NAME=IMAGES/S",
        help=f"of a step; may be repeated; default: {'; '.join(_APPETITES)}",
    )
    return parser.parse_args()


def main() -> None:
    args = parse_args()
    cores = os.cpu_count() or 1
    rng = np.random.default_rng(0)
    files = [photograph(rng) for _ in range(args.files)]
    counts = sorted({1, 2, cores})
    readings = {f"threads {n}": Reading(threads=n) for n in counts}
    if not args.no_workers:
        readings |= {f"workers {n}": Reading(threads=1, workers=n) for n in counts}
    running = {n: feed_batches(files, args.batch, r) for n, r in readings.items()}
    running["Pillow, full decode"] = pillow_batches(files, args.batch)
    contenders = {
        name: functools.partial(seconds_of, batches, args.updates)
        for name, batches in running.items()
    }
    found = take_turns(contenders, args.repeats)
    contenders.clear()
    running.clear()  # ends the processes that read
    more = {}
    for text in args.appetite or _APPETITES:
        name, _, eats = text.rpartition("=")
        more[f"/ {name}"] = lambda rate, eats=eats: f"{rate / float(eats):.2f}"
    rates(found, args.updates * args.batch, "images", against=[], **more)
    print(f"\n{args}\n{machine()}")


if __name__ == "__main__":
    main()
