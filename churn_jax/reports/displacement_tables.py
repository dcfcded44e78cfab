"""Tables and sentences of `churn-jax displacement`."""

import dataclasses

import numpy as np

from churn_jax.analysis import UpdatesBySize
from churn_jax.reports.artefacts import Study
from churn_jax.reports.displacement_features import FeatureNumbers
from churn_jax.reports.displacement_norms import (
    FEWEST_NETWORKS,
    DisplacementOptions,
    Norms,
)
from churn_jax.reports.displacement_numbers import Comparison
from churn_jax.reports.displacement_plots import Picture

__all__ = ["DisplacementReport", "tables", "texts"]

FIT_HEADS = (
    "Members",
    "Mean norm",
    "Simulated",
    "KS distance",
    "If normal",
    "p",
    "Images with p ≤ 0.05",
)
AGREEMENT_HEADS = ("Row", "Same class as mean logits %", "Relative distance")
RATE_HEADS = ("Members", "ER old %", "ER new %", "NFR %", "Relative NFR %")
CLEAR = 0.05
MIXTURE = "Heterogeneous"


@dataclasses.dataclass(frozen=True, eq=False)
class DisplacementReport:
    """Everything that is printed, drawn and written.

    Attributes:
        study: whose predictions they are.
        options: what was computed.
        comparisons: of the old row with itself, and with the new one.
        mixture: updates between heterogeneous ensembles; None if not asked for.
        mixed: labels of their rows.
        features: displacements of features; None if not asked for.
        classes: how many of the classes all rows know.
        examples: how many were compared.
        pictures: figures; empty if none were drawn.
    """

    study: Study
    options: DisplacementOptions
    comparisons: tuple[Comparison, ...]
    mixture: UpdatesBySize | None
    mixed: tuple[str, ...]
    features: FeatureNumbers | None
    classes: int
    examples: int
    pictures: tuple[Picture, ...]

    @property
    def updates(self) -> dict[str, UpdatesBySize]:
        """Label to error and flip rates, the mixture last."""
        found = {c.label: c.updates for c in self.comparisons}
        return found if self.mixture is None else found | {MIXTURE: self.mixture}

    @property
    def remarks(self) -> tuple[str, ...]:
        """What a reader must know before the numbers."""
        fewest, found = min(min(c.norms.networks) for c in self.comparisons), []
        if fewest < FEWEST_NETWORKS:
            found.append(
                f"{fewest} networks of a kind are few: a test on fewer than "
                f"{FEWEST_NETWORKS} finds only coarse departures from normal logits."
            )
        if self.features is not None and not self.features.one_reference:
            found.append(
                f"{self.features.reference} has replicas that differ, so the features "
                "of other rows live in several spaces; fix its seeds."
            )
        return tuple(found)


def tables(report: DisplacementReport) -> dict[str, tuple[tuple, list[tuple]]]:
    """Caption to heads and rows, all of them text."""
    out: dict[str, tuple[tuple, list[tuple]]] = {}
    for found in report.comparisons:
        out[f"How far logits move, {_networks(found.norms)}"] = _fits(found.norms)
    if report.features is not None:
        for norms in report.features.norms:
            out[f"How far features move, {_networks(norms)}"] = _fits(norms)
        out[f"Mean features under the last layer of {report.features.reference}"] = (
            AGREEMENT_HEADS,
            [
                (label, f"{100 * x.agreement:.2f}", f"{x.relative_distance:.3f}")
                for label, x in report.features.agreement.items()
            ],
        )
    for label, updates in report.updates.items():
        mixed = f" of {', '.join(report.mixed)}" if label == MIXTURE else ""
        out[f"Updates, {label}{mixed}"] = (RATE_HEADS, _rates(updates))
    return out


def _networks(norms: Norms) -> str:
    return f"{norms.label}, {' and '.join(map(str, norms.networks))} networks"


def _fits(norms: Norms) -> tuple[tuple, list[tuple]]:
    return FIT_HEADS, [
        (
            str(fit.size),
            f"{fit.observed.mean():.4g}",
            f"{fit.simulated.mean():.4g}",
            f"{fit.mean_distance:.3f}",
            f"{fit.expected_distance:.3f}",
            f"{fit.mean_p:.3f}",
            f"{np.sum(fit.p <= CLEAR)} of {len(fit.p)}",
        )
        for fit in norms.fits
    ]


def _rates(updates: UpdatesBySize) -> list[tuple]:
    kinds = (
        updates.old_error,
        updates.new_error,
        updates.negative_flip_rate,
        updates.relative_negative_flip_rate,
    )
    return [
        (str(size), *(_mean_and_spread(100 * kind[s]) for kind in kinds))
        for s, size in enumerate(updates.sizes)
    ]


def _mean_and_spread(values) -> str:
    values = values[np.isfinite(values)]
    return f"{values.mean():.2f} ± {values.std():.2f}" if values.size else "–"


def texts(report: DisplacementReport) -> tuple[str, ...]:
    """What the numbers are, for the reader of the tables."""
    options, images = report.options, len(report.comparisons[0].norms.fits[0].p)
    found = (
        f"{report.examples:,} test examples, {report.classes} classes; norms on "
        f"{images} evenly spaced images, {options.draws:,} pairs of random ensembles "
        "that share no network, and as many simulated normal displacements whose mean "
        "and covariance come from all single networks.",
        "KS distance: largest difference between the two distributions of the norm, "
        "mean over the images. If normal: its mean where the same procedure is applied "
        f"to as many normal networks, {options.resamples:,} sets of them; p: the share "
        "of those sets with at least such a distance. The networks are the sample, not "
        "the draws. Updates: mean and standard deviation over "
        f"{report.comparisons[0].updates.old_error.shape[1]:,} random updates.",
    )
    if report.features is None:
        return found
    return (
        *found,
        f"Features of networks that were trained to be compatible with "
        f"{report.features.reference}. Their mean over a row's networks, under its "
        "last layer, is compared with the mean of the networks' own logits; the "
        "relative distance is that of the two logits over their length, both without "
        "the mean over classes.",
    )
