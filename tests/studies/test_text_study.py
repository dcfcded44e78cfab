"""A study of texts, from a file of token ids to its report."""

import dataclasses

import jax
import numpy as np
import pytest

from churn_jax import reports
from churn_jax.methods import ERM, EnsembleDistillation
from churn_jax.models import zoo
from churn_jax.predictions import load_predictions
from churn_jax.studies import (
    DataConfig,
    MethodSpec,
    ModelConfig,
    StudyConfig,
    run_study,
)
from churn_jax.studies.cost import study_costs
from churn_jax.studies.diversity import DiversityOptions, run_diversity
from churn_jax.studies.restoring import FinishedStudy
from churn_jax.training.config import TrainConfig
from churn_jax.training.optim import OptimizerConfig
from tests.training.tiny_texts import Bag

pytestmark = pytest.mark.usefixtures("quick_to_compile")


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
    return StudyConfig(
        name="texts",
        title="Texts",
        data=DataConfig(path, validation=24, sequence_length=6, vocabulary_size=20),
        model=ModelConfig("bag"),
        train=TrainConfig(
            replicas=2,
            epochs=2,
            batch_size=16,
            optimizer=OptimizerConfig(learning_rate=2.0),
        ),
        methods=(
            MethodSpec("pair", "Pair", ERM(members=2, deploy="mean_probs")),
            MethodSpec("student", "Student", EnsembleDistillation(), teacher="pair"),
        ),
        baseline="pair",
    )


def test_texts_are_trained_on_predicted_reported_and_analysed(tmp_path, monkeypatch):
    monkeypatch.setitem(zoo._ZOO, "bag", Bag)
    config = study(texts(tmp_path / "texts.npz", 0))
    out = run_study(config, tmp_path / "run")
    assert not (out / "examples.npz").exists()  # there is no image to show
    reports.write(out)
    assert (out / "report.html").exists()
    opened = FinishedStudy(out)
    test = opened.dataset.test
    for spec in config.methods:
        found = load_predictions(out / "methods" / spec.name / "predictions.npz")
        assert (found.logits.argmax(-1) == found.labels).mean(1).min() > 0.8
    params = jax.device_get(opened.restore(config.spec("student")).params)[0]
    for run in range(2):  # the network in NumPy
        tree = jax.tree.map(lambda leaf, run=run: leaf[run, 0], params)
        seen = (test.images != 0)[..., None]
        each = np.where(seen, tree["embed"]["embedding"][test.images], 0)
        mean = each.sum(1) / seen.sum(1)
        expected = mean @ tree["head"]["kernel"] + tree["head"]["bias"]
        np.testing.assert_allclose(found.logits[run], expected, rtol=1e-5, atol=1e-5)

    notes = []
    options = DiversityOptions(examples=12, ood=texts(tmp_path / "other.npz", 1))
    sections = ("teachers", "students", "jacobians", "matching", "ood")
    run_diversity(out, sections, options, on_note=notes.append)
    refused = [note.split(":")[0] for note in notes if "token ids have none" in note]
    assert refused == ["teachers", "jacobians", "matching"]
    reports.write(out)

    costs = {row.name: row.flops for row in study_costs(config)}
    assert 0 < costs["pair"] < 3 * costs["student"]


def test_what_does_not_fit_texts_is_said_before_anything_is_trained(
    tmp_path, monkeypatch
):
    monkeypatch.setitem(zoo._ZOO, "bag", Bag)
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
