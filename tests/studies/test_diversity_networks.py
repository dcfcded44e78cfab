"""Features that a finished study's networks are asked for."""

import dataclasses

import numpy as np
import pytest

from churn_jax.cli import main
from churn_jax.configuration.rows import MethodSpec, Teaching
from churn_jax.methods import ERM, BackwardCompatible
from churn_jax.predictions import load_predictions
from churn_jax.studies import DataConfig, preset, run_study
from churn_jax.studies.diversity.networks import feature_space
from churn_jax.studies.finished import FinishedStudy
from churn_jax.studies.inputs import StudyError

FIXED = tuple((f"seeds.{name}", "fixed") for name in ("init", "order", "augment"))
FEW = ["--sizes", "1", "--images", "2", "--draws", "20", "--resamples", "2"]


@pytest.fixture(scope="module")
def run(tmp_path_factory, quick_to_compile):
    """A reference, a row that is compatible with it, and an ensemble."""
    del quick_to_compile
    out = tmp_path_factory.mktemp("features") / "study"
    config = preset("digits:tiny")
    rows = (
        MethodSpec("reference", "Reference", ERM(), train=FIXED),
        MethodSpec(
            "compatible",
            "Compatible",
            BackwardCompatible(),
            teaching=Teaching(old=("reference",)),
        ),
        MethodSpec("pair", "Pair", ERM(members=2)),
    )
    config = dataclasses.replace(
        config,
        baseline="reference",
        data=DataConfig(train_size=64, validation=40),
        model=dataclasses.replace(config.model, features=(12,)),
        methods=rows,
    )
    run_study(config, out)
    return out


@pytest.mark.slow
def test_features_under_a_networks_own_head_are_its_logits(run):
    study = FinishedStudy(run)
    space = feature_space(study, "reference", ("reference", "compatible"))
    saved = load_predictions(run / "methods" / "reference" / "predictions.npz")
    assert np.array_equal(space.ids, saved.ids) and space.one_reference
    logits = space.features["reference"] @ space.kernel + space.bias
    np.testing.assert_allclose(logits, saved.logits, rtol=1e-4, atol=1e-4)
    assert space.features["compatible"].shape == (*saved.logits.shape[:2], 12)
    assert not feature_space(study, "compatible", ()).one_reference
    with pytest.raises(StudyError, match="pair deploys 2 networks"):
        feature_space(study, "reference", ("pair",))


@pytest.mark.slow
def test_the_command_compares_features(run, capsys):
    words = ["displacement", str(run), "--old", "compatible", *FEW]
    assert main([*words, "--features", "reference"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "How far features move, Compatible" in said
    assert (run / "displacement" / "figure12a.png").exists()
