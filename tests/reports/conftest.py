"""A study of three methods whose numbers are worked out by hand in `test_compare`."""

import collections
import dataclasses

import numpy as np
import pytest

from churn_compare.documents import Figure
from churn_jax import reports
from tests.reports.fake_study import logits_of, write_study

LABELS = np.array([0] * 5 + [1] * 5)


def classes_with(*wrong_of_each_run):
    """`[R, 10]`: the labels, except `{example: predicted class}` for each run."""
    classes = np.tile(LABELS, (len(wrong_of_each_run), 1))
    for run, wrong in enumerate(wrong_of_each_run):
        for example, predicted in wrong.items():
            classes[run, example] = predicted
    return classes


def three_methods():
    halting = logits_of(classes_with({}, {}, {}), 3)
    halting[2] = np.nan
    return {
        "baseline": logits_of(classes_with({9: 0}, {0: 2, 1: 2}, {0: 1, 9: 0}), 3),
        "steady": logits_of(classes_with({0: 1}, {0: 1}, {0: 1}), 3),
        "halting": halting,
    }


def two_methods():
    return {name: three_methods()[name] for name in ("baseline", "steady")}


def write_three(folder):
    stopped = {"halting": [{"replica": 2, "term": "cross_entropy", "step": 120}]}
    return write_study(folder, three_methods(), LABELS, stopped=stopped)


@pytest.fixture(scope="session")
def report(tmp_path_factory):
    """Read only; written once for all tests."""
    return reports.write(write_three(tmp_path_factory.mktemp("runs") / "fake"))


@pytest.fixture
def undrawn(monkeypatch):
    """Pages have empty figures: Matplotlib needs a second for those of a study."""

    def draw(figure):
        return dataclasses.replace(figure, svg="<svg></svg>" if figure.svg else "")

    monkeypatch.setattr(Figure, "draw", draw)


@pytest.fixture
def drawn(monkeypatch):
    """What methods of Matplotlib's `Axes` are called with, by their names."""
    from matplotlib.axes import Axes

    calls = collections.defaultdict(list)
    for name in ("plot", "errorbar", "axhline", "stairs", "bxp", "imshow"):

        def keep(axes, *args, _name=name, _draw=getattr(Axes, name), **options):
            calls[_name].append((args, options))
            return _draw(axes, *args, **options)

        monkeypatch.setattr(Axes, name, keep)
    return calls
