"""A sweep's numbers, choice, figures and page, from predictions made by hand."""

import dataclasses

import numpy as np
import pytest

from churn_compare.store import Predictions, load_predictions, save_predictions
from churn_jax import reports
from churn_jax.configuration import replaced, to_json
from churn_jax.configuration.record import AxisRecord, PointRecord, SweepRecord
from churn_jax.methods import Codistillation
from churn_jax.reports.members import MEMBERS, Members, save_members
from churn_jax.reports.sweep import CRITERIA, choose, sweep_figures
from churn_jax.studies.grid import COLUMNS
from tests.reports.fake_study import (
    change_record,
    csv_rows,
    markdown_table,
    row_of,
    write_study,
)

FILES = {"test": "predictions.npz", "validation": "predictions-validation.npz"}
LABELS = np.arange(40) % 4
SEEDS = 4  # `[4, 40, 5]`, so that other files need the same programs
ALIKE = 4.0 * np.eye(5, dtype=np.float32)[np.zeros((SEEDS, 40), int)]  # one class


def logits_with(wrong_of_each_run):
    """`[4, 40, 5]`: each run is wrong on examples of its own."""
    classes = np.tile(LABELS, (SEEDS, 1))
    for run, wrong in enumerate(wrong_of_each_run):
        classes[run, wrong] = (classes[run, wrong] + 1) % 4
    return 4.0 * np.eye(5, dtype=np.float32)[classes]


def write_point(folder, name, validation, test=None, stopped=()):
    """Numbers of errors or logits of the splits; the same of both without `test`."""
    for split, found in (("validation", validation), ("test", test)):
        found = validation if found is None else found
        if isinstance(found, int):
            found = logits_with([slice(10 * r, 10 * r + found) for r in range(SEEDS)])
            found[list(stopped)] = np.nan
        meta = {"stopped": list(stopped)}
        predictions = Predictions(np.arange(40), LABELS, found, meta)
        save_predictions(folder / "methods" / name / FILES[split], predictions)


@pytest.fixture
def folder(tmp_path):
    """Errors of a run: 4 at 0; 3, 1 and 2 at 0.1, 1 and 10; on the test split 1, 9, 1.

    Runs are wrong on different examples, so churn is twice the errors over 40.
    """
    errors = {0.0: (4, 4), 0.1: (3, 1), 1.0: (1, 9), 10.0: (2, 1)}
    entries, points = {}, []
    for value, both in errors.items():
        name = f"skl.beta={value:g}"
        label = f"S <b>: beta = {value:g}" + " (baseline)" * (value == 0)
        method = to_json(Codistillation(beta=value))
        entries[name] = {"label": label, "method": method}
        points.append(PointRecord(name, "skl.beta", value))
        write_point(tmp_path, name, *both)
    sweep = SweepRecord(
        criterion="churn",
        baseline="skl.beta=0",
        axes=(AxisRecord("skl.beta", "skl", "S <b>", "beta"),),
        points=tuple(points),
    )
    facts = {"title": "<Sweep> & more", "baseline": "skl.beta=0"}
    facts["config"] = {"columns": COLUMNS, "train": {"replicas": SEEDS}}
    write_study(tmp_path, dict.fromkeys(entries), LABELS, entries=entries, **facts)
    rows = [row_of(i, name, **entry) for i, (name, entry) in enumerate(entries.items())]
    change_record(tmp_path, sweep=to_json(sweep), methods=rows)
    return tmp_path


def chosen(folder):
    return reports.collect(folder).sweep.choices["skl.beta"]


def rows_of(result):
    return {row.info.name: row for row in result.rows}


def test_the_choice_reads_the_validation_split_alone(folder):
    result = reports.collect(folder)
    name = "skl.beta=1"
    assert result.sweep.validation[name].churn.mean == pytest.approx(2 / 40)
    test = rows_of(result)[name].summary.churn.mean
    assert test == pytest.approx(18 / 40)  # the worst there
    assert result.sweep.choices["skl.beta"].value == 1.0
    assert result.best == "" and "Best:" not in markdown_table(result)


def test_neither_the_baseline_nor_what_trains_as_it_is_a_candidate(folder):
    write_point(folder, "skl.beta=0", 0)
    assert chosen(folder).value == 1.0

    # As beta 0 of every axis of a sweep of several; the best otherwise.
    points = reports.collect(folder).sweep.record.points
    points = [dataclasses.replace(p, is_baseline=p.value == 1) for p in points]
    change_record(folder, sweep={"points": to_json(points)})
    assert chosen(folder).value == 10.0


def test_what_stopped_or_learned_nothing_is_no_candidate(folder):
    write_point(folder, "skl.beta=1", 1, stopped=(2,))
    choice = chosen(folder)
    assert choice.value == 10.0 and "skl.beta=1" in choice.reason
    said = markdown_table(reports.collect(folder))
    assert "run 2 stopped; its numbers are over the other 3 of 4 runs" in said
    assert "On the validation split, over 3 to 4 seeds." in said
    # One class for everything: no churn at a quarter of the examples.
    write_point(folder, "skl.beta=10", ALIKE)
    write_point(folder, "skl.beta=1", 1)
    choice = chosen(folder)
    assert choice.value == 1.0
    assert choice.reason == "skl.beta=10, because they learned little"
    left_out = "Left out: skl.beta=10, because they learned little."
    assert left_out in markdown_table(reports.collect(folder))


def test_a_damaged_validation_file_is_said(folder):
    file = folder / "methods" / "skl.beta=1" / FILES["validation"]
    file.write_bytes(b"nothing")
    result = reports.collect(folder)
    ((said, damaged),) = result.unreadable.items()
    assert str(file) in said and damaged
    assert "skl.beta=1" in rows_of(result) and chosen(folder).value == 10.0
    text = markdown_table(result)
    assert "Without numbers on the validation split: skl.beta=1." in text


def test_points_within_one_standard_error_are_marked(folder):
    rng = np.random.default_rng(0)
    for name, errors in (("skl.beta=1", (2, 2, 3, 1)), ("skl.beta=10", (1, 3, 2, 2))):
        wrong = [rng.choice(40, count, replace=False) for count in errors]
        write_point(folder, name, logits_with(wrong))
    choice = chosen(folder)
    assert {choice.point, *choice.within} == {"skl.beta=1", "skl.beta=10"}


def test_two_seeds_tell_no_points_apart():
    def two(errors):
        logits = logits_with([slice(10 * r, 10 * r + errors) for r in range(SEEDS)])[:2]
        return reports.summarize(Predictions(np.arange(40), LABELS, logits))

    choice = choose([("a", 0.1, two(1)), ("b", 1.0, two(5))], None)
    assert (choice.point, choice.within) == ("a", ("b",))


def test_criteria_differ_where_accuracy_is_paid_for_churn(folder):
    # All runs wrong in the same way: no churn, and less accurate than the baseline.
    write_point(folder, "skl.beta=10", logits_with([slice(0, 9)] * SEEDS))
    result = reports.collect(folder)
    of = result.sweep.validation
    points = [(p.name, p.value, of[p.name]) for p in result.sweep.record.points[1:]]
    base = of["skl.beta=0"]
    found = {name: choose(points, base, name).value for name in CRITERIA}
    assert found == {
        "churn": 10.0,
        "accuracy": 1.0,
        "churn-at-accuracy": 1.0,
        "prediction-difference": 10.0,
        "prediction-difference-at-accuracy": 1.0,
    }
    # A value that is too costly is not one without numbers.
    costly = choose([*points[2:], ("lost", 100.0, None)], base, "churn-at-accuracy")
    assert costly.reason == (
        "no value meets the criterion; left out: lost, because they have no numbers"
    )
    with pytest.raises(ValueError, match="criterion must be one of"):
        choose([], None, "luck")


def test_a_click_study_pays_in_log_loss(folder, monkeypatch):
    one_each = [slice(10 * run, 10 * run + 1) for run in range(SEEDS)]
    write_point(folder, "skl.beta=1", 10.0 * logits_with(one_each))  # sure of its error

    columns = ["churn", "log_loss_change"]
    criterion = {"criterion": "churn-at-accuracy"}
    change_record(folder, config={"columns": columns}, sweep=criterion)
    assert chosen(folder).value == 1.0
    monkeypatch.setattr(reports.Report, "quality", "nll")
    assert chosen(folder).value == 10.0
    found = reports.collect(folder).sweep.validation
    base, one = (found[f"skl.beta={beta}"] for beta in (0, 1))
    assert base.nll.mean < one.nll.mean
    share = one.nll.mean / base.nll.mean - 1
    assert one.log_loss_change.mean == pytest.approx(share)


def test_a_sweep_shows_the_columns_of_its_study(folder):
    columns = ["nll", "accuracy", "prediction_difference"]
    criterion = {"criterion": "prediction-difference"}
    change_record(folder, config={"columns": columns}, sweep=criterion)
    result = reports.collect(folder)
    text = markdown_table(result)
    assert "| beta |  | NLL | Accuracy % | Δ₁ |" in text
    assert "of the candidates, 1 has the lowest validation Δ₁" in text
    assert "; validation Δ₁ -0.2058 ± 0.0000 against the baseline; valid" in text
    rows = csv_rows(result)
    found = result.sweep.validation["skl.beta=1"].prediction_difference.mean
    assert float(rows[2]["validation_prediction_difference"]) == found
    assert "validation_surrogate_churn" not in rows[0]
    # Paired by seed, like churn: what is close is told.
    choice = result.sweep.choices["skl.beta"]
    assert choice.point == "skl.beta=1" and choice.within == ()


def test_the_choice_stands_next_to_a_better_baseline(folder):
    write_point(folder, "skl.beta=0", 0)
    change_record(folder, sweep={"criterion": "accuracy"})
    assert (
        "of the candidates, 1 has the highest validation accuracy; validation accuracy "
        "-2.50 ± 0.00 points against the baseline; validation churn +5.00 ± 0.00 points"
    ) in markdown_table(reports.collect(folder))


def test_members_on_the_validation_split_are_those_of_that_split(folder):
    change_record(folder, config={"columns": ["accuracy", "member_kl"]})
    logits = np.random.default_rng(0).normal(size=(SEEDS, 2, 40, 5))
    path = folder / "methods" / "skl.beta=1" / MEMBERS["validation"]
    save_members(path, Members(np.arange(40), LABELS, logits))
    result = reports.collect(folder)
    assert result.sweep.validation["skl.beta=1"].member_kl.mean > 0
    assert np.isnan(rows_of(result)["skl.beta=1"].summary.member_kl.mean)
    path.write_bytes(path.read_bytes()[:100])
    ((said, damaged),) = reports.collect(folder).unreadable.items()
    assert str(path) in said and damaged


def test_nothing_to_choose_is_said(folder):
    for name in ("0.1", "1", "10"):
        (folder / "methods" / f"skl.beta={name}" / FILES["validation"]).unlink()
    result = reports.collect(folder)
    assert result.sweep.choices["skl.beta"].point is None
    said = markdown_table(result)
    assert "nothing is chosen" in said
    assert "Without numbers on the validation split: skl.beta=0.1, skl" in said
    reason = result.sweep.choices["skl.beta"].reason
    assert "no numbers" in reason and "stopped" not in reason


def test_every_file_is_written_and_the_page_needs_nothing_else(folder, undrawn):
    result = reports.write(folder)
    assert set(result.files) == {"report.html", "table.csv", "table.md"}
    page = result.files["report.html"].read_text()
    assert "&lt;Sweep&gt; &amp; more" in page
    assert "S <b>" not in page and "<script" not in page
    assert "the test numbers are shown and never used" in page
    assert "Left out" not in page

    lines = csv_rows(result.files["table.csv"].read_text())
    assert [line["value"] for line in lines] == ["0.0", "0.1", "1.0", "10.0"]
    assert lines[0]["label"] == "S <b>: beta = 0 (baseline)"
    (chosen,) = [line for line in lines if line["chosen"] == "1"]
    assert float(chosen["validation_churn"]) == pytest.approx(0.05)
    base = rows_of(result)["skl.beta=0"].summary.churn.mean
    assert float(chosen["delta_churn"]) == pytest.approx(18 / 40 - base)
    stored = load_predictions(folder / "methods" / chosen["method"] / FILES["test"])
    accuracy = np.mean(stored.logits.argmax(-1) == stored.labels)
    assert float(chosen["accuracy"]) == pytest.approx(accuracy)


@pytest.mark.slow
def test_figures_in_python_are_those_of_the_page(folder):
    assert "curves-skl.beta" in reports.figures(folder)


def test_a_point_that_broke_down_is_in_no_figure(folder, undrawn):
    write_point(folder, "skl.beta=10", ALIKE, 1)
    result = reports.collect(folder)
    for figure in sweep_figures(result):
        assert figure.caption.endswith("below 90 % of the best): skl.beta=10.")
    other = dataclasses.replace(result.sweep.record.axes[0], name="other")
    choices = {"other": result.sweep.choices["skl.beta"]}
    changes = [("sweep.record.axes", (other,)), ("sweep.choices", choices)]
    (figure,) = sweep_figures(replaced(result, changes))
    assert "Left out" not in figure.caption  # it is on another axis
