"""Prediction differences at equal calibration."""

import csv

import numpy as np
import pytest

from churn_compare.store import Predictions, save_predictions
from churn_jax.reports import ReportError
from experiments import differences
from experiments.anti_distillation.calibrated import calibrated_records, main
from tests.reports.fake_study import noisy_logits, write_study

R, C = 4, 3


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory):
    """A baseline, the same with half the logits, and one whose runs differ more."""
    rng, folder = np.random.default_rng(0), tmp_path_factory.mktemp("runs") / "fake"

    def made(examples):
        labels = rng.integers(0, C, examples)
        base = noisy_logits(rng, labels, R, C, margin=2.0)
        wilder = base + 1.5 * rng.normal(size=base.shape).astype(np.float32)
        return {"baseline": base, "softer": base / 2, "wilder": wilder}, labels

    rows, labels = made(500)
    for name, logits in rows.items():
        save_predictions(
            folder / "methods" / name / "predictions-validation.npz",
            Predictions(np.arange(len(labels)), labels, logits, {}),
        )
    return write_study(folder, rows, labels)


@pytest.fixture(scope="module")
def records(run_dir):
    return calibrated_records(run_dir).rows


def test_runs_are_compared_at_temperatures_of_their_own(run_dir, records, capsys):
    base, softer, wilder = records
    before, after = "prediction_difference", "calibrated_prediction_difference"
    # Half the logits are the same model at another temperature.
    assert softer["temperature"] == pytest.approx(base["temperature"] / 2, rel=1e-3)
    assert softer[before] < 0.8 * base[before]
    assert softer[after] == pytest.approx(base[after], rel=1e-3)
    assert softer["calibrated_nll"] == pytest.approx(base["calibrated_nll"], rel=1e-4)
    assert f"delta_{after}" not in base
    assert abs(softer[f"delta_{after}"]) < 1e-3
    # Runs that differ more still do.
    change, stderr = wilder[f"delta_{after}"], wilder[f"delta_{after}_stderr"]
    assert change == pytest.approx(wilder[after] - base[after])
    assert change > 5 * stderr > 0 and wilder[f"delta_{after}_p"] < 0.01
    # Holm: the smaller of two p-values counts twice.
    assert wilder[f"delta_{after}_p_holm"] == 2 * wilder[f"delta_{after}_p"]
    second = "prediction_difference_2"
    assert softer[f"delta_{second}"] == pytest.approx(softer[second] - base[second])
    assert softer[second] < base[second]

    file = run_dir.parent / "calibrated.csv"
    assert main([str(run_dir), "--csv", str(file)]) == 0
    lines = csv.DictReader(file.read_text().splitlines())
    kept = {row["method"]: row for row in lines}
    assert float(kept["wilder"][f"delta_{after}"]) == change
    assert kept["baseline"]["delta_prediction_difference_p_holm"] == ""
    text = capsys.readouterr().out
    lines = [line for line in text.splitlines() if line.startswith("|")]
    assert len(lines) == 5 and lines[2].startswith("| Baseline | ")
    assert f"| {change:+.4f} ± {stderr:.4f} |" in lines[4]


def test_another_row_may_be_the_base(run_dir, records, tmp_path, capsys):
    name, file = "delta_calibrated_prediction_difference", tmp_path / "c.csv"
    assert main([str(run_dir), "--csv", str(file), "--base", "wilder"]) == 0
    rows = csv.DictReader(file.read_text().splitlines())
    against = {row["method"]: row for row in rows}
    (_, _, wilder) = records
    assert float(against["baseline"][name]) == pytest.approx(-wilder[name])
    assert against["wilder"][name] == ""
    assert main([str(run_dir), "--base", "mine"]) == 2
    assert "has no row mine" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("quantity", "pair", "said"),
    [
        ("churm", "softer-baseline", "no pair of rows has numbers of 'churm'"),
        ("churn", "softer-base", "has no row 'base'; it has baseline, softer"),
    ],
)
def test_a_difference_of_nothing_is_refused(quantity, pair, said, run_dir, capsys):
    with pytest.raises(SystemExit, match="2"):
        differences.main([str(run_dir), "out.csv", quantity, pair])
    assert said in capsys.readouterr().err


def test_a_folder_without_validation_predictions_is_refused(tmp_path, capsys):
    logits = np.zeros((2, 4, 2), np.float32)
    write_study(tmp_path / "a", {"baseline": logits}, np.zeros(4, int))
    with pytest.raises(ReportError, match="predictions of both splits"):
        calibrated_records(tmp_path / "a")
    assert main([str(tmp_path / "nowhere")]) == 2
    assert "does not exist" in capsys.readouterr().err
