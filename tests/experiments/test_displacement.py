"""Tables, figures and files of displacements, from made-up networks."""

import dataclasses
import json

import jax
import numpy as np
import pytest

from churn_compare.store import Predictions, PredictionsError, save_predictions
from churn_jax.analysis import ensemble_displacement_norms
from churn_jax.configuration.rows import MethodSpec, Teaching
from churn_jax.methods import ERM, UNKNOWN_LOGIT, BackwardCompatible
from churn_jax.reports.artefacts import read_study
from churn_jax.studies import DataConfig, preset, run_study
from churn_jax.studies.study import FinishedStudy
from experiments.elodi.displacement import displacement_report, main, write_displacement
from experiments.elodi.displacement_figures import flip_kinds, flip_ranks
from experiments.elodi.displacement_numbers import (
    DisplacementOptions,
    FeatureSpace,
    Networks,
    compare_features,
    feature_space,
    read_networks,
    two_classes,
)
from tests.reports.fake_study import noisy_logits, write_study

R, N, C = 8, 60, 4
FEW = DisplacementOptions(images=3, sizes=(1, 2), draws=40, resamples=9)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Three rows; `fewer` does not know a class, and a replica of it stopped."""
    rng = np.random.default_rng(0)
    labels = np.arange(N) % C
    rows = {row: noisy_logits(rng, labels, R, C, margin=1.5) for row in ("old", "new")}
    rows["new"] += 0.5 * np.eye(C)[labels]
    fewer = noisy_logits(rng, labels, R + 1, C)
    fewer[..., 1] = UNKNOWN_LOGIT
    fewer[R] = np.nan
    stopped = {"fewer": [{"replica": R, "term": "loss", "step": 3}]}
    return write_study(
        tmp_path_factory.mktemp("displacement") / "study",
        rows | {"fewer": fewer, "absent": None},
        labels,
        stopped=stopped,
        title="A <study>",
    )


@pytest.fixture(scope="module")
def report(folder):
    parts = []
    found = displacement_report(
        *(folder, "old", "new", FEW), heterogeneous=("old", "new"), on_part=parts.append
    )
    assert len(parts) == 6
    return found


def test_tables_and_figures_are_written(report, tmp_path):
    picture = flip_ranks(report.comparisons[1], "figure4")
    write_displacement(report, [picture], tmp_path)
    assert (tmp_path / "figure4.png").read_bytes().startswith(b"\x89PNG")
    svg = (tmp_path / "figure4.svg").read_text()
    assert svg.startswith("<svg xmlns=") and "currentColor" not in svg
    text = (tmp_path / "displacement.md").read_text()
    for caption in (
        "8 networks of a kind are few",
        "How far logits move, Old, 8 networks",
        "How far logits move, Old → New, 8 and 8 networks",
        "Updates, Old → New",
        "Updates, Heterogeneous of Old, New",
    ):
        assert caption in text
    record = json.loads((tmp_path / "displacement.json").read_text())
    for found, entry in zip(report.comparisons, record["comparisons"], strict=True):
        assert [fit["size"] for fit in entry["fits"]] == [1, 2]
        np.testing.assert_allclose(entry["fits"][0]["distance"], found.fits[0].distance)
    assert entry["label"] == "Old → New"
    assert sum(entry["flip_ranks"]["1"]) > 0 and entry["flip_ranks"]["1"][0] == 0
    shares = entry["top_classes"]["shares"]["2"]
    assert shares == sorted(shares) and shares[-1] == pytest.approx(1)
    rates = np.array(record["heterogeneous"]["updates"]["negative_flip_rate"])
    assert rates.shape == (2, 40) and (rates > 0).any()


def test_numbers_are_those_of_the_analysis(folder, report):
    own, other = report.comparisons
    # All pairs of single networks: the mean norm is that of 4 x 4 or 8 x 8 pairs.
    networks = read_networks(read_study(folder), ["old", "new"])
    a, b = (networks[row].logits[:, [0, 30, 59]] for row in ("old", "new"))
    pairs = np.linalg.norm(a[:, None] - b[None], axis=-1)
    spread = pairs.std(axis=(0, 1)) / np.sqrt(FEW.draws)
    gap = np.abs(other.fits[0].observed - pairs.mean(axis=(0, 1)))
    assert (gap < 5 * spread).all()
    # Drawn histograms are of the norms that were tested, with the key of their size.
    drawn = own.drawn[2]
    np.testing.assert_allclose(drawn.mean(axis=0), own.fits[1].observed, rtol=1e-12)
    key = jax.random.fold_in(jax.random.key(FEW.seed), 2)
    norms = ensemble_displacement_norms(a, size=2, draws=40, key=key)
    np.testing.assert_array_equal(norms, drawn)
    assert other.ids == ("0", "30", "59") and not own.centre.any()


def test_classes_that_a_row_does_not_know_are_left_out(folder):
    study = read_study(folder)
    found = read_networks(study, ["old", "fewer"])
    for networks in found.values():
        assert networks.classes.tolist() == [0, 2, 3]
        assert networks.logits.shape == (R, 45, 3)  # without the replica that stopped
        assert networks.labels.max() == 2 and len(networks.ids) == 45
    assert read_networks(study, ["old"])["old"].logits.shape == (R, N, C)


def test_predictions_of_any_framework_take_part(folder, tmp_path):
    own = read_networks(read_study(folder), ["old"])["old"]
    elsewhere = Predictions(own.ids, own.labels, 2 * own.logits)
    file = str(save_predictions(tmp_path / "theirs.npz", elsewhere))
    found = read_networks(read_study(folder), ["old", file])
    np.testing.assert_allclose(found[file].logits, 2 * own.logits, rtol=1e-6)
    assert found[file].label == file
    other = Predictions(own.ids + 1, own.labels, own.logits)
    save_predictions(tmp_path / "other.npz", other)
    with pytest.raises(PredictionsError, match="the examples differ"):
        read_networks(read_study(folder), ["old", str(tmp_path / "other.npz")])


def test_the_two_classes_are_those_that_are_confused_and_an_image_that_flips():
    labels = np.array([0, 0, 1, 2, 2, 2])
    logits = np.tile(5.0 * np.eye(3)[labels], (4, 1, 1))
    logits[0, 3] = [9, 0, 0]  # an old network takes one of class 2 for 0
    logits[2:, 4] = [9, 0, 0]  # the new networks, the second half, another one
    networks = Networks("a", np.arange(6), labels, logits, np.array([3, 4, 7]))
    found = two_classes(networks, None)
    assert found.classes == (3, 7)  # by their ids
    assert found.labels.tolist() == [0, 0, 1, 1, 1] and found.marked == 3
    assert found.old.shape == found.new.shape == (2, 5, 2)
    kinds = flip_kinds(found, found.old[0], found.new[0])
    assert kinds == ["same", "same", "positive flip", "negative flip", "same"]
    never = networks._replace(logits=logits[1:2].repeat(2, axis=0))
    assert two_classes(never, None).classes == (3, 4)


def space_of(networks, width=C):
    """Features whose first columns a head of the reference turns into the logits.

    Of fewer than C it makes the logits that come closest.
    """
    rng = np.random.default_rng(1)
    kernel, bias = rng.normal(size=(width, C)), rng.normal(size=C)
    features = {}
    for row, found in networks.items():
        own = (found.logits - bias) @ np.linalg.pinv(kernel)
        more = rng.normal(size=(*own.shape[:-1], 2))
        features[row] = np.concatenate([own, more], axis=-1)
    ids = networks["old"].ids
    return FeatureSpace("Reference", False, ids, features, kernel, bias)


def test_features_are_compared_as_logits_are(folder, tmp_path):
    space = space_of(read_networks(read_study(folder), ["old", "new"]))
    few = dataclasses.replace(FEW, sizes=(2,), resamples=1)
    report = displacement_report(folder, "old", "new", few, space=space)
    own, other = report.features.norms
    old, new = (f[:, [0, 30, 59], :C].mean(axis=0) for f in space.features.values())
    np.testing.assert_allclose(other.centre, np.linalg.norm(old - new, axis=-1))
    assert own.label == "Old" and not own.centre.any()
    # The reference's head gives the networks' own logits, so their means agree.
    for found in report.features.agreement.values():
        assert found.agreement == 1 and found.relative_distance < 1e-5
    write_displacement(report, (), tmp_path)
    text = (tmp_path / "displacement.md").read_text()
    assert "How far features move, Old → New, 8 and 8 networks" in text
    assert "features of other rows live in several spaces" in " ".join(text.split())
    assert "| Old | 100.00 | 0.000 |" in text
    record = json.loads((tmp_path / "displacement.json").read_text())["features"]
    assert record["agreement"]["New"]["agreement"] == 1.0
    assert len(record["norms"]) == 2


def test_two_features_are_judged_by_the_references_head(folder):
    networks = read_networks(read_study(folder), ["old", "new"])
    space, labels = space_of(networks, width=2), networks["old"].labels
    plane = compare_features(space, networks, ["old", "new"], FEW).plane
    places = np.isin(labels, plane.classes).nonzero()[0]
    places = places[np.linspace(0, len(places) - 1, 40).round().astype(int)]
    np.testing.assert_array_equal(plane.new, space.features["new"][:, places, :2])
    scores = (plane.new @ space.kernel + space.bias)[..., plane.classes]
    right = np.array(plane.classes)[scores.argmax(-1)] == labels[places]
    np.testing.assert_array_equal(plane.right(plane.new), right)
    own = space.features["old"]
    for wrong in (own[..., :1], own[1:]):  # too few features, another network
        other = dataclasses.replace(space, features={"old": wrong})
        with pytest.raises(ValueError, match="of the same networks, and at least 2"):
            compare_features(other, networks, ["old"], FEW)


@pytest.mark.slow
def test_features_of_a_study_are_those_that_its_last_layers_read(tmp_path, capsys):
    fixed = tuple((f"seeds.{name}", "fixed") for name in ("init", "order", "augment"))
    old, config = Teaching(old=("reference",)), preset("digits:tiny")
    config = dataclasses.replace(
        config,
        baseline="reference",
        data=DataConfig(train_size=64, validation=40),
        model=dataclasses.replace(config.model, features=(12, 2)),
        methods=(
            MethodSpec("reference", "Reference", ERM(), train=fixed),
            MethodSpec("compatible", "Compatible", BackwardCompatible(), teaching=old),
            MethodSpec("pair", "Pair", ERM(members=2)),
        ),
    )
    run_study(config, tmp_path)
    study = FinishedStudy(tmp_path)
    space = feature_space(study, "reference", ("reference", "compatible"))
    saved = read_networks(read_study(tmp_path), ["reference"])["reference"]
    assert np.array_equal(space.ids, saved.ids) and space.one_reference
    logits = space.features["reference"] @ space.kernel + space.bias
    np.testing.assert_allclose(logits, saved.logits, rtol=1e-4, atol=1e-4)
    assert space.features["compatible"].shape == (*saved.logits.shape[:2], 2)
    assert not feature_space(study, "compatible", ()).one_reference
    with pytest.raises(ValueError, match="pair deploys 2 networks"):
        feature_space(study, "reference", ("pair",))
    few = ["--sizes", "1", "--images", "2", "--draws", "20", "--resamples", "2"]
    words = [str(tmp_path), "--old", "compatible", *few]
    assert main([*words, "--features", "reference"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "How far features move, Compatible" in said
    drawn = (tmp_path / "displacement").glob("figure1*.png")
    assert {path.stem for path in drawn} == {"figure11", "figure12a"}


@pytest.mark.slow
def test_the_command_draws_every_figure(folder, tmp_path, capsys):
    few = ["--sizes", "1", "2", "--images", "2", "--draws", "30", "--resamples", "4"]
    assert main([str(folder), "--old", "fewer", *few]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "45 test examples, 3 classes" in said
    assert "How far logits move, Fewer, 8 networks" in said
    assert "Tables and figures: " in said
    assert len(list((folder / "displacement").glob("*.svg"))) == 5
    out = tmp_path / "both"
    more = ["--new", "new", "--heterogeneous", "old", "new", "--out", str(out)]
    assert main([str(folder), "--old", "old", *few, *more]) == 0
    kinds = ("figure3", "figure4", "figure5", "top-classes-")
    names = {f"{kind}{letter}" for kind in kinds for letter in "ab"} | {"figure2"}
    assert names == {path.stem for path in out.glob("*.png")}
    for path in out.glob("*.svg"):
        svg = path.read_text()
        assert svg.startswith("<svg xmlns=") and "currentColor" not in svg
    assert "Old → New" in (out / "displacement.md").read_text()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--sizes", "1;2"], "--sizes"),
        (["--sizes", "2", "1"], "sizes must increase"),
        (["--old", "newe"], "did you mean new?"),
        (["--sizes", "5"], "ensembles of 5 need as many networks"),
        (["--heterogeneous", "new"], "at least two rows"),
        (["--heterogeneous", "old", "new", "--sizes", "9"], "ensembles of 9 need"),
        (["--sizes", "0", "1"], "sizes must be at least 1"),
        (["--images", "0"], "images must be at least 1"),
        (["--draw", "7"], "--draw"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_code_2(folder, capsys, words, message):
    old = [] if "--old" in words else ["--old", "old"]
    assert main([str(folder), *old, *words]) == 2
    (sentence,) = capsys.readouterr().err.splitlines()
    assert message in sentence
