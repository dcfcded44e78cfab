import dataclasses
import json

import jax
import numpy as np
import pytest

from churn_jax import data
from churn_jax.predictions import load_predictions
from churn_jax.reports.members import MEMBERS, load_members
from churn_jax.reports.published import published, table
from churn_jax.studies import run_study
from churn_jax.studies.presets import PRESETS, preset, tiny
from churn_jax.training.loop import train
from churn_jax.training.optim import make_schedule
from churn_jax.training.program import make_program
from churn_jax.training.run import Run

every_preset = pytest.mark.parametrize("name", PRESETS)


@every_preset
def test_tiny_form_is_two_replicas_and_two_epochs_of_the_same_study(name):
    whole, small = preset(name), preset(f"{name}:tiny")
    assert small == tiny(whole)
    trains = [spec.config(small.train) for spec in small.methods]
    assert {(train.replicas, train.epochs) for train in trains} == {(2, 2)}
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


def _full_forms():
    """A preset of every network, data and schedule: others build the same."""
    seen = {}
    for name in PRESETS:
        config = preset(name)
        row = config.spec(config.baseline)
        parts = (config.data.name, row.model or config.model, row.models)
        optimizer = row.config(config.train).optimizer
        rule = (optimizer.schedule, optimizer.warmup_epochs, optimizer.step_epochs)
        seen.setdefault(repr((*parts, row.method.members, rule)), name)
    return seen.values()


@pytest.mark.parametrize("name", _full_forms())
def test_full_form_builds_its_network_and_schedule(name):
    """Builds the full network at its real size, without computing anything."""
    config = preset(name)
    baseline = config.spec(config.baseline)
    # Weights to start from are a user's; the form of the network is not.
    model = dataclasses.replace(baseline.model or config.model, pretrained="")
    baseline = dataclasses.replace(baseline, model=model)
    shape = _SHAPES.get(config.data.name, (28, 28, 1))
    if tokens := config.model.name in _OF_TEXTS:
        shape = (config.data.sequence_length,)
    groups = baseline.groups(config.model, 10)
    run = Run(name, baseline.method, groups, baseline.config(config.train))
    program, _ = make_program(run, shape, steps_per_epoch=100, tokens=tokens)
    length = 100 * run.config.epochs
    rates = [float(program.schedule(at)) for at in (0, length // 4, length // 2)]
    optimizer = run.config.optimizer
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


@every_preset
def test_published_numbers_are_there_for_rows_of_the_preset(name):
    config = preset(name)
    if not config.published:
        return
    assert table(config.published).data == config.data.name
    known = set(published(config.published))
    rows = {spec.name for spec in config.methods}
    if config.updates:  # a published update is of its new row, or `old->new`
        made = {u.new for u in config.updates}
        made |= {f"{u.old}->{u.new}" for u in config.updates}
        assert known <= made
        return
    # Table 6's inner columns cannot be assigned to rows; parts of teachers are none.
    unassigned = {"column2", "column3", "de1", "de2", "de3"}
    assert known - unassigned <= rows
    ours = {"init", "data", "ensemble_1", "wide", "ad_0_0001", "ad_0_001", "ad_0_01"}
    # BatchEnsemble without teachers is in the paper and its numbers are lost.
    lost = {"single", "scratch"} if config.published.startswith("diversity") else set()
    assert config.baseline in known | lost
    assert rows - known <= ours | lost


def test_cifar_recipe_is_the_papers():
    train = preset("cifar10").train
    assert (train.epochs, train.batch_size, train.replicas) == (450, 1024, 10)
    assert train.optimizer.learning_rate == 1.0 and train.optimizer.nesterov
    schedule = make_schedule(train.optimizer, steps_per_epoch=47, total_steps=450 * 47)
    found = [float(schedule(47 * e)) for e in (0, 15, 199, 200, 299, 300, 400)]
    np.testing.assert_allclose(found, [0, 1, 1, 0.1, 0.1, 0.01, 0.001], rtol=1e-5)
    assert preset("cifar10").model.name == "resnet56"


def test_imagenet_and_anti_distillation_recipes_are_the_papers():
    config = preset("imagenet")
    train, optimizer = config.train, config.train.optimizer
    assert (train.epochs, train.batch_size) == (90, 1024)
    assert (optimizer.learning_rate, optimizer.nesterov) == (0.8, False)
    assert (optimizer.warmup_epochs, optimizer.step_epochs) == (5, (30, 60, 80))
    for name in ("entropy", "uniform_skl", "codistill_skl_entropy"):
        assert config.spec(name).method.top_k == 10
    config = preset("ad-table1")
    train, optimizer = config.train, config.train.optimizer
    assert (train.epochs, train.replicas) == (150, 20)
    assert (optimizer.name, optimizer.learning_rate) == ("adagrad", 0.02)
    assert (optimizer.adagrad_accumulator, optimizer.schedule) == (0.1, "constant")
    assert optimizer.weight_decay == 0.0 and config.data.train_size is None
    assert (config.model.features, config.model.init) == ((1200, 1200), "uniform")
    for name in ("ad-table1", "ad-mnist"):
        methods = [spec.method for spec in preset(name).methods]
        strengths = [method.strength for method in methods[1:]]
        assert strengths[-6:] == [0.02, 0.05, 0.1, 0.2, 0.5, 1.0]
        assert {(m.members, m.deploy) for m in methods} == {(2, "mean_probs")}
    for size in (2, 4, 6, 8):
        with_penalty = preset("ad-table2").spec(f"ad_{size}").method
        assert (with_penalty.members, with_penalty.strength) == (size, 0.5)
        assert preset("ad-table2").spec(f"ensemble_{size}").method.members == size


@pytest.mark.parametrize("name", [n for n in PRESETS if n.startswith("ad-")])
def test_anti_distillation_studies_are_about_prediction_differences(name):
    config = preset(name)
    assert config.columns[2:] == (
        "prediction_difference",
        "prediction_difference_2",
        "label_prediction_difference",
        "hamming_prediction_difference",
    )
    for spec in config.methods:
        seeds = spec.config(config.train).seeds
        fixed = [f for f in ("init", "order") if getattr(seeds, f) == "fixed"]
        assert fixed == [f for f in ("init", "order") if spec.name.endswith(f"_{f}")]


def test_the_wide_network_has_the_ensembles_number_of_weights():
    config = preset("ad-mnist-losses")

    def weights(name):
        spec = config.spec(name)
        (group,) = spec.groups(config.model, 10)
        images = np.zeros((1, 28, 28, 1), np.float32)
        shapes = jax.eval_shape(group.network.init, jax.random.key(0), images)
        count = sum(leaf.size for leaf in jax.tree.leaves(shapes))
        return group.members * count

    assert weights("wide") == pytest.approx(weights("ad"), rel=0.005)
    assert config.spec("wide").method.members == 1


def test_co_distill_ce_of_the_papers_tables_is_anils():
    for name in ("cifar10", "imagenet", "svhn", "mnist"):
        method = preset(name).spec("codistill_ce").method
        assert method.update == "independent" and method.refresh_steps > 1
        assert method.beta_ramp.kind == "step" and method.beta_ramp.steps > 0
        assert method.divergence == "cross_entropy"


def test_table_1_is_the_full_factorial_and_table_6_half_of_it():
    def cells(name, *factors):
        config = preset(name)
        seeds = [s.config(config.train).seeds for s in config.methods]
        return [tuple(getattr(s, f) for f in factors) for s in seeds]

    for name in ("table1", "table1-mnist"):
        found = cells(name, "init", "order", "augment")
        assert found[0] == ("varied",) * 3
        levels = ("varied", "fixed")
        assert sorted(found) == sorted(
            (i, o, a) for i in levels for o in levels for a in ("varied", "off")
        )
    for name in ("table6", "table6-mnist"):
        found = cells(name, "init", "order", "augment")
        assert found[0] == ("varied",) * 3
        assert all(order == augment for _, order, augment in found)
        assert len(set(found)) == 4 and ("fixed",) * 3 in found


def test_table_3_has_every_row_with_and_without_decay():
    config = preset("table3-cifar10")
    decays = {
        s.name: s.config(config.train).optimizer.weight_decay for s in config.methods
    }
    without = {name for name in decays if name.endswith("_wd0")}
    assert {decays[name] for name in without} == {0.0}
    assert {decays[name.removesuffix("_wd0")] for name in without} == {1e-4}
    assert len(decays) == 2 * len(without) == 8


def test_design_claims_cover_every_sensible_combination():
    config = preset("claims-mnist")
    peers = {
        (s.method.divergence, s.method.update, s.method.beta_ramp.kind)
        for s in config.methods
        if s.name != "baseline" and s.name != "baseline_init"
    }
    assert len(peers) == 3 * 2 * 3 + 3
    assert ("joint_cross_entropy", "independent", "linear") not in peers
    proposal = config.spec("codistill_skl").method
    assert (proposal.divergence, proposal.update) == ("skl", "joint")
    assert proposal.beta_ramp.kind == "linear"
    same = config.spec("codistill_skl_init")
    assert same.method == proposal and same.config(config.train).seeds.init == "fixed"
    for count in (3, 4):  # the pull on a peer is that of a pair
        method = config.spec(f"codistill_skl_{count}").method
        assert method.members == count
        assert method.beta * (count - 1) == pytest.approx(proposal.beta)


def test_cross_sample_rows_resample_once():
    config = preset("cross-sample-mnist")
    for spec in config.methods:
        train = spec.config(config.train)
        assert train.seeds.sample == "varied"
        own = spec.method.member_sample == "bootstrap"
        assert (train.sample == "bootstrap") != own


def test_training_sizes_get_equal_updates():
    config = preset("train-size-mnist")
    updates = {
        s.name: s.config(config.train).epochs * (s.train_size / config.train.batch_size)
        for s in config.methods
    }
    assert len(updates) == 10
    assert max(updates.values()) == pytest.approx(min(updates.values()), rel=0.02)
    alike, whole = config.spec(config.baseline), preset("mnist")
    assert alike.config(config.train) == whole.train
    assert alike.train_size == whole.data.train_size


@every_preset
def test_preset_has_its_baseline_and_every_teacher(name):
    config = preset(name)
    assert config.name == name and config.title
    assert config.spec(config.baseline).equation
    order = [spec.name for spec in config.select(())]
    assert sorted(order) == sorted(spec.name for spec in config.methods)
    for spec in config.methods:
        assert spec.label and spec.equation.startswith("[")
        if spec.teacher is not None:
            assert order.index(spec.teacher) < order.index(spec.name)


def shrunk(config):
    """The preset's tiny form with the fewest examples that its batch allows."""
    dataset = data.load(config.data.name, validation=20, train_size=128)
    train_config = dataclasses.replace(config.train, batch_size=64, replicas=1)
    return dataclasses.replace(config, train=train_config), dataset


@pytest.fixture(scope="module")
def trained_methods(quick_to_compile):
    """Trains a method, after its teacher; each once, whoever asks."""
    done = {}

    def train_method(config, dataset, spec):
        if (config.name, spec.name) not in done:
            teacher = None
            if spec.teacher is not None:
                teacher = train_method(config, dataset, config.spec(spec.teacher))
            stream = 0 if spec.teacher is None else 1
            groups = spec.groups(config.model, dataset.num_classes)
            run = Run(spec.name, spec.method, groups, config.train, stream=stream)
            done[config.name, spec.name] = train(run, dataset, teacher=teacher)
        return done[config.name, spec.name]

    return train_method


@pytest.mark.slow
@pytest.mark.parametrize("method", [spec.name for spec in preset("digits").methods])
def test_method_of_the_tiny_form_takes_two_epochs(method, trained_methods):
    config, dataset = shrunk(preset("digits:tiny"))
    trained = trained_methods(config, dataset, config.spec(method))
    assert not trained.stopped
    np.testing.assert_array_equal(trained.last.step, [4])
    logits = trained.predict(dataset.test.images[:7])
    assert logits.shape == (1, 7, dataset.num_classes) and np.all(np.isfinite(logits))


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


def two_updates(config, images, out, *names):
    """Trains rows of a tiny form on noise for an epoch, which is two updates."""
    grey = config.model.name in ("lenet5", "mlp")
    kind = "grey" if grey else "coloured"
    kind = "texts" if config.model.name in _OF_TEXTS else kind
    config = dataclasses.replace(
        config,
        data=dataclasses.replace(
            config.data,
            name=str(images / f"{kind}.npz"),
            vocabulary=None,
            sequence_length=8,
        ),
        train=dataclasses.replace(config.train, epochs=1),
    )
    run_study(config, out, only=names)
    for name in names:
        folder = out / "methods" / name
        (line,) = (folder / "metrics.jsonl").read_text().splitlines()
        examples = config.spec(name).train_size or config.data.train_size
        assert json.loads(line)["step"] == examples // config.train.batch_size
        predictions = load_predictions(folder / "predictions.npz")
        assert predictions.logits.shape == (2, 20, 10)
        assert not predictions.meta["stopped"]


def _baselines():
    """Presets but the digits; of the third paper's, one with each kind of layers.

    Data are noise here: of baselines that are trained alike, the first.
    """
    seen = set()
    for name in PRESETS:
        config = preset(f"{name}:tiny")
        if name[:3] == "dm-":
            if name in ("dm-fashion", "dm-cifar10-be4", "dm-mimo"):
                yield name
        elif config.data.name != "digits":
            spec = config.spec(config.baseline)
            row = dataclasses.replace(
                spec,
                name="",
                label="",
                equation="",
                train=tuple(c for c in spec.train if c[0] != "seeds.base"),
                model=spec.model or config.model,
            )
            training = dataclasses.replace(config.train, epochs=1)
            alike = repr((row, training, config.data.train_size))
            if alike not in seen:
                yield name
            seen.add(alike)


@pytest.mark.slow
@pytest.mark.usefixtures("quick_to_compile")
@pytest.mark.parametrize("name", list(_baselines()))
def test_baseline_of_the_tiny_form_takes_two_updates(name, images, tmp_path):
    config = preset(f"{name}:tiny")
    two_updates(config, images, tmp_path, config.baseline)


@pytest.mark.slow
@pytest.mark.usefixtures("quick_to_compile")
@pytest.mark.parametrize(
    ("name", "rows"),
    [
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
    config = preset(f"{name}:tiny")
    if config.model.name == "lenet5":  # the baseline has shown that it fits
        config = with_an_mlp(config)
    two_updates(config, images, tmp_path, *rows)


def with_an_mlp(config):
    model = dataclasses.replace(config.model, name="mlp", features=(8,))
    return dataclasses.replace(config, model=model)


@pytest.mark.usefixtures("quick_to_compile")
def test_members_that_share_weights_take_two_updates(images, tmp_path):
    config = with_an_mlp(preset("dm-fashion:tiny"))
    two_updates(config, images, tmp_path, "scratch")
    folder = tmp_path / "methods" / "scratch"
    assert load_members(folder / MEMBERS).logits.shape == (2, 4, 20, 10)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("digit", "did you mean digits"),
        ("digits:small", "digits:tiny"),
        ("zzz", "known: digits"),
    ],
)
def test_unknown_preset_is_an_error_with_the_closest_names(name, hint):
    with pytest.raises(ValueError, match=f"unknown preset '{name}'") as error:
        preset(name)
    assert hint in str(error.value)
