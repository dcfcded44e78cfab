"""Images per second of streamed input, against what a training step eats.

    python benchmarks/input.py --appetite "ResNet-50, one GPU=2500"

JPEGs of about 400 x 350 pixels, quality 90, random content with texture, lie in memory.
Measured is decoding, the Inception-style crop, resizing to 224 pixels, mirroring,
batching and placing on the device, as the trainer does it (`churn_jax.training.feed`).
Contenders take turns, each with what it had read ahead taken off first; a number is the
median over repeats.

* `threads n`: n threads of this process;
* `workers n`: n processes with one thread each;
* `Pillow, full decode`: a plain loop that decodes every pixel, in one thread;
* `tf.data`: the peer, where TensorFlow is installed: `decode_and_crop_jpeg`, bilinear
  resize and flip under `map(num_parallel_calls=cores)`.

Replicas with orders or crops of their own eat R times the images that one replica does;
replicas that share them eat one replica's.

    python benchmarks/input.py --photo 500x375 --kilobytes 110 --slice v5e:256

makes files of ImageNet's mean size, and prints what each host of a slice must read to
keep ResNet-v2-50 busy, by arithmetic alone: images per second from the share of the
peak that a step reaches (`--utilisation`) or from `--step-seconds` and the images of a
step, bytes from the size of the files; and how many processes like the one measured
here that takes.
"""

import argparse
import importlib.util
import io
import math
import os
import platform
import statistics
import time
from collections.abc import Callable, Iterator

import jax
import numpy as np
from PIL import Image

from churn_jax.configuration.training import Seeds, TrainConfig
from churn_jax.data.crop import random_crop
from churn_jax.data.records import EncodedImages, Reading, StreamedSplit
from churn_jax.training.feed import Feed
from churn_jax.training.partition import make_mesh
from churn_jax.training.seeds import draw_sample, epoch_order

_SIZE = 224
_READY = 16  # more than any contender reads ahead
# Images/s of one step on two CPU cores, from README.md in this folder.
_APPETITES = ("LeNet5, 2 CPU cores=18537", "ResNet-20, 2 CPU cores=267")


def photograph(
    rng: np.random.Generator, size: tuple[int, int] | None, quality: int
) -> bytes:
    """A JPEG with smooth shapes and fine texture; by default of a size of its own."""
    width, height = size or (int(rng.integers(360, 441)), int(rng.integers(315, 386)))
    shapes = rng.integers(0, 256, (height // 8, width // 8, 3), dtype=np.uint8)
    smooth = Image.fromarray(shapes).resize((width, height), Image.Resampling.BICUBIC)
    pixels = np.asarray(smooth) + rng.normal(0, 12, (height, width, 3))
    file = io.BytesIO()
    image = Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8))
    image.save(file, "JPEG", quality=quality)
    return file.getvalue()


def quality_of(kilobytes: float, size: tuple[int, int] | None) -> int:
    """The quality at which a file has about so many kilobytes."""

    def distance(quality: int) -> float:
        file = photograph(np.random.default_rng(0), size, quality)
        return abs(len(file) / 1000 - kilobytes)

    return min(range(20, 100, 2), key=distance)


def print_need(args: argparse.Namespace, measured: float) -> None:
    """What a host of the slice must read, against one process measured here."""
    from churn_jax.planning import CHIPS
    from churn_jax.studies import ModelConfig
    from churn_jax.studies.cost import network_flops

    name, _, count = args.slice.partition(":")
    chips = int(count)
    network = ModelConfig(name="resnet_v2_50", dtype="bfloat16").build(1000)
    flops = network_flops(network, (_SIZE, _SIZE, 3), train=True)
    chip = CHIPS[name]
    images = chips * chip.devices * chip.flops * args.utilisation / flops
    how = f"{args.utilisation:.0%} of the peak, {flops / 1e9:.1f} GFLOP an image"
    if args.step_seconds:
        images = args.step_images / args.step_seconds
        how = f"{args.step_images:,} images in {args.step_seconds:g} s"
    kilobytes = args.kilobytes or 110
    print(f"\n{chips} chips {name}, ResNet-v2-50, {how}, files of {kilobytes:g} kB:\n")
    print("| chips per host | hosts | images/s | files MB/s | to chips MB/s | cores |")
    print("|---:|---:|---:|---:|---:|---:|")
    for per_host in args.chips_per_host:
        hosts = math.ceil(chips / per_host)
        each = images / hosts
        files, placed = each * kilobytes / 1e3, each * _SIZE * _SIZE * 3 / 1e6
        print(
            f"| {per_host} | {hosts} | {each:,.0f} | {files:,.0f} | {placed:,.0f} | "
            f"{each / measured:.0f} |"
        )
    print(f"\n`cores`: processes of one thread, each with {measured:.0f} images/s.")


def feed_batches(files: list[bytes], batch: int, reading: Reading) -> Iterator:
    """Batches on the device, one epoch after the other."""
    # So long an epoch that none ends: starting one takes a moment, once per epoch.
    numbers = np.arange(100_000)
    rows = numbers % len(files)
    source = EncodedImages([{"image": file} for file in files], _SIZE)
    split = StreamedSplit(
        "benchmark", np.zeros(len(rows), np.int32), numbers, rows, source
    )
    config = TrainConfig(replicas=1, batch_size=batch)
    feed = Feed(split, config, make_mesh(config.mesh), reading)
    sample = draw_sample(Seeds().keys("sample", [0]), len(rows), "all")
    feed.start(epoch_order(Seeds().keys("order", [0]), sample, 0), 0)
    try:
        while True:
            yield jax.block_until_ready(feed.next()[0])
    finally:
        feed.close()


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


def tf_batches(files: list[bytes], batch: int, cores: int) -> Iterator:
    """The same crops by TensorFlow's own pipeline."""
    import tensorflow as tf

    def read(file, seed):
        box = tf.image.stateless_sample_distorted_bounding_box(
            tf.image.extract_jpeg_shape(file),
            tf.zeros((1, 0, 4)),
            seed=seed,
            min_object_covered=0.0,
            aspect_ratio_range=(3 / 4, 4 / 3),
            area_range=(0.08, 1.0),
            max_attempts=10,
            use_image_if_no_bounding_boxes=True,
        )
        y, x, _ = tf.unstack(box[0])
        height, width, _ = tf.unstack(box[1])
        window = tf.stack([y, x, height, width])
        image = tf.image.decode_and_crop_jpeg(file, window, channels=3)
        image = tf.image.resize(image, (_SIZE, _SIZE), antialias=True)
        image = tf.image.stateless_random_flip_left_right(image, seed)
        return tf.cast(image, tf.uint8)

    seeds = np.stack([np.arange(len(files)), np.arange(len(files))], 1)
    records = tf.data.Dataset.from_tensor_slices((files, seeds)).repeat()
    batches = records.map(read, num_parallel_calls=cores).batch(batch).prefetch(2)
    return iter(batches.as_numpy_iterator())


def rate(batches: Iterator, batch: int, updates: int) -> float:
    """Images per second of the next batches, after those that lie ready."""
    for _ in range(_READY):
        next(batches)
    begin = time.perf_counter()
    for _ in range(updates):
        next(batches)
    return updates * batch / (time.perf_counter() - begin)


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--files", type=int, default=512)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--updates", type=int, default=8, help="batches per repeat")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--photo", metavar="WxH", help="size of all files in pixels")
    parser.add_argument("--kilobytes", type=float, help="of a file, about")
    parser.add_argument("--slice", metavar="CHIP:CHIPS", help="such as v5e:256")
    parser.add_argument("--chips-per-host", type=int, nargs="+", default=[8, 4])
    parser.add_argument("--utilisation", type=float, default=0.4)
    parser.add_argument("--step-seconds", type=float, help="instead of a share of peak")
    parser.add_argument("--step-images", type=int, default=10 * 1024)
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
    size = None
    if args.photo:
        width, _, height = args.photo.partition("x")
        size = int(width), int(height)
    quality = quality_of(args.kilobytes, size) if args.kilobytes else 90
    files = [photograph(rng, size, quality) for _ in range(args.files)]
    counts = sorted({1, 2, cores})
    contenders: dict[str, Callable[[], Iterator]] = {}
    for n in counts:
        reading = Reading(threads=n)
        contenders[f"threads {n}"] = lambda r=reading: feed_batches(
            files, args.batch, r
        )
    for n in [] if args.no_workers else counts:
        reading = Reading(threads=1, workers=n)
        contenders[f"workers {n}"] = lambda r=reading: feed_batches(
            files, args.batch, r
        )
    contenders["Pillow, full decode"] = lambda: pillow_batches(files, args.batch)
    peer = importlib.util.find_spec("tensorflow") is not None
    if peer:
        contenders["tf.data"] = lambda: tf_batches(files, args.batch, cores)
    running = {name: make() for name, make in contenders.items()}
    rates: dict[str, list[float]] = {name: [] for name in running}
    for _ in range(args.repeats):
        for name, batches in running.items():
            rates[name].append(rate(batches, args.batch, args.updates))
    running.clear()  # ends the processes that read
    appetites = [text.rpartition("=") for text in args.appetite or _APPETITES]
    names = [name for name, _, _ in appetites]
    print(f"| input | images/s | best | {' | '.join(f'/ {n}' for n in names)} |")
    print("|---|---:|---:|" + "---:|" * len(names))
    for name, values in rates.items():
        median = statistics.median(values)
        shares = " | ".join(f"{median / float(eats):.2f}" for _, _, eats in appetites)
        print(f"| {name} | {median:.0f} | {max(values):.0f} | {shares} |")
    if not peer:
        print("\nThe peer tf.data is missing: pip install tensorflow-cpu")
    kilobytes = statistics.mean(map(len, files)) / 1000
    load, pixels = os.getloadavg()[0], args.photo or "about 400x350"
    print(
        f"\n{args.files} JPEGs of {kilobytes:.0f} kB on average, {pixels} pixels, "
        f"quality {quality}, batch {args.batch}; "
        f"{platform.machine()}, {cores} cores, load {load:.1f}"
    )
    if args.slice:
        one = "threads 1" if args.no_workers else "workers 1"
        print_need(args, statistics.median(rates[one]))


if __name__ == "__main__":
    main()
