import dataclasses
import math

import pytest

from churn_jax.comparison.group_tables import worst_groups
from churn_jax.comparison.quantities import QUANTITIES
from churn_jax.comparison.report import about
from churn_jax.comparison.result import Interval
from churn_jax.comparison.tables import changes, noise_singles, singles
from churn_jax.documents import Cell
from tests.comparison.results import NONE, fake_result


def with_numbers(result, **numbers):
    return dataclasses.replace(result, quantities={**result.quantities, **numbers})


@pytest.mark.parametrize("labelled", [True, False])
@pytest.mark.parametrize("scored", [True, False])
def test_every_quantity_is_in_one_table(labelled, scored):
    result = fake_result(labelled=labelled, scored=scored)
    changed, single = changes(result), singles(result)
    headings = [quantity.heading for quantity in QUANTITIES.values()]
    assert [row.heading for row in single] == [
        heading for heading in headings if heading in {row.heading for row in single}
    ]
    numbers = len(single) + 3 * len(changed)
    assert numbers == len(result.quantities)
    expected = ["Accuracy", "NLL", "Brier score", "ECE"] if scored else ["Accuracy"]
    assert [row.heading for row in changed] == (expected if labelled else [])


@pytest.mark.parametrize(
    ("change", "word"),
    [
        (Interval(0.02, 0.01, 0.03), "better"),
        (Interval(-0.02, -0.03, -0.01), "worse"),
        (Interval(0.01, -0.01, 0.03), "unclear"),
        (Interval(0.0, 0.0, 0.0), "same"),
        (Interval(0.01, math.nan, math.nan), ""),
    ],
)
def test_a_change_has_a_word(change, word):
    row = changes(with_numbers(fake_result(), accuracy_gain=change))[0]
    assert row.word == word


def test_a_number_of_one_version_alone_is_shown():
    result = fake_result()
    kept = {
        n: q for n, q in result.quantities.items() if n not in ("nll_old", "nll_change")
    }
    row = changes(dataclasses.replace(result, quantities=kept))[1]
    assert (row.heading, row.old, row.word) == ("NLL", Cell("–"), "")
    assert row.new.text == "0.571"


def test_retraining_is_shown_for_the_sides_that_have_runs():
    result = fake_result(runs=2)
    assert [row.heading for row in noise_singles(result.noise)] == [
        "Churn within old",
        "Churn within new",
        "Expected churn",
        "Excess churn",
    ]
    one = dataclasses.replace(result.noise, within_old=NONE)
    headings = [row.heading for row in noise_singles(one)]
    assert headings == ["Churn within new", "Expected churn", "Excess churn"]
    assert noise_singles(None) == []


def group(result, name, gain, adjusted_p, flips):
    rate = Interval(flips, flips, flips)
    return dataclasses.replace(
        result.groups[0],
        name=name,
        accuracy_gain=Interval(gain, gain, gain),
        negative_flip_rate=rate,
        churn=rate,
        adjusted_p=adjusted_p,
    )


def test_groups_that_lose_accuracy_come_first():
    result = fake_result()
    groups = [
        group(result, "gains, few flips", 0.1, 0.001, 0.01),
        group(result, "gains, many flips", 0.1, 1.0, 0.2),
        group(result, "loses, surely", -0.1, 0.01, 0.01),
        group(result, "loses, perhaps", -0.1, 0.5, 0.1),
        group(result, "loses, perhaps, more flips", -0.1, 0.5, 0.2),
    ]
    found = worst_groups(dataclasses.replace(result, groups=tuple(groups)))
    assert [row[0] for row in found[0].rows] == [
        "loses, surely",
        "loses, perhaps, more flips",
        "loses, perhaps",
        "gains, many flips",
        "gains, few flips",
    ]
    nan = math.nan
    unlabelled = [
        dataclasses.replace(g, accuracy_old=nan, accuracy_gain=NONE, adjusted_p=nan)
        for g in groups
    ]
    result = dataclasses.replace(fake_result(labelled=False), groups=tuple(unlabelled))
    rates = [float(row[2].split()[0]) for row in worst_groups(result)[0].rows]
    assert rates == sorted(rates, reverse=True)


def test_what_was_compared_is_one_line():
    result = fake_result(classes=3, examples=1)
    assert about(result) == "1 example; both: logits, 1 run, 3 classes"
    names = dataclasses.replace(result.old, name="a\nb")
    assert str(dataclasses.replace(result, old=names)).startswith("a b -> ")
