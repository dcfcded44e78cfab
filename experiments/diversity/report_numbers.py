"""Numbers of the third paper's analyses by row, from what the command has saved."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from churn_jax.reports.estimates import Estimate, over_runs
from experiments.diversity.corruption import QUANTITIES, CorruptionSummary
from experiments.diversity.foreign_examples import EntropyHistogram, OutOfDistribution
from experiments.diversity.jacobians import SimilarityROC, similarity_roc
from experiments.diversity.record import SectionRecord, as_numbers


@dataclasses.dataclass(frozen=True, eq=False)
class Spread:
    """How much the members of a row differ on one kind of images, run by run."""

    edges: np.ndarray  # `[bins + 1]` of the least confidence among members
    counts: np.ndarray  # `[R, bins]`, examples
    bin_mean_kl: np.ndarray  # `[R, bins]`, nats; nan in an empty bin
    quartiles: np.ndarray  # `[R, 5, bins]`, nats
    mean_kl: np.ndarray  # `[R]`, nats
    box: np.ndarray  # `[R, 5]`, the 5th, 25th, 50th, 75th and 95th percentile, nats
    accuracy: np.ndarray  # `[R]`, of the mean of the members' probabilities
    runs: tuple[str, ...]  # numbers of the R replicas
    step: Mapping[str, float]  # eta and tau of the perturbation; empty without one

    @property
    def by_bin(self) -> np.ndarray:
        """`[bins]`, mean KL of the examples of all runs; nan where there are none."""
        total = self.counts.sum(axis=0)
        summed = np.nansum(self.counts * np.nan_to_num(self.bin_mean_kl), axis=0)
        return summed / np.where(total, total, np.nan)

    @property
    def shares(self) -> np.ndarray:
        """`[bins]`, share of the examples of all runs."""
        return self.counts.sum(axis=0) / self.counts.sum()


def spreads_of(record: SectionRecord) -> dict[str, dict[str, Spread]]:
    """By row, then by the kind of images, in the order they were computed."""
    found: dict[str, dict[str, Spread]] = {}
    for row, parts in record.of_rows().items():
        kinds = dict.fromkeys(kind for part in parts.values() for kind in part)
        found[row] = {kind: _spread(parts, kind) for kind in kinds}
    return found


def _spread(parts: Mapping[str, Any], kind: str) -> Spread:
    there = {run: part[kind] for run, part in parts.items() if kind in part}
    first = next(iter(there.values()))

    def stacked(name: str) -> np.ndarray:
        return np.stack([as_numbers(part[name]) for part in there.values()])

    arrays = {
        field.name: stacked(field.name)
        for field in dataclasses.fields(Spread)
        if field.name not in ("edges", "runs", "step")
    }
    step = {name: first[name] for name in ("size", "temperature") if name in first}
    return Spread(
        edges=as_numbers(first["edges"]), runs=tuple(there), step=step, **arrays
    )


def estimate(values) -> Estimate:
    """Over runs; nan for none."""
    values = np.asarray(values, np.float64)
    values = values[np.isfinite(values)]
    return over_runs(values) if values.size else Estimate(np.nan, np.nan, np.nan)


def similarities_of(record: SectionRecord) -> dict[str, dict[str, np.ndarray]]:
    """By row and run: cosines `[M, N]` of teachers' and members' Jacobians."""
    return {
        row: {
            run: record.arrays[f"{row}/{run}"]
            for run in parts
            if f"{row}/{run}" in record.arrays
        }
        for row, parts in record.of_rows().items()
    }


def rocs_of(
    similarities: Mapping[str, Mapping[str, np.ndarray]], scratch: str
) -> dict[str, list[SimilarityROC]]:
    """By row, a curve per run against the same run of the row from scratch."""
    baseline = similarities.get(scratch, {})
    return {
        row: [
            similarity_roc(found.ravel(), baseline[run].ravel())
            for run, found in runs.items()
            if run in baseline
        ]
        for row, runs in similarities.items()
        if row != scratch and set(runs) & set(baseline)
    }


def foreign_of(record: SectionRecord) -> dict[str, OutOfDistribution]:
    """By row; the runs' numbers together."""
    found = {}
    for row, parts in record.of_rows().items():
        runs = list(parts.values())

        def stacked(name: str, runs=runs) -> np.ndarray:
            return np.stack([as_numbers(run[name]) for run in runs])

        edges = as_numbers(runs[0]["edges"])
        own, foreign = (
            EntropyHistogram(edges, stacked(f"counts_{side}").astype(np.int64))
            for side in ("in", "out")
        )
        found[row] = OutOfDistribution(
            stacked("entropy_in"),
            stacked("entropy_out"),
            stacked("auroc_entropy"),
            stacked("auroc_max_probability"),
            own,
            foreign,
        )
    return found


def corruptions_of(
    record: SectionRecord,
) -> tuple[dict[str, CorruptionSummary], tuple[str, ...]]:
    """Rows with every corrupted set that any row has, and those without."""
    rows = record.of_rows()
    cells = list(dict.fromkeys(cell for parts in rows.values() for cell in parts))
    kinds = tuple(dict.fromkeys(cell.rpartition("/")[0] for cell in cells))
    levels = tuple(sorted({int(cell.rpartition("/")[2]) for cell in cells}))
    wanted = [[f"{kind}/{level}" for level in levels] for kind in kinds]
    found, incomplete = {}, []
    for row, parts in rows.items():
        if any(cell not in parts for line in wanted for cell in line):
            incomplete.append(row)
            continue
        arrays = {
            name: np.array(
                [[as_numbers(parts[cell][name]) for cell in line] for line in wanted]
            )
            for name in QUANTITIES
        }
        found[row] = CorruptionSummary(kinds, levels, **arrays)
    return found, tuple(incomplete)
