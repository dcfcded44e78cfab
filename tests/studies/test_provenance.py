import dataclasses
import json

import numpy as np
import pytest

from churn_jax.cli import main
from churn_jax.configuration.codec import from_json, replaced, to_json
from churn_jax.configuration.difference import without
from churn_jax.configuration.record import StudyRecord
from churn_jax.configuration.study import StudyConfig
from churn_jax.studies import StudyError
from churn_jax.studies.folder import read_study
from churn_jax.studies.provenance import derived
from tests.experiments.presets import study as preset


def of(name, *, data="", model="", **train):
    config = preset(name)
    changed = dataclasses.replace(
        config,
        data=dataclasses.replace(config.data, name=data or config.data.name),
        model=dataclasses.replace(config.model, name=model or config.model.name),
        train=dataclasses.replace(config.train, **train),
    )
    return derived(config, changed)


def test_a_preset_on_other_data_says_what_is_still_its_own():
    study = of("digits", data="s/cifar100.npz", model="lenet5", epochs=3)
    title = "Preset digits on cifar100.npz with LeNet5, 192 training examples, 3 epochs"
    assert study.title == title
    (note,) = study.notes
    assert note == (
        "The recipe (except epochs), 192 training examples and 600 validation examples "
        "are still the preset's (digits); `churn-jax study own --data s/cifar100.npz "
        "--model lenet5` trains on all examples with a recipe for them."
    )
    assert study.changes == (
        "cifar100.npz instead of the UCI hand-written digits",
        "LeNet5 instead of MLP",
        "epochs 3 instead of 80",
    )


@pytest.mark.parametrize("data", ["mnist", "tfds:mnist", "sets/mnist.npz"])
def test_the_presets_own_data_may_lie_anywhere(data):
    study = of("mnist", data=data, replicas=3)
    assert (study.title, study.notes) == (preset("mnist").title, ())
    assert study.changes == ()


def test_a_shorter_training_of_the_paper_is_no_longer_the_papers():
    study = of("cifar100", epochs=3, batch_size=128)
    assert study.title == "Preset cifar100 on CIFAR-100 with ResNet-56, 3 epochs"
    assert study.notes == ()
    assert study.changes == (
        "epochs 3 instead of 450",
        "batch_size 128 instead of 1024",
    )


def test_another_number_of_examples_is_in_the_title():
    config = preset("mnist")
    study = derived(config, replaced(config, [("data.train_size", 2000)]))
    title = "Preset mnist on MNIST with LeNet5, 2,000 training examples, 40 epochs"
    assert (study.title, study.notes) == (title, ())
    assert study.changes == ("2,000 training examples instead of 1,000",)


def test_another_network_is_in_the_title_and_its_recipe_is_the_presets():
    study = of("cifar100", model="lenet5")
    assert study.title == "Preset cifar100 on CIFAR-100 with LeNet5, 450 epochs"
    assert study.notes[0].startswith("The recipe and 1,000 validation examples are")


def test_the_words_are_recorded_and_bind_no_later_launch():
    study = of("digits", data="x.npz")
    assert from_json(StudyConfig, to_json(study)) == study
    plain = dataclasses.replace(study, notes=(), changes=(), title="")
    assert without(to_json(study)) == without(to_json(plain))


@pytest.mark.parametrize(
    "spoilt",
    [
        {"data": {"nope": 1}},
        {"model": {"features": {}}},
        {"methods": [{"teacher": []}]},
    ],
)
def test_a_record_that_cannot_be_read_is_named(spoilt, tmp_path):
    record = to_json(StudyRecord(preset("digits")))
    record["config"] |= spoilt
    (tmp_path / "study.json").write_text(json.dumps(record))
    with pytest.raises(StudyError, match=r"^\S+study\.json is damaged, or was left by"):
        read_study(tmp_path)


def test_the_command_says_it(tmp_path, capsys):
    """Record and report have notes: see `test_own_data` and the reports' tests."""
    file = tmp_path / "own.npz"
    images = np.zeros((200, 8, 8, 1), np.uint8)
    np.savez(file, images=images, labels=np.arange(200) % 4)
    command = ["study", "digits:tiny", "--only", "baseline", "--data", str(file)]
    sizes = ["--data.train-size", "64", "--data.validation", "20", "--dry-run"]
    assert main([*command, *sizes]) == 0
    said = capsys.readouterr().out
    title = "Preset digits-tiny on own.npz with MLP, 64 training examples, 2 epochs"
    assert title in said and "are still the preset's (digits-tiny)" in said
