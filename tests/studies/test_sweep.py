"""A grid is one program, equals its points alone, goes on, and chooses as it should."""

import dataclasses
import json
import shutil
import threading

import numpy as np
import pytest

from churn_jax import reports
from churn_jax.configuration import replaced
from churn_jax.methods import Codistillation, Ramp, coefficient, pytree
from churn_jax.studies import Axis, MethodSpec, StudyError, run_study, run_sweep
from churn_jax.studies.folder import StudyFolder
from churn_jax.studies.grid import baseline_point, grid_points, stacked, together
from churn_jax.studies.grid import swept as swept_by
from churn_jax.studies.inputs import StudyInputs
from churn_jax.training import Interrupted, MeshShape
from tests.refusals import refusals
from tests.studies.small import logits, small_study

_SMALL = small_study(epochs=2)
SMALL = dataclasses.replace(
    _SMALL,
    train=dataclasses.replace(_SMALL.train, replicas=3, eval_every_epochs=2),
    methods=(
        *_SMALL.methods,
        MethodSpec("skl", "SKL", Codistillation(beta=0.4)),
        MethodSpec("both", "Both", Codistillation(beta=0.4, alpha=0.2)),
        MethodSpec("up", "Up", Codistillation(beta_ramp=Ramp("linear", 4.0))),
    ),
)


def axis_of(text):
    return Axis.parse(text, SMALL)


def rows_of(*texts):
    return [row for t in texts for row in grid_points(SMALL, axis_of(t)).values()]


def test_points_of_one_structure_are_one_program():
    rows = rows_of("skl.beta=0,0.1,1", "both.alpha=0.1,0.2")
    assert [len(part) for part in together(SMALL, rows)] == [5]
    assert [len(part) for part in together(SMALL, rows, 2)] == [2, 2, 1]
    other = rows_of("entropy.alpha=0.1")
    assert [len(part) for part in together(SMALL, [*rows, *other])] == [5, 1]


def test_stacked_repeats_the_seeds_at_every_point():
    method, train = stacked(SMALL, rows_of("skl.beta=0.5,0.1"))
    np.testing.assert_array_equal(method.beta, np.float32([0.1] * 3 + [0.5] * 3))
    assert train.seed_numbers == (0, 1, 2) * 2 and train.replicas == 6


def test_rates_are_swept_as_replica_leaves():
    rows = rows_of("optimizer.weight_decay=0,0.5")
    assert len(together(SMALL, rows)) == 1
    _, train = stacked(SMALL, rows)
    assert train.optimizer.weight_decay == (0.0,) * 3 + (0.5,) * 3
    assert train.optimizer.learning_rate == (0.1,) * 6


def test_numbers_of_each_replica_are_stacked():
    own = ("optimizer.learning_rate", (0.1, 0.2, 0.3))
    each = dataclasses.replace(SMALL.spec("both"), train=(own,))
    alphas = np.float32([0.5, 0.6, 0.7])
    each = replaced(each, [("method.alpha", alphas)])
    config = dataclasses.replace(SMALL, methods=(SMALL.methods[0], each))
    rows = grid_points(config, Axis("both", "beta", (0.1, 1.0))).values()
    method, train = stacked(config, [*rows])
    np.testing.assert_array_equal(method.alpha, np.tile(alphas, 2))
    assert train.optimizer.learning_rate == own[1] * 2
    with pytest.raises(ValueError, match=r"is one number per replica .* --values"):
        Axis.parse("both.optimizer.learning_rate", config)


def planned(out, *texts, config=SMALL, programs=()):
    """Rows of each program, by the folder of its checkpoints."""
    axes = [Axis.parse(text, config) for text in texts]
    study, sweep = swept_by(config, axes, seeds=2, criterion="churn")
    sweep = dataclasses.replace(sweep, programs=dict(programs))
    folder = StudyFolder(out, study, StudyInputs(study).dataset, sweep=sweep)
    rows = study.select(tuple(point.name for point in sweep.points))
    return {
        str(folder.directory(one).relative_to(out)): [row.name for row in one.rows]
        for one in folder.plan(rows)
    }


def test_a_program_is_named_after_an_axis(tmp_path):
    """Though its first row, the baseline, is on none."""
    path = "baseline.optimizer.learning_rate"
    names = ["baseline", f"{path}=0.2", f"{path}=0.3"]
    assert planned(tmp_path, f"{path}=0.2,0.3") == {f"programs/{path}": names}


def test_a_row_of_a_begun_program_that_teaches_is_trained_alone(tmp_path):
    path = "baseline.optimizer.learning_rate"
    student = dataclasses.replace(SMALL.spec("student"), teacher="baseline")
    config = dataclasses.replace(SMALL, methods=(SMALL.spec("baseline"), student))
    begun = {"begun": ("baseline", f"{path}=0.2", f"{path}=0.3")}
    axes = (f"{path}=0.2,0.3", "student.alpha=0.5")
    assert planned(tmp_path, *axes, config=config, programs=begun) == {
        "methods/baseline": ["baseline"],
        f"programs/{path}": list(begun["begun"][1:]),
        "methods/student.alpha=0.5": ["student.alpha=0.5"],
    }


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("skl.beta=0.1", "skl.beta=0"),
        ("entropy.alpha=0.1", "entropy.alpha=0"),
        ("both.alpha=0.1", "baseline"),
        ("student.temperature=2", "baseline"),
        ("student.alpha=0.5", "baseline"),
        ("skl.optimizer.weight_decay=0", "baseline"),
        (
            "baseline.optimizer.weight_decay=0.0001,1",
            "baseline.optimizer.weight_decay=0.0001",
        ),
    ],
)
def test_zero_is_the_baseline_where_it_trains_as_the_baseline(text, name):
    point, row = baseline_point(SMALL, [axis_of(text)])
    assert point.name == row.name == name


def test_a_row_that_trains_otherwise_is_no_baseline_at_zero():
    fixed = (("seeds.init", "fixed"),)
    spec = MethodSpec("slow", "Slow", Codistillation(), train=fixed)
    config = dataclasses.replace(SMALL, methods=(*SMALL.methods, spec))
    axis = Axis("slow", "beta", (0.0, 0.1))
    assert baseline_point(config, [axis])[0].name == "baseline"


@pytree
class Sharp(Codistillation):
    sharpness: float = coefficient(1.0, "above 0")


def test_zero_is_not_tried_where_it_is_refused():
    config = dataclasses.replace(
        SMALL, methods=(SMALL.methods[0], MethodSpec("a", "A", Sharp()))
    )
    axis = Axis.parse("a.sharpness=2", config)
    assert baseline_point(config, [axis])[0].name == "baseline"


def test_values_default_to_multiples_of_the_preset():
    assert axis_of("skl.beta").values == (0.1, 0.2, 0.4, 0.8, 1.6)
    assert axis_of("student.alpha").values == (0.225, 0.45, 0.9)  # a share
    whole = SMALL.with_coefficient("student.alpha", 1.0)
    assert Axis.parse("student.alpha", whole).values == (0.25, 0.5, 1.0)
    (row,) = rows_of("up.beta_ramp.steps=7")
    assert row.method.beta_ramp.steps == 7.0  # of a part, by dotted path
    assert (row.name, row.label) == ("up.beta_ramp.steps=7", "Up: beta_ramp.steps = 7")


def start(tmp_path, **options):
    options = {"axes": [Axis("skl", "beta", (0.1,))], **options}
    try:
        run_sweep(SMALL, out=tmp_path / "none", **options)
    finally:
        assert not (tmp_path / "none").exists()


test_bad_requests_are_refused_before_training = refusals(
    ({"axes": []}, "at least one"),
    ({"seeds": 1}, "at least 2 seeds"),
    ({"criterion": "luck"}, "criterion must be one of"),
    call=lambda path, options: start(path, **options),
    fixtures=["tmp_path"],
)


test_bad_axes_are_one_sentence = refusals(
    ("skl.betta=1", "did you mean beta"),
    ("skl.members=1", "no coefficient 'members'"),
    ("sk.beta=1", "unknown method 'sk'"),
    ("skl=1", "no coefficient ''"),
    ("skl.beta=a", "must be numbers"),
    ("skl.beta=1,1", "a value twice"),
    ("skl.beta=-1", "at least 0"),
    ("skl.beta=inf", "finite"),
    ("student.temperature=0", "above 0"),
    ("skl.alpha", "give --values"),
    call=axis_of,
)


def test_more_seeds_than_the_study_names_are_refused(tmp_path):
    config = replaced(SMALL, [("train.replicas", 2), ("train.seed_numbers", (7, 8))])
    with pytest.raises(ValueError, match=r"names 2 seed numbers .* got 3"):
        run_sweep(config, [axis_of("skl.beta=0.4")], tmp_path, seeds=3)


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    out = tmp_path_factory.mktemp("swept")
    options = {"seeds": 2, "loggers": ["csv"]}
    return out, run_sweep(SMALL, [axis_of("skl.beta=0.4")], out, **options)


@pytest.mark.slow
def test_a_point_equals_the_method_trained_alone(swept, tmp_path):
    out, _ = swept
    config = replaced(SMALL, [("train.replicas", 2)])
    run_study(config, tmp_path, only=("skl",))
    # Other programs sum in other orders: float32 rounding over 8 updates.
    found, alone = logits(out, "skl.beta=0.4"), logits(tmp_path, "skl")
    np.testing.assert_allclose(found, alone, atol=1e-4)


@pytest.mark.slow
def test_everything_is_recorded(swept):
    out, result = swept
    record = json.loads((out / "study.json").read_text())
    sweep = record["sweep"]
    assert sweep["baseline"] == "skl.beta=0" == result.sweep.record.baseline
    assert sweep["programs"] == {"skl.beta": ["skl.beta=0", "skl.beta=0.4"]}
    assert record["config"]["train"]["replicas"] == 2
    table = out / "programs" / "skl.beta" / "metrics.csv"
    assert "validation/accuracy_replica_3" in table.read_text().split("\n")[0]
    assert [p["is_baseline"] for p in sweep["points"]] == [True, False]
    assert record["launch"]["versions"]["jax"] and record["launch"]["date"]
    assert [row["name"] for row in record["methods"]] == sweep["programs"]["skl.beta"]
    assert result.sweep.choices["skl.beta"].value == 0.4
    held_out = reports.predictions(out, "validation")
    assert held_out["skl.beta=0.4"].shape == (2, 40, 10)
    table = reports.table(out)  # a sweep's, because its record says so
    assert {row["chosen"] for row in table} == {0, 1}


@pytest.mark.slow
def test_the_same_folder_keeps_what_is_there_and_takes_more_in(swept, tmp_path):
    out, started, plans = tmp_path / "out", [], []
    shutil.copytree(swept[0], out)
    stop = threading.Event()

    def on_start(program, finished):
        started.append(([row.name for row in program.rows], finished))
        stop.set()

    with pytest.raises(Interrupted, match=r"before skl\.beta=1"):
        run_sweep(
            SMALL,
            [axis_of("skl.beta=0.4,1")],
            out,
            seeds=2,
            points_per_program=1,
            on_plan=plans.append,
            on_start=on_start,
            stop=stop,
        )
    assert started == [(["skl.beta=0", "skl.beta=0.4"], True)]
    assert [row.name for row in plans[0][1].rows] == ["skl.beta=1"]
    record = json.loads((out / "study.json").read_text())
    points = [point["value"] for point in record["sweep"]["points"]]
    assert points == [0.0, 0.4, 1.0]
    with pytest.raises(StudyError, match="kind of study, a sweep; `churn-jax report"):
        run_study(dataclasses.replace(SMALL, train=SMALL.train), out)


@pytest.mark.slow
def test_a_folder_does_not_mix_settings(swept):
    """Else one report compares points of other lengths and other seeds."""
    out, _ = swept
    other = [axis_of("both.alpha=0.1")]
    config = replaced(SMALL, [("train.epochs", 3)])
    for options, message in (
        ({"config": config, "seeds": 2}, "train.epochs: 2 there, 3 here"),
        ({"config": SMALL, "seeds": 3}, "train.replicas: 2 there, 3 here"),
    ):
        with pytest.raises(StudyError, match=message):
            run_sweep(axes=other, out=out, baseline=False, **options)


def test_a_mesh_divides_programs_not_points(tmp_path):
    """3 seeds at 4 values lie on 4 devices, though 3 do not."""
    config = replaced(SMALL, [("train.replicas", 4), ("train.mesh", MeshShape(4))])
    plans, stop = [], threading.Event()
    stop.set()
    axes = [axis_of("skl.beta=0,0.1,0.2,0.3")]
    options = {"seeds": 3, "on_plan": plans.append, "stop": stop}
    with pytest.raises(Interrupted):
        run_sweep(config, axes, tmp_path / "four", **options)
    assert [len(program.rows) for program in plans[0]] == [4]
    with pytest.raises(StudyError, match="9 replicas cannot be sharded"):
        run_sweep(config, [axis_of("skl.beta=0,1,2")], tmp_path / "3", **options)
