"""Reading what a study left behind, finished or not."""

import json

import numpy as np
import pytest

from churn_jax.reports.artefacts import ReportError, read_history, read_study


def _study(tmp_path, **facts):
    (tmp_path / "study.json").write_text(json.dumps(facts))
    return tmp_path


def test_the_contract_is_read(run_dir):
    study = read_study(run_dir)
    assert (study.name, study.baseline) == ("fake", "baseline")
    assert [m.name for m in study.methods] == ["baseline", "steady", "halting"]
    halting = study.methods[2]
    assert halting.stopped_replicas == (2,)
    assert halting.coefficients == {"beta": 0.2}
    assert study.method_folder("steady") == run_dir / "methods" / "steady"


def test_only_the_names_are_needed(tmp_path):
    study = read_study(_study(tmp_path, methods=[{"name": "a"}]))
    (method,) = study.methods
    assert (study.title, study.baseline) == (tmp_path.name, "baseline")
    assert method.label == "a"
    assert method.training_cost is None and method.stopped == ()


def test_methods_that_are_planned_but_not_finished_are_listed_in_order(tmp_path):
    plan = [{"name": n, "label": n.upper(), "coefficients": 3} for n in "abc"]
    done = [{"name": "x"}, {"name": "b", "label": "Bee", "members": 2}]
    study = read_study(_study(tmp_path, methods=done, config={"methods": plan}))
    assert [m.label for m in study.methods] == ["A", "Bee", "C", "x"]
    assert [m.members for m in study.methods] == [None, 2, None, None]
    nothing_done = read_study(_study(tmp_path, methods=[], config={"methods": plan}))
    assert [m.name for m in nothing_done.methods] == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "does not exist; is .* the folder of a study"),
        ("{", "cannot be read as JSON"),
        ("[" * 100_000, "cannot be read as JSON"),
        ("[]", "lists no methods"),
        ('{"methods": []}', "lists no methods"),
        ('{"methods": [{"label": "x"}]}', "without a usable name"),
        ('{"methods": ["erm"]}', "without a usable name"),
        ('{"methods": [{"name": "../x"}]}', "without a usable name"),
        ('{"methods": [{"name": "a"}, {"name": "a"}]}', "lists a method twice: a, a"),
        ('{"methods": [{"name": "a", "stopped": [3]}]}', "stopped replicas of a must"),
        ('{"methods": 7}', "study.json is damaged"),
        ('{"methods": [{"name": "a", "coefficients": "x"}]}', "study.json is damaged"),
        ('{"config": {"methods": [{"name": []}]}}', "study.json is damaged"),
    ],
)
def test_a_folder_without_a_usable_study_is_refused(tmp_path, text, message):
    if text is not None:
        (tmp_path / "study.json").write_text(text)
    with pytest.raises(ReportError, match=message):
        read_study(tmp_path)


def test_curves_of_runs_and_of_all_runs_together(tmp_path):
    path = tmp_path / "metrics.jsonl"
    rows = [
        {"epoch": 1, "step": 10, "train": {"loss": [1.0, None]}},
        {
            "epoch": 2,
            "step": 20,
            "train": {"loss": [0.5, 0.7]},
            "validation": {"churn": 0.07, "accuracy": [0.9, None]},
        },
    ]
    path.write_text("\n".join(map(json.dumps, rows)))
    history = read_history(path)
    np.testing.assert_array_equal(history.steps, [10, 20])
    np.testing.assert_array_equal(history.epochs, [1, 2])
    np.testing.assert_array_equal(
        history.series["train/loss"], [[1.0, np.nan], [0.5, 0.7]]
    )
    np.testing.assert_array_equal(
        history.series["validation/churn"], [[np.nan], [0.07]]
    )
    np.testing.assert_array_equal(
        history.series["validation/accuracy"], [[np.nan] * 2, [0.9, np.nan]]
    )


def test_a_cut_line_is_passed_over_and_a_resumed_step_counts_once(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text(
        '{"step": 1, "train": {"loss": [3.0]}}\n'
        '{"step": 2, "train": {"loss": [9.0]}}\n'
        '{"step": 2, "train": {"loss": [2.0]}}\n'
        "\n[]\n"
        '{"step": 3, "train": {"lo'
    )
    history = read_history(path)
    np.testing.assert_array_equal(history.steps, [1, 2])
    np.testing.assert_array_equal(history.series["train/loss"], [[3.0], [2.0]])


def test_no_file_is_no_curve(tmp_path):
    history = read_history(tmp_path / "metrics.jsonl")
    assert history.steps.shape == (0,) and history.series == {}
