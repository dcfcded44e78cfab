"""Launches are compared bit by bit; one is the engine's own training; the command."""

import dataclasses
import itertools
import json
import os
import resource
import sys

import jax
import numpy as np
import pytest

from churn_jax.cli import main
from churn_jax.configuration.codec import replaced
from churn_jax.studies import preset, repeatability
from churn_jax.studies.repeatability import (
    Launch,
    Recording,
    checksum,
    compare,
    measure,
    record,
    write,
)
from churn_jax.training import train
from tests.environment import QUICK

TINY = preset("digits:tiny")


def recorded(weights, logits, checksums):
    """A launch of two updates."""
    return Recording(
        checksums=np.array(checksums, np.uint32),
        weights=np.array(weights, np.float32),
        logits=np.array(logits, np.float32),
        labels=np.array([0, 1]),
        seconds=0.5,
    )


SAME = recorded([3, 4], [[2, 0], [0, 2]], [1, 2, 3])
OTHER = recorded([3, 4.5], [[2, 0], [2, 0]], [1, 2, 4])


def test_equal_launches_are_exactly_zero_apart():
    found = compare([SAME, SAME])
    assert found.repeats and found.first_difference is None
    assert found.distance == 0.0
    assert (float(found.churn.mean), float(found.surrogate_churn.mean)) == (0.0, 0.0)
    assert found.accuracy == (1.0, 1.0)
    assert found.updates_per_second == (2.0, 2.0)  # the first one compiles


def test_different_launches_are_measured_from_where_they_part(tmp_path):
    found = compare([SAME, SAME, OTHER])
    assert (found.repeats, found.first_difference) == (False, 2)
    assert found.distance == pytest.approx(0.1)
    assert float(found.churn.mean) == pytest.approx((0 + 0.5 + 0.5) / 3)
    assert found.accuracy == (1.0, 1.0, 0.5)
    first = compare([SAME._replace(checksums=SAME.checksums[:2])] * 2)
    assert first.updates_per_second == (None, None)  # it compiles
    between = SAME._replace(checksums=np.array([1, 9, 3], np.uint32))
    assert compare([SAME, between]).first_difference == 1
    path = write(compare([SAME, OTHER]), Launch(TINY, updates=2), tmp_path / "out")
    written = json.loads(path.read_text())
    assert (written["repeats"], written["first_difference"]) == (False, 2)
    churn = written["churn"]
    assert (churn["mean"], churn["stderr"], churn["num_runs"]) == (0.5, None, 2)
    assert written["study"]["name"] == "digits-tiny"
    assert {"hardware", "versions", "date"} <= written.keys()


@pytest.mark.slow
def test_a_launch_that_cannot_train_says_why():
    config = replaced(TINY, [("train.batch_size", 999)])
    with pytest.raises(ValueError, match=r"could not train: batch_size 999 is larger"):
        measure(Launch(config), 2)


def bits(tree):
    parts = [np.asarray(leaf).reshape(-1) for leaf in jax.tree.leaves(tree)]
    return np.concatenate(parts).view(np.uint32)


def test_any_bit_and_any_exchange_change_the_checksum():
    kernel = np.array([[0.5, -1.25], [3.0, 0.0]], np.float32)
    tree = {"bias": np.zeros(3, np.float32), "kernel": kernel}
    before = int(checksum(tree))
    for name, leaf in tree.items():
        for place, bit in itertools.product(range(leaf.size), (0, 12, 31)):
            changed = leaf.copy()
            changed.reshape(-1).view(np.uint32)[place] ^= np.uint32(1 << bit)
            assert int(checksum({**tree, name: changed})) != before
    assert int(checksum({**tree, "kernel": kernel.T})) != before
    assert int(checksum([kernel, 2 * kernel])) != int(checksum([2 * kernel, kernel]))


def test_a_row_is_launched_on_its_own_examples_and_from_no_other_row():
    few = dataclasses.replace(TINY.spec("baseline"), train_size=64)
    later = dataclasses.replace(few, name="later", start="baseline")
    config = dataclasses.replace(TINY, methods=(few, later))
    run, inputs = Launch(config, updates=8).opened()
    assert len(inputs.dataset.train) == 64 and run.config.epochs == 8
    with pytest.raises(ValueError, match="later starts from baseline; launches"):
        Launch(config, "later")
    rates = replaced(TINY, [("train.optimizer.weight_decay", (0.0, 0.1))])
    with pytest.raises(ValueError, match="weight_decay must be one number or 1, one"):
        Launch(replaced(rates, [("train.replicas", 2)]))
    with pytest.raises(ValueError, match="not on a stream or on clicks; got clicks"):
        Launch(preset("clicks:tiny")).opened()


def test_every_seed_is_fixed_and_a_longer_run_stretches_the_schedule():
    launch = Launch(TINY, updates=8)
    run, _ = launch.opened()
    config = run.config
    assert (config.replicas, config.epochs) == (1, 3)  # 3 updates per epoch
    seeds = config.seeds
    assert (seeds.init, seeds.order, seeds.augment) == ("fixed",) * 3
    with pytest.raises(ValueError, match="updates must be at least 1; got 0"):
        Launch(TINY, updates=0)
    whole = Launch(preset("digits"), updates=8)
    assert whole.opened()[0].config.epochs == 80


@pytest.mark.slow
def test_recorded_weights_are_those_of_the_training_loop():
    launch = Launch(TINY, "ensemble", updates=12)
    run, (dataset, mean, std) = launch.opened()
    run = replaced(run, [("config.steps_per_call", 1)])
    trained = train(run, dataset, mean=mean, std=std)
    found, again = record(launch), record(launch)
    weights = found.weights.view(np.uint32)
    np.testing.assert_array_equal(weights, bits(jax.device_get(trained.last.params)))
    logits = trained.predict(dataset.test.images)[0]
    np.testing.assert_allclose(found.logits, logits, rtol=1e-5, atol=1e-5)
    # A second launch is equal in everything but time.
    assert len(found.checksums) == 13
    assert found.checksums[0] == found.checksums[1]  # the warm-up begins at zero
    assert len(set(found.checksums.tolist())) == 12
    assert compare([found, again]).repeats
    np.testing.assert_array_equal(found.logits, again.logits)


def test_a_full_disk_is_named(tmp_path):
    """Else `doctor` says "85002 requested and 2016 written", and no more."""
    large = SAME._replace(weights=np.zeros(10_000, np.float32))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        with pytest.raises(OSError, match="File too large"):
            large.save(tmp_path / "a.npz")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("second", "code", "sentence"),
    [
        (SAME, 0, "yes, 2 launches of 2 updates gave equal weights"),
        (OTHER, 1, "no, 2 launches of 2 updates gave 2 different sets of weights"),
    ],
)
def test_the_command_says_whether_launches_agree(
    tmp_path, capsys, monkeypatch, second, code, sentence
):
    flags = []

    def start(launch, path, env):
        flags.append(env["XLA_FLAGS"])
        # A launch that found the first one's programs would have its kernels.
        assert env["JAX_ENABLE_COMPILATION_CACHE"] == "false" and env["HOME"]
        # A method of `/elsewhere/mine.py` must be found there, too.
        assert "/elsewhere" in env["PYTHONPATH"].split(os.pathsep)
        (SAME if path.stem == "0" else second).save(path)

    monkeypatch.setattr(repeatability, "_start", start)
    monkeypatch.setattr("sys.path", [*sys.path, "/elsewhere"])
    words = ["doctor", "digits:tiny", "--updates", "2", "--deterministic"]
    assert main([*words, "--out", str(tmp_path / "out")]) == code
    said = " ".join(capsys.readouterr().out.split())
    assert f"repeats itself: {sentence}" in said and "jaxlib" in said
    churn = "0.00" if code == 0 else "50.00"
    assert f"Final churn {churn} %" in said
    assert code == 0 or "apart from update 2 on, in the end by 0.1 of" in said
    assert all("xla_gpu_deterministic_ops=true" in found for found in flags)
    assert [p.name for p in (tmp_path / "out").iterdir()] == ["repeatability.json"]
    monkeypatch.chdir(tmp_path)  # by default rows have folders of their own
    for row in ([], ["--row", "entropy"]):
        assert main([*words, *row]) == code
    folders = [path.name for path in (tmp_path / "runs/doctor").iterdir()]
    assert sorted(folders) == ["digits-tiny-2", "digits-tiny-entropy-2"]


@pytest.mark.slow
def test_this_machine_repeats_itself_in_launches_of_its_own(
    tmp_path, capsys, monkeypatch
):
    """The preset's own program, optimised: two processes, the same bits."""
    for name in QUICK:
        monkeypatch.delenv(name, raising=False)
    command = ["doctor", "digits", "--updates", "20", "--out", str(tmp_path / "out")]
    assert main(command) == 0
    found = json.loads((tmp_path / "out" / "repeatability.json").read_text())
    assert found["repeats"] and found["distance"] == 0.0
    assert len(set(found["digests"])) == 1 and len(found["digests"][0]) == 64
    assert found["accuracy"][0] > 0.5
