"""Studies of clicks: their rows, what changes in their forms, their tiny form."""

import pytest

from churn_compare.documents.plotting import LONGEST_LABEL
from churn_jax.reports.published import published
from experiments.anti_distillation.clicks import gated, init, summed, table3, warm
from tests.experiments.presets import STUDIES, study

CLICKS = [name for name in STUDIES if study(name).train.one_pass is not None]


@pytest.mark.parametrize("form", [summed, init, warm, gated])
def test_every_form_has_the_rows_of_its_study(form):
    whole, changed = table3(), form(table3())
    assert [s.name for s in changed.methods] == [s.name for s in whole.methods]
    assert (changed.methods == whole.methods) == (form in (init, warm))
    assert changed.name == f"{whole.name}-{form.__name__}"
    assert changed.train.optimizer == whole.train.optimizer


def test_replicas_differ_in_the_order_or_the_initialisation_or_after_half_the_stream():
    forms = {form: form(table3()).train for form in (summed, init, warm)}
    seeds = {form: train.seeds for form, train in forms.items()}
    assert (seeds[summed].init, seeds[summed].order) == ("fixed", "varied")
    assert (seeds[init].init, seeds[init].order) == ("varied", "fixed")
    assert seeds[warm] == seeds[summed]
    windows = [train.one_pass.warm_windows(100_000) for train in forms.values()]
    assert windows == [1, 0, 7]


def test_every_row_of_the_papers_table_is_in_the_study_with_its_lambda_and_s():
    methods = {s.name: s.method for s in table3().methods}
    table = published(table3().published).rows
    assert set(table) <= set(methods)
    for name, printed in table.items():
        assert methods[name].members == 3
        assert methods[name].input_scale == printed["input_scale"].mean
        strength = getattr(methods[name], "strength", 0.0)
        assert strength == printed["strength"].mean
        assert name.startswith(getattr(methods[name], "penalty", "baseline"))


def test_a_gate_is_learned_and_deployed_in_every_row():
    for before, after in zip(table3().methods, gated(table3()).methods, strict=True):
        assert (after.name, after.method.deploy) == (before.name, "gate")
        assert after.method.strength == getattr(before.method, "strength", 0.0)
        assert after.method.input_scale == before.method.input_scale


@pytest.mark.parametrize("name", CLICKS)
def test_labels_are_different_and_short(name):
    labels = [spec.label for spec in study(name).methods]
    assert len(set(labels)) == len(labels)
    assert max(map(len, labels)) <= LONGEST_LABEL  # legends show them whole
