"""A study's folder: what is finished is kept, what changed is trained again."""

import dataclasses
import json
import threading

import numpy as np
import pytest

from churn_jax.configuration.training import OptimizerConfig, TrainConfig
from churn_jax.methods import ERM, EnsembleDistillation, MinimumEntropy
from churn_jax.predictions import PredictionsError, load_predictions
from churn_jax.studies import (
    DataConfig,
    MethodSpec,
    ModelConfig,
    StudyConfig,
    StudyError,
    run_study,
)
from churn_jax.studies.folder import read_study
from churn_jax.training.run import Interrupted

pytestmark = pytest.mark.usefixtures("quick_to_compile")


def small_study(*, entropy=0.1, learning_rate=0.1, epochs=2, **data_options):
    """A baseline, a regularised method, a pair and its student: seconds in all."""
    return StudyConfig(
        name="small",
        title="Small",
        data=DataConfig(**{"train_size": 64, "validation": 40, **data_options}),
        model=ModelConfig("mlp", features=(16,)),
        train=TrainConfig(
            replicas=2,
            epochs=epochs,
            batch_size=16,
            optimizer=OptimizerConfig(learning_rate=learning_rate),
        ),
        methods=(
            MethodSpec("baseline", "Baseline", ERM()),
            MethodSpec("entropy", "Entropy", MinimumEntropy(alpha=entropy)),
            MethodSpec("pair", "Pair", ERM(members=2, deploy="mean_probs")),
            MethodSpec("student", "Student", EnsembleDistillation(), teacher="pair"),
        ),
    )


class Watched:
    """What a launch of a study said and did."""

    def __init__(self, config, out, *only, **options):
        self.notes, self.trained, self.kept = [], [], []
        run_study(
            config,
            out,
            only=only,
            on_start=self.start,
            on_note=self.notes.append,
            **options,
        )

    def start(self, spec, finished):
        (self.kept if finished else self.trained).append(spec.name)


def files(out):
    """Every result of the folder with its bytes."""
    return {
        str(p.relative_to(out)): p.read_bytes() for p in out.rglob("predictions.npz")
    }


def logits(out, name):
    return load_predictions(out / "methods" / name / "predictions.npz").logits


def recorded(out):
    return [m["name"] for m in json.loads((out / "study.json").read_text())["methods"]]


def test_the_folder_holds_what_the_reports_read(tmp_path):
    Watched(small_study(), tmp_path, "baseline")
    record = json.loads((tmp_path / "study.json").read_text())
    assert record["config"]["train"]["batch_size"] == 16
    assert record["launch"]["versions"]["jax"] and record["launch"]["hardware"]
    assert recorded(tmp_path) == record["selected"] == ["baseline"]
    row = read_study(tmp_path).row("baseline")
    assert row.spec == small_study().spec("baseline")
    assert row.coefficients == {}  # no neutral member_share
    predictions = load_predictions(tmp_path / "methods/baseline/predictions.npz")
    assert predictions.logits.shape[0] == 2 and predictions.logits.shape[2] == 10
    assert predictions.meta["fingerprint"] == record["data"]["fingerprint"]
    lines = (tmp_path / "methods/baseline/metrics.jsonl").read_text().splitlines()
    assert len(lines) == 2
    assert not list(tmp_path.rglob("*.tmp"))


def test_a_second_launch_trains_only_what_is_not_there(tmp_path):
    assert Watched(small_study(), tmp_path, "baseline").trained == ["baseline"]
    before = files(tmp_path)
    again = Watched(small_study(), tmp_path, "baseline")
    assert (again.trained, again.kept, again.notes) == ([], ["baseline"], [])
    more = Watched(small_study(), tmp_path, "baseline", "entropy")
    assert (more.trained, more.kept) == (["entropy"], ["baseline"])
    assert before.items() <= files(tmp_path).items()
    assert recorded(tmp_path) == ["baseline", "entropy"]


@pytest.mark.slow
def test_a_students_teacher_comes_first_and_alone_changes_nothing(tmp_path):
    first = Watched(small_study(), tmp_path / "a", "student")
    assert first.trained == ["pair", "student"]
    # Trained in two launches, the student has a restored teacher.
    Watched(small_study(), tmp_path / "b", "pair")
    second = Watched(small_study(), tmp_path / "b", "student")
    assert (second.kept, second.trained) == (["pair"], ["student"])
    np.testing.assert_array_equal(
        logits(tmp_path / "a", "student"), logits(tmp_path / "b", "student")
    )


def test_a_changed_coefficient_trains_that_method_again_and_keeps_the_old(tmp_path):
    Watched(small_study(), tmp_path, "baseline", "entropy")
    before = files(tmp_path)
    changed = Watched(small_study(entropy=0.5), tmp_path, "baseline", "entropy")
    assert (changed.trained, changed.kept) == (["entropy"], ["baseline"])
    (note,) = changed.notes
    assert "entropy is trained again" in note
    assert str(tmp_path / "methods" / "entropy.before") in note
    after = files(tmp_path)
    baseline, old, new = (
        f"methods/{n}/predictions.npz"
        for n in ("baseline", "entropy.before", "entropy")
    )
    assert after[baseline] == before[baseline]
    assert after[old] == before[new] != after[new]
    alone = tmp_path.with_name(tmp_path.name + "-alone")
    Watched(small_study(entropy=0.5), alone, "entropy")
    np.testing.assert_array_equal(logits(alone, "entropy"), logits(tmp_path, "entropy"))


def test_an_interrupted_method_with_another_coefficient_starts_again(tmp_path):
    with pytest.raises(Interrupted):
        run_study(small_study(), tmp_path, only=("entropy",), stop=StopSecond())
    launch = Watched(small_study(entropy=0.5), tmp_path, "entropy")
    assert launch.trained == ["entropy"] and len(launch.notes) == 1


class StopSecond:
    """Set from the second time on that anybody looks."""

    looks = 0

    def is_set(self):
        self.looks += 1
        return self.looks > 1


@pytest.mark.slow
def test_a_teacher_trained_otherwise_trains_its_student_again(tmp_path):
    Watched(small_study(), tmp_path, "student")
    config = small_study()
    pair = dataclasses.replace(config.methods[2], train=(("seeds.init", "fixed"),))
    config = dataclasses.replace(
        config, methods=(*config.methods[:2], pair, config.methods[3])
    )
    launch = Watched(config, tmp_path, "student")
    assert launch.trained == ["pair", "student"]
    assert (tmp_path / "methods/student.before/predictions.npz").is_file()
    alone = tmp_path.with_name(tmp_path.name + "-alone")
    Watched(config, alone, "student")
    np.testing.assert_array_equal(logits(tmp_path, "student"), logits(alone, "student"))


@pytest.mark.slow
def test_a_changed_teacher_trains_its_student_again(tmp_path):
    Watched(small_study(), tmp_path, "student")
    before = logits(tmp_path, "student")
    config = small_study()
    pair = dataclasses.replace(
        config.methods[2], method=ERM(members=2, deploy="mean_logits")
    )
    config = dataclasses.replace(
        config, methods=(*config.methods[:2], pair, config.methods[3])
    )
    launch = Watched(config, tmp_path, "student")
    assert launch.trained == ["pair", "student"]
    assert len(launch.notes) == 2
    assert (tmp_path / "methods/student.before/predictions.npz").is_file()
    assert logits(tmp_path, "student").shape == before.shape


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"epochs": 3}, "train.epochs: 2 there, 3 here"),
        ({"learning_rate": 0.2}, "learning_rate: 0.1 there, 0.2 here"),
        ({"train_size": 48}, "other data"),
    ],
)
def test_a_changed_setting_is_refused_naming_the_difference(tmp_path, options, words):
    Watched(small_study(), tmp_path, "baseline")
    before = {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}
    with pytest.raises(StudyError, match=words) as error:
        run_study(small_study(**options), tmp_path, only=("baseline",))
    assert str(tmp_path) in str(error.value) and "--fresh" in str(error.value)
    assert before == {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}


def test_where_and_how_fast_it_runs_may_change(tmp_path):
    Watched(small_study(), tmp_path, "baseline")
    config = small_study()
    train = dataclasses.replace(config.train, mapping="unroll", eval_batch_size=7)
    launch = Watched(dataclasses.replace(config, train=train), tmp_path, "baseline")
    assert launch.kept == ["baseline"]


def test_a_launch_that_failed_before_training_binds_nobody(tmp_path):
    wrong = small_study()
    wrong = dataclasses.replace(
        wrong, train=dataclasses.replace(wrong.train, batch_size=1000)
    )
    with pytest.raises(ValueError, match="batch_size 1000"):
        run_study(wrong, tmp_path, only=("baseline",))
    assert Watched(small_study(), tmp_path, "baseline").trained == ["baseline"]


def test_damaged_predictions_are_named_and_not_overwritten(tmp_path):
    Watched(small_study(), tmp_path, "baseline")
    path = tmp_path / "methods/baseline/predictions.npz"
    path.write_bytes(path.read_bytes()[:-500])
    damaged = path.read_bytes()
    with pytest.raises(PredictionsError, match=r"predictions\.npz"):
        run_study(small_study(), tmp_path, only=("baseline",))
    assert path.read_bytes() == damaged


def with_rows(*rows, **train):
    """The small study with rows of the baseline that train otherwise."""
    config = small_study()
    baseline = config.methods[0]
    methods = [baseline]
    for name, options in rows:
        methods.append(dataclasses.replace(baseline, name=name, **options))
    return dataclasses.replace(
        config,
        methods=tuple(methods),
        train=dataclasses.replace(config.train, **train),
    )


def test_rows_train_as_they_say_and_again_when_that_changes(tmp_path):
    same = ("same", {"train": (("seeds.init", "fixed"), ("seeds.order", "fixed"))})
    Watched(with_rows(same), tmp_path)
    runs = logits(tmp_path, "same")
    np.testing.assert_array_equal(runs[0], runs[1])
    assert not np.array_equal(*logits(tmp_path, "baseline"))
    entries = json.loads((tmp_path / "study.json").read_text())["methods"]
    found = [m["spec"]["train"] for m in entries]
    assert found == [[], [list(c) for c in same[1]["train"]]]
    assert Watched(with_rows(same), tmp_path).trained == []
    half = ("same", {"train": (("seeds.init", "fixed"),)})
    again = Watched(with_rows(half), tmp_path)
    assert (again.trained, again.kept) == (["same"], ["baseline"])
    assert "same is trained again" in again.notes[0]
    np.testing.assert_array_equal(logits(tmp_path, "same.before"), runs)
    assert not np.array_equal(*logits(tmp_path, "same"))


def test_a_row_of_fewer_examples_is_the_study_of_so_many(tmp_path):
    small = ("small", {"train_size": 32})
    Watched(with_rows(small), tmp_path / "rows", "small")
    Watched(small_study(train_size=32), tmp_path / "alone", "baseline")
    np.testing.assert_array_equal(
        logits(tmp_path / "rows", "small"), logits(tmp_path / "alone", "baseline")
    )
    (entry,) = json.loads((tmp_path / "rows/study.json").read_text())["methods"]
    assert entry["spec"]["train_size"] == 32
    other = Watched(
        with_rows(("small", {"train_size": 48})), tmp_path / "rows", "small"
    )
    assert other.trained == ["small"] and len(other.notes) == 1
    with pytest.raises(
        StudyError, match=r"small wants 65 training examples; .* has 64"
    ):
        run_study(with_rows(("small", {"train_size": 65})), tmp_path / "more")


def test_averaged_weights_are_a_row_of_the_same_training(tmp_path):
    config = with_rows(ema_decay=0.5)
    Watched(config, tmp_path)
    assert recorded(tmp_path) == ["baseline", "baseline_ema"]
    own, averaged = json.loads((tmp_path / "study.json").read_text())["methods"]
    assert averaged["label"] == "Baseline, EMA weights" and averaged["of"] == "baseline"
    assert averaged["training_cost"] == own["training_cost"] == 1.0
    assert own["seconds"] > 0 and averaged["seconds"] is None
    raw = logits(tmp_path, "baseline")
    smooth = logits(tmp_path, "baseline_ema")
    assert raw.shape == smooth.shape and not np.array_equal(raw, smooth)
    assert not (tmp_path / "methods/baseline_ema/checkpoints").exists()
    plain = tmp_path.with_name(tmp_path.name + "-plain")
    Watched(with_rows(), plain)
    np.testing.assert_array_equal(logits(plain, "baseline"), raw)
    # Lost, they are made again from the checkpoint, without training.
    (tmp_path / "methods/baseline_ema/predictions.npz").unlink()
    progress = []
    run_study(config, tmp_path, on_progress=progress.append)
    assert progress == []
    np.testing.assert_array_equal(logits(tmp_path, "baseline_ema"), smooth)


def test_a_stopped_run_does_not_choose_the_examples_that_are_kept(
    tmp_path, monkeypatch
):
    """It is in no number of the report, so the inputs it churns on are not shown."""
    kept = []
    monkeypatch.setattr(
        "churn_jax.studies.predictions.save_examples",
        lambda out, ids, images, logits: kept.append(logits),
    )
    run_study(small_study(learning_rate=(0.1, 1e38)), tmp_path, only=("baseline",))
    found = load_predictions(tmp_path / "methods" / "baseline" / "predictions.npz")
    assert found.stopped == (1,)
    np.testing.assert_array_equal(kept, [found.logits[:1]])


def test_validation_predictions_are_kept_for_choices(tmp_path):
    Watched(small_study(), tmp_path, "baseline")
    folder = tmp_path / "methods/baseline"
    held = load_predictions(folder / "predictions-validation.npz")
    test = load_predictions(folder / "predictions.npz")
    assert held.logits.shape == (2, 40, 10)
    assert (held.meta["split"], test.meta["split"]) == ("validation", "test")
    assert not set(held.ids) & set(test.ids)


def test_the_record_names_the_published_numbers(tmp_path):
    key = "reproducibility/table2/cifar10"
    config = dataclasses.replace(small_study(), published=key)
    Watched(config, tmp_path, "baseline")
    record = json.loads((tmp_path / "study.json").read_text())
    assert record["config"]["published"] == key
    Watched(small_study(), tmp_path, "baseline")  # what is compared may change


def test_a_row_is_trained_again_when_its_network_changes(tmp_path):
    config = small_study()
    Watched(config, tmp_path, "baseline")
    spec = dataclasses.replace(
        config.spec("baseline"), model=ModelConfig("mlp", features=(9,))
    )
    other = dataclasses.replace(config, methods=(spec,))
    again = Watched(other, tmp_path, "baseline")
    assert any("its settings changed" in note for note in again.notes)
    record = json.loads((tmp_path / "study.json").read_text())
    assert record["methods"][0]["spec"]["model"]["features"] == [9]
    # Columns are shown, not computed: they may be others.
    shown = dataclasses.replace(other, columns=("accuracy",))
    assert not Watched(shown, tmp_path, "baseline").notes


def test_lost_predictions_are_made_again_from_the_checkpoint(tmp_path):
    Watched(small_study(), tmp_path, "baseline")
    path = tmp_path / "methods/baseline/predictions.npz"
    before = logits(tmp_path, "baseline")
    path.unlink()
    progress = []
    run_study(small_study(), tmp_path, only=("baseline",), on_progress=progress.append)
    assert progress == []
    np.testing.assert_array_equal(logits(tmp_path, "baseline"), before)


def test_a_stop_between_methods_starts_no_other(tmp_path):
    stop = threading.Event()

    def at_the_last_epoch(progress):
        if progress.epoch == progress.epochs:
            stop.set()

    with pytest.raises(Interrupted, match="stopped before entropy"):
        run_study(
            small_study(),
            tmp_path,
            only=("baseline", "entropy"),
            on_progress=at_the_last_epoch,
            stop=stop,
        )
    assert recorded(tmp_path) == ["baseline"]
    assert not (tmp_path / "methods/entropy").exists()


@pytest.mark.slow
def test_a_stopped_study_goes_on_to_the_same_predictions(tmp_path):
    Watched(small_study(), tmp_path / "whole", "student")
    launches = 0
    while True:
        launches += 1
        try:
            stop = threading.Event()
            run_study(
                small_study(),
                tmp_path / "pieces",
                only=("student",),
                on_progress=lambda progress, stop=stop: stop.set(),
                stop=stop,
            )
            break
        except Interrupted:
            continue
    assert launches == 4
    for name in ("pair", "student"):
        np.testing.assert_array_equal(
            logits(tmp_path / "whole", name), logits(tmp_path / "pieces", name)
        )
