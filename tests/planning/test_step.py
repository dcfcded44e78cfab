"""The step that is planned is the one that a study trains: shapes and shardings."""

import dataclasses

import jax
import numpy as np
import pytest

from churn_jax.data import named
from churn_jax.methods import ERM
from churn_jax.planning.step import SIZES, row_sizes, row_teachers, study_step
from churn_jax.studies import DataConfig, MethodSpec
from churn_jax.studies.inputs import facts_of, load_inputs, row_run
from churn_jax.training import MeshShape
from churn_jax.training.session import open_session
from tests.experiments.presets import STUDIES
from tests.experiments.presets import study as preset
from tests.refusals import refusals

ROW = MethodSpec("a", "A", ERM())


def form(tree):
    """Shape, dtype and how every leaf lies on the mesh."""
    return jax.tree.map(
        lambda x: (x.shape, x.dtype, x.sharding.shard_shape(x.shape)), tree
    )


def trained_with(config, **own):
    return dataclasses.replace(config, train=dataclasses.replace(config.train, **own))


def on_mesh(config, *axes, replicas=4):
    return trained_with(
        config, replicas=replicas, mesh=MeshShape(*axes), mapping="vmap"
    )


@pytest.mark.parametrize(
    "name", [pytest.param("ensemble", marks=pytest.mark.slow), "codistill_skl"]
)
def test_the_arguments_are_those_of_a_session_of_the_study(name):
    config = on_mesh(preset("digits"), 2, 2, 2)
    step = study_step(config, name, jax.devices())
    inputs = load_inputs(config.data, config.data.train_size)
    run = row_run(config, config.spec(name), 10)
    moments = {"mean": inputs.mean, "std": inputs.std}
    session = open_session(run, inputs.dataset, **moments)
    (part,) = session.parts
    real = (part.state, part.inputs(0), (), *session.data)
    assert form(step.arguments) == form(real)
    leaves = jax.tree.leaves(step.arguments)  # none of them is allocated
    assert all(isinstance(leaf, jax.ShapeDtypeStruct) for leaf in leaves)
    assert step.updates == part.steps_per_call
    assert step.program.mapping == session.program.mapping


@pytest.fixture
def compiler_options():
    """What programs are compiled with for users; nothing is compiled here."""
    name = "jax_disable_most_optimizations"
    before = jax.config.read(name)
    jax.config.update(name, False)
    yield
    jax.config.update(name, before)


@pytest.mark.usefixtures("compiler_options")
def test_the_parts_are_all_of_the_arguments_and_teachers_are_sharded():
    config = on_mesh(preset("dm-digits"), 2, 2, 2)
    step = study_step(config, "ods", jax.devices())
    parts = [id(leaf) for leaf in jax.tree.leaves(step.parts)]
    assert sorted(parts) == sorted(id(leaf) for leaf in jax.tree.leaves(step.arguments))
    # The student's own networks lie on all of its replica's devices, teachers do not.
    assert step.program.teacher.sharded and step.program.replicated


@pytest.mark.parametrize(
    ("study", "row", "own", "old", "cached"),
    [
        ("elodi-table1", "elodi", [8], 0, False),
        ("elodi-table1", "fd_kl", [], 1, False),
        ("elodi-table11", "elodi_offline", [], 0, True),
    ],
)
def test_teachers_are_those_that_teach(study, row, own, old, cached):
    config = preset(study)
    found = row_teachers(config, config.spec(row), SIZES["imagenet2012"])
    assert [group.size for group in found.own_groups()] == own
    assert len(found.old_groups()) == old and (found.cached is not None) == cached


def test_a_calibrated_teacher_is_planned_with_its_members_temperatures():
    """The teacher's networks are of two kinds."""
    config = preset("elodi-digits:tiny")
    rows = {spec.name: spec for spec in config.methods}
    kinds = ((rows["ensemble"].model, 3), (rows["old_ensemble"].model, 1))
    rows["ensemble"] = dataclasses.replace(rows["ensemble"], models=kinds)
    teaching = dataclasses.replace(rows["elodi"].teaching, calibrated=True)
    rows["elodi"] = dataclasses.replace(rows["elodi"], teaching=teaching)
    config = dataclasses.replace(config, methods=tuple(rows.values()))
    step = study_step(config, "elodi", jax.devices())
    found = [variables["temperature"].shape for variables in step.parts["teachers"]]
    assert found == [(2, 3, 1), (2, 1, 1)]  # replicas, networks, heads
    step.jitted.lower(*step.arguments)


def test_what_a_method_remembers_is_planned_for_every_replica():
    config = preset("elodi-digits:tiny")
    step = study_step(config, "bu_cr", jax.devices())
    (memory,) = jax.tree.leaves(step.arguments[0].memory)
    assert memory.shape == (2, 2, 10, 10)  # replicas, old and new model, classes


def test_pretrained_networks_are_planned_without_their_folder():
    config = preset("elodi-table4:tiny")
    spec = config.methods[0]
    model = dataclasses.replace(spec.model or config.model, pretrained="nowhere")
    row = dataclasses.replace(spec, model=model)
    config = dataclasses.replace(config, methods=(row, *config.methods[1:]))
    (group,) = study_step(config, row.name, jax.devices()).run.groups
    assert group.network.name == "bert_tiny"


@pytest.mark.slow
def test_crops_of_each_replicas_own_are_fed_as_such():
    config = on_mesh(preset("imagenet:tiny"), 2, 1, 2, replicas=2)
    own = study_step(config, "baseline", jax.devices())
    assert own.program.feed == "own"
    assert own.arguments[3].shape == (2, 32, 32, 32, 3)
    seeds = dataclasses.replace(
        config.train.seeds, order="fixed", augment="fixed", init="varied"
    )
    shared = trained_with(config, seeds=seeds)
    assert study_step(shared, "baseline", jax.devices()).program.feed == "shared"


test_what_does_not_fit_is_said = refusals(
    ({"batch_size": 500}, "batch_size 500 is larger than the training set, 192"),
    ({"mesh": MeshShape(1, 4, 1)}, "cannot be sharded over a member axis of 4"),
    ({"mesh": MeshShape(2, 2, 4)}, "needs 16 devices; 8 are present"),
    call=lambda changes: study_step(
        trained_with(preset("digits"), **changes), "codistill_skl", jax.devices()
    ),
)


def test_replicas_that_take_turns_are_planned_as_one_turn_next_to_those_that_wait():
    """Three of four wait, with weights and momentum of their own."""
    config = trained_with(preset("digits"), replicas=4, mapping="loop")
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


@pytest.mark.parametrize(
    "config",
    [
        DataConfig(),
        DataConfig(validation=None),
        DataConfig(train_size=192, validation=600),
    ],
    ids=str,
)
def test_the_digits_are_cut_as_the_study_cuts_them(config):
    loaded = load_inputs(config, config.train_size).dataset
    assert row_sizes(config, ROW) == facts_of(loaded)._replace(test=0)


def test_every_preset_has_a_data_set_of_known_size_or_a_file():
    for name in STUDIES:
        data = preset(name).data
        planned = not preset(name).train.one_pass  # clicks are not
        assert data.name in SIZES or data.name.endswith(".npz") or not planned, name


def test_a_rows_own_share_classes_and_size_are_heeded():
    data = DataConfig("cifar10", validation=1000)
    half = {"class_share": 0.5, "classes": (0, 1, 2, 3, 4)}
    for changes, count in (({}, 49_000), (half, 12_250), ({"train_size": 256}, 256)):
        assert row_sizes(data, dataclasses.replace(ROW, **changes)).train == count
    # Images of any size are cropped, and texts cut.
    cropped = row_sizes(DataConfig("imagenet2012", image_size=64), ROW)
    assert (cropped.shape, cropped.streamed) == ((64, 64, 3), True)
    text = row_sizes(DataConfig("ag_news_subset", sequence_length=128), ROW)
    assert (text.shape, text.dtype, text.streamed) == ((128,), np.int32, False)


def test_a_file_of_the_users_own_is_opened(tmp_path):

    rows = np.random.default_rng(0).normal(size=(400, 12)).astype(np.float32)
    np.savez(tmp_path / "mine.npz", images=rows, labels=np.arange(400) % 4)
    mine = DataConfig(str(tmp_path / "mine.npz"), validation=None)
    as_object = DataConfig(named(dict(np.load(mine.name))), validation=None)
    found = load_inputs(mine, None).dataset
    sizes = row_sizes(mine, ROW)
    assert row_sizes(as_object, ROW) == sizes
    assert sizes[:4] == ((12,), 4, len(found.train), len(found.validation))
    assert sizes.dtype == np.float32
    assert row_sizes(mine, dataclasses.replace(ROW, train_size=50)).train == 50


test_data_of_unknown_size_are_refused_by_name = refusals(
    (DataConfig("mine.npz"), r"digits, mnist.*got 'mine\.npz'"),
    (DataConfig("mnist", train_size=70_000), "train_size=70000 is more than the 54000"),
    call=lambda data: row_sizes(data, ROW),
)
