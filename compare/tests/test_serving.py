"""Serving two versions together: rules by hand, what is chosen, its certificate."""

import json

import numpy as np
import pytest

from churn_compare import Rule, apply, compare, repair, serving, size
from churn_compare.cli import main
from churn_compare.outcomes import noise_floor
from churn_compare.serving import Candidate, frontier
from tests.cases import csv_file, fails


def versions(examples, seed, classes=5):
    """Logits of two versions that agree on what is hard and differ by noise."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, classes, examples)
    base = 3 * np.eye(classes)[labels] + 1.2 * rng.normal(size=(examples, classes))
    ids = np.arange(examples) + 10**6 * seed
    half = np.array(["north", "south"])[ids % 2]
    return tuple(
        {"id": ids, "labels": labels, "half": half, "logits": base + noise}
        for noise in rng.normal(size=(2, examples, classes)) * [[[0.7]], [[0.6]]]
    )


def test_rules_by_hand():
    old, new = np.array([[3.0, 0.0], [0.0, 1.0]]), np.array([[0.0, 1.0], [2.0, 0.0]])
    for rule, served in (
        (Rule(), [1, 0]),
        (Rule("blend", weight=0.5), [0, 0]),
        (Rule("blend", weight=0.5, temperatures=(6.0, 1.0)), [1, 0]),
        # Top probabilities: .953 and .731 before, .731 and .881 now.
        (Rule("surer", margin=0.1), [0, 0]),
        (Rule("surer", margin=0.2), [0, 1]),
        (Rule("surer", margin=-0.3), [1, 0]),
        (Rule("keep", groups=("1",)), [0, 0]),
        (Rule("keep", groups=("cat",), class_names=("cat", "dog")), [1, 1]),
        (Rule("keep", column="half", groups=("b",)), [1, 1]),
    ):
        found = apply(rule, old, new, ["a", "b"])
        assert found.argmax(-1).tolist() == served, rule
        np.testing.assert_allclose(np.exp(found).sum(-1), 1, rtol=1e-6)
    both = apply(Rule("blend", weight=0.25, temperatures=(2.0, 1.0)), old, new)
    mixed = 0.25 * old / 2 + 0.75 * new  # up to a constant of each example
    np.testing.assert_allclose(np.diff(both), np.diff(mixed), rtol=1e-6)
    of_floats = Rule("keep", column="half", groups=("2",))  # as repair reads them
    assert apply(of_floats, old, new, [2.0, np.nan]).argmax(-1).tolist() == [0, 0]
    for rule, given, message in (
        (Rule("keep", column="half", groups=("b",)), new, "needs the groups of 'half'"),
        (Rule(), new[:1], r"\[N, C\]; got \(2, 2\) and \(1, 2\)"),
        (Rule(), np.nan * new, "logits must not be NaN or infinite"),
    ):
        fails(message, apply, rule, old, given, of=ValueError)


def test_groups_without_a_value_have_a_name_in_the_text_of_a_rule():
    text = Rule("keep", column="region", groups=("north", "")).text
    assert text == "the old version on region north, (none), else new"


def test_rules_that_make_no_sense_are_refused():
    for settings, message in (
        ({"kind": "nonsense"}, "kind must be one of new, blend, surer, keep; got 'non"),
        ({"weight": 1.5}, "weight must lie between 0 and 1"),
        ({"groups": "cat"}, "groups must be several texts; got 'cat'"),
        ({"groups": (1, 2)}, r"groups must be several texts; got \(1, 2\)"),
        ({"class_names": ("a", 2)}, "class_names must be several texts"),
        ({"temperatures": (0.0, 1.0)}, "temperatures must be two numbers above 0"),
    ):
        fails(message, Rule, **settings, of=ValueError)


def test_a_repair_is_what_its_rule_serves_on_the_test_examples(tmp_path):
    validation, test = versions(1500, 1), versions(2000, 2)
    found = repair(*test, validation=validation, gates={"max_nfr": "3%"})
    assert found.passed and found.both == 1
    old, new = (side["logits"] for side in test)
    served, labels = apply(found.rule, old, new).argmax(-1), test[0]["labels"]
    was, alone, now = (of == labels for of in (old.argmax(-1), new.argmax(-1), served))
    nfr = np.mean(was & ~now)
    assert found.served["negative_flip_rate"].value == pytest.approx(nfr)
    assert found.flips_avoided.value == pytest.approx(np.mean(was & ~alone) - nfr)
    assert found.flips_avoided.low > 0
    assert found.accuracy_change.value == pytest.approx(now.mean() - alone.mean())
    assert found.accuracy_change.high > 0
    shipped = compare(*({k: of[k] for k in ("id", "labels", "logits")} for of in test))
    assert found.shipped.quantities == shipped.quantities
    path = tmp_path / "rule.json"
    path.write_text(found.rule.to_json())
    assert Rule.load(path) == found.rule
    assert json.loads(json.dumps(found.to_dict()))["passed"]
    assert "As served" in str(found) and found.rule.text in found.markdown()
    path.write_text("{}")
    fails("not a rule that `repair` wrote", Rule.load, path)


def test_a_group_that_got_worse_keeps_the_old_version():
    splits = []
    for seed in (1, 2):
        old, new = versions(2000, seed)
        worse = (new["half"] == "north")[:, None]
        noise = np.random.default_rng(seed).normal(size=new["logits"].shape)
        logits = np.where(worse, new["logits"] + 1.5 * noise, old["logits"])
        for side, of in ((old, old["logits"]), (new, logits)):
            side["predictions"] = of.argmax(-1)
            del side["logits"]
        splits.append((old, new))
    found = repair(*splits[1], validation=splits[0], by=["half"])
    groups = {"groups": ("north",), "known": ("north", "south")}
    assert found.rule == Rule("keep", column="half", **groups)
    both = np.eye(5)[[0, 1]], np.eye(5)[[2, 3]]
    served = [apply(found.rule, *both, of) for of in (["north ", "?"], ["", None])]
    assert [of.argmax(-1).tolist() for of in served] == [[0, 3], [2, 3]]
    said = "half is North here and was north, south in what repair read"
    fails(said, apply, found.rule, *both, ["North", "North"], of=ValueError)
    assert apply(found.rule, *(of[:1] for of in both), ["East"]).argmax() == 2
    assert found.served["churn"].value == 0 and found.both == 0
    assert "slices (column half)" in found.shipped.read[0]
    assert "an example runs one version, by its group" in " ".join(found.verdict())


def test_chance_is_certified_no_gain(monkeypatch):
    # Errors of both versions are independent of everything: no rule helps. The reports
    # of both are not looked at.
    monkeypatch.setattr(serving, "compare_pair", lambda *_, **__: None)
    certified, trials = 0, 60
    for trial in range(trials):
        splits = []
        for seed in (2 * trial + 1, 2 * trial + 2):
            rng = np.random.default_rng(seed)
            labels = rng.integers(0, 4, 600)
            ids = np.arange(600) + 10**6 * seed
            sides = []
            for _ in range(2):
                wrong = rng.random(600) < 0.2
                predicted = np.where(wrong, (labels + 1) % 4, labels)
                sides.append({"id": ids, "labels": labels, "predictions": predicted})
            splits.append(sides)
        found = repair(*splits[1], validation=splits[0])
        certified += found.accuracy_change.low > 0
    assert certified <= 4  # 2.5 % of 60; more in 2 %


def test_candidates_that_another_beats_are_not_listed():
    tried = [
        Candidate(Rule(), 0.1, accuracy, flips, 0.0)
        for flips, accuracy in ((3, 0.9), (1, 0.8), (2, 0.8), (4, 0.9), (2, 0.85))
    ]
    found = [(of.negative_flip_rate, of.accuracy) for of in frontier(tried)]
    assert found == [(1, 0.8), (2, 0.85), (3, 0.9)]


def test_what_is_refused():
    validation, test = versions(300, 1), versions(300, 2)
    given = {"validation": validation, "of": ValueError}
    fails("loss 1 may mean 1 % or 100 %", repair, *test, loss="1", **given)
    for loss in ("-5%", "30"):
        fails("loss must lie between 0 and 1, got", repair, *test, loss=loss, **given)
    fails("300 examples are in the validation", repair, *test, validation=test)
    unlabelled = [{k: v for k, v in of.items() if k != "labels"} for of in test]
    fails("there are no labels", repair, *unlabelled, validation=validation)
    few = [of | {"labels": ["", *of["labels"][1:].astype(str)]} for of in test]
    fails("not all examples have labels", repair, *few, validation=validation)
    several = [of | {"logits": np.stack([of["logits"]] * 2)} for of in test]
    fails("2 runs; give the one that", repair, *several, validation=validation)
    fails("different classes", repair, *test, validation=versions(300, 1, classes=6))
    shifted = [of | {"labels": (of["labels"] + 1) % 5} for of in validation]
    said = "is right on .* by chance it would .* add --confirm below-chance"
    fails(said, repair, *test, validation=shifted)
    few = shifted[0], {name: values[:200] for name, values in shifted[1].items()}
    given = {"validation": few, "confirm": "below-chance", "on_missing": "intersect"}
    text = " ".join(str(repair(*test, **given)).split())
    assert "Validation: 200 examples; Test: 300 examples" in text
    assert "Validation: 100 of 300 ids are only in old" in text
    assert "Validation: Confirmed: old is right on" in text
    fails(said, size, *shifted)
    fails(said, noise_floor, *shifted)
    floor = noise_floor(*shifted, confirm="below-chance")
    assert "Confirmed: predictions is right on" in floor.notes[0]
    turned = [of | {"class_names": [*"abcde"[::s]]} for of, s in zip(test, (1, -1))]
    turned = [of | {"labels": np.array([*"abcde"])[of["labels"]]} for of in turned]
    said = "same order in both .* add a column prediction to both and --kind classes"
    fails(said, repair, *turned, **given)
    plain = [
        {"labels": of["labels"], "predictions": of["logits"].argmax(-1)} for of in test
    ]
    fails("in both the validation and", repair, *plain, validation=validation)
    fails("the validation files are the test", repair, *plain, validation=plain)
    keep = Rule("keep", column="half", groups=("north",))
    logits = [of["logits"] for of in test]
    fails(r"be \[300\]; got 1", apply, keep, *logits, ["north"], of=ValueError)


def test_one_impossible_label_does_not_decide_a_temperature():
    validation, test = versions(300, 1), versions(300, 2)
    rule = repair(*test, validation=validation).rule
    validation[1]["logits"][0, validation[1]["labels"][0]] = -np.inf
    found = repair(*test, validation=validation).rule.temperatures
    assert found == pytest.approx(rule.temperatures, rel=0.05)


def test_a_blend_of_versions_certain_of_other_classes_is_what_was_judged():
    rng = np.random.default_rng(0)
    labels, ids = rng.integers(4, size=(2, 1000)), np.arange(2000).reshape(2, -1)
    guess = rng.integers(4, size=(2, 2, 1000))
    found = np.where(rng.random(guess.shape) < 0.8, labels, guess)
    validation, test = (
        [{"id": i, "labels": y, "probs": np.eye(4)[c]} for c in of]
        for i, y, of in zip(ids, labels, found.swapaxes(0, 1), strict=True)
    )
    repaired = repair(*test, validation=validation, loss="5%")
    assert repaired.rule.kind == "blend"
    with np.errstate(divide="ignore"):
        served = apply(repaired.rule, *(np.log(of["probs"]) for of in test))
    assert np.isfinite(served).all()
    right = np.mean(served.argmax(-1) == labels[1])
    assert right == pytest.approx(repaired.served["accuracy_new"].value)


def test_the_command(tmp_path, capsys):
    names = []
    for split, seed in (("v", 1), ("t", 2)):
        for version, side in zip(("old", "new"), versions(400, seed), strict=True):
            logits = {f"logit_{c}": of for c, of in enumerate(side["logits"].T)}
            columns = {"id": side["id"], "label": side["labels"]} | logits
            names.append(csv_file(tmp_path / f"{version}_{split}.csv", **columns))
    rule = tmp_path / "rule.json"
    words = ["repair", *names[2:], "--validation", *names[:2], "--out", str(rule)]
    assert main([*words, "--max-nfr", "5%"]) == 0
    assert "PASS  negative flip rate" in capsys.readouterr().out
    assert Rule.load(rule).kind != "new"
    repaired = tmp_path / "repair.txt"
    assert main([*words, "--max-nfr", "0.001%", "--json", str(repaired)]) == 1
    flips = json.loads(repaired.read_text())["served"]["regressions"]
    more = 'reason = "known"\nuntil = 2999-01-01'
    waived = [f'[[waive]]\nid = "{flip["id"]}"\n{more}' for flip in flips]
    (tmp_path / "gates.toml").write_text("\n".join(["max-nfr = 0.00001", *waived]))
    limits = ["--gates", str(tmp_path / "gates.toml")]
    assert main([*words, *limits]) == 0
    assert main(["size", *names[2:], *limits]) == 2
    assert "leave the waivers out" in capsys.readouterr().err
    rule.write_text(Rule().to_json().replace('"new"', '"blnd"'))
    fails("not a rule that `repair` wrote .kind must be .*'blnd'", Rule.load, rule)
    assert main(["repair", *names[2:]]) == 2
    assert "needs OLD, NEW, --validation" in capsys.readouterr().err
    assert main([*words[:-1], names[0]]) == 2
    for once in (["size", names[3]], ["repair", *names[2:], "--validation", names[0]]):
        assert main([*once, once[-1]]) == 2
        assert "old and new are the same file" in capsys.readouterr().err
