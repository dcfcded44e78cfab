"""Versions of a model in one study: taught, started, of fewer classes or examples."""

import dataclasses
import json
import shutil

import jax
import numpy as np
import pytest

from churn_compare.store import (
    Predictions,
    PredictionsError,
    load_predictions,
    save_predictions,
)
from churn_jax import metrics
from churn_jax.configuration import from_json, to_json
from churn_jax.configuration.rows import Teaching
from churn_jax.configuration.study import StudyConfig, Update
from churn_jax.ensembles import average_logits, average_probs
from churn_jax.methods import (
    ELODI,
    ERM,
    UNKNOWN_LOGIT,
    EnsembleDistillation,
    known_classes,
)
from churn_jax.reports.members import MEMBERS, load_members
from churn_jax.studies import Axis, MethodSpec, ModelConfig, run_study, run_sweep
from churn_jax.studies.cost import study_costs
from churn_jax.studies.folder import StudyFolder
from churn_jax.studies.inputs import StudyInputs
from churn_jax.studies.predictions import row_teachers
from churn_jax.studies.study import FinishedStudy
from churn_jax.training.run import Trained
from tests.methods.test_updating import in_numpy
from tests.studies.small import (
    BY_PAIR_AND_FEW,
    CLASSES,
    LOGGED,
    VERSIONS,
    Watched,
    files,
    logits,
    recorded,
    with_rows,
)

# Of studies; that of a step and of its teachers is tested in tests/training.
pytestmark = pytest.mark.slow


def row(name):
    return VERSIONS.spec(name)


@pytest.fixture(scope="module")
def opened(versions):
    return FinishedStudy(versions)


def taught(opened, method=row("elodi").method, **teaching):
    """The pair, and the teachers of a row that learns from it in some way."""
    teaching = Teaching(**teaching)
    spec = dataclasses.replace(row("elodi"), method=method, teaching=teaching)
    pair = opened.restore(row("pair"))
    return pair, row_teachers(VERSIONS, spec, {"pair": pair}.get, opened.dataset)


def test_a_model_of_some_classes_answers_over_all_of_them(versions):
    deployed = logits(versions, "few")
    known = np.isin(np.arange(10), CLASSES)
    assert deployed.shape[::2] == (2, 10)
    np.testing.assert_array_equal(deployed[..., ~known], UNKNOWN_LOGIT)
    assert np.all(np.abs(deployed[..., known]) < 100)
    np.testing.assert_array_equal(known_classes(logits(versions, "baseline")), True)


def test_it_is_validated_on_the_classes_that_it_knows(versions):
    (line,) = (versions / "methods/few/metrics.jsonl").read_text().splitlines()
    found = json.loads(line)["validation"]["accuracy"]
    whole = load_predictions(versions / "methods/few/predictions-validation.npz")
    rows = np.isin(whole.labels, CLASSES)
    assert 0 < rows.sum() < len(rows)
    expected = [metrics.accuracy(z[rows], whole.labels[rows]) for z in whole.logits]
    np.testing.assert_allclose(found, expected, atol=1e-4)


def test_a_share_of_every_class_takes_fewer_updates(opened):
    whole = row("baseline")
    rows = [whole, dataclasses.replace(whole, name="half", class_share=0.5)]
    inputs = [opened.inputs.of(spec) for spec in rows]
    every, half = (np.bincount(i.dataset.train.labels, minlength=10) for i in inputs)
    np.testing.assert_array_equal(half, np.round(0.5 * every))
    assert inputs[1].mean == opened.inputs.whole.mean


def test_kept_weights_are_a_share_of_those_that_training_started_from(versions, opened):
    baseline, tuned = logits(versions, "baseline"), logits(versions, "tuned")
    assert np.max(np.abs(tuned - baseline)) > 1e-2
    start, mixed = (opened.restore(row(n)) for n in ("baseline", "mixed"))
    found = mixed.predict(opened.dataset.test.images)
    np.testing.assert_allclose(logits(versions, "mixed"), found, 1e-6)

    def check(deployed, start, trained):
        np.testing.assert_allclose(deployed, 0.25 * start + 0.75 * trained, rtol=1e-6)

    jax.tree.map(check, mixed.params, start.params, mixed.last.params)
    # What is mixed was trained as the row that keeps nothing.
    last = opened.restore(row("tuned")).params
    jax.tree.map(np.testing.assert_array_equal, mixed.last.params, last)


def test_a_taught_row_is_restored_with_everybody_who_taught_it(versions, opened):
    elodi = opened.restore(row("elodi"))
    found = elodi.predict(opened.dataset.test.images)
    np.testing.assert_allclose(logits(versions, "elodi"), found, 1e-6)
    identity = json.loads(elodi.identity)["teacher"]
    assert identity["name"] == "pair" and identity["calibrated"] == "True"
    assert identity["old"]["0"]["name"] == "few"
    (logged,) = (run for run in LOGGED.runs if run.name == "elodi")
    assert logged.settings["teacher"] == ["pair", "few"]


def test_teachers_are_cached_and_calibrated_as_by_hand(versions, opened):
    """Temperatures are fitted on the validation split, each member's by itself."""
    pair, made = taught(opened, members=1, offline=True, calibrated=True)
    held_out = load_members(versions / "methods/pair" / MEMBERS["validation"])
    labels = opened.dataset.validation.labels
    expected = [[metrics.fit_temperature(run[0], labels)] for run in held_out.logits]
    np.testing.assert_allclose(made.temperatures, expected, rtol=1e-5)
    train = opened.dataset.train.images
    first = pair.predict(train, every_member=True)[:, :1]
    assert made.cached.shape == (2, 1, len(train), 10) and not made.old
    cooled = first / made.temperatures[:, :, None, None]
    np.testing.assert_allclose(made.cached, cooled, rtol=1e-5)
    assert made.own_groups() == ()


@pytest.mark.parametrize(
    ("method", "average"),
    [(ELODI(), average_logits), (EnsembleDistillation(), average_probs)],
)
def test_what_a_method_averages_is_cached(opened, method, average):
    pair, made = taught(opened, method, offline=True)
    every = pair.predict(opened.dataset.train.images, every_member=True)
    expected = [average(run) for run in every]
    np.testing.assert_allclose(made.cached[:, 0], expected, rtol=1e-5, atol=1e-5)


def test_neighbours_in_the_teachers_logits_teach_by_their_labels(opened, monkeypatch):
    with monkeypatch.context() as patch:
        patch.delattr(Trained, "predict")  # all members' logits at once may not fit
        pair, made = taught(opened, offline=True, neighbours=7, uniform=0.1)
    train = opened.dataset.train
    means = pair.predict(train.images, every_member=True).mean(axis=1)
    assert made.cached.shape == (2, 1, len(train), 10)
    for cached, mean in zip(made.cached[:, 0], means, strict=True):
        expected = in_numpy(mean, train.labels, 7, 0.1)
        np.testing.assert_allclose(np.exp(cached), expected, atol=0.15)
        same = np.abs(np.exp(cached) - expected).max(-1) < 1e-5
        assert same.mean() > 0.99  # the last of seven may be another by rounding
    assert made.identity()["offline"] == "7 neighbours, uniform 0.1"


def test_a_teacher_in_bfloat16_is_another_network_with_the_same_weights(opened):
    pair, made = taught(opened, dtype="bfloat16")
    (group,), (variables,) = made.own_groups(), made.variables()
    images = opened.dataset.test.images[:3] / np.float32(16)
    one = jax.tree.map(lambda leaf: leaf[0, 0], variables)
    (plain,) = pair.run.groups
    half, whole = (
        np.float32(g.network.apply(one, images, train=False)[0].logits)
        for g in (group, plain)
    )
    assert 0 < np.abs(half - whole).max() < 0.05 * np.abs(whole).max()
    assert made.identity()["taught_as"] == f"['{plain.network.name} in bfloat16']"
    # Logits that are computed once are computed in it too.
    single, low = (
        taught(opened, offline=True, dtype=dtype)[1].cached
        for dtype in ("", "bfloat16")
    )
    assert 0 < np.abs(low - single).max() < 0.05 * np.abs(single).max()


def test_a_row_is_trained_again_when_anything_that_it_learned_from_changes(versions):
    data = FinishedStudy(versions).dataset

    def outdated(*rows):
        folder = StudyFolder(versions, config := with_rows(VERSIONS, *rows), data, "")
        return [s.name for s in config.methods if not folder.finished(s)]

    def changed(name, **options):
        return dataclasses.replace(row(name), **options)

    assert outdated() == []
    assert outdated(changed("few", classes=(0, 1))) == ["few", "elodi"]
    assert outdated(changed("few", class_share=0.6)) == ["few", "elodi"]
    starts = ["baseline", "tuned", "mixed"]
    assert outdated(changed("baseline", class_share=0.6)) == starts
    assert outdated(changed("mixed", keep=0.5)) == ["mixed"]
    assert outdated(changed("tuned", start="few")) == ["tuned"]
    for teaching in (
        dataclasses.replace(BY_PAIR_AND_FEW, old=("baseline",)),
        dataclasses.replace(BY_PAIR_AND_FEW, members=1),
        Teaching(old=("few",)),
    ):
        assert outdated(changed("elodi", teaching=teaching)) == ["elodi"]


def test_a_later_launch_adds_a_version_and_trains_nothing_again(versions, tmp_path):
    out = shutil.copytree(versions, tmp_path / "out")
    before = files(out)
    new = MethodSpec("next", "Next version", ERM(), start="tuned")
    update = Update("tuned", "next")
    longer = with_rows(VERSIONS, new, updates=(*VERSIONS.updates, update))
    later = Watched(longer, out)
    assert later.trained == ["next"]
    (note,) = later.notes
    assert note.startswith("few replaces baseline, and run r of both has the same see")
    assert before.items() <= files(out).items()
    assert recorded(out) == [spec.name for spec in longer.methods]
    config = json.loads((out / "study.json").read_text())["config"]
    assert from_json(StudyConfig, config) == longer
    assert from_json(StudyConfig, config).updates[-1] == update


def test_a_row_sees_pixels_as_the_row_that_it_started_from_does():
    few = MethodSpec("fewer", "", ERM(), train_size=32)
    later = MethodSpec("later", "", ERM(), start="fewer")
    last = MethodSpec("last", "", ERM(), start="later", class_share=0.5)
    inputs = StudyInputs(with_rows(VERSIONS, few, later, last))
    plain, *of = map(inputs.of, (row("baseline"), few, later, last))
    assert [len(one.dataset.train) for one in of[:2]] == [32, 64]
    moments = [(one.mean, one.std) for one in of]
    assert moments[0] == moments[1] == moments[2] != (plain.mean, plain.std)


def test_other_networks_cannot_start_from_a_rows_weights(versions):
    """Said before what they would start from is trained."""
    fresh = MethodSpec("fresh", "Fresh", ERM())
    wider = MethodSpec(
        "wider", "Wider", ERM(), model=ModelConfig("mlp", features=(8,)), start="fresh"
    )
    with pytest.raises(ValueError, match="wider cannot start from the weights of fre"):
        run_study(with_rows(VERSIONS, fresh, wider), versions, only=("wider",))
    assert not (versions / "methods" / "fresh").exists()


def test_the_cost_counts_teachers_old_models_and_what_is_cached():
    rows = [
        dataclasses.replace(row("elodi"), name=name, teaching=teaching)
        for name, teaching in (
            ("alone", Teaching()),
            ("one", Teaching(members=1)),
            ("old model", Teaching(old=("few",))),
            ("offline", Teaching(offline=True)),
        )
    ]
    train = dataclasses.replace(VERSIONS.train, epochs=4)
    config = with_rows(VERSIONS, *rows, train=train)
    costs = {cost.name: cost.flops for cost in study_costs(config)}
    forward = 2 * costs["alone"] - 2 * costs["one"]  # of two members
    assert 0 < forward < costs["baseline"]
    np.testing.assert_allclose(costs["alone"] - forward, costs["baseline"], rtol=1e-6)
    offline = costs["alone"] - costs["offline"]
    np.testing.assert_allclose(offline, 0.75 * forward, rtol=1e-6)
    # The old network has five outputs of ten, in a layer after the larger one.
    of_old = costs["old model"] - costs["alone"]
    assert 0.4 * forward < of_old < 0.5 * forward


@pytest.mark.parametrize(("mapping", "offline"), [("vmap", False), ("loop", True)])
def test_a_point_of_a_sweep_is_the_row_of_the_study(
    versions, tmp_path, mapping, offline
):
    """Nothing is augmented, so cached logits are those of the online teacher."""
    teaching = dataclasses.replace(BY_PAIR_AND_FEW, offline=offline)
    spec = dataclasses.replace(row("elodi"), teaching=teaching)
    train = dataclasses.replace(VERSIONS.train, mapping=mapping)
    config = with_rows(VERSIONS, spec, train=train)
    axis = Axis.parse("elodi.alpha=0.3,0.8", config)
    run_sweep(config, (axis,), tmp_path, seeds=2, baseline=False)
    points = [logits(tmp_path, f"elodi.alpha={a}") for a in (0.3, 0.8)]
    np.testing.assert_allclose(points[1], logits(versions, "elodi"), atol=1e-3)
    assert np.max(np.abs(points[0] - points[1])) > 1e-2


def test_logits_of_a_file_teach_what_their_network_teaches(versions, opened, tmp_path):
    """A network of any framework teaches by its logits of the training examples."""
    train = opened.dataset.train
    found = opened.restore(row("baseline")).predict(train.images)
    order = np.random.default_rng(0).permutation(len(train))

    def leave(name, kept, shift=0):
        examples = (train.ids[kept], (train.labels[kept] + shift) % 10)
        path = tmp_path / f"{name}.npz"
        save_predictions(path, Predictions(*examples, found[:, kept], {}))
        teaching = Teaching(logits=str(path))
        return MethodSpec(name, name, ELODI(top_k=0), teaching=teaching)

    online = MethodSpec("row", "Row", ELODI(top_k=0), teacher="baseline")
    config = with_rows(VERSIONS, online, leave("file", order))
    copy = shutil.copytree(versions, tmp_path / "out")
    run_study(config, copy, only=("row", "file"))
    np.testing.assert_allclose(logits(copy, "file"), logits(copy, "row"), atol=1e-5)
    assert from_json(StudyConfig, to_json(config)) == config

    def finished():
        folder = StudyFolder(copy, config, opened.dataset)
        return folder.finished(config.spec("file"))

    assert finished()
    leave("file", order[::-1])  # the file is another one
    assert not finished()
    # Missing ones and those of other classes are counted before anything is trained.
    for wrong, message in (
        (leave("few", order[:50]), "14 of 64 training examples of few have no"),
        (leave("far", order, shift=1), "64 of 64 training .* of far have other labels"),
    ):
        with pytest.raises(PredictionsError, match=message):
            run_study(with_rows(VERSIONS, wrong), tmp_path / "none")
    assert not (tmp_path / "none").exists()
