"""What a comparison says in sentences, of numbers given by hand."""

import math
import types

import pytest

from churn_compare.display import CompareResult
from churn_compare.report import terms
from churn_compare.result import (
    Clusters,
    Flow,
    GateOutcome,
    Group,
    Interval,
    Noise,
    Version,
)
from churn_compare.tables import step_table
from churn_compare.verdict import gate_sentence, sentences
from tests.cases import NAN, NONE

QUANTITIES = {
    "accuracy_old": Interval(0.912, 0.9, 0.923),
    "accuracy_new": Interval(0.918, 0.907, 0.93),
    "accuracy_gain": Interval(0.006, 0.002, 0.01),
    "churn": Interval(0.042, 0.039, 0.045),
    "negative_flip_rate": Interval(0.011, 0.008, 0.014),
    "positive_flip_rate": Interval(0.017, 0.014, 0.02),
}


def result_of(runs=(1, 1), quantities=None, **fields):
    """A labelled comparison with the numbers above, some of them changed."""
    old, new = (Version(n, "logits", r, 3, 1000) for n, r in zip("ab", runs))
    fields = {"p": 0.0031, "runs": runs} | fields
    found = QUANTITIES | (quantities or {})
    flow, numbers = Flow(*[()] * 5), {"level": 0.95, "quantities": found}
    return CompareResult(old, new, 1000, flow, **numbers, **fields)


def test_what_a_labelled_comparison_says():
    assert sentences(result_of()) == (
        "The update changes 4.2 % of predictions (95 % interval 3.9 to 4.5 %).",
        "1.1 % (0.8 to 1.4 %) of all examples were right and are wrong now; "
        "1.7 % (1.4 to 2.0 %) were wrong and are right now.",
        "Accuracy rises by 0.6 points, from 91.2 % to 91.8 % "
        "(+0.2 to +1.0; exact McNemar p = 0.0031).",
    )
    near = result_of(within=Interval(0.006, -0.0496, 0.03), equivalent=0.05)
    ends = "(90 % interval -5 to +3, exactly -4.96 points)."
    assert sentences(near)[-1].endswith(f"by less than 5 points {ends}")
    first, _, third = sentences(result_of((5, 3)))
    assert first.endswith(", on average over 15 pairs of runs (5 old, 3 new).")
    assert third.endswith("; sign-flip p = 0.0031).")


@pytest.mark.parametrize(
    ("runs", "fields", "test"),
    [
        ((1, 1), {"kind": "correct"}, "exact McNemar"),
        ((2, 2), {"kind": "correct"}, "sign-flip"),
        ((2, 2), {"clusters": Clusters(9, 2, NAN, NAN)}, "clusters' sign-flip"),
    ],
)
def test_the_test_has_one_name(runs, fields, test):
    found = result_of(runs, **fields)
    assert f"{test} p = 0.0031)." in sentences(found)[2]
    assert f"p ({test} test)" in [term.name for term in terms([found])]
    facts = {"whole": found, "labelled": True, "level": 0.95}
    versions = types.SimpleNamespace(steps=[found], **facts)
    assert f"p: {test} test of" in step_table(versions, [""]).caption


@pytest.mark.parametrize(
    ("gain", "start"),
    [
        ((-0.006, -0.01, -0.002), "Accuracy falls by 0.6 points"),
        ((0.001, -0.003, 0.005), "Accuracy does not change detectably"),
        ((0.006, NAN, NAN), "Accuracy goes from 91.20 % to 91.80 %"),
    ],
)
def test_accuracy_changes_only_where_the_interval_says_so(gain, start):
    said = sentences(result_of(quantities={"accuracy_gain": Interval(*gain)}))[2]
    assert said.startswith(start)


def test_nothing_changes():
    nothing = Interval(0.0, 0.0, 0.004)
    names = ("churn", "negative_flip_rate", "positive_flip_rate")
    churn, flips, _ = sentences(result_of(quantities=dict.fromkeys(names, nothing)))
    assert churn == "The update changes no prediction (95 % interval 0.00 to 0.40 %)."
    assert flips == (
        "No example that was right is wrong now (interval 0.00 to 0.40 %); "
        "none was wrong and is right now."
    )


def test_probabilities_are_judged_where_they_change():
    better, worse = Interval(-0.02, -0.03, -0.01), Interval(0.03, 0.02, 0.04)
    changes = {"nll_change": better, "ece_change": worse}
    *_, nll, ece = sentences(result_of(quantities=changes))
    assert nll == (
        "Probabilities of the labels get better: NLL falls by 0.020 (-0.030 to -0.010)."
    )
    assert ece.startswith("Calibration gets worse: ECE rises by 0.030")
    unclear = {"nll_change": Interval(0.0, -0.01, 0.01)}
    assert len(sentences(result_of(quantities=unclear))) == 3
    infinite = dict.fromkeys(("nll_new", "nll_change"), Interval(math.inf, NAN, NAN))
    infinite["kl_divergence"] = Interval(math.inf, NAN, NAN)
    *_, nll, kl = sentences(result_of(quantities=infinite))
    assert nll == (
        "The new version gives some label a probability of 0 or a logit 5,000 below "
        "the highest, so its NLL is infinite."
    )
    assert kl.endswith("the old one does not, so the KL divergence is infinite.")


WITHIN = Interval(0.039, 0.036, 0.042)
MORE = Interval(0.012, 0.008, 0.016)
FEW = "; there are too few runs to test the update against that."
MUCH = ": the update's churn is 1.2 points "
SURE, UNSURE = " {}; p < 0.05).", " {}; p = 0.12)."
SAME = ": the update's churn is not detectably different from that, "
OF_RUN = "Retraining the old version alone changes 3.9 % (3.6 to 4.2 %) of predictions"


def noise_said(runs, excess, p, **more):
    several = [WITHIN if count > 1 else NONE for count in runs]
    return sentences(result_of(runs, noise=Noise(*several, WITHIN, excess, p, **more)))


@pytest.mark.parametrize(
    ("excess", "p", "end"),
    [
        ((0.003, -0.001, 0.007), 0.12, SAME + "+0.3 points (-0.1 to +0.7" + UNSURE),
        ((0.003, 0.001, 0.005), 0.12, SAME + "+0.30 points (+0.10 to +0.50" + UNSURE),
        ((0.012, 0.008, 0.016), 0.05, MUCH + "more than that (+0.8 to +1.6" + SURE),
        ((-0.012, -0.016, -0.008), 0.05, MUCH + "less than that (-1.6 to -0.8" + SURE),
        ((0.012, 0.008, 0.016), NAN, FEW),
    ],
)
def test_churn_is_compared_with_retraining(excess, p, end):
    *_, last = noise_said((2, 1), Interval(*excess), p)
    assert last == OF_RUN + end.format("for this run")
    *_, last = noise_said((2, 2), Interval(*excess), p)
    assert last.startswith("Retraining the same version alone")
    assert "for this run" not in last and "detectably different" not in last


def test_where_retraining_cannot_be_tested_the_reason_is_said():
    ends = {
        (2, 2): FEW,
        (3, 3): "; runs disagree on too few examples to test the update against that.",
    }
    for runs, end in ends.items():
        assert noise_said(runs, MORE, NAN)[-1].endswith(end)
    decided = noise_said((3, 3), MORE, NAN, one_run=True)[-1]
    assert "; one run decides how much more the update changes" in decided
    assert noise_said((3, 3), MORE, 0.01)[-1].endswith("p < 0.01).")
    *_, unclear = noise_said((3, 3), MORE, 0.12)
    assert "is not detectably more than that, +1.2 points (" in unclear
    caveat = "Runs differ by more than the examples explain"
    assert noise_said((3, 3), MORE, 0.01, of_runs=0.7)[-1].startswith(caveat)
    assert caveat not in " ".join(noise_said((3, 3), MORE, 0.01, of_runs=0.3))


def group(name, gain, p, grouping="class"):
    rate = Interval(0.1, 0.05, 0.15)
    gain = Interval(gain, gain - 0.01, gain + 0.01)
    # Before Holm's correction any p is small: only the adjusted one may decide.
    numbers = {"accuracy_gain": gain, "churn": rate, "negative_flip_rate": rate}
    return Group(grouping, name, 100, numbers, p / 100, p)


def test_groups_that_get_worse_are_named():
    groups = [group("cat", -0.1, 0.01), group("dog", -0.2, 0.001)]
    groups += [group("hen", 0.2, 0.001), group("cow", -0.1, 0.2)]
    groups += [group("north", -0.1, 0.3, "region"), group("", 0.1, 0.3, "region")]
    groups += [group("alone", -0.1, 0.001, "column")]
    *_, classes, regions = sentences(result_of(groups=tuple(groups)))
    assert classes == (
        "Accuracy falls detectably in 2 of 4 classes (Holm-adjusted p below 0.05): "
        "dog, cat."
    )
    assert regions == "Accuracy falls detectably in none of the 2 values of region."
    many = tuple(group(f"class {i}", -0.1, i / 1000) for i in range(6))
    *_, last = sentences(result_of(groups=many))
    assert last.endswith("below 0.05): class 0, class 1, class 2 and 3 more.")


def test_gates_are_counted_and_the_worst_state_is_that_of_all():
    open_ = "INCONCLUSIVE: the limit of {} lies within its interval."
    for states, sentence in (
        ("", ""),
        ("pass", "PASSED: the gate holds."),
        ("fail", "FAILED: the gate does not hold."),
        ("pass pass", "PASSED: all 2 gates hold."),
        ("pass fail", "FAILED: 1 of 2 gates does not hold."),
        ("fail fail pass", "FAILED: 2 of 3 gates do not hold."),
        ("inconclusive", open_.format("the gate")),
        ("pass inconclusive", open_.format("1 of 2 gates")),
        (
            "fail fail inconclusive",
            "FAILED: 2 of 3 gates do not hold, 1 more inconclusive.",
        ),
    ):
        gates = tuple(
            GateOutcome("g", "", 1.0, 1.0, s == "pass", "g", s) for s in states.split()
        )
        result = result_of(gates=gates)
        assert gate_sentence(result.gates) == sentence
        state = next((s for s in ("fail", "inconclusive") if s in states), "pass")
        assert (result.state, result.passed) == (state, state == "pass")
