import json

import numpy as np
import pytest

from churn_jax.cli import main
from churn_jax.command.study import read_study
from churn_jax.command.sweep import read_sweep
from churn_jax.studies import DataConfig, own_study, preset
from churn_jax.studies.inputs import DataFacts


def facts(kind, *shape, train=5000, tokens=0, streamed=False):
    found = DataFacts(shape, 10, train, 500, 1000, tokens=tokens, streamed=streamed)
    assert found.kind == kind
    return found


def study_of(facts, **options):
    return own_study(DataConfig("sets/own.npz", validation=None), facts, **options)


@pytest.mark.parametrize(
    ("given", "network", "optimizer", "shift"),
    [
        (facts("images", 8, 8, 1), "mlp", "adam", 0),
        (facts("images", 28, 28, 1), "lenet5", "sgd", 2),
        (facts("images", 28, 28, 1, train=54_000), "lenet5", "sgd", 0),
        (facts("images", 32, 32, 3), "resnet20", "sgd", 2),
        (facts("images", 96, 96, 3), "resnet18", "sgd", 4),
        (facts("images", 224, 224, 3, streamed=True), "resnet18", "sgd", 0),
        (facts("table", 14), "mlp", "adam", 0),
        (facts("tokens", 64, tokens=900), "text_encoder", "adam", 0),
    ],
)
def test_the_recipe_is_for_the_kind_and_size_of_the_data(
    given, network, optimizer, shift
):
    study = study_of(given)
    train = study.train
    assert (study.model.name, train.optimizer.name) == (network, optimizer)
    assert train.augmentation.shift == shift
    assert not train.augmentation.flip  # a mirrored digit is another class
    assert study.data.train_size is None
    assert study.model.vocabulary_size == given.tokens


def test_small_sets_are_passed_over_more_often_in_smaller_batches():
    sizes = (100, 2000, 50_000)
    trains = [study_of(facts("table", 8, train=n)).train for n in sizes]
    assert [t.batch_size for t in trains] == [32, 64, 128]
    assert [t.epochs for t in trains] == [100, 100, 13]
    rates = [t.optimizer.learning_rate for t in trains]
    assert rates == sorted(rates) and rates[0] < rates[-1]


def test_the_title_is_made_of_data_and_network():
    given = facts("images", 32, 32, 3)
    assert study_of(given, model="lenet5").title == "Churn on own.npz with LeNet5"
    # Another set or network is another folder.
    assert study_of(given, model="lenet5").name == "own-own-lenet5"


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    """300 images that are pooled: 216 train, 24 validate and 60 test."""
    file = tmp_path_factory.mktemp("own") / "own.npz"
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (300, 12, 12, 1), np.uint8)
    np.savez(file, images=pixels, labels=np.arange(300) % 4)
    return file


@pytest.mark.parametrize(
    "lengths",
    ["--epochs 8 --batch-size 16", "--set train.epochs=8 train.batch_size=16"],
)
def test_options_change_the_recipe_and_lengths_what_follows_from_them(images, lengths):
    words = ["own", "--data", str(images), *lengths.split()]
    config, _ = read_study([*words, "--set", "train.augmentation.flip=true"])
    assert (config.train.epochs, config.train.batch_size) == (8, 16)
    assert config.train.optimizer.warmup_epochs == 1
    ramp = config.spec("codistill_skl").method.beta_ramp
    assert ramp.steps == 8 * (216 // 16)
    said = dict(note.split(" = ", 1) for note in config.notes if " = " in note)
    assert said["train.epochs"] == "8 (as given)."
    assert said["train.augmentation"] == "flip True (as given)."
    assert "as given" not in said["train.optimizer.name"]
    rate = said["train.optimizer.learning_rate"]
    assert rate.endswith(" (warm-up, then cosine to zero so that weights settle).")
    config, _ = read_study([*words, "--set", "train.optimizer.final_factor=0.5"])
    assert config.notes[4].partition(" (")[2] == "its schedule as given)."
    config, _ = read_study([*words, "--optimizer", "adam"])
    assert " (chosen for sgd, so give one for adam; warm-up, then" in config.notes[4]


def test_notes_of_a_stream_are_of_a_stream():
    given = facts("images", 224, 224, 3, train=1_000_000, streamed=True)
    notes = study_of(given).notes
    assert notes[1] == "Pixels are standardised by ImageNet's mean and deviation."
    assert notes[-3:-1] == (
        "train.batch_size = 128 (smaller sets take smaller batches).",
        "train.augmentation = none (images are cropped at random as they are read).",
    )
    with pytest.raises(ValueError, match="training examples must be at least 1; got 0"):
        study_of(given._replace(train=0))


def test_a_study_of_own_data_is_no_preset():
    with pytest.raises(ValueError, match="study own --data FILE"):
        preset("own")


def test_a_sweep_starts_from_the_same_recipe(images):
    words = ["own", "codistill_skl.beta", "--data", str(images), "--epochs", "3"]
    config, options = read_sweep(words)
    assert options.axes == ("codistill_skl.beta",)
    assert config.train.optimizer.warmup_epochs == 0.75
    assert options.out.name == "own-own-lenet5-codistill_skl.beta"


@pytest.mark.parametrize(
    "kind", ["table", pytest.param("tokens", marks=pytest.mark.slow)]
)
def test_tables_and_token_ids_have_costs(kind, tmp_path, capsys):
    rng, file = np.random.default_rng(0), tmp_path / "own.npz"
    labels = np.arange(120) % 3
    if kind == "table":
        numbers = rng.normal(size=(120, 5)).astype(np.float32)
        np.savez(file, images=numbers, labels=labels)
        text = "rows of 5 numbers, 3 classes"
    else:
        tokens = rng.integers(1, 50, 1200)
        offsets = np.arange(0, 1201, 10)
        arrays = {"tokens": tokens, "offsets": offsets, "label": labels}
        splits = {f"{s}_{k}": v for s in ("train", "test") for k, v in arrays.items()}
        np.savez(file, **splits)
        text = "texts of at most 64 tokens, 3 classes"
    words = ["--data", str(file), "--only", "baseline", "--dry-run"]
    out = tmp_path / "out"
    assert main(["study", "own", *words, "--out", str(out)]) == 0
    said = capsys.readouterr().out
    assert text in said and "train.augmentation = none" in said
    assert "FLOPs" in said and said.splitlines()[-1].startswith("all")
    assert not out.exists()


@pytest.mark.slow
def test_all_examples_train_and_the_recipe_is_told(images, tmp_path, capsys):
    out = tmp_path / "run"
    words = f"""study own --data {images} --model mlp --set model.features=8
        --only baseline --replicas 2 --epochs 1 --out {out}""".split()
    assert main(words) == 0
    record = json.loads((out / "study.json").read_text())
    title = record["config"]["title"]
    assert title == "Churn on own.npz with MLP"
    assert record["data"]["title"] == "own.npz"
    assert (record["data"]["train"], record["data"]["validation"]) == (216, 24)
    said = " ".join(capsys.readouterr().out.split())
    page = (out / "report.html").read_text()
    for what in ("model.name = mlp (as given", "train.augmentation = none"):
        assert what in said
        assert what in page
    assert title in page
