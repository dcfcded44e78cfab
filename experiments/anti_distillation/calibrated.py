"""Prediction differences at equal calibration: what is left when confidence is equal.

A method that makes predictions less sure changes every difference of probabilities,
whether or not its runs agree better. So each run's logits are divided by the one
temperature that suits the run's own validation split, and the study's prediction
differences are taken again:

    python -m experiments.anti_distillation.calibrated runs/ad-mnist --csv FILE
"""

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from churn_compare.array_files import write_file
from churn_compare.command_line import run, words_of
from churn_compare.documents import Document, Records, Table, csv_text, markdown
from churn_compare.store import (
    Predictions,
    PredictionsError,
    TooLargeError,
    load_predictions,
)
from churn_jax.analysis.significance import paired_leave_one_out_test
from churn_jax.configuration.record import RowRecord
from churn_jax.reports.artefacts import TEST, VALIDATION, ReportError, read_study
from churn_jax.reports.estimates import adjusted
from churn_jax.reports.quantities import (
    estimate_fields,
    p_value,
    plus_minus,
)
from churn_jax.reports.summary import summarize

QUANTITIES = {"prediction_difference": "Δ₁", "prediction_difference_2": "Δ₂"}
NUMBERS = (*QUANTITIES, *(f"calibrated_{name}" for name in QUANTITIES))

Left = Mapping[str, np.ndarray]  # `[R]`, a number without each of the runs


def calibrated_records(run_dir, base_of: Callable[[str], str] | None = None) -> Records:
    """Every finished method of a study's folder at its own temperatures.

    Temperatures and NLL are over runs, on examples whose class the runs know; each of
    `NUMBERS` is of all runs, with its change against the baseline, paired by run, and
    p Holm-adjusted over the methods. There is no change where other runs finished.
    `base_of` gives every row a baseline of its own.
    """
    study = read_study(run_dir)
    rows: dict[str, dict[str, Any]] = {}
    left: dict[str, Left] = {}
    runs: dict[str, list[int]] = {}
    for method in study.methods:
        folder = study.method_folder(method.name)
        try:
            validation = load_predictions(folder / VALIDATION, whole=True)
            test = load_predictions(folder / TEST, whole=True)
        except TooLargeError:
            raise
        except (PredictionsError, FileNotFoundError):
            continue
        own = [r for r in range(len(test.logits)) if r not in method.stopped_replicas]
        if not own:
            raise ReportError(f"{method.name} has no run that finished")
        runs[method.name] = own
        rows[method.name], left[method.name] = _row(method, validation, test, own)
    if not rows:
        raise ReportError(
            f"no method of {study.folder} has predictions of both splits "
            f"({VALIDATION} and {TEST})"
        )
    base = base_of or (lambda name: study.config.baseline)
    if base_of and (unknown := {base(name) for name in rows} - rows.keys()):
        raise ReportError(f"{study.folder} has no row {', '.join(sorted(unknown))}")
    compared = {
        name: base(name)
        for name in rows
        if base(name) != name and runs[name] == runs.get(base(name))
    }
    for name in NUMBERS if compared else ():
        changes = [
            paired_leave_one_out_test(
                rows[row][name], rows[to][name], left[row][name], left[to][name]
            )
            for row, to in compared.items()
        ]
        for row, change in zip(compared, adjusted(name, changes), strict=True):
            rows[row] |= change.fields
    return Records(max(map(list, rows.values()), key=len), list(rows.values()))


def _row(
    method: RowRecord, validation: Predictions, test: Predictions, runs: list[int]
) -> tuple[dict[str, Any], Left]:
    """The numbers of a row, and each of `NUMBERS` without each run."""
    stopped = method.stopped_replicas
    deployed = summarize(test, stopped=stopped, validation=validation)
    temperature = deployed.run_values["temperature"].astype(np.float32)
    logits = test.logits[runs] / temperature[:, None, None]
    calibrated = summarize(Predictions(test.ids, test.labels, logits))
    row = {"method": method.name, "label": method.label, "runs": len(runs)}
    row |= estimate_fields("temperature", deployed.temperature)
    row |= estimate_fields("calibrated_nll", deployed.calibrated_nll)
    left = {}
    for prefix, of in (("", deployed), ("calibrated_", calibrated)):
        for name in QUANTITIES:
            row |= estimate_fields(prefix + name, getattr(of, name))
            left[prefix + name] = of.set_values[name]
    return row, left


def _table(records: Records) -> Table:
    """Means ± standard errors; p is two-sided and Holm-adjusted over the methods."""
    heads = ["Method", "Temperature", "NLL"]
    for sign in QUANTITIES.values():
        heads += [f"{sign} as deployed", "change", "p"]
        heads += [f"{sign} calibrated", "change", "p"]
    names = [f"{kind}{of}" for of in QUANTITIES for kind in ("", "calibrated_")]
    lines = []
    for row in records.rows:
        cells = [row["label"], _mean(row, "temperature"), _mean(row, "calibrated_nll")]
        for name in names:
            cells += [_mean(row, name), _mean(row, f"delta_{name}", "+")]
            cells.append(p_value(row.get(f"delta_{name}_p_holm")))
        lines.append(cells)
    return Table(heads, lines)


def _mean(row: Mapping[str, Any], name: str, sign: str = "") -> str:
    if name not in row:
        return "–"
    return plus_minus(row[name], row[f"{name}_stderr"], 4, sign).replace("-", "−")


def main(argv: Sequence[str] | None = None) -> int:
    """Prints the table; 2 for a folder no table can be made of."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments.anti_distillation.calibrated",
        description="Prediction differences of a study at equal calibration.",
    )
    parser.add_argument("run", type=Path, metavar="RUN", help="folder of a study")
    parser.add_argument("--csv", type=Path, metavar="FILE", help="write all numbers")
    parser.add_argument("--base", metavar="ROW", help="compare with this row instead")
    words, verbose = words_of(argv, "calibrated")
    arguments = parser.parse_args(words)

    def work() -> int:
        base = arguments.base
        records = calibrated_records(arguments.run, base and (lambda name: base))
        if arguments.csv is not None:
            write_file(arguments.csv, csv_text(records))
        title = "Prediction differences at equal calibration"
        print(markdown(Document(title, blocks=[_table(records)])), end="")
        return 0

    return run(work, "calibrated", verbose)


if __name__ == "__main__":
    sys.exit(main())
