"""Predictions of two small PyTorch networks on the digits, as `.npy` and as Parquet.

python experiments/compare/pytorch.py predictions
churn-jax compare predictions/{old,new}.npy --labels predictions/labels.npy
churn-jax compare predictions/{old,new}.parquet
"""

import argparse
from pathlib import Path

import numpy as np
import pyarrow as pa
import torch
from pyarrow import parquet
from torch import nn

from churn_jax.data.digits import load_digits


def trained(width, images, labels, seed):
    """A network of one hidden layer after 200 full-batch steps."""
    torch.manual_seed(seed)
    network = nn.Sequential(nn.Linear(64, width), nn.ReLU(), nn.Linear(width, 10))
    optimizer = torch.optim.Adam(network.parameters(), lr=0.01)
    for _ in range(200):
        optimizer.zero_grad()
        nn.functional.cross_entropy(network(images), labels).backward()
        optimizer.step()
    return network


def pixels(split):
    return torch.from_numpy(split.images.reshape(len(split), -1) / 255).float()


def write_predictions(folder):
    """`old` and `new`, as `.npy` in the order of the test images and as Parquet."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    train, test = load_digits()["train"], load_digits()["test"]
    labels = torch.from_numpy(train.labels.astype(np.int64))
    np.save(folder / "labels.npy", test.labels)
    for name, width, seed in (("old", 16, 0), ("new", 64, 1)):
        network = trained(width, pixels(train), labels, seed)
        with torch.no_grad():
            logits = network(pixels(test)).numpy()
        np.save(folder / f"{name}.npy", logits)
        table = {"id": test.ids, "label": test.labels, "logits": list(logits)}
        parquet.write_table(pa.table(table), folder / f"{name}.parquet")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", help="of the files to write")
    write_predictions(parser.parse_args().folder)
