"""Members that share weights, from a study's configuration to its networks."""

import dataclasses

import jax
import jax.numpy as jnp
import pytest

from churn_jax.command.study import read_study
from churn_jax.configuration.network import ModelConfig, Sharing
from churn_jax.configuration.rows import MethodSpec
from churn_jax.configuration.training import TrainConfig
from churn_jax.ensembles import Group, from_linen
from churn_jax.methods import ERM, Codistillation
from churn_jax.models import MIMO, MLP, BatchEnsemble
from churn_jax.studies.grid import is_baseline, together
from churn_jax.studies.presets import preset
from churn_jax.studies.study import run_study
from churn_jax.training.run import Run

BE = ModelConfig(features=(8,), sharing=Sharing())
FOUR = ERM(members=4, deploy="mean_probs", over_members="mean")


def row(method=FOUR, **options):
    return MethodSpec("row", "Row", method, **options)


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
    (group,) = row().groups(model, 10)
    assert (group.size, group.network.heads, group.members) == (1, 4, 4)
    theirs = Group(from_linen(MLP((8,), 10, layers=layers)))
    assert shapes_of(group) == shapes_of(theirs)


def test_heads_divide_the_members_among_networks():
    two = dataclasses.replace(BE, sharing=Sharing(heads=2))
    (group,) = row().groups(two, 10)
    assert (group.size, group.network.heads) == (2, 2)
    assert shapes_of(group)["dense1"]["fast_in"] == (2, 16)
    # Heads of 0 are all members, so one study's rows may differ in theirs.
    sizes = [row(ERM(members=m)).groups(BE, 10)[0].network.heads for m in (1, 2, 8)]
    assert sizes == [1, 2, 8]


def test_networks_that_cannot_be_are_said_before_anything_is_trained(tmp_path):
    out = tmp_path / "run"
    three = dataclasses.replace(BE, sharing=Sharing(heads=3))
    study = dataclasses.replace(preset("dm-digits:tiny"), model=three)
    with pytest.raises(ValueError, match=r"scratch: 4 members .* networks of 3 \(sh"):
        run_study(study, out)
    assert not out.exists()


def test_a_separate_row_has_plain_networks():
    (group,) = row(separate=True).groups(BE, 10)
    (plain,) = row().groups(dataclasses.replace(BE, sharing=None), 10)
    assert (group.size, group.network.heads, group.network.name) == (4, 1, "mlp")
    assert shapes_of(group) == shapes_of(plain)


def test_parts_of_a_committee_share_weights_among_themselves():
    spec = row(Codistillation(members=3), models=(("mlp", 2), ("lenet5", 1)))
    groups = spec.groups(BE, 10)
    assert [(g.size, g.network.name) for g in groups] == [
        (1, "mlp-be2"),
        (1, "lenet5-be1"),
    ]


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


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kind": "packed"}, "batch_ensemble, mimo; got 'packed'"),
        ({"heads": -1}, "heads must be at least 0; got -1"),
        ({"repetition": 0.5}, r"batch_ensemble has no repetition; got 0.5"),
        ({"kind": "mimo", "bias": "none"}, "mimo has no bias; got 'none'"),
        ({"bias": "own"}, "bias must be one of member, shared, none; got 'own'"),
        ({"kind": "mimo", "repetition": 2.0}, "repetition"),
    ],
)
def test_bad_sharing_is_named(options, message):
    with pytest.raises(ValueError, match=message):
        ModelConfig(sharing=Sharing(**options)).build(10, 4)
    with pytest.raises(ValueError, match=r"'resnet_v2_8' .*layers"):
        ModelConfig("resnet_v2_8", sharing=Sharing()).build(10, 4)


def test_a_split_batch_and_its_method_go_together():
    split = dataclasses.replace(BE, sharing=Sharing(batches="split"))
    method = dataclasses.replace(FOUR, member_sample="split")
    Run("row", method, row(method).groups(split, 10), TrainConfig())
    for given, model in ((FOUR, split), (method, BE)):
        with pytest.raises(ValueError, match="row: member_sample='split' goes with"):
            Run("row", given, row(given).groups(model, 10), TrainConfig())


def test_separate_networks_are_another_row():
    plain, separate = row(ERM()), row(ERM(), separate=True)
    config = dataclasses.replace(preset("digits"), methods=(plain,), baseline="row")
    assert is_baseline(config, plain) and not is_baseline(config, separate)
    assert [len(part) for part in together(config, (plain, separate))] == [1, 1]


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
