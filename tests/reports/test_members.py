"""Members' predictions, calibrated columns and equivalents, in every report."""

import dataclasses
import json

import numpy as np
import pytest
from scipy.special import log_softmax, logsumexp, softmax

from churn_compare.documents import Document, html_page
from churn_compare.store import (
    Predictions,
    PredictionsError,
    load_predictions,
    save_predictions,
)
from churn_jax import reports
from churn_jax.methods import ERM, UNKNOWN_LOGIT, deploy
from churn_jax.reports import Estimate, study_figures
from churn_jax.reports.members import (
    MEMBERS,
    Members,
    ReferenceCurve,
    agreement_of,
    load_members,
    save_members,
)
from churn_jax.reports.quantities import equivalent, millions
from churn_jax.reports.sections import HARDLY, members_section
from tests.refusals import refusals
from tests.reports.conftest import LABELS, three_methods
from tests.reports.fake_study import (
    cells_of,
    change_record,
    csv_rows,
    markdown_table,
    printed,
    write_study,
)

FEW = Members(np.arange(3), np.array([0, 1, 1]), np.zeros((2, 4, 3, 5)))


def test_what_is_saved_is_loaded(tmp_path):
    path = save_members(tmp_path / "a" / MEMBERS["test"], FEW)
    found = load_members(path)
    assert found.logits.dtype == np.float32 and found.logits.shape == (2, 4, 3, 5)
    np.testing.assert_array_equal(found.labels, FEW.labels)
    assert [p.name for p in path.parent.iterdir()] == [MEMBERS["test"]]


def load_spoilt(tmp_path, spoil):
    path = save_members(tmp_path / MEMBERS["test"], FEW)
    spoil(path)
    try:
        load_members(path)
    except PredictionsError as error:
        assert str(error).startswith(str(path))
        raise


EXAMPLES = {"ids": FEW.ids, "labels": FEW.labels}

test_an_unusable_file_is_one_sentence_with_its_path = refusals(
    (lambda path: path.unlink(), "cannot read the members' .* No such file"),
    (lambda path: path.write_bytes(path.read_bytes()[:200]), "truncated"),
    (lambda path: np.savez(path, ids=FEW.ids), "labels, logits missing"),
    (
        lambda path: np.savez(path, **EXAMPLES, logits=FEW.logits[0]),
        r"\[R, M, N, C\].*got \(4, 3, 5\)",
    ),
    call=load_spoilt,
    error=PredictionsError,
    fixtures=["tmp_path"],
)


def by_hand():
    """Two runs of two members on ten examples of three classes, p = 3/5, 1/5, 1/5."""
    # Members of run 0 differ on the last of ten examples; those of run 1 on none.
    classes = np.tile(LABELS, (2, 2, 1))
    classes[0, 1, 9] = 0
    return Members(np.arange(10), LABELS, np.log(3.0) * np.eye(3)[classes])


def test_diagnostics_by_hand_without_a_stopped_run():
    found = agreement_of(by_hand(), ERM(members=2))
    # KL of (3, 1, 1) / 5 to (1, 3, 1) / 5 is log(3) * 2/5, on one example of ten.
    of = found.of_runs
    np.testing.assert_allclose(of.mean_kl, [np.log(3) / 25, 0], atol=1e-6)
    np.testing.assert_allclose(of.disagreement, [0.1, 0], rtol=1e-6)
    np.testing.assert_allclose(of.mean_member_accuracy, [0.95, 1], rtol=1e-6)
    assert (found.members, found.examples) == (2, 10)
    members = by_hand()
    members.logits[0] = np.nan
    second = agreement_of(members, ERM(members=2), [1]).of_runs
    np.testing.assert_array_equal(second.mean_kl, [0])
    with pytest.raises(PredictionsError, match="run 2 is missing among members of 2"):
        agreement_of(members, ERM(members=2), [2])


@pytest.fixture(scope="module")
def pairs(tmp_path_factory):
    """Three methods with members: some that differ, equal ones, and a broken file."""
    runs = three_methods()
    methods = {name: runs["steady"] for name in ("baseline", "alike", "differ", "torn")}
    methods["elsewhere"] = methods["partly"] = runs["steady"]
    folder = write_study(tmp_path_factory.mktemp("runs"), methods, LABELS)
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(3, 2, 10, 3))
    same = np.repeat(logits[:, :1], 2, axis=1)
    ids = np.arange(10)
    for name, found in {"alike": same, "differ": logits, "torn": logits}.items():
        path = folder / "methods" / name / MEMBERS["test"]
        save_members(path, Members(ids, LABELS, found))
    torn = folder / "methods" / "torn" / MEMBERS["test"]
    torn.write_bytes(torn.read_bytes()[:-30])
    others = Members(ids + 1, LABELS, logits)
    save_members(folder / "methods" / "elsewhere" / MEMBERS["test"], others)
    some = Members(ids[::3], LABELS[::3], logits[:, :, ::3])
    save_members(folder / "methods" / "partly" / MEMBERS["test"], some)
    return reports.collect(folder)


def test_the_accuracy_of_the_mean_is_that_of_the_mean_that_is_served():
    # The mean probability of class 0 is 0.41 of three, its mean logit -0.25.
    logits = np.zeros((2, 2, 10, 3), np.float32)
    logits[..., 0] = np.reshape([2.0, -2.5], (2, 1))
    members = Members(np.arange(10), np.zeros(10, int), logits)
    for how, right in (("mean_probs", 1.0), ("mean_logits", 0.0)):
        method = ERM(members=2, deploy=how)
        served = np.asarray(deploy(method, logits[0])).argmax(axis=-1) == 0
        found = agreement_of(members, method).of_runs.ensemble_accuracy
        assert (found == right).all() and (served == right).all()


def test_rows_with_equal_predictions_and_what_is_served_are_named(pairs, tmp_path):
    equal = "Differ has the same predictions as Baseline, bit for bit."
    assert equal in pairs.remarks
    assert sum("bit for bit" in remark for remark in pairs.remarks) == 5
    (served,) = pairs.context
    assert served.startswith("Rows of several networks that serve one of them: Alike;")
    # Classes alone do not make rows equal, nor scores that classes decide.
    runs = three_methods()["steady"]
    rows = {"baseline": three_methods()["baseline"], "a": runs, "louder": 1.01 * runs}
    assert reports.collect(write_study(tmp_path / "three", rows, LABELS)).remarks == ()
    rows["copy"] = rows["louder"]
    (said,) = reports.collect(write_study(tmp_path / "four", rows, LABELS)).remarks
    assert said == "Copy has the same predictions as Louder, bit for bit."


def test_members_are_in_every_form_of_any_study(pairs):
    section = members_section(pairs)
    page = html_page(Document("", blocks=[section]))
    forms = (markdown_table(pairs), page, printed(pairs, 200))
    for text in forms:
        said = " ".join(text.split())
        assert "Members" in said and "Accuracy of a member %" in said
        assert "Alike: two members predict the same class for more than" in said
        assert "Differ: two members" not in said
        assert "Partly: on 4 of 10 examples, evenly spaced." in said
    (found,) = section.blocks
    assert [cells[0] for cells in found.rows] == ["Alike", "Differ", "Partly"]
    assert found.rows[0][1:4] == ("2", "0.000 ± 0.000", "0.00 ± 0.00")
    assert pairs.rows[1].agreement.of_runs.disagreement.mean() < HARDLY


def test_files_that_cannot_be_used_are_told_and_the_rows_stay(pairs):
    assert [row.info.name for row in pairs.rows] == [
        *("baseline", "alike", "differ", "torn", "elsewhere", "partly")
    ]
    torn, elsewhere = pairs.unreadable
    assert torn.startswith("The members of Torn cannot be described: ")
    assert "truncated" in torn
    assert "1 of 10 examples are not those of the predictions" in elsewhere
    assert set(pairs.unreadable) <= set(pairs.remarks)


COLUMNS = ["accuracy", "nll", "calibrated_nll", "calibrated_brier", "calibrated_ece"]
COLUMNS += ["temperature", "dee", "member_kl", "member_disagreement", "churn"]
COLUMNS += ["parameters"]
PLAIN = {"class": "ERM", "deploy": "mean_probs"}
STUDENT = {"class": "OneToOneDistillation", "deploy": "mean_probs"}
R, N, C = 4, 40, 5


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
    rng = np.random.default_rng(9)
    labels = rng.integers(0, C, (2, N))

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
                **(PLAIN if name in ("single", "teachers") else STUDENT),
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
        ids, path = np.arange(N), own / "predictions-validation.npz"
        save_predictions(path, Predictions(ids, held_out, mean_probs(validation)))
        if test.shape[1] > 1:
            saved = Members(ids, held_out, validation)
            save_members(own / MEMBERS["test"], Members(ids, labels, test))
            save_members(own / MEMBERS["validation"], saved)
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
    of_row = own.summary.run_values["calibrated_nll"]
    np.testing.assert_allclose(curve.nll[:, -1], of_row, rtol=1e-4)


def test_rows_are_placed_on_the_mean_curve(report, summaries):
    curve, student = report.reference.mean, summaries["student"]
    assert (np.diff(curve) < 0).all()
    wanted = np.interp(student.run_values["calibrated_nll"], curve[::-1], [4, 3, 2, 1])
    np.testing.assert_allclose(student.run_values["dee"], wanted, rtol=1e-4)
    assert student.dee.mean == pytest.approx(wanted.mean(), rel=1e-4)
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
    assert "interval by Student's t over runs. p: " in report.caption
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
        for row in ("alike", "oracle"):
            path = folder / "methods" / row / "predictions-validation.npz"
            held_out = load_predictions(path)
            if row == "alike":
                held_out.logits[1, 0, held_out.labels[0]] = -np.inf
            else:
                held_out.logits[1] = 9 * np.eye(C)[held_out.labels]
            save_predictions(path, held_out)

    report = altered(tmp_path, forget)
    for name in ("calibrated_nll", "temperature", "dee"):
        found = numbers(report, name)
        assert all(np.isnan(found[k]) for k in ("student", "deaf", "oracle"))
        assert np.isfinite(found["single"])
    student = next(r for r in report.rows if r.info.name == "student")
    assert student.verdict.startswith("Calibrated NLL is not tested, since no run has")
    right, torn, barred = sorted(report.unreadable, reverse=True)
    assert right == (
        "Oracle has no calibrated numbers: no temperature fits the validation logits "
        f"of runs 1, which are right on all {N} examples; hold out more (--validation)."
    )
    assert [report.unreadable[x] for x in (right, torn, barred)] == [False, True, True]
    assert torn.startswith("Deaf has no calibrated numbers: ")
    assert barred.startswith("Alike has no calibrated numbers: no temperature fits")
    assert "runs 1, which are" in barred
    assert "| – |" in markdown_table(report)


def test_equivalents_are_of_rows_that_know_the_same_classes(tmp_path):
    def hide(folder):
        for path in (folder / "methods" / "teachers").glob("*.npz"):
            of_members = path.name in MEMBERS.values()
            found = (load_members if of_members else load_predictions)(path)
            found.logits[..., 2] = UNKNOWN_LOGIT
            (save_members if of_members else save_predictions)(path, found)

    report = altered(tmp_path, hide, columns=["dee", "calibrated_nll"])
    own = numbers(report, "calibrated_nll")["teachers"]
    assert report.reference.mean[-1] == pytest.approx(own, rel=0.02)
    found = numbers(report, "dee")
    assert found.pop("teachers") > 3 and np.isnan([*found.values()]).all()


def test_another_plain_ensemble_serves_where_no_row_is_called_teachers(tmp_path):
    def rename(folder):
        (folder / "methods" / "teachers").rename(folder / "methods" / "de4")
        text = (folder / "study.json").read_text()
        (folder / "study.json").write_text(text.replace('"teachers"', '"de4"'))
        path = folder / "methods" / "de4" / "predictions.npz"
        unnamed = dataclasses.replace(load_predictions(path), meta={})
        save_predictions(path, unnamed)

    report = altered(tmp_path, rename, columns=["dee"])
    assert report.reference.name == "de4"
    assert numbers(report, "dee")["oracle"] == 4.0


def test_without_a_usable_ensemble_there_are_no_equivalents_and_one_sentence(tmp_path):
    folder = write_ensembles(tmp_path, columns=["dee", "churn"])
    path = folder / "methods" / "teachers" / MEMBERS["validation"]
    members = load_members(path)
    members.logits[0, 1, 0, members.labels[0]] = -np.inf
    save_members(path, members)
    (remark,) = reports.collect(folder).unreadable
    assert "members' logits are NaN, or -inf at an example's label" in remark
    other = path.with_name(MEMBERS["test"])
    whole = other.read_bytes()
    for file in (path, other):
        of = load_members(file)
        save_members(file, Members(of.ids, of.labels, of.logits[:2]))
    _, remark = sorted(reports.collect(folder).unreadable)
    assert "members' logits (2, 4, 40, 5) and those of" in remark
    other.write_bytes(whole)
    path.write_bytes(path.read_bytes()[:-40])
    report = reports.collect(folder)
    (remark,) = report.unreadable
    assert remark.startswith("There are no deep-ensemble equivalents: ")
    assert "truncated" in remark and len(report.rows) == 6
    path.unlink()
    report = reports.collect(folder)
    assert report.reference is None and np.isnan(numbers(report, "dee")["oracle"])
    assert next(iter(report.unreadable)).startswith(
        "No row has calibrated numbers and a deep ens"
    )
    assert study_figures.on_reference_curve(report).svg == ""
    # Not asked for the calibrated NLL itself, it is a study of churn.
    assert report.headline.name == "churn"


def test_members_of_some_examples_make_no_curve(tmp_path):
    def few(folder):
        path = folder / "methods" / "teachers" / MEMBERS["test"]
        of = load_members(path)
        save_members(path, Members(of.ids[:9], of.labels[:9], of.logits[:, :, :9]))

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
