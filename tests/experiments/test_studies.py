import dataclasses
import json
import re

import numpy as np
import pytest

from churn_compare.documents.plotting import LONGEST_LABEL
from churn_compare.store import load_predictions
from churn_jax.configuration import replaced
from churn_jax.reports.members import MEMBERS, load_members
from churn_jax.reports.published import published
from churn_jax.studies import run_study
from churn_jax.studies.inputs import StudyInputs
from churn_jax.studies.presets import tiny
from churn_jax.training import Run
from churn_jax.training.examples import example_of
from churn_jax.training.optim import make_schedule
from churn_jax.training.program import make_program
from experiments.anti_distillation.clicks import table3
from tests.experiments.presets import STUDIES, study

every_preset = pytest.mark.parametrize("name", STUDIES)
IMAGES = [name for name in STUDIES if study(name).train.one_pass is None]
CLICKS = [name for name in STUDIES if name not in IMAGES]


@every_preset
def test_tiny_form_is_two_replicas_and_two_epochs_of_the_same_study(name):
    whole, small = study(name), study(f"{name}:tiny")
    assert small == tiny(whole)
    trains = [spec.config(small.train) for spec in small.methods]
    epochs = 2 if whole.train.one_pass is None else 1
    assert {(train.replicas, train.epochs) for train in trains} == {(2, epochs)}
    rows = [[(spec.name, spec.method) for spec in c.methods] for c in (small, whole)]
    assert rows[0] == rows[1]
    # Everything else that is trained with is the study's: seeds, optimiser, images.
    for field in ("optimizer", "seeds", "augmentation", "sample"):
        assert getattr(small.train, field) == getattr(whole.train, field)
    if name == "digits":
        assert (small.model, small.data) == (whole.model, whole.data)
    # At least one update in every epoch.
    size = small.data.train_size or 500  # the digits keep their own
    examples = {spec.train_size or size for spec in small.methods}
    assert max(examples) <= 500 and small.data.validation <= 600
    assert min(examples) >= small.train.batch_size


def test_a_row_of_two_classes_has_updates_in_its_tiny_form():
    """About a dozen of the 64 examples are left."""
    config = replaced(study("elodi-figures:tiny"), [("data.name", "digits")])
    inputs = StudyInputs(config)
    for spec in config.methods:
        examples = len(inputs.of(spec).dataset.train)
        assert inputs.run(spec).steps_per_epoch(examples) >= 2


def _full_forms():
    """A preset of every network, data and schedule: others build the same."""
    seen = {}
    for name in IMAGES:
        config = study(name)
        row = config.spec(config.baseline)
        parts = (config.data.name, row.model or config.model, row.models)
        optimizer = row.config(config.train).optimizer
        rule = (optimizer.schedule, optimizer.warmup_epochs, optimizer.step_epochs)
        seen.setdefault(repr((*parts, row.method.members, rule)), name)
    return seen.values()


@pytest.mark.slow
@pytest.mark.parametrize("name", _full_forms())
def test_full_form_builds_its_network_and_schedule(name):
    """Builds the full network at its real size, without computing anything."""
    config = study(name)
    baseline = config.spec(config.baseline)
    # Weights to start from are a user's; the form of the network is not.
    model = dataclasses.replace(baseline.model or config.model, pretrained="")
    baseline = dataclasses.replace(baseline, model=model)
    shape = _SHAPES.get(config.data.name, (28, 28, 1))
    if tokens := config.model.name in _OF_TEXTS:
        shape = (config.data.sequence_length,)
    groups = baseline.groups(config.model, 10)
    run = Run(name, baseline.method, groups, baseline.config(config.train))
    program, _ = make_program(run, example_of(shape, tokens=tokens), 100)
    length = 100 * run.config.epochs
    optimizer = program.optimizer.config
    schedule = make_schedule(optimizer, steps_per_epoch=100, total_steps=length)
    rates = [float(schedule(at)) for at in (0, length // 4, length // 2)]
    constant = optimizer.schedule == "constant" or not optimizer.warmup_epochs
    assert 1.0 >= max(rates) > 0.0 and (rates[0] == 1.0) == constant


_OF_TEXTS = ("text_encoder", "bert_base", "bert_tiny")
_SHAPES = {
    "digits": (8, 8, 1),
    "svhn_cropped": (32, 32, 3),
    "cifar10": (32, 32, 3),
    "cifar100": (32, 32, 3),
    "tiny_imagenet": (64, 64, 3),
    "imagenet2012": (224, 224, 3),
    "i_naturalist2018": (224, 224, 3),
}


@pytest.mark.parametrize("name", [n for n in STUDIES if study(n).published])
def test_published_numbers_are_there_for_rows_of_the_preset(name):
    config = study(name)
    facts, printed = published(config.published)
    assert facts["data"] == ("" if config.train.one_pass else config.data.name)
    known = set(printed)
    rows = {spec.name for spec in config.methods}
    made = rows | {f"{u.old}->{u.new}" for u in config.updates}
    # Table 6's inner columns cannot be assigned to rows; parts of teachers are none.
    alone = {"table6": {"column2", "column3"}, "diversity": {"de1", "de2", "de3"}}
    _, paper, _, place, *_ = re.split("[/:]", config.published)
    expected = alone.get(paper, alone.get(place) if paper != "elodi" else None)
    assert known - made == (expected or set())
    if config.updates:  # a published update is of its new row, or `old->new`
        return
    ours = {"init", "data", "ensemble_1", "wide", "ad_5"}
    ours |= {"ad_0_0001", "ad_0_001", "ad_0_01", "baseline_s5", "baseline_s10"}
    # BatchEnsemble without teachers is in the paper and its numbers are lost.
    lost = {"single", "scratch"} if paper == "diversity" else set()
    assert config.baseline in known | lost
    assert rows - known <= ours | lost


@every_preset
def test_preset_has_its_baseline_and_every_teacher(name):
    config = study(name)
    assert config.name == name and config.title
    assert config.spec(config.baseline).equation
    order = [spec.name for spec in config.select(())]
    assert sorted(order) == sorted(spec.name for spec in config.methods)
    for spec in config.methods:
        assert spec.label and spec.equation.startswith("[")
        if spec.teacher is not None:
            assert order.index(spec.teacher) < order.index(spec.name)


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    """Noise as `.npz`: grey for LeNet5, coloured for ResNets, tokens for texts."""
    rng = np.random.default_rng(0)
    folder = tmp_path_factory.mktemp("images")

    def split(count, shape):
        pixels = rng.integers(0, 256, (count, *shape), np.uint8)
        return pixels, rng.integers(0, 10, count)

    for name, shape in (("grey", (12, 12, 1)), ("coloured", (16, 16, 3))):
        train, test = split(160, shape), split(20, shape)
        np.savez(
            folder / name,
            **dict(zip(("train_image", "train_label"), train)),
            **dict(zip(("test_image", "test_label"), test)),
        )
    texts = {}
    for name, count in (("train", 160), ("test", 20)):
        texts[f"{name}_tokens"] = rng.integers(1, 50, (count, 8))
        texts[f"{name}_label"] = rng.integers(0, 10, count)
    np.savez(folder / "texts", **texts)
    return folder


_trained = set()


def two_updates(config, images, out, *names):
    """Trains rows on noise for an epoch, two updates, if no preset did the same."""
    kind = "grey" if config.model.name in ("lenet5", "mlp") else "coloured"
    kind = "texts" if config.model.name in _OF_TEXTS else kind
    own = [("data.vocabulary", None), ("data.sequence_length", 8), ("train.epochs", 1)]
    if config.data.name != "digits":
        own.append(("data.name", str(images / f"{kind}.npz")))
    own += [("data.train_size", 128)] * (config.data.train_size is None)
    # Noise has ten classes, and few examples of two of them.
    rows = tuple(dataclasses.replace(row, classes=()) for row in config.methods)
    config = replaced(dataclasses.replace(config, methods=rows), own)
    names = names or (config.baseline,)
    row, *others = map(config.spec, names)
    own = dataclasses.replace(row, name="", label="", equation="", train=())
    trained = row.config(config.train)
    parts = repr((config.data, config.model, trained, own, others))
    if parts in _trained:
        return
    run_study(config, out, only=names)
    _trained.add(parts)
    for name in names:
        folder = out / "methods" / name
        (line,) = (folder / "metrics.jsonl").read_text().splitlines()
        spec = config.spec(name)
        examples, train = spec.train_size, spec.config(config.train)
        steps = (examples or config.data.train_size) // train.batch_size
        assert json.loads(line)["step"] == steps
        predictions = load_predictions(folder / "predictions.npz")
        assert predictions.logits.shape[::2] == (2, 10)
        assert np.all(np.isfinite(predictions.logits))
        assert not predictions.meta["stopped"]
        if name == "scratch":  # its members share weights
            members = spec.method.members
            shape = (2, members, *predictions.logits.shape[1:])
            assert load_members(folder / MEMBERS["test"]).logits.shape == shape


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "rows"),
    [
        *((name, ()) for name in IMAGES),
        ("digits", [spec.name for spec in study("digits").methods]),
        ("table1-mnist", ["off_init_order"]),
        ("train-size-mnist", ["baseline_8000"]),
        ("claims-mnist", ["l1_independent_linear"]),
        ("cross-sample-mnist", ["twin_bootstrap"]),
        ("ad-mnist-losses", ["orthogonalized", "wide"]),
        ("dm-fashion", ["conf_ods"]),
        ("dm-fashion-more", ["transfer_ods", "averaged_ods", "end2"]),
    ],
)
def test_rows_of_the_tiny_form_take_two_updates(name, rows, images, tmp_path):
    config = study(f"{name}:tiny")
    if rows and config.model.name == "lenet5":  # the baseline has shown that it fits
        config = replaced(config, [("model.name", "mlp"), ("model.features", (8,))])
    two_updates(config, images, tmp_path, *rows)


def test_every_row_of_the_table_of_clicks_has_its_lambda_and_s():
    methods = {s.name: s.method for s in table3().methods}
    _, table = published(table3().published)
    assert set(table) <= set(methods)
    for name, printed in table.items():
        assert methods[name].members == 3
        assert methods[name].input_scale == printed["input_scale"].mean
        strength = getattr(methods[name], "strength", 0.0)
        assert strength == printed["strength"].mean
        assert name.startswith(getattr(methods[name], "penalty", "baseline"))


@pytest.mark.parametrize("name", CLICKS)
def test_labels_of_clicks_are_different_and_short(name):
    labels = [spec.label for spec in study(name).methods]
    assert len(set(labels)) == len(labels)
    assert max(map(len, labels)) <= LONGEST_LABEL  # legends show them whole
