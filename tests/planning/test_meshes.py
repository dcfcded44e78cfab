"""Which meshes are sensible, and in which order they are tried."""

import dataclasses

import pytest

from churn_jax.planning import CHIPS, mesh_name
from churn_jax.planning.meshes import Load, candidates, ranked, ranked_stream, row_load
from churn_jax.studies import preset
from churn_jax.training.examples import example_of

PAIR = Load(10, (2,), 128, 1e12, 4_000_000, 80)


@pytest.mark.parametrize("devices", [1, 4, 16, 256])
@pytest.mark.parametrize("replicas", [3, 10, 16])
def test_every_candidate_divides_what_it_shards_and_fits_the_slice(devices, replicas):
    found = candidates(dataclasses.replace(PAIR, replicas=replicas), devices)
    assert found
    for mesh in found:
        assert replicas % mesh.replica == 0
        assert 2 % mesh.member == 0
        assert 128 % mesh.data == 0
        assert mesh.size <= devices


def test_the_meshes_of_ten_pairs_on_four_devices_by_hand():
    names = {mesh_name(mesh) for mesh in candidates(PAIR, 4)}
    assert names == {
        "replica=1,member=1,data=4",
        "replica=1,member=2,data=2",
        "replica=2,member=1,data=2",
        "replica=2,member=2,data=1",
    }


def test_replicas_are_spread_first_then_members_then_the_batch():
    eight = dataclasses.replace(PAIR, replicas=8)
    best = [mesh_name(one.mesh) for one in ranked(eight, CHIPS["v5e"], 16)]
    assert best[0] == "replica=8,member=2,data=1"
    assert best[-1] == "replica=1,member=1,data=16"
    # Of ten replicas on 16 chips, 10 use more than half of the slice, 5 do not.
    single = dataclasses.replace(PAIR, slots=(1,), batch=1)
    assert [mesh.replica for mesh in candidates(single, 16)] == [10]


def test_a_students_own_work_is_not_shared_out_among_its_teachers_devices():
    config, shape = preset("dm-digits"), example_of((8, 8, 1), tokens=False)
    load, alone = (
        row_load(config, config.spec(name), 10, flops=1e9, shape=shape)
        for name in ("ods", "teachers")
    )
    assert load.slots == (4,) and 0 < load.divided < 1
    assert (alone.slots, alone.divided) == ((4,), 1.0)


def test_a_streams_tables_are_spread_over_data_where_they_are_too_large():
    chip = CHIPS["v5e"]
    small = ranked_stream(4, 256, 2**20, chip, 4)[0].mesh
    assert mesh_name(small) == "replica=4,member=1,data=1"
    large = ranked_stream(4, 256, 12 * 2**30, chip, 8)[0].mesh
    assert mesh_name(large) == "replica=4,member=1,data=2"
    # A batch of 3 leaves out two of four devices, or one: tables then decide.
    apart = ranked_stream(2, 3, 2**20, chip, 4)[0].mesh
    assert (apart.replica, apart.data) == (2, 1)
    together = ranked_stream(2, 3, 10 * 2**30, chip, 4)[0].mesh
    assert (together.replica, together.data) == (1, 3)
