"""Training, validation and test examples, cut the same way every time."""

import dataclasses
import hashlib
import operator
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from churn_jax.data.arrays import Uncut
from churn_jax.data.records import StreamingDataset
from churn_jax.data.splits import (
    DataError,
    Dataset,
    Examples,
    check_classes,
    check_same_kind,
    check_train_size,
    fingerprint,
    hold_out,
)

S = TypeVar("S", bound=Examples)

_DEFAULT_FRACTION = 0.1


def assemble(
    name: str,
    uncut: Uncut,
    validation: int | float | None,
    train_size: int | None,
    num_classes: int | None,
) -> Dataset:
    """The checked data set of a source's splits; arguments as for `load`."""
    splits, classes = uncut.splits, uncut.num_classes
    if num_classes is not None and classes is not None and num_classes != classes:
        raise DataError(f"{name} has {classes} classes; got num_classes={num_classes}")
    classes = check_classes(splits, classes if num_classes is None else num_classes)
    check_same_kind(splits)
    train, held = cut(name, splits, validation, train_size)
    notes, unused = uncut.notes, len(splits.get("validation", ()))
    if validation is not None and unused:
        notes += (
            f"The source's own {unused} validation examples are not used, as "
            f"validation={validation} takes them from the training examples.",
        )
    return Dataset(
        name=name,
        train=train,
        validation=held,
        test=splits["test"],
        num_classes=classes,
        fingerprint=fingerprint(train, held, splits["test"]),
        class_names=uncut.class_names,
        notes=notes,
    )


def cut(
    name: str,
    splits: Mapping[str, S],
    validation: int | float | None,
    train_size: int | None,
) -> tuple[S, S]:
    """Training and validation examples, in the order of the source."""
    train = splits["train"]
    own = splits.get("validation") if validation is None else None
    held = 0 if own is not None else _held_count(name, len(train), validation)
    kept, held_rows = hold_out(len(train), held)
    if own is None:
        own = train.take(held_rows)
    check_train_size(name, train_size, len(kept), held)
    kept = kept[:train_size]
    if len(kept) < len(train):  # else spare the copy
        train = train.take(np.sort(kept))
    return train, own


def _held_count(name: str, count: int, validation: int | float | None) -> int:
    number = np.asarray(_DEFAULT_FRACTION if validation is None else validation)
    fraction = number.dtype.kind == "f"
    if number.dtype.kind not in "iuf" or not 0 <= number < (1 if fraction else np.inf):
        raise DataError(
            "validation must be a count of at least 0, or a fraction below 1; got "
            f"{validation!r}"
        )
    held = round(count * float(number)) if fraction else int(number)
    if held >= count:
        raise DataError(
            f"validation={held} leaves no training examples: {name} has {count}"
        )
    return held


def narrow(
    dataset: Dataset | StreamingDataset, classes: Sequence[int] = (), share: float = 1.0
) -> Dataset | StreamingDataset:
    """A data set of some classes, and of a share of each class's training examples.

    Labels keep their ids, `num_classes` stays, and so does the test split: what a
    model of fewer classes does to the others is part of the question.

    Args:
        dataset: in memory or streamed.
        classes: ids to keep; empty keeps all.
        share: share of every class's training examples, from above 0 to 1; the first
            ones in the split's order, at least one.

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
    kept = sorted({*map(operator.index, classes)}) or [*range(dataset.num_classes)]
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
    digest = hashlib.sha256(f"{dataset.fingerprint} {kept} {float(share)}".encode())
    # Splits stay of the data set's own kind, in memory or streamed.
    parts: dict[str, Any] = {
        "train": dataset.train.take(np.flatnonzero(chosen)),
        "validation": dataset.validation.take(np.flatnonzero(held)),
    }
    return dataclasses.replace(dataset, **parts, fingerprint=digest.hexdigest())
