"""The step that is planned is the one that a study trains: shapes and shardings."""

import dataclasses

import jax
import pytest

from churn_jax.configuration.training import MeshShape
from churn_jax.planning.steps import study_step, taught_by
from churn_jax.studies.inputs import load_inputs, row_run
from churn_jax.training.session import open_session
from tests.experiments.presets import study as preset


def form(tree):
    """Shape, dtype and how every leaf lies on the mesh."""
    return jax.tree.map(
        lambda x: (x.shape, x.dtype, x.sharding.shard_shape(x.shape)), tree
    )


def on_mesh(config, *axes, replicas=4):
    train = dataclasses.replace(
        config.train, replicas=replicas, mesh=MeshShape(*axes), mapping="vmap"
    )
    return dataclasses.replace(config, train=train)


@pytest.mark.parametrize(
    "name",
    [
        *(
            pytest.param(row, marks=pytest.mark.slow)
            for row in ("baseline", "ensemble")
        ),
        "codistill_skl",
    ],
)
def test_the_arguments_are_those_of_a_session_of_the_study(name):
    members = 1 if name == "baseline" else 2
    config = on_mesh(preset("digits"), 2, members, 2)
    step = study_step(config, name, jax.devices())
    inputs = load_inputs(config.data, config.data.train_size)
    session = open_session(
        row_run(config, config.spec(name), 10),
        inputs.dataset,
        directory=None,
        teacher=None,
        mean=inputs.mean,
        std=inputs.std,
    )
    real = (
        session.parts[0].state,
        session.parts[0].inputs(0),
        (),
        *session.data,
    )
    assert form(step.arguments) == form(real)
    leaves = jax.tree.leaves(step.arguments)  # none of them is allocated
    assert all(isinstance(leaf, jax.ShapeDtypeStruct) for leaf in leaves)
    assert step.updates == session.parts[0].steps_per_call
    assert step.program.mapping == session.program.mapping


def test_the_parts_are_all_of_the_arguments_but_the_labels_place():
    config = on_mesh(preset("dm-digits"), 2, 2, 2)
    step = study_step(config, "ods", jax.devices())
    parts = [id(leaf) for leaf in jax.tree.leaves(step.parts)]
    assert sorted(parts) == sorted(id(leaf) for leaf in jax.tree.leaves(step.arguments))
    # The student's own networks lie on all of its replica's devices, teachers do not.
    assert step.program.teacher.sharded
    assert step.program.replicated


def test_teachers_are_those_that_teach():
    config = preset("elodi-table1")
    own, old, cached = taught_by(config, config.spec("elodi"), 1000)
    assert [group.size for group in own] == [8]
    assert (old, cached) == ((), False)
    own, old, cached = taught_by(config, config.spec("fd_kl"), 1000)
    assert (own, len(old), cached) == ((), 1, False)
    offline = preset("elodi-table11")
    own, _, cached = taught_by(offline, offline.spec("elodi_offline"), 1000)
    assert (own, cached) == ((), True)


def test_pretrained_networks_are_planned_without_their_folder():
    config = preset("elodi-table4:tiny")
    spec = config.methods[0]
    model = dataclasses.replace(spec.model or config.model, pretrained="nowhere")
    row = dataclasses.replace(spec, model=model)
    methods = (row, *config.methods[1:])
    config = dataclasses.replace(config, methods=methods)
    assert study_step(config, row.name, jax.devices()).network.endswith("bert_tiny")


@pytest.mark.slow
def test_crops_of_each_replicas_own_are_fed_as_such():
    config = on_mesh(preset("imagenet:tiny"), 2, 1, 2, replicas=2)
    own = study_step(config, "baseline", jax.devices())
    assert own.program.feed == "own"
    assert own.arguments[3].shape == (2, 32, 32, 32, 3)
    seeds = dataclasses.replace(
        config.train.seeds, order="fixed", augment="fixed", init="varied"
    )
    train = dataclasses.replace(config.train, seeds=seeds)
    shared = dataclasses.replace(config, train=train)
    assert study_step(shared, "baseline", jax.devices()).program.feed == "shared"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"batch_size": 500}, "batch_size 500 is larger than the training set, 192"),
        ({"mesh": MeshShape(1, 4, 1)}, "cannot be sharded over a member axis of 4"),
        ({"mesh": MeshShape(2, 2, 4)}, "needs 16 devices; 8 are present"),
    ],
)
def test_what_does_not_fit_is_said(changes, said):
    config = preset("digits")
    train = dataclasses.replace(config.train, **changes)
    config = dataclasses.replace(config, train=train)
    with pytest.raises(ValueError, match=said):
        study_step(config, "codistill_skl", jax.devices())


def test_replicas_that_take_turns_are_planned_as_one_turn_next_to_those_that_wait():
    """Three of four wait, with weights and momentum of their own."""
    config = preset("digits")
    train = dataclasses.replace(config.train, replicas=4, mapping="loop")
    config = dataclasses.replace(config, train=train)
    step = study_step(config, "baseline", jax.devices()[:1])
    together = study_step(on_mesh(config, 1, 1, 1), "baseline", jax.devices()[:1])
    assert (step.calls, together.calls) == (4, 1)
    state, inputs, _, images, _ = step.arguments
    every, _, _, same, _ = together.arguments
    assert state.step.shape == (1,) and inputs.order.shape[0] == 1
    assert images == same
    waiting = step.others["replicas that wait"]
    for one, all_ in zip(jax.tree.leaves(state), jax.tree.leaves(every), strict=True):
        assert (4, *one.shape[1:]) == all_.shape
    assert len(jax.tree.leaves(waiting)) == 3 * len(jax.tree.leaves((state, inputs)))
    assert step.others["best weights so far"] == together.others["best weights so far"]
