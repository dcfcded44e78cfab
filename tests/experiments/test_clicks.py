"""Studies of clicks: their rows, what changes in their forms, their tiny form."""

import pytest

from churn_compare.documents.plotting import LONGEST_LABEL
from churn_jax.reports.published import published
from experiments.anti_distillation.clicks import table3
from tests.experiments.presets import STUDIES, study

CLICKS = [name for name in STUDIES if study(name).train.one_pass is not None]


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


@pytest.mark.parametrize("name", CLICKS)
def test_labels_are_different_and_short(name):
    labels = [spec.label for spec in study(name).methods]
    assert len(set(labels)) == len(labels)
    assert max(map(len, labels)) <= LONGEST_LABEL  # legends show them whole
