import jax
import jax.numpy as jnp

from churn_jax.ensembles.mapping import convolved_bytes
from churn_jax.models import create

IMAGES, KERNEL = jnp.zeros((2, 8, 8, 3)), jnp.zeros((3, 3, 3, 16))


def convolve(images, kernel):
    numbers = ("NHWC", "HWIO", "NHWC")
    return jax.lax.conv_general_dilated(
        images, kernel, (1, 1), "VALID", dimension_numbers=numbers
    )


def test_bytes_of_a_convolutions_result_counted_by_hand():
    # 2 images of 6 x 6 pixels, 16 channels, four bytes each.
    assert convolved_bytes(convolve, IMAGES, KERNEL) == 2 * 36 * 16 * 4


def test_batches_are_padded():
    assert convolved_bytes(convolve, IMAGES, KERNEL, lanes=5) == 5 * 36 * 16 * 4


def test_programs_inside_are_looked_at():
    def inside(images, kernel):
        again = jax.jit(jax.checkpoint(convolve))(images, kernel)
        return convolve(images, kernel) + again

    assert convolved_bytes(inside, IMAGES, KERNEL) == 2 * 2 * 36 * 16 * 4


def test_only_convolutions_count():
    assert convolved_bytes(jnp.dot, jnp.zeros((5, 4)), jnp.zeros((4, 3))) == 0


def test_shapes_suffice_and_a_resnet_has_its_layers():
    """ResNet-8: the stem and three blocks of two convolutions; shortcuts have none."""
    network = create("resnet8", num_classes=10)
    x = jax.ShapeDtypeStruct((1, 32, 32, 3), jnp.float32)
    variables = jax.eval_shape(network.init, jax.random.key(0), x)
    stages = 3 * 32 * 32 * 16 + 2 * 16 * 16 * 32 + 2 * 8 * 8 * 64
    assert convolved_bytes(network.apply, variables, x) == 4 * stages
