"""A study of texts, from a file of token ids to its analyses."""

import dataclasses

import numpy as np
import pytest
import scipy.special

from churn_compare.store import load_predictions
from churn_jax.methods import ERM, EnsembleDistillation
from churn_jax.models import MODELS
from churn_jax.studies import DataConfig, MethodSpec, ModelConfig, run_study
from churn_jax.studies.cost import study_costs
from churn_jax.studies.study import FinishedStudy
from churn_jax.training import OptimizerConfig
from experiments.diversity.analyses import run_diversity
from experiments.diversity.sections import foreign_images, students
from experiments.diversity.study import AnalysedStudy, DiversityOptions
from tests.studies.test_study import study_of
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
    assert not (out / "examples.npz").exists()  # there is no image to show
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
