"""Prediction differences at equal calibration: what is left when confidence is equal.

A method that makes predictions less sure changes every difference of probabilities,
whether or not its runs agree better. So each run's logits are divided by the one
temperature that suits the run's own validation split, and the study's prediction
differences are taken again:

    python -m experiments.anti_distillation.calibrated runs/ad-mnist --csv FILE
"""

import argparse
import dataclasses
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from churn_compare.array_files import write_file
from churn_compare.command_line import run, words_of
from churn_compare.documents import Document, Records, Table, csv_text, markdown
from churn_compare.significance import holm
from churn_compare.store import (
    Predictions,
    PredictionsError,
    TooLargeError,
    load_predictions,
)
from churn_jax import metrics
from churn_jax.analysis.significance import Difference, paired_leave_one_out_test
from churn_jax.configuration.record import RowRecord
from churn_jax.reports.artefacts import (
    TEST,
    VALIDATION,
    ReportError,
    read_study,
)
from churn_jax.reports.cells import (
    ABSENT,
    difference_fields,
    estimate_fields,
    number,
    of_set,
    p_value,
    plus_minus,
)
from churn_jax.reports.estimates import Estimate, over_runs, over_sets
from churn_jax.reports.summary import classes_of

QUANTITIES = {"prediction_difference": "Δ₁", "prediction_difference_2": "Δ₂"}
FIRST = "prediction_difference"


@dataclasses.dataclass(frozen=True)
class CalibratedRow:
    """One method of a study with calibrated probabilities.

    Attributes:
        name: name of the method.
        label: its name for people.
        runs: replicas that finished.
        temperature: over runs, fitted on the validation split.
        nll: NLL of the calibrated predictions on the test split, over runs; on the
            examples whose class the runs know, as the temperature is.
        numbers: `QUANTITIES` of the predictions as they are deployed, and under names
            that start with `calibrated_` of the calibrated ones.
        changes: each of `numbers` against the baseline's, paired by run; empty for the
            baseline and where other runs finished.
        p_holm: p of each change, Holm-adjusted over the methods.
    """

    name: str
    label: str
    runs: tuple[int, ...]
    temperature: Estimate
    nll: Estimate
    numbers: Mapping[str, Estimate]
    changes: Mapping[str, Difference] = dataclasses.field(default_factory=dict)
    p_holm: Mapping[str, float] = dataclasses.field(default_factory=dict)

    @property
    def before(self) -> Estimate:
        """Delta_1 of the predictions as they are deployed."""
        return self.numbers[FIRST]

    @property
    def after(self) -> Estimate:
        """Delta_1 of the calibrated predictions."""
        return self.numbers[f"calibrated_{FIRST}"]

    @property
    def change(self) -> Difference | None:
        """`after` against the baseline's."""
        return self.changes.get(f"calibrated_{FIRST}")


def calibrated_rows(run_dir) -> tuple[CalibratedRow, ...]:
    """Every finished method of a study's folder at its own temperatures."""
    study = read_study(run_dir)
    rows: list[CalibratedRow] = []
    without: dict[str, dict[str, np.ndarray]] = {}
    for method in study.methods:
        folder = study.method_folder(method.name)
        try:
            validation = load_predictions(folder / VALIDATION, whole=True)
            test = load_predictions(folder / TEST, whole=True)
        except TooLargeError:
            raise
        except (PredictionsError, FileNotFoundError):
            continue
        row, left_out = _row(method, validation, test)
        rows.append(row)
        without[method.name] = left_out
    if not rows:
        raise ReportError(
            f"no method of {study.folder} has predictions of both splits "
            f"({VALIDATION} and {TEST})"
        )
    base = next((row for row in rows if row.name == study.config.baseline), None)
    return _adjusted([_compared(row, base, without) for row in rows])


@jax.jit
def _temperatures(logits, labels):
    return jax.vmap(metrics.fit_temperature, (0, None))(logits, labels)


@jax.jit
def _nll(logits, labels):
    return jax.vmap(metrics.negative_log_likelihood, (0, None))(logits, labels)


def _row(method: RowRecord, validation: Predictions, test: Predictions):
    """The row without its change, and Delta_1 without each run, `[R]`."""
    stopped = method.stopped_replicas
    runs = [r for r in range(len(test.logits)) if r not in stopped]
    if not runs:
        raise ReportError(f"{method.name} has no run that finished")
    # Examples of classes that the runs do not know fit no temperature.
    _, known = classes_of(test, runs)
    kept, counted = known[validation.labels], known[test.labels]
    held_out = validation.labels[kept].astype(np.int32)
    temperature = np.asarray(_temperatures(validation.logits[runs][:, kept], held_out))
    logits = test.logits[runs] / temperature[:, None, None]
    labels = test.labels.astype(np.int32)
    deployed, left_out = over_sets(test.logits[runs], labels)
    calibrated, left_out_calibrated = over_sets(logits, labels)
    row = CalibratedRow(
        method.name,
        method.label,
        tuple(runs),
        over_runs(temperature),
        over_runs(np.asarray(_nll(logits[:, counted], labels[counted]))),
        _both(deployed, calibrated),
    )
    return row, _both(left_out, left_out_calibrated)


def _both(deployed: Mapping, calibrated: Mapping) -> dict[str, Any]:
    named = {f"calibrated_{name}": calibrated[name] for name in QUANTITIES}
    return {name: deployed[name] for name in QUANTITIES} | named


def _compared(row: CalibratedRow, base: CalibratedRow | None, without):
    if base is None or row is base or row.runs != base.runs:
        return row
    changes = {
        name: paired_leave_one_out_test(
            number.mean,
            base.numbers[name].mean,
            without[row.name][name],
            without[base.name][name],
        )
        for name, number in row.numbers.items()
    }
    return dataclasses.replace(row, changes=changes)


def _adjusted(rows: list[CalibratedRow]) -> tuple[CalibratedRow, ...]:
    """The rows with their p-values adjusted over those that are compared."""
    compared = [row for row in rows if row.changes]
    found: dict[str, dict[str, float]] = {row.name: {} for row in rows}
    for name in compared[0].changes if compared else ():
        adjusted = holm([row.changes[name].p for row in compared])
        for row, p in zip(compared, adjusted, strict=True):
            found[row.name][name] = float(p)
    return tuple(dataclasses.replace(row, p_holm=found[row.name]) for row in rows)


def calibrated_document(rows: Sequence[CalibratedRow]) -> Document:
    """The rows as a table; prediction differences ± standard error, others ± deviation.

    p is two-sided and Holm-adjusted over the methods.
    """
    heads = ["Method", "Temperature", "NLL"]
    for sign in QUANTITIES.values():
        heads += [f"{sign} as deployed", "change", "p"]
        heads += [f"{sign} calibrated", "change", "p"]
    title = "Prediction differences at equal calibration"
    return Document(title, blocks=[Table(tuple(heads), [_cells(row) for row in rows])])


def _cells(row: CalibratedRow) -> tuple[str, ...]:
    cells = [row.label, number(row.temperature), number(row.nll)]
    for quantity in QUANTITIES:
        for name in (quantity, f"calibrated_{quantity}"):
            text = ABSENT
            if (change := row.changes.get(name)) is not None:
                text = plus_minus(change.difference, change.stderr, 4, "+")
            text = text.replace("-", "−")
            cells += [of_set(row.numbers[name]), text, p_value(row.p_holm.get(name))]
    return tuple(cells)


def calibrated_records(rows: Sequence[CalibratedRow]) -> Records:
    """All numbers of the rows at full precision, for a CSV file."""
    found = []
    for row in rows:
        out = {"method": row.name, "label": row.label, "runs": len(row.runs)}
        out |= estimate_fields("temperature", row.temperature)
        out |= estimate_fields("calibrated_nll", row.nll)
        for name, estimate in row.numbers.items():
            out |= estimate_fields(name, estimate)
        for name, change in row.changes.items():
            out |= difference_fields(name, change, row.p_holm[name])
        found.append(out)
    return Records(max(map(list, found), key=len), found)


def main(argv: Sequence[str] | None = None) -> int:
    """Prints the table; 2 for a folder no table can be made of."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments.anti_distillation.calibrated",
        description="Prediction differences of a study at equal calibration.",
    )
    parser.add_argument("run", type=Path, metavar="RUN", help="folder of a study")
    parser.add_argument("--csv", type=Path, metavar="FILE", help="write all numbers")
    words, verbose = words_of(argv, "calibrated")
    arguments = parser.parse_args(words)

    def work() -> int:
        rows = calibrated_rows(arguments.run)
        if arguments.csv is not None:
            write_file(arguments.csv, csv_text(calibrated_records(rows)))
        print(markdown(calibrated_document(rows)), end="")
        return 0

    return run(work, "calibrated", verbose)


if __name__ == "__main__":
    sys.exit(main())
