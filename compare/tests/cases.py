"""Files, predictions and comparisons that tests make, and calls that fail."""

import csv
import functools
import json

import numpy as np
import pytest

from churn_compare.comparison import compare_pair
from churn_compare.display import CompareResult
from churn_compare.estimates import Groups, all_examples
from churn_compare.example_numbers import Numbers, class_estimates, class_numbers
from churn_compare.gates import Gate
from churn_compare.groups import measured
from churn_compare.noise import noise_of
from churn_compare.pair import Pair, Scanned, ScannedSide, Table
from churn_compare.result import Interval, Measured
from churn_compare.scanning import scan
from churn_compare.store import PredictionsError

NAN = float("nan")
NONE = Interval(NAN, NAN, NAN)
GATES = (Gate("churn", 0.05), Gate("churn", 0.99, "max", "bound"))


def fails(message, call, *given, of=PredictionsError, **options):
    """Asserts that a call raises an error `of` a type with this message of one line."""
    with pytest.raises(of, match=message) as error:
        call(*given, **options)
    assert "\n" not in str(error.value)


def csv_file(path, **columns) -> str:
    """The path of a file with these columns, as text."""
    with open(path, "w", newline="") as file:
        rows = zip(*columns.values(), strict=True)
        csv.writer(file, lineterminator="\n").writerows([columns, *rows])
    return str(path)


def jsonl(path, rows):
    """The path of a file with an object per line."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def harness(right, filters=("strict", "flexible"), **more):
    """Rows of lm-evaluation-harness, by filter, of which the last says 1."""
    for name in filters:
        for i, r in enumerate(right):
            worth = 1.0 if name == "flexible" else float(r)
            row = {"doc_id": i, "doc": {}, "target": "x", "resps": [["?"]]}
            row |= {"filtered_resps": [str(worth)], "filter": name, "metrics": ["em"]}
            yield row | {"prompt_hash": f"h{i}", "em": worth} | more


def random_logits(seed, runs=(1, 1), examples=40, classes=4):
    """Labels `[N]` and the logits `[R, N, C]` of two versions that often agree."""
    generator = np.random.default_rng(seed)
    labels = generator.integers(0, classes, examples)
    shared = 1.5 * np.eye(classes)[labels] + generator.normal(size=(examples, classes))
    sides = (
        (shared + generator.normal(size=(r, examples, classes))).astype(np.float32)
        for r in runs
    )
    return labels, *sides


def reference(old, new, labels):
    """All that needs predicted classes only, over pairs of runs in float64."""
    out = {}
    for a in old:
        for b in new:
            right, now = a == labels, b == labels
            changed = a != b
            negative, positive = np.mean(right & ~now), np.mean(~right & now)
            union = np.union1d(a, b)
            chance = sum(np.mean(a == c) * np.mean(b == c) for c in union)
            numbers = {
                "accuracy_old": right.mean(),
                "accuracy_new": now.mean(),
                "accuracy_gain": now.mean() - right.mean(),
                "churn": changed.mean(),
                "kappa": (1 - changed.mean() - chance) / (1 - chance),
                "negative_flip_rate": negative,
                "positive_flip_rate": positive,
                "relative_negative_flip_rate": negative
                / (right.mean() * (1 - now.mean())),
                "backward_trust_compatibility": np.mean(now[right]),
                "backward_error_compatibility": np.mean(~right[~now]),
                "good_churn": np.mean((~right & now)[changed]),
                "bad_churn": np.mean((right & ~now)[changed]),
                "neutral_churn": np.mean((~right & ~now)[changed]),
            }
            for name, number in numbers.items():
                out.setdefault(name, []).append(number)
    return {name: np.mean(numbers) for name, numbers in out.items()}


def groups_of(scanned, labels, group, count, clusters=None):
    """Name to `Intervals` of every group of examples, and the groups' p."""
    groups = Groups(np.asarray(group), count, clusters)
    numbers = class_numbers(scanned, labels)
    return numbers.intervals(groups), numbers.p(groups)


def intervals(scanned, labels, clusters=None, **options):
    """All numbers of all examples, with their intervals."""
    every = all_examples(scanned.old.predicted.shape[1], clusters, 0.95)
    return class_estimates(scanned, class_numbers(scanned, labels), every, **options)


def noise(scanned, clusters=None):
    """The churn between runs of one version, and the excess of an update."""
    every = all_examples(scanned.old.predicted.shape[1], clusters, 0.95)
    return noise_of(class_numbers(scanned, None), every)


def p_of(scanned, labels, clusters=None):
    """Of "both versions are equally accurate"."""
    return groups_of(scanned, labels, np.zeros(len(labels), int), 1, clusters)[1][0]


def estimate(measure, clusters=None) -> Measured:
    """All numbers of a measure without groups."""
    numbers, every = Numbers(measure), all_examples(measure.examples, clusters, 0.95)
    pair = Pair(Table("old"), Table("new"), np.arange(measure.examples), 0)
    return Measured(**measured(numbers, every, pair)[0])


def class_scan(old, new) -> Scanned:
    """What a pass keeps of predicted classes, `[N]` or `[R, N]` of each version."""
    sides = (ScannedSide(np.atleast_2d(np.asarray(x, np.int32))) for x in (old, new))
    return Scanned(*sides)


def pair_of(old, new, labels=None, kinds=None, **fields) -> tuple[Pair, Scanned]:
    """The pair and what a pass over it keeps; `old` and `new` as in `random_logits`.

    Whole numbers `[R, N]` are predicted classes.
    """
    kinds = kinds or ["logits" if np.ndim(v) == 3 else "classes" for v in (old, new)]
    old, new = (
        Table(name, kind, np.asarray(values), runs=tuple(range(len(values))))
        for name, kind, values in zip(("old", "new"), kinds, (old, new))
    )
    classes = max(old.classes, new.classes)
    if labels is not None:
        labels = np.asarray(labels)
        classes = max(classes, int(labels.max(initial=-1)) + 1)
    ids = np.asarray(fields.pop("ids", np.arange(old.examples)))
    pair = Pair(old, new, ids, classes, labels=labels, **fields)
    return pair, scan(pair)


@functools.cache
def result_of(*, runs=1, labelled=True, scored=True, names=None) -> CompareResult:
    """A version against one that is more accurate and too sure of itself."""
    classes, examples = 10, 2000
    labels, old, new = random_logits(0, (runs, runs), examples, classes)
    new = 2 * (new + 0.5 * np.eye(classes, dtype=np.float32)[labels])
    if not scored:
        old, new = old.argmax(-1), new.argmax(-1)
    regions = np.array([f"region {i * 7 % 5}" for i in range(examples)])
    pair, scanned = pair_of(
        old,
        new,
        labels if labelled else None,
        class_names=names or tuple(f"class {c}" for c in range(classes)),
        slices={"region": regions},
        ids=np.array([f"image-{i:05}" for i in range(examples)]),
    )
    return compare_pair(pair, gates=GATES, resamples=100, scanned=scanned)
