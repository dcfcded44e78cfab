"""What `compare` hands on to the parts that do the work."""

import re

import numpy as np
import pyarrow as pa
import pytest

from churn_compare.comparison import compare, compare_outcomes
from churn_compare.reading.account import DOUBTS
from churn_compare.reading.join import read_pair
from churn_compare.verdict import sentences
from tests.cases import csv_file, fails

LABELS = np.arange(40) % 3
FEW = {"resamples": 100}


def runs(seed, count):
    """Predicted classes of a few runs; one in four is drawn at random."""
    rng = np.random.default_rng(seed)
    drawn = rng.integers(3, size=(count, len(LABELS)))
    return np.where(rng.random(drawn.shape) < 0.25, drawn, LABELS)


def runs_of_two_versions(moved):
    """`[3, 400, 4]` logits of a version and of one fine-tuned from its runs."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 4, 400)
    shared = 3 * np.eye(4)[labels] + 1.5 * rng.normal(size=(400, 4))
    old = shared + 2 * rng.normal(size=(3, 400, 4))
    return old, old + moved * rng.normal(size=old.shape), labels


def test_identical_files_with_several_runs_differ_in_nothing():
    old, new, labels = runs_of_two_versions(0.0)
    result = compare(old, new, labels=labels, **FEW)
    assert result["churn"].value == 0 and result["churn"].high < 0.02
    assert result["accuracy_gain"].value == result["nll_change"].value == 0
    assert result.flow.old == () and result.regressions_total == 0
    assert np.isnan(result.noise.p)
    assert any("Runs 0, 1, 2 are each compared only" in note for note in result.notes)
    assert "on average over 3 pairs of runs of the same name" in sentences(result)[0]
    rows = {"id": [*range(400)] * 3, "prediction": old.argmax(axis=2).ravel()}
    sides = [pa.table({**rows, "run": np.repeat([*of], 400)}) for of in ("abc", "xyz")]
    assert not compare(*sides, labels=labels, **FEW).paired
    result = compare(*sides[:1] * 2, labels=labels, **FEW)
    assert any("Runs a, b, c are each compared only" in note for note in result.notes)


def test_runs_that_go_together_are_compared_one_by_one():
    old, new, labels = runs_of_two_versions(0.3)
    result = compare(old, new, labels=labels, **FEW)
    each = [compare(a, b, labels=labels, **FEW) for a, b in zip(old, new)]
    assert result.paired and result.run_pairs == 3
    for name in ("churn", "kappa", "negative_flip_rate", "accuracy_new", "nll_change"):
        mean = np.mean([one[name].value for one in each])
        assert result[name].value == pytest.approx(mean), name
        assert result[name].low < mean < result[name].high
    mean = np.mean([one["surrogate_churn"].value for one in each])
    assert result["surrogate_churn"].value == pytest.approx(mean)
    assert sum(result.flow.examples) == pytest.approx(400 * result["churn"].value)
    for k, group in enumerate(result.groups):
        of_runs = [one.groups[k] for one in each]
        for part in ("churn", "negative_flip_rate", "accuracy_gain"):
            mean = np.mean([one[part].value for one in of_runs])
            assert group[part].value == pytest.approx(mean)
    excess = result["churn"].value - result.noise.expected.value
    assert result.noise.excess.value == pytest.approx(excess)


def test_the_level_is_that_of_every_interval():
    old, new = runs(0, 3), runs(1, 3)
    slices = {"half": ["a"] * 20 + ["b"] * 20}
    gates = {"max_churn": 0.99, "max_slice_churn": 0.99}
    options = {"labels": LABELS, "slices": slices, "gates": gates} | FEW
    found = {at: compare(old, new, level=at, **options) for at in (0.5, 0.95)}
    narrow, wide = found[0.5], found[0.95]
    pairs = [(narrow[name], wide[name]) for name in ("churn", "accuracy_gain", "kappa")]
    pairs += [(narrow.noise.excess, wide.noise.excess)]
    pairs += [(a["churn"], b["churn"]) for a, b in zip(narrow.groups, wide.groups)]
    for inner, outer in pairs:
        assert inner.value == outer.value
        assert outer.low < inner.low < inner.high < outer.high
    for level, result in found.items():
        for outcome in result.gates:
            assert f"({100 * level:g} % interval " in outcome.line


@pytest.mark.parametrize("side", ["old", "new"])
def test_a_relative_nfr_that_is_undefined_fails_its_gate(side):
    """No new prediction is wrong, or no old one was right."""
    sides = {"old": (LABELS + (np.arange(40) < 5)) % 3, "new": LABELS}
    if side == "old":
        sides = {"old": (LABELS + 1) % 3, "new": sides["old"]}
    gates = {"max_relative_nfr": 5}
    options = {"gates": gates, "confirm": ["below-chance"], **FEW}
    found = compare(*sides.values(), labels=LABELS, **options)
    assert np.isnan(found["relative_negative_flip_rate"].value)
    assert not found.passed and "not defined" in found.gates[0].line


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"level": 1.0}, "level must lie between 0 and 1"),
        ({"level": 0.5, "equivalent": "1%", "labels": [0, 1]}, "level above 0.5; got"),
        ({"level": "0.95"}, "level must lie between 0 and 1; got '0.95'"),
        ({"resamples": 99}, "resamples must be at least 100"),
        ({"seed": -1}, "seed must be at least 0"),
        ({"regressions": -1}, "regressions must be at least 0; got -1"),
        ({"regressions": 2.5}, "regressions must be an integer; got 2.5"),
    ],
)
def test_settings_that_make_no_sense_are_refused(setting, message):
    fails(message, compare, [0, 1], [0, 1], **setting, of=ValueError)
    if "regressions" in setting:
        scores = {"score": [0, 1]}, {"score": [1, 1]}
        fails(message, compare_outcomes, *scores, **setting, of=ValueError)


def test_decisions_count_next_to_scores(tmp_path, rng):
    shares = rng.beta(1, 2, size=(3, 300))
    labels = (rng.random(300) < shares.mean(axis=0)).astype(int)
    scores = np.stack([1 - shares, shares], axis=2)
    decided = {"old": (shares > 0.3).astype(int), "new": (shares > 0.4).astype(int)}
    plain = compare(*decided.values(), labels=labels, **FEW)
    alone = compare(scores, scores, kind="probabilities", labels=labels, **FEW)
    count = int((decided["old"] != scores.argmax(axis=2)).sum())
    said = f"decision of {count} of 900 examples (in all runs) is not the most probable"
    of_scores = ("nll_new", "brier_old", "ece_old", "ece_change", "surrogate_churn")
    names = np.array(["no", "yes"])
    runs, called, columns = [], [], []
    for name, of in decided.items():
        runs.append({"probs": scores, "predictions": of})
        turn = slice(None, None, -1 if name == "old" else 1)  # classes in another order
        turned = {"probs": scores[..., turn], "class_names": names[turn]}
        called.append(turned | {"predictions": names[of]})
        (run, ids), rows = np.indices((3, 300)), rng.permutation(900)
        table = {"run": run, "id": ids, "pred": of}
        table |= {f"prob_{c}": scores[..., c] for c in (0, 1)}
        table = {column: values.ravel()[rows] for column, values in table.items()}
        columns.append(csv_file(tmp_path / f"{name}.csv", **table))
    truths = labels, names[labels], dict(enumerate(labels))
    for sides, truth in zip((runs, called, columns), truths):
        found = compare(*sides, labels=truth, **FEW)
        for name in ("churn", "negative_flip_rate", "accuracy_old", "accuracy_new"):
            assert found[name].value == pytest.approx(plain[name].value), name
        assert found["churn"].value > 0 == alone["churn"].value
        for name in of_scores:
            assert found[name].value == pytest.approx(alone[name].value, abs=1e-6), name
        curves = (of.curves["old"].accuracy for of in (found, alone))
        np.testing.assert_allclose(*curves)
        confident = {r.old_confidence for r in found.regressions}
        assert any(map(np.isnan, confident))
        assert said in " ".join(found.read)
        assert "read: " in found.read[0]


def test_decisions_in_another_order_than_the_scores_are_refused():
    names = {"prob_eel": [0.8, 0.1, 0.1], "prob_ant": [0.1, 0.8, 0.8]}
    table = {"id": range(3), "prediction": [1, 0, 0], **names}
    said = "3 of 3 sampled decisions .* --confirm decisions"
    fails(said, compare, table, table, **FEW)
    found = compare(table, table, confirm=["decisions"], **FEW)
    assert "Confirmed: old: 3 of 3" in found.notes[0]
    table["prediction"] = ["eel", "ant", "ant"]
    assert len(compare(table, table, **FEW).read) == 1


@pytest.mark.parametrize("truth", ["the capital is city", "It is city"])
def test_free_text_is_refused_with_the_column_that_compares_it(truth):
    table = {"output": [f"The capital is City {i}" for i in range(40)]}
    table |= {"target": [f"{truth} {i}" for i in range(40)]}
    fails("texts.* column answer.*--confirm", compare, table, table, **FEW)


def test_the_label_column_is_that_of_separate_labels():
    table = {"id": range(4), "target": [0, 1, 1, 0]}
    labels = {"id": range(4), "target": [0, 1, 1, 1], "fold": [0, 0, 1, 1]}
    options = {"prediction_column": "target", "labels": labels}
    for named in ({}, {"label_column": "target"}):
        found = compare(table, table, **options, **named, **FEW)
        assert found["accuracy_new"].value == 0.75
        pair = read_pair(table, table, **options, **named)  # as of `size` and `repair`
        assert pair.labels.tolist() == [0, 1, 1, 1]
    both = {"prediction_column": "target", "label_column": "target"}
    fails("column target is named for two roles", compare, table, table, **both)


def test_columns_that_options_use_count_as_read():
    table = {"id": range(4), "pred": [0, 1, 1, 0], "user": [0, 0, 1, 1]}
    table |= {"class": [0, 1, 0, 1], "text": ["x", "y", "z", "w"]}
    table |= {"part": ["a", "b", "a", "b"], "label": [0, 1, 1, 1]}
    options = {"clusters": "user", "label_column": "label"} | FEW
    found = compare(table, table, by=["part"], **options)
    assert found.read == (
        "Both: read: id, label, prediction (array pred), clusters (column user), "
        "slices (column part); left out: class, text.",
    )
    assert compare(table, table, by="part", **options).read == found.read
    fails("column class cannot group", compare, table, table, by=["class"], **options)
    both = table | {"part (a)": table["part"]}, table
    named = compare(*both, by=["part (a)"], **options)
    assert [group.examples for group in named.groups[-2:]] == [2, 2]
    found = compare(table, table | {"part": [*"aabb"]}, by=["part"], **options)
    assert "for 2 of 4 examples; that of old is taken" in str(found.notes)


def _named(seed, classes=("cat", "dog", "eel"), examples=60):
    rng = np.random.default_rng(seed)
    labels = np.array(classes)[np.arange(examples) % len(classes)]
    drawn = rng.choice(classes, examples)
    return labels, np.where(rng.random(examples) < 0.8, labels, drawn)


FOREIGN = {"cat": "Katze", "dog": "Hund", "eel": "Aal"}


def _scored(more, labels, *sides):
    """Scores of the classes of both sides, and a column that is of none."""
    classes = ["cat", "dog", "eel"]
    names = [0, 1, 2] if more == "norm" else classes
    truth = np.searchsorted(classes, labels) if more == "norm" else labels
    for side in sides:
        scores = np.eye(3)[np.searchsorted(classes, side)] + 0.01
        columns = {f"logit_{name}": of for name, of in zip(names, scores.T)}
        top = scores.max(axis=1) + 0.02 * (more != "max")
        yield columns | {f"logit_{more}": top, "label": truth}


def _lacking(text, labels, *sides):
    label = np.where(labels == "eel", text, labels)
    return [{"pred": of, "label": label} for of in sides]


def _with_labels_of_changed(labels, *sides):
    given = np.where(sides[0] != sides[1], np.array(labels, str), "")
    return [{"pred": np.array(side, str), "label": given} for side in sides]


DOUBTFUL = {
    "no class of the other": (
        "below-chance",
        "on 0 of 60 .* predicts Aal, Hund, Katze, and labels are cat, dog, eel: ",
        lambda labels, old, new: ([FOREIGN[name] for name in old], new),
    ),
    "neither side is right": (
        "below-chance",
        "old is right on 0 of 60 examples, .* new is right on 0 of 60 examples",
        lambda labels, old, new: ([FOREIGN[n] for n in old], [FOREIGN[n] for n in new]),
    ),
    "one class of another name": (
        "renamed-classes",
        "old never predicts 'eel', the label of 20 examples, and predicts 'Aal', which",
        lambda labels, old, new: (np.where(old == "eel", "Aal", old), new),
    ),
    "a class that is typed in another way": (
        "renamed-classes",
        "each version never predicts 'Aal', the label of . examples, and predicts",
        lambda labels, *of: _with_labels_of_changed(
            [FOREIGN[n] if n == "eel" else n for n in labels], *of
        ),
    ),
    "no class in both": (
        "renamed-classes",
        "no class is predicted by both versions, so their names may differ: write",
        lambda *of: [{"pred": [*pair] * 30} for pair in ("ab", ("cat", "dog"))],
    ),
    "probabilities": (
        "logits",
        "old: logits are at least 0 and sum to one; are they probabilities",
        lambda *of: [{"logits": np.full((9, 2), 0.5)}] * 2,
    ),
    "texts": (
        "many-classes",
        "there are 6. different classes in 60 examples, so they may be texts",
        lambda labels, old, new: ([f"{i} {n}" for i, n in enumerate(old)], new),
    ),
}
OF_SCORES = {
    "norm": "old: norm has scores, and all other classes are numbers; .* leave its col",
    "max": "several classes have the highest score in 60 of 60 rows, mostly 'max'",
    "sum": "new: 'sum' has the highest score in 60 of 60 rows and is never a label",
}
for more, said in OF_SCORES.items():
    DOUBTFUL[more] = "score-columns", said, lambda *of, more=more: _scored(more, *of)
for text in ("NA", r"\N"):  # of R and of MySQL
    said = f"{re.escape(repr(text))} is a label and never a .* is none: leave it empty"
    DOUBTFUL[text] = "missing-labels", said, lambda *of, text=text: _lacking(text, *of)


@pytest.mark.parametrize("case", DOUBTFUL)
def test_classes_that_are_hardly_those_of_the_labels_need_a_confirmation(case):
    name, message, change = DOUBTFUL[case]
    labels, old = _named(0)
    old, new = change(labels, old, _named(1)[1])
    options = FEW if isinstance(old, dict) else {"labels": labels, **FEW}
    fails(f"{message}.*--confirm {name}|{name}$", compare, old, new, **options)
    result = compare(old, new, confirm=DOUBTS, **options)
    assert any(note.startswith("Confirmed: ") for note in result.notes)
    typed = f"no version predicts these labels: {FOREIGN['eel']} ("
    assert (typed in str(result.notes)) == ("typed" in case)
    if name == "renamed-classes" and "typed" not in case:  # scores tell all classes
        compare(new, new, labels=labels, **FEW)


@pytest.mark.parametrize(("classes", "examples"), [(3, 20), (5, 60), (100, 2000)])
def test_numbers_from_1_in_place_of_0_are_doubted(rng, classes, examples):
    labels, wrong = rng.integers(0, classes, (2, examples))
    new = np.where(rng.random(examples) < 0.85, labels, wrong)
    for old in (new + 1, (new + 1) % classes):
        said = "old is right on .* --confirm below"
        fails(said, compare, old, new, labels=labels, **FEW)


@pytest.mark.parametrize(
    ("classes", "examples", "right"),
    [(1000, 2000, 0.6), (100, 300, 0.3), (10, 20, 0.8), (2, 20, 0.5), (3, 5, 0.0)],
)
def test_honest_classes_are_not_doubted(classes, examples, right):
    for seed in range(3):
        rng = np.random.default_rng(seed)
        share = 1 / np.arange(1, classes + 1)
        labels, *wrong = rng.choice(classes, (3, examples), p=share / share.sum())
        sides = [np.where(rng.random(examples) < right, labels, of) for of in wrong]
        compare(*sides, labels=labels, **FEW)
        compare(*_with_labels_of_changed(labels, *sides), **FEW)


def test_a_rare_class_and_ties_are_not_doubted():
    rare = np.where(np.arange(400) < 9, "rare", "usual")  # which nobody predicts
    compare(["usual"] * 400, ["usual"] * 400, labels=rare, **FEW)
    tied = {"prob_a": [0.5, 0.5, 0.9], "prob_b": [0.5, 0.5, 0.1], "label": [*"aaa"]}
    assert compare(tied, dict(reversed(tied.items())), **FEW)["churn"].value == 0
