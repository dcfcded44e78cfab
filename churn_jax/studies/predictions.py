"""Predictions of a trained row, kept in its folder in one file or in shards."""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from churn_compare.store import (
    INDEX,
    Predictions,
    load_predictions,
    save_predictions,
    shard_folder,
)
from churn_jax.configuration.study import EvaluationConfig
from churn_jax.data import Dataset, Reading, StreamingDataset
from churn_jax.methods import deploy
from churn_jax.reports.artefacts import TEST, VALIDATION
from churn_jax.reports.examples import save_examples
from churn_jax.reports.members import (
    DIAGNOSTICS,
    MEMBERS,
    MEMBERS_VALIDATION,
    MOST_NUMBERS,
    Agreement,
    Members,
    agreement_of,
    save_agreement,
    save_members,
)
from churn_jax.reports.summary import ambiguity_of
from churn_jax.training.partition import any_process
from churn_jax.training.predictions import write_predictions
from churn_jax.training.run import Trained


def split_logits(
    trained: Trained,
    dataset: Dataset | StreamingDataset,
    split: str,
    weights: str = "config",
    *,
    every_member: bool = False,
) -> np.ndarray:
    """`[R, N, C]` of a split, resident or streamed; `[R, M, N, C]` of every member."""
    part = getattr(dataset, split)
    if isinstance(dataset, StreamingDataset):
        options = {"every_member": every_member, "reading": dataset.reading}
        return trained.predict(part, weights, **options)
    return trained.predict(part.images, weights, every_member=every_member)


class SplitPredictions(NamedTuple):
    """Predictions of a trained row for one split; logits are None if not wanted."""

    logits: np.ndarray | None  # [R, N, C], deployed
    members: Members | None = None
    agreement: Agreement | None = None  # where the members' logits are too many
    note: str = ""  # why there are no members' logits


def predict_split_of(
    trained: Trained,
    dataset: Dataset | StreamingDataset,
    split: str,
    weights: str = "config",
    *,
    deployed: bool = True,
) -> SplitPredictions:
    """Deployed logits and, where their mean is deployed, the members' of a split.

    Both come from one pass over the images. Only where the members' logits are more
    than `MOST_NUMBERS` numbers are they predicted separately, for as many evenly spaced
    examples as that allows, and their diagnostics kept.
    """
    method, part = trained.run.method, getattr(dataset, split)

    def of_row() -> np.ndarray | None:
        return split_logits(trained, dataset, split, weights) if deployed else None

    if not method.deploys_a_mean:
        return SplitPredictions(of_row())
    per_example = trained.run.config.replicas * method.members * dataset.num_classes
    streamed = isinstance(dataset, StreamingDataset)
    most = MOST_NUMBERS // per_example
    if len(part) <= most:
        every = split_logits(trained, dataset, split, weights, every_member=True)
        members = Members(part.ids, part.labels, every)
        if not deployed:
            return SplitPredictions(None, members)
        mean = jax.jit(lambda logits: deploy(method, logits))
        logits = np.stack([np.asarray(mean(run)) for run in every])
        return SplitPredictions(logits, members)
    logits = of_row()
    many = (
        f"{len(part) * per_example:,} logits of members on the {split} split are not "
        "kept"
    )
    if streamed or not most:
        return SplitPredictions(logits, note=f"{many}, nor are their diagnostics")
    chosen = np.linspace(0, len(part) - 1, most).astype(int)
    every = trained.predict(part.images[chosen], weights, every_member=True)
    seen = Members(part.ids[chosen], part.labels[chosen], every)
    note = f"{many}; their diagnostics are of {most:,} of {len(part):,} examples"
    return SplitPredictions(logits, None, agreement_of(seen, method, len(part)), note)


_FILES = {"test": TEST, "validation": VALIDATION}


def keep_split(
    trained: Trained,
    dataset: Dataset | StreamingDataset,
    split: str,
    folder: Path,
    evaluation: EvaluationConfig,
    *,
    weights: str,
    meta: Mapping[str, Any],
) -> str:
    """Predicts a split and leaves the predictions in a row's folder.

    All processes call it. What was there of the split in the other form is removed
    first, so that a row never has both; a launch that dies on the way leaves nothing
    that looks finished.
    """
    part, path = getattr(dataset, split), folder / _FILES[split]
    primary = jax.process_index() == 0
    runs = trained.run.config.replicas
    sharded = evaluation.sharded(runs, len(part), dataset.num_classes)
    predicted = predict_split_of(trained, dataset, split, weights, deployed=not sharded)
    if primary:
        _remove(path, sharded)
        _keep_members(folder, split, predicted)
    if predicted.logits is None:
        any_process(
            False
        )  # a barrier: what was there is gone before anything is written
        streamed = isinstance(dataset, StreamingDataset)
        write_predictions(
            trained,
            part,
            shard_folder(path),
            weights=weights,
            meta=meta,
            reading=dataset.reading if streamed else Reading(),
        )
    elif primary:
        found = Predictions(part.ids, part.labels, predicted.logits, dict(meta))
        save_predictions(path, found)
    return predicted.note


def _remove(path: Path, sharded: bool) -> None:
    """Removes shards, which are written anew or not at all, and a file for shards."""
    if sharded:
        path.unlink(missing_ok=True)
    shards = shard_folder(path)
    if shards.exists():
        # First, since the index says that all shards are there.
        (shards / INDEX).unlink(missing_ok=True)
        shutil.rmtree(shards)


def _keep_members(folder: Path, split: str, predicted: SplitPredictions) -> None:
    """Keeps every member's logits, or their diagnostics."""
    if predicted.members is not None:
        name = MEMBERS if split == "test" else MEMBERS_VALIDATION
        save_members(folder / name, predicted.members)
    elif predicted.agreement is not None and split == "test":
        save_agreement(folder / DIAGNOSTICS, predicted.agreement)


def keep_examples(out: Path, folder: Path, dataset: Dataset | StreamingDataset) -> None:
    """Leaves the test inputs that a report may show, chosen by a row's predictions."""
    streamed = isinstance(dataset, StreamingDataset)
    images = dataset.test if streamed else dataset.test.images
    found = load_predictions(folder / TEST)
    # Runs that stopped are in no number of the report either.
    runs = [run for run in range(found.shape[0]) if run not in found.stopped]

    def ambiguity():
        return ambiguity_of(found, runs) if len(runs) > 1 else None

    save_examples(out, found.ids, images, ambiguity)
