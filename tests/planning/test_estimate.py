"""What follows from a plan's numbers."""

import dataclasses
import json
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from churn_jax.planning import CHIPS, Check, Communication, Plan, Slice
from churn_jax.planning.estimate import estimate, ring_seconds
from churn_jax.planning.report import plan_text
from churn_jax.planning.steps import Step
from tests.planning.test_hlo import PROGRAM

GRADIENTS = Communication("data", "all-reduce", 10, 8_000_000, 4_000_000, 2e-3)


def made(**fields):
    """A plan of ten replicas of batch 100 on two devices; 8 ms and 2 ms an update."""
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
        "open_turns": 1,
        "fits": True,
        "refusal": "",
        "hbm": 16 * 2**30,
        "memory": {"weights": 2**30, "temporary": 2**31},
        "other_memory": {"best weights so far": 2**30},
        "flops": 1e9,
        "useful": 4e9,
        "bytes": 1e9,
        "peak": 2e12,
        "cycles": 1.2e7,
        "unknown": {"copy": 3},
        "open_loops": 0,
        "compute_seconds": 8e-3,
        "communication": (GRADIENTS,),
        "communication_seconds": 2e-3,
        "checks": (Check("nothing crosses replica", True, "0 collectives"),),
        "compile_seconds": 9.0,
        "versions": {"jax": "0"},
    }
    return Plan(**{**common, **fields})


def test_a_step_takes_the_sum_or_at_best_the_longer_part():
    plan = made()
    assert plan.step_seconds == pytest.approx(0.010)
    assert plan.overlapped_seconds == pytest.approx(0.008)
    assert plan.rate == pytest.approx(10 * 100 / 0.010)
    # 4e9 useful operations in 10 ms of two devices of 2e12 per second.
    assert plan.utilisation == pytest.approx(4e9 / (0.010 * 2 * 2e12))
    # Where they are not known, those that the compiler counts on each device.
    assert made(useful=0.0).utilisation == pytest.approx(2e9 / (0.010 * 4e12))
    assert (plan.used, plan.devices) == (2**32, 2)
    refused = made(fits=False, compute_seconds=0.0, communication_seconds=0.0)
    assert (refused.rate, refused.utilisation) == (0.0, 0.0)
    broken = Check("the state is updated in place", False, "")
    assert plan.passed and not made(checks=(*plan.checks, broken)).passed


def test_a_plan_is_json_with_what_follows_from_it():
    found = json.loads(json.dumps(made().to_json()))
    assert found["rate"] == pytest.approx(1e5)
    assert found["checks"][0]["rule"] == "nothing crosses replica"


@pytest.mark.parametrize(
    ("kind", "yielded", "devices", "dims", "seconds"),
    [
        # 4 devices, links of 1 GB/s, two of them: 2 x 3/4 of 8 MB, and 4 hops.
        ("all-reduce", 8_000_000, 4, 1, 12e6 / 2e9 + 4e-6),
        ("all-gather", 8_000_000, 4, 1, 6e6 / 2e9 + 2e-6),
        # A device is left with a quarter of what was reduced.
        ("reduce-scatter", 2_000_000, 4, 1, 6e6 / 2e9 + 2e-6),
        ("collective-permute", 8_000_000, 4, 1, 8e6 / 1e9 + 2e-6),  # one link
        # 16 devices of 1 MB each: a message passes 4 chips on average, either way.
        ("all-to-all", 1_000_000, 16, 1, 16e6 / 4 / 2e9 + 8e-6),
        # A ring of two is no ring: what leaves a device takes the one link it has.
        ("all-reduce", 8_000_000, 2, 1, 2 * (4e6 / 1e9 + 1e-6)),
        ("all-gather", 8_000_000, 2, 1, 4e6 / 1e9 + 1e-6),
        ("all-reduce", 10**9, 1, 1, 0.0),
        # 256 chips: half of two rings of 16, there and back, instead of one of 256.
        ("all-reduce", 0, 256, 1, 256e-6),
        ("all-reduce", 0, 256, 2, 32e-6),
    ],
)
def test_a_ring_by_hand(kind, yielded, devices, dims, seconds):
    found = ring_seconds(kind, yielded, devices, 1e9, dims)
    assert found == pytest.approx(seconds)


def test_a_reduction_is_a_scatter_and_a_gather():
    whole = ring_seconds("all-reduce", 8_000_000, 8, 50e9)
    scatter = ring_seconds("reduce-scatter", 1_000_000, 8, 50e9)
    gather = ring_seconds("all-gather", 8_000_000, 8, 50e9)
    assert whole == pytest.approx(scatter + gather)


class Compiled:
    """A program of which everything is known; compiles to itself."""

    def __init__(self, temporary=5000, results=700, refusal=None):
        self.temporary, self.results, self.refusal = temporary, results, refusal

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
            output_size_in_bytes=self.results,
            alias_size_in_bytes=600,
            temp_size_in_bytes=self.temporary,
            generated_code_size_in_bytes=300,
        )

    def cost_analysis(self):
        return {"flops": 6e6, "bytes accessed": 7e6}


def estimated(compiled, topology="v5e:1x2", data=2, calls=1):
    """Of three updates a call, 100 weights on every device and 50 other numbers."""
    mesh = jax.make_mesh(
        (1, 1, data),
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
        jitted=compiled,
        arguments=(),
        parts={"weights": numbers(100), "nothing": ()},
        others={"best weights": numbers(50)},
        program=SimpleNamespace(mesh=mesh),
        run=run,
        classes=10,
        network="1 x mlp",
        updates=3,
        calls=calls,
    )
    return estimate(
        step,
        Slice.parse(topology),
        lambda step, found, reused: [Check("reused", True, str(reused))],
        preset="digits",
        useful=8e6,
    )


def test_what_the_compiler_says_becomes_a_plan():
    plan = estimated(Compiled())
    assert plan.memory == {
        "weights": 400,
        "padding of these": 600,
        "results in memory of their own": 100,
        "temporary": 5000,
        "program": 300,
    }
    assert (plan.other_memory, plan.used) == ({"best weights": 200}, 6600)
    # Three turns of 107, a branch of 50 and a copy of 1,000, of three updates.
    assert plan.cycles == 1371 / 3
    assert plan.compute_seconds == pytest.approx(457 / 1.5e9)
    assert (plan.flops, plan.bytes, plan.useful) == (6e6, 7e6, 8e6)
    gather, reduction = plan.communication
    assert (gather.kind, gather.count, gather.bytes) == ("all-gather", 1, 32)
    assert gather.seconds == pytest.approx((16 / 50e9 + 1e-6) / 3)
    assert (reduction.kind, reduction.count, reduction.bytes) == ("all-reduce", 3, 96)
    assert reduction.seconds == pytest.approx(32 / 50e9 + 2e-6)
    assert plan.communication_seconds == gather.seconds + reduction.seconds
    assert plan.checks[0].seen == "600"
    # Four replicas of ten examples.
    assert plan.rate == pytest.approx(40 / (plan.compute_seconds + 7e-6 / 3), rel=1e-3)


def test_replicas_that_take_turns_cost_every_turn():
    one, two = estimated(Compiled()), estimated(Compiled(), calls=2)
    for name in ("cycles", "compute_seconds", "flops", "bytes"):
        assert getattr(two, name) == pytest.approx(2 * getattr(one, name)), name
    for name in ("count", "bytes", "seconds"):
        values = [getattr(plan.communication[0], name) for plan in (one, two)]
        assert values[1] == pytest.approx(2 * values[0]), name
    assert two.memory == one.memory and two.rate == pytest.approx(one.rate / 2)
    assert "take turns" not in plan_text(one)
    assert "replicas take turns on a device, 2 at a time" in plan_text(two)


def test_results_of_their_own_are_no_reuse_and_the_last_byte_fits():
    """Half of a state in place has more bytes, with padding, than all of it."""
    assert estimated(Compiled(results=600 + 4096)).checks[0].seen == "600"
    assert estimated(Compiled(results=600 + 4097)).checks[0].seen == "0"
    room, others = CHIPS["v5e"].room, 400 + 600 + 100 + 300 + 200
    assert room == 15.75 * 2**30
    assert estimated(Compiled(temporary=room - others)).fits
    assert not estimated(Compiled(temporary=room - others + 1)).fits


def test_eight_devices_of_a_grid_of_two_by_four_pass_along_both_sides():
    whole = estimated(Compiled(), "v5e:2x4", data=8).communication[1]
    assert whole.seconds == pytest.approx(ring_seconds("all-reduce", 32, 8, 50e9, 2))
    row = estimated(Compiled(), "v5e:2x4", data=4).communication[1]
    assert row.seconds == pytest.approx(ring_seconds("all-reduce", 32, 4, 50e9))


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
    plan = estimated(Compiled(refusal=refusal), "v5e:2x2")
    assert said in plan.refusal
    assert (plan.fits, plan.rate, plan.memory) == (False, 0.0, {"weights": 400})
    with pytest.raises(jax.errors.JaxRuntimeError, match="INTERNAL: other"):
        estimated(Compiled(refusal="INTERNAL: other"))


def test_a_plan_is_told_with_its_limits():
    text = plan_text(made(open_loops=1))
    assert "Fits: 4.00 GiB of 16.00 GiB per device (25%)." in text
    assert "The compiler's estimate; no TPU ran it." in text
    assert "8.00 ms if both overlap, 10.00 ms if not" in text
    assert "100,000 examples per second" in text
    assert "- ok: nothing crosses replica (0 collectives)" in text
    assert "taken to turn once" in text
    assert "| data | all-reduce |" in text
    refused = made(fits=False, refusal="the compiler finds no room: 20 of 15 GiB")
    assert plan_text(refused).splitlines()[3].startswith("Does not fit: the compiler")
    two = dataclasses.replace(GRADIENTS, count=3, bytes=9_000_000)
    text = plan_text(made(communication=(two,), updates=2))
    assert "|              1.5 | 4,500,000 | 4,000,000 |  2.00 ms |" in text
    assert "Nothing moves" in plan_text(made(communication=()))
