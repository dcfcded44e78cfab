"""Writes what the page quotes and a study's own `table.csv` does not have, as CSV.

    python experiments/diversity/differences.py RUN OUT

`OUT-differences.csv`: rows of a finished study against other rows than its baseline and
in other quantities, paired by run; p is Holm's over the comparisons of a quantity.
`OUT-teachers.csv`: what `churn-jax diversity RUN --section teachers` has saved, as KL
and as times the KL on clean training images.
"""

import argparse
import csv
import itertools
from pathlib import Path

import numpy as np

from churn_jax import analysis, reports
from churn_jax.reports.diversity_numbers import estimate, spreads_of
from churn_jax.reports.diversity_record import SectionRecord

PAIRS = (("gaussian", "kd"), ("ods", "kd"), ("conf_ods", "kd"), ("ods", "gaussian"))
QUANTITIES = ("calibrated_nll", "dee", "accuracy", "nll")


def differences(run: Path) -> list[dict]:
    """One row per pair of methods."""
    rows = {row.info.name: row for row in reports.collect(run).rows}
    found = []
    for a, b in PAIRS:
        if a in rows and b in rows:
            label = f"{rows[a].info.label} − {rows[b].info.label}"
            found.append({"label": label, "a": a, "b": b})
    for name in QUANTITIES:
        tests = [
            analysis.paired_t_test(
                *(rows[row[side]].summary.run_values[name] for side in "ab")
            )
            for row in found
        ]
        adjusted = analysis.holm([test.p for test in tests])
        for row, test, p in zip(found, tests, adjusted, strict=True):
            row |= {name: test.difference, f"{name}_stderr": test.stderr}
            row |= {f"{name}_p": test.p, f"{name}_p_holm": float(p)}
    return found


def teachers(run: Path) -> list[dict]:
    """One row per kind of images."""
    record = SectionRecord(run, "teachers", None)
    found = []
    for kinds in spreads_of(record).values():
        clean = kinds["clean"]
        for kind, spread in kinds.items():
            same = np.isin(clean.runs, spread.runs)
            kl, times = (
                estimate(values)
                for values in (spread.mean_kl, spread.mean_kl / clean.mean_kl[same])
            )
            found.append(
                {
                    "label": kind,
                    "temperature": record.settings.get("temperature", 1.0),
                    **{"kl": kl.mean, "kl_std": kl.std, "kl_stderr": kl.stderr},
                    **{"times": times.mean, "times_std": times.std},
                    "times_stderr": times.stderr,
                }
            )
    return found


def main() -> None:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("run", type=Path, help="folder of a finished study")
    parser.add_argument("out", help="beginning of the files' names")
    args = parser.parse_args()
    parts = {"differences": differences, "teachers": teachers}
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
