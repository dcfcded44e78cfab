"""What the compiled step moves: nothing between replicas, logits between members."""

import functools

import jax
import pytest

from churn_jax.training import MeshShape
from churn_jax.training.partition import DATA, MEMBER
from tests.training import tiny
from tests.training.test_sharding import METHODS

# What the compiler makes of the step is what is looked at.
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("fully_optimized")]
REPLICAS, MEMBERS = 4, 2


@functools.cache
def step_of(name):
    """The step on a (2, 2, 2) mesh, compiled but never run, and its collectives."""
    run = tiny.make_run(METHODS[name], mesh=MeshShape(2, 2, 2), replicas=REPLICAS)
    return tiny.compiled(run)


@pytest.mark.parametrize("name", ["co-distilled pair", "stale twins"])
def test_replicas_never_communicate_and_members_only_logits_and_scalars(name):
    """`test_teachers.py` has what teachers move."""
    found = step_of(name)[2]
    # No collective crosses replicas or mixes members and data.
    assert {c.axes for c in found} == {(MEMBER,), (DATA,)}
    local_replicas, local_batch = REPLICAS // 2, tiny.BATCH // 2
    logits = local_replicas * MEMBERS * local_batch * tiny.CLASSES * 4
    scalars = local_replicas * MEMBERS * 4  # a number of every network
    moved = [c for c in found if MEMBER in c.axes]
    gathered = [c for c in moved if c.kind == "all-gather"]
    assert {part for c in gathered for part in c.parts} == {logits}
    others = [c for c in moved if c.kind != "all-gather"]
    assert {c.kind for c in others} <= {"all-reduce"}
    assert all(part <= scalars for c in others for part in c.parts)


def test_data_shards_only_reduce():
    session, _, found = step_of("co-distilled pair")
    kinds = {c.kind for c in found if DATA in c.axes}
    assert kinds == {"all-reduce"}
    largest = max(x.nbytes for x in jax.tree.leaves(session.parts[0].state.params))
    # A device holds a quarter of the networks; no activation is as small as that.
    assert max(p for c in found if DATA in c.axes for p in c.parts) <= largest // 4
