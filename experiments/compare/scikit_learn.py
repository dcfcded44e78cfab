"""Predictions of two scikit-learn classifiers on the digits, as CSV and as Parquet.

python experiments/compare/scikit_learn.py predictions
churn-jax compare predictions/old.csv predictions/new.parquet
"""

import argparse
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import csv, parquet
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import LogisticRegression

from churn_jax.data.digits import load_digits


def columns(classifier, split):
    """Ids and the probability of each class."""
    probs = classifier.predict_proba(pixels(split))
    return {"id": split.ids} | {f"prob_{c}": probs[:, c] for c in range(10)}


def pixels(split):
    return split.images.reshape(len(split), -1) / 255


def write_predictions(folder):
    """`old.csv`, `new.parquet` in another order, and `slices.csv` by how much ink."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    train, test = load_digits()["train"], load_digits()["test"]
    old = LinearDiscriminantAnalysis().fit(pixels(train), train.labels)
    new = LogisticRegression(max_iter=1000).fit(pixels(train), train.labels)
    table = pa.table(columns(old, test) | {"label": test.labels})
    csv.write_csv(table, folder / "old.csv")
    shuffled = np.random.default_rng(0).permutation(len(test))
    parquet.write_table(
        pa.table(columns(new, test)).take(shuffled), folder / "new.parquet"
    )
    ink = pixels(test).mean(axis=1)
    third = np.searchsorted(np.quantile(ink, [1 / 3, 2 / 3]), ink)
    names = np.array(["little", "some", "much"])[third]
    csv.write_csv(pa.table({"id": test.ids, "ink": names}), folder / "slices.csv")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", help="of the files to write")
    write_predictions(parser.parse_args().folder)
