"""Displacements, from the command line to the figures."""

import dataclasses

import numpy as np
import pytest

from churn_compare.store import load_predictions
from churn_jax.configuration.rows import MethodSpec, Teaching
from churn_jax.methods import ERM, BackwardCompatible
from churn_jax.studies import DataConfig, StudyError, preset, run_study
from churn_jax.studies.study import FinishedStudy
from experiments.elodi.displacement import main
from experiments.elodi.displacement_numbers import feature_space
from tests.reports.fake_study import noisy_logits, write_study

FIGURES = ("figure3", "figure4", "figure5", "top-classes-")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    labels = np.arange(30) % 3
    rng = np.random.default_rng(0)
    rows = {name: noisy_logits(rng, labels, 6, 3) for name in ("small", "large")}
    return write_study(tmp_path_factory.mktemp("command") / "study", rows, labels)


@pytest.mark.slow
def test_the_page_and_the_tables_are_there(run, tmp_path, capsys):
    words = [str(run), "--old", "small", "--sizes", "1", "3"]
    few = ["--images", "2", "--draws", "30", "--resamples", "4"]
    assert main([*words, *few]) == 0
    said = capsys.readouterr().out
    assert "How far logits move, Small, 6 networks" in " ".join(said.split())
    assert "Tables and figures: " in said
    assert len(list((run / "displacement").glob("*.svg"))) == 5
    out = tmp_path / "both"
    words += ["--new", "large", "--heterogeneous", "small", "large", "--out", str(out)]
    assert main([*words, *few]) == 0
    names = {f"{name}{letter}" for name in FIGURES for letter in "ab"} | {"figure2"}
    assert names == {path.stem for path in out.glob("*.png")}
    assert "Small → Large" in (out / "displacement.md").read_text()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--sizes", "1;2"], "--sizes"),
        (["--sizes", "2", "1"], "sizes must increase"),
        (["--old", "smal"], "did you mean small?"),
        (["--sizes", "4"], "ensembles of 4 need as many networks"),
        (["--heterogeneous", "large"], "at least two rows"),
        (["--heterogeneous", "small", "large", "--sizes", "7"], "ensembles of 7 need"),
        (["--sizes", "0", "1"], "sizes must be at least 1"),
        (["--images", "0"], "images must be at least 1"),
        (["--draw", "7"], "--draw"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_code_2(run, capsys, words, message):
    old = [] if "--old" in words else ["--old", "small"]
    assert main([str(run), *old, *words]) == 2
    (sentence,) = capsys.readouterr().err.splitlines()
    assert message in sentence


FIXED = tuple((f"seeds.{name}", "fixed") for name in ("init", "order", "augment"))
ONE = ["--sizes", "1", "--images", "2", "--draws", "20", "--resamples", "2"]


@pytest.fixture(scope="module")
def features(tmp_path_factory):
    """A reference, a row that is compatible with it, and an ensemble."""
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
def test_features_under_a_networks_own_head_are_its_logits(features):
    study = FinishedStudy(features)
    space = feature_space(study, "reference", ("reference", "compatible"))
    saved = load_predictions(features / "methods" / "reference" / "predictions.npz")
    assert np.array_equal(space.ids, saved.ids) and space.one_reference
    logits = space.features["reference"] @ space.kernel + space.bias
    np.testing.assert_allclose(logits, saved.logits, rtol=1e-4, atol=1e-4)
    assert space.features["compatible"].shape == (*saved.logits.shape[:2], 12)
    assert not feature_space(study, "compatible", ()).one_reference
    with pytest.raises(StudyError, match="pair deploys 2 networks"):
        feature_space(study, "reference", ("pair",))


@pytest.mark.slow
def test_the_command_compares_features(features, capsys):
    words = [str(features), "--old", "compatible", *ONE]
    assert main([*words, "--features", "reference"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "How far features move, Compatible" in said
    assert (features / "displacement" / "figure12a.png").exists()
