import collections

import jax.numpy as jnp
import numpy as np
import pytest

from churn_jax import metrics
from churn_jax.comparison import findings as flow_module
from churn_jax.comparison.findings import class_flow
from tests.comparison.random_pairs import pair_of, random_logits


@pytest.mark.parametrize("held", [0, 10**6])
@pytest.mark.parametrize(("seed", "runs"), [(0, (1, 1)), (1, (2, 3))])
def test_flow_is_that_of_a_loop(seed, runs, held, monkeypatch):
    monkeypatch.setattr(flow_module, "_HELD", held)
    labels, old, new = random_logits(seed, runs)
    flow = class_flow(*pair_of(old, new, labels))
    counts = collections.Counter()
    for a in old.argmax(-1):
        for b in new.argmax(-1):
            for before, now, label in zip(a, b, labels, strict=True):
                if before != now:
                    counts[before, now, "all"] += 1
                    counts[before, now, "negative"] += before == label
                    counts[before, now, "positive"] += now == label
    pairs = runs[0] * runs[1]
    found = {}
    for before, now, *numbers in zip(
        flow.old, flow.new, flow.examples, flow.negative, flow.positive, strict=True
    ):
        for kind, number in zip(("all", "negative", "positive"), numbers, strict=True):
            found[int(before), int(now), kind] = number
    assert found == pytest.approx({k: n / pairs for k, n in counts.items()})
    assert list(flow.examples) == sorted(flow.examples, reverse=True)


def test_flow_sums_to_churn_and_flips():
    labels, old, new = random_logits(2, examples=80)
    flow = class_flow(*pair_of(old, new, labels))
    assert sum(flow.examples) == pytest.approx(
        80 * float(metrics.churn(old[0], new[0]))
    )
    rates = metrics.flip_rates(
        old_logits=old[0], new_logits=new[0], labels=jnp.asarray(labels)
    )
    assert sum(flow.negative) == pytest.approx(80 * float(rates.negative_flip_rate))
    assert sum(flow.positive) == pytest.approx(80 * float(rates.positive_flip_rate))


def test_a_case_by_hand():
    names = ("cat", "dog", "hen")
    pair, scanned = pair_of(
        [[0, 0, 0, 1, 2]], [[1, 1, 2, 0, 2]], [0, 1, 1, 1, 2], class_names=names
    )
    flow = class_flow(pair, scanned)
    assert flow.old == ("cat", "cat", "dog")  # equal counts in the order of classes
    assert flow.new == ("dog", "hen", "cat")
    assert flow.examples == (2, 1, 1)
    assert flow.negative == (1, 0, 1)
    assert flow.positive == (1, 0, 0)


def test_without_labels_directions_have_no_meaning():
    flow = class_flow(*pair_of([[0, 1]], [[1, 1]]))
    assert flow.examples == (1,)
    assert np.isnan([*flow.negative, *flow.positive]).all()


def test_equal_versions_have_an_empty_flow():
    flow = class_flow(*pair_of([[0, 1]], [[0, 1]], [0, 0]))
    assert flow == flow_module.Flow((), (), (), (), ())


def test_only_the_largest_entries_are_kept(monkeypatch):
    monkeypatch.setattr(flow_module, "LARGEST", 2)
    flow = class_flow(*pair_of([[0, 0, 0, 1, 2]], [[1, 2, 2, 2, 1]]))
    assert flow.examples == (2, 1)
    assert (flow.old, flow.new) == (("0", "0"), ("2", "1"))


def test_many_classes_do_not_overflow():
    last = 2**31 - 2
    flow = class_flow(*pair_of([[last, 0]], [[0, last]], [0, 0]))
    assert set(zip(flow.old, flow.new, strict=True)) == {
        (str(last), "0"),
        ("0", str(last)),
    }
