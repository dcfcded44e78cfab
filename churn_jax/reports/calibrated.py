"""Prediction differences at equal calibration: what is left when confidence is equal.

A method that makes predictions less sure changes every difference of probabilities,
whether or not its runs agree better. So each run's logits are divided by the one
temperature that suits the run's own validation split, and the study's prediction
differences are taken again:

    python -m churn_jax.reports.calibrated runs/ad-mnist
"""

import argparse
import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path

import jax
import numpy as np

from churn_jax import metrics
from churn_jax.analysis.significance import Difference, paired_leave_one_out_test
from churn_jax.configuration.record import RowRecord
from churn_jax.documents import Document, Table, markdown
from churn_jax.prediction_shards import TooLargeError, load_whole
from churn_jax.predictions import Predictions, PredictionsError
from churn_jax.reports.artefacts import (
    TEST,
    VALIDATION,
    ReportError,
    read_study,
)
from churn_jax.reports.cells import number, of_set, signed
from churn_jax.reports.estimates import Estimate, over_runs, over_sets
from churn_jax.reports.summary import known_by_some

__all__ = ["CalibratedRow", "calibrated_document", "calibrated_rows"]

QUANTITY = "prediction_difference"


@dataclasses.dataclass(frozen=True)
class CalibratedRow:
    """One method of a study with calibrated probabilities."""

    name: str  # of the method
    label: str  # name for people
    runs: tuple[int, ...]  # replicas that finished
    temperature: Estimate  # over runs, fitted on the validation split
    # of the calibrated predictions on the test split, over runs; on the examples whose
    # class the runs know, as the temperature is
    nll: Estimate
    before: Estimate  # Delta_1 of the predictions as they are deployed
    after: Estimate  # Delta_1 of the calibrated predictions
    # `after` against the baseline's, paired by run; None for the baseline and where
    # other runs finished
    change: Difference | None


def calibrated_rows(run_dir) -> tuple[CalibratedRow, ...]:
    """Every finished method of a study's folder at its own temperatures."""
    study = read_study(run_dir)
    rows: list[CalibratedRow] = []
    without: dict[str, np.ndarray] = {}
    for method in study.methods:
        folder = study.method_folder(method.name)
        try:
            validation = load_whole(folder / VALIDATION)
            test = load_whole(folder / TEST)
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
    return tuple(_compared(row, base, without) for row in rows)


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
    known = known_by_some(test.logits, runs)
    kept, counted = known[validation.labels], known[test.labels]
    held_out = validation.labels[kept].astype(np.int32)
    temperature = np.asarray(_temperatures(validation.logits[runs][:, kept], held_out))
    logits = test.logits[runs] / temperature[:, None, None]
    labels = test.labels.astype(np.int32)
    before, _ = over_sets(test.logits[runs], labels)
    after, without = over_sets(logits, labels)
    row = CalibratedRow(
        method.name,
        method.label,
        tuple(runs),
        over_runs(temperature),
        over_runs(np.asarray(_nll(logits[:, counted], labels[counted]))),
        before[QUANTITY],
        after[QUANTITY],
        None,
    )
    return row, without[QUANTITY]


def _compared(row: CalibratedRow, base: CalibratedRow | None, without):
    if base is None or row is base or row.runs != base.runs:
        return row
    change = paired_leave_one_out_test(
        row.after.mean, base.after.mean, without[row.name], without[base.name]
    )
    return dataclasses.replace(row, change=change)


def calibrated_document(rows: Sequence[CalibratedRow]) -> Document:
    """The rows as a table; Delta_1 ± standard error, others ± deviation."""
    heads = (
        "Method",
        "Temperature",
        "NLL",
        "Δ₁ as deployed",
        "Δ₁ calibrated",
        "change",
    )
    cells = [
        (
            row.label,
            number(row.temperature),
            number(row.nll),
            of_set(row.before),
            of_set(row.after),
            signed(row.change, 1, 4).replace("-", "−"),
        )
        for row in rows
    ]
    title = "Prediction differences at equal calibration"
    return Document(title, blocks=[Table(heads, cells)])


def main(argv: Sequence[str] | None = None) -> int:
    """Prints the table; 2 for a folder no table can be made of."""
    parser = argparse.ArgumentParser(
        prog="python -m churn_jax.reports.calibrated",
        description="Prediction differences of a study at equal calibration.",
    )
    parser.add_argument("run", type=Path, metavar="RUN", help="folder of a study")
    arguments = parser.parse_args(argv)
    try:
        document = calibrated_document(calibrated_rows(arguments.run))
        print(markdown(document), end="")
    except (OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
