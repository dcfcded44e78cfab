"""A study of clicks, from its settings to its report."""

import csv
import dataclasses
import json
import threading

import numpy as np
import pytest

from churn_compare.store import load_predictions
from churn_jax import metrics, reports
from churn_jax.cli import main
from churn_jax.configuration import replaced
from churn_jax.data import DataError
from churn_jax.methods import EnsembleDistillation
from churn_jax.studies import Axis, MethodSpec, preset, run_study, run_sweep
from churn_jax.studies.presets import tiny
from churn_jax.training import Interrupted
from tests.experiments.presets import study as study_of
from tests.studies.small import logits

ROWS = ("baseline", "covariance_1_s1")


@pytest.fixture(scope="module")
def study():
    """Three replicas; a third held out, 96 as are counted of the stream's 160."""
    options = [("train.replicas", 3), ("data.validation", 1 / 3)]
    options += [("model.features", (8,))]
    published = study_of("ad-table3").published
    return replaced(preset("clicks:tiny"), [*options, ("published", published)])


@pytest.fixture(scope="module")
def folder(study, tmp_path_factory):
    """Stopped before the second row, then finished."""
    out, stop, starts = tmp_path_factory.mktemp("clicks"), threading.Event(), []

    def on_start(spec, finished):
        starts.append((spec.name, finished))
        if spec.name == ROWS[1] and len(starts) == 2:
            stop.set()

    options = {"only": ROWS, "loggers": (), "on_start": on_start}
    with pytest.raises(Interrupted):
        run_study(study, out, stop=stop, **options)
    run_study(study, out, **options)
    run_study(study, out, **options)
    first, second = ROWS
    stopped, rest = [(first, False), (second, False)], [(first, True), (second, False)]
    assert starts == [*stopped, *rest, (first, True), (second, True)]
    return out


def test_a_tiny_form_has_the_seed_numbers_of_its_replicas(study):
    chosen = replaced(study, [("train.seed_numbers", (5, 6, 7))])
    assert tiny(chosen).train.seed_numbers == (5, 6)


@pytest.fixture(scope="module")
def report(folder):
    return reports.collect(folder)


def test_scores_are_predictions_of_the_stream_and_of_what_is_held_out(folder):
    record = json.loads((folder / "study.json").read_text())
    assert record["kind"] == "study" and record["data"]["train"] == 160
    assert [row["name"] for row in record["methods"]] == list(ROWS)
    row = folder / "methods" / "baseline"
    found = load_predictions(row / "predictions.npz")
    assert found.shape == (3, 96, 2)  # without the first window
    assert load_predictions(row / "predictions-validation.npz").shape == (3, 96, 2)
    np.testing.assert_array_equal(found.logits[..., 0], 0.0)
    scores = np.load(row / "scores.npy")
    np.testing.assert_array_equal(found.logits[..., 1], scores[:, 64:])


def test_the_report_has_the_numbers_of_the_metrics(folder, report):
    base, other = (
        load_predictions(folder / "methods" / name / "predictions.npz")
        for name in ("baseline", ROWS[1])
    )
    summary = report.rows[1].summary
    relative = [metrics.positive_prediction_difference(p.logits) for p in (base, other)]
    found = summary.positive_prediction_difference.mean
    np.testing.assert_allclose(found, relative[1], rtol=1e-6)
    found = summary.positive_prediction_difference_change.mean
    np.testing.assert_allclose(found, relative[1] / relative[0] - 1, rtol=1e-4)
    ratios = [
        float(metrics.log_loss(a, base.labels) / metrics.log_loss(b, base.labels)) - 1
        for a, b in zip(other.logits, base.logits, strict=True)
    ]
    np.testing.assert_allclose(summary.log_loss_change.mean, np.mean(ratios), rtol=1e-4)
    error = np.std(ratios, ddof=1) / np.sqrt(3)
    np.testing.assert_allclose(summary.log_loss_change.stderr, error, atol=1e-7)
    auc = [metrics.roc_auc(run, other.labels) for run in other.logits]
    np.testing.assert_allclose(summary.rank_loss.mean, 1 - np.mean(auc), rtol=1e-6)
    ratio = [metrics.calibration_ratio(run, other.labels) for run in other.logits]
    np.testing.assert_allclose(summary.calibration.mean, np.mean(ratio), rtol=1e-6)
    # A number of all runs is compared where both sides have the same runs.
    assert np.isfinite(summary.positive_prediction_difference_change.stderr)
    assert report.rows[0].summary.log_loss_change.mean == 0.0


def test_the_command_writes_two_tables_and_the_papers_numbers(folder, capsys, undrawn):
    assert main(["report", str(folder)]) == 0
    assert "Examples held out of the stream" in capsys.readouterr().out
    files = {"held_out.csv", "report.html", "table.csv", "table.md"}
    assert files < {path.name for path in folder.iterdir()}
    page = (folder / "report.html").read_text()
    assert "Examples held out of the stream" in page
    assert "one pass in windows of 64" in page and "Along the stream" in page
    assert "data are private: only the direction" in page
    tables = {}
    for name in ("held_out.csv", "table.csv"):
        with (folder / name).open() as file:
            tables[name] = {line["method"]: line for line in csv.DictReader(file)}
        assert list(tables[name]) == list(ROWS)
        assert [line["examples"] for line in tables[name].values()] == ["96", "96"]
    losses = [table["baseline"]["nll"] for table in tables.values()]
    assert losses[0] != losses[1]


@pytest.mark.parametrize(("share", "windows"), [(0.1, 1), (0.6, 2)])
def test_a_warm_start_is_a_share_of_what_is_learned(study, share, windows):
    """Or the study's own number of examples, if that is more."""
    warm = replaced(study, [("train.one_pass.warm_share", share)])
    assert warm.train.one_pass.warm_windows(160) == windows


def test_without_held_out_examples_there_is_one_table(study, tmp_path):
    changes = [("data.validation", 0.0), ("data.train_size", 160)]
    for _ in range(2):
        options = {"only": ("baseline",), "loggers": ()}
        run_study(replaced(study, changes), tmp_path, **options)
    report = reports.collect(tmp_path)
    assert report.held_out is None and report.rows[0].summary.examples == 96


def test_rows_that_one_pass_cannot_train_are_named(study, tmp_path):
    row = MethodSpec("kd", "KD", EnsembleDistillation(), teacher="baseline")
    taught = dataclasses.replace(study, methods=(*study.methods, row))
    with pytest.raises(ValueError, match="a row of a study of clicks has no taught"):
        run_study(taught, tmp_path)
    train = dataclasses.replace(study.train, one_pass=None)
    for change in ({"train": train}, {"model": preset("digits").model}):
        with pytest.raises(ValueError, match="a click model learns in one pass, and"):
            dataclasses.replace(study, **change)
    with pytest.raises(DataError, match=r"there is no file .*adult\.npz"):
        run_study(study_of("ad-table3-adult"), tmp_path / "adult")
    with pytest.raises(ValueError, match="`churn-jax study` without --dry-run"):
        study.methods[0].groups(study.model, 2)


@pytest.mark.slow
def test_a_grid_of_clicks_is_a_sweep(study, folder, tmp_path):
    axis, name = Axis(ROWS[1], "strength", (0.5, 1.0)), f"{ROWS[1]}.strength=1"
    options = {"criterion": "prediction-difference", "loggers": ()}
    found = run_sweep(study, [axis], tmp_path, seeds=3, **options)
    assert found.sweep.choices[axis.path].value in axis.values
    assert [len(rows) for rows in found.sweep.record.programs.values()] == [2]
    # Other programs sum in other orders.
    alone, swept = logits(folder, ROWS[1]), logits(tmp_path, name)
    np.testing.assert_allclose(swept, alone, atol=1e-4)
