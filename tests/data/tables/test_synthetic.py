"""Clicks drawn on the fly: entered anywhere, with the planted truth."""

import numpy as np
import pytest

from churn_jax.data.splits import DataError
from churn_jax.data.tables import SyntheticClicks, synthetic_clicks


def equal(a, b):
    return all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))


@pytest.mark.parametrize("holdout", [0.0, 0.3])
def test_a_stream_continues_where_it_is_entered(holdout):
    stream = synthetic_clicks(70_000, 3, 40, holdout=holdout)
    whole = list(stream.windows(5000))
    for at in (1, 4, len(whole) - 1):
        again = stream.windows(5000, start=whole[at].first)
        assert all(equal(*pair) for pair in zip(whole[at:], again, strict=True))


def test_parts_make_up_the_whole():
    both = synthetic_clicks(20_000, 2, 40, holdout=0.25)
    parts = {
        part: np.concatenate(
            [w.keys[w.mask > 0] for w in both.windows(999, part=part)]  # type: ignore
        )
        for part in ("train", "holdout")
    }
    assert sorted(np.concatenate(list(parts.values()))) == list(range(20_000))
    assert abs(len(parts["holdout"]) / 20_000 - 0.25) < 0.02
    assert {p: both.count(p) for p in parts} == {p: len(k) for p, k in parts.items()}
    without = synthetic_clicks(20_000, 2, 40)
    assert list(without.windows(10, part="holdout")) == []
    assert (without.count(), without.count("holdout")) == (20_000, 0)


def test_the_share_of_clicks_is_the_rate_and_follows_the_planted_chance():
    clicks = SyntheticClicks(10**9, (100, 1000), rate=0.2, signal=2.0)
    keys = np.arange(10**8, 10**8 + 40_000)
    chance, labels = clicks.probability(keys), clicks.examples(keys).labels
    assert abs(labels.mean() - 0.2) < 0.02
    for low, high in ((0.0, 0.1), (0.1, 0.4), (0.4, 1.0)):
        inside = (low <= chance) & (chance < high)
        error = np.sqrt((chance * (1 - chance))[inside].sum()) / inside.sum()
        assert abs(labels[inside].mean() - chance[inside].mean()) < 4 * error
    odds = np.log(chance / (1 - chance))
    assert 1.2 < odds.std() < 2.8  # a weight is drawn once per word: few words, noise


def test_neighbouring_fields_interact_and_others_do_not():
    clicks = SyntheticClicks(10, (9,) * 4, numeric=0)

    def interaction(f, g):
        ids = np.zeros((4, 4), int)
        ids[1::2, f] = ids[2:, g] = 1
        neither, one, other, both = clicks.signal_of(ids, np.zeros((4, 0)))
        return neither - one - other + both

    assert min(abs(interaction(f, (f + 1) % 4)) for f in range(4)) > 1e-3
    assert interaction(0, 2) == pytest.approx(0, abs=1e-12)


def test_words_follow_zipfs_law():
    ids = SyntheticClicks(50_000, (1000,)).examples(np.arange(50_000)).ids[:, 0]
    counts = np.bincount(ids, minlength=1000) / 50_000
    expected = np.log((np.arange(1000) + 2) / (np.arange(1000) + 1)) / np.log(1001)
    assert (ids.min(), ids.max() < 1000) == (0, True)
    assert np.abs(counts - expected)[:10].max() < 0.01
    assert abs(counts[100:].sum() - expected[100:].sum()) < 0.01


def test_the_seed_changes_everything_and_the_fingerprint_says_so():
    a, b = (synthetic_clicks(1000, 2, 40, seed=seed) for seed in (0, 1))
    one, other = next(a.windows(1000)), next(b.windows(1000))
    assert (one.ids != other.ids).mean() > 0.5
    assert a.fingerprint != b.fingerprint
    assert a.fingerprint == synthetic_clicks(1000, 2, 40).fingerprint


def test_tables_may_differ_in_size():
    assert synthetic_clicks(10, 2, (7, 9)).schema.sizes == (7, 9)
    with pytest.raises(DataError, match="one per field; got 2 for 3 fields"):
        synthetic_clicks(10, 3, (7, 9))


@pytest.mark.parametrize(
    "wrong", [{"rate": 0.0}, {"holdout": 1.0}, {"numeric": -1}, {"fields": 0}]
)
def test_impossible_streams_are_refused(wrong):
    with pytest.raises(DataError, match="got"):
        synthetic_clicks(10, **{"fields": 2, **wrong})
