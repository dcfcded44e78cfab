"""Networks of other frameworks, and of several kinds at once, through `train`."""

import dataclasses
from functools import cache

import numpy as np
import pytest

from churn_jax import data
from churn_jax.configuration.network import ModelConfig
from churn_jax.configuration.rows import MethodSpec
from churn_jax.configuration.training import OptimizerConfig, TrainConfig
from churn_jax.ensembles import Group, from_nnx
from churn_jax.methods import ERM, Codistillation
from churn_jax.training.loop import train
from churn_jax.training.run import Run
from tests.ensembles.networks import NnxNet

CONFIG = TrainConfig(
    replicas=2,
    epochs=4,
    batch_size=32,
    eval_every_epochs=4,
    optimizer=OptimizerConfig(learning_rate=0.05),
)


@cache
def digits():
    return data.load("digits", validation=60, train_size=256)


@pytest.mark.slow
def test_a_network_of_another_framework_learns_the_digits():
    network = from_nnx(lambda rngs: NnxNet(64, 10, rngs=rngs, rate=0.1))
    trained = train(Run("nnx", ERM(), (Group(network, 1),), CONFIG), digits())
    test = digits().test
    logits = trained.predict(test.images)
    assert logits.shape == (2, len(test), 10) and not trained.stopped
    accuracy = np.mean(np.argmax(logits, -1) == test.labels, axis=-1)
    assert np.all(accuracy > 0.4)  # guessing is right one time in ten
    assert np.any(logits[0] != logits[1])


def padded():
    """The digits at 12 x 12, the least that LeNet5 takes; few, for speed."""
    small = digits()
    splits = {
        name: dataclasses.replace(
            part := getattr(small, name).take(np.arange(n)),
            images=np.pad(part.images, ((0, 0), (2, 2), (2, 2), (0, 0))),
        )
        for name, n in (("train", 64), ("validation", 20), ("test", 30))
    }
    return dataclasses.replace(small, **splits)


@pytest.mark.slow
def test_a_committee_of_two_architectures_trains_alike_under_every_mapping():
    spec = MethodSpec(
        "mixed",
        "MLP with LeNet5",
        Codistillation(members=2, beta=0.5),
        models=(("mlp", 1), ("lenet5", 1)),
    )
    groups = spec.groups(ModelConfig(features=(16,)), 10)
    assert [g.network.name for g in groups] == ["mlp", "lenet5"]
    dataset, predictions = padded(), {}
    for mapping in ("vmap", "unroll", "loop"):
        config = dataclasses.replace(CONFIG, mapping=mapping, epochs=2)
        trained = train(Run("mixed", spec.method, groups, config), dataset)
        assert not trained.stopped and np.all(np.asarray(trained.last.step) == 4)
        predictions[mapping] = trained.predict(dataset.test.images, every_member=True)
    assert predictions["vmap"].shape == (2, 2, 30, 10)
    for mapping in ("unroll", "loop"):
        np.testing.assert_allclose(predictions[mapping], predictions["vmap"], atol=1e-5)
