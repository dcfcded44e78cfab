"""A sweep's numbers, choice, figures and page, from predictions made by hand."""

import csv
import dataclasses
import io
import json

import numpy as np
import pytest

from churn_jax import reports
from churn_jax.configuration.record import (
    AxisRecord,
    PointRecord,
    ProgramRecord,
    SweepRecord,
    write_record,
)
from churn_jax.configuration.rows import MethodSpec
from churn_jax.documents import csv_text, markdown
from churn_jax.methods import Codistillation
from churn_jax.predictions import Predictions, load_predictions, save_predictions
from churn_jax.reports import ReportError
from churn_jax.reports.selection import CRITERIA, choose
from churn_jax.reports.sweep_figures import sweep_figures
from churn_jax.reports.sweep_report import sweep_document
from churn_jax.studies import preset

LABELS = np.arange(40) % 4
SEEDS = 4


def logits_with(errors):
    """`[4, 40, 4]`: run r gets its own `errors` examples wrong, and no others."""
    classes = np.tile(LABELS, (SEEDS, 1))
    for run in range(SEEDS):
        wrong = slice(10 * run, 10 * run + errors)
        classes[run, wrong] = (classes[run, wrong] + 1) % 4
    return 4.0 * np.eye(4, dtype=np.float32)[classes]


def write_point(folder, name, validation_errors, test_errors, stopped=()):
    for split, errors in (("validation", validation_errors), ("test", test_errors)):
        logits = logits_with(errors)
        logits[list(stopped)] = np.nan
        predictions = Predictions(
            np.arange(40), LABELS, logits, {"stopped": list(stopped)}
        )
        save_predictions(folder / "points" / name / f"{split}.npz", predictions)


def write_folder(folder, criterion="churn", title="<Sweep> & more"):
    """Errors of a run: 4 at 0; 3, 1 and 2 at 0.1, 1 and 10; on the test split 1, 9, 1.

    Runs are wrong on different examples, so churn is twice the errors over 40.
    """
    errors = {0.0: (4, 4), 0.1: (3, 1), 1.0: (1, 9), 10.0: (2, 1)}
    points = []
    for value, (validation, test) in errors.items():
        name = f"skl.beta={value:g}"
        write_point(folder, name, validation, test)
        spec = MethodSpec("skl", "S", Codistillation(beta=value))
        points.append(PointRecord(name, "skl.beta", value, spec))
    names = tuple(point.name for point in points)
    record = SweepRecord(
        config=dataclasses.replace(preset("digits"), title=title),
        seeds=SEEDS,
        criterion=criterion,
        baseline="skl.beta=0",
        axes=(AxisRecord("skl.beta", "skl", "S <b>", "beta"),),
        points=tuple(points),
        programs=(ProgramRecord("skl.beta", names),),
    )
    write_record(folder / "sweep.json", record)
    return folder


@pytest.fixture
def folder(tmp_path):
    return write_folder(tmp_path)


def test_the_choice_reads_the_validation_split_alone(folder):
    result = reports.collect_sweep(folder)
    points = {p.value: p for p in result.axes[0].points}
    assert points[1.0].validation.churn.mean == pytest.approx(2 / 40)
    assert points[1.0].test.churn.mean == pytest.approx(18 / 40)  # the worst there
    assert result.choice("skl.beta").value == 1.0


def test_the_baseline_is_no_candidate(folder):
    write_point(folder, "skl.beta=0", 0, 0)
    assert reports.collect_sweep(folder).choice("skl.beta").value == 1.0


def test_nor_is_another_point_that_trains_as_the_baseline(folder):
    """As beta 0 of every axis of a sweep of several; only one is the baseline."""
    path = folder / "sweep.json"
    record = json.loads(path.read_text())
    record["points"][2]["is_baseline"] = True  # the value 1, the best otherwise
    path.write_text(json.dumps(record))
    assert reports.collect_sweep(folder).axes[0].choice.value == 10.0


def test_a_value_at_which_a_run_stopped_is_no_candidate(folder):
    write_point(folder, "skl.beta=1", 1, 1, stopped=(2,))
    choice = reports.collect_sweep(folder).choice("skl.beta")
    assert choice.value == 10.0
    assert "skl.beta=1" in choice.reason
    text = (reports.write_sweep(folder).folder / "table.md").read_text()
    assert "runs stopped because something was not finite" in text


def noisy(folder, name, errors, seed):
    """Overwrites a point: every run wrong on its own random examples."""
    rng = np.random.default_rng(seed)
    classes = np.tile(LABELS, (SEEDS, 1))
    for run, count in enumerate(errors):
        wrong = rng.choice(40, count, replace=False)
        classes[run, wrong] = (classes[run, wrong] + 1) % 4
    logits = 4.0 * np.eye(4, dtype=np.float32)[classes]
    for split in ("validation", "test"):
        predictions = Predictions(np.arange(40), LABELS, logits, {})
        save_predictions(folder / "points" / name / f"{split}.npz", predictions)


def test_points_within_one_standard_error_are_marked(folder):
    noisy(folder, "skl.beta=1", (2, 2, 3, 1), 0)
    noisy(folder, "skl.beta=10", (1, 3, 2, 2), 1)
    choice = reports.collect_sweep(folder).choice("skl.beta")
    close = {"skl.beta=1", "skl.beta=10"}
    assert {choice.point, *choice.within} == close


def test_criteria_differ_where_accuracy_is_paid_for_churn(folder):
    # All runs wrong in the same way: no churn, and less accurate than the baseline.
    same = np.repeat(logits_with(9)[:1], SEEDS, axis=0)
    path = folder / "points" / "skl.beta=10" / "validation.npz"
    save_predictions(path, Predictions(np.arange(40), LABELS, same, {}))
    record = json.loads((folder / "sweep.json").read_text())
    found = {}
    for criterion in CRITERIA:
        record["criterion"] = criterion
        (folder / "sweep.json").write_text(json.dumps(record))
        found[criterion] = reports.collect_sweep(folder).choice("skl.beta").value
    assert found == {
        "churn": 10.0,
        "accuracy": 1.0,
        "churn-at-accuracy": 1.0,
        "prediction-difference": 10.0,
        "prediction-difference-at-accuracy": 1.0,
    }


def test_a_sweep_shows_the_columns_of_its_study(folder):
    record = json.loads((folder / "sweep.json").read_text())
    columns = ["nll", "accuracy", "prediction_difference"]
    record["config"]["columns"] = columns
    record["criterion"] = "prediction-difference"
    (folder / "sweep.json").write_text(json.dumps(record))
    result = reports.collect_sweep(folder)
    document = sweep_document(result)
    text = markdown(document)
    assert "| beta |  | Accuracy % | Δ₁ | NLL |" in text
    assert "1 has the lowest validation Δ₁" in text
    assert "of all runs as one set, ± standard error" in text
    rows = list(csv.DictReader(io.StringIO(csv_text(document.data))))
    point = next(p for p in result.points if p.name == "skl.beta=1")
    assert float(rows[4]["prediction_difference"]) == (
        point.validation.prediction_difference.mean
    )
    assert "surrogate_churn" not in rows[0]
    # Paired by seed, like churn: what is close is told.
    chosen = result.choice("skl.beta")
    assert chosen.point == "skl.beta=1" and chosen.within == ()


def test_networks_that_learned_nothing_are_no_candidates(folder):
    # One class for everything: no churn at a quarter of the examples.
    one = 4.0 * np.eye(4, dtype=np.float32)[np.zeros((SEEDS, 40), int)]
    path = folder / "points" / "skl.beta=10" / "validation.npz"
    save_predictions(path, Predictions(np.arange(40), LABELS, one, {}))
    choice = reports.collect_sweep(folder).choice("skl.beta")
    assert choice.value == 1.0
    assert choice.reason == "no candidates, because they learned little: skl.beta=10"


def test_figures_are_not_scaled_to_points_that_broke_down(folder):
    # One class for everything, next to points with 90 % accuracy and more.
    one = 4.0 * np.eye(4, dtype=np.float32)[np.zeros((SEEDS, 40), int)]
    path = folder / "points" / "skl.beta=10" / "validation.npz"
    whole = sweep_figures(reports.collect_sweep(folder))
    assert not any("Out of the frame" in figure.caption for figure in whole)
    save_predictions(path, Predictions(np.arange(40), LABELS, one, {}))
    for figure in sweep_figures(reports.collect_sweep(folder)):
        assert figure.caption.endswith("(the table has them): skl.beta=10.")


def test_an_unknown_criterion_is_refused():
    with pytest.raises(ValueError, match="criterion must be one of"):
        choose("a", [], None, "luck")


def test_nothing_to_choose_is_said(folder):
    for name in ("0.1", "1", "10"):
        (folder / "points" / f"skl.beta={name}" / "validation.npz").unlink()
    result = reports.write_sweep(folder)
    assert result.choice("skl.beta").point is None
    assert "nothing is chosen" in result.files["table.md"].read_text()
    assert "has no predictions yet" in result.files["report.html"].read_text()
    reason = result.choice("skl.beta").reason
    assert "no numbers" in reason and "stopped" not in reason


def test_every_file_is_written_and_the_page_needs_nothing_else(folder):
    result = reports.write_sweep(folder)
    assert sorted(result.files) == [
        "curves-skl.beta.png",
        "report.html",
        "table.csv",
        "table.md",
        "trade-off-test.png",
        "trade-off-validation.png",
    ]
    page = result.files["report.html"].read_text()
    assert "&lt;Sweep&gt; &amp; more" in page
    assert "<b>" not in page
    assert page.count("<svg") == 3
    assert "<script" not in page and "<img" not in page
    assert "the test numbers are shown and never used" in page
    png = result.files["curves-skl.beta.png"].read_bytes()
    assert png.startswith(b"\x89PNG")
    # The same numbers give the same bytes.
    again = {f"{f.name}.png": f for f in sweep_figures(reports.collect_sweep(folder))}
    assert again["curves-skl.beta.png"].png == png


def test_the_csv_has_both_splits_at_full_precision(folder):
    text = reports.write_sweep(folder).files["table.csv"].read_text()
    lines = list(csv.DictReader(io.StringIO(text)))
    assert len(lines) == 8
    chosen = [x for x in lines if x["chosen"] == "1"]
    assert [x["split"] for x in chosen] == ["validation", "test"]
    assert float(chosen[0]["churn"]) == pytest.approx(0.05)
    assert float(chosen[0]["delta_churn"]) == pytest.approx(-0.15)
    stored = load_predictions(folder / "points" / chosen[0]["point"] / "test.npz")
    accuracy = np.mean(stored.logits.argmax(-1) == stored.labels)
    assert float(chosen[1]["accuracy"]) == pytest.approx(accuracy)


@pytest.mark.parametrize("text", ["{", "[]", '{"name": "a"}'])
def test_a_folder_that_is_no_sweep_is_refused(text, tmp_path):
    (tmp_path / "sweep.json").write_text(text)
    with pytest.raises(ReportError, match=r"sweep\.json"):
        reports.collect_sweep(tmp_path)
