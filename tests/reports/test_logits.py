"""The report of logits of any origin: the numbers of a study's and of `compare`."""

import math

import jax.numpy as jnp
import numpy as np
import pytest

import churn_jax
from churn_jax import reports
from churn_jax.reports import column
from churn_jax.reports.study_report import html_table
from tests.html_page import Page
from tests.reports.fake_study import (
    csv_rows,
    markdown_table,
    noisy_logits,
    render,
    write_study,
)

pytestmark = pytest.mark.usefixtures("no_pandas", "own_columns")

LABELS = np.arange(60) % 3
NAMES = ("ant", "bee", "cat")


def logits(R=None, seed=0, own=1.0):
    found = noisy_logits(np.random.default_rng(seed), LABELS, R or 1, 3, own=own)
    return found if R else found[0]


@pytest.fixture(scope="module")
def single(tmp_path_factory):
    """Old and new, one run each; read only."""
    out = tmp_path_factory.mktemp("single")
    two = {"old": logits(), "new": logits(seed=1)}
    return two, churn_jax.report(two, LABELS, class_names=NAMES, out=out)


@pytest.fixture(scope="module")
def several():
    """Three rows of four runs; read only."""
    rows = {name: logits(4, i, 1 + i) for i, name in enumerate(("old", "new", "other"))}
    return rows, churn_jax.report(rows, LABELS, out=None)


def test_single_runs_are_compared_as_versions(single):
    two, found = single
    expected = churn_jax.compare(two["old"], two["new"], labels=LABELS)
    ours = found.comparisons["new"]
    for name in ("churn", "negative_flip_rate", "accuracy_gain", "nll_change"):
        assert ours[name] == expected[name]
    old, new = found.table
    churn = np.mean(two["old"].argmax(-1) != two["new"].argmax(-1))
    assert new["churn_to_baseline"] == pytest.approx(churn)
    assert new["churn_to_baseline_low"] == expected["churn"].low
    assert new["negative_flips_to_baseline"] == expected["negative_flip_rate"].value
    assert old["accuracy"] == pytest.approx(np.mean(two["old"].argmax(-1) == LABELS))
    assert math.isnan(old["churn_to_baseline"]) and "churn" not in new  # no two runs


def test_the_page_of_single_runs_has_what_predictions_can_say(single):
    _, found = single
    page = Page(found.path.read_text())
    text = " ".join(page.text)
    for part in (
        *("old → new", "60 examples", "3 classes", "1 run per row"),
        *("The update changes", "were right and are wrong now", "Against old"),
        *("Numbers", "Where changed predictions go", "Classes", "Largest regressions"),
        *("Reliability", "Every two runs", "What was compared", "bee", "Glossary"),
    ):
        assert part in text, part
    for part in (
        *(
            "Training",
            "Equation",
            "Too few runs",
            "Δ churn",
            "Churn correct %",
            "Best:",
        ),
        *("same seeds", "Networks", "Which inputs churn", "Deep-ensemble"),
    ):
        assert part not in text, part
    assert page.tags.count("svg") == len(found.figures) == 3
    names = {path.name for path in found.path.parent.iterdir()}
    assert names == {"report.html", "table.csv", "table.md"}
    rows = csv_rows((found.path.parent / "table.csv").read_text())
    assert float(rows[1]["churn_to_baseline"]) == found.table[1]["churn_to_baseline"]
    assert "seconds" not in rows[0] and "training_cost" not in rows[0]
    assert rows[1]["verdict"].startswith("The update changes")
    table = (found.path.parent / "table.md").read_text()
    assert (
        "| Method | Churn vs. old | NFR vs. old | Accuracy % | ECE % | NLL |" in table
    )


def test_several_runs_have_the_numbers_of_a_study(several, tmp_path):
    rows, found = several
    study = reports.collect(write_study(tmp_path, rows, LABELS, baseline="old"))
    for ours, theirs in zip(found.table, reports.table(study), strict=True):
        assert {name for name in theirs if name != "label"} <= {*ours}
        for name in theirs:
            if name != "label":
                np.testing.assert_equal(ours[name], theirs[name])
    assert found.best.lower() == study.best.lower()  # labels begin with capitals
    assert found.comparisons["other"].noise is not None
    text = str(found)
    assert "Report of old, new, other" in text
    assert "Over runs, on these examples: " in " ".join(text.split())
    verdict = html_table(found)
    assert "old → " not in verdict and "The update changes" in verdict
    assert found._repr_html_() == verdict


@pytest.mark.slow
def test_the_page_of_several_rows_has_every_update_once(several, tmp_path):
    _, found = several
    path = found.write(tmp_path / "page.html")
    assert [one.name for one in tmp_path.iterdir()] == ["page.html"]
    assert found.path == path and repr(found).endswith(f"examples; {path}>")
    text = " ".join(Page(path.read_text()).text)
    for part in ("old → new", "old → other", "Every row against every other"):
        assert text.count(part) == 1, part
    for part in ("Which inputs churn", "Beyond runs of one version"):
        assert part in text, part
    assert {"reliability", "reliability-2"} <= {*found.figures}


@pytest.mark.parametrize("make", [list, jnp.asarray, np.float64, lambda x: _Tensor(x)])
def test_logits_of_any_framework_give_the_same_numbers(single, make):
    two, found = single
    given = {name: make(one) for name, one in two.items()}
    other = churn_jax.report(given, make(LABELS) if make is list else LABELS, out=None)
    assert other.table[1]["churn_to_baseline"] == found.table[1]["churn_to_baseline"]
    assert other.table[1]["nll"] == pytest.approx(found.table[1]["nll"], rel=1e-5)


class _Tensor:
    """Like a PyTorch tensor that requires gradients: no array until it is detached."""

    def __init__(self, values, attached=True):
        self.values, self.attached, self.dtype = values, attached, values.dtype

    def detach(self):
        return _Tensor(self.values, attached=False)

    def cpu(self):
        return self

    def __array__(self, dtype=None, copy=None):
        if self.attached:
            raise RuntimeError("call detach first")
        return self.values


@pytest.mark.slow
def test_names_ids_baseline_and_one_row(several):
    rows, _ = several
    labels = [NAMES[label] for label in LABELS]
    found = churn_jax.report(
        rows,
        labels,
        class_names=NAMES,
        ids=[f"x{i}" for i in range(60)],
        baseline="new",
        out=None,
    )
    assert list(found.comparisons) == ["old", "other"]
    page = " ".join(Page(render(found)).text)
    assert "Against new" in page and "x7" in page and "bee (" in page
    alone = churn_jax.report({"mine": rows["old"]}, LABELS, out=None)
    assert alone.comparisons == {} and alone.table[0]["churn"] > 0
    assert "Which inputs churn" in render(alone)


def test_a_new_version_may_have_more_classes(single):
    two, _ = single
    wider = np.pad(two["new"], ((0, 0), (0, 1)), constant_values=-9.0)
    found = churn_jax.report({"old": two["old"], "new": wider}, LABELS, out=None)
    assert found.table[1]["churn_to_baseline"] > 0
    assert "3 to 4 classes" in markdown_table(found)


def test_temperatures_need_validation_logits(several):
    rows, _ = several
    rows = {name: rows[name] for name in ("old", "new")}
    held_out = {name: 2 * one[:, :30] for name, one in rows.items()}
    found = churn_jax.report(rows, LABELS, validation=(held_out, LABELS[:30]), out=None)
    assert found.table[0]["temperature"] > 0 and found.table[0]["calibrated_ece"] > 0
    with pytest.raises(ValueError, match="column temperature needs validation="):
        churn_jax.report(rows, LABELS, columns=["temperature"], out=None)


def test_own_columns_are_shown_and_their_errors_raised(several):
    rows, _ = several

    @column("Range", runs=True)
    def reach(logits, labels):
        return np.ptp(logits, axis=0).mean()

    found = churn_jax.report(rows, LABELS, columns=["accuracy", reach], out=None)
    assert found.table[0]["reach"] > 0 and found.table[0]["reach_stderr"] > 0
    assert "churn" not in found.table[0]
    column("Bad")(_bad)
    with pytest.raises(ValueError, match=r"^old: column _bad failed on logits"):
        churn_jax.report(rows, LABELS, columns=["_bad"], out=None)


def test_a_change_against_the_baseline_is_measured(several):
    rows, plain = several
    found = churn_jax.report(rows, LABELS, columns=["log_loss_change"], out=None)
    old, new, _ = found.table
    loss = [row.summary.run_values["nll"] for row in plain.rows[:2]]
    assert new["log_loss_change"] == pytest.approx(np.mean(loss[1] / loss[0]) - 1)
    assert old["log_loss_change"] == 0.0 and new["log_loss_change_stderr"] > 0


def _bad(logits, labels):
    raise KeyError(1)


A = np.zeros((60, 3))


@pytest.mark.parametrize(
    ("given", "options", "said"),
    [
        (A, {}, "logits must be a mapping of names to arrays"),
        ({}, {}, "logits must be a mapping"),
        ({1: A}, {}, "name of a row must be a text; got 1"),
        ({"old": A[:, 0]}, {}, r"old must be logits .* got shape \(60,\).*compare"),
        (
            {"old": A[:50]},
            {},
            "old has logits of 50 examples .* and there are 60 labels$",
        ),
        ({"old": np.ones((4, 60), int)}, {}, "4 examples .*compare takes predicted"),
        ({"old": A, "new": A * np.nan}, {}, "new: logits of run 0 are NaN"),
        ({"old": A + 1 / 3}, {}, "old looks like probabilities"),
        ({"old": A[:, :2]}, {}, "old: labels go up to 2, but the logits have only 2"),
        ({"old": A}, {"class_names": ["a"]}, "class_names has 1 names, and old has 3"),
        ({"old": A}, {"baseline": "odl"}, "'odl' is not a row.*did you mean old"),
        ({"old": A}, {"columns": ["chrun"]}, "no column 'chrun' .*did you mean churn"),
        ({"old": A}, {"columns": ["dee"]}, "column dee needs what only a study"),
        ({"old": A}, {"ids": np.zeros(60, int)}, "old: .*ids"),
        ({"old": A}, {"validation": A}, "validation must be the pair"),
        ({"old": A}, {"validation": ({"new": A}, LABELS)}, "a mapping of old$"),
        (
            {"old": A},
            {"validation": ({"old": A[:9]}, LABELS)},
            "validation: old has logits of 9 examples",
        ),
    ],
)
def test_bad_input_is_one_sentence(given, options, said):
    with pytest.raises(ValueError, match=said) as error:
        churn_jax.report(given, LABELS, **options, out=None)
    assert "\n" not in str(error.value)


def test_labels_that_are_names_need_the_names_of_the_classes():
    with pytest.raises(ValueError, match="labels are names; give class_names"):
        churn_jax.report({"old": A}, ["ant"] * 60, out=None)
    with pytest.raises(ValueError, match=r"^labels must be integers"):
        churn_jax.report({"old": A}, LABELS / 1.0, out=None)
    with pytest.raises(ValueError, match="class_names lacks: bie; did you mean bee"):
        churn_jax.report({"old": A}, ["bie"] * 60, class_names=NAMES, out=None)
