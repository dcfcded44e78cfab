"""Members' predictions: kept whole, read with care, and told of in every report."""

import numpy as np
import pytest

from churn_compare.documents import Document, html_page
from churn_compare.store import PredictionsError
from churn_jax import reports
from churn_jax.methods import ERM, deploy
from churn_jax.reports.members import (
    MEMBERS,
    Members,
    agreement_of,
    load_members,
    save_members,
)
from churn_jax.reports.sections import HARDLY, members_section
from tests.reports.conftest import LABELS, three_methods
from tests.reports.fake_study import markdown_table, printed, write_study

FEW = Members(np.arange(3), np.array([0, 1, 1]), np.zeros((2, 4, 3, 5)))


def test_what_is_saved_is_loaded(tmp_path):
    path = save_members(tmp_path / "a" / MEMBERS["test"], FEW)
    found = load_members(path)
    assert found.logits.dtype == np.float32 and found.logits.shape == (2, 4, 3, 5)
    np.testing.assert_array_equal(found.labels, FEW.labels)
    assert [p.name for p in path.parent.iterdir()] == [MEMBERS["test"]]


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda path: path.unlink(), "does not exist"),
        (lambda path: path.write_bytes(path.read_bytes()[:200]), "truncated"),
        (lambda path: np.savez(path, ids=FEW.ids), "labels, logits missing"),
        (
            lambda path: np.savez(
                path, ids=FEW.ids, labels=FEW.labels, logits=FEW.logits[0]
            ),
            r"\[R, M, N, C\].*got \(4, 3, 5\)",
        ),
    ],
)
def test_an_unusable_file_is_one_sentence_with_its_path(tmp_path, spoil, words):
    path = save_members(tmp_path / MEMBERS["test"], FEW)
    spoil(path)
    with pytest.raises(PredictionsError, match=words) as caught:
        load_members(path)
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)


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
        save_members(
            folder / "methods" / name / MEMBERS["test"], Members(ids, LABELS, found)
        )
    torn = folder / "methods" / "torn" / MEMBERS["test"]
    torn.write_bytes(torn.read_bytes()[:-30])
    others = Members(ids + 1, LABELS, logits)
    save_members(folder / "methods" / "elsewhere" / MEMBERS["test"], others)
    some = Members(ids[::3], LABELS[::3], logits[:, :, ::3])
    save_members(folder / "methods" / "partly" / MEMBERS["test"], some)
    return reports.collect(folder)


def test_the_accuracy_of_the_mean_is_that_of_the_mean_that_is_served():
    # Odds of class 0: the mean probability is 0.51, the mean logit -0.17.
    logits = np.zeros((1, 3, 1, 2), np.float32)
    logits[0, :, 0, 0] = 1.0, 1.0, -2.5
    members = Members(np.arange(1), np.zeros(1, int), logits)
    for how, right in (("mean_probs", 1.0), ("mean_logits", 0.0)):
        method = ERM(members=3, deploy=how)
        served = np.asarray(deploy(method, logits[0])).argmax(axis=-1) == 0
        found = agreement_of(members, method).of_runs.ensemble_accuracy
        assert found == served == right


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
    assert torn.startswith("Nothing is known of the members of Torn: ")
    assert "truncated" in torn
    assert "1 of 10 examples are not those of the predictions" in elsewhere
    assert set(pairs.unreadable) <= set(pairs.remarks)
