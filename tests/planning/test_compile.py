"""What a plan says of memory, of what moves and of cycles, and how it ends."""

import dataclasses
import importlib.util
import json
import re
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from churn_jax.command.plan import plan_text
from churn_jax.planning import Plan, Slice, plan
from churn_jax.planning.compile import (
    CHIPS,
    Communication,
    NoCompilerError,
    compiled,
    default_mesh,
    default_row,
    devices_of,
)
from churn_jax.planning.step import study_step
from churn_jax.training import MeshShape
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
        "calls": 1,
        "fits": True,
        "hbm": 16 * 2**30,
        "memory": {"weights": 2**30, "temporary": 2**31, "best weights": 2**30},
        "cycles": 1.2e7,
        "unknown": 3,
        "communication": (GRADIENTS,),
        "compile_seconds": 9.0,
        "versions": {"jax": "0"},
    }
    return Plan(**{**common, **fields})


def test_a_plan_is_json_with_what_follows_from_it():
    assert (made().used, made().apart) == (2**32, True)
    found = json.loads(json.dumps(made().to_json()))
    assert found["seconds"] == pytest.approx(8e-3) and found["used"] == 2**32
    assert found["communication"][0]["axes"] == "data"
    across = dataclasses.replace(GRADIENTS, axes="replica, data")
    assert not made(communication=(GRADIENTS, across)).apart


def compiled_as(topology="v5e:1x2", calls=1, temporary=5000, refusal=None):
    """The plan of a program of which everything is known.

    Of three updates a call, 100 weights on every device and 50 other numbers.
    """
    axes = (jax.sharding.AxisType.Auto,) * 3
    mesh = jax.make_mesh((1, 1, 2), ("replica", "member", "data"), axis_types=axes)

    def numbers(count):
        whole = NamedSharding(mesh, P())
        return jax.ShapeDtypeStruct((count,), np.dtype("f4"), sharding=whole)

    def compile():
        if refusal is not None:
            raise jax.errors.JaxRuntimeError(refusal)
        return SimpleNamespace(as_text=lambda: PROGRAM, memory_analysis=lambda: sizes)

    sizes = SimpleNamespace(
        argument_size_in_bytes=1000,
        output_size_in_bytes=700,
        alias_size_in_bytes=600,
        temp_size_in_bytes=temporary,
        generated_code_size_in_bytes=300,
    )
    step: Any = SimpleNamespace(
        jitted=SimpleNamespace(lower=lambda: SimpleNamespace(compile=compile)),
        arguments=(),
        parts={"weights": numbers(100), "nothing": ()},
        others={"best weights": numbers(50)},
        program=SimpleNamespace(mesh=mesh),
        run=SimpleNamespace(
            name="baseline",
            groups=(),
            config=SimpleNamespace(replicas=4, batch_size=10),
        ),
        updates=3,
        calls=calls,
    )
    return compiled(step, Slice.parse(topology), "digits")


def test_what_the_compiler_says_becomes_a_plan():
    one, two = compiled_as(), compiled_as(calls=2)
    assert one.memory == two.memory
    assert one.memory == {
        "weights": 400,
        "padding of these": 600,
        "results in memory of their own": 100,
        "temporary": 5000,
        "program": 300,
        "best weights (next to the step)": 200,
    }
    # Three turns of 107, a branch of 50 and a copy of 1,000, of three updates.
    assert one.cycles == 1371 / 3 and two.cycles == 2 * one.cycles
    assert one.seconds == pytest.approx(457 / 1.5e9) and one.unknown == 7
    gather, reduction = one.communication
    assert (gather.kind, 3 * gather.count, 3 * gather.bytes) == ("all-gather", 1, 32)
    assert (reduction.kind, reduction.count, reduction.bytes) == ("all-reduce", 1, 32)
    assert two.communication[1].bytes == 64
    assert "take turns" not in plan_text(one)
    assert "replicas take turns on a device, 2 at a time" in plan_text(two)


def test_the_last_byte_fits():
    room, others = int(15.75 * 2**30), 400 + 600 + 100 + 300 + 200
    assert compiled_as(temporary=room - others).fits
    assert not compiled_as(temporary=room - others + 1).fits


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
    plan = compiled_as("v5e:2x2", refusal=refusal)
    assert said in plan.refusal and not plan.fits
    assert plan_text(plan).splitlines()[3].startswith("Does not fit: the compiler")
    with pytest.raises(ValueError, match="compiler refuses baseline: INTERNAL: other"):
        compiled_as(refusal="INTERNAL: other")


def test_a_plan_says_memory_moves_and_cycles_or_that_it_does_not_know():
    text = plan_text(made())
    assert "Fits: 4.00 GiB of 16.00 GiB per device (25%)." in text
    assert "(no TPU ran it): at least 12,000,000, 8 ms." in text
    assert "Nothing moves between replicas." in text
    assert "| data | all-reduce |" in text
    assert "at least" not in plan_text(made(unknown=0))
    assert "Cycles: not known, since" in plan_text(made(cycles=0.0))
    two = dataclasses.replace(GRADIENTS, count=1.5, bytes=4_500_000.0)
    text = plan_text(made(communication=(two,)))
    assert "|              1.5 | 4,500,000 | 4,000,000 |" in text
    assert "Nothing moves between devices." in plan_text(made(communication=()))
    across = dataclasses.replace(GRADIENTS, axes="replica")
    assert "NO: something moves" in plan_text(made(communication=(across,)))


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
    assert "Cycles: not known" in plan_text(found)  # of a processor


def test_the_default_row_has_the_most_networks_and_a_mesh_must_fit():
    assert default_row(preset("elodi-table1")) in ("elodi", "elodi_top10")
    assert default_row(preset("dm-cifar100")) == "conf_ods"
    ten = default_mesh(preset("digits"), Slice.parse("v5e:2x2"))
    assert ten == MeshShape(replica=2, member=1, data=2)
    with pytest.raises(ValueError, match="needs 10 devices; v5e:2x4 has 8"):
        plan(preset("digits"), "baseline", SLICE, MeshShape(5, 1, 2))


def test_gradients_of_a_bfloat16_network_are_summed_in_float32():
    """Weights are float32, and what shards of the batch add up is too."""
    step = study_step(small(2, 1, 2, dtype="bfloat16"), "baseline", jax.devices())
    text = step.jitted.lower(*step.arguments).as_text()
    summed = re.findall(r"all_reduce.*?\) : \(tensor<[^>]*?(bf16|f32)>", text, re.S)
    assert summed.count("f32") >= 4
    assert "bf16" not in summed
    assert "bf16" in text


@pytest.mark.parametrize(
    ("name", "devices"), [("v5e:16x16", 256), ("v4:2x2x1", 8), ("v5p:2x2x4", 16)]
)
def test_a_slice_has_the_devices_of_its_grid_and_a_v4_two_a_chip(name, devices):
    found = Slice.parse(name)
    assert (found.name, found.devices) == (name, devices)


@pytest.mark.parametrize("name", ["v7:2x2", "v5", "v5e:4", "v5e:0x4"])
def test_a_name_that_is_no_slice_is_said(name):
    with pytest.raises(ValueError, match=r"one of v4, v5e, v5p, v6e with its grid"):
        Slice.parse(name)


@pytest.mark.parametrize("name", CHIPS)
def test_a_chips_public_figures_fit_each_other(name):
    """Units of 128 x 128, of which a v6e's are counted as four, two by two."""
    units = {"v4": 4, "v5e": 4, "v5p": 8, "v6e": 16}[name]
    chip = CHIPS[name]
    assert 2 * units * 128**2 * chip.clock == pytest.approx(chip.flops, rel=0.01)


def test_without_a_compiler_or_a_slice_that_can_be_it_is_said(monkeypatch):
    if importlib.util.find_spec("libtpu"):
        with pytest.raises(ValueError, match="refuses the topology v5e:3x4: INVALID"):
            devices_of(Slice.parse("v5e:3x4"))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(NoCompilerError, match=r"pip install \"churn-jax\[tpu\]\""):
        devices_of(Slice.parse("v5e:2x2"))
