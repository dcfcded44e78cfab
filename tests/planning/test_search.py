"""The search for a mesh, weak scaling and their text, with plans made by hand."""

import dataclasses

import pytest

from churn_jax.configuration.training import MeshShape
from churn_jax.planning import Slice, mesh_name, scaling, scaling_svg, scaling_text
from churn_jax.planning import search as find
from churn_jax.planning.compile import likely_meshes
from churn_jax.planning.estimate import ALL_DEVICES
from churn_jax.planning.report import comparison, plan_text
from churn_jax.planning.scaling import grown
from churn_jax.studies import preset
from churn_jax.studies.streams import stream_preset
from tests.planning.test_estimate import GRADIENTS, made

DIGITS = preset("digits")
SLICE = Slice.parse("v5e:2x2")


def fake(seconds=lambda mesh: 1e-3, fits=lambda mesh: True):
    """A `plan` that compiles nothing."""

    def plan(config, row, part, mesh):
        ok = fits(mesh)
        return made(
            row=row,
            topology=part.name,
            mesh=dataclasses.asdict(mesh),
            replicas=config.train.replicas,
            batch_size=config.train.batch_size,
            fits=ok,
            refusal="" if ok else "the compiler finds no room: 20 GiB of 15",
            compute_seconds=1e-3 if ok else 0.0,
            communication_seconds=seconds(mesh) if ok else 0.0,
            communication=(GRADIENTS,),
        )

    return plan


def test_the_fastest_of_the_meshes_that_fit_is_recommended_with_its_reasons():
    tried = []
    found = find(
        DIGITS,
        "codistill_skl",
        SLICE,
        many=2,
        on_mesh=lambda mesh, number, count: tried.append((mesh, number, count)),
        plan=fake(seconds=lambda mesh: 1e-3 * mesh.data),
    )
    likely = [one.mesh for one in likely_meshes(DIGITS, "codistill_skl", SLICE)]
    assert [mesh for mesh, _, _ in tried] == likely[:2]
    assert [one.mesh["data"] for one in found.plans] == [m.data for m in likely[:2]]
    assert found.best is min(found.plans, key=lambda p: p.mesh["data"])
    assert f"take --mesh {mesh_name(likely[0])}" in found.why
    assert "times as fast as" in found.why


def test_where_the_first_ones_do_not_fit_others_are_tried():
    likely = [one.mesh for one in likely_meshes(DIGITS, "codistill_skl", SLICE)]
    plan = fake(fits=lambda mesh: mesh != likely[0])
    found = find(DIGITS, "codistill_skl", SLICE, many=1, plan=plan)
    assert len(found.plans) == 2 and found.best is found.plans[1]
    assert "1 of 2 meshes do not fit" in found.why
    # Where none fits, what may help is said.
    found = find(DIGITS, "baseline", SLICE, plan=fake(fits=lambda mesh: False))
    assert found.best is None
    assert "meshes fits (the compiler finds no room: 20 GiB of 15)" in found.why
    assert "take more chips, fewer replicas or a smaller batch" in found.why
    assert "|   no |" in comparison(found.plans)


def test_where_all_devices_must_take_part_meshes_with_idle_ones_are_left_out():
    """Ten replicas on 32 chips: the likeliest mesh uses 20, and v5e refuses that."""
    whole, part = fake(), Slice.parse("v5e:4x8")

    def plan(config, row, part, mesh):
        if mesh.size == part.devices:
            return whole(config, row, part, mesh)
        return made(fits=False, refusal=f"{ALL_DEVICES} 32 devices", updates=0)

    tried = []
    found = find(
        DIGITS,
        "baseline",
        part,
        on_mesh=lambda mesh, *numbers: tried.append((mesh.size, *numbers)),
        plan=plan,
    )
    assert tried == [(20, 1, 3), (32, 2, 3), (32, 3, 3)]
    assert found.best is not None and found.best.devices == 32


def test_idle_devices_are_named():
    found = find(DIGITS, "baseline", Slice.parse("v5e:1x1"), plan=fake(), many=1)
    assert "idle" not in found.why
    one = dataclasses.replace(DIGITS.train, replicas=1, batch_size=3)
    config = dataclasses.replace(DIGITS, train=one)
    found = find(config, "baseline", SLICE, plan=fake(), many=1)
    assert "1 of 4 devices are idle" in found.why


def test_a_streams_meshes_have_no_member_axis():
    likely = likely_meshes(stream_preset("clicks"), "baseline", SLICE)
    assert {one.mesh.member for one in likely} == {1}


@pytest.mark.parametrize(
    ("grow", "replicas", "batch"), [("replicas", 40, 64), ("batch", 10, 256)]
)
def test_a_study_grows_with_its_slice(grow, replicas, batch):
    train = grown(DIGITS, grow, 4).train
    assert (train.replicas, train.batch_size) == (replicas, batch)
    assert train.mesh == (
        MeshShape(replica=4) if grow == "replicas" else MeshShape(data=4)
    )
    with pytest.raises(ValueError, match="one of replicas, batch; got 'both'"):
        grown(DIGITS, "both", 4)
    train = dataclasses.replace(DIGITS.train, replicas=2, seed_numbers=(5, 7))
    numbered = dataclasses.replace(DIGITS, train=train)  # numbers are made anew
    kept = () if grow == "replicas" else (5, 7)
    assert grown(numbered, grow, 2).train.seed_numbers == kept


def test_efficiency_is_relative_to_the_smallest_slice_and_per_doubling():
    """1 ms alone; with 1, 3 ms of communication: half, and a quarter of the speed."""
    slices = [Slice.parse(f"v5e:{grid}") for grid in ("1x1", "2x2", "4x4")]
    late = {1: 0.0, 4: 1e-3, 16: 3e-3}
    points = scaling(
        DIGITS, "baseline", slices, plan=fake(seconds=lambda m: late[m.size])
    )
    assert [point.chips for point in points] == [1, 4, 16]
    assert [point.efficiency for point in points] == pytest.approx([1.0, 0.5, 0.25])
    # From 1 to 4 and from 4 to 16 are two doublings each.
    kept = 0.5**0.5
    assert [point.per_doubling for point in points] == pytest.approx([1.0, kept, kept])
    text = scaling_text(points)
    assert "no TPU ran it" in text
    assert "all-reduce over data, 75% of a step" in text
    svg = scaling_svg({"more replicas": points})
    assert svg.startswith("<svg")
    assert "estimated efficiency (%)" in svg
    plan = fake(fits=lambda mesh: mesh.size == 1)
    with pytest.raises(ValueError, match="v5e:2x2: the compiler finds no room"):
        scaling(DIGITS, "baseline", slices, plan=plan)


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
