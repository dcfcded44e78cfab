"""The analyses on a tiny study: numbers, figures, bad input."""

import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from churn_compare.store import load_predictions
from churn_jax import metrics
from churn_jax.reports.members import load_members
from churn_jax.studies import DataConfig, preset, run_study
from churn_jax.studies.finished import FinishedStudy
from experiments.diversity import robustness
from experiments.diversity.analyses import main, student_rows
from experiments.diversity.corruption import CorruptionSummary, measure
from experiments.diversity.foreign_examples import out_of_distribution
from experiments.diversity.networks import to_pixels
from experiments.diversity.report_figures import corruption_boxes, entropy_histograms
from experiments.diversity.spread import (
    Spread,
    example_keys,
    moved_pixels,
    steps_of,
    students,
)
from experiments.diversity.study import AnalysedStudy, DiversityOptions

ROWS = ("teachers", "scratch", "kd", "ods")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A finished study of four rows on the digits, and a file of foreign images."""
    folder = tmp_path_factory.mktemp("diversity")
    config = preset("dm-digits:tiny")
    config = dataclasses.replace(
        config,
        data=DataConfig(train_size=64, validation=40),
        model=dataclasses.replace(config.model, features=(12,)),
        methods=tuple(
            dataclasses.replace(
                spec, method=dataclasses.replace(spec.method, members=2), train=()
            )
            for spec in config.methods
            if spec.name in ROWS
        ),
    )
    run_study(config, folder / "study")
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (150, 8, 8, 1), np.uint8)
    labels = np.arange(150) % 10
    np.savez(folder / "noise.npz", images=images, labels=labels)
    np.savez(folder / "large.npz", images=images.repeat(2, 1), labels=labels)
    return folder / "study"


def analysed(run, data=None, **options):
    return AnalysedStudy(FinishedStudy(run, data), DiversityOptions(**options))


@pytest.mark.slow
@pytest.mark.parametrize("tau", [4.0, 1.0])
def test_sections_agree_with_the_predictions_that_the_study_left(run, tau):
    opened = analysed(
        run, examples=10**6, temperature=tau, ood=str(run.parent / "noise.npz")
    )
    spreads, foreign = students(opened), robustness.foreign(opened)
    for row in ROWS:
        members = load_members(run / "methods" / row / "members.npz")
        deployed = load_predictions(run / "methods" / row / "predictions.npz").logits
        entropy = metrics.prediction_entropy(jnp.asarray(deployed))
        for r in range(2):
            wanted = metrics.diversity_by_confidence(
                jnp.asarray(members.logits[r]) / tau
            )
            for name in ("counts", "bin_mean_kl", "mean_kl", "quartiles"):
                found = getattr(spreads[row], name)[r]
                np.testing.assert_allclose(
                    found, getattr(wanted, name), rtol=1e-4, atol=1e-6
                )
            np.testing.assert_allclose(
                foreign[row].entropy_in[r], np.mean(entropy[r]), rtol=1e-5
            )


@pytest.mark.slow
def test_the_command_computes_every_section(run, tmp_path, capsys):
    foreign = str(run.parent / "noise.npz")
    words = [str(run), "--examples", "40", "--jacobian-examples", "6"]
    words += ["--batch", "8", "--draws", "4", "--ood", foreign, "--corruptions"]
    words += ["--types", "brightness", "--severities", "1", "5"]
    words += ["--csv", str(tmp_path / "a")]
    assert main(words) == 0
    said = capsys.readouterr().out
    assert "Corrupted images" in said and "BE-4 + KD" in said
    drawn = {path.stem for path in (run / "diversity").glob("*.svg")}
    kinds = ("kl", "kl_boxes", "kl_by_confidence")
    assert drawn == {
        "jacobians",
        "jacobian_rocs",
        "matching",
        "ood",
        "corruptions",
        *(f"{of}_{kind}" for of in ("teachers", "students") for kind in kinds),
    }
    teachers = np.genfromtxt(
        tmp_path / "a-teachers.csv", delimiter=",", names=True, dtype=None
    )
    kinds = ["clean", "gaussian", "ods", "conf_ods", "transfer", "adversarial", "test"]
    assert teachers["label"].tolist() == kinds
    assert teachers["times"][0] == 1.0 and (teachers["kl"] > 0).all()
    found = np.genfromtxt(
        tmp_path / "a-students.csv", delimiter=",", names=True, dtype=None
    )
    assert np.isfinite(found["cosine"]).sum() == 3  # students, not their teachers
    assert np.isfinite(found["snr_ods"]).sum() == 1  # distilled on clean images
    assert np.isfinite(found["corrupted_ece"]).all()


@pytest.mark.slow
def test_steps_are_those_of_the_rows_and_of_their_size(run):
    opened = analysed(run)
    spec = opened.study.spec("teachers")
    row, train = opened.networks("teachers"), opened.train(spec)
    step = steps_of(opened, spec, "transfer", 0)
    assert step.size == pytest.approx(1 / 16)
    assert opened.teacher_of(opened.study.spec("scratch")) == spec
    pixels = to_pixels(train.images[:8])
    moved = {
        kind: moved_pixels(
            row.structure,
            kind,
            None,
            row.replica(0),
            np.int32(1),
            pixels,
            train.labels[:8],
            example_keys(0, 0, 8),
            np.float32(step.size),
            np.float32(step.temperature),
        )
        for kind in ("ods", "conf_ods", "adversarial")
    }
    rms = {
        kind: np.sqrt(np.mean(np.square(found - pixels), axis=(1, 2, 3)))
        for kind, found in moved.items()
    }
    np.testing.assert_allclose(rms["ods"], step.size, rtol=1e-4)
    np.testing.assert_allclose(rms["adversarial"], step.size, rtol=1e-4)
    assert (rms["conf_ods"] < rms["ods"]).all()
    # The network that is asked for leads, and no other.
    ask = row.structure.predict(row.replica(0))
    before, after = (
        jax.nn.softmax(ask(x, 1) / step.temperature)[np.arange(8), train.labels[:8]]
        for x in (pixels, moved["adversarial"])
    )
    assert (after < before).all()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--rows", "kdd"], "kd"),
        (["--section", "nothing"], "there is no section 'nothing'"),
        (["--section", "ood"], "needs --ood"),
        (["--ood", "digits"], "not foreign"),
        (["--ood", "{}/large.npz"], "images (16, 8, 1) of uint8"),
        (["--corruptions", "--types", "frog"], "no corruption 'frog'"),
        (["--examples", "0"], "examples must be at least 1"),
        (["--data.name", "{}/noise.npz"], "is not what"),
    ],
)
def test_bad_input_is_one_sentence(run, capsys, words, message):
    kept = ["--section", "ood"] if "--ood" in words else []
    kept = ["--section", "corruptions"] if "--corruptions" in words else kept
    words = [word.format(run.parent) for word in words]
    assert main([str(run), *kept, *words]) == 2
    (sentence,) = capsys.readouterr().err.splitlines()
    assert message in sentence


def test_a_folder_that_is_no_study_is_refused(tmp_path, capsys):
    assert main([str(tmp_path / "none")]) == 2
    assert "is" in capsys.readouterr().err
    (tmp_path / "study.json").write_text(json.dumps({"config": {"name": "a"}}))
    assert main([str(tmp_path)]) == 2
    assert "is not a record of a study" in capsys.readouterr().err
    assert main(["--examples", "3"]) == 2
    assert "the folder of a finished study comes first" in capsys.readouterr().err


@pytest.mark.slow
def test_published_corruptions_are_spaced_evenly(run, tmp_path, monkeypatch):
    """A folder like CIFAR-10-C, with the digits' name; severity s is s everywhere."""
    folder, count = tmp_path / "digits-C", 9
    folder.mkdir()
    levels = np.repeat(np.arange(1, 6, dtype=np.uint8), count)
    images = np.broadcast_to(levels[:, None, None, None], (5 * count, 8, 8, 1))
    np.save(folder / "contrast.npy", images)
    np.save(folder / "labels.npy", np.tile(np.arange(count), 5))
    seen = []

    def look(logits, labels):
        seen.append((logits.shape, labels.tolist()))
        return measure(logits, labels)

    monkeypatch.setattr(robustness, "measure", look)
    config = FinishedStudy(run).config.data
    data = dataclasses.replace(config, manual_dir=str(tmp_path))
    opened = analysed(run, data, examples=3, types=("contrast",), severities=(2,))
    summaries = robustness.corruptions(opened)
    assert seen == [((2, 3, 10), [0, 4, 8])] * 4 and set(summaries) == set(ROWS)


def test_bins_are_weighted_by_their_examples():
    def of(mean, count):
        nothing = np.full((5, 2), np.nan)
        return {
            "edges": np.linspace(0, 1, 3),
            "counts": np.array([0, count]),
            "bin_mean_kl": np.array([np.nan, mean]),
            "quartiles": nothing,
            "mean_kl": mean,
            "box": nothing[:, 0],
            "accuracy": 0.75,
        }

    found = Spread.of([of(0.1, 30), of(0.5, 10)])
    np.testing.assert_allclose(found.by_bin, [np.nan, 0.2])
    np.testing.assert_allclose(found.shares, [0, 1])


def test_rows_are_compared_run_by_run():
    cosines = {"scratch": [[[0.0, 0.1]], [[0.3, 0.4]]], "kd": [[[0.05, 0.2]]] * 2}
    found = {"jacobians": {row: np.array(x) for row, x in cosines.items()}}
    labels = {"scratch": "Scratch", "kd": "KD"}
    scratch, kd = student_rows(found, labels, "scratch")
    assert "auc" not in scratch and kd["label"] == "KD"
    assert kd["auc"] == pytest.approx((0.75 + 0.0) / 2)
    assert kd["delta_cosine"] == pytest.approx(0.125 - 0.2)


def test_histograms_show_shares_of_both_sets_without_stopped_runs(rng, drawn):
    logits = 4 * rng.normal(size=(3, 60, 3)), rng.normal(size=(3, 50, 3))
    logits[0][2, 5] = np.nan
    found = out_of_distribution(*logits, bins=6)
    svg = entropy_histograms({"BE-4": found, "BE-4 + ODS": found}, "SVHN")
    for text in ("BE-4 + ODS", "SVHN", "own test images", "Entropy, nats"):
        assert text in svg
    assert len(drawn["stairs"]) == 4
    alone = out_of_distribution(*(side[:2] for side in logits), bins=6)
    for ((shares, edges), _), side, examples in zip(
        drawn["stairs"], (alone.histogram_in, alone.histogram_out), (120, 100)
    ):
        np.testing.assert_array_equal(edges, found.histogram_in.edges)
        np.testing.assert_allclose(shares, 100 * side.counts.sum(0) / examples)


def test_boxes_are_the_quartiles_of_what_they_show(rng, drawn):
    cells = {
        (kind, severity): rng.uniform(size=(4, 2))
        for kind in ("fog", "snow", "frost", "contrast", "pixelate")
        for severity in (1, 2, 3)
    }
    summary = CorruptionSummary.of(cells)
    corruption_boxes({"BE-4": summary, "DE-4": summary})
    calls = drawn["bxp"]
    assert len(calls) == 4  # two panels of two methods
    for ((boxes, *_), _), quantity in ((calls[0], "nll"), (calls[3], "ece")):
        found = [list(box.values()) for box in boxes]
        np.testing.assert_array_equal(found, summary.quartiles(quantity))
    left, right = (options["positions"] for _, options in calls[:2])
    np.testing.assert_allclose((left + right) / 2, [0, 1, 2])  # side by side
