"""Members that split a batch, through the engine: each one learns from its own part."""

import numpy as np

from churn_jax.configuration.training import OptimizerConfig, TrainConfig
from churn_jax.ensembles import Group, from_linen
from churn_jax.methods import ERM
from churn_jax.models import MLP, BatchEnsemble
from churn_jax.training.run import Run
from tests import reference_models as reference
from tests.training import tiny

K = 2


def softmax(z):
    e = np.exp(z - z.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def test_the_first_update_is_that_of_members_on_their_parts(quick_to_compile):
    """The mean over members of the mean cross-entropy over a member's own rows."""
    layers = BatchEnsemble(K, batches="split")
    network = tiny.hashed(from_linen(MLP((), tiny.CLASSES, layers=layers)))
    method = ERM(
        members=K, deploy="mean_probs", over_members="mean", member_sample="split"
    )
    config = TrainConfig(
        replicas=1,
        epochs=1,
        batch_size=tiny.BATCH,
        steps_per_call=1,
        optimizer=OptimizerConfig(learning_rate=0.1, weight_decay=0.0),
    )
    stepper = tiny.stepper(Run("parts", method, (Group(network, 1),), config))
    (params,) = tiny.replica(stepper.now().params, (0, 0))
    ((_, momentum, _),) = stepper.advance(1).opt_state

    data = tiny.dataset().train
    rows = np.asarray(stepper.session.inputs(0).order)[0, : tiny.BATCH]
    x = (data.images[rows].reshape(tiny.BATCH, -1) / 255 - 0.5) / 0.25
    # Outputs of the loop over members are those of the parts, one after the other.
    logits = reference.batch_ensemble(params["head"], x, np.matmul)
    errors = softmax(logits) - np.eye(tiny.CLASSES)[data.labels[rows]]
    # Every member's mean is over B / K rows, and the loss is the mean over K members.
    _, expected = reference.dense_gradients(params["head"], x, errors / tiny.BATCH)
    found = tiny.replica(momentum.trace["head"], (0, 0))
    assert set(found) == set(expected)
    for name, gradient in expected.items():
        scale = np.abs(gradient).max()
        assert scale > 1e-3
        np.testing.assert_allclose(found[name], gradient, rtol=1e-5, atol=1e-5 * scale)
