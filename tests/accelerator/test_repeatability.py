"""On a GPU: two launches with deterministic kernels agree bit by bit."""

import os

import pytest

from churn_jax.studies.launches import measure
from churn_jax.studies.repeatability import Launch

pytestmark = pytest.mark.accelerator


@pytest.mark.parametrize("model", ["mlp", "resnet20"])
def test_launches_with_deterministic_kernels_agree_bit_by_bit(tmp_path, model):
    # The launches see the devices that this process sees, not conftest.py's default.
    assert os.environ.get("JAX_PLATFORMS") != "cpu"
    launch = Launch("digits:tiny", model=model, updates=20)
    drift = measure(launch, 2, deterministic=True, folder=tmp_path)
    assert drift.repeats, drift.first_difference
