import dataclasses

import pytest

from churn_compare.documents.plotting import LONGEST_LABEL
from churn_jax.reports.published import published
from churn_jax.studies.streams import stream_preset
from churn_jax.studies.streams.presets import FORMS
from tests.experiments.presets import STREAMS, stream

every_preset = pytest.mark.parametrize("name", STREAMS)


@every_preset
@pytest.mark.parametrize("form", FORMS)
def test_every_form_has_the_rows_of_its_study(name, form):
    whole, changed = stream(name), stream(f"{name}:{form}")
    assert [s.name for s in changed.methods] == [s.name for s in whole.methods]
    if form not in ("summed", "gated"):
        assert changed.methods == whole.methods
    assert changed.name == f"{whole.name}-{form}"
    assert changed.train.optimizer == whole.train.optimizer


def test_replicas_differ_in_the_order_or_the_initialisation_or_after_half_the_stream():
    seeds = {f: stream(f"ad-table3{f}").train.seeds for f in ("", ":init")}
    assert (seeds[""].init, seeds[""].order) == ("fixed", "varied")
    assert (seeds[":init"].init, seeds[":init"].order) == ("varied", "fixed")
    warm = stream("ad-table3:warm:tiny")
    assert warm.warm_share == 0.5 and warm.train.seeds == seeds[""]
    first = {f: stream(f"ad-table3{f}").train for f in ("", ":init", ":warm")}
    windows = {form: train.warm_windows for form, train in first.items()}
    assert windows == {"": 1, ":init": 0, ":warm": 0}
    assert warm == stream("ad-table3:tiny:warm")


def test_every_row_of_the_papers_table_is_in_the_study_with_its_lambda_and_s():
    methods = {s.name: s.method for s in stream("ad-table3").methods}
    table = published(stream("ad-table3").published).rows
    assert set(table) <= set(methods)
    for name, printed in table.items():
        assert methods[name].members == 3
        assert methods[name].input_scale == printed["input_scale"].mean
        strength = getattr(methods[name], "strength", 0.0)
        assert strength == printed["strength"].mean
        assert name.startswith(getattr(methods[name], "penalty", "baseline"))


def test_a_summed_label_loss_keeps_the_papers_lambda():
    whole, summed = stream("ad-table3"), stream("ad-table3:summed")
    for before, after in zip(whole.methods, summed.methods, strict=True):
        if before.name.startswith("baseline"):
            assert after == before
            continue
        method = dataclasses.replace(before.method, label_reduction="sum")
        assert after == dataclasses.replace(before, method=method)


def test_a_gate_is_learned_and_deployed_in_every_row():
    plain, gated = stream("ad-table3"), stream("ad-table3:gated")
    assert gated.model.gate and not plain.model.gate
    for before, after in zip(plain.methods, gated.methods, strict=True):
        assert (after.name, after.method.deploy) == (before.name, "gate")
        assert after.method.strength == getattr(before.method, "strength", 0.0)
        assert after.method.input_scale == before.method.input_scale


def test_labels_are_different_and_short():
    for name in (*STREAMS, "ad-table3:summed"):
        labels = [spec.label for spec in stream(name).methods]
        assert len(set(labels)) == len(labels)
        assert max(map(len, labels)) <= LONGEST_LABEL  # legends show them whole


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("clikcs", "did you mean clicks?"),
        ("clicks:huge", "forms :summed, :init, :warm, :gated, :tiny"),
        ("clicks:init:warm", "two different questions"),
    ],
)
def test_an_unknown_preset_is_one_sentence(name, words):
    with pytest.raises(ValueError, match=r".") as error:
        stream_preset(name)
    assert words in str(error.value)
