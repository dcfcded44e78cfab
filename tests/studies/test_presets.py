import dataclasses
import difflib

import numpy as np
import pytest

from churn_jax import data
from churn_jax.studies.presets import PRESETS, preset, tiny
from churn_jax.training.loop import train
from churn_jax.training.run import Run
from tests.golden.refresh import FOLDER, path_of, text_of

every_preset = pytest.mark.parametrize("name", PRESETS)


@every_preset
def test_preset_is_what_its_golden_file_says(name):
    frozen = path_of(name).read_text() if path_of(name).exists() else ""
    difference = difflib.unified_diff(
        frozen.splitlines(), text_of(name).splitlines(), "golden", "preset", lineterm=""
    )
    changed = "\n".join(difference)
    assert not changed, (
        f"the preset {name} has changed; if that is meant, run\n"
        f"    python -m tests.golden.refresh\nand commit the file:\n{changed}"
    )


def test_there_is_no_golden_file_of_a_preset_that_is_gone():
    assert {p.name for p in FOLDER.glob("preset_*.json")} == {
        path_of(name).name for name in PRESETS
    }


@every_preset
def test_tiny_form_is_two_replicas_and_two_epochs_of_the_same_study(name):
    whole, small = preset(name), preset(f"{name}:tiny")
    assert small == tiny(whole)
    assert (small.train.replicas, small.train.epochs) == (2, 2)
    assert (small.methods, small.model, small.data) == (
        whole.methods,
        whole.model,
        whole.data,
    )


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
def trained_methods():
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


def _methods_of_presets():
    """The preset's first method, the others marked slow: each compiles for seconds."""
    for name in PRESETS:
        for i, spec in enumerate(preset(name).methods):
            marks = [pytest.mark.slow] if i else []
            yield pytest.param(name, spec.name, marks=marks, id=f"{name}-{spec.name}")


@pytest.mark.parametrize(("name", "method"), list(_methods_of_presets()))
def test_method_of_the_tiny_form_takes_two_epochs(name, method, trained_methods):
    config, dataset = shrunk(preset(f"{name}:tiny"))
    trained = trained_methods(config, dataset, config.spec(method))
    assert not trained.stopped
    np.testing.assert_array_equal(trained.last.step, [4])
    logits = trained.predict(dataset.test.images[:7])
    assert logits.shape == (1, 7, dataset.num_classes) and np.all(np.isfinite(logits))


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
