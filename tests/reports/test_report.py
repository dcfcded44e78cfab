"""A folder becomes a report: half finished, with broken files, in every form."""

import dataclasses
import re
from unittest import mock

import numpy as np
import pytest

from churn_compare.store import Predictions, save_predictions
from churn_jax import reports
from churn_jax.analysis import Difference
from churn_jax.cli import main
from churn_jax.configuration import replaced
from churn_jax.reports import QUANTITIES, Estimate
from churn_jax.reports.estimates import Change
from churn_jax.reports.study_report import html_table
from tests.reports.conftest import LABELS, three_methods, two_methods, write_three
from tests.reports.fake_study import (
    cells_of,
    csv_rows,
    markdown_table,
    printed,
    render,
    write_study,
)

pytestmark = pytest.mark.usefixtures("undrawn")


def test_write_leaves_three_files_and_nothing_else(report):
    folder = report.study.folder
    names = {"table.md", "table.csv", "report.html"}
    assert set(report.files) == names
    assert {p.name for p in folder.iterdir()} == names | {"study.json", "methods"}
    assert [row.info.name for row in report.rows] == ["baseline", "steady", "halting"]
    assert report.missing == ()


def test_a_report_has_nothing_that_its_study_did_not_ask_for(report):
    absent = ["## Members", "<h2>Members", "member_kl", "Cal. ", "dee", "delta_nll"]
    absent += ["Compared with the paper", "Published", "doubtful", "paper_"]
    absent += ["<h2>Updates</h2>", "## Updates", "held out", "log loss"]
    for path in report.files.values():
        text = path.read_text()
        assert not [word for word in absent if word in text], path


def test_the_stopped_run_is_told_and_not_counted(report):
    halting = report.rows[2]
    assert halting.summary.runs == (0, 1)
    assert halting.summary.accuracy.mean == 1.0
    assert "points over the runs that both rows have, against Base" in report.caption
    (remark,) = report.remarks
    assert remark == (
        "Halting: run 2 stopped at step 120 (non-finite cross_entropy); its numbers "
        "are over the other 2 of 3 runs."
    )


def test_verdicts_do_not_claim_what_was_not_shown(report):
    assert report.rows[0].verdict == ""
    assert report.rows[1].verdict == (
        "No detectable effect on churn (-23.3 points, -80.7 to +34.0; p = 0.222); "
        "no detectable effect on accuracy (+6.7 points, -7.7 to +21.0; p = 0.184)."
    )
    assert report.rows[2].verdict.startswith("Too few runs to test churn (2 in common)")


def with_label(report, label):
    row = report.rows[1]
    named = dataclasses.replace(row, info=dataclasses.replace(row.info, label=label))
    return dataclasses.replace(report, rows=(report.rows[0], named))


def test_the_markdown_table_by_hand(report):
    text = markdown_table(report)
    lines = text.splitlines()
    assert lines[0] == "# A study of nothing"
    sizes = "digits: 697 train, 100 validation, 10 test"
    assert lines[2] == f"{sizes}; MLP; 20 epochs; 3 runs per method"
    assert lines[4].startswith(
        "**Best: no row is detectably better.** Steady has the lowest churn"
    )
    lines = cells_of(text)
    assert [len(line) for line in lines] == 5 * [len(report.columns) + 5]
    _, _, base, steady, _ = lines
    assert base[:5] == ["Baseline", "23.33 ± 9.43", "–", "–", "83.33 ± 5.77"]
    assert base[6] == "75.00 ± 35.36"  # churn on wrong examples
    assert base[-2:] == ["1×", "1×"]
    assert steady[2:4] == ["-23.33 (-80.70 to +34.04)", "0.222"]
    assert "SChurn" not in str(lines)
    assert "* **Steady**: No detectable effect on churn" in text


def test_the_csv_holds_full_precision_fractions(report):
    rows = csv_rows(report)
    assert [row["method"] for row in rows] == ["baseline", "steady", "halting"]
    base, steady, halting = rows
    asked = {name for name, quantity in QUANTITIES.items() if quantity.on_request}
    assert not asked & set(base) - {"parameters"}  # that is a fact of the row
    for name in QUANTITIES.keys() - asked:
        estimate = getattr(report.rows[0].summary, name)
        assert float(base[name]) == estimate.mean
        assert float(base[f"{name}_stderr"]) == estimate.stderr
    np.testing.assert_allclose(float(steady["delta_churn"]), -0.7 / 3, rtol=1e-6)
    assert float(steady["delta_churn_p_holm"]) == report.rows[1].changes["churn"].p
    assert halting["delta_churn_p"] == "" and base["delta_churn"] == ""
    assert (halting["runs"], halting["stopped_runs"]) == ("2", "2")
    assert base["status"] == "finished"


def test_the_terminal_shows_all_columns_when_wide_and_the_main_ones_when_narrow(report):
    wide, narrow = printed(report, 200), printed(report, 80)
    assert "ECE %" in wide and "75.00 ± 35.36" in wide
    assert "ECE %" not in narrow and "23.33 ± 9.43" in narrow
    for text in (wide, narrow):
        assert "No detectable effect on churn" in text
        assert "run 2 stopped at step 120" in " ".join(text.split())
    assert max(map(len, narrow.splitlines())) <= 80


def test_labels_are_no_markup(report):
    text = markdown_table(with_label(report, "a|b\n*c* <script>"))
    row = next(line for line in text.splitlines() if line.startswith("| a"))
    assert row.startswith(r"| a\|b \*c\* \<script\> |")
    for label in ("[bold]x[/bold]", "[/oops]"):
        assert label in printed(with_label(report, label), 200)


def test_what_is_missing_or_unusable_is_named_and_the_rest_reported(tmp_path):
    steady = three_methods()["steady"]
    methods = {"baseline": three_methods()["baseline"], "waiting": None}
    others = ("torn", "elsewhere", "dead", "lost", "copied", "short")
    methods |= dict.fromkeys(others, steady) | {"short": steady[:1]}
    everything = [{"replica": r} for r in range(3)]
    folder = write_study(tmp_path, methods, LABELS, stopped={"dead": everything})
    torn = folder / "methods" / "torn" / "predictions.npz"
    torn.write_bytes(torn.read_bytes()[:100])
    other = Predictions(np.arange(1, 11), LABELS, steady)
    save_predictions(folder / "methods" / "elsewhere" / "predictions.npz", other)
    (folder / "methods" / "lost" / "predictions.npz").unlink()
    copy = folder / "methods" / "copied" / "predictions.npz"
    copy.write_bytes((folder / "methods/baseline/predictions.npz").read_bytes())
    report = reports.write(folder)
    assert [row.info.name for row in report.rows] == ["baseline"]
    reasons = {m.info.name: m.reason for m in report.missing}
    assert reasons["waiting"] == "it has no predictions yet"
    assert str(torn) in reasons["torn"] and "truncated" in reasons["torn"]
    assert "elsewhere/predictions.npz: " in reasons["elsewhere"]
    assert "1 of 10 ids only on the first side" in reasons["elsewhere"]
    assert "all 3 runs were stopped" in reasons["dead"]
    assert reasons["lost"].endswith("lost/predictions.npz does not exist")
    damaged = {missing.info.name for missing in report.missing if missing.damaged}
    assert reasons["copied"] == f"{copy} is of baseline (runs: 3), not copied (runs: 3)"
    assert reasons["short"].endswith("short (runs: 1), not short (runs: 3)")
    assert damaged == {"torn", "elsewhere", "lost", "copied", "short"}
    for name in report.files:
        text = (folder / name).read_text()
        assert "it has no predictions yet" in text, name


def test_the_study_decides_which_method_is_the_baseline(tmp_path):
    folder = write_study(tmp_path, two_methods(), LABELS, baseline="steady")
    report = reports.collect(folder)
    compared = {row.info.name: bool(row.changes) for row in report.rows}
    assert compared == {"baseline": True, "steady": False}
    (folder / "methods" / "steady" / "predictions.npz").unlink()
    report = reports.collect(folder)
    assert [row.changes for row in report.rows] == [{}]
    assert any("Without the baseline" in remark for remark in report.remarks)


def test_a_study_that_just_began_has_a_report(tmp_path):
    methods = dict.fromkeys(three_methods())
    report = reports.write(write_study(tmp_path, methods, LABELS))
    assert report.rows == () and len(report.missing) == 3
    assert "Steady is not in the table" in (tmp_path / "report.html").read_text()


def test_rows_that_were_not_asked_for_are_no_errors(tmp_path, capsys):
    methods = two_methods() | dict.fromkeys(("waiting", "other"))
    asked = ["baseline", "steady", "waiting"]
    folder = write_study(tmp_path, methods, LABELS, selected=asked)
    assert main(["report", str(folder)]) == 0
    assert "Other" not in capsys.readouterr().out
    report = reports.collect(folder)
    assert [missing.info.name for missing in report.missing] == ["waiting"]
    assert report.study.unselected == {"other": "Other"}
    assert "Rows not asked for" in (folder / "report.html").read_text()


def row(report, name, churn, p, accuracy=0.0, accuracy_p=1.0, runs=5):
    """A row whose effects and tests are these."""
    found = report.rows[1]
    effects = ("churn", churn, p), ("accuracy", accuracy, accuracy_p)
    return dataclasses.replace(
        found,
        info=dataclasses.replace(found.info, name=name, label=name.capitalize()),
        changes={
            name: Change(name, Difference(d, 0.01, d / 0.01, p, runs), p)
            for name, d, p in effects
        },
        summary=with_churn(found.summary, 0.3 + churn),
    )


def with_churn(summary, mean):
    return summary.having(churn=Estimate(mean, 0.01, 0.01))


@pytest.mark.parametrize(
    ("effects", "tones", "said"),
    [
        ([(-0.1, 0.01)], ["good"], "Best: A. It reduces churn by 10.0 points (7.2"),
        ([(0.1, 0.01), (0.2, 0.9)], ["bad", "even"], "Best: Baseline. No other row"),
        (
            [(-0.1, 0.4), (-0.2, 0.3, -0.1, 0.01)],
            ["even", "bad"],
            "Best: no row is detectably better. B has the lowest churn, but no",
        ),
        (
            [(-0.1, 0.01), (-0.2, 0.01, -0.1, 0.02), (-0.05, 0.01, 0.1, 0.01)],
            ["good", "mixed", "good"],
            "over 3 methods. B has a lower churn, but lowers accuracy. 3 rows reduce",
        ),
        ([(-0.1, 0.01, -0.1, 0.01)], ["mixed"], "lowers accuracy by 10.0 points (7."),
        ([(-0.1, 0.01, 0, 1, 4)], ["good"], "Best: not decided by so few runs. A has"),
        (
            [(-0.1, 0.01), (-0.2, 0.01, 0, 1, 3), (-0.3, 0.01, 0, 1, 2)],
            ["good", "good", "even"],
            "Best: A. It reduces churn by 10.0 points (7.2 to 12.8; p = 0.010); ",
        ),
        ([(0.1, 0.01, 0, 1, 4)], ["bad"], "by so few runs. Baseline has the lowest"),
        ([(-0.1, 0.01, 0, 1, 2)], ["even"], "Best: not decided; differences are tes"),
    ],
)
def test_the_headline_and_the_tones_claim_what_was_shown(report, effects, tones, said):
    base = report.rows[0]
    base = dataclasses.replace(base, summary=with_churn(base.summary, 0.3))
    rows = [row(report, "abc"[i], *numbers) for i, numbers in enumerate(effects)]
    found = dataclasses.replace(report, rows=(base, *rows))
    assert [r.tone for r in rows] == tones
    assert said in found.best
    assert ("Holm" in found.best) == (len(rows) > 1 and "Baseline." not in found.best)
    assert ("Holm" in found.caption) == (len(rows) > 1)
    page = render(found)
    shown = re.search('<p class="best">(.*?)</p>', page, re.DOTALL)
    assert shown and re.sub("<[^>]*>", "", shown[1]).strip() == found.best
    for tone in tones:
        assert f'<li class="{tone}">' in page
    assert page.index('<p class="best">') < page.index("<svg") < page.index("<h2>")


def test_a_row_that_shares_a_seed_is_no_candidate(tmp_path):
    fixed = {"steady": {"train": [["seeds.init", "fixed"]]}}
    folder = write_study(tmp_path, two_methods(), LABELS, entries=fixed)
    report = reports.collect(folder)
    assert report.rows[1].changes and report.best == ""
    info = dataclasses.replace(report.rows[0].info, name="other", label="Other")
    for churn, p, expected in (
        (0.5, 0.01, "Best: Baseline. No comparable row has a lower churn. Steady has"),
        (-0.1, 0.5, " Other has the lowest churn of the comparable rows, but no dete"),
    ):
        other = dataclasses.replace(row(report, "", churn, p), info=info)
        said = dataclasses.replace(report, rows=(*report.rows, other)).best
        assert expected in said and "Steady has a lower churn, but is not com" in said


def with_runs(report, runs):
    """The report with so many runs of each row, and no change that is tested."""
    rows = [
        dataclasses.replace(
            row,
            changes={},
            summary=dataclasses.replace(row.summary, runs=tuple(range(runs))),
        )
        for row in report.rows
    ]
    return dataclasses.replace(report, rows=tuple(rows))


def test_the_conclusion_has_the_costs_of_both_rows(report):
    costs = {"training_cost": 4.0, "passes": 2, "trained": True}
    base = report.rows[0]
    base = dataclasses.replace(base, summary=with_churn(base.summary, 0.3))
    found = row(report, "a", -0.1, 0.01)
    found = dataclasses.replace(found, info=dataclasses.replace(found.info, **costs))
    two = dataclasses.replace(base.info, training_cost=2.0)
    base = dataclasses.replace(base, info=two)
    said = dataclasses.replace(report, rows=(base, found)).best
    assert said.endswith("; cost: training 4× (Baseline 2×).")
    assert "Costs: networks trained, and passes per prediction" in report.caption


def test_few_runs_are_called_few(report):
    said = "3 runs per row are few"
    assert report.few.startswith(said) and "5 or more (--replicas)" in report.few
    for form in (render(report), markdown_table(report)):
        assert said in form
    assert said in printed(report, 80)
    summary = dataclasses.replace(report.rows[0].summary, runs=tuple(range(5)))
    row = dataclasses.replace(report.rows[0], summary=summary)
    assert not dataclasses.replace(report, rows=(row, *report.rows[1:])).few
    two = with_runs(report, 2).few
    assert two.startswith("2 runs per row are few: there are no intervals and no te")


def with_columns(report, *columns):
    return replaced(report, [("study.record.config.columns", columns)])


def test_surrogate_churn_above_one_is_explained(report):
    report = with_columns(report, "churn", "surrogate_churn")
    assert "SChurn is not a share" not in report.caption
    base = report.rows[0]
    large = Estimate(13.02, 0.1, 0.1)
    summary = base.summary.having(surrogate_churn=large)
    row = dataclasses.replace(base, summary=summary)
    found = dataclasses.replace(report, rows=(row,))
    assert "between 0 and 1.5, half the number of classes" in found.caption


def test_the_exit_code_says_that_a_row_is_damaged(tmp_path, capsys):
    folder = write_study(tmp_path, two_methods(), LABELS)
    torn = [folder / "methods" / name / "predictions.npz" for name in two_methods()]
    torn[1].write_bytes(torn[1].read_bytes()[:100])
    assert main(["report", str(folder)]) == 2
    (said,) = capsys.readouterr().err.splitlines()
    assert said.startswith("churn-jax: the report lacks Steady: ")
    assert str(torn[1]) in said and "truncated" in said
    assert "truncated" in (folder / "report.html").read_text()
    members = folder / "methods/baseline/members.npz"
    members.write_bytes(torn[0].read_bytes()[:100])
    assert main(["report", str(folder)]) == 2
    said = capsys.readouterr().err
    assert "The members of Baseline cannot be described" in said
    assert str(members) in said and said.count("\n") == 2
    members.unlink()
    (folder / "report.html").unlink()
    torn[0].write_bytes(torn[0].read_bytes()[:100])
    assert main(["report", str(folder)]) == 2
    (said,) = capsys.readouterr().err.splitlines()
    assert str(torn[0]) in said and said.endswith("there is no other row to report")
    assert not (folder / "report.html").exists()


def test_a_failed_write_leaves_the_earlier_report(tmp_path, monkeypatch):
    folder = write_study(tmp_path, two_methods(), LABELS)
    (folder / "report.html").write_text("earlier")
    full = mock.Mock(side_effect=OSError(28, "No space left on device"))
    monkeypatch.setattr("os.replace", full)
    with pytest.raises(OSError, match="No space left"):
        reports.write(folder)
    assert (folder / "report.html").read_text() == "earlier"
    assert not [p for p in folder.iterdir() if p.name.endswith(".tmp")]


def test_the_table_holds_what_is_shown_as_in_the_csv(report, no_pandas):
    table = reports.table(report)
    written = csv_rows(report)
    shown = [quantity.name for quantity in report.columns]
    deltas = [f"delta_{name}" for name in ("churn", "accuracy")]
    errors = [f"{name}_stderr" for name in (*shown, *deltas)]
    assert {*shown, *errors, *deltas, "delta_churn_p_holm"} <= {*table[0]}
    assert [row["method"] for row in table] == ["baseline", "steady", "halting"]
    for ours, line in zip(table, written, strict=True):
        assert ours["label"] == line["label"] and ours["runs"] == int(line["runs"])
        for name in (*shown, *errors, *deltas):
            expected = float(line[name]) if line[name] else np.nan
            np.testing.assert_equal(ours[name], expected)
    # What rows are compared in is there, whatever the columns are.
    steady = reports.table(with_columns(report, "accuracy"))[1]
    assert steady["delta_churn"] == table[1]["delta_churn"] and "churn" not in steady


def test_the_table_is_a_data_frame_where_pandas_is_installed(report):
    pandas = pytest.importorskip("pandas")
    table = reports.table(report.study.folder)
    assert isinstance(table, pandas.DataFrame)
    assert table.loc["steady", "churn"] == 0.0 and table.index.name == "method"
    assert np.isnan(table.loc["baseline", "delta_churn"])


def test_predictions_are_read_row_by_row(tmp_path):
    folder = write_three(tmp_path)
    (folder / "methods" / "steady" / "predictions.npz").unlink()
    stored = reports.predictions(folder)
    assert list(stored) == ["baseline", "halting"] and "steady" not in stored
    np.testing.assert_array_equal(stored["baseline"], three_methods()["baseline"])
    assert np.isnan(stored["halting"]).all((1, 2)).tolist() == [False, False, True]
    np.testing.assert_array_equal(stored.labels, LABELS)
    np.testing.assert_array_equal(stored.ids, np.arange(10))
    with pytest.raises(KeyError, match="no predictions of 'steady'; there are: base"):
        stored["steady"]
    with pytest.raises(TypeError, match="item assignment"):
        stored["mine"] = stored["baseline"]
    none = reports.predictions(folder, "validation")
    for array in ("ids", "labels"):
        with pytest.raises(reports.ReportError, match="no predictions are stored"):
            getattr(none, array)
    assert list(none) == []
    with pytest.raises(ValueError, match="split must be test or validation"):
        reports.predictions(folder, "train")


def test_a_notebook_shows_the_table(report):
    shown = html_table(report)
    assert "Steady" in shown and "Churn %" in shown and "run 2 stopped" in shown
