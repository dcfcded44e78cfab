"""Differences between any two rows of a study, paired by seed, as a CSV.

    python experiments/differences.py runs/digits out.csv churn,ece entropy-baseline

The report compares every row with the baseline, in churn and accuracy; here are other
pairs and quantities. A pair is a line, `A-B` the difference A minus B; p is adjusted by
Holm's method over the pairs that are named, for each quantity by itself.
"""

import argparse
import csv
from collections.abc import Iterable, Sequence
from pathlib import Path

from churn_jax.reports import ReportError, collect
from churn_jax.reports.estimates import adjusted, paired
from churn_jax.reports.report import Row


def differences(pairs: Sequence[tuple[Row, Row]], names: Iterable[str]) -> list[dict]:
    """A line for every pair; p is adjusted over the pairs, for each quantity."""
    lines: list[dict] = [{"label": f"{a.label} − {b.label}"} for a, b in pairs]
    for name in names:
        found = [paired(name, a.summary, b.summary) for a, b in pairs]
        if not any(one.runs for one in found):
            raise ReportError(f"no pair of rows has numbers of {name!r} in common")
        for line, change in zip(lines, adjusted(name, found), strict=True):
            line |= change.fields
    return lines


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path, help="of the study")
    parser.add_argument("out", type=Path, help="the CSV")
    parser.add_argument("quantities", help="fields of a MethodSummary, with commas")
    parser.add_argument("pairs", nargs="+", metavar="A-B", help="names of two rows")
    options, rows = parser.parse_args(argv), {}
    names = [pair.split("-") for pair in options.pairs]
    if any(len(pair) != 2 for pair in names):
        parser.error("a pair is two names with a minus sign between them")
    try:
        rows |= {row.info.name: row for row in collect(options.folder).rows}
        pairs = [(rows[a], rows[b]) for a, b in names]
        lines = differences(pairs, options.quantities.split(","))
    except KeyError as error:
        parser.error(f"{options.folder} has no row {error}; it has {', '.join(rows)}")
    except ReportError as error:
        parser.error(str(error))
    with options.out.open("w", encoding="utf-8", newline="") as file:
        adjusted = [name for name in lines[0] if not name.endswith("_p")]
        writer = csv.DictWriter(file, adjusted, extrasaction="ignore")
        writer.writeheader()
        writer.writerows(lines)


if __name__ == "__main__":
    main()
