"""Launches are compared bit by bit; what differs is measured and shown as it is."""

import json

import numpy as np
import pytest

from churn_jax.studies import launches
from churn_jax.studies.launches import (
    compare,
    distance_plot,
    environment,
    measure,
    table,
    write,
)
from churn_jax.studies.repeatability import Launch, Recording, weights_file

LAUNCH = Launch("digits:tiny", updates=2)


def leave(folder, weights, logits, checksums):
    """What a launch of two updates leaves: weights after 0, 1 and 2 of them."""
    folder.mkdir(exist_ok=True)
    for step, vector in enumerate(weights):
        np.save(weights_file(folder, step), np.array(vector, np.float32))
    Recording(
        steps=(0, 1, 2),
        checksums=np.array(checksums, np.uint32),
        digest=str(weights[-1]),
        logits=np.array(logits, np.float32),
        labels=np.array([0, 1]),
        seconds=0.5,
    ).save(folder)
    return folder


SAME = ([[1, 0], [3, 4], [3, 4]], [[2, 0], [0, 2]], [1, 2, 3])
OTHER = ([[1, 0], [3, 4], [3, 4.5]], [[2, 0], [2, 0]], [1, 2, 4])


def test_equal_launches_are_exactly_zero_apart(tmp_path):
    drift = compare(LAUNCH, [leave(tmp_path / n, *SAME) for n in "ab"])
    assert drift.repeats
    assert drift.first_difference is None
    assert np.all(drift.distance == 0.0)
    assert (float(drift.churn.mean), float(drift.surrogate_churn.mean)) == (0.0, 0.0)
    assert drift.accuracy == (1.0, 1.0)
    assert drift.updates_per_second == (2.0, 2.0)  # the first one compiles
    assert table(drift)[-1] == ("2", "0", "0", "0")


@pytest.mark.slow
def test_different_launches_are_measured_from_where_they_part(tmp_path):
    folders = [leave(tmp_path / n, *SAME) for n in "ab"]
    drift = compare(LAUNCH, [*folders, leave(tmp_path / "c", *OTHER)])
    assert not drift.repeats
    assert drift.first_difference == 2
    assert drift.pairs == ((0, 1), (0, 2), (1, 2))
    np.testing.assert_allclose(drift.distance, [[0] * 3, [0] * 3, [0, 0.1, 0.1]])
    assert float(drift.churn.mean) == pytest.approx((0 + 0.5 + 0.5) / 3)
    assert drift.accuracy == (1.0, 1.0, 0.5)
    assert table(drift)[-1] == ("2", "0", "0.1", "0.1")


def test_a_difference_between_two_recorded_updates_counts(tmp_path):
    weights, logits, _ = SAME
    other = leave(tmp_path / "b", weights, logits, [1, 9, 3])
    drift = compare(LAUNCH, [leave(tmp_path / "a", *SAME), other])
    assert (drift.first_difference, drift.repeats) == (1, False)


def test_zeros_are_points_of_their_own_in_the_plot(tmp_path):
    a, b = leave(tmp_path / "a", *SAME), leave(tmp_path / "b", *OTHER)
    for folders, zeros in (([a, a], 2), ([a, b], 1)):
        (axes,) = distance_plot(compare(LAUNCH, folders)).axes
        hollow = [x for x in axes.get_lines() if x.get_markerfacecolor() == "none"]
        assert sum(len(line.get_xdata()) for line in hollow) == zeros
        assert axes.get_yticklabels()[0].get_text() == "exactly 0"
        assert axes.get_xscale() == axes.get_yscale() == "log"


def test_json_table_and_plot_are_written(tmp_path):
    folders = [leave(tmp_path / n, *part) for n, part in (("a", SAME), ("b", OTHER))]
    paths = write(compare(LAUNCH, folders, perturbed=True), tmp_path / "out")
    found = json.loads(paths["repeatability.json"].read_text())
    assert (found["repeats"], found["first_difference"]) == (False, 2)
    assert found["distance"][2] == [pytest.approx(0.1)]
    churn = found["churn"]
    assert (churn["mean"], churn["stderr"], churn["num_runs"]) == (0.5, None, 2)
    assert found["launch"]["preset"] == "digits:tiny"
    assert {"hardware", "versions", "date", "perturbed"} <= found.keys()
    assert paths["table.md"].read_text().splitlines()[-1] == "| 2 | 0.1 | 0.1 | 0.1 |"
    assert paths["distance.png"].read_bytes().startswith(b"\x89PNG")


def test_launches_share_no_compiled_programs_and_ask_for_determinism_on_request():
    base = {"XLA_FLAGS": "--xla_a=1", "HOME": "h"}
    plain, asked = (environment(deterministic=d, base=base) for d in (False, True))
    assert plain["XLA_FLAGS"] == "--xla_a=1"
    assert asked["XLA_FLAGS"].split() == [
        "--xla_a=1",
        "--xla_gpu_deterministic_ops=true",
    ]
    for changed in (plain, asked):
        assert changed["HOME"] == "h"
        assert changed["JAX_ENABLE_COMPILATION_CACHE"] == "false"


def test_only_the_first_launch_is_not_perturbed(tmp_path, monkeypatch):
    seeds = []

    def start(launch, folder, env):
        seeds.append(launch.perturb)
        assert "deterministic_ops" in env["XLA_FLAGS"]
        leave(folder, *SAME)

    monkeypatch.setattr(launches, "_start", start)
    numbers = []
    drift = measure(
        LAUNCH,
        3,
        perturb=True,
        deterministic=True,
        folder=tmp_path / "out",
        on_launch=numbers.append,
    )
    assert (seeds, numbers) == ([None, 0, 1], [0, 1, 2])
    assert len(drift.digests) == 3
    assert list((tmp_path / "out").iterdir()) == []  # the weights are gone


@pytest.mark.slow
def test_a_launch_that_cannot_train_says_why(tmp_path):
    with pytest.raises(ValueError, match=r"could not train: batch_size 999 is larger"):
        measure(Launch("digits:tiny", batch_size=999), 2, folder=tmp_path)
