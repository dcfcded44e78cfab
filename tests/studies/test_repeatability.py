"""One launch is the engine's own training, recorded; one flipped bit is one bit."""

import dataclasses
import resource
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from churn_jax.data import channel_statistics
from churn_jax.studies import repeatability
from churn_jax.studies.repeatability import (
    Launch,
    Recording,
    checksum,
    digest,
    flip_last_bit,
    keep_weights,
    log_spaced,
    record,
    weights_file,
)
from churn_jax.training import train

TREE = {
    "bias": np.zeros(3, np.float32),
    "kernel": np.array([[0.5, -1.25], [3.0, 0.0]], np.float32),
}


def bits(tree):
    parts = [np.asarray(leaf).reshape(-1) for leaf in jax.tree.leaves(tree)]
    return np.concatenate(parts).view(np.uint32)


@pytest.mark.parametrize(
    ("updates", "steps"),
    [(1, (0, 1)), (7, (0, 1, 2, 5, 7)), (100, (0, 1, 2, 5, 10, 20, 50, 100))],
)
def test_steps_are_log_spaced_and_end_with_the_last(updates, steps):
    assert log_spaced(updates) == steps


def test_checksum_is_the_weighted_sum_of_all_bits():
    values = bits(TREE).astype(np.uint64)
    odd = 2 * np.arange(len(values), dtype=np.uint64) + 1
    before = int(checksum(TREE))
    assert before == int(np.sum(values * odd) % 2**32)
    # Any single bit and an exchange change it.
    for place in range(7):
        for bit in (0, 12, 31):
            changed = bits(TREE)
            changed[place] ^= np.uint32(1 << bit)
            assert int(checksum([jnp.asarray(changed.view(np.float32))])) != before
    assert int(checksum({**TREE, "kernel": TREE["kernel"].T})) != before


def test_one_weight_that_is_not_zero_moves_to_a_neighbouring_number():
    before, places = bits(TREE), set()
    for seed in range(40):
        after = bits(flip_last_bit(TREE, seed))
        (place,) = np.flatnonzero(before != after)
        assert before[place] ^ after[place] == 1
        places.add(int(place))
    assert places == {3, 4, 5}
    assert digest(TREE) == digest({k: v.copy() for k, v in TREE.items()})


def test_weights_that_are_all_zero_cannot_be_perturbed():
    with pytest.raises(ValueError, match="no weight differs from zero"):
        flip_last_bit({"bias": np.zeros(2, np.float32)}, 0)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"updates": 0}, "updates must be at least 1; got 0"),
        ({"batch_size": -1}, "batch_size must be at least 1"),
        ({"preset": "digist"}, "did you mean digits"),
        ({"method": "baselin"}, "did you mean baseline"),
        ({"method": "distillation"}, "learns from a teacher"),
    ],
)
def test_a_launch_that_cannot_be_is_refused(options, words):
    with pytest.raises(ValueError, match=words):
        Launch(**options).study()


def test_every_seed_is_fixed_and_a_longer_run_stretches_the_schedule():
    launch = Launch("digits:tiny", updates=8)
    config = launch.run(launch.load()).config
    assert (config.replicas, config.epochs) == (1, 3)  # 3 updates per epoch
    seeds = config.seeds
    assert (seeds.init, seeds.order, seeds.augment) == ("fixed",) * 3
    assert Launch("digits", updates=8).run(launch.load()).config.epochs == 80


@pytest.fixture(scope="module")
def launches(tmp_path_factory):
    """Two equal launches of 12 updates and one with a flipped bit, in one process."""
    folders = [tmp_path_factory.mktemp(name) for name in ("a", "b", "flipped")]
    for folder, perturb in zip(folders, (None, None, 2), strict=True):
        record(Launch("digits:tiny", updates=12, perturb=perturb), folder)
    return folders


@pytest.mark.slow
def test_recorded_weights_are_those_of_the_training_loop(launches):
    launch = Launch("digits:tiny", updates=12)
    dataset = launch.load()
    run = launch.run(dataset)
    run = dataclasses.replace(
        run, config=dataclasses.replace(run.config, steps_per_call=1)
    )
    moments = channel_statistics(dataset.train.images)
    trained = train(
        run, dataset, mean=float(moments.mean[0]), std=float(moments.std[0])
    )
    recording = Recording.load(launches[0])
    assert recording.digest == digest(trained.last.params)
    np.testing.assert_array_equal(
        np.load(weights_file(launches[0], 12)).view(np.uint32),
        bits(jax.device_get(trained.last.params)),
    )
    np.testing.assert_allclose(
        recording.logits, trained.predict(dataset.test.images)[0], rtol=1e-5, atol=1e-5
    )


@pytest.mark.slow
def test_equal_launches_are_equal_in_everything_but_time(launches):
    a, b = (Recording.load(folder) for folder in launches[:2])
    assert a.steps == b.steps == (0, 1, 2, 5, 10, 12)
    assert len(a.checksums) == 13
    assert a.checksums[0] == a.checksums[1]  # the warm-up begins at zero
    assert len(set(a.checksums.tolist())) == 12
    np.testing.assert_array_equal(a.checksums, b.checksums)
    assert a.digest == b.digest
    np.testing.assert_array_equal(a.logits, b.logits)


@pytest.mark.slow
def test_a_flipped_bit_is_one_weight_at_first_and_spreads(launches):
    def differing(step):
        a, b = (np.load(weights_file(f, step)) for f in (launches[0], launches[2]))
        return int(np.sum(a.view(np.uint32) != b.view(np.uint32)))

    assert differing(0) == 1
    assert differing(12) > 1


def test_a_number_of_updates_prints_the_fingerprint(monkeypatch, capsys):
    """`python -m churn_jax.studies.repeatability 20`."""
    monkeypatch.setattr(
        repeatability, "record", lambda launch: SimpleNamespace(digest=str(launch))
    )
    repeatability._main(["20"])
    assert capsys.readouterr().out == f"{Launch(updates=20)}\n"


def test_a_full_disk_is_named(tmp_path):
    """Else `doctor` says "85002 requested and 2016 written", and no more."""
    state = SimpleNamespace(params={"kernel": jnp.zeros(10_000)})
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        with pytest.raises(OSError, match="File too large"):
            keep_weights(tmp_path, 0, state)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert not list(tmp_path.iterdir())
