"""What a study is said to cost, against the arithmetic of dense layers."""

import dataclasses

import pytest

from churn_jax.cli import main
from churn_jax.methods import ERM, EnsembleDistillation
from churn_jax.studies import DataConfig, MethodSpec, ModelConfig, StudyConfig
from churn_jax.studies.cost import study_costs
from churn_jax.training.config import TrainConfig

ROWS = (
    MethodSpec("baseline", "Baseline", ERM()),
    MethodSpec(
        "wide", "Wide", ERM(), model=ModelConfig("mlp", features=(128,)), train_size=200
    ),
    MethodSpec("ensemble", "Ensemble", ERM(members=3, deploy="mean_probs")),
    MethodSpec("student", "Student", EnsembleDistillation(), teacher="ensemble"),
)
STUDY = StudyConfig(
    "s",
    "A study",
    DataConfig("digits", train_size=400),
    ModelConfig("mlp", features=(32,)),
    TrainConfig(replicas=4, epochs=3, batch_size=50),
    ROWS,
)


def dense(width, *, train):
    """Two operations per weight forward; gradients twice that, not for the input."""
    forward = 2 * (64 * width + width * 10)
    return forward + (forward + 2 * width * 10 if train else 0)


def test_dense_rows_cost_what_their_products_cost():
    costs = {row.name: row for row in study_costs(STUDY)}
    one = dense(32, train=True)
    seen = 4 * 3 * 400
    expected = {
        "baseline": seen * one,
        "wide": seen / 2 * dense(128, train=True),
        "ensemble": 3 * seen * one,
        "student": seen * (one + 3 * dense(32, train=False)),
    }
    for name, flops in expected.items():
        # Biases, activations and the softmax are counted, too.
        assert flops < costs[name].flops < 1.15 * flops, name
    row = costs["ensemble"]
    assert (row.replicas, row.networks, row.updates, row.examples) == (4, 3, 24, 1200)
    assert costs["wide"].updates == 12


def test_chosen_rows_bring_their_teachers():
    assert [r.name for r in study_costs(STUDY, ("student",))] == ["ensemble", "student"]
    longer = dataclasses.replace(
        STUDY, train=dataclasses.replace(STUDY.train, epochs=6)
    )
    twice = study_costs(longer, ("baseline",))[0].flops
    assert twice == pytest.approx(2 * study_costs(STUDY, ("baseline",))[0].flops)


def test_the_command_prints_the_cost_and_trains_nothing(tmp_path, capsys):
    out = tmp_path / "out"
    assert main(["study", "digits", "--dry-run", "--out", str(out)]) == 0
    text = capsys.readouterr().out
    assert "codistill_skl_entropy" in text and "FLOPs" in text
    assert text.splitlines()[-1].startswith("all") and not out.exists()
