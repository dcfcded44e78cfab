"""A folder becomes a report: also half finished, also beside broken files."""

import dataclasses
import re
import subprocess
import sys

import numpy as np
import pytest

from churn_jax import reports
from churn_jax.analysis.significance import Difference
from churn_jax.cli import main
from churn_jax.predictions import Predictions, save_predictions
from churn_jax.reports import Comparison, Estimate
from tests.reports.conftest import LABELS, three_methods
from tests.reports.fake_study import write_study


def test_write_leaves_three_files_and_nothing_else(report):
    folder = report.study.folder
    names = {"table.md", "table.csv", "report.html"}
    assert set(report.files) == names
    assert {p.name for p in folder.iterdir()} == names | {"study.json", "methods"}
    assert [row.info.name for row in report.rows] == ["baseline", "steady", "halting"]
    assert report.missing == ()


def test_the_stopped_run_is_told_and_not_counted(report):
    halting = report.rows[2]
    assert halting.summary.runs == (0, 1)
    assert halting.summary.accuracy.mean == 1.0
    (remark,) = report.remarks
    assert remark == (
        "Halting: run 2 stopped at step 120 (non-finite cross_entropy); its numbers "
        "are over the other 2 of 3 runs."
    )


def test_verdicts_do_not_claim_what_was_not_shown(report):
    assert report.rows[0].verdict == ""
    assert report.rows[1].verdict == (
        "No detectable effect on churn (-23.3 ± 13.3 points, p = 0.222); "
        "no detectable effect on accuracy (+6.7 ± 3.3 points, p = 0.367)."
    )
    assert report.rows[2].verdict.startswith("Too few runs to test churn (2 in common)")


def test_what_is_missing_or_unusable_is_named_and_the_rest_reported(tmp_path):
    methods = three_methods()
    methods = {
        "baseline": methods["baseline"],
        "waiting": None,
        "torn": methods["steady"],
        "elsewhere": methods["steady"],
        "dead": methods["steady"],
        "lost": methods["steady"],
    }
    everything = [{"replica": r} for r in range(3)]
    folder = write_study(tmp_path, methods, LABELS, stopped={"dead": everything})
    torn = folder / "methods" / "torn" / "predictions.npz"
    torn.write_bytes(torn.read_bytes()[:100])
    other = Predictions(np.arange(1, 11), LABELS, methods["elsewhere"])
    save_predictions(folder / "methods" / "elsewhere" / "predictions.npz", other)
    (folder / "methods" / "lost" / "predictions.npz").unlink()
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
    assert damaged == {"torn", "elsewhere", "lost"}
    for name in report.files:
        text = (folder / name).read_text()
        assert "it has no predictions yet" in text, name


def test_without_the_baseline_the_others_are_still_reported(tmp_path):
    methods = {"baseline": None, "steady": three_methods()["steady"]}
    report = reports.collect(write_study(tmp_path, methods, LABELS))
    assert [row.info.name for row in report.rows] == ["steady"]
    assert all(row.comparison is None for row in report.rows)
    assert any("Without the baseline" in remark for remark in report.remarks)


def test_a_study_that_just_began_has_a_report(tmp_path):
    methods = dict.fromkeys(three_methods())
    report = reports.write(write_study(tmp_path, methods, LABELS))
    assert report.rows == () and len(report.missing) == 3
    assert "Steady is not in the table" in (tmp_path / "report.html").read_text()


def test_rows_that_were_not_asked_for_are_no_errors(tmp_path, capsys):
    methods = dict.fromkeys(("baseline", "steady", "waiting", "other"))
    methods |= {name: three_methods()[name] for name in ("baseline", "steady")}
    asked = ["baseline", "steady", "waiting"]
    folder = write_study(tmp_path, methods, LABELS, selected=asked)
    assert main(["report", str(folder)]) == 0
    assert "Other" not in capsys.readouterr().out
    report = reports.collect(folder)
    assert [missing.info.name for missing in report.missing] == ["waiting"]
    assert report.study.unselected == {"other": "Other"}
    assert "Rows not asked for" in (folder / "report.html").read_text()


def row(report, name, churn, p, accuracy=0.0, accuracy_p=1.0, runs=5, mean=None):
    """A row whose effects and tests are these."""
    found = report.rows[1]
    mean = 0.3 + churn if mean is None else mean
    return dataclasses.replace(
        found,
        info=dataclasses.replace(found.info, name=name, label=name.capitalize()),
        comparison=Comparison(
            Difference(churn, 0.01, churn / 0.01, p, runs),
            p,
            Difference(accuracy, 0.01, accuracy / 0.01, accuracy_p, runs),
            accuracy_p,
        ),
        summary=dataclasses.replace(found.summary, churn=Estimate(mean, 0.01, 0.01)),
    )


@pytest.mark.parametrize(
    ("effects", "tones", "said"),
    [
        ([(-0.1, 0.01)], ["good"], "Best: A. It reduces churn by 10.0 ± 1.0 points"),
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
        ([(-0.1, 0.01, -0.1, 0.01)], ["mixed"], "lowers accuracy by 10.0 ± 1.0 point"),
        ([(-0.1, 0.01, 0, 1, 2)], ["even"], "Best: not decided; differences are tes"),
    ],
)
def test_the_headline_and_the_tones_claim_what_was_shown(report, effects, tones, said):
    base = dataclasses.replace(
        report.rows[0],
        summary=dataclasses.replace(
            report.rows[0].summary, churn=Estimate(0.3, 0.01, 0.01)
        ),
    )
    rows = [row(report, "abc"[i], *numbers) for i, numbers in enumerate(effects)]
    found = dataclasses.replace(report, rows=(base, *rows))
    assert [r.tone for r in rows] == tones
    assert said in found.best
    assert ("Holm" in found.best) == (len(rows) > 1 and "Baseline." not in found.best)
    page = reports.render(found)
    shown = re.search('<p class="best">(.*?)</p>', page, re.DOTALL)
    assert shown and re.sub("<[^>]*>", "", shown[1]).strip() == found.best
    for tone in tones:
        assert f'<li class="{tone}">' in page
    assert page.index('<p class="best">') < page.index("<svg") < page.index("<h2>")


def test_a_row_that_shares_a_seed_is_no_candidate(tmp_path):
    methods = {name: three_methods()[name] for name in ("baseline", "steady")}
    fixed = {"steady": {"train": [["seeds.init", "fixed"]]}}
    report = reports.collect(write_study(tmp_path, methods, LABELS, entries=fixed))
    assert report.rows[1].comparison is not None and report.best == ""


def test_surrogate_churn_above_one_is_explained(report):
    assert "SChurn is no share" not in report.caption
    baseline = report.rows[0]
    large = dataclasses.replace(
        baseline.summary, surrogate_churn=Estimate(13.02, 0.1, 0.1)
    )
    row = dataclasses.replace(baseline, summary=large)
    found = dataclasses.replace(report, rows=(row,))
    assert "between 0 and 1.5, half the number of classes" in found.caption


def test_the_exit_code_says_that_a_row_is_damaged(tmp_path, capsys):
    logits = three_methods()
    for name in ("baseline", "steady"):
        methods = {"baseline": logits["baseline"], "steady": logits["steady"]}
        folder = write_study(tmp_path / "fake", methods, LABELS)
        assert main(["report", str(folder)]) == 0
        torn = folder / "methods" / name / "predictions.npz"
        torn.write_bytes(torn.read_bytes()[:100])
        capsys.readouterr()
        assert main(["report", str(folder)]) == 2
        (said,) = capsys.readouterr().err.splitlines()
        assert said.startswith(f"churn-jax: the report lacks {name.capitalize()}: ")
        assert str(torn) in said and "truncated" in said
        assert "truncated" in (folder / "report.html").read_text()
    only = write_study(tmp_path / "only", {"baseline": logits["baseline"]}, LABELS)
    torn = only / "methods" / "baseline" / "predictions.npz"
    torn.write_bytes(torn.read_bytes()[:100])
    assert main(["report", str(only)]) == 2
    (said,) = capsys.readouterr().err.splitlines()
    assert str(torn) in said and said.endswith("there is no other row to report")
    assert not (only / "report.html").exists()


def test_a_failed_write_leaves_the_earlier_report(run_dir, monkeypatch):
    (run_dir / "report.html").write_text("earlier")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", full)
    with pytest.raises(OSError, match="No space left"):
        reports.write(run_dir)
    assert (run_dir / "report.html").read_text() == "earlier"
    assert not [p for p in run_dir.iterdir() if p.name.endswith(".tmp")]


def test_the_study_decides_which_method_is_the_baseline(tmp_path):
    methods = three_methods()
    del methods["halting"]
    folder = write_study(tmp_path, methods, LABELS, baseline="steady")
    report = reports.collect(folder)
    compared = {row.info.name: row.comparison is not None for row in report.rows}
    assert compared == {"baseline": True, "steady": False}


def test_importing_reports_does_not_import_matplotlib():
    script = "import sys, churn_jax.reports; print('matplotlib' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "False"
