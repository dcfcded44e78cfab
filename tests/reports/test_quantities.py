"""A study chooses its columns; what it is about follows from them."""

import numpy as np
import pytest

from churn_compare.store import Predictions
from churn_jax import reports
from churn_jax.reports import summarize
from churn_jax.reports.estimates import compare_with_baseline
from churn_jax.reports.quantities import QUANTITIES, recorded_columns
from churn_jax.reports.study_figures import first_figure
from tests.reports.conftest import LABELS, three_methods, two_methods
from tests.reports.fake_study import (
    cells_of,
    csv_rows,
    markdown_table,
    noisy_logits,
    render,
    write_study,
)

COLUMNS = ["nll", "accuracy", "prediction_difference", "hamming_prediction_difference"]


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """The three methods, as a study of the second paper's Table 1."""
    folder = tmp_path_factory.mktemp("runs")
    methods = {**three_methods(), "ad_0_1": three_methods()["steady"]}
    facts = {"config": {"columns": COLUMNS}, "stopped": {"halting": [{"replica": 2}]}}
    key = "experiments/anti_distillation/published.csv:table1/mnist"
    return reports.collect(write_study(folder, methods, LABELS, published=key, **facts))


def test_every_quantity_is_an_attribute_of_a_summary(written):
    summary = written.rows[0].summary
    assert {*summary.estimates} <= {*QUANTITIES}
    assert all(isinstance(getattr(summary, q), reports.Estimate) for q in QUANTITIES)
    with pytest.raises(AttributeError, match="a MethodSummary has no 'charm'"):
        _ = summary.charm


def test_a_change_of_what_cannot_be_measured_is_absent(tmp_path):
    """Rank losses are of two classes; these know three."""
    config = {"columns": ["accuracy", "rank_loss_change"]}
    report = reports.collect(
        write_study(tmp_path, two_methods(), LABELS, config=config)
    )
    assert np.isnan(report.rows[1].summary.rank_loss_change.mean)
    assert any("column rank_loss failed" in remark for remark in report.remarks)


def test_all_forms_follow_the_columns(written, undrawn, monkeypatch):
    heads, _, _, steady, *_ = cells_of(markdown_table(written))
    assert heads[1:7] == ["Δ₁", "Δ of Δ₁", "p", "NLL", "Accuracy %", "Δᴴ"]
    assert heads[7:] == ["Training cost", "Inference cost"]
    assert steady[1] == "0.0000 ± 0.0000" and steady[6].startswith("0.0000")
    found = written.rows[1].changes["prediction_difference"]
    (low, high), change = found.interval, found.difference
    assert steady[2] == f"{change.difference:+.4f} ({low:+.4f} to {high:+.4f})"
    monkeypatch.undo()
    assert "Accuracy against Δ₁ of every method" in first_figure(written).draw().svg
    page = render(written)
    assert '<th scope="col">Δ of Δ₁</th>' in page
    assert "Churn %" in page  # among the facts of each method
    rows = csv_rows(written)
    assert float(rows[1]["delta_prediction_difference"]) == change.difference
    assert rows[1]["paper_prediction_difference"] == ""
    assert rows[3]["paper_prediction_difference"] == "0.0036"


def test_rows_are_judged_by_what_the_study_is_about(written):
    verdict = written.rows[1].verdict
    assert "Δ₁" in verdict and "churn" not in verdict and "accuracy" in verdict
    assert "set, ± standard error" in written.caption
    halting = written.rows[2].verdict  # one of its three runs stopped
    assert halting.startswith("Δ₁ is not tested, since the rows do not have the same")


def test_clicks_are_judged_by_their_log_loss_and_not_by_their_accuracy(tmp_path):
    """One class is predicted for nearly all of them, however bad the scores are."""
    rng = np.random.default_rng(0)
    labels = (np.arange(60) % 10 == 0).astype(int)

    def scores(spread, shift):
        own = spread * rng.normal(size=(5, 60)) + 0.02 * rng.normal(size=(5, 1))
        logits = np.zeros((5, 60, 2), np.float32)
        logits[..., 1] = own - 2.2 + shift
        return logits

    rows = {"baseline": scores(0.1, 0), "worse": scores(0.02, -1)}
    rows["fine"] = scores(0.05, 0.01)
    train = {"replicas": 5, "epochs": 1, "one_pass": {"window": 128}}
    train["optimizer"] = {"name": "adagrad"}
    config = {"columns": ["nll", "prediction_difference"], "train": train}
    config["model"] = {"name": "click"}
    report = reports.collect(write_study(tmp_path, rows, labels, config=config))
    assert all(row.summary.accuracy.std == 0 for row in report.rows)
    worse, fine = report.rows[1:]
    loss = worse.summary.nll.mean - report.rows[0].summary.nll.mean
    assert f"; raises log loss by {loss:.4f} (" in worse.verdict
    assert worse.tone == "mixed" and fine.tone == "good"
    assert report.best.startswith("Best: Fine. It reduces Δ₁ by ")
    assert "Worse has a lower Δ₁, but raises log loss." in report.best
    assert "accuracy" not in report.best + worse.verdict + fine.verdict
    lines = csv_rows(report)
    assert float(lines[1]["delta_nll"]) == pytest.approx(loss)
    assert "delta_nll_p_holm" in lines[1]
    assert first_figure(report).title == "Log loss against reproducibility"


def test_a_column_unknown_here_is_told_and_left_out(tmp_path):
    methods, columns = {"baseline": three_methods()["baseline"]}, ["accuracy", "charm"]
    folder = write_study(tmp_path, methods, LABELS, config={"columns": columns})
    report = reports.collect(folder)
    assert [quantity.name for quantity in report.columns] == ["accuracy"]
    assert report.remarks == ("The study names a column 'charm', unknown here.",)
    with pytest.raises(ValueError, match="no column 'charm' can be shown; known: acc"):
        recorded_columns(("accuracy", "charm"))


def test_delta_1_is_compared_run_by_run_as_one_number_of_all_runs():
    labels = np.random.default_rng(5).integers(0, 5, 60)
    runs = np.random.default_rng(6).normal(size=(4, 60, 5))

    def predictions(own):
        rng = np.random.default_rng(1)
        logits = noisy_logits(rng, labels, 4, 5, own=own, runs=runs)
        return Predictions(np.arange(60), labels, logits)

    base, calm = predictions(1.0), predictions(0.5)
    summaries = {"baseline": summarize(base), "calm": summarize(calm)}
    found = compare_with_baseline(summaries, "baseline")["calm"]
    found = found["prediction_difference"]
    a, b = summaries["calm"], summaries["baseline"]
    assert found.difference.difference == (
        a.prediction_difference.mean - b.prediction_difference.mean
    )
    left = a.set_values["prediction_difference"] - b.set_values["prediction_difference"]
    stderr = np.sqrt(3 / 4 * np.sum((left - left.mean()) ** 2))
    assert found.difference.stderr == pytest.approx(stderr)
    # Paired, the two are told apart better than each is known.
    assert stderr < b.prediction_difference.stderr
    assert found.verdict.startswith("reduces Δ₁ by 0.")
