"""What rows predict, in files or in shards: one study, the same numbers."""

import dataclasses
import json
import shutil
import types

import numpy as np
import pytest
from scipy.special import softmax

from churn_compare import store
from churn_compare.store import load_predictions, read_shards
from churn_jax import reports
from churn_jax.configuration import from_json, to_json
from churn_jax.configuration.study import EvaluationConfig
from churn_jax.data import Dataset, Split
from churn_jax.methods import ERM, EnsembleDistillation
from churn_jax.reports.members import MEMBERS, load_members
from churn_jax.studies import MethodSpec, StudyConfig, Teaching
from churn_jax.studies import predictions as module
from churn_jax.studies.inputs import load_inputs
from churn_jax.studies.predictions import logits_of, predict_split_of
from churn_jax.training import predictions as training_predictions
from tests.experiments.presets import study as made
from tests.reports.fake_study import markdown_table
from tests.studies.small import Watched, small_study, subset

ROWS = ("baseline", "pair")


def study(form="auto") -> StudyConfig:
    evaluation = EvaluationConfig(form)
    return dataclasses.replace(small_study(), evaluation=evaluation)


def dataset():
    data = study().data
    return load_inputs(data, data.train_size).dataset


@pytest.fixture(scope="module")
def files(versions, tmp_path_factory):
    """The study in files, read only."""
    return subset(versions, tmp_path_factory.mktemp("files"), *ROWS)


@pytest.fixture(scope="module")
def shards(files, tmp_path_factory):
    """The study in shards, predicted again from its checkpoints; read only."""
    out = shutil.copytree(files, tmp_path_factory.mktemp("shards") / "study")
    for path in out.rglob("predictions*.npz"):
        path.unlink()
    Watched(study("shards"), out, *ROWS)
    return out


def forms(out, row="baseline"):
    return sorted(path.name for path in (out / "methods" / row).glob("predictions*"))


FILES = ["predictions-validation.npz", "predictions.npz"]
SHARDS = ["predictions", "predictions-validation"]


@pytest.mark.slow
def test_a_pair_is_kept_with_its_members_and_a_network_is_not(files, tmp_path):
    folder = files / "methods" / "pair"
    for part in ("", "-validation"):
        deployed = load_predictions(folder / f"predictions{part}.npz")
        kept = load_members(folder / f"members{part}.npz")
        assert kept.logits.shape[:2] == (2, 2)
        np.testing.assert_array_equal(kept.ids, deployed.ids)
        np.testing.assert_array_equal(kept.labels, deployed.labels)
        probs = softmax(kept.logits.astype(np.float64), axis=-1).mean(axis=1)
        np.testing.assert_allclose(deployed.logits, np.log(probs), 1e-5, 1e-5)
        assert not np.array_equal(kept.logits[:, 0], kept.logits[:, 1])
    assert not list(files.rglob("*.tmp"))
    assert not (files / "methods" / "baseline" / MEMBERS["test"]).exists()
    # Finished without them is finished.
    out = shutil.copytree(files, tmp_path / "study")
    for path in out.rglob("members*.npz"):
        path.unlink()
    assert Watched(study(), out, *ROWS).kept == list(ROWS)
    assert not list(out.rglob("members*.npz"))


@pytest.mark.slow
def test_a_study_in_shards_has_the_table_of_one_in_files(files, shards):
    assert [forms(files, row) for row in ROWS] == [FILES] * 2
    assert [forms(shards, row) for row in ROWS] == [SHARDS] * 2
    for row in ROWS:
        for part in ("", "-validation"):
            path = f"methods/{row}/predictions{part}.npz"
            one, other = load_predictions(files / path), load_predictions(shards / path)
            np.testing.assert_array_equal(one.ids, other.ids)
            np.testing.assert_array_equal(one.labels, other.labels)
            np.testing.assert_allclose(one.logits, other.logits, rtol=1e-5, atol=1e-5)
            assert one.meta == other.meta
    for name in MEMBERS.values():  # few numbers, so one file in any case
        assert (shards / "methods" / "pair" / name).exists()
    expected = markdown_table(reports.collect(files))
    assert markdown_table(reports.collect(shards)) == expected


@pytest.mark.slow
def test_a_row_keeps_its_form_until_it_is_predicted_again(files, tmp_path, monkeypatch):
    out = tmp_path / "study"
    shutil.copytree(files, out)
    # Finished stays finished, in the form that it has.
    again = Watched(study("shards"), out, "baseline")
    assert (again.trained, again.kept) == ([], ["baseline"])
    assert forms(out) == FILES
    # One split is gone: both are predicted again, from the checkpoint.
    (out / "methods" / "baseline" / "predictions.npz").unlink()
    lines = (out / "methods" / "baseline" / "metrics.jsonl").read_text()
    assert Watched(study("shards"), out, "baseline").trained == ["baseline"]
    assert forms(out) == SHARDS
    assert (out / "methods" / "baseline" / "metrics.jsonl").read_text() == lines
    # And back; an interrupted removal leaves no index.
    (out / "methods" / "baseline" / "predictions" / "index.json").unlink()
    assert Watched(study("file"), out, "baseline").trained == ["baseline"]
    assert forms(out) == FILES
    found = (out / "methods" / "baseline" / "predictions.npz").read_bytes()
    assert found == (files / "methods" / "baseline" / "predictions.npz").read_bytes()


@pytest.mark.slow
def test_shards_of_any_size_can_teach(shards, monkeypatch):
    path = shards / "methods" / "baseline" / "predictions"
    spec = MethodSpec(
        "student", "S", EnsembleDistillation(), teaching=Teaching(logits=str(path))
    )
    own = dataset()
    own = dataclasses.replace(own, train=own.test.take(np.arange(30)[::-1]))
    whole = logits_of(study(), spec, own)
    monkeypatch.setattr(store, "WHOLE_BYTES", 1000)
    np.testing.assert_array_equal(logits_of(study(), spec, own), whole)
    ids, values = read_shards(path).ids, read_shards(path).logits
    row = int(np.flatnonzero(ids == own.train.ids[0])[0])
    np.testing.assert_array_equal(whole[1, 0, 0], values[1, [row]][0])


def test_the_form_is_a_setting_that_changes_no_numbers():
    config = study("shards")
    assert from_json(StudyConfig, to_json(config)).evaluation == config.evaluation
    with pytest.raises(ValueError, match="must be one of auto, file, shards; got 'x'"):
        EvaluationConfig("x")
    for name in ("digits", "imagenet"):
        config = made(name)
        sharded = config.evaluation.sharded
        assert not sharded(config.train.replicas, 10_000, 1000)
        assert sharded(config.train.replicas, 1_000_000, 21_841)


# Predictions of members, of the pass that predicts their mean.


class Told:
    """A trained row that says what it is asked: logits count up with the image."""

    def __init__(self, method):
        self.run = types.SimpleNamespace(
            method=method, config=types.SimpleNamespace(replicas=2)
        )
        self.asked = []

    def predict(self, split, weights, *, every_member=False):
        self.asked.append((len(split), weights, every_member))
        lead = (2, self.run.method.members) if every_member else (2,)
        own = np.arange(np.prod(lead), dtype=np.float32).reshape(*lead, 1, 1)
        images = split.images.reshape(-1, 1)
        return own * images * np.array([1.0, 0.0, -1.0], np.float32)


def tiny_set(examples=10):
    images = np.linspace(-1, 1, examples, dtype=np.float32).reshape(-1, 1, 1, 1)
    labels = np.arange(examples) % 3
    split = Split(images, labels, np.arange(examples))
    return Dataset("x", split, split, split, num_classes=3, fingerprint="")


def test_members_and_deployed_logits_come_from_one_pass():
    told = Told(ERM(members=2, deploy="mean_logits"))
    logits, members, note = predict_split_of(told, tiny_set(), "test", "ema")
    assert told.asked == [(10, "ema", True)]
    np.testing.assert_allclose(logits, members.logits.mean(axis=1), rtol=1e-6)
    assert note == ""


def test_of_too_many_members_those_of_some_examples_are_kept(monkeypatch):
    monkeypatch.setattr(module, "MOST_NUMBERS", 4 * 2 * 2 * 3)
    told = Told(ERM(members=2, deploy="mean_probs"))
    logits, members, note = predict_split_of(told, tiny_set(), "test")
    assert told.asked == [(10, "config", False), (4, "config", True)]
    assert members.ids.tolist() == [0, 3, 6, 9] and logits.shape == (2, 10, 3)
    said = "120 logits of members on the test split"
    assert note == f"of {said} those of 4 examples of 10 are kept"
    _, members, note = predict_split_of(told, tiny_set(), "validation")
    assert members is None and note.endswith("validation split are not kept")


@pytest.mark.slow
def test_a_death_before_the_index_leaves_nothing_finished(tmp_path, monkeypatch):
    config = study("shards")

    def dies(*arguments):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(training_predictions, "write_index", dies)
        with pytest.raises(KeyboardInterrupt):
            Watched(config, tmp_path, "baseline")
    folder = tmp_path / "methods" / "baseline"
    assert list(folder.glob("predictions*/logits-*.npy"))
    assert not list(folder.glob("predictions*/index.json"))
    assert json.loads((tmp_path / "study.json").read_text())["methods"] == []
    assert reports.collect(tmp_path).missing[0].reason == "it has no predictions yet"
    trained = (folder / "metrics.jsonl").read_text()
    assert Watched(config, tmp_path, "baseline").trained == ["baseline"]
    assert (folder / "metrics.jsonl").read_text() == trained  # from the checkpoint
    assert forms(tmp_path) == SHARDS
    assert Watched(config, tmp_path, "baseline").kept == ["baseline"]
