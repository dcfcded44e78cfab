"""Calibrated columns and deep-ensemble equivalents, from files to every table."""

import json

import numpy as np
import pytest
from scipy.special import log_softmax, logsumexp, softmax

from churn_compare.store import Predictions, load_predictions, save_predictions
from churn_jax import reports
from churn_jax.reports import Estimate, study_figures
from churn_jax.reports.members import (
    MEMBERS,
    Members,
    ReferenceCurve,
    load_members,
    save_members,
)
from churn_jax.reports.quantities import equivalent, millions
from tests.reports.fake_study import (
    cells_of,
    change_record,
    csv_rows,
    markdown_table,
    write_study,
)

COLUMNS = ["accuracy", "nll", "calibrated_nll", "calibrated_brier", "calibrated_ece"]
COLUMNS += ["temperature", "dee", "member_kl", "member_disagreement", "churn"]
COLUMNS += ["parameters"]
ERM = {"class": "ERM", "deploy": "mean_probs"}
STUDENT = {"class": "OneToOneDistillation", "deploy": "mean_probs"}
R, N, C = 3, 120, 4


def mean_probs(logits):
    """`[R, M, N, C]` to `[R, N, C]`."""
    return logsumexp(log_softmax(logits, axis=-1), axis=1) - np.log(logits.shape[1])


def network_logits(rng, labels, members, own=1.0, common=0.6, sharp=1.0):
    """`[R, M, N, C]` of networks of one quality: the same trouble, and each its own."""
    shape = (R, members, len(labels), C)
    hard = common * rng.normal(size=(len(labels), C))
    noise = hard + own * rng.normal(size=shape)
    return (sharp * (1.5 * np.eye(C)[labels] + noise)).astype(np.float32)


def ensembles():
    """Row to `(test, validation)` logits `[R, M, N, C]`, and both splits' labels.

    Drawn so that an ensemble is better than a network; `alike` has members that are
    one network, three times as sure as it should be; `deaf` knows nothing.
    """
    rng = np.random.default_rng(0)
    labels = [rng.integers(0, C, n) for n in (N, N // 2)]

    def both(members, **options):
        return [network_logits(rng, y, members, **options) for y in labels]

    alike = [np.repeat(z, 2, axis=1) for z in both(1, sharp=3.0)]
    deaf = [np.zeros((R, 1, len(y), C), np.float32) for y in labels]
    rows = {
        "single": both(1),
        "teachers": both(4),
        "student": both(2, own=0.9),
        "alike": alike,
        "deaf": deaf,
        "oracle": both(2, own=0.3),
    }
    return rows, labels


def write_ensembles(folder, columns=COLUMNS):
    """The folder that such a study leaves."""
    rows, (labels, held_out) = ensembles()
    entries = {
        name: {
            "teacher": None if name in ("single", "teachers") else "teachers",
            "method": {
                **(ERM if name in ("single", "teachers") else STUDENT),
                "members": test.shape[1],
            },
            "parameters": 460_000 * (test.shape[1] if name == "teachers" else 1) + i,
        }
        for i, (name, (test, _)) in enumerate(rows.items())
    }
    deployed = {name: mean_probs(test) for name, (test, _) in rows.items()}
    options = {"config": {"columns": columns}, "baseline": "single"}
    write_study(folder, deployed, labels, entries=entries, **options)
    for name, (test, validation) in rows.items():
        own = folder / "methods" / name
        save_predictions(
            own / "predictions-validation.npz",
            Predictions(np.arange(len(held_out)), held_out, mean_probs(validation)),
        )
        if test.shape[1] > 1:
            ids = np.arange(len(labels))
            save_members(own / MEMBERS["test"], Members(ids, labels, test))
            ids = np.arange(len(held_out))
            save_members(
                own / MEMBERS["validation"], Members(ids, held_out, validation)
            )
    return folder


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    return reports.collect(write_ensembles(tmp_path_factory.mktemp("runs") / "a"))


@pytest.fixture(scope="module")
def summaries(report):
    return {row.info.name: row.summary for row in report.rows}


def test_every_run_has_its_own_temperature(report, summaries):
    folder = report.study.method_folder("student")
    test = load_predictions(folder / "predictions.npz")
    validation = load_predictions(folder / "predictions-validation.npz")
    found = summaries["student"]
    labels = test.labels[:, None]
    for run in range(R):
        temperature = found.run_values["temperature"][run]
        # Where the NLL of validation is least, its slope in 1 / T is zero.
        z = validation.logits[run].astype(np.float64)
        expected = (softmax(z / temperature, axis=-1) * z).sum(-1).mean()
        said = np.take_along_axis(z, validation.labels[:, None], -1).mean()
        assert expected == pytest.approx(said, abs=1e-5)
        scaled = log_softmax(test.logits[run].astype(np.float64) / temperature, -1)
        nll = -np.take_along_axis(scaled, labels, -1).mean()
        assert found.run_values["calibrated_nll"][run] == pytest.approx(nll, rel=1e-5)
    assert len(set(found.run_values["temperature"])) == R
    # Three times too sure: far from calibrated as deployed, as good as one network.
    alike, single = summaries["alike"], summaries["single"]
    assert alike.nll.mean > 1.2 * single.nll.mean
    assert alike.calibrated_nll.mean < 1.2 * single.calibrated_nll.mean
    assert alike.temperature.mean == pytest.approx(3 * 0.88, rel=0.2)


def test_the_curve_is_that_of_the_teachers_run_by_run(report):
    curve = report.reference
    assert (curve.name, curve.nll.shape) == ("teachers", (R, 4))
    np.testing.assert_allclose(curve.mean, curve.nll.mean(axis=0))
    # All members are the row itself.
    own = next(r for r in report.rows if r.info.name == "teachers")
    np.testing.assert_allclose(
        curve.nll[:, -1], own.summary.run_values["calibrated_nll"], rtol=1e-4
    )


def test_rows_are_placed_on_the_mean_curve(report, summaries):
    curve, student = report.reference.mean, summaries["student"]
    assert (np.diff(curve) < 0).all()
    expected = np.interp(
        student.run_values["calibrated_nll"], curve[::-1], [4, 3, 2, 1]
    )
    np.testing.assert_allclose(student.run_values["dee"], expected, rtol=1e-4)
    assert student.dee.mean == pytest.approx(expected.mean(), rel=1e-4)
    cells = {name: equivalent(summary.dee) for name, summary in summaries.items()}
    assert cells["deaf"] == "1.00" and cells["oracle"] == "≥ 4.00"
    assert "≥" not in cells["student"] and "±" in cells["student"]
    assert np.isnan(summaries["single"].member_kl.mean)
    assert summaries["teachers"].member_kl.mean > 0.1


def test_cells_of_the_new_columns():
    nan = np.nan
    for cell, estimate, expected in (
        (equivalent, Estimate(2.744, 0.12, 0.1), "2.74 ± 0.12"),
        (equivalent, Estimate(3.95, 0.05, 0.1, at_least=True), "≥ 3.95 ± 0.05"),
        (equivalent, Estimate(4.0, 0.0, 0.0, at_least=True), "≥ 4.00"),
        (equivalent, Estimate(nan, nan, nan), "–"),
        (millions, Estimate(464_154.0, nan, nan), "0.46 M"),
        (millions, Estimate(2440.0, nan, nan), "2.4 k"),
        (millions, Estimate(nan, nan, nan), "–"),
    ):
        assert cell(estimate) == expected
    one = ReferenceCurve("a", "A", np.array([[0.8, 0.7]]))
    assert np.isnan(one.std).all() and one.mean.tolist() == [0.8, 0.7]


def test_rows_are_compared_in_what_is_calibrated(report, summaries):
    student = next(r for r in report.rows if r.info.name == "student")
    change = student.change.difference
    values = [summaries[n].run_values["calibrated_nll"] for n in ("student", "single")]
    assert change.difference == pytest.approx((values[0] - values[1]).mean())
    spread = (values[0] - values[1]).std(ddof=1) / np.sqrt(R)
    assert change.stderr == pytest.approx(spread)
    assert "calibrated NLL" in student.verdict and "churn" not in student.verdict
    assert "DEE: size of the deep ensemble" in report.caption
    text = markdown_table(report)
    heads = cells_of(text)[0]
    assert heads[1:4] == ["Cal. NLL", "Δ of Cal. NLL", "p"] and "Parameters" in heads
    assert "0.46 M" in text and "1.84 M" in text
    rows = csv_rows(report)
    assert float(rows[2]["delta_calibrated_nll"]) == change.difference
    assert float(rows[2]["dee"]) == summaries["student"].dee.mean
    assert rows[1]["parameters"] == "1840001"


def test_the_figure_of_such_a_study(report):
    svg = study_figures.on_reference_curve(report).draw().svg
    for label in ("Deep ensembles of Teachers", "Student", "Oracle"):
        assert label in svg


def altered(tmp_path, change, **options):
    """The report of the study after something has happened to its folder."""
    folder = write_ensembles(tmp_path / "runs", **options)
    change(folder)
    return reports.collect(folder)


def numbers(report, name):
    return {row.info.name: getattr(row.summary, name).mean for row in report.rows}


@pytest.mark.parametrize("own", [True, False])
def test_members_that_share_weights_are_no_deep_ensemble(tmp_path, own):
    def share(folder):
        record = json.loads((folder / "study.json").read_text())
        for entry in record["methods"]:
            entry["spec"]["separate"] = entry["name"] == "teachers" and own
        sharing = {"sharing": {"kind": "batch_ensemble"}}
        change_record(folder, methods=record["methods"], config={"model": sharing})

    found = altered(tmp_path, share, columns=["dee"]).reference
    assert (found and found.name) == ("teachers" if own else None)


def test_without_validation_predictions_a_row_has_dashes(tmp_path):
    def forget(folder):
        (folder / "methods" / "student" / "predictions-validation.npz").unlink()
        torn = folder / "methods" / "deaf" / "predictions-validation.npz"
        torn.write_bytes(torn.read_bytes()[:-40])

    report = altered(tmp_path, forget)
    for name in ("calibrated_nll", "temperature", "dee"):
        found = numbers(report, name)
        assert np.isnan(found["student"]) and np.isnan(found["deaf"])
        assert np.isfinite(found["single"]) and np.isfinite(found["oracle"])
    student = next(r for r in report.rows if r.info.name == "student")
    assert student.verdict.startswith("Calibrated NLL is not tested, since no run has")
    (remark,) = report.unreadable
    assert remark.startswith("Deaf has no calibrated numbers: ")
    assert "| – |" in markdown_table(report)


def test_another_plain_ensemble_serves_where_no_row_is_called_teachers(tmp_path):
    def rename(folder):
        (folder / "methods" / "teachers").rename(folder / "methods" / "de4")
        text = (folder / "study.json").read_text()
        (folder / "study.json").write_text(text.replace('"teachers"', '"de4"'))

    report = altered(tmp_path, rename, columns=["dee"])
    assert report.reference.name == "de4"
    assert numbers(report, "dee")["oracle"] == 4.0


def test_without_a_usable_ensemble_there_are_no_equivalents_and_one_sentence(tmp_path):
    folder = write_ensembles(tmp_path, columns=["dee", "churn"])
    path = folder / "methods" / "teachers" / MEMBERS["validation"]
    path.write_bytes(path.read_bytes()[:-40])
    report = reports.collect(folder)
    (remark,) = report.unreadable
    assert remark.startswith("There are no deep-ensemble equivalents: ")
    assert "truncated" in remark and len(report.rows) == 6
    path.unlink()
    report = reports.collect(folder)
    assert report.reference is None and np.isnan(numbers(report, "dee")["oracle"])
    assert next(iter(report.unreadable)).startswith(
        "No row has the predictions of a deep ens"
    )
    assert study_figures.on_reference_curve(report).svg == ""
    # Not asked for the calibrated NLL itself, it is a study of churn.
    assert report.headline.name == "churn"


def test_members_of_some_examples_make_no_curve(tmp_path):
    def few(folder):
        path = folder / "methods" / "teachers" / MEMBERS["test"]
        all_ = load_members(path)
        save_members(
            path, Members(all_.ids[:9], all_.labels[:9], all_.logits[:, :, :9])
        )

    report = altered(tmp_path, few, columns=["dee"])
    assert report.reference is None and len(report.unreadable) == 1
    assert numbers(report, "member_kl")["teachers"] > 0.1


def test_a_study_that_asks_for_nothing_reads_no_validation(tmp_path):
    def poison(folder):
        for path in folder.glob("methods/*/predictions-validation.npz"):
            path.write_bytes(b"")

    report = altered(tmp_path, poison, columns=["accuracy", "churn"])
    assert not report.unreadable
    assert np.isnan(numbers(report, "temperature")["single"])
