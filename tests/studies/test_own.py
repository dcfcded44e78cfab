"""`churn_jax.study`: a network, an optimiser, data, methods and metrics as objects."""

import dataclasses
import json
import shutil
import threading
from functools import partial

import jax
import numpy as np
import optax
import pytest
from flax import linen as nn
from flax import nnx

import churn_jax
from churn_jax.data import find_dataset, load, named
from churn_jax.methods import (
    ELODI,
    ERM,
    BayesianUpdate,
    Codistillation,
    EnsembleDistillation,
)
from churn_jax.models import MODELS
from churn_jax.reports import column
from churn_jax.studies import (
    DataConfig,
    MethodSpec,
    ModelConfig,
    StudyConfig,
    StudyError,
    Teaching,
    Update,
)
from churn_jax.studies.own import _data
from churn_jax.training import OPTIMIZERS, OptimizerConfig, TrainConfig

pytestmark = pytest.mark.usefixtures("own_columns")

DIGITS = load("digits", train_size=96)
DATA = tuple((part.images, part.labels) for part in (DIGITS.train, DIGITS.test))


class Net(nn.Module):
    width: int = 16
    rate: float = 0.1

    @nn.compact
    def __call__(self, x, train=False):
        x = nn.Dense(self.width)(x.reshape(len(x), -1))
        x = nn.relu(nn.BatchNorm(use_running_average=not train)(x))
        return nn.Dense(10)(nn.Dropout(self.rate, deterministic=not train)(x))


class Nnx(nnx.Module):
    def __init__(self, num_classes, *, rngs):
        self.layer = nnx.Linear(64, num_classes, rngs=rngs)

    def __call__(self, x):
        return self.layer(x.reshape(len(x), -1))


def margin(logits, labels):
    """Of all runs: `[R, N, C]` to `[R]`."""
    assert logits.ndim == 3 and logits.shape[1] == len(labels)
    second, first = np.moveaxis(np.sort(logits)[..., -2:], -1, 0)
    return np.mean(first - second, axis=-1)


def lion(rate=1e-2):
    return optax.chain(
        optax.clip_by_global_norm(1.0),
        optax.lion(optax.cosine_decay_schedule(rate, 6), weight_decay=1e-3),
    )


def train(out, **changes):
    given = {
        "data": DATA,
        "methods": {"baseline": ERM(), "two, beta 0.5": Codistillation(beta=0.5)},
        "model": Net(24),
        "optimizer": lion(),
        "metrics": [margin],
        "epochs": 2,
        "batch_size": 32,
        "replicas": 2,
        "show_progress": False,
        "out": out,
    }
    return churn_jax.study(**(given | changes))


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return train(tmp_path_factory.mktemp("own") / "study")


@pytest.mark.slow
def test_a_study_of_objects_has_its_table_figures_predictions_and_report(whole):
    rows = ["baseline", "two-beta-0.5"]
    assert whole.finished and list(whole.predictions) == rows
    logits = whole.predictions["baseline"]
    assert logits.shape == (2, len(DIGITS.test), 10) and np.ptp(logits) > 0
    table = whole.table
    if isinstance(table, list):
        table = {row["method"]: row for row in table}
    else:
        table = table.to_dict("index")
    of_runs = margin(logits, DIGITS.test.labels)
    assert table["baseline"]["margin"] == pytest.approx(of_runs.mean())
    error = np.std(of_runs, ddof=1) / np.sqrt(2)
    assert table["baseline"]["margin_stderr"] == pytest.approx(error)
    assert "churn" in table["two-beta-0.5"]
    assert "pairwise_churn" in whole.figures
    page = whole.report().read_text()
    recipe = ("train.optimizer.name = ", "model.name = Net")
    for said in ("two, beta 0.5", "Margin", *recipe):
        assert said in page
    assert "two, beta 0.5" in whole._repr_html_()


@pytest.mark.slow
def test_the_same_call_keeps_what_is_there_and_another_is_refused(whole, monkeypatch):
    before = json.loads((whole.out / "study.json").read_text())
    train(whole.out, model=Net(24), optimizer=lion())
    after = json.loads((whole.out / "study.json").read_text())
    assert before["methods"] == after["methods"]
    changed = {"baseline": ERM(), "two, beta 0.5": Codistillation(beta=0.9)}
    shutil.copytree(whole.out, whole.out.parent / "changed")
    with monkeypatch.context() as patch:  # the clock is over before the first update
        patch.setattr(threading.Timer, "start", threading.Timer.run)
        stopped = train(whole.out.parent / "changed", methods=changed, minutes=1e-9)
    assert not stopped.finished and whole.finished
    page = stopped.report().read_text()
    assert "two, beta 0.5 has results of earlier settings" in page
    (whole.out.parent / "copy").mkdir()
    shutil.copy(whole.out / "study.json", whole.out.parent / "copy")
    changes = {"methods": [ERM()], "epochs": 1, "fresh": True}
    again = train(whole.out.parent / "copy", **changes)
    assert again.finished and again.config.train.epochs == 1
    (aside,) = whole.out.parent.glob("copy.*")
    assert (aside / "study.json").is_file()
    for changes, said in (
        ({"optimizer": lion(2e-2)}, r"optimizer.name: optimizer@\w{8} there, opt"),
        ({"model": Net(25)}, r"model.name: Net@\w{8} there, Net@\w{8} here"),
        ({"data": DATA[0]}, "holds a study of other data"),
    ):
        with pytest.raises(StudyError, match=said):
            train(whole.out, **changes)


def test_a_logger_that_is_unknown_is_refused_before_anything_is_trained(tmp_path):
    with pytest.raises(ValueError, match=r"unknown logger 'cvs'.*did you mean csv"):
        train(tmp_path / "none", loggers="cvs")
    assert not (tmp_path / "none").exists()


@pytest.mark.slow
def test_a_result_holds_its_data(whole):
    (x, y), _ = DATA
    for i in range(5):
        named((x ^ (i + 1), y))
    assert find_dataset(whole.config.data.name) is whole.data


def test_texts_keep_their_length():
    texts = {"train_tokens": np.ones((40, 70), int), "train_labels": np.arange(40) % 2}
    texts |= {"test_tokens": np.ones((4, 70), int), "test_labels": [0, 1, 0, 1]}
    assert _data(texts, {})[0].sequence_length == 70
    cut = {"validation": 0.2, "train_size": 50}
    assert _data(DATA, cut)[0] == DataConfig(named(DATA), None, None, 50, 0.2)


@pytest.mark.slow
def test_a_folder_is_opened_again_and_trains_on_where_its_objects_are(
    whole, monkeypatch
):
    found = churn_jax.StudyResult(str(whole.out))
    assert found.finished and list(found.predictions) == list(whole.predictions)
    for kind in (MODELS, OPTIMIZERS):  # as in another process
        monkeypatch.setattr(kind, "_held", {})
    with pytest.raises(ValueError, match=r"Net@.* was given as a Python object"):
        found.resume()


@pytest.mark.slow
def test_a_mesh_gives_the_same_networks(tmp_path):
    """Two replicas, two members, two shards of the batch; the baseline is one network.

    Also with dropout; without Adam, which makes much of small gradients.
    """
    given = {"model": Net(rate=0.3), "optimizer": optax.sgd(0.1, 0.9), "metrics": ()}
    given |= {"methods": [ERM()], "epochs": 1}
    one = train(tmp_path / "one", **given)
    eight = train(tmp_path / "eight", mesh="replica=2,member=2,data=2", **given)
    ours, theirs = one.predictions["erm"], eight.predictions["erm"]
    np.testing.assert_allclose(ours, theirs, atol=1e-4)


@pytest.fixture
def configured(monkeypatch):
    """What `churn_jax.study` would train."""

    def of(**changes):
        seen = []
        monkeypatch.setattr(
            "churn_jax.studies.own.StudyResult.resume",
            lambda self, minutes: seen.append(self.config) or self,
        )
        train("unused", **changes)
        return seen[0]

    return of


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("lenet5", "lenet5"),
        (Net, f"{__name__}:Net"),
        (Nnx, f"{__name__}:Nnx"),
        (Net(8), "Net@"),
        (lambda rngs: Nnx(10, rngs=rngs), "network@"),
        ((lambda key, x: {"w": jax.numpy.ones(10)}, lambda p, x: p["w"]), "Network@"),
    ],
)
def test_a_network_is_recorded_by_its_name_or_by_what_it_computes(
    configured, model, name
):
    assert configured(model=model).model.name.startswith(name)


def test_networks_that_differ_in_evaluation_alone_have_two_names(configured):
    def scaled(factor):
        def apply(params, x, train):
            return x.reshape(len(x), -1) @ params["w"] * (1.0 if train else factor)

        return (lambda key, x: {"w": jax.numpy.ones((x[0].size, 10))}, apply)

    names = [configured(model=scaled(f)).model.name for f in (1.0, -1.0, -1.0)]
    assert names[0] != names[1] == names[2]


def test_rows_settings_and_what_is_chosen(configured):
    teacher = MethodSpec(
        "t", "", EnsembleDistillation(), teacher="pair", teaching=Teaching(members=1)
    )
    config = configured(
        data="digits",
        methods={"pair": ERM(members=2), "taught": teacher, "cheap": "ERM", "e": ERM},
        model="",
        optimizer="optax:lion",
        learning_rate=3e-4,
        baseline="cheap",
        metrics=(),
        columns=("churn", column("Second", runs=True)(lambda logits, labels: 1.0)),
        settings={"seeds.init": "fixed", "ema_decay": 0.9},
        seed=7,
        epochs=0,
    )
    assert [spec.name for spec in config.methods] == ["pair", "taught", "cheap", "e"]
    assert config.spec("taught").teacher == "pair" and config.baseline == "cheap"
    seeds = config.train.seeds
    assert seeds == dataclasses.replace(seeds, base=7, init="fixed")
    assert config.train.ema_decay == 0.9 and config.train.epochs == 100
    rule = config.train.optimizer
    given = ("optax:lion", 3e-4, "cosine")
    assert (rule.name, rule.learning_rate, rule.schedule) == given
    assert config.model.name == "mlp" and config.columns[0] == "churn"
    assert "learning_rate = 0.0003" in " ".join(config.notes)
    assert not any("--" in note for note in config.notes)
    same = configured(
        data=DataConfig("digits", validation=50),
        optimizer=OptimizerConfig("adam"),
        train_size=90,
    )
    assert same.train.optimizer == OptimizerConfig("adam")
    assert same.data == DataConfig("digits", validation=50, train_size=90)


def test_a_row_takes_a_network_in_every_form_that_the_study_does(configured):
    row = MethodSpec("a", "A", ERM(), model=Net(8))
    assert configured(methods=[row]).spec("a").model.name.startswith("Net@")
    pair = MethodSpec("b", "B", ERM(members=2), models=((Net(8), 1), (Net(9), 1)))
    names = [part.name for part, _ in configured(methods=[pair]).spec("b").models]
    assert len(set(names)) == 2 and all(name.startswith("Net@") for name in names)
    with pytest.raises(ValueError, match=r"a: .* is taken by churn_jax.study; got Net"):
        StudyConfig("", "", DataConfig(), ModelConfig(), TrainConfig(), (row,), "a")


def test_versions_of_a_model_are_updates(configured):
    def versions(method, label, **teacher):
        old, new = ({k: f"{v}_{v}" for k, v in teacher.items()} for v in ("old", "new"))
        return (
            MethodSpec(f"old_{label}", f"Old {label}", method, class_share=0.5, **old),
            MethodSpec(f"new_{label}", f"New {label}", method, model=Net(8), **new),
        )

    rows = [*versions(ERM(members=2), "ensemble"), *versions(ERM(), "one")]
    assert configured(methods=rows, baseline="New one").updates == ()
    rows += [
        MethodSpec("old", "", ELODI(), teacher=rows[0].name, class_share=0.5),
        MethodSpec("new", "", ELODI(), teacher=rows[1].name, model=Net(8)),
    ]
    found = configured(methods=rows, baseline="New one").updates
    pairs = [("old_ensemble", "new_ensemble"), ("old_one", "new_one"), ("old", "new")]
    assert [(u.old, u.new) for u in found] == pairs
    given = [("Old one", "new"), Update("old_one", "new_one", "plain")]
    found = configured(methods=rows, baseline="New one", updates=given).updates
    assert found == (Update("old_one", "new"), given[1])
    after = MethodSpec("bu", "", BayesianUpdate(), teaching=Teaching(old=("old_one",)))
    (found,) = configured(methods=[*rows[:4], after], baseline="New one").updates
    assert found == Update("old_one", "bu", targeted=True)
    rows[-1] = dataclasses.replace(rows[-1], teaching=Teaching(old=("old",)))
    found = configured(methods=rows, baseline="New one").updates
    assert [(u.old, u.new) for u in found] == [pairs[-1], *pairs[:-1]]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"methods": {"a": 3}}, "a row is a method of churn_jax.methods.*got 3"),
        ({"methods": {"a": "ERN"}}, "unknown method 'ERN'.*did you mean ERM"),
        ({"methods": [Codistillation(beta="1")]}, "methods.codist.*a number; got '1"),
        ({"methods": [ERM(), ERM()]}, "two rows are labelled 'ERM'; give each a label"),
        ({"methods": {"a b": ERM(), "a-b": ERM()}}, "two methods have one name: a-b,"),
        ({"minutes": "1"}, "^minutes must be a positive number; got '1'"),
        ({"validation": DATA[1]}, "validation is a count or a share; examples of your"),
        ({"minutes": 0}, "^minutes must be a positive number; got 0"),
        ({"methods": [EnsembleDistillation()]}, "it needs a teacher"),
        ({"model": 3}, "3 cannot be registered as a network"),
        ({"model": Nnx(10, rngs=nnx.Rngs(0))}, "has its weights already"),
        ({"model": nn.Sequential([nn.relu])}, "Sequential@.* has no parameters"),
        ({"model": nn.Dense(3)}, "returns logits .*must return"),
        ({"optimizer": 3}, "3 cannot be registered as an optimizer"),
        ({"optimizer": "lion"}, "must be one of sgd.*package.module:name"),
        ({"optimizer": "adam", "learning_rate": lambda step: 0.1}, "a function; give"),
        ({"settings": {"optimizer": optax.adam(0.1)}}, "optimizer, which has an argum"),
        ({"settings": {"seeds.base": 3}}, "seeds.base, which has an argument; give"),
        ({"learning_rate": 0.5}, "learning_rate is not read: the optimizer is not g"),
        (
            {"optimizer": "optax:sgd", "settings": {"optimizer.weight_decay": 0.5}},
            "weight_decay is not read: the optimizer is not given it",
        ),
        ({"settings": {"optimizer.schedule": "constant"}}, "not given any le"),
        ({"settings": {"optimizer.momentum": 0}}, "for sgd; the optimizer is"),
        ({"updates": ["ab"]}, "an update is a pair .old, new. of rows.*got 'ab'"),
        ({"updates": [("a", "b")]}, "an update is of 'a', which is not in the study"),
        ({"baseline": "b"}, "unknown method 'b'"),
        ({"settings": {"epoch": 3}}, "no setting 'epoch'.*did you mean epochs"),
        ({"columns": ["accurracy"]}, "no column 'accurracy'"),
        ({"columns": [partial(margin)]}, "a function that has one, by `def`; got func"),
        ({"metrics": [lambda x, y: 1, lambda x, y: 2]}, "called '<lambda>'; give each"),
        ({"metrics": [column("Churn %")(margin)]}, "two columns have the heading 'Chu"),
        ({"replicas": 2.0}, "replicas must be a whole number; got 2.0"),
        ({"epochs": "2"}, "epochs must be a whole number; got '2'"),
        ({"optimizer": "adam", "learning_rate": "1"}, "not negative; got '1'"),
        ({"mesh": "2,x"}, "mesh must look like"),
        ({"mesh": "replica=4,replica=2"}, "like .* axis is named twice"),
        ({"data": (DATA[0][0], DATA[0][1][:5])}, "96 .*5"),
    ],
)
def test_what_cannot_be_used_is_one_sentence(tmp_path, changes, message):
    with pytest.raises((ValueError, TypeError), match=message):
        train(tmp_path / "out", **changes)
    assert not list(tmp_path.glob("out/methods/*/predictions.npz"))
