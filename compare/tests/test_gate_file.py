"""Gates as they are written in a file."""

import datetime
import re

import numpy as np
import pytest

from churn_compare import Gate, GateError, compare, compare_outcomes, compare_versions
from churn_compare.gates import as_gates, read_gates, read_waivers
from churn_compare.result import Waiver
from tests.cases import fails

EVERYTHING = """
on = "bound"
min-examples = 30
max-churn = "5%"
max-nfr = {limit = 0.01, on = "estimate"}
min-accuracy_gain = -0.005
max-excess-churn = 0

[slices]
max-churn = 0.1

[slices.region]
min-examples = 10
max-churn = 0.2
[slices.region."north west"]
on = "estimate"
max-churn = 0.3

[classes]
max-nfr = {limit = "2 %", min-examples = 5}
[classes.7]
max-nfr = 0.03
"""


def written(tmp_path, text):
    path = tmp_path / "gates.toml"
    path.write_text(text)
    return path


def test_a_file_says_what_it_says(tmp_path):
    some = {"on": "bound", "min_examples": 30}
    nfr = "negative_flip_rate"
    assert read_gates(written(tmp_path, EVERYTHING)) == (
        Gate("churn", 0.05, **some),
        Gate(nfr, 0.01, min_examples=30),
        Gate("accuracy_gain", -0.005, "min", **some),
        Gate("excess_churn", 0.0, **some),
        Gate("churn", 0.1, grouping="*", **some),
        Gate("churn", 0.2, on="bound", grouping="region", min_examples=10),
        Gate("churn", 0.3, grouping="region", group="north west", min_examples=10),
        Gate(nfr, 0.02, on="bound", grouping="class", min_examples=5),
        Gate(nfr, 0.03, grouping="class", group="7", **some),
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("max-chrun = 0.1", "max-chrun: unknown key 'max-chrun'; did you mean"),
        ("zzz = 0.1", "keys begin with max- or min-"),
        ("[slices.region]\nmax-nrf = 0.1", "slices.region.max-nrf: unknown key"),
        ("[slices]\nmax-kappa = 0.1", "slices.max-kappa: no quantity 'kappa'"),
        ("[classes.7]\nmax-nfr = 'x'", "classes.7.max-nfr: the limit must be a number"),
        ("max-nfr = true", "max-nfr: the limit must be a number such as 0.02 or 2%"),
        ("max-nfr = '1_0%'", "must be a number such as 0.02 or 2%; got '1_0%'"),
        ("max-nfr = '٣%'", "must be a number such as 0.02 or 2%; got '٣%'"),
        ("max-nfr = nan", "max-nfr: the limit must be a number"),
        (f"max-nfr = 1{'0' * 400}", "max-nfr: the limit must be a number"),
        ("max-nfr = 2", "max-nfr: the limit of negative_flip_rate must lie"),
        ("max-nfr = 1", "max-nfr: the limit 1 may mean 1 % or 100 %; write 1% or 100%"),
        ("[slices]\nmin-accuracy-gain = -1.0", "write -1% or -100%"),
        ("equivalent = '1'", "write 1% or 100%"),
        ("max-nfr = {on = 'bound'}", "max-nfr: a gate needs a limit"),
        ("[slices]\nmax-nfr = {on = 'bound'}", "slices.max-nfr: a gate needs a limit"),
        ("max-nfr = {limit = 0.1, of = 1}", "max-nfr: unknown key 'of'"),
        ("max-nfr = {limit = 0.1, om = 'bound'}", "unknown key 'om'; keys are limit"),
        ("on = 'top'\nmax-nfr = 0.1", 'on must be "estimate" or "bound" or'),
        ("min-examples = 0\nmax-nfr = 0.1", "min-examples must be a count"),
        ("[slice]\nmax-nfr = 0.1", "unknown table 'slice'; did you mean slices?"),
        ("max-nfr = 0.1\n[on]\nmax-churn = 0.1", "unknown table 'on'; tables are"),
        ("slices = 3", "slices must be a table, [slices]; got 3"),
        ("", "there is no gate in it, such as max-churn = 0.05"),
        ("on = 'bound'", "there is no gate in it"),
        ("max-nfr = 0.1\n[classes]\non = 'bound'", "there is no gate in classes, such"),
        ("max-nfr = 0.1\n[slices.region.north]", "no gate in slices.region.north"),
        ("max-nfr = = 1", "not a TOML file"),
        ("max-nfr = 0.1\nmax-nfr = 0.2", "not a TOML file"),
    ],
)
def test_a_wrong_entry_is_named(tmp_path, text, message):
    path = written(tmp_path, text)
    fails(f"^{path}: .*{re.escape(message)}", read_gates, path, of=GateError)


def test_a_file_that_is_none_is_said_to_be_none(tmp_path):
    fails("there is no such file", read_gates, tmp_path / "no.toml", of=GateError)
    fails("it is a folder", read_gates, tmp_path, of=GateError)
    (tmp_path / "latin.toml").write_bytes(b"# \xe9\nmax-nfr = 0.1")
    fails("not a TOML file", read_gates, tmp_path / "latin.toml", of=GateError)


def test_gates_are_given_as_they_come(tmp_path):
    gates = (Gate("churn", 0.1), Gate("kappa", 0.5, "min"))
    path = written(tmp_path, "max-churn = 0.1\nmin-kappa = 0.5")
    named = {"max_churn": "10%", "min-kappa": 0.5}
    for given in (gates, list(gates), iter(gates), path, str(path), named):
        assert as_gates(given) == gates
    assert as_gates(()) == as_gates({}) == as_gates(None) == ()
    assert as_gates(gates[0]) == gates[:1]
    fails("not a waiver: .*; write Waiver", compared, {"id": "3"}, of=GateError)
    fails("not a gate: 'max-churn'; write Gate", as_gates, ["max-churn"], of=GateError)
    fails("classes is a table; in Python", as_gates, {"classes": {}}, of=GateError)
    fails("unknown key 'churn'; did you mean", as_gates, {"churn": 0.1}, of=GateError)


LABELS = np.zeros(100, int)
OLD = np.zeros(100, int)
HALF = {"half": ["first"] * 50 + ["second"] * 50}
NEW = (np.arange(100) < 10).astype(int)  # 10 negative flips
LATER = (datetime.date.today() + datetime.timedelta(days=1)).isoformat()
BEFORE = (datetime.date.today() - datetime.timedelta(days=1)).isoformat()
TODAY = datetime.date.today().isoformat()
WAIVE = f'[[waive]]\nid = {{}}\nreason = "known"\nuntil = {LATER}\n'


def compared(*waivers, **options):
    gates = [
        Gate("negative_flip_rate", 0.08),
        Gate("negative_flip_rate", 0.08, grouping="half"),
        Gate("churn", 0.09),
    ]
    given = {"labels": LABELS, "gates": gates, "slices": HALF} | options
    return compare(OLD, NEW, waivers=waivers, **given)


def test_waived_flips_do_not_count_for_gates_on_negative_flips():
    found = compared(Waiver("3", "bad label", LATER), Waiver("5", "known", TODAY))
    today = datetime.datetime.fromisoformat(TODAY)
    padded = compared(Waiver(3, "bad label", LATER), Waiver("5 ", "known", today))
    assert vars(padded.waived.rate) == vars(found.waived.rate)
    assert found["negative_flip_rate"].value == 0.1
    assert found.waived.rate.value == pytest.approx(0.08)
    assert (found.waived.flips, found.waived.all_flips) == (2, 10)
    assert [gate.state for gate in found.gates] == ["pass", "fail", "fail"]
    assert found.gates[1].measured == pytest.approx(8 / 50)  # of 10 / 50
    assert found.groupings["half"][0]["negative_flip_rate"].value == 10 / 50
    fresh = compare(OLD, NEW * (1 - np.isin(np.arange(100), [3, 5])), labels=LABELS)
    assert vars(found.waived.rate) == vars(fresh["negative_flip_rate"])
    said = " ".join(str(found).split())
    waived = f"3 until {LATER} (bad label), 5 until {TODAY} (known)"
    assert f"2 of 10 negative flips are waived: {waived}. Gates judge" in said
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
        "Waivers past their dates and without effect: 3.",
        "Waivers about ids that are not compared: 1000.",
        "Waivers about examples that are not negative flips: 50, 51.",
    )


@pytest.mark.parametrize("kind", ["correct", "score"])
def test_outcomes_that_get_worse_can_be_waived(kind, tmp_path):
    name = {"correct": "nfr", "score": "share-worse"}[kind]
    text = f'max-{name} = "8%"\n[slices.half]\nmax-{name} = "17%"\n'
    path = written(tmp_path, text + "".join(map(WAIVE.format, (3, 5, 70))))
    old, new = ({"id": np.arange(100), kind: 1 - of} | HALF for of in (OLD, NEW))
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
    assert "2 of 10" in said and "without them, 8 %" in said
    assert "instead of 10 % (6 to 17 %)." in said
    assert "not negative flips: 70." in said
    sides = ({"id": [1], "answer": ["a"]}, {"id": [1], "answer": ["b"]})
    waived = {"waivers": [Waiver("1", "r", LATER)], "of": GateError}
    fails("can be better or worse; give", compare_outcomes, *sides, **waived)


def test_a_file_has_waivers_next_to_gates(tmp_path):
    text = 'max-nfr = "9%"\n' + WAIVE.format(3)
    path = written(tmp_path, text)
    assert len(read_gates(path)) == 1
    assert read_waivers(path) == (Waiver("3", "known", LATER),)
    assert compare(OLD, NEW, labels=LABELS, gates=path).passed
    for name, values in (("v1", OLD), ("v2", NEW), ("v3", NEW)):
        np.save(tmp_path / f"{name}.npy", values)
    more = [Waiver("70", "known", LATER)]
    found = compare_versions(tmp_path, labels=LABELS, gates=path, waivers=more)
    assert found.passed and found.steps[0].waived.flips == 1
    (said,) = [note for note in found.notes if "negative flip" in note]
    assert said.endswith("that are not negative flips: 70.")  # 3 is one of a step
    path.write_text(text.replace(LATER, BEFORE))
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
    path = written(tmp_path, f"max-churn = 1\n[[waive]]\n{text}")
    fails(message, read_waivers, path, of=GateError)
    path.write_text("waive = 3")
    fails(r"must be written \[\[waive\]\]", read_waivers, path, of=GateError)


def test_waivers_need_labels_and_are_there_once(tmp_path):
    waivers = [Waiver("3", "r", LATER)]
    fails("no labels", compare, OLD, NEW, waivers=waivers, of=GateError)
    path = written(tmp_path, WAIVE.format(3) + WAIVE.format('"3 "'))
    fails("'3' is waived twice", read_waivers, path, of=GateError)
    fails("until must be a date", Waiver, "3", "r", "31.12.1999", of=ValueError)
