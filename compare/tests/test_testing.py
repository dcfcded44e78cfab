"""The assertion that a project's own tests use."""

import numpy as np
import pytest

import churn_compare
from churn_compare.gates import Gate, GateError
from churn_compare.testing import assert_compatible
from tests.cases import fails

LABELS = np.arange(200) % 4


def predictions(wrong):
    """Classes that are right but for the examples in `wrong`."""
    found = LABELS.copy()
    found[wrong] = (found[wrong] + 1) % 4
    return found


OLD, NEW = predictions(range(10)), predictions(range(8, 20))


def refuted(message, *sides, **given):
    """Asserts that the new version is not compatible, with this in the message."""
    with pytest.raises(AssertionError, match=message) as caught:
        assert_compatible(*sides, **given)
    return str(caught.value).splitlines()


def test_the_message_has_a_line_per_gate_and_the_worst_regressions():
    limits = {"max_nfr": 0.01, "max_churn": 0.5}
    lines = refuted("not compatible", OLD, NEW, labels=LABELS, **limits)
    assert lines[0] == "the new version is not compatible with the old one"
    assert lines[1].startswith("FAIL  negative flip rate at most 1 %: 5 %")
    assert lines[2].startswith("PASS  churn at most 50 %: 9 %")
    assert lines[3] == "10 examples were right and are wrong now; the worst 5:"
    assert lines[4] == "  10: label 2, now 3" and len(lines) == 9


def test_the_message_says_how_many_runs_there_are_and_lists_none_if_told_so():
    runs, none = np.stack([NEW, OLD]), {"labels": LABELS, "max_nfr": 0}
    assert refuted("not compatible", OLD, runs, **none, regressions=0)[2:] == [
        "10 examples were right and are wrong now in some of the 2 pairs of runs"
    ]
    refuted("10: label 2, now 2, in 50", OLD, runs, **none)
    old = np.stack([OLD, predictions(range(100))])
    new = np.stack([NEW, predictions(range(110))])  # run by run
    refuted("some of the 2 pairs of runs", old, new, **none)


def test_scores_tell_how_sure_the_new_version_is():
    scores = np.log(np.array([[0.9, 0.1], [0.2, 0.8], [0.3, 0.7]]))
    given = {"labels": [0, 1, 1], "max_nfr": "10%", "kind": "logits"}
    said = "0: label 0, now 1 with confidence 90"
    refuted(said, scores, scores[:, ::-1], **given)


def test_gates_come_as_objects_from_a_file_and_as_arguments(tmp_path):
    file = tmp_path / "gates.toml"
    file.write_text("max-nfr = 0.01\nmax-churn = 0.5")
    refuted("not compatible", OLD, NEW, labels=LABELS, gates=file)
    result = assert_compatible(OLD, NEW, labels=LABELS, gates=file, max_nfr=0.06)
    assert [gate.limit for gate in result.gates] == [0.5, 0.06]
    upper = "upper end of churn at most 10 %"
    refuted(upper, OLD, NEW, labels=LABELS, max_churn=0.1, on="bound")
    assert_compatible(OLD, NEW, labels=LABELS, gates=[Gate("churn", 0.1)])
    named = {"labels": LABELS, "gates": {"max_churn": 0.1}}
    assert_compatible(OLD, NEW, **named)
    refuted(upper, OLD, NEW, **named, on="bound")
    file.write_text('on = "bound"\nmax-churn = 0.2')
    options = {"labels": LABELS, "gates": file, "max_churn": 0.1}
    refuted(upper, OLD, NEW, **options)  # as the file says
    assert_compatible(OLD, NEW, **options, on="estimate", waivers=None)
    file.write_text('[[waive]]\nid = "10"\nreason = "r"\nuntil = 2999-01-01')
    options = {"labels": LABELS, "gates": file}
    said = "there is no gate in it"
    fails(said, assert_compatible, OLD, NEW, **options, of=GateError)
    assert assert_compatible(OLD, NEW, **options, max_nfr=0.06).waived.flips == 1


def test_equivalence_is_asserted_like_a_limit():
    given = {"labels": LABELS, "equivalent": "1%"}
    refuted("FAIL  accuracy shown to change by less than 1 point", OLD, NEW, **given)
    refuted("FAIL  accuracy shown to", OLD, NEW, **given, max_nfr="50%")
    assert assert_compatible(OLD, NEW, labels=LABELS, equivalent=0.5).passed


def test_waived_flips_are_said_to_be():
    waivers = [churn_compare.Waiver("11", "known", "2999-01-01")]
    given = {"labels": LABELS, "max_nfr": 0, "waivers": waivers}
    lines = refuted("not compatible", OLD, NEW, **given)
    assert "  11: label 3, now 0 (waived)" in lines and "  10: label 2, now 3" in lines


def test_outcomes_are_asserted_by_another_function():
    sides = [{"id": [1, 2], "correct": of} for of in ([1, 0], [0, 1])]
    fails(r"assert compare_outcomes\(old, new", assert_compatible, *sides, max_nfr=0)


def test_slices_and_classes_are_judged():
    slices = {"half": ["first"] * 100 + ["second"] * 100}
    limits = {"labels": LABELS, "slices": slices, "max_class_nfr": "7%"}
    said = "not in 1 of 2: half first 18"
    refuted(said, OLD, NEW, max_slice_churn=0.1, **limits)
    limits["max_slice_churn"] = 0.2
    assert_compatible(OLD, NEW, **limits)
    refuted("no group to judge", OLD, NEW, min_examples=101, **limits)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "no condition to assert; give one, such as max_nfr=0.01"),
        ({"inconclusive": "maybe", "labels": "gone.csv"}, "inconclusive must be"),
        ({"max_nfr": 1}, "max_nfr 1 may mean 1 % or 100 %; write 1% or 100%"),
        ({"max_nfr": None}, "max_nfr must be a number such as 0.02 or 2%; got None"),
        ({"max_nrf": "5%"}, "unknown key 'max_nrf'; did you mean max_nfr?"),
        ({"gates": [Gate("churn", 0.5)], "on": "bound"}, "set on in each gate, or"),
        ({"max_nfr": "5%", "max_slice_nrf": 0.1}, "'max_nrf'; did you mean max_nfr"),
        ({"lables": LABELS}, "no argument 'lables'; did you mean labels"),
        ({"mx_nfr": 0.1}, "no argument 'mx_nfr'; did you mean max_nfr"),
        ({"om": 0.1}, "no argument 'om'; did you mean on"),
    ],
)
def test_a_condition_that_makes_no_sense_is_no_failed_assertion(options, message):
    error = TypeError if message.startswith("no argument") else GateError
    options = {"labels": LABELS} | options
    fails(message, assert_compatible, OLD, NEW, **options, of=error)


def test_the_package_exports_compare():
    result = churn_compare.compare(OLD, NEW, labels=LABELS)
    assert result.passed and result.gates == ()
    assert "compare" in dir(churn_compare)
    with pytest.raises(AttributeError, match="no attribute 'compair'"):
        churn_compare.compair  # noqa: B018


def test_what_is_inconclusive_fails_unless_it_may_pass():
    sides = np.zeros(200, int), 1 * (np.arange(200) % 20 == 0)  # churn of 5 %
    given = {"max_churn": "6%", "on": "interval"}
    refuted("INCONCLUSIVE  interval of churn", *sides, **given)
    found = assert_compatible(*sides, inconclusive="pass", **given)
    assert found.state == "inconclusive" and not found.passed


def test_the_fixture_of_pytest_reports_every_condition(pytester):
    pytester.makepyfile(
        """
        def test_update(model_update):
            model_update([0, 1, 1], [0, 1, 0], labels=[0, 1, 1], max_churn=0.5)
            model_update([0, 1, 1], [0, 1, 0], labels=[0, 1, 1], max_nfr=0.1)
        """
    )
    plugin = ["-p", "churn_compare.pytest_plugin", "-p", "no:xdist"]
    # An installed plugin is loaded before this run could rewrite its assertions.
    plugin += ["-W", "error", "-W", "ignore::pytest.PytestAssertRewriteWarning"]
    done = pytester.inline_run("-q", "--junit-xml=found.xml", *plugin)
    (failed,) = done.getfailures()
    assert "not compatible" in str(failed.longrepr)
    found = (pytester.path / "found.xml").read_text()
    assert 'name="churn at most 50 %" value="PASS  churn at most 50 %: ' in found
    assert 'value="FAIL  negative flip rate at most 10 %' in found
