"""What a trained row predicts, kept in its folder in one file or in shards."""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from churn_jax.configuration.study import EvaluationConfig
from churn_jax.data import Dataset, Reading, StreamingDataset
from churn_jax.prediction_shards import (
    INDEX,
    MappedPredictions,
    load_stored,
    shards_beside,
)
from churn_jax.predictions import Predictions, save_predictions
from churn_jax.reports.artefacts import TEST, VALIDATION
from churn_jax.reports.examples import save_examples
from churn_jax.reports.members import (
    DIAGNOSTICS,
    MEMBERS,
    MEMBERS_VALIDATION,
    save_agreement,
    save_members,
)
from churn_jax.reports.summary_in_blocks import ambiguity_in_blocks
from churn_jax.studies.members import SplitPredictions, predict_split_of
from churn_jax.training.partition import any_process
from churn_jax.training.predictions import write_predictions
from churn_jax.training.run import Trained

__all__ = ["keep_examples", "keep_split"]

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

    Args:
        trained: the row.
        dataset: resident or streamed.
        split: `validation` or `test`.
        folder: of the row.
        evaluation: in which form.
        weights: of `Trained.predict`.
        meta: facts for the predictions.

    Returns:
        A sentence for the user; mostly empty.

    Raises:
        churn_jax.predictions.PredictionsError: logits are not finite, or another
            process could not write its shard.
        OSError: a file could not be written.
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
        any_process(False)  # nobody writes before what was there is gone
        streamed = isinstance(dataset, StreamingDataset)
        write_predictions(
            trained,
            part,
            shards_beside(path),
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
    shards = shards_beside(path)
    if shards.exists():
        # First, for it says that all are there.
        (shards / INDEX).unlink(missing_ok=True)
        shutil.rmtree(shards)


def _keep_members(folder: Path, split: str, predicted: SplitPredictions) -> None:
    """Every member's logits beside the deployed ones, or their diagnostics."""
    if predicted.members is not None:
        name = MEMBERS if split == "test" else MEMBERS_VALIDATION
        save_members(folder / name, predicted.members)
    elif predicted.agreement is not None and split == "test":
        save_agreement(folder / DIAGNOSTICS, predicted.agreement)


def keep_examples(out: Path, folder: Path, dataset: Dataset | StreamingDataset) -> None:
    """Leaves the test inputs that a report may show, chosen by a row's predictions.

    Args:
        out: folder of the study.
        folder: of the row.
        dataset: resident or streamed.
    """
    streamed = isinstance(dataset, StreamingDataset)
    images = dataset.test if streamed else dataset.test.images
    found = load_stored(folder / TEST)
    # Runs that stopped are in no number of the report either.
    runs = [run for run in range(found.shape[0]) if run not in found.stopped]
    if isinstance(found, MappedPredictions):
        ambiguity = ambiguity_in_blocks(found, runs) if len(runs) > 1 else None
        save_examples(out, found.ids, images, ambiguity=ambiguity)
    else:
        save_examples(out, found.ids, images, np.asarray(found.logits)[runs])
