"""The analyses on a tiny study: numbers, going on, bad input."""

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
from experiments.diversity.analyses import main, run_diversity
from experiments.diversity.networks import to_pixels
from experiments.diversity.record import SectionRecord, as_numbers
from experiments.diversity.report import write_diversity
from experiments.diversity.spread import example_keys, moved_pixels, steps_of
from experiments.diversity.study import AnalysedStudy, DiversityOptions

ROWS = ("teachers", "scratch", "kd", "ods")
FEW = DiversityOptions(
    examples=40,
    jacobian_examples=6,
    batch=8,
    draws=4,
    types=("brightness",),
    severities=(1, 5),
)


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


def parts(run, section):
    return SectionRecord(run, section, None).parts


@pytest.mark.slow
@pytest.mark.parametrize("tau", [4.0, 1.0])
def test_sections_agree_with_the_predictions_that_the_study_left(run, tau):
    options = _with(run, examples=10**6, temperature=tau)
    run_diversity(run, ("students", "ood"), options)
    page = write_diversity(run).with_suffix(".md").read_text()
    assert ("KL at temperature 4: mean" in page) == (tau == 4.0)
    for row in ROWS:
        members = load_members(run / "methods" / row / "members.npz")
        deployed = load_predictions(run / "methods" / row / "predictions.npz").logits
        entropy = metrics.prediction_entropy(jnp.asarray(deployed))
        for r in range(2):
            found = parts(run, "students")[f"{row}/{r}"]["test"]
            wanted = metrics.diversity_by_confidence(
                jnp.asarray(members.logits[r]) / tau
            )
            for name in ("counts", "bin_mean_kl", "mean_kl", "quartiles"):
                np.testing.assert_allclose(
                    as_numbers(found[name]), getattr(wanted, name), rtol=1e-4, atol=1e-6
                )
            np.testing.assert_allclose(
                parts(run, "ood")[f"{row}/{r}"]["entropy_in"],
                np.mean(entropy[r]),
                rtol=1e-5,
            )


def _with(run, **fields):
    return dataclasses.replace(FEW, ood=str(run.parent / "noise.npz"), **fields)


@pytest.mark.slow
def test_the_command_computes_every_section_and_goes_on(run, capsys):
    foreign = str(run.parent / "noise.npz")
    words = [str(run), "--examples", "40", "--jacobian-examples", "6"]
    words += ["--batch", "8", "--draws", "4", "--ood", foreign, "--corruptions"]
    words += ["--types", "brightness", "--severities", "1", "5"]
    assert main(words) == 0
    said = capsys.readouterr().out
    assert (
        "corruptions: 8 parts, 0 were there" in said and "Matching of Jacobians" in said
    )
    assert (run / "diversity" / "diversity.html").exists()
    teachers = parts(run, "teachers")["teachers/0"]
    kinds = ("clean", "gaussian", "ods", "conf_ods", "transfer", "adversarial", "test")
    assert tuple(teachers) == kinds
    assert teachers["ods"]["size"] == pytest.approx(1 / 16)  # of the row `ods`
    assert teachers["ods"]["temperature"] == 4.0
    assert sum(teachers["clean"]["counts"]) == 40
    assert {key.split("/")[0] for key in parts(run, "jacobians")} == set(ROWS[1:])
    similarity = SectionRecord(run, "jacobians", None).arrays["kd/1"]
    assert similarity.shape == (2, 6) and np.abs(similarity).max() <= 1 + 1e-5
    assert list(parts(run, "matching")) == ["kd/0", "kd/1"]
    assert all(p["ods"]["signal_to_noise"] > 0 for p in parts(run, "matching").values())
    before = (run / "diversity" / "teachers.json").read_bytes()
    assert main(words) == 0
    assert "teachers: 2 parts, 2 were there" in capsys.readouterr().out
    assert (run / "diversity" / "teachers.json").read_bytes() == before


@pytest.mark.slow
def test_a_stop_keeps_the_parts_that_are_done(run):
    options, seen = dataclasses.replace(FEW, seed=1), []

    def look(key):
        seen.append(key)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_diversity(run, ("matching",), options, on_part=look)
    first = parts(run, "matching")
    assert list(first) == seen == ["kd/0"]
    run_diversity(run, ("matching",), options, on_part=seen.append)
    assert seen == ["kd/0", "kd/1"]
    assert parts(run, "matching")["kd/0"] == first["kd/0"]


@pytest.mark.slow
def test_steps_are_those_of_the_rows_and_of_their_size(run):
    opened = AnalysedStudy(FinishedStudy(run), FEW)
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
