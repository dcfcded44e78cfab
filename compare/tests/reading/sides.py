"""Sides of nine examples, and what is said where they do not fit together."""

import numpy as np

from churn_compare.pair import Pair, Table
from churn_compare.reading.join import join
from churn_compare.reading.sides import read_side
from churn_compare.scanning import scan
from tests.cases import fails

N = 9


class Frame:
    """What is used of a pandas data frame."""

    def __init__(self, columns, index=None):
        self.columns, self._columns = list(columns), columns
        self.index = None if index is None else np.asarray(index)

    def __getitem__(self, name):
        return self._columns[name]


def classes_of(name, values, **more) -> Table:
    """A side of predicted classes."""
    return read_side({"predictions": np.asarray(values), **more}, name)


def scores_of(name, C=3, N=N, **more) -> Table:
    """A side of logits; row `i` is highest in class `i mod C`."""
    logits = np.eye(C, dtype=np.float32)[np.arange(N) % C]
    return read_side({"logits": logits, **more}, name)


def old_and_new(pair: Pair):
    """Names of the predicted classes of each example, the way a reader sees them."""
    scanned = scan(pair)
    predicted = scanned.old.predicted[0], scanned.new.predicted[0]
    return [[*map(pair.class_name, side)] for side in predicted]


def refused(message, *sides, **given):
    fails(message, join, *sides, **given)
