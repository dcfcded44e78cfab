"""Parts of the analyses: features of networks, and corrupted sets without them."""

import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest

from churn_compare.store import load_predictions
from churn_jax.configuration.rows import MethodSpec, Teaching
from churn_jax.data import Split
from churn_jax.methods import ERM, BackwardCompatible
from churn_jax.studies import DataConfig, preset, run_study
from churn_jax.studies.finished import FinishedStudy
from churn_jax.studies.inputs import StudyError
from experiments.diversity.robustness import corruption_parts
from experiments.diversity.study import AnalysedStudy, DiversityOptions
from experiments.elodi.displacement import main
from experiments.elodi.displacement_features import feature_space

FIXED = tuple((f"seeds.{name}", "fixed") for name in ("init", "order", "augment"))
FEW = ["--sizes", "1", "--images", "2", "--draws", "20", "--resamples", "2"]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
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
    words = [str(run), "--old", "compatible", *FEW]
    assert main([*words, "--features", "reference"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "How far features move, Compatible" in said
    assert (run / "displacement" / "figure12a.png").exists()


IMAGES = np.arange(9 * 64, dtype=np.uint8).reshape(9, 8, 8, 1)
TEST = Split(IMAGES, np.arange(9, dtype=np.int32), np.arange(9))
ROWS = tuple(MethodSpec(name, name, ERM()) for name in ("a", "stopped"))


def parts_of(manual_dir=None, examples=3):
    """The parts of two rows, all of whose replicas have stopped in the second."""
    options = DiversityOptions(examples=examples, types=("contrast",), severities=(2,))
    opened = SimpleNamespace(
        study=SimpleNamespace(
            config=SimpleNamespace(data=DataConfig(manual_dir=manual_dir))
        ),
        options=options,
        dataset=SimpleNamespace(test=TEST),
        rows=ROWS,
        runs=lambda spec: [0, 1] if spec.name == "a" else [],
        stamp=lambda spec, extra=None: f"{spec.name} {extra}",
    )
    opened.test = lambda: AnalysedStudy.test(opened)
    return corruption_parts(opened)


def published(folder):
    """A folder like CIFAR-10-C, with the digits' name; severity s is s everywhere."""
    (folder / "digits-C").mkdir()
    levels = np.repeat(np.arange(1, 6, dtype=np.uint8), 9)
    images = np.broadcast_to(levels[:, None, None, None], (45, 8, 8, 1))
    np.save(folder / "digits-C" / "contrast.npy", images)
    np.save(folder / "digits-C" / "labels.npy", np.tile(np.arange(9), 5))
    return folder


def test_a_row_whose_runs_have_all_stopped_has_no_part():
    assert [part.key for part in parts_of()] == ["a/contrast/2"]


def test_published_images_are_spaced_evenly_and_are_another_part(tmp_path):
    (own,), (theirs,) = parts_of(), parts_of(str(published(tmp_path)))
    assert own.key == theirs.key and own.stamp != theirs.stamp
    for part in (own, theirs):
        images, labels = part.compute.args[2]("contrast", 2)
        np.testing.assert_array_equal(labels, [0, 4, 8])
        assert images.shape == (3, 8, 8, 1)
    assert (images == 2).all()
