"""On a GPU: two launches with deterministic kernels agree bit by bit."""

import os

import pytest

from churn_jax.configuration import replaced
from churn_jax.studies import preset
from churn_jax.studies.repeatability import Launch, measure

pytestmark = pytest.mark.accelerator


@pytest.mark.parametrize("model", ["mlp", "resnet20"])
def test_launches_with_deterministic_kernels_agree_bit_by_bit(model):
    # The launches see the devices that this process sees, not conftest.py's default.
    assert os.environ.get("JAX_PLATFORMS") != "cpu"
    network = [("model.name", model), ("model.features", ())]
    config = replaced(preset("digits:tiny"), network)
    drift = measure(Launch(config, updates=20), 2, deterministic=True)
    assert drift.repeats, drift.first_difference
