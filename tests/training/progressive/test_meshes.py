"""One device against eight: replicas over two, batches and tables over four."""

import jax
import numpy as np
import pytest

from churn_jax.methods import AntiDistillation
from churn_jax.training import MeshShape
from churn_jax.training.progressive.metrics import StreamMetrics
from churn_jax.training.progressive.step import Examples, make_step
from tests.training.progressive.streams import ArrayStream, tiny_model, tiny_run
from tests.training.progressive.test_step import ready

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("quick_to_compile")]


def learned(mesh):
    method = AntiDistillation(members=2, strength=1.0, member_sample="bootstrap")
    # 18 rows, padded to 20 on four devices.
    run = tiny_run(method, tiny_model(wide=True), replicas=2, mesh=mesh)
    program, inputs, state = ready(run)
    step, metrics = make_step(program, donate=False), StreamMetrics.empty(2)
    for number, window in enumerate(ArrayStream(count=42).windows(16)):
        state, metrics, scores = step(
            state, metrics, inputs, Examples.of(window), np.int32(number)
        )
    return jax.device_get((state, metrics.compute(), scores))


def test_eight_devices_learn_what_one_learns():
    alone, figures, scores = learned(MeshShape())
    spread, spread_figures, spread_scores = learned(MeshShape(2, 1, 4))
    assert spread.tables.shape == (2, 20, 8)
    close = {"rtol": 2e-5, "atol": 1e-6}
    np.testing.assert_allclose(spread_scores, scores, **close)
    np.testing.assert_allclose(spread.tables[:, :18], alone.tables, **close)
    np.testing.assert_allclose(spread.accumulators[:, :18], alone.accumulators, **close)
    for a, b in zip(
        jax.tree.leaves(spread.dense), jax.tree.leaves(alone.dense), strict=True
    ):
        np.testing.assert_allclose(a, b, **close)
    for name, value in figures.items():
        np.testing.assert_allclose(spread_figures[name], value, **close)
