import dataclasses
import json
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from churn_jax.configuration.codec import from_json, to_json
from churn_jax.configuration.network import ModelConfig
from churn_jax.configuration.record import RowRecord
from churn_jax.configuration.rows import MethodSpec
from churn_jax.configuration.study import DataConfig, StudyConfig
from churn_jax.configuration.training import Seeds, TrainConfig
from churn_jax.data.augment import Augmentation
from churn_jax.methods import (
    ERM,
    AntiDistillation,
    Codistillation,
    EnsembleDistillation,
    MinimumEntropy,
)
from churn_jax.studies.folder import StudyFolder
from churn_jax.studies.grid import Point, is_baseline, programs
from churn_jax.studies.inputs import load_inputs
from churn_jax.studies.presets import preset
from churn_jax.studies.study import run_study
from churn_jax.training.loop import train
from churn_jax.training.run import Run


def study(*methods, **options):
    options = {"baseline": methods[0].name if methods else "none", **options}
    return StudyConfig(
        "s", "A study", DataConfig(), ModelConfig(), TrainConfig(), methods, **options
    )


BASELINE = MethodSpec("baseline", "Baseline", ERM())
STUDENT = MethodSpec("student", "Student", EnsembleDistillation(), teacher="ensemble")
ENSEMBLE = MethodSpec("ensemble", "Ensemble", ERM(members=2, deploy="mean_probs"))
PAIR = MethodSpec("codistill", "Pair", Codistillation(beta=0.3, alpha=0.1))
STUDY = study(BASELINE, STUDENT, ENSEMBLE, PAIR)


def names(specs):
    return [spec.name for spec in specs]


def test_all_methods_are_selected_with_teachers_first():
    expected = ["baseline", "ensemble", "student", "codistill"]
    assert names(STUDY.select(())) == expected


def test_a_students_teacher_is_selected_with_it_and_once():
    assert names(STUDY.select(("student",))) == ["ensemble", "student"]
    assert names(STUDY.select(("student", "ensemble"))) == ["ensemble", "student"]
    assert names(STUDY.select(("codistill", "baseline"))) == ["codistill", "baseline"]


def test_a_chain_of_teachers_is_selected_from_its_end():
    grandchild = MethodSpec(
        "second", "Second", EnsembleDistillation(), teacher="student"
    )
    chain = study(grandchild, STUDENT, ENSEMBLE)
    assert names(chain.select(("second",))) == ["ensemble", "student", "second"]


def test_unknown_method_is_an_error_with_the_closest_names():
    with pytest.raises(
        ValueError, match=r"unknown method 'codistil'.*mean codistill\?"
    ):
        STUDY.select(("codistil",))


def test_coefficient_is_set_on_one_method_and_the_study_is_left_alone():
    changed = STUDY.with_coefficient("codistill.beta", 0.7)
    assert changed.spec("codistill").method == Codistillation(beta=0.7, alpha=0.1)
    assert changed.spec("baseline") is BASELINE
    assert STUDY.spec("codistill").method.beta == 0.3
    assert names(changed.methods) == names(STUDY.methods)


@pytest.mark.parametrize(
    ("path", "message"),
    [
        (
            "codistill.gamma",
            "codistill has no coefficient 'gamma'; it has: beta, alpha",
        ),
        ("codistill.members", "no coefficient 'members'"),
        ("codistill", "no coefficient ''"),
        ("codistil.beta", "unknown method 'codistil'"),
    ],
)
def test_unknown_coefficient_is_an_error_that_lists_them(path, message):
    with pytest.raises(ValueError, match=message):
        STUDY.with_coefficient(path, 1.0)


def test_studies_are_checked():
    with pytest.raises(ValueError, match="two methods have one name"):
        study(BASELINE, BASELINE)
    with pytest.raises(
        ValueError, match="student is taught by 'ensemble', which is not"
    ):
        study(BASELINE, STUDENT)
    alone = dataclasses.replace(STUDENT, teacher=None)
    with pytest.raises(ValueError, match="student needs the name of its teacher"):
        study(BASELINE, alone)


def test_committee_of_one_architecture_has_the_methods_members():
    (group,) = ENSEMBLE.groups(ModelConfig(features=(8,)), 10)
    assert group.size == 2 and group.network.name == "mlp"


def test_committee_of_several_architectures_is_in_the_order_given():
    spec = dataclasses.replace(PAIR, models=(("lenet5", 1), ("mlp", 2)))
    groups = spec.groups(ModelConfig(features=(8,)), 10)
    assert [(g.network.name, g.size) for g in groups] == [("lenet5", 1), ("mlp", 2)]


def test_members_of_a_committee_may_differ_in_width_and_in_what_they_see():
    left = ModelConfig(features=(8,), inputs=tuple(range(32)))
    right = ModelConfig(features=(5,), inputs=tuple(range(32, 64)))
    method = AntiDistillation(members=3, deploy="gate")
    spec = MethodSpec("ad", "AD", method, models=((left, 1), (right, 1), ("mlp", 1)))
    *members, gate = spec.groups(ModelConfig(features=(9,), init="uniform"), 10)
    images = np.random.default_rng(0).random((2, 8, 8, 1), np.float32)
    upper = images.copy()
    upper[:, 4:] = 0.0  # what the left one sees
    kernels = []
    for group in members:
        shapes = jax.eval_shape(group.network.init, jax.random.key(0), images)
        variables = jax.tree.map(lambda s: np.full(s.shape, 0.1, s.dtype), shapes)
        kernels.append(variables["params"]["dense1"]["kernel"].shape)
        given = [group.network.apply(variables, x)[0].logits for x in (images, upper)]
        assert np.array_equal(*given) == (group is members[0])
    assert kernels == [(32, 8), (32, 5), (64, 256)]
    assert gate.gate and gate.size == 3
    # What a checkpoint and a record know them by.
    assert len({group.network.name for group in members}) == 3
    assert to_json(spec)["models"][1] == [to_json(right), 1]
    assert to_json(right)["inputs"] == list(range(32, 64))


def test_a_row_with_another_committee_is_trained_again(tmp_path):
    inputs = load_inputs(DataConfig(train_size=32), 32)
    spec = dataclasses.replace(PAIR, models=(("mlp", 1), ("lenet5", 1)))
    config = study(BASELINE, spec)
    folder = StudyFolder(tmp_path, config, inputs.dataset, "")
    folder.write(RowRecord(spec.name, spec.label, spec))
    assert not folder.outdated(spec)
    assert not folder.outdated(dataclasses.replace(spec, label="Two", equation="E"))
    assert folder.outdated(PAIR)


def test_an_ensemble_with_a_gate_is_no_teacher():
    gated = MethodSpec("ensemble", "Gated", AntiDistillation(deploy="gate"))
    with pytest.raises(ValueError, match="student: an ensemble with a gate cannot"):
        study(BASELINE, STUDENT, gated)
    groups = STUDENT.groups(ModelConfig(), 10)
    run = Run("student", STUDENT.method, groups, TrainConfig(batch_size=16))
    taught_by = SimpleNamespace(run=SimpleNamespace(method=gated.method))
    dataset = load_inputs(DataConfig(train_size=32), 32).dataset
    with pytest.raises(ValueError, match="student: an ensemble with a gate cannot"):
        train(run, dataset, teacher=taught_by)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": "lenet5", "inputs": (1,)}, "which an mlp sees; got 'lenet5'"),
        ({"inputs": (1, 1)}, "name every column once"),
        ({"name": "resnet-20"}, "did you mean 'resnet20'"),
        ({"dtype": "float16"}, "float32 or bfloat16; got 'float16'"),
        ({"remat": True}, "'mlp' has no field 'remat'"),
        ({"name": "lenet5", "features": (3,)}, "'lenet5' has no field 'features'"),
        ({"init": "ones"}, "he, uniform, truncated_normal; got 'ones'"),
        ({"name": "lenet5", "init": "he"}, "'lenet5' has no field 'kernel_init'"),
    ],
)
def test_bad_networks_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        ModelConfig(**options).build(10)


def test_how_the_weights_start_is_the_networks_and_is_in_its_name():
    x = jnp.ones((1, 4))
    own, he, uniform = (
        ModelConfig(features=(8,), init=init).build(10)
        for init in ("", "he", "uniform")
    )
    assert (own.name, he.name, uniform.name) == ("mlp", "mlp-he", "mlp-uniform")
    start = [
        network.init(jax.random.key(0), x)["params"]["dense1"]["kernel"]
        for network in (own, he, uniform)
    ]
    np.testing.assert_array_equal(start[0], start[1])
    assert np.abs(start[2]).max() <= np.sqrt(6 / 12) and np.any(start[2] != start[0])


def test_resolved_configuration_is_json_and_names_its_methods():
    grid = dataclasses.replace(
        STUDY,
        methods=(
            BASELINE,
            MethodSpec("grid", "Grid", MinimumEntropy(alpha=jnp.array([0.25, 0.5]))),
        ),
    )
    value = json.loads(json.dumps(to_json(grid)))
    assert value["methods"][0]["method"]["class"] == "ERM"
    assert value["methods"][1]["method"]["alpha"] == [0.25, 0.5]
    assert value["methods"][1]["method"]["ramp"] == {"kind": "constant", "steps": 0.0}
    assert value["train"]["optimizer"]["learning_rate"] == 0.1
    assert to_json(np.float32(0.5)) == 0.5 and to_json((1, None)) == [1, None]


def row(*train, **options):
    return MethodSpec("row", "Row", ERM(), train=train, **options)


def test_a_row_trains_as_the_study_but_for_its_changes():
    train = TrainConfig(epochs=7)
    spec = row(
        ("seeds.init", "fixed"),
        ("optimizer.weight_decay", 0.0),
        ("sample", "bootstrap"),
        ("augmentation", Augmentation(shift=3)),
    )
    own = spec.config(train)
    assert own == dataclasses.replace(
        train,
        seeds=Seeds(init="fixed"),
        optimizer=dataclasses.replace(train.optimizer, weight_decay=0.0),
        sample="bootstrap",
        augmentation=Augmentation(shift=3),
    )
    assert row().config(train) is train
    record = json.loads(json.dumps(to_json(spec)))
    assert record["train"][0] == ["seeds.init", "fixed"]
    assert from_json(MethodSpec, record).config(train) == own


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("seed.init", "fixed"), r"row: the training has no setting 'seed'.*seeds"),
        (("seeds.inti", "fixed"), "row: seeds has no setting 'inti'.*mean init"),
        (("epochs.many", 3), "row: epochs has no settings; got epochs.many"),
        (("seeds", "fixed"), r"row: seeds must be a Seeds, or name.*\(seeds.base\)"),
        (("seeds.init", "same"), "row: seeds.init must be one of fixed, varied"),
        (("epochs", 0), "row: epochs must be at least 1; got 0"),
        (("replicas", 3), "row has 3 replicas, the study 10"),
    ],
)
def test_a_rows_bad_change_is_an_error_that_names_the_row(change, message):
    with pytest.raises(ValueError, match=message):
        study(row(change))


def test_a_rows_training_size_is_checked():
    with pytest.raises(ValueError, match="row: train_size must be at least 1; got 0"):
        study(row(train_size=0))


def test_the_row_of_averaged_weights_has_its_name_alone():
    taken = MethodSpec("row_ema", "Other", ERM())
    study(row(), taken)
    with pytest.raises(ValueError, match="row_ema is the row of row's averaged"):
        study(row(("ema_decay", 0.9)), taken)


def test_methods_that_would_teach_each_other_are_refused():
    config = preset("digits")
    student = config.spec("distillation")
    teacher = dataclasses.replace(
        student, name="ensemble", teacher="distillation", label="teaches its teacher"
    )
    with pytest.raises(ValueError, match="taught by itself"):
        dataclasses.replace(config, methods=(config.spec("baseline"), student, teacher))


def test_a_coefficient_given_as_an_integer_can_be_changed():
    config = preset("digits")
    spec = config.spec("codistill_skl")
    whole = dataclasses.replace(spec, method=spec.method.replace(beta=1))
    config = dataclasses.replace(config, methods=(config.spec("baseline"), whole))
    changed = config.with_coefficient("codistill_skl.beta", 0.5)
    assert changed.spec("codistill_skl").method.beta == 0.5


def test_a_row_can_have_a_network_of_its_own():
    own = ModelConfig("mlp", features=(7,))
    wide = MethodSpec("wide", "Wide", ERM(), model=own)
    plain = MethodSpec("baseline", "Baseline", ERM())
    whole = preset("digits")
    config = dataclasses.replace(whole, methods=(plain, wide))
    shapes = []
    for spec in config.methods:
        (group,) = spec.groups(config.model, 10)
        images = jnp.zeros((1, 8, 8, 1))
        built = jax.eval_shape(group.network.init, jax.random.key(0), images)
        shapes.append(built["params"]["dense1"]["kernel"].shape)
    assert shapes == [(64, 256), (64, 7)]
    # Neither is it the baseline under another name, nor part of its program.
    assert is_baseline(config, plain) and not is_baseline(config, wide)
    points = [Point(spec.name, "", None, spec) for spec in config.methods]
    assert [len(part) for part in programs(config, points)] == [1, 1]
    assert to_json(wide)["model"]["features"] == [7]
    assert to_json(plain)["model"] is None


def test_columns_are_checked_before_anything_is_trained(tmp_path):
    chosen = dataclasses.replace(preset("digits"), columns=("accuracy", "charm"))
    assert to_json(chosen)["columns"] == ["accuracy", "charm"]
    with pytest.raises(ValueError, match="no column 'charm' can be shown"):
        run_study(chosen, tmp_path / "run")
    assert not (tmp_path / "run").exists()
