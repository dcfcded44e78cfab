"""Predictions of a trained row, kept in its folder in one file or in shards."""

import dataclasses
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

    def of_runs(self, runs: range) -> "SplitPredictions":
        """Of some runs alone."""
        logits, members, agreement, note = self
        if members is not None:
            own = members.logits[runs.start : runs.stop]
            members = dataclasses.replace(members, logits=own)
        return SplitPredictions(
            None if logits is None else logits[runs.start : runs.stop],
            members,
            None if agreement is None else agreement.of_runs(runs),
            note,
        )


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
    dataset: Any,
    split: str,
    folders: Mapping[Path, Mapping[str, Any]],
    evaluation: EvaluationConfig,
    *,
    weights: str,
) -> str:
    """Predicts a split and leaves the predictions in the folders of rows.

    The replicas of rows that were trained together follow each other; every folder has
    what is recorded with its predictions. All processes call it. What was there of the
    split in the other form is removed first, so that a row never has both; a launch
    that dies on the way leaves nothing that looks finished.
    """
    if trained.scores is not None:
        _keep_scores(trained, dataset, split, folders)
        return ""
    part, primary = getattr(dataset, split), jax.process_index() == 0
    runs = trained.run.config.replicas // len(folders)
    # Rows of one program are few runs of small networks, so they are kept in files.
    sharded = len(folders) == 1 and evaluation.sharded(
        runs, len(part), dataset.num_classes
    )
    every = predict_split_of(trained, dataset, split, weights, deployed=not sharded)
    for number, (folder, meta) in enumerate(folders.items()):
        path, first = folder / _FILES[split], number * runs
        predicted = every.of_runs(range(first, first + runs))
        if primary:
            _remove(path, sharded)
            _keep_members(folder, split, predicted)
        if predicted.logits is None:
            any_process(False)  # a barrier: what was there is gone before writing
            stream = dataset if isinstance(dataset, StreamingDataset) else None
            write_predictions(
                trained,
                part,
                shard_folder(path),
                weights=weights,
                meta=meta,
                reading=Reading() if stream is None else stream.reading,
            )
        elif primary:
            found = Predictions(part.ids, part.labels, predicted.logits, dict(meta))
            save_predictions(path, found)
    return every.note


def _keep_scores(
    trained: Trained, data: Any, split: str, folders: Mapping[Path, Mapping[str, Any]]
) -> None:
    """Leaves scores of clicks as logits of two classes, the stream's as the test's."""
    part, scores = data.validation, trained.scores.held_out
    if split == "test":
        first = trained.scores.first
        part, scores = data.train.take(slice(first, None)), trained.scores.stream
    if not len(part) or jax.process_index() != 0:
        return
    each = scores.reshape(len(folders), -1, len(part))
    for (folder, meta), found in zip(folders.items(), each, strict=True):
        logits = np.stack([np.zeros_like(found), found], axis=-1)
        kept = Predictions(part.keys, part.labels, logits, dict(meta))
        save_predictions(folder / _FILES[split], kept)


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
