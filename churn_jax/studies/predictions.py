"""Predictions of a trained row, kept in its folder in one file or in shards."""

import dataclasses
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from churn_compare.store import (
    INDEX,
    Predictions,
    load_predictions,
    save_predictions,
    shard_folder,
)
from churn_jax.configuration.codec import to_json
from churn_jax.configuration.record import RowRecord
from churn_jax.data import Dataset, Reading, StreamingDataset
from churn_jax.methods import deploy
from churn_jax.reports.artefacts import TEST, VALIDATION
from churn_jax.reports.examples import save_examples
from churn_jax.reports.members import (
    MEMBERS,
    MEMBERS_VALIDATION,
    MOST_NUMBERS,
    Members,
    save_members,
)
from churn_jax.reports.summary import ambiguity_of
from churn_jax.studies.folder import StudyFolder
from churn_jax.training.folder_lock import check_lock
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


def predict_split_of(
    trained: Trained,
    dataset: Dataset | StreamingDataset,
    split: str,
    weights: str = "config",
    *,
    deployed: bool = True,
) -> tuple[np.ndarray | None, Members | None, str]:
    """Deployed logits, if wanted, members' where their mean is deployed, and a note.

    Both come from one pass over the images. Only where the members' logits are more
    than `MOST_NUMBERS` numbers are they predicted separately, of the test split, for as
    many evenly spaced examples as that allows.
    """
    method, part = trained.run.method, getattr(dataset, split)
    per_example = trained.run.config.replicas * method.members * dataset.num_classes
    most = MOST_NUMBERS // per_example
    if method.deploys_a_mean and len(part) <= most:
        every = split_logits(trained, dataset, split, weights, every_member=True)
        members = Members(part.ids, part.labels, every)
        if not deployed:
            return None, members, ""
        mean = jax.jit(lambda logits: deploy(method, logits))
        return np.stack([np.asarray(mean(run)) for run in every]), members, ""
    logits = split_logits(trained, dataset, split, weights) if deployed else None
    if not method.deploys_a_mean:
        return logits, None, ""
    many = f"{len(part) * per_example:,} logits of members on the {split} split"
    if isinstance(dataset, StreamingDataset) or not most or split != "test":
        return logits, None, f"{many} are not kept"
    chosen = np.linspace(0, len(part) - 1, most).astype(int)
    every = trained.predict(part.images[chosen], weights, every_member=True)
    members = Members(part.ids[chosen], part.labels[chosen], every)
    note = f"of {many} those of {most:,} examples of {len(part):,} are kept"
    return logits, members, note


_FILES = {"test": TEST, "validation": VALIDATION}
_MEMBERS = {"test": MEMBERS, "validation": MEMBERS_VALIDATION}


def keep_split(
    trained: Trained,
    dataset: Any,
    split: str,
    rows: Sequence[RowRecord],
    folder: StudyFolder,
) -> str:
    """Predicts a split and leaves the predictions in the folders of rows; a note.

    The replicas of rows that were trained together follow each other. All processes
    call it. What was there of the split in the other form is removed first, so that a
    row never has both; a launch that dies on the way leaves nothing that looks
    finished.
    """
    config, weights = folder.config, rows[0].weights
    part, primary = getattr(dataset, split), jax.process_index() == 0
    runs = trained.run.config.replicas // len(rows)
    sharded, members, note = False, None, ""
    if trained.scores is not None:  # of clicks, those of the stream are the test's
        first, held_out = trained.scores.first, split == "validation"
        part = part if held_out else dataset.train.take(slice(first, None))
        if not len(part):
            return ""
        logits = trained.scores.held_out if held_out else trained.scores.stream
        ids = part.keys
    else:
        ids, classes = part.ids, dataset.num_classes
        # Rows of one program are few runs of small networks, so they are kept in files.
        alone = len(rows) == 1
        sharded = alone and config.evaluation.sharded(runs, len(part), classes)
        logits, members, note = predict_split_of(
            trained, dataset, split, weights, deployed=not sharded
        )
    for number, row in enumerate(rows):
        check_lock(own := folder.method_dir(row.name))
        path, these = own / _FILES[split], slice(number * runs, (number + 1) * runs)
        meta = {
            "method": row.name,
            "study": config.name,
            "fingerprint": dataset.fingerprint,
            "split": split,
            "stopped": to_json(row.stopped),
        }
        if primary:
            if sharded:
                path.unlink(missing_ok=True)
            if (shards := shard_folder(path)).exists():
                # First, since the index says that all shards are there.
                (shards / INDEX).unlink(missing_ok=True)
                shutil.rmtree(shards)
            if members is not None:
                every = dataclasses.replace(members, logits=members.logits[these])
                save_members(own / _MEMBERS[split], every)
        if logits is None:
            any_process(False)  # a barrier: what was there is gone before writing
            write_predictions(
                trained,
                part,
                shard_folder(path),
                weights=weights,
                meta=meta,
                reading=getattr(dataset, "reading", Reading()),
            )
        elif primary:
            found = logits[these]
            if trained.scores is not None:
                found = np.stack([np.zeros_like(found), found], axis=-1)
            save_predictions(path, Predictions(ids, part.labels, found, meta))
    return note


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
