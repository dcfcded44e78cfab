"""Rows of files: every number of 16 bits, and mapped files that leave memory."""

import importlib
from pathlib import Path

import numpy as np
import pytest

from churn_compare import store
from tests.results import pair_of

# The package has a function of the same name.
scan_module = importlib.import_module("churn_compare.scanning.scan")


def scores(seed, shape, dtype=np.float32):
    return np.random.default_rng(seed).normal(size=shape).astype(dtype)


def test_memory_mapped_files_are_read_like_arrays(tmp_path, monkeypatch):
    monkeypatch.setattr(store, "_MAPPED_BYTES", 1)  # let go after every block
    monkeypatch.setattr(scan_module, "_BLOCK_BYTES", 5000)
    old, new = scores(0, (400, 9), np.float16), scores(1, (400, 9))
    mapped = []
    for name, values in (("old", old), ("new", new)):
        np.save(tmp_path / f"{name}.npy", values)
        mapped.append(np.load(tmp_path / f"{name}.npy", mmap_mode="r"))
    rows = np.random.default_rng(0).permutation(400)
    _, a = pair_of(old[None], new[None], old_rows=rows)
    _, b = pair_of(*(side[None] for side in mapped), old_rows=rows)
    assert np.array_equal(a.old.predicted, b.old.predicted)
    assert np.array_equal(a.displacement, b.displacement)
    assert np.array_equal(mapped[0], old)


def mapped_bytes(path):
    """Bytes of a mapped file that are in this process's memory."""
    own, total = False, 0
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if "-" in line.split()[0]:
            own = line.endswith(str(path))
        elif own and line.startswith("Rss:"):
            total += 1024 * int(line.split()[1])
    return total


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="needs Linux")
def test_mapped_files_do_not_stay_in_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(store, "_MAPPED_BYTES", 1 << 20)
    path = tmp_path / "scores.npy"
    np.lib.format.open_memmap(path, "w+", np.float16, (16_000, 1000))[:] = 0
    mapped = np.load(path, mmap_mode="r")
    float(mapped.max())
    assert mapped_bytes(path) > 30e6  # what a pass leaves that does not care
    pair_of(mapped[None], mapped[None])
    assert mapped_bytes(path) < 8e6


def test_changes_in_a_private_mapping_survive(tmp_path, monkeypatch):
    monkeypatch.setattr(store, "_MAPPED_BYTES", 1)
    np.save(tmp_path / "old.npy", scores(0, (60, 7)))
    private = np.load(tmp_path / "old.npy", mmap_mode="c")
    private[:, 3] = 99.0
    other = scores(1, (1, 60, 7))
    found = [pair_of(private[None], other)[1] for _ in range(2)]
    assert all(np.all(each.old.predicted == 3) for each in found)
