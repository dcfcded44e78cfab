"""The PyTorch side of `clicks.py`: independent click models, one after another.

This is the loop that a PyTorch user writes: for each replica, for each batch of a
window in an order of its own, look up, forward, score, backward, AdaGrad. Embeddings
have sparse gradients, so a step does not grow with the table either. It runs in an
environment of its own (churn_jax does not depend on PyTorch) and imports nothing but
NumPy and PyTorch. `clicks.py` starts it and reads the seconds of a window that was
learned once before:

    python benchmarks/clicks_torch.py --window WINDOW.npz --settings '{"rows": ...}'
"""

import argparse
import itertools
import json
import time

import numpy as np
import torch
from torch import nn
from torch.nn import functional


class Clicks(nn.Module):
    """K towers on embeddings of their own, which lie side by side in one table."""

    def __init__(self, settings: dict):
        super().__init__()
        self.components, self.dim = settings["components"], settings["embedding_dim"]
        rows, width = settings["rows"], settings["components"] * self.dim
        self.table = nn.Embedding(rows, width, sparse=True)
        widths = [settings["fields"] * self.dim + settings["numeric"]]
        widths += [*settings["features"], 1]
        self.kernels = nn.ParameterList(
            nn.Parameter(torch.randn(self.components, a, b) / a**0.5)
            for a, b in itertools.pairwise(widths)
        )
        self.biases = nn.ParameterList(
            nn.Parameter(torch.zeros(self.components, 1, b)) for b in widths[1:]
        )

    def forward(self, ids: torch.Tensor, numeric: torch.Tensor) -> torch.Tensor:
        """`[B, F]` and `[B, D]` to scores `[K, B]`; towers in one batched product."""
        batch, fields = ids.shape
        rows = self.table(ids).reshape(batch, fields, self.components, self.dim)
        x = rows.permute(2, 0, 1, 3).reshape(self.components, batch, -1)
        x = torch.cat([x, numeric.expand(self.components, -1, -1)], dim=-1)
        last = len(self.kernels) - 1
        for layer, (kernel, bias) in enumerate(zip(self.kernels, self.biases)):
            x = torch.baddbmm(bias, x, kernel)
            x = functional.relu(x) if layer < last else x
        return x[..., 0]


def objective(scores, labels, strength):
    """Cross-entropy of every component, plus half the squared correlations."""
    target = labels.expand_as(scores)
    each = functional.binary_cross_entropy_with_logits(scores, target, reduction="none")
    correlation = scores @ scores.T / scores.shape[1]
    off = correlation - torch.diag_embed(torch.diagonal(correlation))
    return each.mean(dim=1).sum() + 0.5 * strength * off.square().sum()


class Replica:
    """A network with its two optimisers."""

    def __init__(self, settings: dict):
        self.settings, self.network = settings, Clicks(settings)
        dense = [*self.network.kernels, *self.network.biases]
        given = {"lr": settings["learning_rate"], "initial_accumulator_value": 0.1}
        self.optimizers = [
            torch.optim.Adagrad(self.network.table.parameters(), **given),
            torch.optim.Adagrad(dense, **given),
        ]

    def learn(self, ids, numeric, labels) -> torch.Tensor:
        """One pass over a window; scores given before learning, `[W]`."""
        count, size = len(labels), self.settings["batch"]
        order, scores = torch.randperm(count), torch.empty(count)
        for start in range(0, count, size):
            place = order[start : start + size]
            z = self.network(ids[place], numeric[place])
            scores[place] = torch.sigmoid(z.detach()).mean(dim=0)
            loss = objective(z, labels[place], self.settings["strength"])
            for optimizer in self.optimizers:
                optimizer.zero_grad()
            loss.backward()
            for optimizer in self.optimizers:
                optimizer.step()
        return scores


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--window", required=True)
    parser.add_argument("--settings", required=True)
    args = parser.parse_args()
    settings = json.loads(args.settings)
    torch.manual_seed(0)
    torch.sparse.check_sparse_tensor_invariants.disable()  # the default, said aloud
    if settings["threads"]:
        torch.set_num_threads(settings["threads"])
    # A few batches: unlike the engine's, the loop's pace does not depend on how many.
    with np.load(args.window) as file:
        ids, numeric, labels = (
            torch.from_numpy(file[name][: settings["part"]].astype(dtype))
            for name, dtype in (("ids", "i8"), ("numeric", "f4"), ("labels", "f4"))
        )
    replicas = [Replica(settings) for _ in range(settings["replicas"])]
    for _ in range(2):
        start = time.perf_counter()
        for replica in replicas:
            replica.learn(ids, numeric, labels)
    print(json.dumps({"seconds": time.perf_counter() - start}))


if __name__ == "__main__":
    main()
