"""The loop: equal replicas, warm starts, going on where it stopped, bad streams."""

import json
import threading

import numpy as np
import pytest

from churn_jax.methods import ERM, AntiDistillation
from churn_jax.training import Interrupted, MeshShape, Seeds
from churn_jax.training.checkpoint import OtherConfiguration
from churn_jax.training.progressive import load_result, run_stream
from churn_jax.training.progressive.loop import segment_length
from churn_jax.training.writers import read_metrics
from tests.training.progressive.streams import (
    ArrayStream,
    adagrad,
    tiny_model,
    tiny_run,
)
from tests.training.test_loggers import Recorder

DIFFERENCES = ("relative_pd", "pd_1", "pd_2", "hamming", "label_pd")
VARIED = Seeds(init="varied", order="varied")
# Everything that may differ after a warm start does, the components' samples too.
WARM = {"seeds": Seeds(init="fixed", sample="varied"), "warm_examples": 17}
BAGGED = ERM(members=2, deploy="mean_probs", member_sample="bootstrap")


def assert_same(a, b):
    for part in ("totals", "holdout"):
        assert getattr(a, part).keys() == getattr(b, part).keys()
        for name, value in getattr(a, part).items():
            np.testing.assert_array_equal(value, getattr(b, part)[name], err_msg=name)
    assert len(a.curve) == len(b.curve)
    for one, other in zip(a.curve, b.curve):
        for name, value in one.items():
            np.testing.assert_array_equal(value, other[name], err_msg=name)


@pytest.mark.slow
def test_equal_orders_and_weights_give_equal_predictions():
    fixed = tiny_run(seeds=Seeds(init="fixed", order="fixed"))
    result = run_stream(fixed, ArrayStream(held_out=9))
    for name in DIFFERENCES:
        assert result.totals[name] == 0.0
        assert result.holdout[name] == 0.0
        np.testing.assert_array_equal(result.totals[f"{name}_loo"], 0.0)
    assert np.unique(result.totals["log_loss"]).size == 1
    assert result.holdout["examples"] == 9


@pytest.mark.parametrize("seeds", [Seeds(init="fixed"), Seeds(order="fixed")])
def test_order_or_weights_alone_make_replicas_differ(seeds):
    result = run_stream(tiny_run(seeds=seeds), ArrayStream())
    assert result.totals["pd_1"] > 1e-4
    assert result.holdout == {}


@pytest.mark.slow
def test_a_warm_start_is_one_replica_and_is_not_counted():
    result = run_stream(tiny_run(BAGGED, **WARM), ArrayStream(count=70))
    # 17 examples are two windows of 16.
    assert (result.examples, result.counted) == (70, 38)
    assert [line["counted"] for line in result.curve] == [0, 0, 16, 16, 6]
    terms = [line["term/cross_entropy"] for line in result.curve]
    for shared in terms[:2]:
        assert np.unique(shared).size == 1
    assert np.unique(terms[2]).size == 3
    assert np.isnan(result.curve[1]["relative_pd"])
    assert result.curve[2]["relative_pd"] > 0.0


@pytest.mark.slow
def test_a_stream_that_is_all_warm_start_is_named():
    with pytest.raises(ValueError, match="all 30 examples are in the warm start of 32"):
        run_stream(tiny_run(BAGGED, **WARM), ArrayStream(count=30))


def test_the_figures_are_those_of_the_curve():
    result = run_stream(tiny_run(), ArrayStream(count=64))
    for name in ("log_loss", *DIFFERENCES):
        segments = np.mean([line[name] for line in result.curve], axis=0)
        np.testing.assert_allclose(result.totals[name], segments, rtol=1e-5)
    model = tiny_model()
    towers = 2 * ((2 * 3 + 2) * 5 + 5 + 5 * 4 + 4 + 4 + 1)
    assert result.parameters == towers + model.rows * model.width


class StopAfter:
    """Sets the event once so many lines of metrics were reported."""

    def __init__(self, lines):
        self.event, self.left = threading.Event(), lines

    def __call__(self, progress):
        self.left -= 1
        if self.left == 0:
            self.event.set()


@pytest.mark.slow
def test_a_logger_gets_every_line_of_metrics_once(tmp_path):
    stream, first, second = ArrayStream(count=64), Recorder(), Recorder()
    halt = StopAfter(2)

    def launch(recorder, **options):
        run_stream(
            tiny_run(),
            stream,
            tmp_path,
            loggers=["csv", recorder],
            group="ads",
            **options,
        )

    with pytest.raises(Interrupted):
        launch(first, on_progress=halt, stop=halt.event)
    launch(second)
    (run,), (again,) = first.runs, second.runs
    assert (run.name, run.group, run.step) == ("tiny", "ads", 0)
    assert run.settings["method.class"] == "ERM" and again.step == first.steps[-1]
    lines = read_metrics(tmp_path / "metrics.jsonl")
    assert first.steps + second.steps == [line["step"] for line in lines]
    assert first.closed == [False] and second.closed == [True]
    assert second.values[-1]["examples"] == 64
    assert len((tmp_path / "metrics.csv").read_text().splitlines()) == 1 + len(lines)


@pytest.mark.slow
def test_a_stream_that_stopped_goes_on_as_if_it_had_not(tmp_path):
    method = AntiDistillation(members=2, strength=0.5, deploy="gate")
    run = tiny_run(method, tiny_model(gate=True), seeds=VARIED, report_every_windows=2)
    stream = ArrayStream(count=90, held_out=10)
    whole = run_stream(run, stream, tmp_path / "whole")
    halt = StopAfter(1)
    folder = tmp_path / "parts"
    with pytest.raises(Interrupted, match="stopped after 32 examples"):
        run_stream(run, stream, folder, on_progress=halt, stop=halt.event)
    halt.event.clear()
    broken = ArrayStream(count=90, held_out=10)
    for broken.breaks_at in (48, 64):  # in the middle of a line of metrics, at its end
        with pytest.raises(ValueError, match="line 49"):
            run_stream(run, broken, folder)
    result = run_stream(run, stream, folder)
    assert_same(result, whole)
    assert_same(load_result(folder / "result.json"), whole)
    assert result.seconds > 0
    # Once more: there is nothing left to learn.
    assert_same(run_stream(run, stream, folder), whole)
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["examples"] for line in lines] == [32, 64, 90]


@pytest.mark.slow
def test_a_stream_goes_on_with_fewer_devices(tmp_path):
    runs = [
        tiny_run(replicas=4, seeds=VARIED, mesh=MeshShape(devices))
        for devices in (4, 2, 1)
    ]
    stream = ArrayStream(count=70)
    whole = run_stream(runs[-1], stream)
    for run in runs[:-1]:
        halt = StopAfter(2)
        with pytest.raises(Interrupted):
            run_stream(run, stream, tmp_path, on_progress=halt, stop=halt.event)
    result = run_stream(runs[-1], stream, tmp_path)
    assert [line["examples"] for line in result.curve] == [16, 32, 48, 64, 70]
    for name, value in whole.totals.items():
        # Sums of gradients and of scores are added in another order.
        np.testing.assert_allclose(result.totals[name], value, rtol=1e-4, err_msg=name)


def test_a_folder_of_another_configuration_is_refused(tmp_path):
    stream = ArrayStream(count=20)
    run_stream(tiny_run(), stream, tmp_path)
    changed = tiny_run(optimizer=adagrad(0.2))
    with pytest.raises(OtherConfiguration, match=r"optimizer.learning_rate: 0.1 there"):
        run_stream(changed, stream, tmp_path)
    with pytest.raises(OtherConfiguration, match="data"):
        run_stream(tiny_run(), ArrayStream(count=21), tmp_path)


def test_a_replica_that_breaks_down_leaves_the_others_as_they_are():
    notes = []
    rates = adagrad((0.1, 0.1, 1e30))
    result = run_stream(tiny_run(optimizer=rates), ArrayStream(), on_note=notes.append)
    whole = run_stream(tiny_run(), ArrayStream())
    assert [s.replica for s in result.stopped] == [2]
    assert result.stopped[0].term == "cross_entropy"
    assert np.isnan(result.totals["log_loss"][2])
    assert np.isnan(result.totals["pd_1_loo"][2])
    for name in ("log_loss", "auc"):
        np.testing.assert_array_equal(result.totals[name][:2], whole.totals[name][:2])
    for name in DIFFERENCES:
        # Two of them without the third, as the jackknife has it.
        wanted = whole.totals[f"{name}_loo"][2]
        np.testing.assert_allclose(result.totals[name], wanted, rtol=1e-5, atol=1e-8)
    assert notes == []


def test_a_run_whose_replicas_all_break_down_ends():
    notes = []
    run = tiny_run(optimizer=adagrad((1e30, 1e30, 1e30)))
    result = run_stream(run, ArrayStream(), on_note=notes.append)
    assert len(result.stopped) == 3
    assert result.examples < 70
    assert "every replica has stopped" in notes[0]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"count": 0}, "holds no example"),
        ({"sizes": (7, 12)}, "id of field 1 is outside of its table of 11 rows"),
        ({"numeric": 3}, r"numeric must have shape \(16, 2\); got \(16, 3\)"),
    ],
)
def test_a_stream_that_does_not_fit_is_named(change, message):
    with pytest.raises(ValueError, match=message):
        run_stream(tiny_run(), ArrayStream(**change))


def test_lines_of_metrics_grow_with_the_logarithm_of_the_stream():
    windows, lines = 0, 0
    while windows < 512 * 16:
        windows += segment_length(windows, 1)
        lines += 1
    assert lines == 512 + 4 * 256
    assert segment_length(512 * 3, 3) == 6


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"window": 20}, "window 20 is not a multiple of batch_size 8"),
        ({"optimizer": adagrad(name="adam")}, "adagrad, or by sgd with momentum 0"),
        ({"optimizer": adagrad(schedule="cosine")}, "learning rate is constant"),
        ({"optimizer": adagrad(clip_norm=1.0)}, "not clipped"),
        (
            {"optimizer": adagrad(member_algorithms=("sgd",))},
            "one algorithm; got member_algorithms sgd",
        ),
        ({"warm_examples": -1}, "warm_examples must be at least 0"),
        ({"warm_examples": 9, "seeds": VARIED}, "a warm start of one model, so seeds."),
        ({"model": tiny_model(gate=True)}, "a gate that nothing reads"),
        ({"seed_numbers": (1,)}, "one per replica"),
        ({"method": ERM(members=3)}, "3 members, the click model 2 components"),
        (
            {"method": AntiDistillation(members=2, deploy="gate")},
            "the click model has none",
        ),
        (
            {
                "model": tiny_model(shared_embeddings=True),
                "optimizer": adagrad(member_rates=(1.0, 2.0)),
            },
            "rates of their own",
        ),
    ],
)
def test_settings_that_do_not_fit_are_named(settings, message):
    with pytest.raises(ValueError, match=message):
        tiny_run(**settings)
