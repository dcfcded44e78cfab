"""MIMO: one network that takes K images at once and classifies each of them."""

import dataclasses
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from churn_jax.models.layers import Layers, ModelOutput
from churn_jax.setting_checks import check_least
from churn_jax.typing import Array, PRNGKey


def draw_orders(key: PRNGKey, members: int, rows: int, repetition: float) -> Array:
    """K orders of B rows `[K, B]`; `repetition`: chance that all agree at a place."""
    key_fixed, key_order = jax.random.split(key)
    fixed = jax.random.uniform(key_fixed, (rows,)) < repetition
    # Places of the rows that move come first, then those of the rows that stay.
    places = jnp.argsort(fixed, stable=True)
    ranks = jax.random.uniform(key_order, (members, rows))
    # Sorting is stable and all ranks are below 2: rows that stay keep their place.
    taken = jnp.argsort(jnp.where(fixed, 2.0, ranks), axis=1, stable=True)
    return taken[:, jnp.argsort(places)]


@dataclasses.dataclass(frozen=True)
class MIMO(Layers):
    """Layers of a network with K inputs and K outputs; all but the ends are plain.

    The first layer sees K images, side by side along the channels (for vectors along
    the features); the last one has K C logits, C for each image. In training the K
    images of a row are different ones: member m sees the batch in an order of its
    own, drawn from the module's `dropout` stream, and its outputs are put back, so
    that `logits[m, b]` are member m's of image b, as with every other network.
    In evaluation a row is one image K times.

    Attributes:
        size: K.
        repetition: probability that a row of a training batch holds one image K times.

    Raises:
        ValueError: `size` is below 1, or `repetition` no probability.

    Notes:
        Without a `dropout` stream nothing is shuffled, so a row is one image K times
        in training too. On a mesh a device shuffles its own share of the batch. A
        masked row (padding) enters as zeros next to other rows' images.

    Example:
        >>> from churn_jax.models import MLP
        >>> model = MLP(features=(16,), num_classes=10, layers=MIMO(3))
        >>> images = jnp.zeros((2, 8, 8, 1))
        >>> variables = model.init(jax.random.key(0), images)
        >>> variables["params"]["dense1"]["kernel"].shape
        (192, 16)
        >>> shuffled = model.apply(
        ...     variables, images, train=True, rngs={"dropout": jax.random.key(1)})
        >>> shuffled.logits.shape, shuffled.features.shape
        ((3, 2, 10), (3, 2, 16))

    References:
        [mimo] Sec. 2 -- Havasi et al., Training independent subnetworks for robust
        prediction, ICLR 2021. https://arxiv.org/abs/2010.06610
        [diversity] Table 4 -- Nam et al., Diversity Matters When Learning From
        Ensembles, NeurIPS 2021. https://arxiv.org/abs/2110.14149
    """

    size: int
    repetition: float = 0.0

    def __post_init__(self):
        """Checks the settings."""
        check_least("size", self.size, 1)
        if not 0.0 <= self.repetition <= 1.0:
            raise ValueError(
                f"repetition must be a probability, 0 to 1; got {self.repetition}"
            )

    @property
    def members(self) -> int:
        """K."""
        return self.size

    def enter(self, module: nn.Module, x: Array, train: bool) -> tuple[Array, Any]:
        """`[B, ..., D]` to `[B, ..., K D]`, and where each member's rows have gone."""
        if not (train and module.has_rng("dropout")):
            return jnp.concatenate([x] * self.size, axis=-1), None
        key = module.make_rng("dropout")
        orders = draw_orders(key, self.size, x.shape[0], self.repetition)
        seen = [x[order] for order in jnp.split(orders, self.size)]
        # Row b of the batch is in place `argsort(order)[b]` of a member's order.
        return jnp.concatenate([s[0] for s in seen], axis=-1), jnp.argsort(orders, 1)

    def leave(self, outputs: Array, entered: Any) -> Array:
        """Every member's `[B, K, D]`, in the batch's order: `[K, B, D]`."""
        own = jnp.moveaxis(outputs, 1, 0)
        if entered is None:
            return own
        return jnp.take_along_axis(own, entered[..., None], axis=1)

    def output(self, logits: Array, features: Array, entered: Any) -> ModelOutput:
        """Every member's logits, and the features of the row it was in, float32."""
        rows = logits.shape[0]
        own = logits.astype(jnp.float32).reshape(rows, self.size, -1)
        shared = features.astype(jnp.float32)[:, None]
        shared = jnp.broadcast_to(shared, (rows, self.size, shared.shape[-1]))
        return ModelOutput(self.leave(own, entered), self.leave(shared, entered))

    def head(
        self, num_classes: int, *, dtype: Any, kernel_init: Any = None
    ) -> nn.Module:
        """The dense layer `head` of K C logits, member by member."""
        return super().head(
            self.size * num_classes, dtype=dtype, kernel_init=kernel_init
        )
