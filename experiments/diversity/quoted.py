"""Writes the numbers of `experiments.diversity.analyses` that the page quotes as CSV.

    python experiments/diversity/quoted.py RUN OUT

`OUT-teachers.csv` has the KL by kind of images, in nats and as times that on clean
training images, `OUT-students.csv` Jacobians, foreign and corrupted images by row, and
paired against the baseline.
"""

import argparse
import csv
import itertools
from pathlib import Path

import numpy as np

from churn_jax import analysis
from churn_jax.studies.folder import read_study
from experiments.diversity.record import SectionRecord
from experiments.diversity.report_numbers import (
    corruptions_of,
    estimate,
    foreign_of,
    rocs_of,
    similarities_of,
    spreads_of,
)


def teachers(run: Path) -> list[dict]:
    """One row per kind of images."""
    record = SectionRecord(run, "teachers", None)
    tau = record.settings.get("temperature", 1.0)
    found = []
    for kinds in spreads_of(record).values():
        clean = kinds["clean"]
        for kind, spread in kinds.items():
            same = np.isin(clean.runs, spread.runs)
            row = {
                "label": kind,
                "temperature": tau,
                **_over_runs("kl", spread.mean_kl),
            }
            found.append(
                row | _over_runs("times", spread.mean_kl / clean.mean_kl[same])
            )
    return found


def students(run: Path) -> list[dict]:
    """One row per method that has any of these numbers, also against the baseline."""
    config = read_study(run).config
    values: dict[str, dict[str, np.ndarray]] = {}  # by row and name, one per run

    def put(row: str, name: str, numbers) -> None:
        values.setdefault(row, {})[name] = np.asarray(numbers, np.float64)

    cosines = similarities_of(SectionRecord(run, "jacobians", None))
    for row, runs in cosines.items():
        put(row, "cosine", [found.mean() for found in runs.values()])
    for row, curves in rocs_of(cosines, config.baseline).items():
        put(row, "auc", [curve.auc for curve in curves])
    for row, parts in SectionRecord(run, "matching", None).of_rows().items():
        gaussian, ods = (
            np.array([part[kind]["signal_to_noise"] for part in parts.values()])
            for kind in ("gaussian", "ods")
        )
        put(row, "snr_gaussian", gaussian)
        put(row, "snr_ods", ods)
        put(row, "snr_times", ods / gaussian)
    for row, found in foreign_of(SectionRecord(run, "ood", None)).items():
        for name in ("entropy_in", "entropy_out", "auroc_entropy"):
            put(row, name, getattr(found, name))
    summaries, _ = corruptions_of(SectionRecord(run, "corruptions", None))
    for row, found in summaries.items():
        for name in ("accuracy", "nll", "ece"):
            put(row, f"corrupted_{name}", found.mean(name))
    base = values.get(config.baseline, {})
    rows = []
    for name in values:
        row = {"label": config.spec(name).label}
        for what, numbers in values[name].items():
            row |= _over_runs(what, numbers)
            if what in base and name != config.baseline:
                test = analysis.paired_t_test(numbers, base[what])
                row |= {f"delta_{what}": test.difference}
                row |= {f"delta_{what}_stderr": test.stderr, f"delta_{what}_p": test.p}
        rows.append(row)
    return rows


def _over_runs(name: str, values) -> dict[str, float]:
    found = estimate(values)
    return {name: found.mean, f"{name}_std": found.std, f"{name}_stderr": found.stderr}


def main() -> None:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("run", type=Path, help="folder of a finished study")
    parser.add_argument("out", help="beginning of the files' names")
    args = parser.parse_args()
    parts = {"teachers": teachers, "students": students}
    for name, rows in ((name, part(args.run)) for name, part in parts.items()):
        if rows:
            fields = list(dict.fromkeys(itertools.chain.from_iterable(rows)))
            path = Path(f"{args.out}-{name}.csv")
            with path.open("w", encoding="utf-8", newline="") as file:
                writer = csv.DictWriter(file, fields, lineterminator="\n")
                writer.writeheader()
                writer.writerows(rows)
            print(path)


if __name__ == "__main__":
    main()
