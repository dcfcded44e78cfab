"""Columns of a user's own that are functions of all runs at once."""

import jax.numpy as jnp
import numpy as np
import pytest

from churn_compare.store import Predictions, StoredLogits
from churn_jax import reports
from churn_jax.reports import column, summarize
from churn_jax.reports import summary as module
from churn_jax.reports.summary import with_columns
from tests.reports.conftest import LABELS, three_methods
from tests.reports.fake_study import markdown_table, noisy_logits, write_study

pytestmark = pytest.mark.usefixtures("own_columns")


@pytest.fixture
def own():
    """Registers a function of all runs and measures it on R runs."""

    def measured(function, R=4, mapped=False, stopped=()):
        labels = np.arange(12) % 3
        logits = noisy_logits(np.random.default_rng(0), labels, R, 3, own=3.0)
        p = Predictions(np.arange(12), labels, logits)
        summary = summarize(p, stopped=stopped)
        if mapped:
            p = Predictions(p.ids, p.labels, StoredLogits([p.logits]))
        column("Mine", runs=True)(function)
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


@pytest.mark.slow
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


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (
            wrong_shape,
            r"one number or 4, one for each run, for logits .* shape \(12, 3\)",
        ),
        (one_is_nan, "column one_is_nan is not a finite number for run 0, 3$"),
        (nan_without_one, "not a finite number without run 0, 1, 2, 3$"),
        (raises, r"column raises failed on logits \(4, 12, 3\) \(KeyError: 'key'\)"),
    ],
)
def test_what_is_no_number_is_told_in_one_sentence(own, function, said):
    summary, (error,) = own(function)
    assert np.isnan(getattr(summary, function.__name__).mean)
    with pytest.raises(module.ColumnError, match=said):
        raise error


def test_a_function_of_one_run_that_wants_all_is_told_how(own):
    @column("Of one")
    def of_one(logits, labels):
        return logits.mean(axis=-1)

    p = Predictions(np.arange(2), np.array([0, 1]), np.eye(2)[None])
    _, (error,) = with_columns(summarize(p), p, ["of_one"])
    assert "must return one number for logits (2, 2); got shape (2,)" in str(error)
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
