import dataclasses
import json
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from churn_jax.command.study import read_study
from churn_jax.configuration.codec import from_json, to_json
from churn_jax.configuration.network import ModelConfig, Sharing, Towers
from churn_jax.configuration.rows import MethodSpec, Teaching
from churn_jax.configuration.study import DataConfig, StudyConfig, Update
from churn_jax.configuration.training import (
    MeshShape,
    OptimizerConfig,
    Seeds,
    TrainConfig,
)
from churn_jax.data.augment import Augmentation
from churn_jax.ensembles import Group, from_linen
from churn_jax.methods import (
    ELODI,
    ERM,
    RACT,
    AntiDistillation,
    BayesianUpdate,
    Codistillation,
    EnsembleDistillation,
    EnsembleDistributionDistillation,
    FocalDistillation,
    MinimumEntropy,
    OneToOneDistillation,
    Ramp,
)
from churn_jax.models import MIMO, MLP, BatchEnsemble
from churn_jax.studies.folder import row_records
from churn_jax.studies.grid import is_baseline, together
from churn_jax.studies.inputs import load_inputs
from churn_jax.studies.presets import preset
from churn_jax.studies.study import run_study
from churn_jax.training.loop import train
from churn_jax.training.run import Run
from tests.refusals import refusals


def study(*methods, **options):
    options = {"baseline": methods[0].name if methods else "none", **options}
    return StudyConfig(
        "s", "A study", DataConfig(), ModelConfig(), TrainConfig(), methods, **options
    )


def row(*train, name="row", method=None, **options):
    return MethodSpec(name, name.title(), method or ERM(), train=train, **options)


BASELINE = row(name="baseline")
STUDENT = row(name="student", method=EnsembleDistillation(), teacher="ensemble")
ENSEMBLE = row(name="ensemble", method=ERM(members=2, deploy="mean_probs"))
PAIR = row(name="codistill", method=Codistillation(beta=0.3, alpha=0.1))
STUDY = study(BASELINE, STUDENT, ENSEMBLE, PAIR)


def names(specs):
    return [spec.name for spec in specs]


def test_rows_are_selected_after_those_that_they_learn_from():
    assert names(STUDY.select(())) == ["baseline", "ensemble", "student", "codistill"]
    assert names(STUDY.select(("student",))) == ["ensemble", "student"]
    assert names(STUDY.select(("student", "ensemble"))) == ["ensemble", "student"]
    assert names(STUDY.select(("codistill", "baseline"))) == ["codistill", "baseline"]
    second = row(name="second", method=EnsembleDistillation(), teacher="student")
    chain = study(second, STUDENT, ENSEMBLE)
    assert names(chain.select(("second",))) == ["ensemble", "student", "second"]
    with pytest.raises(ValueError, match=r"method 'codistil'.*mean codistill\?"):
        STUDY.select(("codistil",))


def test_a_long_chain_of_versions_is_looked_at_once(monkeypatch):
    """Each learns from the two before it; every path through them is 2,000 ones."""
    looked, spec = [], StudyConfig.spec
    monkeypatch.setattr(
        StudyConfig, "spec", lambda self, name: looked.append(name) or spec(self, name)
    )
    versions = [row(name="v0"), row(name="v1")]
    for i in range(2, 16):
        options = {"start": f"v{i - 2}", "teaching": Teaching(old=(f"v{i - 1}",))}
        versions.append(row(name=f"v{i}", method=FocalDistillation(), **options))
    assert len(study(*versions).select(("v15",))) == 16
    assert len(looked) < 100


def test_coefficient_is_set_on_one_method_and_the_study_is_left_alone():
    changed = STUDY.with_coefficient("codistill.beta", 0.7)
    assert changed.spec("codistill").method == Codistillation(beta=0.7, alpha=0.1)
    assert changed.spec("baseline") is BASELINE
    assert STUDY.spec("codistill").method.beta == 0.3
    assert names(changed.methods) == names(STUDY.methods)
    ramped = study(row(method=Codistillation(beta_ramp=Ramp("linear", 4.0))))
    ramped = ramped.with_coefficient("row.beta_ramp.steps", 7.0)
    assert ramped.spec("row").method.beta_ramp.steps == 7.0
    whole = study(row(method=Codistillation(beta=1)))  # an integer
    assert whole.with_coefficient("row.beta", 0.5).spec("row").method.beta == 0.5


test_unknown_coefficient_is_an_error_that_lists_them = refusals(
    ("codistill.gamma", "has no coefficient 'gamma'; it has: beta, alpha"),
    ("codistill.members", "no coefficient 'members'"),
    ("codistill", "no coefficient ''"),
    ("codistil.beta", "unknown method 'codistil'"),
    call=lambda path: STUDY.with_coefficient(path, 1.0),
)


SHARED = dataclasses.replace(
    ENSEMBLE, model=ModelConfig("mlp", features=(8,), sharing=Sharing())
)
GATED = dataclasses.replace(ENSEMBLE, method=AntiDistillation(deploy="gate"))
SMALLER = dataclasses.replace(ENSEMBLE, train_size=64)
AVERAGED = [row(("ema_decay", 0.9), start="baseline", keep=0.5)]
OLD = {"teaching": Teaching(old=("few",))}
TWO_OLDS = {"method": BayesianUpdate(olds=2), "teacher": None}
OFFLINE = {"teaching": Teaching(offline=True)}
PERTURBED = OFFLINE | {"method": OneToOneDistillation(members=2, perturbation="ods")}
BY_EACH = (
    EnsembleDistillation(average="tempered_probs"),
    EnsembleDistillation(external_teachers=1),
    EnsembleDistributionDistillation(),
    OneToOneDistillation(members=2),
)


def taught(**options):
    """The student with other options."""
    return dataclasses.replace(STUDENT, **options)


def follows(*names):
    """A teacher, and a student that also learns from old models."""
    return [taught(method=ELODI(), teaching=Teaching(old=names)), ENSEMBLE]


test_studies_that_cannot_be_are_refused = refusals(
    ([BASELINE, BASELINE], "two methods have one name"),
    ([taught(teacher=None)], "student: it needs a teacher; give it as Meth"),
    ([STUDENT], "student is taught by 'ensemble', which is not in the study"),
    ([taught(start="lost"), ENSEMBLE], "student is taught by 'lost', which is not"),
    ([row(start="row")], "row would be taught by itself: row <- row"),
    ([row(start="b"), row(name="b", start="row")], "by itself: row <- b <- row"),
    (
        [row(start="b"), row(name="b", start="c"), row(name="c", start="row")],
        "by itself: row <- b <- c <- row",
    ),
    ([row(start="b"), row(name="b", start="b")], "b would be taught by itself: b <- b"),
    (follows("student"), "student would be taught by itself"),
    (follows("ensemble"), "is trained as one network; ensemble trains 2"),
    ([taught(teaching=Teaching(members=3)), ENSEMBLE], "ensemble's 2 mem.*got 3"),
    ([taught(teaching=Teaching(members=1)), SHARED], "of ensemble share theirs"),
    ([SMALLER, STUDENT], "normalise pixels otherwise"),
    ([row(train_size=9), taught(start="row"), ENSEMBLE], r"9\) and ensemble \(None\)"),
    ([STUDENT, GATED], "student: an ensemble with a gate cannot"),
    ([row(train_size=0)], "row: train_size must be at least 1; got 0"),
    ([row(("ema_decay", 0.9)), row(name="row_ema")], "the row of row's averaged"),
    ([*AVERAGED, BASELINE], "row: keep mixes the deployed weights"),
    ([row(("seed.init", "fixed"))], r"the training has no setting 'seed'.*seeds"),
    ([row(("seeds.inti", "fixed"))], "row: seeds has no setting 'inti'.*mean init"),
    ([row(("epochs.many", 3))], "row: epochs has no settings; got epochs.many"),
    ([row(("seeds", "fixed"))], r"seeds must be a Seeds, or name.*\(seeds.base\)"),
    ([row(("seeds.init", "same"))], "row: seeds.init must be one of fixed, varied"),
    ([row(("epochs", 0))], "row: epochs must be at least 1; got 0"),
    ([row(("replicas", 3))], "row: it has 3 replicas, the study 10"),
    call=lambda rows: study(*rows),
)


test_options_of_a_row_are_checked = refusals(
    ({"class_share": 0.0}, "class_share must be above 0.*; got 0.0"),
    ({"keep": 0.5}, "keep=0.5 needs weights that training starts from"),
    ({"keep": 2.0, "start": "pair"}, "keep must be from 0 to 1; got 2.0"),
    ({"teaching": Teaching(members=2), "teacher": None}, "a teacher; it has none"),
    ({"method": MinimumEntropy()}, ".needs_teacher is F.*; leave out ensemble"),
    ({"method": Codistillation(update="independent")}, "learns nothing from a teacher"),
    (PERTURBED, "an offline teacher has not seen perturbed images"),
    *((OFFLINE | {"method": m}, "logits of each of the teacher's m") for m in BY_EACH),
    (OLD | {"method": ERM(), "teacher": None}, "nothing from old models; .* names few"),
    (OLD | {"method": RACT()}, "RACT learns from old models alone; ensemble is"),
    (OLD | TWO_OLDS, "olds=2, but teaching.old names few"),
    call=lambda options: taught(**options),
)


test_teaching_is_checked = refusals(
    ({"members": -1}, "teaching.members must be at least 0; got -1"),
    ({"dtype": "float16"}, "must be one of float32, bfloat16; got 'float16'"),
    ({"old": ("a", "b", "a")}, "names a row twice: a, b, a"),
    ({"offline": True, "neighbours": 2, "uniform": 2.0}, "uniform must be from 0 to 1"),
    call=lambda options: Teaching(**options),
)


def updated(old, new, times=1):
    return dataclasses.replace(STUDY, updates=(Update(old, new),) * times)


test_updates_of_others_are_refused = refusals(
    ("baseline", "lost", "an update is of 'lost', which is not in"),
    ("x.npz", "baseline", r"'x\.npz': old is a row; compare files with churn-compare"),
    ("baseline", "baseline", "'baseline' cannot replace itself"),
    ("baseline", "student", 2, "updates name baseline to student twice"),
    call=updated,
)


def test_members_of_a_committee_may_differ_in_width_and_in_what_they_see():
    left = ModelConfig(features=(8,), inputs=tuple(range(32)))
    right = ModelConfig(features=(5,), inputs=tuple(range(32, 64)))
    method = AntiDistillation(members=3, deploy="gate")
    spec = row(method=method, models=((left, 1), (right, 1), ("mlp", 1)))
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


def test_a_trained_ensemble_with_a_gate_is_no_teacher():
    groups = STUDENT.groups(ModelConfig(), 10)
    run = Run("student", STUDENT.method, groups, TrainConfig(batch_size=16))
    taught_by = SimpleNamespace(run=SimpleNamespace(method=GATED.method))
    dataset = load_inputs(DataConfig(train_size=32), 32).dataset
    with pytest.raises(ValueError, match="student: an ensemble with a gate cannot"):
        train(run, dataset, teacher=taught_by)


test_bad_networks_are_named = refusals(
    ({"name": "lenet5", "inputs": (1,)}, "which an mlp sees; got 'lenet5'"),
    ({"inputs": (1, 1)}, "name every column once"),
    ({"name": "resnet-20"}, "did you mean resnet20"),
    ({"dtype": "float16"}, "float32, bfloat16; got 'float16'"),
    ({"remat": True}, "'mlp' has no field 'remat'"),
    ({"name": "lenet5", "features": (3,)}, "'lenet5' has no field 'features'"),
    ({"init": "ones"}, "he, uniform, truncated_normal; got 'ones'"),
    ({"name": "lenet5", "init": "he"}, "'lenet5' has no field 'kernel_init'"),
    ({"towers": Towers()}, "towers are of a click model; got 'mlp'"),
    call=lambda options: ModelConfig(**options).build(10),
)


def test_how_the_weights_start_is_the_networks_and_is_in_its_name():
    own, he, uniform = (
        ModelConfig(features=(8,), init=init).build(10)
        for init in ("", "he", "uniform")
    )
    assert (own.name, he.name, uniform.name) == ("mlp", "mlp-he", "mlp-uniform")

    @jax.jit
    def kernels(key):
        drawn = [n.init(key, jnp.ones((1, 4))) for n in (own, he, uniform)]
        return [variables["params"]["dense1"]["kernel"] for variables in drawn]

    start = kernels(jax.random.key(0))
    np.testing.assert_array_equal(start[0], start[1])
    assert np.abs(start[2]).max() <= np.sqrt(6 / 12) and np.any(start[2] != start[0])


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


def test_networks_of_a_study_are_changed_wherever_they_are():
    own = ModelConfig("mlp", features=(7,), inputs=(1, 2))
    committee = row(models=((own, 2), ("lenet5", 1)), model=own)
    config = study(BASELINE, committee).with_networks(
        lambda model: dataclasses.replace(model, dtype="bfloat16")
    )
    half = dataclasses.replace(own, dtype="bfloat16")
    assert config.model == ModelConfig(dtype="bfloat16")
    assert config.methods[0] == BASELINE  # which has the study's
    assert config.methods[1].models == ((half, 2), ("lenet5", 1))
    assert config.methods[1].model == half
    assert committee.computing_in("bfloat16", ModelConfig()) == config.methods[1]


def test_a_row_can_have_a_network_of_its_own():
    wide = row(model=ModelConfig("mlp", features=(7,)))
    config = study(BASELINE, wide)
    shapes = []
    for spec in config.methods:
        (group,) = spec.groups(config.model, 10)
        images = jnp.zeros((1, 8, 8, 1))
        built = jax.eval_shape(group.network.init, jax.random.key(0), images)
        shapes.append(built["params"]["dense1"]["kernel"].shape)
    assert shapes == [(64, 256), (64, 7)]
    # Neither is it the baseline under another name, nor part of its program.
    assert is_baseline(config, BASELINE) and not is_baseline(config, wide)
    assert [len(part) for part in together(config, config.methods)] == [1, 1]


# ---- members that share weights, from the configuration to the networks


BE = ModelConfig(features=(8,), sharing=Sharing())
FOUR = ERM(members=4, deploy="mean_probs", over_members="mean")


def shapes_of(group):
    images = jnp.zeros((1, 4, 4, 1))
    built = jax.eval_shape(group.network.init, jax.random.key(0), images)
    return jax.tree.map(lambda leaf: leaf.shape, built["params"])


@pytest.mark.parametrize(
    ("sharing", "layers"),
    [
        (Sharing(), BatchEnsemble(4)),
        (
            Sharing(bias="shared", norm_of="member", fast_weights="signs"),
            BatchEnsemble(4, "signs", bias="shared", norm_of="member"),
        ),
        (Sharing(batches="split"), BatchEnsemble(4, batches="split")),
        (Sharing("mimo", repetition=0.5), MIMO(4, repetition=0.5)),
    ],
)
def test_members_that_share_weights_are_one_network(sharing, layers):
    assert sharing.layers(4) == layers
    model = dataclasses.replace(BE, sharing=sharing)
    (group,) = row(method=FOUR).groups(model, 10)
    assert (group.size, group.network.heads, group.members) == (1, 4, 4)
    theirs = Group(from_linen(MLP((8,), 10, layers=layers)))
    assert shapes_of(group) == shapes_of(theirs)


def test_heads_divide_the_members_among_networks():
    two = dataclasses.replace(BE, sharing=Sharing(heads=2))
    (group,) = row(method=FOUR).groups(two, 10)
    assert (group.size, group.network.heads) == (2, 2)
    assert shapes_of(group)["dense1"]["fast_in"] == (2, 16)
    # Heads of 0 are all members, so one study's rows may differ in theirs.
    sizes = [
        row(method=ERM(members=m)).groups(BE, 10)[0].network.heads for m in (1, 2, 8)
    ]
    assert sizes == [1, 2, 8]


def test_what_cannot_be_is_said_before_anything_is_trained(tmp_path):
    three = dataclasses.replace(BE, sharing=Sharing(heads=3))
    for name, changes, message in (
        ("digits", {"columns": ("accuracy", "charm")}, "no column 'charm' can be"),
        ("dm-digits:tiny", {"model": three}, r"scratch: 4 members .* networks of 3"),
    ):
        with pytest.raises(ValueError, match=message):
            run_study(dataclasses.replace(preset(name), **changes), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_separate_row_has_plain_networks():
    (group,) = row(method=FOUR, separate=True).groups(BE, 10)
    (plain,) = row(method=FOUR).groups(dataclasses.replace(BE, sharing=None), 10)
    assert (group.size, group.network.heads, group.network.name) == (4, 1, "mlp")
    assert shapes_of(group) == shapes_of(plain)


def test_parts_of_a_committee_share_weights_among_themselves():
    spec = row(method=Codistillation(members=3), models=(("mlp", 2), ("lenet5", 1)))
    groups = spec.groups(BE, 10)
    found = [(g.size, g.network.name) for g in groups]
    assert found == [(1, "mlp-be2"), (1, "lenet5-be1")]


@pytest.mark.parametrize(
    ("sharing", "name"),
    [
        (Sharing(), "mlp-be4"),
        (Sharing(heads=2), "mlp-be2"),
        (Sharing(fast_weights="signs"), "mlp-be4-signs"),
        (Sharing(bias="shared"), "mlp-be4-bias_shared"),
        (Sharing(bias="none", norm_of="member"), "mlp-be4-bias_none-norm_member"),
        (Sharing(batches="split"), "mlp-be4-split"),
        (Sharing("mimo"), "mlp-mimo4"),
        (Sharing("mimo", repetition=0.25), "mlp-mimo4-repeat_0.25"),
    ],
)
def test_a_checkpoint_knows_the_network_by_every_option(sharing, name):
    model = dataclasses.replace(BE, sharing=sharing)
    assert model.build(10, 4).name == name
    uniform = dataclasses.replace(model, init="uniform")
    assert uniform.build(10, 4).name == name.replace("mlp-", "mlp-uniform-")


test_bad_sharing_is_named = refusals(
    ("mlp", {"kind": "packed"}, "batch_ensemble, mimo; got 'packed'"),
    ("mlp", {"heads": -1}, "heads must be at least 0; got -1"),
    ("mlp", {"repetition": 0.5}, r"batch_ensemble has no repetition; got 0.5"),
    ("mlp", {"kind": "mimo", "bias": "none"}, "mimo has no bias; got 'none'"),
    ("mlp", {"bias": "own"}, "bias must be one of member, shared, none; got 'own'"),
    ("mlp", {"kind": "mimo", "repetition": 2.0}, "repetition"),
    ("resnet_v2_8", {}, r"'resnet_v2_8' .*layers"),
    call=lambda name, own: ModelConfig(name, sharing=Sharing(**own)).build(10, 4),
)


def test_a_split_batch_and_its_method_go_together():
    split = dataclasses.replace(BE, sharing=Sharing(batches="split"))
    method = dataclasses.replace(FOUR, member_sample="split")
    parts = row(method=method).groups(split, 10)
    Run("row", method, parts, TrainConfig())
    with pytest.raises(ValueError, match="row: members split the rows of a device, so"):
        Run("row", method, parts, TrainConfig(mesh=MeshShape(data=2)))
    for given, model in ((FOUR, split), (method, BE)):
        with pytest.raises(ValueError, match="row: member_sample must be 'split'"):
            Run("row", given, row(method=given).groups(model, 10), TrainConfig())


def test_separate_networks_are_another_row():
    plain, separate = row(method=ERM()), row(method=ERM(), separate=True)
    config = dataclasses.replace(preset("digits"), methods=(plain,), baseline="row")
    assert is_baseline(config, plain) and not is_baseline(config, separate)
    assert [len(part) for part in together(config, (plain, separate))] == [1, 1]
    uncoupled = row(method=Codistillation(beta=0.0))
    assert is_baseline(config, uncoupled)
    assert not is_baseline(dataclasses.replace(config, model=BE), uncoupled)


def cost_of(config):
    """The record of the last row, as its training gives it."""
    numbers = {"stopped": (), "seconds": 1.0, "compile_seconds": 1.0, "parameters": 1}
    program = SimpleNamespace(rows=config.methods[-1:], mapping="vmap")
    run = SimpleNamespace(config=TrainConfig(replicas=1))
    trained = SimpleNamespace(run=run, program=program, **numbers)
    (record,) = row_records(config, program, trained)
    return record.training_cost, record.inference_cost


def test_a_mimo_network_is_counted_once_for_its_heads():
    of = [(Sharing("mimo", heads=heads), 4 / (heads or 4)) for heads in (0, 4, 2, 1)]
    for sharing, cost in (*of, (Sharing(), 4.0)):
        model = dataclasses.replace(BE, sharing=sharing)
        config = dataclasses.replace(study(row(method=FOUR)), model=model)
        assert cost_of(config) == (cost, cost)


def test_a_teacher_costs_its_networks_that_teach_and_its_own_teacher():
    two, one = EnsembleDistillation(members=2), EnsembleDistillation()
    student = row(name="b", method=two, teacher="a")
    last = row(name="c", method=one, teacher="b", teaching=Teaching(members=1))
    assert cost_of(study(row(name="a", method=FOUR), student, last)) == (1 + 1 + 4, 1.0)


def test_sharing_has_options_where_a_preset_has_it():
    words = ("--set", "model.sharing.fast_weights=signs", "model.sharing.heads=2")
    config, _ = read_study(["dm-digits", *words])
    assert config.model.sharing == Sharing(fast_weights="signs", heads=2)
    (student,) = config.spec("kd").groups(config.model, 10)
    (teachers,) = config.spec("teachers").groups(config.model, 10)
    assert (student.size, student.network.name) == (2, "mlp-be2-signs")
    assert (teachers.size, teachers.network.name) == (4, "mlp")
    assert read_study(["digits"])[0].model.sharing is None
    with pytest.raises(ValueError, match="sharing"):
        read_study(["digits", *words])


def test_another_network_is_everybodys():
    words = ["experiments/diversity/small.py:fashion:tiny", "--model", "mlp"]
    config, _ = read_study(words)
    names = [spec.groups(config.model, 10)[0].network.name for spec in config.methods]
    assert names == ["mlp", "mlp", *["mlp-be4"] * 5]


BAD = {
    TrainConfig: [
        ({"replicas": 0}, "replicas must be at least 1; got 0"),
        ({"epochs": 0}, "epochs must be at least 1; got 0"),
        ({"batch_size": -3}, "batch_size must be at least 1; got -3"),
        ({"eval_batch_size": 0}, "eval_batch_size must be at least 1"),
        ({"eval_every_epochs": 0}, "eval_every_epochs must be at least 1"),
        ({"replicas": 3, "seed_numbers": (1, 2)}, "3 numbers, one per replica; got 2"),
        (
            {"optimizer": OptimizerConfig(learning_rate=(0.1, 0.2))},
            r"number or 10, one per replica; got \(0.1, 0.2\) and 0.0001",
        ),
        ({"mapping": "pmap"}, "auto, vmap, unroll, loop; got 'pmap'"),
        ({"sample": "half"}, "all, bootstrap; got 'half'"),
        ({"weights": "average"}, "one of last, best; got 'average'"),
        ({"ema_decay": 1.0}, "ema_decay must be at least 0 and below 1; got 1.0"),
        ({"ema_decay": -0.1}, "below 1; got -0.1"),
        ({"ema_decay": float("nan")}, "below 1; got nan"),
        ({"replicas": 3, "mesh": MeshShape(replica=2)}, "3 replicas cannot be sharded"),
        ({"batch_size": 10, "mesh": MeshShape(data=4)}, "10 is not divisible.*axis, 4"),
    ],
    OptimizerConfig: [
        ({"name": "adan"}, r"sgd, adam, adagrad, or .*name; got 'adan'; did you mean"),
        ({"schedule": "poly"}, "flat_then_linear; got 'poly'"),
        ({"decay": "l1"}, "l2, decoupled; got 'l1'"),
        ({"decay_on": "biases"}, "kernels, all; got 'biases'"),
        ({"momentum": 1.0}, r"at least 0 and below 1; got 1.0"),
        ({"member_rates": (1.0, -1.0)}, r"not negative; got \(1.0, -1.0\)"),
        ({"member_rates": (float("nan"),)}, "must be finite"),
        ({"member_algorithms": ("sgd", "lion")}, "of sgd, adam, adagrad; got 'lion'"),
        ({"fast_rate": -0.5}, "fast_rate must be finite .*not negative; got -0.5"),
        ({"flat_until": 0.9}, r"flat_until \(0.9\) must be below linear_until"),
        ({"linear_until": 5.0}, "both from 0 to 1"),
        ({"schedule": "step"}, "schedule step needs step_epochs"),
        ({"clip_norm": -1.0}, "clip_norm must be above 0; got -1.0"),
        ({"learning_rate": (0.1, float("nan"))}, "learning_rate must be finite"),
        ({"learning_rate": 1e39}, r"must be finite in float32 .*; got 1e\+39"),
        ({"warmup_epochs": -3}, "warmup_epochs must be finite in float32 and not neg"),
    ],
    Seeds: [
        ({factor: "off"}, f"seeds.{factor} .*fixed, varied; got 'off'")
        for factor in ("init", "order", "sample")  # augmentation can be off
    ],
}

test_bad_options_of_training_are_named = refusals(
    *((kind, *row) for kind, rows in BAD.items() for row in rows),
    call=lambda kind, options: kind(**options),
)


def test_seed_numbers_count_from_zero_unless_given():
    assert TrainConfig(replicas=3).numbers == (0, 1, 2)
    assert TrainConfig(replicas=3, seed_numbers=(7, 7, 9)).numbers == (7, 7, 9)


test_runs_of_a_study_have_seeds_of_their_own = refusals(
    *(
        ((0, last), rf"seed_numbers must be different ones from 0.* \(0, {last}\)")
        for last in (0, -1, 65536)
    ),
    call=lambda numbers: dataclasses.replace(
        STUDY, train=TrainConfig(replicas=2, seed_numbers=numbers)
    ),
)
