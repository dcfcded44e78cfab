"""Hashes that are the same everywhere, and spread evenly."""

import hashlib

import numpy as np

from churn_jax.data.tables import Categorical, encoding
from churn_jax.data.tables.encoding import WordRows, mix, share_of, stable_hash


def test_a_hash_is_blake2b_of_the_field_and_the_word():
    digest = hashlib.blake2b("größe\0x".encode(), digest_size=8).digest()
    assert stable_hash("größe", "x") == int.from_bytes(digest, "little")


def test_words_spread_over_all_buckets():
    table = WordRows(Categorical("site", 16), ())
    rows = table.rows([str(i) for i in range(16_000)])
    counts = np.bincount(rows, minlength=16)
    assert (rows.dtype, counts.size) == (np.int32, 16)
    assert np.abs(counts - 1000).max() < 150  # five standard deviations


def test_a_word_keeps_its_row_when_the_cache_is_full(monkeypatch):
    monkeypatch.setattr(encoding, "_CACHED", 3)
    table, words = WordRows(Categorical("site", 10**6), ()), [str(i) for i in range(9)]
    once = table.rows(words)
    assert table.rows(words[::-1]).tolist() == once[::-1].tolist()
    assert len(table._known) <= 3


def test_missing_words_share_a_row():
    hashed = WordRows(Categorical("site", 10**6), ("", "?")).rows(["?", None, "", "a"])
    assert len(set(hashed[:3].tolist())) == 1 and hashed[3] != hashed[0]
    known = Categorical("colour", vocabulary=("red", "blue"))
    rows = WordRows(known, ("?",)).rows(["blue", " red ", "?", None, "green"])
    assert rows.tolist() == [2, 1, 0, 0, 0]


def test_two_fields_do_not_collide_alike():
    words = [str(i) for i in range(500)]
    a, b = (WordRows(Categorical(name, 50), ()).rows(words) for name in "ab")
    assert 0 < np.mean(a == b) < 0.08  # one fiftieth is expected


def test_mix_is_one_to_one_and_even():
    bits = mix(np.arange(100_000))
    assert len(np.unique(bits)) == 100_000
    for share in (0.0, 0.1, 0.75):
        assert abs(share_of(bits, share).mean() - share) < 0.005


def test_mix_is_splitmix64():
    # The first outputs of the generator seeded with 0, as published with it.
    known = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]
    steps = np.arange(3, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    assert mix(steps).tolist() == known
