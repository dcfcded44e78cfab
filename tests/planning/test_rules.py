"""The placement rules hold for what the engine compiles, and can be broken."""

import dataclasses
import functools
import re

import jax
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from churn_jax.configuration.training import MeshShape
from churn_jax.planning import Slice, plan
from churn_jax.planning.collectives import Collective
from churn_jax.planning.compile import check_mesh, default_row
from churn_jax.planning.hlo import Counted, collectives_of
from churn_jax.planning.rules import check_study, shard_bytes
from churn_jax.planning.steps import study_step
from churn_jax.planning.streams import check_stream, stream_step
from churn_jax.studies.streams import stream_preset
from churn_jax.training.partition import DATA, MEMBER, REPLICA
from tests.experiments.presets import study as preset

SLICE = Slice.parse("v5e:2x4")


def small(name, *axes):
    """Four replicas of tiny networks, on eight devices of this machine."""
    config = preset(name)
    train = dataclasses.replace(
        config.train, replicas=4, mesh=MeshShape(*axes), mapping="vmap"
    )
    model = dataclasses.replace(config.model, features=(8,))
    return dataclasses.replace(config, train=train, model=model)


@functools.cache
def compiled(row):
    """A step of the small digits' study, its collectives and reused bytes."""
    config = small("dm-digits" if row == "ods" else "digits", 2, 2, 2)
    step = study_step(config, row, jax.devices())
    program = step.jitted.lower(*step.arguments).compile()
    found = collectives_of(program.as_text(), step.program.mesh)
    return step, found, program.memory_analysis().alias_size_in_bytes


@pytest.mark.parametrize(
    "row", ["codistill_skl", pytest.param("ods", marks=pytest.mark.slow)]
)
def test_the_rules_hold_for_a_pair_and_for_directions_of_sharded_teachers(row):
    checks = check_study(*compiled(row))
    assert [check for check in checks if not check.holds] == []
    members = checks[1]
    assert ("reduction of the images' size" in members.rule) == (row == "ods")


@pytest.mark.slow
def test_a_direction_reduces_one_array_of_the_images_size_per_update():
    step, found, reused = compiled("ods")
    images = 2 * step.program.batch_size // 2 * 64 * 4  # 2 of 4 replicas, half a batch
    along = [one for one in found if MEMBER in one.collective.axes]
    parts = [part for one in along for part in one.collective.parts]
    assert parts.count(images) == 1 and max(parts) == images
    (one,) = [c for c in along if images in c.collective.parts]
    again = check_study(step, [*found, one], reused)
    assert [check.rule[:6] for check in again if not check.holds] == ["member"]


@pytest.mark.parametrize(
    ("broken", "rule"),
    [
        (Collective("all-reduce", (REPLICA,), (4,)), "nothing crosses replica"),
        (Collective("all-gather", (MEMBER,), (10**6,)), "member carries logits"),
        (Collective("all-reduce", (DATA,), (10**7,)), "data carries gradients"),
        (Collective("all-gather", (DATA,), (10**7,)), "data carries gradients"),
        # Some images are fewer bytes than a layer's weights.
        (Collective("all-gather", (DATA,), (4000,)), "data carries gradients"),
        (Collective("all-reduce", (MEMBER, DATA), (4,)), "along one axis"),
    ],
)
def test_what_moves_against_a_rule_is_found(broken, rule):
    step, found, reused = compiled("codistill_skl")
    checks = check_study(step, [*found, Counted(broken, 1)], reused)
    failed = [check.rule for check in checks if not check.holds]
    assert len(failed) == 1
    assert rule in failed[0]


def test_a_sum_may_be_made_of_a_scatter_and_a_gather_but_once():
    """Of 4 of the gradients' bytes on 2 shards every one is left with 2."""
    step, found, reused = compiled("codistill_skl")
    sums = [one for one in found if one.collective.axes == (DATA,)]
    others = [one for one in found if one not in sums]

    def scattered(one, times):
        size = one.collective.bytes
        half = Collective("reduce-scatter", (DATA,), (-(-size // 2),))
        whole = Collective("all-gather", (DATA,), (size,))
        return [Counted(half, times * one.times), Counted(whole, one.times)]

    for times, holds in ((1, True), (2, False)):
        halves = [part for one in sums for part in scattered(one, times)]
        checks = check_study(step, [*others, *halves], reused)
        assert all(check.holds for check in checks) == holds


def test_a_state_that_is_whole_on_a_device_or_copied_is_found():
    step, found, reused = compiled("codistill_skl")
    whole = NamedSharding(step.program.mesh, P())
    state = jax.tree.map(
        lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=whole),
        step.arguments[0],
    )
    gathered = dataclasses.replace(step, arguments=(state, *step.arguments[1:]))
    failed = [c.rule for c in check_study(gathered, found, 10**9) if not c.holds]
    assert failed == ["the state is in shards from the beginning"]
    failed = [c.rule for c in check_study(step, found, reused // 2) if not c.holds]
    assert failed == ["the state is updated in place"]


def test_bytes_of_a_device_by_hand():
    mesh = jax.make_mesh(
        (2, 4), ("a", "b"), axis_types=(jax.sharding.AxisType.Auto,) * 2
    )
    leaf = jax.ShapeDtypeStruct(
        (8, 3), np.dtype("f4"), sharding=NamedSharding(mesh, P(("a", "b")))
    )
    assert shard_bytes({"x": leaf, "y": ()}) == 12


@pytest.mark.slow
def test_the_tables_of_a_stream_are_in_shards_and_only_rows_move():
    config = stream_preset("clicks:tiny")
    train = dataclasses.replace(config.train, mesh=MeshShape(2, 1, 4))
    config = dataclasses.replace(config, train=train)
    found = plan(config, default_row(config), SLICE, devices=jax.devices())
    assert found.passed
    assert found.memory["embedding tables"] * 8 == 2 * 64 * 2 * 3 * 4
    step = stream_step(config, "baseline", jax.devices())
    table = Collective("all-gather", (DATA,), (10**6,))
    checks = check_stream(step, [Counted(table, 1)], 10**9)
    assert [check.holds for check in checks] == [True, True, False, True, True]
    state = step.arguments[0]
    tables = shard_bytes((state.tables, state.accumulators))
    assert not check_stream(step, [], tables)[-1].holds  # towers and metrics are not


@pytest.mark.slow
def test_a_plan_says_all_of_it_for_devices_of_this_machine():
    config = small("digits", 2, 1, 2)
    found = plan(config, "baseline", SLICE, devices=jax.devices())
    assert found.passed
    assert found.fits
    assert found.mesh == {"replica": 2, "member": 1, "data": 2}
    assert {row.axes for row in found.communication} == {DATA}
    # A multilayer perceptron of 64 x 8 and 8 x 10 weights: 6 operations each.
    weights = 64 * 8 + 8 * 10
    images = 4 * config.train.batch_size
    assert found.useful == pytest.approx(6 * weights * images, rel=0.35)
    # Nobody has estimated cycles on a processor.
    assert found.cycles == 0


def test_the_default_row_has_the_most_networks_and_a_mesh_must_fit():
    assert default_row(preset("elodi-table1")) in ("elodi", "elodi_top10")
    assert default_row(preset("dm-cifar100")) == "conf_ods"
    with pytest.raises(ValueError, match="needs 16 devices; v5e:2x4 has 8"):
        check_mesh(MeshShape(4, 2, 2), SLICE)


def test_gradients_of_a_bfloat16_network_are_summed_in_float32():
    """Weights are float32, and what shards of the batch add up is too."""
    config = small("digits", 2, 1, 2)
    model = dataclasses.replace(config.model, dtype="bfloat16")
    config = dataclasses.replace(config, model=model)
    step = study_step(config, "baseline", jax.devices())
    text = step.jitted.lower(*step.arguments).as_text()
    summed = re.findall(r"all_reduce.*?\) : \(tensor<[^>]*?(bf16|f32)>", text, re.S)
    assert summed.count("f32") >= 4
    assert "bf16" not in summed
    assert "bf16" in text
