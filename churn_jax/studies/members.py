"""Predictions of a row on one split: what it deploys, and what its members say."""

from typing import NamedTuple

import jax
import numpy as np

from churn_jax.data import Dataset, StreamingDataset
from churn_jax.methods import Method, deploy
from churn_jax.reports.members import (
    MOST_NUMBERS,
    Agreement,
    Members,
    agreement_of,
)
from churn_jax.studies.inputs import deployed_logits
from churn_jax.training.run import Trained

__all__ = ["SplitPredictions", "deploys_a_mean", "predict_split_of"]


class SplitPredictions(NamedTuple):
    """What a trained row says about one split.

    Attributes:
        logits: `[R, N, C]`, deployed; None where they were not asked for.
        members: every member's; None for rows that deploy no mean, or too many numbers.
        agreement: the members' diagnostics where they themselves are too many.
        note: why there are no members' logits; empty otherwise.
    """

    logits: np.ndarray | None
    members: Members | None = None
    agreement: Agreement | None = None
    note: str = ""


def deploys_a_mean(method: Method) -> bool:
    """Whether a replica predicts with the mean of several members."""
    return method.members > 1 and method.deploy in ("mean_probs", "mean_logits")


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
    than `MOST_NUMBERS` numbers are they predicted apart, for as many evenly spaced
    examples as that allows, and their diagnostics kept.

    Args:
        trained: the row.
        dataset: resident or streamed.
        split: `validation` or `test`.
        weights: of `Trained.predict`.
        deployed: whether deployed logits are asked for; else the members alone.

    Returns:
        The `SplitPredictions`.
    """
    method, part = trained.run.method, getattr(dataset, split)

    def of_row() -> np.ndarray | None:
        return deployed_logits(trained, dataset, split, weights) if deployed else None

    if not deploys_a_mean(method):
        return SplitPredictions(of_row())
    per_example = trained.run.config.replicas * method.members * dataset.num_classes
    streamed = isinstance(dataset, StreamingDataset)
    most = MOST_NUMBERS // per_example
    if len(part) <= most:
        options = {"reading": dataset.reading} if streamed else {}
        images = part if streamed else part.images
        every = trained.predict(images, weights, every_member=True, **options)
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
    return SplitPredictions(logits, None, agreement_of(seen, len(part)), note)
