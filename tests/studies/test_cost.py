"""What a study is said to cost, against the arithmetic of dense layers."""

import dataclasses

import pytest

from churn_jax.configuration import replaced
from churn_jax.ensembles import from_linen
from churn_jax.methods import (
    ERM,
    Codistillation,
    EnsembleDistillation,
    OneToOneDistillation,
)
from churn_jax.models import MLP, BatchEnsemble
from churn_jax.studies import DataConfig, MethodSpec, ModelConfig, Sharing
from churn_jax.studies.cost import network_flops, study_costs
from churn_jax.training.examples import example_of
from tests.studies.small import study_of

VECTOR = example_of((64,), tokens=False)
ROWS = (
    MethodSpec("baseline", "Baseline", ERM()),
    MethodSpec(
        "wide", "Wide", ERM(), model=ModelConfig("mlp", features=(128,)), train_size=200
    ),
    MethodSpec("ensemble", "Ensemble", ERM(members=3, deploy="mean_probs")),
    MethodSpec("student", "Student", EnsembleDistillation(), teacher="ensemble"),
    *(
        MethodSpec(
            kind,
            kind,
            OneToOneDistillation(members=3, perturbation=kind),
            teacher="ensemble",
        )
        for kind in ("gaussian", "ods", "two_sided")
    ),
    MethodSpec("stale", "Stale", Codistillation(update="independent", refresh_steps=9)),
)
STUDY = study_of(
    *ROWS,
    data=DataConfig("digits", train_size=400),
    model=ModelConfig("mlp", features=(32,)),
    replicas=4,
    epochs=3,
    batch_size=50,
)


def dense(width, *, train):
    """Two operations per weight forward; gradients twice that, not for the input."""
    forward = 2 * (64 * width + width * 10)
    return forward + (forward + 2 * width * 10 if train else 0)


def towards(width):
    """A forward pass and the gradient in the input: both layers once more."""
    return 2 * dense(width, train=False)


def test_dense_rows_cost_what_their_products_cost():
    costs = {row.name: row for row in study_costs(STUDY)}
    one, answer, climb = dense(32, train=True), dense(32, train=False), towards(32)
    seen = 4 * 3 * 400
    expected = {
        "baseline": seen * one,
        "wide": seen / 2 * dense(128, train=True),
        "ensemble": 3 * seen * one,
        "student": seen * (one + 3 * answer),
        # Two passes of three students, one of three teachers on the perturbed images;
        # a direction of one teacher, or of everybody.
        "gaussian": seen * (6 * one + 3 * answer),
        "ods": seen * (6 * one + 3 * answer + climb),
        "two_sided": seen * (6 * one + 3 * answer + 6 * climb),
        "stale": seen * (2 * one + 2 * answer),
    }
    for name, flops in expected.items():
        # Biases, activations and the softmax are counted, too.
        assert flops < costs[name].flops < 1.15 * flops, name
    row = costs["ensemble"]
    assert (row.replicas, row.networks, row.updates, row.examples) == (4, 3, 24, 1200)
    assert costs["wide"].updates == 12


def test_chosen_rows_bring_their_teachers_and_epochs_count():
    assert [r.name for r in study_costs(STUDY, ("student",))] == ["ensemble", "student"]
    longer = replaced(STUDY, [("train.epochs", 6)])
    once, twice = (study_costs(s, ("baseline",))[0].flops for s in (STUDY, longer))
    assert twice == pytest.approx(2 * once)


def test_a_drawn_teacher_that_shares_weights_costs_as_many_as_there_are():
    sharing = ModelConfig("mlp", features=(32,), sharing=Sharing())
    rows = tuple(
        dataclasses.replace(spec, model=sharing) if spec.name == "ensemble" else spec
        for spec in ROWS
    )
    study = dataclasses.replace(STUDY, methods=rows)
    cost = {r.name: r.flops for r in study_costs(study, ("gaussian", "ods"))}
    more = 4 * 3 * 400 * 3 * towards(32)
    assert more < cost["ods"] - cost["gaussian"] < 1.15 * more


def test_a_batch_larger_than_the_data_is_refused():
    few = replaced(STUDY, [("data.train_size", 40)])
    with pytest.raises(ValueError, match="50 is larger than the training set, 40 ex"):
        study_costs(few, ("baseline",))


def test_a_network_of_several_members_counts_with_all_of_them():
    """Four members from one set of weights: rows times four, and their scalings."""
    shared = from_linen(MLP((32,), 10, layers=BatchEnsemble(4)))
    answer = 4 * dense(32, train=False)
    assert answer < network_flops(shared, VECTOR) < 1.1 * answer
    # The gradient in the data is spared, although the first layer scales them.
    trained = 2 * answer + 4 * 2 * 32 * 10
    assert trained < network_flops(shared, VECTOR, "training") < 1.1 * trained
    # The gradient in the input needs none in the weights.
    climb = network_flops(from_linen(MLP((32,), 10)), VECTOR, "input_gradients")
    assert towards(32) < climb < 1.1 * towards(32)
