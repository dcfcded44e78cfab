import jax
import jax.numpy as jnp
import numpy as np
import pytest

from churn_jax.models import MLP
from tests.models import numpy_networks


def test_equals_a_numpy_forward_pass(rng):
    images = jnp.asarray(rng.normal(size=(3, 4, 5, 2)), jnp.float32)
    model = MLP(features=(7, 6), num_classes=4)
    variables = model.init(jax.random.key(0), images)
    params = numpy_networks.in_float64(variables["params"])
    x = np.asarray(images, np.float64).reshape(3, -1)
    x = numpy_networks.relu(numpy_networks.dense(x, params["dense1"]))
    x = numpy_networks.relu(numpy_networks.dense(x, params["dense2"]))
    logits, features = model.apply(variables, images, train=True)
    np.testing.assert_allclose(features, x, rtol=1e-5, atol=1e-6)
    expected = numpy_networks.dense(x, params["head"])
    np.testing.assert_allclose(logits, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("shape", [(3, 40), (3, 8, 5), (3, 4, 5, 2)])
def test_images_and_vectors_are_flattened_alike(rng, shape):
    x = jnp.asarray(rng.normal(size=(3, 40)), jnp.float32)
    model = MLP(features=(5,), num_classes=2)
    variables = model.init(jax.random.key(0), x)
    np.testing.assert_array_equal(
        model.apply(variables, x.reshape(shape)).logits,
        model.apply(variables, x).logits,
    )


def test_no_hidden_layer_is_a_linear_model(rng):
    x = jnp.asarray(rng.normal(size=(3, 4)), jnp.float32)
    model = MLP(features=(), num_classes=2)
    variables = model.init(jax.random.key(0), x)
    logits, features = model.apply(variables, x)
    np.testing.assert_array_equal(features, x)
    head = variables["params"]["head"]
    expected = numpy_networks.dense(*numpy_networks.in_float64((x, head)))
    np.testing.assert_allclose(logits, expected, rtol=1e-5, atol=1e-6)


def test_bfloat16_computes_low_and_answers_in_float32(rng):
    x = jnp.asarray(rng.normal(size=(3, 4)), jnp.float32)
    model = MLP(features=(8,), num_classes=2, dtype=jnp.bfloat16)
    variables = model.init(jax.random.key(0), x)
    assert {p.dtype for p in jax.tree.leaves(variables)} == {jnp.dtype("float32")}
    output = model.apply(variables, x)
    exact = model.clone(dtype=jnp.float32).apply(variables, x)
    assert output.logits.dtype == output.features.dtype == jnp.float32
    assert 0 < float(jnp.abs(output.logits - exact.logits).max()) < 0.1


@pytest.mark.parametrize(
    ("kind", "gains"),
    # Variance of a kernel's entries, as a multiple of 1 / fan_in, hidden and last.
    [("he", (2.0, 1.0)), ("uniform", None), ("truncated_normal", (1.0, 1.0))],
)
def test_kernels_start_with_the_variance_that_is_asked_for(kind, gains):
    model = MLP(features=(200,), num_classes=50, kernel_init=kind)
    params = model.init(jax.random.key(0), jnp.zeros((1, 100)))["params"]
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


@pytest.mark.parametrize(("features", "layer"), [((4, 3), "dense1"), ((), "head")])
def test_the_input_layer_is_the_one_that_has_a_row_per_input(features, layer):
    model = MLP(features=features, num_classes=2)
    params = model.init(jax.random.key(0), jnp.zeros((1, 7)))["params"]
    assert model.input_params == (layer,)
    assert params[layer]["kernel"].shape[0] == 7
