import jax
import numpy as np
import pytest

from churn_jax.models import MLP
from tests.models import numpy_networks
from tests.models.linen_networks import drawn_variables, images


@pytest.mark.parametrize(
    ("features", "inputs"), [((7, 6), "dense1"), ((), "head")], ids=["deep", "linear"]
)
def test_images_and_vectors_are_flattened_and_equal_a_numpy_forward_pass(
    features, inputs
):
    x, model = images(3, 4, 5, 2), MLP(features=features, num_classes=4)
    variables = drawn_variables(model, x)
    vectors, rows, output = jax.jit(
        lambda v, x: [
            model.apply(v, x.reshape(shape), train=True)
            for shape in ((3, 40), (3, 8, 5), x.shape)
        ]
    )(variables, x)
    params, hidden = numpy_networks.in_float64((variables["params"], x.reshape(3, -1)))
    for layer in range(1, len(features) + 1):
        hidden = numpy_networks.dense(hidden, params[f"dense{layer}"])
        hidden = numpy_networks.relu(hidden)
    logits = numpy_networks.dense(hidden, params["head"])
    for given in (vectors, rows, output):
        np.testing.assert_allclose(given.features, hidden, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(given.logits, logits, rtol=1e-5, atol=1e-5)
    assert model.input_params == (inputs,)
    assert params[inputs]["kernel"].shape[0] == 40


@pytest.mark.parametrize(
    ("kind", "gains"),
    # Variance of a kernel's entries, as a multiple of 1 / fan_in, hidden and last.
    [("he", (2.0, 1.0)), ("uniform", None), ("truncated_normal", (1.0, 1.0))],
)
def test_kernels_start_with_the_variance_that_is_asked_for(kind, gains):
    model = MLP(features=(200,), num_classes=50, kernel_init=kind)
    params = jax.jit(model.init)(jax.random.key(0), np.zeros((1, 100), "f4"))["params"]
    for number, name in enumerate(("dense1", "head")):
        kernel = np.asarray(params[name]["kernel"], np.float64)
        assert not np.any(params[name]["bias"])
        fan_in, fan_out = kernel.shape
        if gains is None:
            limit = np.sqrt(6 / (fan_in + fan_out))
            # Of 10,000 draws the largest is within a thousandth of the limit, and a
            # uniform variable's fourth moment is 9/5 of its squared variance.
            assert 0.999 * limit < np.abs(kernel).max() <= limit
            variance = limit**2 / 3
            kurtosis = np.mean(kernel**4) / np.mean(kernel**2) ** 2
            np.testing.assert_allclose(kurtosis, 9 / 5, rtol=0.05)
        else:
            variance = gains[number] / fan_in
            # Cut at two standard deviations of a normal that the cut makes narrower.
            widest = np.abs(kernel).max() / np.sqrt(variance)
            np.testing.assert_allclose(widest, 2 / 0.8796, rtol=0.01)
        np.testing.assert_allclose(kernel.var(), variance, rtol=0.05)
        np.testing.assert_allclose(kernel.mean(), 0.0, atol=5 * kernel.std() / 100)
