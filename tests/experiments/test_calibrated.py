"""Prediction differences at equal calibration."""

import csv

import numpy as np
import pytest

from churn_compare.store import Predictions, save_predictions
from churn_jax.reports import ReportError
from experiments import differences
from experiments.anti_distillation import length
from experiments.anti_distillation.calibrated import calibrated_records, main
from tests.reports.fake_study import noisy_logits, write_study

R, C = 4, 3


def written(folder, rows):
    """A study of the rows that `rows(rng, labels)` makes of each split."""
    rng = np.random.default_rng(0)
    splits = {}
    for split, examples in (("validation", 500), ("test", 600)):
        labels = rng.integers(0, C, examples)
        splits[split] = labels, rows(rng, labels)
    labels, made = splits["test"]
    write_study(folder, made, labels)
    labels, made = splits["validation"]
    for name, logits in made.items():
        save_predictions(
            folder / "methods" / name / "predictions-validation.npz",
            Predictions(np.arange(len(labels)), labels, logits, {}),
        )
    return folder


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory):
    """A baseline, the same with half the logits, and one whose runs differ more."""

    def rows(rng, labels):
        base = noisy_logits(rng, labels, R, C, margin=2.0)
        wilder = base + 1.5 * rng.normal(size=base.shape).astype(np.float32)
        return {"baseline": base, "softer": base / 2, "wilder": wilder}

    return written(tmp_path_factory.mktemp("runs") / "fake", rows)


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


def test_the_penalty_is_compared_at_equal_width_and_length(tmp_path, run_dir, capsys):
    def rows(rng, labels):
        made = {}
        for epochs, scale in ((3, 0.5), (30, 1.0)):
            base = noisy_logits(rng, labels, R, C, margin=2.0)
            made |= {f"plain_8_{epochs}": base, f"ad_8_{epochs}": base * scale}
        return made

    folder = written(tmp_path / "fake", rows)
    files = [tmp_path / name for name in ("length.csv", "length.svg")]
    assert length.main([str(folder), *map(str, files)]) == 0
    short, long = csv.DictReader(files[0].read_text().splitlines())
    assert [row["method"] for row in (short, long)] == ["ad_8_3", "ad_8_30"]
    assert (short["width"], short["epochs"]) == ("8", "3")
    assert float(short["delta_prediction_difference"]) < -0.01
    assert abs(float(short["delta_calibrated_prediction_difference"])) < 1e-3
    assert float(short["delta_nll"]) > 0 == float(short["delta_churn"])
    assert all(float(long[f"delta_{name}"]) == 0 for name in length.PANELS)
    assert files[1].read_text().count("width 8") == 1
    assert length.main([str(run_dir), *map(str, files)]) == 2
    assert "has no row `ad_...` with one `plain_...`" in capsys.readouterr().err


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
