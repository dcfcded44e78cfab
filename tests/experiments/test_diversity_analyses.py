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
from churn_jax.studies.study import FinishedStudy
from experiments.diversity import sections
from experiments.diversity.analyses import main, student_rows
from experiments.diversity.study import AnalysedStudy, DiversityOptions, to_pixels

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
    spreads, foreign = sections.students(opened), sections.foreign(opened)
    for row in ROWS:
        members = load_members(run / "methods" / row / "members.npz")
        deployed = load_predictions(run / "methods" / row / "predictions.npz").logits
        entropy = metrics.prediction_entropy(jnp.asarray(deployed))
        for r in range(2):
            wanted = metrics.diversity_by_confidence(
                jnp.asarray(members.logits[r]) / tau
            )
            for name in ("counts", "bin_mean_kl", "mean_kl"):
                found, of = getattr(spreads[row], name)[r], getattr(wanted, name)
                np.testing.assert_allclose(found, of, rtol=1e-4, atol=1e-6)
            found = foreign[row].inside[r].mean()
            np.testing.assert_allclose(found, np.mean(entropy[r]), rtol=1e-5)


@pytest.mark.slow
def test_the_command_computes_every_section(run, capsys):
    foreign = str(run.parent / "noise.npz")
    words = [str(run), "--examples", "40", "--jacobian-examples", "6"]
    words += ["--batch", "8", "--draws", "4", "--ood", foreign]
    words += ["--types", "brightness", "--severities", "1", "5"]
    words += ["--section", "teachers", "students", "jacobians", "matching"]
    words += ["ood", "corruptions"]
    assert main(words) == 0
    said = capsys.readouterr().out
    assert "Corrupted images" in said and "BE-4 + KD" in said
    drawn = {path.stem for path in (run / "diversity").glob("*.svg")}
    kinds = ("kl", "kl_by_confidence")
    assert drawn == {
        "jacobians",
        "jacobian_rocs",
        "matching",
        "ood",
        "corruptions",
        *(f"{of}_{kind}" for of in ("teachers", "students") for kind in kinds),
    }
    teachers = np.genfromtxt(
        run / "diversity/teachers.csv", delimiter=",", names=True, dtype=None
    )
    kinds = ["clean", "gaussian", "ods", "conf_ods", "transfer", "adversarial", "test"]
    assert teachers["label"].tolist() == kinds
    assert teachers["times"][0] == 1.0 and (teachers["kl"] > 0).all()
    found = np.genfromtxt(
        run / "diversity/students.csv", delimiter=",", names=True, dtype=None
    )
    assert np.isfinite(found["cosine"]).sum() == 3  # students, not their teachers
    assert np.isfinite(found["snr_ods"]).sum() == 1  # distilled on clean images
    assert np.isfinite(found["corrupted_ece"]).all()


@pytest.mark.slow
def test_steps_are_those_of_the_rows_and_of_their_size(run):
    opened = analysed(run)
    spec = opened.study.spec("teachers")
    row, train = opened.networks("teachers"), opened.train(spec, 10**6)
    step = sections.steps_of(opened, spec, "transfer", 0)
    assert step.size == pytest.approx(1 / 16)
    assert opened.teacher_of(opened.study.spec("scratch")) == spec
    pixels = to_pixels(train.images[:8])
    keys = sections.example_keys(0, 0, 8)
    batch = np.int32(1), pixels, train.labels[:8], keys
    step = step._replace(pixel_range=None)
    moved = {
        kind: sections.moved_pixels(row, kind, row.replica(0), *batch, **step._asdict())
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
    ask = row.predict(row.replica(0))
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
        (["--types", "frog"], "no corruption 'frog'"),
        (["--examples", "0"], "examples must be at least 1"),
    ],
)
def test_bad_input_is_one_sentence(run, capsys, words, message):
    kept = ["--section", "ood"] if "--ood" in words else []
    kept = ["--section", "corruptions"] if "--types" in words else kept
    words = [word.format(run.parent) for word in words]
    assert main([str(run), *kept, *words]) == 2
    (sentence,) = capsys.readouterr().err.splitlines()
    assert message in sentence


def test_a_folder_that_is_no_study_is_refused(tmp_path, capsys):
    assert main([str(tmp_path / "none")]) == 2
    assert "study.json does not exist" in " ".join(capsys.readouterr().err.split())
    (tmp_path / "study.json").write_text(json.dumps({"config": {"name": "a"}}))
    assert main([str(tmp_path)]) == 2
    assert "is not a record of a study" in capsys.readouterr().err
    assert main(["--examples", "3"]) == 2
    assert "FOLDER" in capsys.readouterr().err


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
        return np.zeros((3, 2))

    monkeypatch.setattr(sections, "measure", look)
    config = FinishedStudy(run).config.data
    data = dataclasses.replace(config, manual_dir=str(tmp_path))
    opened = analysed(run, data, examples=3, types=("contrast",), severities=(2,))
    summaries = sections.corruptions(opened)
    assert seen == [((2, 3, 10), [0, 4, 8])] * 4 and set(summaries) == set(ROWS)


def test_rows_are_compared_run_by_run():
    cosines = {"scratch": [[[0.0, 0.1]], [[0.3, 0.4]]], "kd": [[[0.05, 0.2]]] * 2}
    found = {"jacobians": {row: np.array(x) for row, x in cosines.items()}}
    labels = {"scratch": "Scratch", "kd": "KD"}
    scratch, kd = student_rows(found, labels, "scratch")
    assert "auc" not in scratch and kd["label"] == "KD"
    assert kd["auc"] == pytest.approx((0.75 + 0.0) / 2)
    assert kd["delta_cosine"] == pytest.approx(0.125 - 0.2)
