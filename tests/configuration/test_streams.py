import dataclasses

import pytest

from churn_jax.configuration.streams import StreamConfig, differs
from churn_jax.configuration.training import Seeds
from churn_jax.methods import ERM
from churn_jax.studies.streams import StreamData, StreamSpec, stream_preset


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"holdout": 1.0}, "holdout must be at least 0 and below 1; got 1.0"),
        ({"examples": 0}, "examples must be at least 1"),
        ({"examples": None}, "a synthetic stream needs its number of examples"),
        ({"fields": 0}, "fields must be at least 1"),
    ],
)
def test_bad_data_is_one_sentence(changes, words):
    good = StreamData(examples=10)
    with pytest.raises(ValueError, match=words):
        dataclasses.replace(good, **changes)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"baseline": "none"}, "the baseline 'none' is no row"),
        ({"warm_share": 1.0}, "warm_share must be at least 0 and below 1"),
    ],
)
def test_a_bad_study_is_one_sentence(changes, words):
    with pytest.raises(ValueError, match=words):
        dataclasses.replace(stream_preset("clicks"), **changes)


def test_rows_have_other_names_and_the_studys_replicas():
    study = stream_preset("clicks")
    (first, *_) = study.methods
    with pytest.raises(ValueError, match="two rows have one name: baseline, baseline"):
        dataclasses.replace(study, methods=(first, first))
    fewer = StreamSpec("few", "Few", ERM(), train=(("replicas", 3),))
    with pytest.raises(ValueError, match="few has other replicas than the study"):
        dataclasses.replace(study, methods=(first, fewer))


def test_rows_are_selected_in_the_studys_order_and_changed_by_paths():
    study, row = stream_preset("clicks"), "correlation_0_02_s1"
    chosen = study.select((row, "baseline"))
    assert [spec.name for spec in chosen] == ["baseline", row]
    assert study.select(()) == study.methods
    with pytest.raises(ValueError, match="did you mean correlation_0_02_s1"):
        study.select(("corelation_0_02_s1",))
    assert (
        study.with_coefficient(f"{row}.strength", 2.5).spec(row).method.strength == 2.5
    )
    with pytest.raises(
        ValueError, match=r"no coefficient 'lambda'; it has: .*strength"
    ):
        study.with_coefficient(f"{row}.lambda", 1.0)
    own = StreamSpec("slow", "S", ERM(), train=(("optimizer.learning_rate", 0.001),))
    assert own.config(StreamConfig()).optimizer.learning_rate == 0.001
    wrong = StreamSpec("slow", "S", ERM(), train=(("optimiser.momentum", 0.1),))
    with pytest.raises(ValueError, match=r"slow: .*did you mean optimizer"):
        wrong.config(StreamConfig())


@pytest.mark.parametrize(
    ("seeds", "words"),
    [
        (Seeds(init="varied", order="fixed"), "the initial weights"),
        (Seeds(init="varied", order="varied"), "the initial weights and the order"),
        (Seeds(init="fixed", order="fixed"), "nothing that is chosen"),
    ],
)
def test_what_runs_differ_in_is_said(seeds, words):
    assert differs(StreamConfig(seeds=seeds)).startswith(words)


def test_a_warm_start_is_told_in_whole_windows():
    train = StreamConfig(window=512, warm_examples=600)
    assert differs(train).endswith("after 1,024 examples in which all are one model")
