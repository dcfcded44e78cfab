"""What a study keeps of its preset, and what a record says of it."""

import json

import pytest

from churn_jax.configuration import StudyRecord, replaced, to_json
from churn_jax.studies import StudyError
from churn_jax.studies.folder import read_study
from churn_jax.studies.presets import derived
from tests.experiments.presets import study as preset


def of(name, **changes):
    config = preset(name)
    pairs = [(path.replace("__", "."), value) for path, value in changes.items()]
    return derived(config, replaced(config, pairs))


@pytest.mark.parametrize(
    ("name", "changes", "title"),
    [
        (
            "digits",
            {"data__name": "s/x.npz", "model__name": "lenet5", "train__epochs": 3},
            "Preset digits on x.npz with LeNet5, 192 training examples, 3 epochs",
        ),
        (
            "cifar100",
            {"train__epochs": 3, "train__batch_size": 128},
            "Preset cifar100 on CIFAR-100 with ResNet-56, 3 epochs",
        ),
        (
            "mnist",
            {"data__train_size": 2000},
            "Preset mnist on MNIST with LeNet5, 2,000 training examples, 40 epochs",
        ),
        ("mnist", {"data__name": "sets/mnist.npz", "train__replicas": 3}, ""),
        ("mnist", {"data__name": "tfds:mnist"}, ""),
    ],
)
def test_a_study_that_is_another_one_has_a_title_of_its_own(name, changes, title):
    study = of(name, **changes)
    assert study.title == (title or preset(name).title)
    assert bool(study.notes) == ("model__name" in changes)


def test_other_data_or_another_network_are_told_of_the_presets_recipe():
    (note,) = of("digits", data__name="s/x.npz", model__name="lenet5").notes
    assert note == (
        "The recipe is the preset's (digits), for the UCI hand-written digits and MLP; "
        "`churn-jax study own --data s/x.npz --model lenet5` has one for these data "
        "and trains on all examples."
    )


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
