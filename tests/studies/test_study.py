"""A study's folder: what is finished is kept, what changed is trained again."""

import contextlib
import dataclasses
import json
import shutil
import threading

import jax
import numpy as np
import pytest

from churn_compare.store import PredictionsError, load_predictions
from churn_jax import reports
from churn_jax.configuration import StudyRecord, replaced, to_json
from churn_jax.methods import ERM
from churn_jax.reports.artefacts import Study
from churn_jax.reports.factors import run_section
from churn_jax.studies import ModelConfig, StudyError, run_study
from churn_jax.studies.folder import StudyFolder, hardware, read_study
from churn_jax.studies.inputs import load_inputs
from churn_jax.studies.presets import derived
from churn_jax.training import Interrupted
from tests.experiments.presets import study as preset
from tests.integration.test_resume import StopAfter
from tests.studies.small import (
    LOGGED,
    VERSIONS,
    Watched,
    files,
    logits,
    recorded,
    small_study,
    subset,
    with_rows,
)
from tests.training.test_loggers import Recorder

ROWS = ("baseline", "pair")


def changed(name, epochs=1, **options):
    """The small study with another row of that name."""
    config = small_study(epochs=epochs)
    return with_rows(config, dataclasses.replace(config.spec(name), **options))


LOGITS = changed("pair", method=ERM(members=2, deploy="mean_logits"))


@pytest.fixture(scope="module")
def trained(versions, tmp_path_factory):
    """The folder of a launch of two rows; read only."""
    return subset(versions, tmp_path_factory.mktemp("study"), *ROWS)


@pytest.fixture
def out(trained, tmp_path):
    """A copy of it."""
    return shutil.copytree(trained, tmp_path / "out")


def test_the_folder_holds_what_the_reports_read(trained):
    record = json.loads((trained / "study.json").read_text())
    assert record["config"]["train"]["batch_size"] == 16
    assert record["launch"]["versions"]["jax"] and record["launch"]["hardware"]
    assert recorded(trained) == record["selected"] == list(ROWS)
    assert read_study(trained).row("baseline").spec == small_study().spec("baseline")
    folder = trained / "methods/baseline"
    assert len((folder / "metrics.jsonl").read_text().splitlines()) == 1
    test = load_predictions(folder / "predictions.npz")
    held = load_predictions(folder / "predictions-validation.npz")
    assert held.logits.shape == (2, 40, 10) and test.logits.shape[::2] == (2, 10)
    assert (held.meta["split"], test.meta["split"]) == ("validation", "test")
    assert not set(held.ids) & set(test.ids)
    assert test.meta["fingerprint"] == record["data"]["fingerprint"]
    assert not list(trained.rglob("*.tmp"))


def test_a_launch_that_changes_no_result_trains_nothing(out, monkeypatch):
    monkeypatch.setattr("churn_jax.studies.folder.hardware", lambda: "another machine")
    before, launch, config = files(out), read_study(out).launch, small_study()
    train = dataclasses.replace(config.train, mapping="unroll", eval_batch_size=7)
    shown = {"published": "a.csv:table2/cifar10", "columns": ("accuracy",)}
    shown["baseline"] = "pair"
    for options in ({}, {"train": train}, shown):
        again = Watched(dataclasses.replace(config, **options), out, *ROWS)
        assert (again.trained, again.kept, again.notes) == ([], list(ROWS), [])
    assert read_study(out).config.published == shown["published"]
    assert read_study(out).launch == launch
    assert files(out) == before
    (row,) = (row for row in reports.collect(out).rows if row.verdict)
    assert row.label == "Baseline"


def test_the_machines_of_all_rows_are_named(trained):
    record = read_study(trained)
    record = record.with_rows(replaced(record.methods[1], [("hardware", "another")]))
    said = str(run_section(Study(trained, record, record.methods)))
    assert f"{hardware()} and another" in said


@pytest.mark.slow
def test_rows_that_are_new_or_changed_are_trained_and_the_old_one_is_kept(
    out, tmp_path, blocks_of
):
    before, config = files(out), LOGITS
    fixed = (("seeds.init", "fixed"), ("seeds.order", "fixed"))
    baseline = config.spec("baseline")
    rows = (
        *(config.spec(name) for name in ROWS),
        dataclasses.replace(baseline, name="same", train=fixed),
        dataclasses.replace(baseline, name="few", train_size=32),
    )
    config = dataclasses.replace(config, methods=rows)
    launch = Watched(config, out)
    assert launch.trained == ["pair", "same", "few"]
    assert launch.kept == ["baseline"]
    report = reports.collect(out)
    assert [row.info.name for row in report.rows][:2] == ["baseline", "pair"]
    assert report.rows[1].changes
    (note,) = launch.notes
    assert "pair is trained again" in note and "its settings changed" in note
    assert str(out / "methods" / "pair.before") in note
    after = files(out)
    old, new, base = (
        f"methods/{name}/predictions.npz"
        for name in ("pair.before", "pair", "baseline")
    )
    assert after[old] == before[new] != after[new] and after[base] == before[base]
    assert recorded(out) == [spec.name for spec in rows]
    assert read_study(out).row("same").spec == rows[2]
    np.testing.assert_array_equal(*logits(out, "same"))
    assert not np.array_equal(*logits(out, "baseline"))
    # A row of fewer examples is the study of so many.
    Watched(small_study(train_size=32), tmp_path / "few", "baseline")
    alone = logits(tmp_path / "few", "baseline")
    np.testing.assert_array_equal(alone, logits(out, "few"))
    # What was interrupted with other settings starts again.
    alone = tmp_path / "alone"
    blocks_of(1)
    with pytest.raises(Interrupted):
        run_study(small_study(), alone, only=("pair",), stop=StopAfter(1))
    again = Watched(LOGITS, alone, "pair")
    assert again.trained == ["pair"] and len(again.notes) == 1
    np.testing.assert_array_equal(logits(alone, "pair"), logits(out, "pair"))


@pytest.mark.parametrize(
    "options",
    [
        {"model": ModelConfig("mlp", features=(9,))},
        {"train": (("seeds.init", "fixed"),)},
        {"train_size": 48},
        {"method": ERM(members=2)},
        {"models": (("lenet5", 1),)},
        {"separate": True},
        {"label": "Another name", "equation": "E"},
    ],
)
def test_a_row_is_no_longer_finished_when_its_training_changes(trained, options):
    config = small_study()
    dataset = load_inputs(config.data, config.data.train_size).dataset
    folder = StudyFolder(trained, changed("baseline", **options), dataset, "")
    assert folder.finished(folder.config.spec("baseline")) == ("label" in options)
    assert folder.finished(folder.config.spec("pair"))


@pytest.fixture(scope="module")
def taught(tmp_path_factory):
    """The folder of a pair and its student; read only."""
    out = tmp_path_factory.mktemp("taught")
    launch = Watched(small_study(epochs=2), out, "student")
    assert launch.trained == ["pair", "student"]
    return out


@pytest.mark.slow
def test_a_changed_teacher_trains_its_student_again(taught, tmp_path):
    out = shutil.copytree(taught, tmp_path / "out")
    config = changed("pair", 2, train=(("seeds.init", "fixed"),))
    launch = Watched(config, out, "student")
    assert launch.trained == ["pair", "student"]
    noted = [note.partition(" is trained again")[0] for note in launch.notes]
    assert noted == launch.trained
    kept = out / "methods/student.before/predictions.npz"
    assert kept.read_bytes() == files(taught)["methods/student/predictions.npz"]
    Watched(config, tmp_path / "alone", "student")
    found = logits(out, "student")
    np.testing.assert_array_equal(found, logits(tmp_path / "alone", "student"))
    assert not np.array_equal(found, logits(taught, "student"))


@pytest.mark.parametrize(
    ("options", "words", "remedy"),
    [
        ({"epochs": 3}, "train.epochs: 1 there, 3 here", "--fresh"),
        ({"learning_rate": 0.2}, "learning_rate: 0.1 there, 0.2 here", "--fresh"),
        ({"train_size": 48}, "other data", "--fresh"),
        ({}, "impl: threefry2x32 there, rbg here", "set JAX_DEFAULT_PRNG_IMPL as it"),
    ],
)
def test_what_is_another_study_is_refused_naming_the_difference(
    trained, options, words, remedy
):
    """Other random numbers between rows, too."""
    before = {p: p.read_bytes() for p in trained.rglob("*") if p.is_file()}
    numbers = contextlib.nullcontext() if options else jax.default_prng_impl("rbg")
    with numbers, pytest.raises(StudyError, match=words) as error:
        run_study(small_study(**options), trained, only=ROWS[:1] if options else ())
    assert str(trained) in str(error.value) and remedy in str(error.value)
    assert before == {p: p.read_bytes() for p in trained.rglob("*") if p.is_file()}


def test_loggers_get_the_rows_of_a_study_in_turn(versions, out):
    again = Recorder()
    Watched(small_study(), out, *ROWS, loggers=[again])  # everything is finished
    assert again.runs == []
    count = len(VERSIONS.methods)
    assert [run.name for run in LOGGED.runs] == recorded(versions)
    assert {run.group for run in LOGGED.runs} == {"small"}
    assert LOGGED.runs[1].directory == versions / "methods" / recorded(versions)[1]
    assert LOGGED.steps[0] == 4 and len(LOGGED.steps) == count
    assert LOGGED.closed == [True] * count
    metrics = versions / "methods/baseline/metrics.csv"
    assert len(metrics.read_text().splitlines()) == 2
    assert not list(versions.rglob("tensorboard"))


def test_a_launch_that_failed_before_training_binds_nobody(tmp_path):
    wrong = replaced(small_study(), [("train.batch_size", 1000)])
    with pytest.raises(ValueError, match="batch_size 1000"):
        run_study(wrong, tmp_path, only=("baseline",))
    many = changed("baseline", train_size=65)
    with pytest.raises(StudyError, match=r"wants 65 training examples; .* has 64"):
        run_study(many, tmp_path, only=("baseline",))
    lost = dataclasses.replace(small_study(), baseline="basline")
    with pytest.raises(ValueError, match=r"unknown method 'basline'.*did you mean bas"):
        run_study(lost, tmp_path, only=("baseline",))
    stop = threading.Event()
    stop.set()
    for epochs in (1, 2):  # the first of these leaves a record without rows
        with pytest.raises(Interrupted):
            run_study(small_study(epochs=epochs), tmp_path, stop=stop)


def test_predictions_that_are_damaged_are_named_and_lost_ones_made_again(out):
    path = out / "methods/baseline/predictions.npz"
    before = path.read_bytes()
    path.write_bytes(before[:-500])
    with pytest.raises(PredictionsError, match=r"predictions\.npz.*; remove it, and"):
        run_study(small_study(), out, only=("baseline",))
    assert path.read_bytes() == before[:-500]
    path.unlink()
    progress = []
    run_study(small_study(), out, only=("baseline",), on_progress=progress.append)
    assert progress == [] and path.read_bytes() == before


@pytest.mark.slow
def test_averaged_weights_are_a_row_of_the_same_training(trained, tmp_path):
    config = replaced(small_study(), [("train.ema_decay", 0.5)])
    Watched(config, tmp_path, "baseline")
    assert recorded(tmp_path) == ["baseline", "baseline_ema"]
    own, averaged = json.loads((tmp_path / "study.json").read_text())["methods"]
    fewer = changed("baseline", class_share=0.5)
    record = dataclasses.replace(read_study(tmp_path), config=fewer)
    assert all(map(record.outdated, record.methods))
    assert averaged["label"] == "Baseline, EMA weights" and averaged["of"] == "baseline"
    assert averaged["training_cost"] == own["training_cost"] == 1.0
    assert own["seconds"] > 0 and averaged["seconds"] is None
    raw, smooth = logits(tmp_path, "baseline"), logits(tmp_path, "baseline_ema")
    assert raw.shape == smooth.shape and not np.array_equal(raw, smooth)
    assert not (tmp_path / "methods/baseline_ema/checkpoints").exists()
    np.testing.assert_array_equal(logits(trained, "baseline"), raw)
    # Lost, they are made again from the checkpoint, without training.
    (tmp_path / "methods/baseline_ema/predictions.npz").unlink()
    progress = []
    run_study(config, tmp_path, only=("baseline",), on_progress=progress.append)
    assert progress == []
    np.testing.assert_array_equal(logits(tmp_path, "baseline_ema"), smooth)


def test_a_stop_between_methods_starts_no_other(trained, tmp_path):
    stop = threading.Event()

    def at_the_last_epoch(progress):
        if progress.epoch == progress.epochs:
            stop.set()

    options = {"only": ROWS, "on_progress": at_the_last_epoch, "stop": stop}
    with pytest.raises(Interrupted, match="stopped before pair"):
        run_study(small_study(), tmp_path, **options)
    assert recorded(tmp_path) == ["baseline"]
    assert not (tmp_path / "methods/pair").exists()
    assert files(tmp_path).items() <= files(trained).items()


@pytest.mark.slow
def test_a_stopped_study_goes_on_to_the_same_predictions(taught, tmp_path):
    """The student goes on with a restored teacher."""
    launches, finished = 0, False
    while not finished:
        launches += 1
        stop = threading.Event()
        with contextlib.suppress(Interrupted):
            run_study(
                small_study(epochs=2),
                tmp_path,
                only=("student",),
                on_progress=lambda progress, stop=stop: stop.set(),
                stop=stop,
            )
            finished = True
    assert launches == 4 and files(tmp_path) == files(taught)


def of(name, **changes):
    config = preset(name)
    pairs = [(path.replace("__", "."), value) for path, value in changes.items()]
    return derived(config, replaced(config, pairs))


OTHER = {"data__name": "s/x.npz", "model__name": "lenet5", "train__epochs": 3}
LONGER = {"train__epochs": 3, "train__batch_size": 128}
ROWS_OF = {"data__train_size": 2000}
SAME = {"data__name": "sets/mnist.npz", "train__replicas": 3}


@pytest.mark.parametrize(
    ("name", "changes", "title"),
    [
        ("digits", OTHER, " on x.npz with LeNet5, 192 training examples, 3 epochs"),
        ("cifar100", LONGER, " on CIFAR-100 with ResNet-56, 3 epochs"),
        ("mnist", ROWS_OF, " on MNIST with LeNet5, 2,000 training examples, 40 epochs"),
        ("mnist", SAME, ""),
        ("mnist", {"data__name": "tfds:mnist"}, ""),
    ],
)
def test_a_study_that_is_another_one_has_a_title_of_its_own(name, changes, title):
    study = of(name, **changes)
    expected = f"Preset {name}{title}" if title else preset(name).title
    assert study.title == expected
    assert bool(study.notes) == ("model__name" in changes)


def test_other_data_or_another_network_are_told_of_the_presets_recipe():
    (note,) = of("digits", data__name="s/x.npz", model__name="lenet5").notes
    assert note == (
        "The recipe is the preset's (digits), for the UCI hand-written digits and MLP; "
        "`churn-jax study own --data s/x.npz --model lenet5` has one for these data "
        "and trains on all examples."
    )
    (note,) = of("clicks", data__name="a.npz").notes
    assert note.endswith("(clicks), for synthetic clicks and a click model.")


def test_a_record_that_cannot_be_read_is_named(tmp_path):
    record = to_json(StudyRecord(preset("digits")))
    record["config"] |= {"methods": [{"teacher": []}]}
    (tmp_path / "study.json").write_text(json.dumps(record))
    with pytest.raises(StudyError, match=r"^\S+study\.json is damaged, or was left by"):
        read_study(tmp_path)
