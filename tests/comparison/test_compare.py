"""What `compare` hands on to the parts that do the work."""

import numpy as np
import pytest

from churn_jax.comparison.compare import compare

LABELS = np.arange(40) % 3
FEW = {"resamples": 100}


def runs(seed, count):
    """Predicted classes of a few runs; one in four is drawn at random."""
    rng = np.random.default_rng(seed)
    drawn = rng.integers(3, size=(count, len(LABELS)))
    return np.where(rng.random(drawn.shape) < 0.25, drawn, LABELS)


def test_each_side_may_be_of_its_own_kind():
    probabilities = np.full((40, 2), 0.5)
    logits = np.zeros((40, 2))
    result = compare(
        probabilities, logits, old_kind="probabilities", new_kind="logits", **FEW
    )
    assert (result.old.kind, result.new.kind) == ("probabilities", "logits")


def test_the_level_is_that_of_every_interval():
    old, new = runs(0, 3), runs(1, 3)
    slices = {"half": ["a"] * 20 + ["b"] * 20}
    gates = {"max_churn": 1, "max_slice_churn": 1}
    found = {
        level: compare(
            old, new, labels=LABELS, slices=slices, gates=gates, level=level, **FEW
        )
        for level in (0.5, 0.95)
    }
    narrow, wide = found[0.5], found[0.95]
    pairs = [(narrow[name], wide[name]) for name in ("churn", "accuracy_gain", "kappa")]
    pairs += [(narrow.noise.excess, wide.noise.excess)]
    pairs += [(a.churn, b.churn) for a, b in zip(narrow.groups, wide.groups)]
    for inner, outer in pairs:
        assert inner.value == outer.value
        assert outer.low < inner.low < inner.high < outer.high
    for level, result in found.items():
        for outcome in result.gates:
            assert f"({100 * level:g} % interval " in outcome.line


def test_the_seed_is_that_of_the_bootstrap():
    rng = np.random.default_rng(0)
    old, new = rng.normal(size=(2, 40, 3))
    kinds = {"kind": "logits", "labels": LABELS}
    first, again, other = (
        compare(old, new, seed=seed, **kinds, **FEW)["surrogate_churn"]
        for seed in (0, 0, 1)
    )
    assert first == again
    assert first.value == other.value and first.low != other.low


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"level": 1.0}, "level must lie between 0 and 1"),
        ({"resamples": 99}, "resamples must be at least 100"),
        ({"seed": -1}, "seed must be at least 0"),
    ],
)
def test_settings_that_make_no_sense_are_refused(setting, message):
    with pytest.raises(ValueError, match=message):
        compare([0, 1], [0, 1], **setting)
