"""What a plan says of memory, of what moves and of cycles."""

import dataclasses
import json
import re
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from churn_jax.configuration.training import MeshShape
from churn_jax.planning import Plan, Slice, plan
from churn_jax.planning.chips import CHIPS
from churn_jax.planning.compile import (
    Communication,
    _compiled,
    check_mesh,
    default_row,
    plan_text,
    shard_bytes,
)
from churn_jax.planning.steps import Step, study_step
from churn_jax.training.partition import DATA
from tests.experiments.presets import study as preset
from tests.planning.test_hlo import PROGRAM

SLICE = Slice.parse("v5e:2x4")
GRADIENTS = Communication("data", "all-reduce", 10, 8_000_000, 4_000_000)


def made(**fields):
    """A plan of ten replicas of batch 100 on two devices; 8 ms an update."""
    common = {
        "preset": "digits",
        "row": "baseline",
        "network": "1 x mlp",
        "topology": "v5e:1x2",
        "mesh": {"replica": 1, "member": 1, "data": 2},
        "replicas": 10,
        "batch_size": 100,
        "updates": 1,
        "calls": 1,
        "fits": True,
        "refusal": "",
        "hbm": 16 * 2**30,
        "memory": {"weights": 2**30, "temporary": 2**31},
        "other_memory": {"best weights so far": 2**30},
        "cycles": 1.2e7,
        "estimated": 97,
        "unknown": 3,
        "communication": (GRADIENTS,),
        "compile_seconds": 9.0,
        "versions": {"jax": "0"},
    }
    return Plan(**{**common, **fields})


def test_a_plan_is_json_with_what_follows_from_it():
    plan = made()
    assert (plan.used, plan.devices, plan.apart) == (2**32, 2, True)
    found = json.loads(json.dumps(plan.to_json()))
    assert found["seconds"] == pytest.approx(8e-3) and found["used"] == 2**32
    assert found["communication"][0]["axes"] == "data"
    across = dataclasses.replace(GRADIENTS, axes="replica, data")
    assert not made(communication=(GRADIENTS, across)).apart


class Compiled:
    """A program of which everything is known; compiles to itself."""

    def __init__(self, temporary=5000, refusal=None):
        self.temporary, self.refusal = temporary, refusal

    def lower(self, *arguments):
        return self

    def compile(self):
        if self.refusal is not None:
            raise jax.errors.JaxRuntimeError(self.refusal)
        return self

    def as_text(self):
        return PROGRAM

    def memory_analysis(self):
        return SimpleNamespace(
            argument_size_in_bytes=1000,
            output_size_in_bytes=700,
            alias_size_in_bytes=600,
            temp_size_in_bytes=self.temporary,
            generated_code_size_in_bytes=300,
        )


def compiled(program, topology="v5e:1x2", calls=1):
    """Of three updates a call, 100 weights on every device and 50 other numbers."""
    mesh = jax.make_mesh(
        (1, 1, 2),
        ("replica", "member", "data"),
        axis_types=(jax.sharding.AxisType.Auto,) * 3,
    )
    whole = NamedSharding(mesh, P())

    def numbers(count):
        return jax.ShapeDtypeStruct((count,), np.dtype("f4"), sharding=whole)

    run: Any = SimpleNamespace(
        name="baseline", config=SimpleNamespace(replicas=4, batch_size=10)
    )
    step = Step(
        jitted=program,
        arguments=(),
        parts={"weights": numbers(100), "nothing": ()},
        others={"best weights": numbers(50)},
        program=SimpleNamespace(mesh=mesh),
        run=run,
        network="1 x mlp",
        updates=3,
        calls=calls,
    )
    return _compiled(step, Slice.parse(topology), "digits")


def test_what_the_compiler_says_becomes_a_plan():
    one, two = compiled(Compiled()), compiled(Compiled(), calls=2)
    assert one.memory == two.memory
    assert one.memory == {
        "weights": 400,
        "padding of these": 600,
        "results in memory of their own": 100,
        "temporary": 5000,
        "program": 300,
    }
    assert (one.other_memory, one.used) == ({"best weights": 200}, 6600)
    # Three turns of 107, a branch of 50 and a copy of 1,000, of three updates.
    assert one.cycles == 1371 / 3 and two.cycles == 2 * one.cycles
    assert one.seconds == pytest.approx(457 / 1.5e9)
    assert (one.unknown, one.open_loops) == (6, 1)
    gather, reduction = one.communication
    assert (gather.kind, gather.count, gather.bytes) == ("all-gather", 1, 32)
    assert (reduction.kind, reduction.count, reduction.bytes) == ("all-reduce", 3, 96)
    assert two.communication[1].bytes == 192
    assert "take turns" not in plan_text(one)
    assert "replicas take turns on a device, 2 at a time" in plan_text(two)


def test_the_last_byte_fits():
    others = 400 + 600 + 100 + 300 + 200
    room = int(15.75 * 2**30)
    assert CHIPS["v5e"].room * 2**30 == room
    assert compiled(Compiled(temporary=room - others)).fits
    assert not compiled(Compiled(temporary=room - others + 1)).fits


@pytest.mark.parametrize(
    ("refusal", "said"),
    [
        (
            "RESOURCE_EXHAUSTED: Ran out of memory in memory space hbm. Used 31.50G of "
            "15.75G hbm. Exceeded hbm capacity by 15.75G.",
            "finds no room: the step takes 31.5 GiB per device of the 15.8 that it may",
        ),
        (
            "INTERNAL: device assignment should include all slice devices",
            "a mesh of all 4 devices of such a slice, and this one has 2",
        ),
    ],
)
def test_what_the_compiler_refuses_is_a_plan_that_does_not_fit(refusal, said):
    plan = compiled(Compiled(refusal=refusal), "v5e:2x2")
    assert said in plan.refusal
    assert (plan.fits, plan.memory) == (False, {"weights": 400})
    with pytest.raises(jax.errors.JaxRuntimeError, match="INTERNAL: other"):
        compiled(Compiled(refusal="INTERNAL: other"))


def test_a_plan_says_memory_moves_and_cycles_or_that_it_does_not_know():
    text = plan_text(made(open_loops=1))
    assert "Fits: 4.00 GiB of 16.00 GiB per device (25%)." in text
    assert "(no TPU ran it): at least 12,000,000, 8 ms." in text
    assert "3 of 100 instructions have no estimate." in text
    assert "taken to turn once" in text
    assert "Nothing moves between replicas." in text
    assert "| data | all-reduce |" in text
    assert "at least" not in plan_text(made(unknown=0))
    assert "Cycles: not known, since" in plan_text(made(estimated=0, cycles=0.0))
    refused = made(fits=False, refusal="the compiler finds no room: 20 of 15 GiB")
    assert plan_text(refused).splitlines()[3].startswith("Does not fit: the compiler")
    two = dataclasses.replace(GRADIENTS, count=3, bytes=9_000_000)
    text = plan_text(made(communication=(two,), updates=2))
    assert "|              1.5 | 4,500,000 | 4,000,000 |" in text
    assert "Nothing moves between devices." in plan_text(made(communication=()))
    across = dataclasses.replace(GRADIENTS, axes="replica")
    assert "NO: something moves" in plan_text(made(communication=(across,)))


def test_bytes_of_a_device_by_hand():
    mesh = jax.make_mesh(
        (2, 4), ("a", "b"), axis_types=(jax.sharding.AxisType.Auto,) * 2
    )
    leaf = jax.ShapeDtypeStruct(
        (8, 3), np.dtype("f4"), sharding=NamedSharding(mesh, P(("a", "b")))
    )
    assert shard_bytes({"x": leaf, "y": ()}) == 12


def small(*axes, **model):
    """Four replicas of tiny networks, on eight devices of this machine."""
    config = preset("digits")
    train = dataclasses.replace(
        config.train, replicas=4, mesh=MeshShape(*axes), mapping="vmap"
    )
    model = dataclasses.replace(config.model, features=(8,), **model)
    return dataclasses.replace(config, train=train, model=model)


@pytest.mark.slow
def test_a_plan_for_devices_of_this_machine():
    found = plan(small(2, 1, 2), "baseline", SLICE, devices=jax.devices())
    assert found.fits and found.apart
    assert found.mesh == {"replica": 2, "member": 1, "data": 2}
    assert {row.axes for row in found.communication} == {DATA}
    # Nobody has estimated cycles on a processor.
    assert "Cycles: not known" in plan_text(found)


def test_the_default_row_has_the_most_networks_and_a_mesh_must_fit():
    assert default_row(preset("elodi-table1")) in ("elodi", "elodi_top10")
    assert default_row(preset("dm-cifar100")) == "conf_ods"
    with pytest.raises(ValueError, match="needs 16 devices; v5e:2x4 has 8"):
        check_mesh(MeshShape(4, 2, 2), SLICE)


def test_gradients_of_a_bfloat16_network_are_summed_in_float32():
    """Weights are float32, and what shards of the batch add up is too."""
    step = study_step(small(2, 1, 2, dtype="bfloat16"), "baseline", jax.devices())
    text = step.jitted.lower(*step.arguments).as_text()
    summed = re.findall(r"all_reduce.*?\) : \(tensor<[^>]*?(bf16|f32)>", text, re.S)
    assert summed.count("f32") >= 4
    assert "bf16" not in summed
    assert "bf16" in text
