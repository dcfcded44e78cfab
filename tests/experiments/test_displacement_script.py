"""Displacements, from the command line to the figures."""

import numpy as np
import pytest

from experiments.elodi.displacement import main
from tests.reports.fake_study import noisy_logits, write_study

FIGURES = ("figure3", "figure4", "figure5", "top-classes-")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    labels = np.arange(30) % 3
    rng = np.random.default_rng(0)
    rows = {name: noisy_logits(rng, labels, 6, 3) for name in ("small", "large")}
    return write_study(tmp_path_factory.mktemp("command") / "study", rows, labels)


@pytest.mark.slow
def test_the_page_and_the_tables_are_there(run, tmp_path, capsys):
    words = [str(run), "--old", "small", "--sizes", "1", "3"]
    few = ["--images", "2", "--draws", "30", "--resamples", "4"]
    assert main([*words, *few]) == 0
    said = capsys.readouterr().out
    assert "How far logits move, Small, 6 networks" in " ".join(said.split())
    assert "Tables and figures: " in said
    assert len(list((run / "displacement").glob("*.svg"))) == 5
    out = tmp_path / "both"
    words += ["--new", "large", "--heterogeneous", "small", "large", "--out", str(out)]
    assert main([*words, *few]) == 0
    names = {f"{name}{letter}" for name in FIGURES for letter in "ab"} | {"figure2"}
    assert names == {path.stem for path in out.glob("*.png")}
    assert "Small → Large" in (out / "displacement.md").read_text()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--sizes", "1;2"], "--sizes"),
        (["--sizes", "2", "1"], "sizes must increase"),
        (["--old", "smal"], "did you mean small?"),
        (["--sizes", "4"], "ensembles of 4 need as many networks"),
        (["--heterogeneous", "large"], "at least two rows"),
        (["--heterogeneous", "small", "large", "--sizes", "7"], "ensembles of 7 need"),
        (["--sizes", "0", "1"], "sizes must be at least 1"),
        (["--images", "0"], "images must be at least 1"),
        (["--draw", "7"], "--draw"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_code_2(run, capsys, words, message):
    old = [] if "--old" in words else ["--old", "small"]
    assert main([str(run), *old, *words]) == 2
    (sentence,) = capsys.readouterr().err.splitlines()
    assert message in sentence
