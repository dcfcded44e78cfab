"""Loops, cycles and collectives of programs written by hand."""

from types import SimpleNamespace

import pytest

from churn_jax.planning.hlo import Collective, collectives_of, cycles_of
from churn_jax.training import MeshShape
from churn_jax.training.partition import DATA, MEMBER, REPLICA, make_mesh


def cost(cycles):
    return f'backend_config={{"estimated_cycles":"{cycles}"}}'


PROGRAM = f"""HloModule steps, is_scheduled=true

%sum (a: f32[], b: f32[]) -> f32[] {{
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %add.9 = f32[] add(%a, %b)
}}

%fused (p: f32[8]) -> f32[8] {{
  %p = f32[8] parameter(0)
  ROOT %m.1 = f32[8] multiply(%p, %p), {cost(999)}
}}

%again_body (q: (s32[], f32[8])) -> (s32[], f32[8]) {{
  %q = (s32[], f32[8]) parameter(0)
  %k.1 = s32[] constant(2)
  %v.1 = f32[8]{{0}} get-tuple-element(%q), index=1
  %f.1 = f32[8]{{0:T(256)}} fusion(%v.1), kind=kLoop, calls=%fused, {cost(100)}
  %r.1 = f32[8] all-reduce(%f.1), replica_groups={{{{0,1}}}}, to_apply=%sum
  %s.1 = s32[] select(%k.1, %k.1, %k.1), {cost(7)}
  ROOT %t.1 = (s32[], f32[8]) tuple(%s.1, %r.1)
}}

%again_condition (q: (s32[], f32[8])) -> pred[] {{
  %q = (s32[], f32[8]) parameter(0)
  %two = s32[] constant(2)
  %i.1 = s32[] get-tuple-element(%q), index=0
  ROOT %c.1 = pred[] compare(%i.1, %two), direction=LT
}}

%scan_body (w: (s32[], f32[8])) -> (s32[], f32[8]) {{
  %w = (s32[], f32[8]) parameter(0)
  %one = s32[] constant(1)
  %i.2 = s32[] get-tuple-element(%w), index=0
  %n.2 = s32[] add(%i.2, %one)
  %while.1 = (s32[], f32[8]) while(%w), condition=%again_condition, body=%again_body
  %v.2 = f32[8] get-tuple-element(%while.1), index=1
  %x.2 = f32[8] exponential(%v.2)
  ROOT %t.2 = (s32[], /*index=1*/f32[8]) tuple(%n.2, /*index=1*/%x.2)
}}

%scan_condition (w: (s32[], f32[8])) -> pred[] {{
  %w = (s32[], f32[8]) parameter(0)
  %three = s32[]{{:T(128)}} constant(3)
  %i.3 = s32[] get-tuple-element(%w), index=0
  ROOT %c.2 = pred[]{{:T(512)}} compare(%i.3, %three), direction=LT
}}

%cheap (y: f32[8]) -> f32[8] {{
  %y = f32[8] parameter(0)
  ROOT %g.1 = f32[8] negate(%y), {cost(5)}
}}

%dear (z: f32[8]) -> f32[8] {{
  %z = f32[8] parameter(0)
  ROOT %g.2 = f32[8] sine(%z), {cost(50)}
}}

ENTRY %main (x: f32[8]) -> f32[8] {{
  %x = f32[8] parameter(0)
  %zero = s32[] constant(0)
  %t.3 = (s32[], f32[8]) tuple(%zero, %x)
  %while.2 = (s32[], f32[8]) while(%t.3), condition=%scan_condition, body=%scan_body
  %v.3 = f32[8] get-tuple-element(%while.2), index=1
  %d.1 = f32[8] conditional(%zero, %v.3, %v.3), branch_computations={{%cheap, %dear}}
  %l.1 = f32[8] copy(%d.1), {cost(1000)}
  ROOT %h.1 = f32[8] all-gather(%l.1), replica_groups={{{{0,1}}}}, dimensions={{0}}
}}
"""
MESH = SimpleNamespace(
    shape={"replica": 1, "member": 1, "data": 2},
    axis_names=("replica", "member", "data"),
    size=2,
)


def test_a_scan_counts_as_often_as_it_turns_and_a_repetition_once():
    """Three turns of 100 + 7, the dearer branch's 50 and a copy of 1,000."""
    found = cycles_of(PROGRAM)
    assert found.total == 3 * (100 + 7) + 50 + 1000
    # What is inside a fusion is in the fusion's own estimate.
    assert found.unknown == 6 + 1  # sums and exponentials, and a loop


def test_collectives_inside_of_loops_are_counted_every_time():
    found = collectives_of(PROGRAM, MESH)
    assert [(c.kind, c.times, c.bytes) for c in found] == [
        ("all-gather", 1, 32),
        ("all-reduce", 3, 32),
    ]


CALL = "  %v.9 = f32[8] while(%y), condition=%scan_condition, body=%scan_body\n"


@pytest.mark.parametrize(
    ("before", "after", "total"),
    [
        # A loop whose length is not in the text is taken to turn once.
        ("constant(3)", "copy(%w)", 107 + 1050),
        # A length that the compiler states is taken.
        (
            "body=%scan_body",
            'body=%scan_body, backend_config={"known_trip_count":{"n":"4"}}',
            4 * 107 + 1050,
        ),
        # Two turns were made one, so there are half as many.
        ("%one = s32[] constant(1)", "%one = s32[] constant(2)", 2 * 107 + 1050),
        # A branch of 5 cycles that calls three turns of 107 is the dearer one.
        ("  ROOT %g.1", f"{CALL}  ROOT %g.1", 3 * 107 + (3 * 107 + 5) + 1000),
    ],
    ids=["unknown", "stated", "unrolled", "branch"],
)
def test_a_loop_turns_as_often_as_is_known(before, after, total):
    assert cycles_of(PROGRAM.replace(before, after)).total == total


def test_collectives_of_every_branch_are_there():
    """A rule must hold whichever branch is taken."""
    crossing = "  %r.9 = f32[8] all-reduce(%y), replica_groups={{0,1}}, to_apply=%sum\n"
    text = PROGRAM.replace("  ROOT %g.1", f"{crossing}  ROOT %g.1")
    assert len(collectives_of(text, MESH)) == len(collectives_of(PROGRAM, MESH)) + 1


def test_the_half_that_starts_a_collective_yields_its_result_alone():
    """Its other half has no groups; operands and context words are not moved."""
    start = "((f32[8]), f32[4], u32[]) reduce-scatter-start(%x), to_apply=%sum"
    text = PROGRAM.replace(
        "  %l.1 = ",
        f"  %s.9 = {start}, replica_groups={{{{0,1}}}}\n"
        "  %e.9 = f32[8] any-done(%s.9)\n  %l.1 = ",
    )
    found = collectives_of(text, MESH)
    (one,) = [c for c in found if c not in collectives_of(PROGRAM, MESH)]
    assert (one.bytes, one.times) == (16, 1)


def test_texts_in_an_unknown_form_are_refused():
    with pytest.raises(ValueError, match="no entry"):
        cycles_of("nothing")
    with pytest.raises(ValueError, match="no groups of devices"):
        collectives_of(line("all-reduce", "groups=?"), make_mesh(MeshShape(2)))


def fusion(number, chain="0"):
    """A fusion in which a gather goes on while something is computed."""
    return f"""
%fusion.{number} (u: f32[8]) -> f32[16] {{
  %u = f32[8] parameter(0)
  ROOT %gather.{number} = f32[16] all-gather(%u), replica_groups={{{{0,1}}}}, \
frontend_attributes={{chain_id="{chain}"}}, metadata={{op_name="logits"}}
}}
"""


def test_a_collective_that_overlaps_arithmetic_is_counted_once_per_chain():
    """Three fusions of one chain and one of another are two gathers."""
    calls = "".join(
        f"  %g.{n} = f32[16] fusion(%x), kind=kLoop, calls=%fusion.{n}\n"
        for n in (1, 2, 3, 4)
    )
    text = PROGRAM.replace("ENTRY", f"{fusion(1)}{fusion(2)}{fusion(3)}ENTRY")
    text = text.replace("ENTRY", f"{fusion(4, chain='1')}ENTRY")
    text = text.replace("  %zero = s32[]", f"{calls}  %zero = s32[]")
    gathers = [c.bytes for c in collectives_of(text, MESH) if c.kind == "all-gather"]
    assert gathers == [32, 64, 64]
    # Their cycles are those of the fusions, which have no estimate here.
    assert cycles_of(text).unknown == 7 + 4


def line(kind, groups, shape="f32[2,8]{1,0}"):
    text = f"  %c.1 = {shape} {kind}(%x), channel_id=1, {groups}, metadata={{}}"
    return f"ENTRY %main (x: f32[8]) -> f32[8] {{\n{text}"


# How jax 0.12 writes groups.
MESH_FORM = "replica_groups=mesh['replica'=2,'member'=2,'data'=2] "


@pytest.mark.parametrize(
    ("groups", "axes"),
    [
        ("replica_groups={{0,1},{2,3},{4,5},{6,7}}", (DATA,)),
        ("replica_groups={{0,2},{1,3},{4,6},{5,7}}", (MEMBER,)),
        ("replica_groups={{0,4},{1,5},{2,6},{3,7}}", (REPLICA,)),
        ("replica_groups={{0,2,1,3},{4,6,5,7}}", (MEMBER, DATA)),
        ("replica_groups={{0},{1},{2},{3},{4},{5},{6},{7}}", ()),
        ("replica_groups={}", (REPLICA, MEMBER, DATA)),
        ("replica_groups=[4,2]<=[8]", (DATA,)),
        ("replica_groups=[4,2]<=[2,2,2]T(0,2,1)", (MEMBER,)),
        ("replica_groups=[4,2]<=[2,4]T(1,0)", (REPLICA,)),
        ("replica_groups=[1,8]<=[8]", (REPLICA, MEMBER, DATA)),
        (MESH_FORM + "{'data'}", (DATA,)),
        (MESH_FORM + "{'member'}", (MEMBER,)),
        (MESH_FORM + "{'replica','data'}", (REPLICA, DATA)),
    ],
)
def test_groups_of_devices_are_read_as_mesh_axes(groups, axes):
    mesh = make_mesh(MeshShape(2, 2, 2))
    found = collectives_of(line("all-reduce", groups), mesh)
    assert found == [Collective("all-reduce", axes, (64,))]


@pytest.mark.parametrize(
    ("kind", "shape", "parts"),
    [
        ("all-reduce", "(f32[3]{0}, bf16[2,2]{1,0}, pred[])", (12, 8, 1)),
        ("all-reduce-start", "(f32[3]{0}, f32[])", (12, 4)),
        ("all-gather-start", "(f32[2]{0}, f32[4]{0})", (16,)),
        ("all-gather-start", "((f32[2], s8[2]), (f32[4], s8[4]))", (16, 4)),
        ("all-gather", "f32[4,8]{1,0:T(8,128)S(1)}", (128,)),
        ("reduce-scatter", "s32[]", (4,)),
        ("reduce-scatter-start", "((f32[8]), f32[4], u32[])", (16,)),
        ("all-to-all-start", "((f32[8]), f32[8])", (32,)),
        ("collective-permute-start", "(f32[8], f32[8], u32[], u32[])", (32,)),
        ("collective-permute-start", "((f32[8], f32[2]), (f32[8], f32[2]))", (32, 8)),
        ("all-to-all", "u4[3]", (2,)),
    ],
)
def test_bytes_are_those_of_the_result_on_one_device(kind, shape, parts):
    mesh = make_mesh(MeshShape(2, 2, 2))
    text = line(kind, "replica_groups=[4,2]<=[8]", shape)
    assert collectives_of(text, mesh)[0].parts == parts
    assert collectives_of(text, mesh)[0].bytes == sum(parts)


def test_a_permutation_crosses_the_axes_along_which_its_pairs_differ():
    mesh = make_mesh(MeshShape(2, 2, 2))
    shape = "(f32[2]{0}, f32[2]{0}, u32[], u32[])"
    text = line("collective-permute-start", "source_target_pairs={{0,4},{4,0}}", shape)
    done = "  %d = f32[2]{0} collective-permute-done(%c.1)"
    found = collectives_of(f"{text}\n{done}", mesh)
    assert found == [Collective("collective-permute", (REPLICA,), (8,))]
