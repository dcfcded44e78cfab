"""Writes the predictions that `churn-jax compare --demo` compares.

python experiments/compare/demo.py compare/churn_compare/demo

Two classifiers of scikit-learn learn 900 digits, each four times from other seeds;
stored are the probabilities of the other 897 digits, with 16 bits each.
"""

import argparse
from pathlib import Path

import numpy as np
from sklearn.ensemble import RandomForestClassifier
from sklearn.neural_network import MLPClassifier

from churn_jax.data.digits import load_digits

RUNS = 4
MODELS = {
    "neural_network.npz": lambda seed: MLPClassifier(
        (32,), max_iter=2000, random_state=seed
    ),
    "random_forest.npz": lambda seed: RandomForestClassifier(100, random_state=seed),
}


def write_demo(folder):
    """One file per model: `ids`, `labels`, `probabilities [4, 897, 10]`."""
    digits = load_digits()
    train, test = digits["train"], digits["test"]
    pixels = {name: x.images.reshape(len(x), -1) / 255 for name, x in digits.items()}
    for name, model in MODELS.items():
        fitted = [model(s).fit(pixels["train"], train.labels) for s in range(RUNS)]
        probs = np.stack([found.predict_proba(pixels["test"]) for found in fitted])
        np.savez_compressed(
            Path(folder) / name,
            ids=test.ids,
            labels=test.labels.astype(np.uint8),
            probabilities=probs.astype(np.float16),
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", help="of the files to write")
    write_demo(parser.parse_args().folder)
