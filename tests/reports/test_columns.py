"""Columns that a study chooses, what it is about, and columns of a user's own."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest

from churn_compare.store import Predictions, StoredLogits
from churn_jax import reports
from churn_jax.methods import UNKNOWN_LOGIT
from churn_jax.reports import column, summarize
from churn_jax.reports import summary as module
from churn_jax.reports.estimates import compare_with_baseline, with_changes
from churn_jax.reports.quantities import QUANTITIES, recorded_columns
from churn_jax.reports.study_figures import first_figure
from churn_jax.reports.summary import with_columns
from tests.reports.conftest import LABELS, three_methods, two_methods
from tests.reports.fake_study import (
    cells_of,
    change_record,
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
    config = {"columns": ["accuracy", "rank_loss_change", "log_loss_change"]}
    folder = write_study(tmp_path, two_methods(), LABELS, config=config)
    report = reports.collect(folder)
    assert np.isnan(report.rows[1].summary.rank_loss_change.mean)
    assert "change %, Log loss change %: ± standard error over runs" in report.caption
    assert any("column rank_loss failed" in remark for remark in report.remarks)


def test_a_change_of_a_number_of_all_runs_needs_the_same_runs():
    """A spread around the mean of R runs grows with R."""
    labels, name = np.arange(40) % 2, "positive_prediction_difference"
    logits = noisy_logits(np.random.default_rng(0), labels, 4, 2)
    p = Predictions(np.arange(40), labels, logits)
    every, fewer = (
        with_columns(summarize(p, stopped=stopped), p, [name])[0]
        for stopped in ((), (1,))
    )
    rows = {"baseline": every, "fewer": fewer, "again": dataclasses.replace(every)}
    found = with_changes(rows, "baseline", [f"{name}_change"])
    changes = {row: getattr(one, f"{name}_change") for row, one in found.items()}
    assert np.isnan(changes["fewer"].mean)
    assert (changes["again"].mean, changes["again"].stderr) == (0.0, 0.0)


def test_all_forms_follow_the_columns(written, undrawn, monkeypatch):
    heads, _, _, steady, *_ = cells_of(markdown_table(written))
    assert heads[1:7] == ["Δ₁", "Δ of Δ₁", "p", "NLL", "Accuracy %", "Δᴴ"]
    assert heads[7:] == ["Training cost", "Inference cost"]
    assert steady[1] == "0.0000 ± 0.0000" and steady[6].startswith("0.0000")
    found = written.rows[1].changes["prediction_difference"]
    (low, high), change = found.interval, found.difference
    assert steady[2] == f"{change.difference:+.4f} ({low:+.4f} to {high:+.4f})"
    assert '<th scope="col">Δ of Δ₁</th>' in render(written)
    monkeypatch.undo()
    assert "Accuracy against Δ₁ of every method" in first_figure(written).draw().svg
    rows = csv_rows(written)
    assert float(rows[1]["delta_prediction_difference"]) == change.difference
    assert rows[1]["paper_prediction_difference"] == ""
    assert rows[3]["paper_prediction_difference"] == "0.0036"


def test_rows_are_judged_by_what_the_study_is_about(written):
    verdict = written.rows[1].verdict
    assert "Δ₁" in verdict and "churn" not in verdict and "accuracy" in verdict
    assert "Δ₁, Δᴴ: ± standard error over runs. Δ of Δ₁: " in written.caption
    assert "Student's t and a jackknife over runs" in written.caption
    halting = written.rows[2].verdict  # one of its three runs stopped
    assert halting.startswith("Δ₁ is not tested, since the rows do not have the same")


CLICKS = {"train": {"epochs": 1, "one_pass": {"window": 128}}}
CLICKS["train"]["optimizer"], CLICKS["model"] = {"name": "adagrad"}, {"name": "click"}


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
    config = CLICKS | {"columns": ["nll", "prediction_difference"]}
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


def test_a_log_loss_of_other_examples_or_an_infinite_one_is_not_tested(tmp_path):
    labels, rng = np.arange(60) % 3, np.random.default_rng(0)
    names = ("baseline", "endless", "part", "fine")
    rows = {name: noisy_logits(rng, labels, 5, 3, own=0.9) for name in names}
    rows["endless"][0, 3, labels[3]] = -np.inf
    rows["part"][..., 2] = UNKNOWN_LOGIT
    config = CLICKS | {"columns": ["churn", "nll", "log_loss_change"]}
    facts = {"config": config, "baseline": "baseline"}
    of = reports.collect(write_study(tmp_path, rows, labels, **facts))
    _, endless, part, fine = of.rows
    assert endless.verdict.endswith("; log loss is infinite.")
    unknown = "log loss is not tested, since the rows do not know the same classes."
    assert part.verdict.endswith(unknown)
    gains = [row.quality_gain for row in (endless, part)]
    assert gains == [-1, None] and fine.quality_gain is not None
    changes = [row.summary.log_loss_change.mean for row in of.rows[1:]]
    assert [*np.isfinite(changes)] == [False, False, True]
    assert of.remarks == (
        "Endless: NLL is infinite, since a label has logit -inf in run 0.",
        "Part: NLL, also calibrated, is of the 40 of 60 examples whose class it knows.",
    )
    cells = cells_of(markdown_table(of))
    place = cells[0].index("NLL")
    assert cells[3][place] == "∞" and "±" in cells[4][place]
    change_record(tmp_path, config={"baseline": "endless"})
    base, _, part, fine = reports.collect(tmp_path).rows
    assert part.verdict.endswith(unknown)
    for row in (base, fine):
        assert row.verdict.endswith("since that of the baseline is infinite.")
    for row in (base, part, fine):
        assert np.isnan(row.summary.log_loss_change.mean)


def test_the_conclusion_and_the_caption_say_why_nothing_was_tested(tmp_path):
    rng = np.random.default_rng(0)
    logits = {k: noisy_logits(rng, LABELS, 6, 2) for k in ("baseline", "a", "b")}
    facts = {"config": {"columns": ["prediction_difference"]}}
    facts["stopped"] = {"baseline": [{"replica": 2}]}
    report = reports.collect(write_study(tmp_path, logits, LABELS, **facts))
    why = "Δ₁ is not tested, since the rows do not have the same runs."
    assert report.best == f"Best: not decided; {why}"
    assert "Δ of Δ₁: difference, where the rows have the same runs," in report.caption


def test_a_column_unknown_here_is_told_and_left_out(tmp_path):
    columns = ["parameters", "charm"]
    methods = {"baseline": three_methods()["baseline"]}
    folder = write_study(tmp_path, methods, LABELS, config={"columns": columns})
    report = reports.collect(folder)
    assert [quantity.name for quantity in report.columns] == ["parameters"]
    (line,) = csv_rows(report)
    assert "member_kl" in line and "calibrated_nll" not in line  # none was fitted
    assert report.remarks == ("The study names an unknown column 'charm'.",)
    with pytest.raises(ValueError, match="no column 'charm' can be shown; known: acc"):
        recorded_columns(("accuracy", "charm"))
    with pytest.raises(ValueError, match=r"no_mod:x: no_mod cannot be imported \("):
        recorded_columns(("accuracy", "no_mod:x"))


def test_two_functions_of_ones_own_are_two_columns(own_columns):
    made = [column("", runs=True)(function) for function in (margins, raises)]
    names = recorded_columns(tuple(one.name for one in made))
    assert [QUANTITIES[name] for name in names] == made
    assert [one.heading for one in made] == ["Margins", "Raises"]
    assert recorded_columns(names) == names


def test_delta_1_is_compared_run_by_run_as_one_number_of_all_runs():
    labels = np.random.default_rng(5).integers(0, 5, 40)
    runs = np.random.default_rng(6).normal(size=(4, 40, 5))

    def predictions(own):
        rng = np.random.default_rng(1)
        logits = noisy_logits(rng, labels, 4, 5, own=own, runs=runs)
        return Predictions(np.arange(40), labels, logits)

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


pytestmark = pytest.mark.usefixtures("own_columns")


@pytest.fixture
def own():
    """Registers a function of all runs, or of one, and measures it on R runs."""

    def measured(function, R=4, mapped=False, stopped=(), runs=True):
        labels = np.arange(40) % 5
        logits = noisy_logits(np.random.default_rng(0), labels, R, 5, own=3.0)
        p = Predictions(np.arange(40), labels, logits)
        summary = summarize(p, stopped=stopped)
        if mapped:
            p = Predictions(p.ids, p.labels, StoredLogits([p.logits]))
        column("Mine", runs=runs)(function)
        return with_columns(summary, p, [function.__name__])

    return measured


def churn_of_pairs(logits, labels):
    predicted = logits.argmax(-1)
    pairs = np.triu_indices(len(predicted), 1)
    return np.mean([np.mean(predicted[a] != predicted[b]) for a, b in zip(*pairs)])


def margins(logits, labels):
    top = jnp.sort(logits, axis=-1)
    return jnp.mean(top[..., -1] - top[..., -2], axis=-1)


@pytest.mark.parametrize("mapped", [False, True])
def test_own_churn_has_the_number_and_the_error_of_churn(own, mapped):
    summary, errors = own(churn_of_pairs, mapped=mapped)
    assert errors == () and summary.churn.stderr > 0
    found = summary.churn_of_pairs
    assert found.mean == pytest.approx(summary.churn.mean, rel=1e-6)
    assert found.stderr == pytest.approx(summary.churn.stderr, rel=1e-5)
    assert len(summary.set_values["churn_of_pairs"]) == 4


def test_a_number_per_run_has_the_error_of_a_mean(own):
    summary, _ = own(margins, stopped=(1,))
    values = summary.run_values["margins"]
    assert values.shape == (3,)
    assert summary.margins.mean == pytest.approx(values.mean())
    assert summary.margins.stderr == pytest.approx(values.std(ddof=1) / np.sqrt(3))


@pytest.mark.parametrize("R", [1, 2])
def test_too_few_runs_give_a_number_without_an_error(own, R):
    def spread(logits, labels):
        assert len(logits) == R  # it is never called with fewer
        return np.ptp(logits, axis=0).mean()

    summary, errors = own(spread, R=R)
    assert errors == () and np.isfinite(summary.spread.mean)
    assert np.isnan(summary.spread.stderr)


def wrong_shape(logits, labels):
    return logits[0]


def one_is_nan(logits, labels):
    return [np.nan, 1.0, 2.0, np.inf]


def nan_without_one(logits, labels):
    return 1.0 if len(logits) == 4 else np.nan


def raises(logits, labels):
    return {}["key"]


def writes(logits, labels):
    logits -= logits.max()
    return logits.mean()


def writes_labels(logits, labels):
    labels[:] = 0


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (writes, r"column writes failed on .* \(ValueError: output array is read-only"),
        (writes_labels, "writes_labels failed on .*: assignment destination is read-o"),
        (wrong_shape, r"number or 4, one for each run, for logits .* shape \(40, 5\)"),
        (one_is_nan, "column one_is_nan is not a finite number for run 0, 3$"),
        (nan_without_one, "not a finite number without run 0, 1, 2, 3$"),
        (raises, r"column raises failed on logits \(4, 40, 5\) \(KeyError: 'key'\)"),
    ],
)
def test_what_is_no_number_is_told_in_one_sentence(own, function, said):
    summary, (error,) = own(function)
    assert np.isnan(getattr(summary, function.__name__).mean)
    with pytest.raises(module.ColumnError, match=said):
        raise error


def test_a_function_of_one_run_that_wants_all_is_told_how(own):
    def of_one(logits, labels):
        return logits.mean(axis=-1)

    _, (error,) = own(of_one, runs=False)
    assert "must return one number for logits (40, 5); got shape (40,)" in str(error)
    assert "runs=True" in str(error)


def test_shards_too_large_for_memory_are_told(own, monkeypatch):
    monkeypatch.setattr(module, "fits_whole", lambda numbers: False)
    summary, (error,) = own(churn_of_pairs, mapped=True)
    assert "needs the logits of all runs at once" in str(error)
    assert np.isnan(summary.churn_of_pairs.mean)


def test_a_report_shows_the_column_with_its_error_and_names_a_broken_one(tmp_path):
    column("Own churn", runs=True)(churn_of_pairs)
    column("Broken", runs=True)(raises)
    methods = {"baseline": three_methods()["baseline"]}
    columns = ["churn", "churn_of_pairs", "raises"]
    folder = write_study(tmp_path, methods, LABELS, config={"columns": columns})
    report = reports.collect(folder)
    text = markdown_table(report)
    assert "| 23.33 ± 9.43 | – | – | 0.233 ± 0.133 | – |" in text
    assert "Own churn, Broken: ± standard error over runs." in text
    assert "Baseline: column raises failed on logits" in text
