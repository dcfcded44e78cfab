"""Prediction differences at equal calibration."""

import csv

import numpy as np
import pytest

from churn_compare.documents import markdown
from churn_compare.store import Predictions, save_predictions
from churn_jax.reports.artefacts import ReportError
from experiments.anti_distillation.calibrated import (
    calibrated_document,
    calibrated_rows,
    main,
)
from tests.reports.fake_study import noisy_logits, write_study

R, C = 4, 3


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory):
    """A baseline, the same with half the logits, and one whose runs differ more."""
    rng = np.random.default_rng(0)
    splits = {}
    for split, examples in (("validation", 500), ("test", 600)):
        labels = rng.integers(0, C, examples)
        base = noisy_logits(rng, labels, R, C, margin=2.0)
        wilder = base + 1.5 * rng.normal(size=base.shape).astype(np.float32)
        rows = {"baseline": base, "softer": base / 2, "wilder": wilder}
        splits[split] = labels, rows
    labels, rows = splits["test"]
    folder = write_study(tmp_path_factory.mktemp("runs") / "fake", rows, labels)
    labels, rows = splits["validation"]
    for name, logits in rows.items():
        save_predictions(
            folder / "methods" / name / "predictions-validation.npz",
            Predictions(np.arange(len(labels)), labels, logits, {}),
        )
    return folder


def test_runs_are_compared_at_temperatures_of_their_own(run_dir, capsys):
    rows = base, softer, wilder = calibrated_rows(run_dir)
    # Half the logits are the same model at another temperature.
    np.testing.assert_allclose(
        softer.temperature.mean, base.temperature.mean / 2, rtol=1e-3
    )
    assert softer.before.mean < 0.8 * base.before.mean
    np.testing.assert_allclose(softer.after.mean, base.after.mean, rtol=1e-3)
    np.testing.assert_allclose(softer.nll.mean, base.nll.mean, rtol=1e-4)
    assert base.change is None
    assert abs(softer.change.difference) < 1e-3
    # Runs that differ more still do.
    change = wilder.change
    assert change.difference == pytest.approx(wilder.after.mean - base.after.mean)
    assert change.difference > 5 * change.stderr > 0 and change.p < 0.01
    # Holm: the smaller of two p-values counts twice.
    assert wilder.p_holm["calibrated_prediction_difference"] == 2 * change.p
    deployed = softer.changes["prediction_difference_2"]
    two = [row.numbers["prediction_difference_2"].mean for row in (softer, base)]
    assert deployed.difference == pytest.approx(two[0] - two[1]) and two[0] < two[1]

    file = run_dir.parent / "calibrated.csv"
    assert main([str(run_dir), "--csv", str(file)]) == 0
    lines = csv.DictReader(file.read_text().splitlines())
    kept = {row["method"]: row for row in lines}
    assert float(kept["wilder"]["delta_calibrated_prediction_difference"]) == (
        change.difference
    )
    assert kept["baseline"]["delta_prediction_difference_p_holm"] == ""
    text = capsys.readouterr().out
    assert text == markdown(calibrated_document(rows))
    lines = [line for line in text.splitlines() if line.startswith("|")]
    assert len(lines) == 5 and lines[2].startswith("| Baseline | ")


def test_a_folder_without_validation_predictions_is_refused(tmp_path, capsys):
    logits = np.zeros((2, 4, 2), np.float32)
    write_study(tmp_path / "a", {"baseline": logits}, np.zeros(4, int))
    with pytest.raises(ReportError, match="predictions of both splits"):
        calibrated_rows(tmp_path / "a")
    assert main([str(tmp_path / "nowhere")]) == 2
    assert "does not exist" in capsys.readouterr().err
