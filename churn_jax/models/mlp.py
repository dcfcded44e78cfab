"""A multi-layer perceptron, and the gate that weighs the members of an ensemble."""

import flax.linen as nn
import jax.numpy as jnp

from churn_jax.models.layers import PLAIN, Layers, ModelOutput, ZooNetwork, check_images
from churn_jax.setting_checks import check_choice, check_least
from churn_jax.typing import Array

# Kernels of the hidden layers and of the last one.
_KERNELS = {
    "he": (nn.initializers.he_normal(), nn.initializers.lecun_normal()),
    "uniform": (nn.initializers.glorot_uniform(),) * 2,
    "truncated_normal": (nn.initializers.lecun_normal(),) * 2,
}
INITS = tuple(_KERNELS)


class MLP(ZooNetwork, nn.Module):
    """Dense layers with an activation between them, then a dense layer of C logits.

    Images are flattened in row, column, channel order. Biases start at zero, kernels
    as `kernel_init` says:

    * `he`: hidden kernels truncated He-normal, variance `2 / fan_in`; the last one
      LeCun-normal, `1 / fan_in`.
    * `uniform`: all kernels `U(-a, a)` with `a = sqrt(6 / (fan_in + fan_out))`.
    * `truncated_normal`: all kernels truncated normal (at two standard deviations of
      the normal that is cut) of variance `1 / fan_in`.

    Attributes:
        features: widths of the hidden layers; empty for a linear model.
        num_classes: C.
        kernel_init: how kernels start: `he`, `uniform` or `truncated_normal`.
        layers: as in `ResNet`.

    Notes:
        Anti-distillation trains on MNIST from uniform weights and zero biases
        (section 5.1), whose range is not printed: the limit is Glorot's, our choice.
        `truncated_normal` is its click networks' (section 5.2), "normalized by the
        layer width", which we read as the number of inputs of the layer.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> model = MLP(features=(32,), num_classes=10)
        >>> images = jnp.zeros((2, 8, 8, 1))
        >>> variables = model.init(jax.random.key(0), images)
        >>> logits, features = model.apply(variables, images)
        >>> logits.shape, features.shape
        ((2, 10), (2, 32))

    References:
        [anti-distillation] Sec. 5 -- Shamir and Coviello, Anti-Distillation:
        Improving Reproducibility of Deep Networks, 2020.
        https://arxiv.org/abs/2010.09923
    """

    features: tuple[int, ...]
    num_classes: int
    kernel_init: str = "he"
    layers: Layers = PLAIN

    def __post_init__(self):
        check_choice("kernel_init", self.kernel_init, INITS)
        super().__post_init__()

    @property
    def input_params(self) -> tuple[str, ...]:  # pyrefly: ignore[bad-override]
        """Top-level parameters of the layer that sees the input."""
        return ("dense1",) if self.features else ("head",)

    @nn.compact
    def __call__(self, x: Array, train: bool = False) -> ModelOutput:
        """Logits `[B, C]` and last hidden layer `[B, D]` of `[B, D]` or images.

        Raises:
            ValueError: `x` has fewer than two or more than four axes.
            TypeError: `x` is not floating point.
        """
        check_images(x, min_rank=2)
        layers = self.layers
        x, entered = layers.enter(self, x, train)
        x = x.reshape(x.shape[0], -1).astype(self.dtype)
        hidden, last = _KERNELS[self.kernel_init]
        for layer, width in enumerate(self.features, start=1):
            name = f"dense{layer}"
            x = layers.dense(width, dtype=self.dtype, kernel_init=hidden, name=name)(x)
            x = self.activate(x)
        return self.classify(x, train, entered, kernel_init=last)


class Gate(nn.Module):
    """Log-weights of an ensemble's members, from the input or learned constants.

    Dense layers with ReLU between them over the flattened input, then a dense layer of
    K outputs. The last layer starts at zero, so the mixture starts as the plain
    average of its members.

    Attributes:
        num_members: K. One network for all members (K = M), or M networks of K = 1,
            which an ensemble sharded over a mesh can shard with its members.
        features: widths of the hidden layers; empty for a linear gate.
        constant: the weights do not depend on the input: K learned numbers.

    Notes:
        Anti-distillation (section 2) asks for "some gating mechanism" of a mixture of
        experts and gives none; a softmax over all members, which
        `churn_jax.ensembles.gate` takes of these log-weights, is ours, without the
        sparsity of Shazeer et al., 2017.

    Example:
        >>> import jax
        >>> gate, x = Gate(3), jnp.ones((2, 8))
        >>> variables = gate.init(jax.random.key(0), x)
        >>> print(gate.apply(variables, x))
        [[0. 0. 0.]
         [0. 0. 0.]]
    """

    num_members: int
    features: tuple[int, ...] = ()
    constant: bool = False

    @nn.compact
    def __call__(self, x: Array) -> Array:
        """Log-weights `[B, K]` float32, not normalised, of inputs `[B, ...]`.

        Raises:
            ValueError: fewer than one member, or a constant gate with hidden layers.
        """
        check_least("num_members", self.num_members, 1)
        zeros = nn.initializers.zeros
        if self.constant:
            if self.features:
                raise ValueError(
                    f"a constant gate has no hidden layers; got {self.features}"
                )
            weights = self.param("bias", zeros, (self.num_members,))
            return jnp.broadcast_to(weights, (x.shape[0], self.num_members))
        x = x.reshape(x.shape[0], -1).astype(jnp.float32)
        for layer, width in enumerate(self.features, start=1):
            x = nn.relu(nn.Dense(width, name=f"dense{layer}")(x))
        return nn.Dense(self.num_members, kernel_init=zeros, name="head")(x)
