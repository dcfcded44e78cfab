import jax
import jax.numpy as jnp
import numpy as np
import pytest

from churn_jax.models import LeNet5
from tests.models import numpy_networks


def _variables(model, images):
    """Drawn by NumPy, which compiles nothing; biases are not zero."""
    shapes = jax.eval_shape(model.init, jax.random.key(0), images)
    generator = np.random.default_rng(1)

    def draw(leaf):
        spread = np.prod(leaf.shape[:-1]) ** -0.5 if len(leaf.shape) > 1 else 0.1
        return jnp.asarray(spread * generator.normal(size=leaf.shape), "f4")

    return jax.tree.map(draw, shapes)


def _images(rng, *shape):
    return jnp.asarray(rng.normal(size=shape), jnp.float32)


@pytest.mark.parametrize("layout", ["nhwc", "banded"])
@pytest.mark.parametrize("shape", [(2, 28, 28, 1), (2, 32, 32, 3), (2, 13, 12, 2)])
def test_equals_a_numpy_forward_pass(rng, layout, shape):
    images = _images(rng, *shape)
    model = LeNet5(num_classes=10, layout=layout)
    variables = _variables(model, images)
    logits, features = jax.jit(model.apply)(variables, images)
    expected = numpy_networks.lenet5(
        *numpy_networks.in_float64((variables["params"], images))
    )
    np.testing.assert_allclose(logits, expected, rtol=1e-5, atol=1e-5)
    assert logits.shape == (2, 10) and features.shape == (2, 84)


def test_layouts_agree_in_logits_and_gradients(rng):
    images = _images(rng, 4, 28, 28, 1)
    models = [LeNet5(num_classes=10, layout=layout) for layout in ("nhwc", "banded")]
    variables = _variables(models[0], images)
    trees = [jax.eval_shape(m.init, jax.random.key(0), images) for m in models]
    assert trees[0] == trees[1]

    def loss(model, variables, images):
        logits = model.apply(variables, images, train=True).logits
        return jnp.sum(jnp.sin(logits)), logits

    results = [
        jax.jit(
            jax.value_and_grad(loss, argnums=(1, 2), has_aux=True), static_argnums=0
        )(model, variables, images)
        for model in models
    ]
    ((_, logits_a), grads_a), ((_, logits_b), grads_b) = results
    np.testing.assert_allclose(logits_a, logits_b, atol=1e-5)
    # Absolute, relative to the largest entry: about 10.
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(
            a, b, rtol=1e-5, atol=1e-5 * max(1.0, float(jnp.abs(a).max()))
        ),
        grads_a,
        grads_b,
    )


def test_auto_is_banded_on_cpu_and_nhwc_elsewhere(monkeypatch):
    images = jnp.zeros((1, 28, 28, 1))
    model = LeNet5(num_classes=10)
    variables = _variables(model, images)

    def convolves():
        # A new function each time: jax caches traces by function.
        return "conv_general" in str(
            jax.make_jaxpr(lambda v: model.apply(v, images))(variables)
        )

    monkeypatch.setattr(jax, "default_backend", lambda: "cpu")
    assert not convolves()
    monkeypatch.setattr(jax, "default_backend", lambda: "tpu")
    assert convolves()


@pytest.mark.parametrize(
    ("shape", "classes", "count"),
    [
        # 25*6+6, 25*6*16+16, 400*120+120, 120*84+84, 84*10+10
        ((1, 28, 28, 1), 10, 156 + 2416 + 48120 + 10164 + 850),
        # 75*6+6, the same, 576*120+120, the same, 84*100+100
        ((1, 32, 32, 3), 100, 456 + 2416 + 69240 + 10164 + 8500),
    ],
)
def test_parameter_count(shape, classes, count):
    model = LeNet5(num_classes=classes)
    params = jax.eval_shape(model.init, jax.random.key(0), jnp.zeros(shape))
    assert sum(p.size for p in jax.tree.leaves(params)) == count


@pytest.mark.parametrize("layout", ["nhwc", "banded"])
def test_bfloat16_computes_low_and_answers_in_float32(rng, layout):
    images = _images(rng, 2, 12, 12, 1)
    low = LeNet5(num_classes=3, layout=layout, dtype=jnp.bfloat16)
    shapes = jax.eval_shape(low.init, jax.random.key(0), images)
    assert {p.dtype for p in jax.tree.leaves(shapes)} == {jnp.dtype("float32")}
    variables = _variables(low, images)
    output = jax.jit(low.apply)(variables, images)
    exact = jax.jit(low.clone(dtype=jnp.float32).apply)(variables, images)
    assert output.logits.dtype == output.features.dtype == jnp.float32
    difference = float(jnp.abs(output.logits - exact.logits).max())
    # bfloat16 keeps 8 bits: different, but by a few per cent of order one.
    assert 0 < difference < 0.1
