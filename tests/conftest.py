"""Eight CPU devices and strict rank promotion for every test."""

import os

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")

import jax
import numpy as np
import pytest

jax.config.update("jax_num_cpu_devices", 8)
jax.config.update("jax_numpy_rank_promotion", "raise")


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.fixture
def strict_dtypes():
    """Strict dtype promotion, for tests of losses and metrics."""
    with jax.numpy_dtype_promotion("strict"):
        yield


def pytest_collection_modifyitems(items):
    accelerated = any(d.platform in ("gpu", "tpu") for d in jax.devices())
    skip = pytest.mark.skip(reason="needs a GPU or a TPU")
    for item in items:
        if "accelerator" in item.keywords and not accelerated:
            item.add_marker(skip)
