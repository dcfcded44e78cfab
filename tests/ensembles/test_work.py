import jax
import jax.numpy as jnp

from churn_jax.ensembles.work import convolution_flops
from churn_jax.models import create

IMAGES, KERNEL = jnp.zeros((2, 8, 8, 3)), jnp.zeros((3, 3, 3, 16))


def convolve(images, kernel):
    numbers = ("NHWC", "HWIO", "NHWC")
    return jax.lax.conv_general_dilated(
        images, kernel, (1, 1), "VALID", dimension_numbers=numbers
    )


def test_operations_of_a_convolution_counted_by_hand():
    # 2 x 6 x 6 outputs of 16 channels, each of 3 x 3 x 3 products and as many sums.
    assert convolution_flops(convolve, IMAGES, KERNEL) == 2 * 2 * 36 * 16 * 27


def test_programs_inside_are_counted():
    def inside(images, kernel):
        called = jax.jit(convolve)(images, kernel)
        return jax.checkpoint(convolve)(images, kernel) + called

    assert convolution_flops(inside, IMAGES, KERNEL) == 2 * 2 * 2 * 36 * 16 * 27


def test_only_convolutions_count():
    assert convolution_flops(jnp.dot, jnp.zeros((5, 4)), jnp.zeros((4, 3))) == 0


def test_shapes_suffice_and_a_resnet_has_its_published_operations():
    """ResNet-56's 126 million multiplications, two operations each."""
    network = create("resnet56", num_classes=10)
    x = jax.ShapeDtypeStruct((1, 32, 32, 3), jnp.float32)
    variables = jax.eval_shape(network.init, jax.random.key(0), x)
    flops = convolution_flops(network.apply, variables, x)
    assert 0.99 < flops / (2 * 126e6) < 1.01
