"""Distillation along drawn teachers' directions, on meshes and with every mapping.

Four teachers, sharded over the member axis; their student is one network of four
members with a convolution, on every device of that axis.
"""

import dataclasses
import functools

import jax
import numpy as np
import pytest

from churn_jax.ensembles import from_linen
from churn_jax.methods import ERM, OneToOneDistillation
from churn_jax.training import MeshShape
from churn_jax.training.partition import DATA, MEMBER
from churn_jax.training.session import open_session
from tests.training import tiny

TEACHERS = 4
ODS = OneToOneDistillation(
    members=TEACHERS, perturbation="ods", temperature=2.0, step_size=0.05
)
STUDENT = tiny.hashed(from_linen(tiny.SharedNet(4)))


@functools.cache
def teacher():
    return tiny.teacher(TEACHERS, network=tiny.SMALL)


@functools.cache
def trained(mesh, mapping):
    """The states after one update and after five, which compile nothing more."""
    run = tiny.make_run(ODS, network=STUDENT, mesh=MeshShape(*mesh), mapping=mapping)
    stepper = tiny.stepper(run, taught_by=teacher())
    first = stepper.advance(1)
    with tiny.compilations() as names:
        last = stepper.advance(4)
    assert not [name for name in names if "steps" in name]
    return stepper, first, last


@pytest.mark.slow
def test_a_mesh_computes_what_one_device_computes():
    """On the mesh, under `vmap`, every replica takes out its own drawn teacher."""
    _, first, last = trained((1, 1, 1), "loop")
    stepper, mesh_first, mesh_last = trained((2, 2, 2), "vmap")
    program = stepper.session.program
    assert program.teacher.sharded and program.mesh.size == 8
    assert program.replicated
    assert max(np.abs(g).max() for g in jax.tree.leaves(tiny.gradient(first))) > 0.05
    for ours, theirs in (
        (tiny.gradient(mesh_first), tiny.gradient(first)),
        (mesh_last.sums, last.sums),
        (mesh_last.params, last.params),
        (mesh_last.model_state, last.model_state),
    ):
        assert tiny.largest_difference(ours, theirs) < 1e-5


@pytest.mark.slow
@pytest.mark.usefixtures("fully_optimized")
def test_the_direction_costs_one_image_between_members():
    """The drawn teacher's gradient; all else that members exchange is logits."""
    run = tiny.make_run(ODS, network=STUDENT, mesh=MeshShape(2, 2, 2), replicas=4)
    found = tiny.compiled(run, taught_by=teacher())[2]
    assert {c.axes for c in found} == {(MEMBER,), (DATA,)}
    rows = 2 * tiny.BATCH // 2  # local replicas times local batch
    image, logits = rows * 8 * 8 * 4, rows * TEACHERS * tiny.CLASSES * 4
    between = [c for c in found if c.axes == (MEMBER,)]
    parts = sorted((part for c in between for part in c.parts), reverse=True)
    assert parts[0] == image
    assert parts[1] <= logits < image
    gathered = [c for c in between if c.kind == "all-gather"]
    assert {part for c in gathered for part in c.parts} == {logits}


def test_the_engine_refuses_features_that_would_be_clipped():
    images = tiny.dataset()
    part = dataclasses.replace(
        images.train, images=images.train.images / np.float32(64) - 2
    )
    features = dataclasses.replace(images, train=part)
    run = tiny.make_run(ODS, network=STUDENT)
    with pytest.raises(ValueError, match=r"from -2 to 1\.98.*outside of pixel_range"):
        open_session(
            run, features, directory=None, teacher=teacher(), mean=0.0, std=1.0
        )


@pytest.mark.slow
def test_without_teachers_weight_it_is_plain_training_of_the_mean():
    """alpha = 0, whatever is perturbed: the cross-entropy is on clean images."""
    taught = tiny.teacher(2, replicas=2, network=tiny.LINEAR)
    method = OneToOneDistillation(
        members=2, alpha=0.0, perturbation="conf_ods", step_size=0.2
    )
    plain = ERM(members=2, over_members="mean")
    states = []
    for one, by in ((method, taught), (plain, None)):
        run = tiny.make_run(one, network=tiny.LINEAR, replicas=2)
        states.append(tiny.stepper(run, taught_by=by).advance(4))
    assert tiny.largest_difference(states[0].params, states[1].params) < 1e-6
    np.testing.assert_allclose(states[0].sums[:, 0], states[1].sums[:, 0], rtol=1e-6)
