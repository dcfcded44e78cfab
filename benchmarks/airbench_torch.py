"""The PyTorch side of `airbench.py`: the recipe of airbench94, written independently.

    ENV/bin/python benchmarks/airbench_torch.py cifar10.npz --epochs 10

It imports nothing but NumPy and PyTorch and trains one network after another. The file
has arrays `train_image`, `train_label`, `test_image` and `test_label`.
"""

import argparse
import contextlib
import json
import time

import numpy as np
import torch
from torch import nn
from torch.nn import functional

MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)


class Convolution(nn.Conv2d):
    """3x3, without bias, that begins by copying its inputs."""

    def __init__(self, inputs: int, outputs: int):
        super().__init__(inputs, outputs, 3, padding=1, bias=False)
        nn.init.dirac_(self.weight.data[:inputs])


def norm(channels: int) -> nn.BatchNorm2d:
    layer = nn.BatchNorm2d(channels, eps=1e-12, momentum=0.4)
    layer.weight.requires_grad = False
    return layer


class Network(nn.Module):
    """A whitening convolution, three pairs of convolutions, one dense layer."""

    def __init__(self, width: int, images: torch.Tensor):
        super().__init__()
        self.first = nn.Conv2d(3, 24, 2)
        self.first.weight.requires_grad = False
        self.first.weight.data = whitening(images)
        nn.init.zeros_(self.first.bias)
        layers, inputs = [], 24
        for outputs in (width, 4 * width, 4 * width):
            layers += [Convolution(inputs, outputs), nn.MaxPool2d(2), norm(outputs)]
            layers += [nn.GELU(), Convolution(outputs, outputs), norm(outputs)]
            layers += [nn.GELU()]
            inputs = outputs
        self.stages = nn.Sequential(*layers)
        self.head = nn.Linear(inputs, 10, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """`[B, 3, 32, 32]` to `[B, 10]`."""
        x = self.stages(functional.gelu(self.first(x)))
        return self.head(x.amax(dim=(2, 3))) / 9


def whitening(images: torch.Tensor) -> torch.Tensor:
    """Eigenvectors of 2 x 2 pixels by their deviations, both signs, `[24, 3, 2, 2]`."""
    patches = functional.unfold(images, 2).permute(0, 2, 1).reshape(-1, 12)
    values, vectors = torch.linalg.eigh(patches.T @ patches / len(patches))
    kernels = (vectors / torch.sqrt(values + 5e-4)).T.reshape(12, 3, 2, 2)
    return torch.cat([kernels, -kernels])


def triangle(step: int, steps: int) -> float:
    peak = int(0.23 * steps)
    if step < peak:
        return 0.2 + 0.8 * step / peak
    return 1 + (0.07 - 1) * (step - peak) / (steps - peak)


def batches(images, labels, size: int):
    """An epoch in random order, every image mirrored and moved at random."""
    order = torch.randperm(len(images), device=images.device)
    for start in range(0, len(images) - size + 1, size):
        rows = order[start : start + size]
        x = functional.pad(images[rows], (2, 2, 2, 2), mode="replicate")
        moved = torch.empty_like(images[rows])
        shift = torch.randint(0, 5, (size, 2), device=x.device)
        for down in range(5):
            for right in range(5):
                these = (shift[:, 0] == down) & (shift[:, 1] == right)
                moved[these] = x[these, :, down : down + 32, right : right + 32]
        mirrored = torch.rand(size, device=x.device) < 0.5
        moved[mirrored] = moved[mirrored].flip(-1)
        yield moved, labels[rows]


def views(network: nn.Module, x: torch.Tensor) -> torch.Tensor:
    padded = functional.pad(x, (1, 1, 1, 1), mode="reflect")
    shifted = [padded[:, :, i : i + 32, i : i + 32] for i in (0, 2)]
    total = 0.0
    for weight, images in ((0.25, x), (0.125, shifted[0]), (0.125, shifted[1])):
        total = total + weight * (network(images) + network(images.flip(-1)))
    return total


def accuracy(infer, images: torch.Tensor, labels: torch.Tensor) -> float:
    right = 0
    with torch.no_grad():
        for x, y in zip(images.split(1000), labels.split(1000)):
            right += int((infer(x).argmax(1) == y).sum())
    return right / len(labels)


def run(args: argparse.Namespace, seed: int, train, test) -> float:
    """Trains one network; prints a line per epoch; accuracy over six views."""
    torch.manual_seed(seed)
    device = torch.device(args.device)
    network = Network(args.width, train[0][:5000]).to(device)
    network = network.to(memory_format=torch.channels_last)
    fast = [p for n, p in network.named_parameters() if "stages" in n and p.ndim == 1]
    fast = [p for p in fast if p.requires_grad]
    slow_ones = [p for p in network.parameters() if p.requires_grad and p.ndim > 1]
    rate, decay = 11.5 / (1 + 1 / 0.15), 0.0153 / 11.5
    groups = [
        {"params": [*slow_ones, network.first.bias], "lr": rate, "weight_decay": decay},
        {"params": fast, "lr": 64 * rate, "weight_decay": decay / 64},
    ]
    optimizer = torch.optim.SGD(groups, lr=rate, momentum=0.85, nesterov=True)
    per_epoch = len(train[0]) // args.batch
    steps, step, average = args.epochs * per_epoch, 0, None
    early = 3 / 9.9 * steps
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: triangle(step, steps)
    )
    weights = [*slow_ones, network.first.bias, *fast]
    loss_of = nn.CrossEntropyLoss(label_smoothing=0.2)
    cast = contextlib.nullcontext()
    if args.dtype != "float32":
        cast = torch.autocast(device.type, getattr(torch, args.dtype))
    start, spent = time.perf_counter(), 0.0
    for epoch in range(1, args.epochs + 1):
        network.train()
        for x, y in batches(*train, args.batch):
            if step >= early:
                network.first.bias.requires_grad = False
                network.first.bias.grad = None
            optimizer.zero_grad(set_to_none=True)
            with cast:
                loss = loss_of(network(x), y)
            loss.backward()
            optimizer.step()
            schedule.step()
            step += 1
            if step > early and step % 5 == 0:
                keep = 0.95**5 * (step / steps) ** 3
                if average is None:
                    average = [w.detach().clone() for w in weights]
                else:
                    for mean, w in zip(average, weights):
                        mean.mul_(keep).add_(w.detach(), alpha=1 - keep)
                        w.data.copy_(mean)
        for mean, w in zip(average or [], weights):
            w.data.copy_(mean)
        if device.type == "cuda":
            torch.cuda.synchronize()
        spent += time.perf_counter() - start
        network.eval()
        found = accuracy(network, *test)
        line = {"peer": "PyTorch", "seed": seed, "epoch": epoch, "accuracy": found}
        print(json.dumps(line | {"seconds": spent}), flush=True)
        start = time.perf_counter()
    return accuracy(lambda x: views(network, x), *test)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data")
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch", type=int, default=1024)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--train-size", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cpu")
    args = parser.parse_args()
    torch.set_float32_matmul_precision("high")
    file = np.load(args.data)

    def part(split: str, size: int | None = None):
        x = torch.from_numpy(file[f"{split}_image"][:size]).to(args.device).float()
        mean, std = (torch.tensor(m, device=x.device) for m in (MEAN, STD))
        x = ((x / 255 - mean) / std).permute(0, 3, 1, 2)
        y = torch.from_numpy(file[f"{split}_label"][:size].astype(np.int64))
        return x.contiguous(memory_format=torch.channels_last), y.to(args.device)

    train, test = part("train", args.train_size), part("test")
    found = [run(args, args.seed + i, train, test) for i in range(args.runs)]
    line = {"peer": "PyTorch", "six views": found, "mean": float(np.mean(found))}
    print(json.dumps(line))


if __name__ == "__main__":
    main()
