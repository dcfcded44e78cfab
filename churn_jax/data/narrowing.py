"""Fewer classes, or fewer examples of every class: what an old model was trained on."""

import dataclasses
import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from churn_jax.data.records import StreamingDataset
from churn_jax.data.splits import DataError, Dataset

__all__ = ["narrow"]


def narrow(
    dataset: Dataset | StreamingDataset,
    classes: Sequence[int] = (),
    share: float = 1.0,
) -> Dataset | StreamingDataset:
    """A data set with some classes' training and validation examples, or fewer of each.

    Labels keep their ids, `num_classes` stays, and so does the test split: what a
    model of fewer classes does to the others is part of the question.

    Args:
        dataset: resident or streamed.
        classes: ids to keep; empty keeps all.
        share: of every class's training examples, from above 0 to 1; the first ones in
            the order in which they are, at least one.

    Returns:
        A data set with a fingerprint of its own.

    Raises:
        DataError: a class is not there, or no example is left.

    Example:
        >>> from churn_jax.data import load
        >>> half = narrow(load("digits"), classes=range(5), share=0.5)
        >>> sorted(set(half.train.labels.tolist())), half.num_classes
        ([0, 1, 2, 3, 4], 10)

    References:
        [elodi] Sec. 5.3 -- Zhao et al., ELODI: Ensemble Logit Difference Inhibition for
        Positive-Congruent Training, TPAMI 2023. https://arxiv.org/abs/2205.06265
    """
    kept = sorted(set(int(c) for c in classes)) or list(range(dataset.num_classes))
    if kept[0] < 0 or kept[-1] >= dataset.num_classes:
        raise DataError(
            f"{dataset.name} has classes 0 to {dataset.num_classes - 1}; got {kept[:8]}"
        )
    if not 0.0 < share <= 1.0:
        raise DataError(f"share must be above 0 and at most 1; got {share}")
    labels = dataset.train.labels
    chosen = np.zeros(len(labels), bool)
    for label in kept:
        rows = np.flatnonzero(labels == label)
        chosen[rows[: max(1, round(share * len(rows)))]] = True
    if not chosen.any():
        raise DataError(f"{dataset.name} has no training example of classes {kept[:8]}")
    held = np.isin(dataset.validation.labels, kept)
    text = f"{dataset.fingerprint} {kept} {share}"
    # Splits stay of the data set's own kind, resident or streamed.
    parts: dict[str, Any] = {
        "train": dataset.train.take(np.flatnonzero(chosen)),
        "validation": dataset.validation.take(np.flatnonzero(held)),
    }
    fingerprint = hashlib.sha256(text.encode()).hexdigest()
    return dataclasses.replace(dataset, **parts, fingerprint=fingerprint)
