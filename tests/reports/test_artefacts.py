"""Reading what a study left behind, finished or not."""

import numpy as np

from churn_jax.reports.artefacts import ReportError, read_history, read_study
from tests.refusals import refusals
from tests.reports.fake_study import change_record, row_of, write_study


def test_the_contract_is_read(report):
    folder = report.study.folder
    study = read_study(folder)
    assert (study.config.name, study.config.baseline) == ("fake", "baseline")
    assert [m.name for m in study.methods] == ["baseline", "steady", "halting"]
    halting = study.methods[2]
    assert halting.stopped_replicas == (2,)
    assert (halting.method.beta, halting.method.alpha) == (0.2, 0.0)
    assert study.method_folder("steady") == folder / "methods" / "steady"


def test_methods_that_are_planned_but_not_finished_are_listed_in_order(tmp_path):
    write_study(tmp_path, dict.fromkeys("abc"), [])
    rows = [row_of(1, "x"), row_of(1, "b", label="Bee")]
    change_record(tmp_path, methods=rows)
    study = read_study(tmp_path)
    assert [m.label for m in study.methods] == ["A", "Bee", "C", "X"]
    assert [m.members for m in study.methods] == [None, 2, None, 2]
    change_record(tmp_path, methods=[])
    assert [m.name for m in read_study(tmp_path).methods] == ["a", "b", "c"]


def test_averaged_weights_come_after_the_rows_of_the_plan(tmp_path):
    write_study(tmp_path, dict.fromkeys("ab"), [])
    averaged = row_of(0, "a") | {"name": "a_ema", "weights": "ema", "of": "a"}
    change_record(tmp_path, methods=[averaged, row_of(0, "a")])
    study = read_study(tmp_path)
    assert [m.name for m in study.methods] == ["a", "b", "a_ema"]
    # The record itself keeps what was trained together together.
    kept = study.record.with_rows(study.methods[1]).methods
    assert [m.name for m in kept] == ["a", "a_ema", "b"]


def read_text(tmp_path, text):
    if text is not None:
        (tmp_path / "study.json").write_text(text)
    read_study(tmp_path / "study.json" if text == "a file" else tmp_path)


test_a_folder_without_a_usable_study_is_refused = refusals(
    (None, "does not exist; is .* the folder of a study"),
    ("a file", "does not exist; is .* the folder of a study"),
    ("{", "cannot be read as JSON"),
    ("[" * 100_000, "cannot be read as JSON"),
    ("[]", "is not a record of a study"),
    ('{"kind": "study", "methods": []}', "another version .* lacks 'config'"),
    call=read_text,
    error=ReportError,
    fixtures=["tmp_path"],
)


def read_changed(tmp_path, changes):
    write_study(tmp_path, {}, [])
    change_record(tmp_path, **changes)
    read_study(tmp_path)


test_a_damaged_record_is_told_with_what_is_wrong = refusals(
    ({"methods": []}, "lists no methods"),
    ({"methods": [row_of(0, "../x")]}, "cannot be the name of a row's folder"),
    ({"methods": [row_of(0, "a"), row_of(0, "a")]}, "a row is there twice: a, a"),
    ({"config": {"train": {"epochs": 0}}}, "epochs must be at least 1; got 0"),
    call=read_changed,
    error=ReportError,
    fixtures=["tmp_path"],
)


def test_curves_of_runs_and_of_all_runs_together(tmp_path):
    path = tmp_path / "metrics.jsonl"
    empty = read_history(path)
    assert empty.steps.shape == (0,) and empty.series == {}
    path.write_text(
        '{"epoch": 1, "step": 10, "train": {"loss": [9.0, 9.0]}}\n'
        '{"epoch": 1, "step": 10, "train": {"loss": [1.0, null]}}\n'  # resumed
        '{"epoch": 2, "step": 20, "train": {"loss": [0.5, 0.7]}, '
        '"validation": {"churn": 0.07, "accuracy": [0.9, null]}}\n'
        "\n[]\n"
        '{"step": 3, "train": {"lo'  # cut short
    )
    history = read_history(path)
    np.testing.assert_array_equal(history.steps, [10, 20])
    np.testing.assert_array_equal(history.epochs, [1, 2])
    nan = np.nan
    for name, expected in {
        "train/loss": [[1.0, nan], [0.5, 0.7]],
        "validation/churn": [[nan], [0.07]],
        "validation/accuracy": [[nan, nan], [0.9, nan]],
    }.items():
        np.testing.assert_array_equal(history.series[name], expected)
