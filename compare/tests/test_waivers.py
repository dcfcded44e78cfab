"""Waivers: what gates do not count, and which have no effect."""

import datetime

import numpy as np
import pytest

from churn_compare import Gate, GateError, compare, compare_outcomes, compare_versions
from churn_compare.gates import read_gates, read_waivers
from churn_compare.result import Waiver

LABELS = np.zeros(100, int)
OLD = np.zeros(100, int)
NEW = (np.arange(100) < 10).astype(int)  # 10 negative flips
LATER = (datetime.date.today() + datetime.timedelta(days=1)).isoformat()
BEFORE = (datetime.date.today() - datetime.timedelta(days=1)).isoformat()
TODAY = datetime.date.today().isoformat()


def compared(*waivers, **options):
    gates = [
        Gate("negative_flip_rate", 0.08),
        Gate("negative_flip_rate", 0.08, grouping="half"),
        Gate("churn", 0.09),
    ]
    half = {"half": ["first"] * 50 + ["second"] * 50}
    given = {"labels": LABELS, "gates": gates, "slices": half} | options
    return compare(OLD, NEW, waivers=waivers, **given)


def test_waived_flips_do_not_count_for_gates_on_negative_flips():
    found = compared(Waiver("3", "bad label", LATER), Waiver("5", "known", TODAY))
    assert found["negative_flip_rate"].value == 0.1
    assert found.waived.rate.value == pytest.approx(0.08)
    assert (found.waived.flips, found.waived.all_flips) == (2, 10)
    assert [gate.state for gate in found.gates] == ["pass", "fail", "fail"]
    assert found.gates[1].measured == pytest.approx(8 / 50)  # of 10 / 50
    assert found.groupings["half"][0]["negative_flip_rate"].value == 10 / 50
    fresh = compare(OLD, NEW * (1 - np.isin(np.arange(100), [3, 5])), labels=LABELS)
    assert vars(found.waived.rate) == vars(fresh["negative_flip_rate"])
    said = " ".join(str(found).split())
    assert "2 of 10 negative flips are waived: 10 % (6 to 17 %) with and 8 %" in said
    assert f"3 until {LATER} (bad label), 5 until {TODAY} (known)." in said
    assert found.to_dict()["waived"]["waivers"][0]["id"] == "3"


def test_what_has_no_effect_is_noted():
    found = compared(
        Waiver("3", "was known", BEFORE),
        Waiver("1000", "elsewhere", LATER),
        Waiver("50", "right now", LATER),
        Waiver("51", "right now", LATER),
    )
    assert found.waived.waivers == () and found.waived.flips == 0
    assert found.gates[0].measured == 0.1
    assert found.notes[-3:] == (
        "A waiver is past its date and without effect: 3.",
        "A waiver is about an id that is not compared: 1000.",
        "2 waivers are each about an example that is no negative flip: 50, 51.",
    )


@pytest.mark.parametrize("kind", ["correct", "score"])
def test_outcomes_that_get_worse_can_be_waived(kind, tmp_path):
    path = tmp_path / "gates.toml"
    name = {"correct": "nfr", "score": "share-worse"}[kind]
    text = f'max-{name} = "8%"\n[slices.half]\nmax-{name} = "17%"\n'
    waive = '[[waive]]\nid = {}\nreason = "known"\nuntil = {}\n'
    path.write_text(text + "".join(waive.format(i, LATER) for i in (3, 5, 70)))
    half = ["first"] * 50 + ["second"] * 50
    old, new = (
        {"id": np.arange(100), kind: worth, "half": half}
        for worth in (1 - OLD, 1 - NEW)
    )
    found = compare_outcomes(old, new, by=["half"], gates=path)
    measure = found[kind]
    assert measure.waived.rate.value == 0.08 and measure.waived.flips == 2
    assert [w.id for w in measure.waived.waivers] == ["3", "5"]
    assert [gate.measured for gate in found.gates] == [0.08, 8 / 50]
    assert found.passed and measure[measure.worse].value == 0.1
    fresh = {**new, kind: 1 - NEW * ~np.isin(np.arange(100), [3, 5])}
    same = compare_outcomes(old, fresh)[kind]
    assert vars(measure.waived.rate) == vars(same[same.worse])
    said = " ".join(str(found).split())
    assert "2 of 10" in said and "are waived: 10 % (6 to 17 %) with and 8 %" in said
    assert "no negative flip: 70." in said
    with pytest.raises(GateError, match="nothing says what"):
        sides = ({"id": [1], "answer": ["a"]}, {"id": [1], "answer": ["b"]})
        compare_outcomes(*sides, waivers=[Waiver("1", "r", LATER)])


def test_a_file_has_waivers_next_to_gates(tmp_path):
    path = tmp_path / "gates.toml"
    text = 'max-nfr = "9%"\n[[waive]]\nid = 3\nreason = "bad label"\nuntil = {}\n'
    path.write_text(text.format(LATER))
    assert len(read_gates(path)) == 1
    assert read_waivers(path) == (Waiver("3", "bad label", LATER),)
    assert compare(OLD, NEW, labels=LABELS, gates=path).passed
    for name, values in (("v1", OLD), ("v2", NEW)):
        np.save(tmp_path / f"{name}.npy", values)
    found = compare_versions(tmp_path, labels=LABELS, gates=path)
    assert found.passed and found.steps[0].waived.flips == 1
    path.write_text(text.format(BEFORE))
    assert not compare(OLD, NEW, labels=LABELS, gates=path).passed


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('id = 3\nuntil = "2030-01-01"', "waiver 1: a waiver needs reason"),
        ('id = 3\nreason = " "\nuntil = 2030-01-01', "waiver 1: a waiver needs reason"),
        ('reason = "r"', "waiver 1: a waiver needs id and until"),
        ('id = 3\nreason = "r"\nuntil = "soon"', "until must be a date such as"),
        ('id = 3\nreasn = "r"', "unknown key 'reasn'; did you mean reason"),
    ],
)
def test_a_wrong_waiver_is_named(tmp_path, text, message):
    path = tmp_path / "gates.toml"
    path.write_text(f"max-churn = 1\n[[waive]]\n{text}")
    with pytest.raises(GateError, match=message):
        read_waivers(path)
    path.write_text("waive = 3")
    with pytest.raises(GateError, match=r"must be written \[\[waive\]\]"):
        read_waivers(path)


def test_waivers_need_labels_and_are_there_once(tmp_path):
    with pytest.raises(GateError, match="no labels"):
        compare(OLD, NEW, waivers=[Waiver("3", "r", LATER)])
    path = tmp_path / "gates.toml"
    one = f'[[waive]]\nid = 3\nreason = "r"\nuntil = {LATER}\n'
    path.write_text(f"max-churn = 1\n{one}{one}")
    with pytest.raises(GateError, match="'3' is waived twice"):
        read_waivers(path)
