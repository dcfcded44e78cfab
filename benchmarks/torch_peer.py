"""The PyTorch side of the benchmarks: R x M independent networks, one after another.

This is the loop that a PyTorch user writes to train several networks: for each step,
for each network, index a uint8 tensor, convert and normalise, forward, backward,
`SGD.step`. It runs in an environment of its own (PyTorch is no dependency of
churn_jax) and imports nothing but PyTorch:

    python benchmarks/torch_peer.py --model lenet5 --slots 10

A JSON line goes to standard output; `images_per_s` is the median over steps, one step
being one batch for each of the slots.
"""

import argparse
import contextlib
import functools
import json
import statistics
import time

import torch
from torch import nn
from torch.nn import functional

_GREY = ("mlp", "lenet5")  # 28 x 28 pixels, others 32 x 32 of three channels
_EXAMPLES = 4096
_CLASSES = 10


def mlp(size: int, channels: int) -> nn.Module:
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(size * size * channels, 256),
        nn.ReLU(),
        nn.Linear(256, 256),
        nn.ReLU(),
        nn.Linear(256, _CLASSES),
    )


def lenet5(size: int, channels: int) -> nn.Module:
    last = (size // 2 - 4) // 2
    return nn.Sequential(
        nn.Conv2d(channels, 6, 5, padding=2),
        nn.ReLU(),
        nn.AvgPool2d(2),
        nn.Conv2d(6, 16, 5),
        nn.ReLU(),
        nn.AvgPool2d(2),
        nn.Flatten(),
        nn.Linear(16 * last * last, 120),
        nn.ReLU(),
        nn.Linear(120, 84),
        nn.ReLU(),
        nn.Linear(84, _CLASSES),
    )


class Block(nn.Module):
    """Two 3x3 convolutions with the parameter-free shortcut."""

    def __init__(self, channels: int, width: int, stride: int):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, width, 3, stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(width)
        self.stride, self.missing = stride, width - channels

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """`[B, C, H, W]` to `[B, width, H / stride, W / stride]`."""
        y = functional.relu(self.norm1(self.conv1(x)))
        y = self.norm2(self.conv2(y))
        if self.stride > 1 or self.missing:
            x = x[:, :, :: self.stride, :: self.stride]
            x = functional.pad(x, (0, 0, 0, 0, 0, self.missing))
        return functional.relu(y + x)


def resnet(blocks_per_stage: int, size: int, channels: int) -> nn.Module:
    """Depth `6 blocks_per_stage + 2`, widths 16, 32 and 64; of images of any size."""
    del size
    blocks, width_in = [], 16
    for width in (16, 32, 64):
        for index in range(blocks_per_stage):
            stride = 2 if width > 16 and index == 0 else 1
            blocks.append(Block(width_in, width, stride))
            width_in = width
    return nn.Sequential(
        nn.Conv2d(channels, 16, 3, padding=1, bias=False),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        *blocks,
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(64, _CLASSES),
    )


_MODELS = {
    "mlp": mlp,
    "lenet5": lenet5,
    "resnet8": functools.partial(resnet, 1),
    "resnet20": functools.partial(resnet, 3),
    "resnet32": functools.partial(resnet, 5),
}


def seconds_per_step(args: argparse.Namespace) -> list[float]:
    channels_last = args.memory_format == "channels_last"
    layout = torch.channels_last if channels_last else torch.contiguous_format
    size, channels = args.image_size, args.channels
    device = torch.device(args.device)
    networks = [
        _MODELS[args.model](size, channels).to(device, memory_format=layout).train()
        for _ in range(args.slots)
    ]
    optimizers = [
        torch.optim.SGD(n.parameters(), lr=0.01, momentum=0.9) for n in networks
    ]
    images = torch.randint(
        0, 256, (_EXAMPLES, channels, size, size), dtype=torch.uint8
    ).to(device, memory_format=layout)
    labels = torch.randint(0, _CLASSES, (_EXAMPLES,)).to(device)
    mean, std = torch.tensor(0.5).to(device), torch.tensor(0.25).to(device)
    cast = contextlib.nullcontext()
    if args.dtype != "float32":
        cast = torch.autocast(device.type, getattr(torch, args.dtype))
    applied = networks
    if args.compile:
        applied = [torch.compile(n, mode="max-autotune") for n in networks]
    seconds = []
    for _ in range(args.warmup + args.steps):
        indices = torch.randint(0, _EXAMPLES, (args.slots, args.batch)).to(device)
        start = time.perf_counter()
        for network, optimizer, index in zip(applied, optimizers, indices):
            x = images[index].float().contiguous(memory_format=layout)
            x.div_(255).sub_(mean).div_(std)
            optimizer.zero_grad()
            with cast:
                loss = functional.cross_entropy(network(x), labels[index])
            loss.backward()
            optimizer.step()
        if device.type == "cuda":
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - start)
    return seconds[args.warmup :]


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", choices=sorted(_MODELS), default="lenet5")
    parser.add_argument("--slots", type=int, default=10, help="R x M networks")
    parser.add_argument("--batch", type=int, default=128, help="images per network")
    parser.add_argument("--steps", type=int, default=15, help="timed steps")
    parser.add_argument("--warmup", type=int, default=2, help="steps not timed")
    layouts = ["default", "channels_last"]
    parser.add_argument("--memory-format", choices=layouts, default="default")
    parser.add_argument("--threads", type=int, default=0, help="0: PyTorch's choice")
    parser.add_argument("--image-size", type=int, help="pixels per side")
    parser.add_argument("--channels", type=int)
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--dtype", default="float32", help="or bfloat16, by autocast")
    parser.add_argument("--compile", action="store_true", help="max-autotune")
    args = parser.parse_args()
    args.image_size = args.image_size or (28 if args.model in _GREY else 32)
    args.channels = args.channels or (1 if args.model in _GREY else 3)
    return args


def main() -> None:
    args = parse_args()
    if args.device == "cuda" and not torch.cuda.is_available():
        raise SystemExit("this PyTorch has no CUDA")
    torch.manual_seed(0)
    # As XLA does by default: float32 products in TF32 where the GPU has it.
    torch.set_float32_matmul_precision("high")
    if args.threads:
        torch.set_num_threads(args.threads)
    seconds = seconds_per_step(args)
    images = args.slots * args.batch
    line = {
        "version": torch.__version__,
        **vars(args),
        "threads": torch.get_num_threads(),
        "images_per_s": images / statistics.median(seconds),
        "images_per_s_best": images / min(seconds),
    }
    print(json.dumps(line))


if __name__ == "__main__":
    main()
