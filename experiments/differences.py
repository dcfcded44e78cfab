"""Differences between any two rows of a study, paired by seed, as a CSV.

    python experiments/differences.py runs/digits out.csv churn,ece entropy-baseline

The report compares every row with the baseline, in churn and accuracy; here are other
pairs and quantities. A pair is a line, `A-B` the difference A minus B; p is adjusted by
Holm's method over the pairs that are named, for each quantity by itself.
"""

import argparse
import csv
from pathlib import Path

from churn_compare.significance import holm
from churn_jax.reports import collect
from churn_jax.reports.compare import paired


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path, help="of the study")
    parser.add_argument("out", type=Path, help="the CSV")
    parser.add_argument("quantities", help="fields of a MethodSummary, with commas")
    parser.add_argument("pairs", nargs="+", metavar="A-B", help="names of two rows")
    options = parser.parse_args()
    rows = {row.info.name: row for row in collect(options.folder).rows}
    try:
        pairs = [[rows[name] for name in pair.split("-")] for pair in options.pairs]
    except KeyError as error:
        parser.error(f"{options.folder} has no row {error}; it has {', '.join(rows)}")
    if any(len(pair) != 2 for pair in pairs):
        parser.error("a pair is two names with a minus sign between them")
    lines: list[dict[str, str | float]] = [
        {"label": f"{a.info.label} − {b.info.label}"} for a, b in pairs
    ]
    for name in options.quantities.split(","):
        found = [paired(name, a.summary, b.summary) for a, b in pairs]
        adjusted = holm([difference.p for difference in found])
        for line, difference, p in zip(lines, found, adjusted, strict=True):
            line[f"delta_{name}"] = difference.difference
            line[f"delta_{name}_stderr"] = difference.stderr
            line[f"delta_{name}_p_holm"] = float(p)
    with options.out.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, lines[0])
        writer.writeheader()
        writer.writerows(lines)


if __name__ == "__main__":
    main()
