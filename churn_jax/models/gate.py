"""The gate of a mixture: how much each member of an ensemble counts."""

import flax.linen as nn
import jax.numpy as jnp

from churn_jax.typing import Array

__all__ = ["Gate"]


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
        The paper asks for "some gating mechanism" of a mixture of experts and gives
        none; a softmax over all members, which `churn_jax.ensembles.gate` takes of
        these log-weights, is ours, without the sparsity of Shazeer et al., 2017.

    Example:
        >>> import jax
        >>> gate, x = Gate(3), jnp.ones((2, 8))
        >>> variables = gate.init(jax.random.key(0), x)
        >>> print(gate.apply(variables, x))
        [[0. 0. 0.]
         [0. 0. 0.]]

    References:
        [anti-distillation] Section 2 -- Shamir and Coviello, Anti-Distillation:
        Improving Reproducibility of Deep Networks, 2020.
        https://arxiv.org/abs/2010.09923
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
        if self.num_members < 1:
            raise ValueError(f"num_members must be at least 1; got {self.num_members}")
        if self.constant:
            if self.features:
                raise ValueError(
                    f"a constant gate has no hidden layers; got {self.features}"
                )
            weights = self.param("bias", nn.initializers.zeros, (self.num_members,))
            return jnp.broadcast_to(weights, (x.shape[0], self.num_members))
        x = x.reshape(x.shape[0], -1).astype(jnp.float32)
        for layer, width in enumerate(self.features, start=1):
            x = nn.relu(nn.Dense(width, name=f"dense{layer}")(x))
        last = nn.Dense(
            self.num_members, kernel_init=nn.initializers.zeros, name="head"
        )
        return last(x)
