"""The sizes that a plan is made with are those of the data that a study loads."""

import dataclasses

import numpy as np
import pytest

from churn_jax.data import named
from churn_jax.methods import ERM
from churn_jax.planning.datasets import SIZES, row_sizes
from churn_jax.studies import DataConfig, MethodSpec
from churn_jax.studies.inputs import load_inputs
from tests.experiments.presets import STUDIES, study


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
    sizes = row_sizes(config)
    assert sizes.train == len(loaded.train.labels)
    assert sizes.validation == len(loaded.validation.labels)
    assert sizes.shape == loaded.train.images.shape[1:]
    assert sizes.classes == loaded.num_classes
    assert sizes.dtype == loaded.train.images.dtype


def test_every_preset_has_a_data_set_of_known_size_or_a_file():
    for name in STUDIES:
        data = study(name).data
        planned = not study(name).train.one_pass  # clicks are not
        known = data.name in SIZES or data.name.endswith(".npz")
        assert known or not planned, name


def test_a_rows_own_share_classes_and_size_are_heeded():
    data = DataConfig("cifar10", validation=1000)
    spec = MethodSpec("a", "A", ERM())
    assert row_sizes(data, spec).train == 49_000
    half = dataclasses.replace(spec, class_share=0.5, classes=(0, 1, 2, 3, 4))
    assert row_sizes(data, half).train == 12_250
    few = dataclasses.replace(spec, train_size=256)
    assert row_sizes(data, few).train == 256


def test_images_of_any_size_are_cropped_and_texts_cut():
    assert row_sizes(DataConfig("imagenet2012", image_size=64)).shape == (64, 64, 3)
    text = row_sizes(DataConfig("ag_news_subset", sequence_length=128))
    assert (text.shape, text.tokens, text.streamed) == ((128,), True, False)


def test_a_file_of_the_users_own_is_opened(tmp_path):
    draw = np.random.default_rng(0)
    np.savez(
        tmp_path / "mine.npz",
        images=draw.normal(size=(400, 12)).astype(np.float32),
        labels=np.arange(400) % 4,
    )
    mine = DataConfig(str(tmp_path / "mine.npz"), validation=None)
    as_object = DataConfig(named(dict(np.load(mine.name))), validation=None)
    assert row_sizes(as_object) == row_sizes(mine)
    found = load_inputs(mine, None).dataset
    sizes = row_sizes(mine)
    assert (sizes.train, sizes.validation) == (len(found.train), len(found.validation))
    assert (sizes.shape, sizes.classes, sizes.dtype) == ((12,), 4, np.float32)
    spec = MethodSpec("a", "A", ERM(), train_size=50)
    assert row_sizes(mine, spec).train == 50


def test_data_of_unknown_size_is_refused_by_name():
    with pytest.raises(ValueError, match=r"digits, mnist.*got 'mine\.npz'"):
        row_sizes(DataConfig("mine.npz"))
    with pytest.raises(ValueError, match="train_size=70000 is more than the 54000"):
        row_sizes(DataConfig("mnist", train_size=70_000))
