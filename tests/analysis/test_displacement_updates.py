"""Errors, flips and ranks of flips by the size of ensembles, against plain loops."""

import itertools

import jax
import numpy as np
import pytest

from churn_jax.analysis import er_nfr_by_ensemble_size, flip_rank_counts, mixed_sides

KEY = jax.random.key(5)


def updates(old, new, labels, size):
    """`(ER old, ER new, NFR)` of every pair of ensembles, by loops."""
    found = []
    for a in itertools.combinations(range(len(old)), size):
        for b in itertools.combinations(range(len(new)), size):
            was = old[list(a)].mean(0).argmax(-1) == labels
            now = new[list(b)].mean(0).argmax(-1) == labels
            found.append((1 - was.mean(), 1 - now.mean(), (was & ~now).mean()))
    return found


def rounded(rows):
    return {tuple(row) for row in np.round(rows, 9)}


def test_rates_are_those_of_pairs_of_ensembles(rng):
    labels = rng.integers(0, 4, 30)
    old, new = rng.normal(size=(2, 3, 30, 4)) + np.eye(4)[labels]
    sizes = {"sizes": (1, 2, 3), "draws": 80, "key": KEY}
    found = er_nfr_by_ensemble_size(old, new, labels, **sizes)
    for s, size in enumerate(found.sizes):
        parts = (found.old_error, found.new_error, found.negative_flip_rate)
        drawn = np.stack([x[s] for x in parts], axis=-1)
        assert rounded(drawn) == rounded(updates(old, new, labels, size))
    chance = (1 - found.old_error) * found.new_error
    np.testing.assert_allclose(
        found.relative_negative_flip_rate * chance, found.negative_flip_rate
    )


def test_larger_ensembles_of_one_kind_flip_less(rng):
    labels = rng.integers(0, 5, 300)
    common = 1.2 * np.eye(5)[labels] + 0.5 * rng.normal(size=(300, 5))
    networks = common + rng.normal(size=(32, 300, 5))
    sizes = {"sizes": (1, 4, 16), "draws": 20, "key": KEY}
    found = er_nfr_by_ensemble_size(networks, None, labels, **sizes)
    means = found.negative_flip_rate.mean(axis=1)
    assert means[0] > 1.3 * means[1] and means[1] > 1.3 * means[2] > 0


def test_where_nothing_can_flip_the_relative_rate_is_not_a_number():
    networks = np.tile([[5.0, 0.0]], (2, 3, 1))
    found = rates(networks, np.zeros(3, int))
    assert np.isnan(found.relative_negative_flip_rate).all()
    assert not found.negative_flip_rate.any()


def test_ranks_are_those_of_every_negative_flip(rng):
    labels = rng.integers(0, 4, 40)
    old, new = rng.normal(size=(2, 2, 40, 4)) + np.eye(4)[labels]
    counts = flip_rank_counts(old, new, labels, size=2, draws=2, key=KEY)
    wanted = np.zeros(4, int)  # size 2 of 2 networks: every draw is the same update
    was, now = old.mean(0), new.mean(0)
    for n, label in enumerate(labels):
        wrong = now[n].argmax()
        if was[n].argmax() == label != wrong:
            wanted[np.sum(was[n] > was[n, wrong])] += 2
    np.testing.assert_array_equal(counts, wanted)
    assert counts.sum() > 0 and counts[0] == 0


def test_both_sides_of_a_mixture_have_the_same_rows_and_share_no_network(rng):
    rows = [rng.normal(size=(runs, 3, 2)) for runs in (2, 5, 4)]
    old, new = mixed_sides(rows)
    np.testing.assert_array_equal(old, np.concatenate([r[: len(r) // 2] for r in rows]))
    wanted = [r[len(r) // 2 : 2 * (len(r) // 2)] for r in rows]
    np.testing.assert_array_equal(new, np.concatenate(wanted))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: mixed_sides([np.ones((2, 3))]), "at least 2 rows"),
        (lambda: mixed_sides([np.ones((2, 3)), np.ones((1, 3))]), "(1, 3)"),
        (lambda: mixed_sides([np.ones((2, 3)), np.ones((2, 4))]), "(2, 4)"),
        (lambda: rates(np.ones((4, 3, 2)), np.zeros(2, int)), "(2,)"),
        (lambda: rates(np.ones((4, 3)), np.zeros(3, int)), "[R, N, C]"),
        (lambda: rates(np.ones((4, 3, 2)), np.zeros(3, int), sizes=(1, 3)), "got 3"),
    ],
)
def test_bad_input_is_told(call, message):
    with pytest.raises(ValueError) as error:
        call()
    assert message in str(error.value)


def rates(networks, labels, sizes=(1,)):
    return er_nfr_by_ensemble_size(
        networks, None, labels, sizes=sizes, draws=1, key=KEY
    )
