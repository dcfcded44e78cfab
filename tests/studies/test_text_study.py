"""Studies of texts: from token ids to analyses, and from pretrained weights."""

import dataclasses
import functools
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special
from safetensors.numpy import save_file

from churn_compare.store import load_predictions
from churn_jax import models
from churn_jax.methods import ERM, EnsembleDistillation
from churn_jax.models import MODELS
from churn_jax.models.public_weights import PretrainedError
from churn_jax.studies import DataConfig, MethodSpec, ModelConfig, run_study
from churn_jax.studies.cost import study_costs
from churn_jax.studies.inputs import load_inputs
from churn_jax.studies.study import FinishedStudy
from churn_jax.training import MeshShape, OptimizerConfig
from experiments.diversity.analyses import run_diversity
from experiments.diversity.sections import foreign_images, students
from experiments.diversity.study import AnalysedStudy, DiversityOptions
from tests.models import drawn
from tests.studies.small import Watched, logits, study_of
from tests.training import tiny
from tests.training.tiny_texts import Bag


def texts(path, seed):
    """Of every class its own words, and words of no class above them."""
    rng, arrays = np.random.default_rng(seed), {}
    for split, count in (("train", 120), ("test", 30)):
        labels = np.arange(count) % 3
        words = [rng.integers(1 + 5 * c, 6 + 5 * c, rng.integers(2, 8)) for c in labels]
        words = [np.append(w, rng.integers(16, 90)) for w in words]
        ends = np.cumsum([len(w) for w in words])
        arrays[f"{split}_tokens"] = np.concatenate(words)
        arrays[f"{split}_offsets"] = np.append(0, ends)
        arrays[f"{split}_label"] = labels
    np.savez(path, **arrays)
    return str(path)


def study(path):
    return study_of(
        MethodSpec("pair", "Pair", ERM(members=2, deploy="mean_probs")),
        data=DataConfig(path, validation=24, sequence_length=6, vocabulary_size=20),
        model=ModelConfig("bag"),
        epochs=2,
        batch_size=16,
        optimizer=OptimizerConfig(learning_rate=2.0),
    )


@pytest.mark.slow
def test_texts_are_trained_on_predicted_and_analysed(tmp_path, monkeypatch):
    monkeypatch.setitem(MODELS._built_in, "bag", Bag)
    config = study(texts(tmp_path / "texts.npz", 0))
    # Two networks; a dense layer and a mean over six places, forwards and backwards.
    pair, flops = study_costs(config)[0], 2 * 2 * 8 * (6 + 3)
    assert flops < pair.flops / (pair.replicas * pair.examples) < 30 * flops
    out = run_study(config, tmp_path / "run")
    found = load_predictions(out / "methods/pair/predictions.npz")
    assert (found.logits.argmax(-1) == found.labels).mean(1).min() > 0.8

    other = texts(tmp_path / "other.npz", 1)
    opened = AnalysedStudy(FinishedStudy(out), DiversityOptions(ood=other))
    test, variables = opened.test(), opened.networks("pair").variables[0]["params"]
    for run in range(2):  # the networks in NumPy
        tables, kernels = variables["embed"]["embedding"], variables["head"]["kernel"]
        seen = (test.images != 0)[..., None]
        each = np.where(seen, tables[run][:, test.images], 0)
        mean = each.sum(2) / seen.sum(1)
        logits = mean @ kernels[run] + variables["head"]["bias"][run][:, None]
        probs = scipy.special.softmax(logits, axis=-1).mean(0)
        np.testing.assert_allclose(np.exp(found.logits[run]), probs, rtol=1e-4)
    asked = opened.logits(opened.rows[0], test.images)
    np.testing.assert_allclose(asked, found.logits, rtol=1e-5)
    assert (students(opened)["pair"].mean_kl > 0).all()
    foreign = foreign_images(opened)  # cut as the study's own
    assert foreign.shape == test.images.shape and foreign.max() == 19

    notes = []
    sections = ("teachers", "jacobians", "matching", "corruptions")
    run_diversity(FinishedStudy(out), sections, on_note=notes.append)
    assert [n.split(":")[0] for n in notes if "ids have none" in n] == list(sections)


def test_what_does_not_fit_texts_is_said_before_anything_is_trained(
    tmp_path, monkeypatch
):
    monkeypatch.setitem(MODELS._built_in, "bag", Bag)
    config = study(texts(tmp_path / "texts.npz", 0))
    moved = MethodSpec(
        "moved", "M", EnsembleDistillation(perturbation="gaussian"), teacher="pair"
    )
    wide = dataclasses.replace(config.data, vocabulary_size=None)
    for changed, message in (
        ({"methods": (*config.methods, moved)}, "'gaussian' moves pixels"),
        ({"data": wide}, "ids go up to 8[0-9], but bag has 20 embeddings"),
    ):
        refused = dataclasses.replace(config, **changed)
        with pytest.raises(ValueError, match=message):
            run_study(refused, tmp_path / "run")
        with pytest.raises(ValueError, match=message):
            study_costs(refused)
    assert not (tmp_path / "run").exists()


_VOCABULARY, _CLASSES = 20, 3


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """One layer and no dropout compile in half the time."""
    small = functools.partial(
        models.Bert,
        positions=5,
        depth=1,
        width=8,
        attention_heads=2,
        hidden=6,
        dropout=0.0,
    )
    monkeypatch.setitem(MODELS._built_in, "bert_tiny", small)


def _network(classes):
    return models.create("bert_tiny", num_classes=classes, vocabulary_size=_VOCABULARY)


@pytest.fixture
def folder(tmp_path):
    """A checkpoint for three classes."""
    path = tmp_path / "bert"
    path.mkdir()
    network = _network(_CLASSES)
    shapes = jax.eval_shape(network.init, jax.random.key(0), jnp.ones((1, 2), int))
    empty = jax.tree.map(lambda leaf: np.zeros(leaf.shape, "f4"), shapes)
    written = models.to_hugging_face(empty)
    weights = drawn.weights({name: value.shape for name, value in written.items()})
    save_file(weights, path / "model.safetensors")
    config = {
        "model_type": "bert",
        "vocab_size": _VOCABULARY,
        "hidden_size": 8,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 6,
        "max_position_embeddings": 5,
    }
    (path / "config.json").write_text(json.dumps(config))
    return str(path)


def _model(folder):
    return ModelConfig("bert_tiny", vocabulary_size=_VOCABULARY, pretrained=folder)


def test_replicas_start_from_the_folder_and_differ_in_the_head_only(folder):
    network = _model(folder).build(5)  # classes; the folder has three
    assert network.note == f"weights of bert from {folder}; fresh: head"
    module = _network(5)
    loaded = models.load_pretrained(folder, module)
    assert network.name == f"bert_tiny-pretrained_{loaded.fingerprint}"
    assert network.init.weights is _model(folder).build(5).init.weights  # one copy
    run = tiny.make_run(ERM(members=2), network=network, replicas=2)
    words = jnp.ones((1, 2), jnp.int32)
    (variables,) = tiny.drawn(run, words, MeshShape(replica=2))
    params = dict(variables["params"])
    head = np.asarray(params.pop("head")["kernel"]).reshape(4, -1)
    assert len(np.unique(head[:, 0])) == 4
    assert jax.tree.structure(params) == jax.tree.structure(loaded.variables["params"])
    jax.tree.map(
        lambda leaf, read: np.testing.assert_array_equal(
            leaf, np.broadcast_to(read, leaf.shape)
        ),
        params,
        loaded.variables["params"],
    )


def test_a_folder_for_another_network_is_refused(folder):
    with pytest.raises(ValueError, match="'mlp' has no field 'vocabulary_size'"):
        ModelConfig("mlp", vocabulary_size=9).build(_CLASSES)
    with pytest.raises(PretrainedError, match="needs 30522"):
        ModelConfig("bert_tiny", pretrained=folder).build(_CLASSES)


@pytest.mark.slow
def test_a_study_without_learning_predicts_what_the_folder_does(folder, tmp_path):
    path = texts(tmp_path / "texts.npz", 0)
    sizes = {"sequence_length": 5, "vocabulary_size": _VOCABULARY}
    config = study_of(
        MethodSpec("one", "One", ERM()),
        data=DataConfig(path, validation=24, **sizes),
        model=_model(folder),
        epochs=1,
        batch_size=48,
        optimizer=OptimizerConfig(learning_rate=0.0),
    )
    notes = []
    out = run_study(config, tmp_path / "run", on_note=notes.append)
    assert any(note.endswith(f"weights of bert from {folder}") for note in notes)
    found = logits(out, "one")
    module = _network(_CLASSES)
    variables = models.load_pretrained(folder, module).variables
    tokens = load_inputs(config.data, None).dataset.test.images
    expected = jax.jit(module.apply)(variables, tokens)
    for run in found:
        np.testing.assert_allclose(run, expected.logits, rtol=1e-4, atol=1e-4)
    assert np.abs(found[0, 0] - found[0, 1]).max() > 0.01
    weights = tmp_path / "bert" / "model.safetensors"
    for content, trained in (
        (weights.read_bytes(), []),
        (weights.read_bytes()[:-1] + b"?", ["one"]),
    ):
        weights.write_bytes(content)
        assert Watched(config, out).trained == trained
