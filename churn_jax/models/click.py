"""Click models: towers of narrowing layers over embedded categories and numbers.

The embedding tables are not parameters of the network. Their rows are looked up
outside and come in as an input, so that a training step can differentiate with
respect to the rows of the batch and never touches a whole table
(`churn_jax.training.clicks`).
"""

import dataclasses
import itertools
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from churn_jax.models.layers import activation
from churn_jax.setting_checks import check_settings
from churn_jax.typing import Array, PRNGKey

_KERNEL = nn.initializers.variance_scaling(1.0, "fan_in", "truncated_normal")
# Standard deviation of a standard normal cut at two.
_CUT_STDDEV = 0.87962566103423978


@dataclasses.dataclass(frozen=True)
class ClickModel:
    """A click model's configuration.

    One fused table holds the rows of all fields, field after field. A row is `width`
    numbers wide: one embedding per table set, each followed by its linear weight
    where the model has a wide part.

    Attributes:
        sizes: rows of each categorical field's table.
        numeric: number of numeric features.
        embedding_dim: D, of every field.
        features: widths of a tower's hidden layers, bottom first.
        components: K, towers with their own weights.
        shared_embeddings: one set of tables for all towers instead of one each.
        wide: adds a linear part over one-dimensional embeddings and the numbers to
            every tower's score.
        gate: a learned gate weights the components, example by example.
        component_fields: the categorical fields that each component sees, by
            position; empty for all. Numeric features reach every component.
        activation: name of the hidden layers' activation, see
            `churn_jax.models.activation`.

    Raises:
        ValueError: a number or a field is out of range.

    Example:
        >>> model = ClickModel(sizes=(10, 4), numeric=2, components=3)
        >>> model.rows, model.offsets, model.width
        (14, (0, 10), 24)

    References:
        [anti-distillation] Sec. 5 -- Shamir and Coviello, Anti-Distillation: Improving
        Reproducibility of Deep Networks, 2020. https://arxiv.org/abs/2010.09923
    """

    sizes: tuple[int, ...]
    numeric: int = 0
    embedding_dim: int = 8
    features: tuple[int, ...] = (64, 32, 16)
    components: int = 3
    shared_embeddings: bool = False
    wide: bool = False
    gate: bool = False
    component_fields: tuple[tuple[int, ...], ...] = ()
    activation: str = "relu"

    def __post_init__(self):
        """Checks numbers and fields."""
        if not self.sizes or min(self.sizes) < 1:
            raise ValueError(
                "sizes must hold at least one categorical field, each with at least "
                f"one row; got {self.sizes}"
            )
        activation(self.activation)
        check_settings(self, numeric=0, embedding_dim=1, components=1)
        if any(width < 1 for width in self.features):
            raise ValueError(f"features must be positive widths; got {self.features}")
        if sum(self.sizes) >= 2**31:
            raise ValueError(
                f"all tables together must have fewer than 2^31 rows; got {self.rows}"
            )
        if not self.component_fields:
            return
        if len(self.component_fields) != self.components:
            raise ValueError(
                f"component_fields must be empty or one tuple for each of the "
                f"{self.components} components; got {len(self.component_fields)}"
            )
        known = set(range(len(self.sizes)))
        for component, fields in enumerate(self.component_fields):
            if not set(fields) <= known or not (fields or self.numeric):
                raise ValueError(
                    f"component {component} must see fields between 0 and "
                    f"{len(self.sizes) - 1}; got {fields}"
                )

    @property
    def tables(self) -> int:
        """Sets of tables: one, or one for every component."""
        return 1 if self.shared_embeddings else self.components

    @property
    def rows(self) -> int:
        """Rows of the fused table, V."""
        return sum(self.sizes)

    @property
    def offsets(self) -> tuple[int, ...]:
        """Where each field's rows begin in the fused table."""
        return (0, *itertools.accumulate(self.sizes[:-1]))

    @property
    def width(self) -> int:
        """Numbers in a row of the fused table."""
        return self.tables * (self.embedding_dim + self.wide)

    def field_mask(self) -> Array | None:
        """`[K, F]` float32, which field a component sees; None where it is all."""
        if not self.component_fields:
            return None
        return jnp.asarray(
            [
                [float(f in fields) for f in range(len(self.sizes))]
                for fields in self.component_fields
            ],
            jnp.float32,
        )

    def split_rows(self, rows: Array) -> Array:
        """Rows of the fused table `[B, F, width]` as the network takes them.

        Returns:
            `[T, B, F, D]`, or `[T, B, F, D + 1]` with a wide part; T is `tables`.
        """
        lead = rows.shape[:-1]
        return jnp.moveaxis(rows.reshape(*lead, self.tables, -1), -2, 0)


class ClickOutput(NamedTuple):
    """The output of a click model for a batch."""

    logits: Array  # [K, B, 2] float32, `[0, score]` of every component
    part: Array | None = None  # of the deep towers alone; None without a wide part
    gate: Array | None = None  # [K, B] float32 log-weights of the components
    features: Array | None = None  # [K, B, D], inputs of the towers' last layers


def _two_classes(scores: Array) -> Array:
    """`[0, z]`, the logits of a binary score."""
    scores = scores.astype(jnp.float32)
    return jnp.stack([jnp.zeros_like(scores), scores], axis=-1)


class _Tower(nn.Module):
    """One component: score `[B]`, deep score `[B]` and last hidden layer `[B, D]`."""

    model: ClickModel

    @nn.compact
    def __call__(self, rows: Array, numeric: Array, seen: Array | None):
        if seen is not None:
            rows = rows * seen[:, None][None]
        batch = rows.shape[0]
        embedded = rows[..., : self.model.embedding_dim].reshape(batch, -1)
        x = jnp.concatenate([embedded, numeric], axis=-1)
        for layer, width in enumerate(self.model.features, start=1):
            x = nn.Dense(width, kernel_init=_KERNEL, name=f"dense{layer}")(x)
            x = activation(self.model.activation)(x)
        deep = nn.Dense(1, kernel_init=_KERNEL, name="head")(x)[:, 0]
        if not self.model.wide:
            return deep, deep, x
        linear = jnp.sum(rows[..., -1], axis=-1)
        if self.model.numeric:
            weights = nn.Dense(
                1, use_bias=False, kernel_init=nn.initializers.zeros_init(), name="wide"
            )
            linear = linear + weights(numeric)[:, 0]
        return deep + linear, deep, x


class ClickNetwork(nn.Module):
    """K towers, each with a single score, and a gate where the model has one.

    Kernels are truncated normal with variance 1 / fan-in and biases zero: "truncated
    normal initialization with a standard variance normalized by the layer width". The
    weights of the wide part and of the gate start at zero, so that at first the deep
    towers predict alone and weigh the same. The gate reads the embeddings (averaged
    over the sets of tables) and the numbers but does not train them, as the paper stops
    the ensemble's gradient before the components.
    """

    model: ClickModel

    @nn.compact
    def __call__(self, rows: Array, numeric: Array) -> ClickOutput:
        """The output for rows `[T, B, F, D (+ 1)]` and numbers `[B, numeric]`."""
        model = self.model
        last = model.embedding_dim + model.wide
        expected = (model.tables, rows.shape[1], len(model.sizes), last)
        if rows.shape != expected or numeric.shape != (rows.shape[1], model.numeric):
            raise ValueError(
                f"rows and numeric must be [T, B, F, D] {expected} and [B, "
                f"{model.numeric}]; got {rows.shape} and {numeric.shape}"
            )
        seen = model.field_mask()
        towers = nn.vmap(
            _Tower,
            variable_axes={"params": 0},
            split_rngs={"params": True},
            in_axes=(
                None if model.shared_embeddings else 0,
                None,
                None if seen is None else 0,
            ),
            axis_size=model.components,
        )(model, name="towers")
        given = rows[0] if model.shared_embeddings else rows
        score, deep, features = towers(given, numeric, seen)
        weights = None
        if model.gate:
            embedded = jnp.mean(rows[..., : model.embedding_dim], axis=0)
            x = jnp.concatenate(
                [embedded.reshape(embedded.shape[0], -1), numeric], axis=-1
            )
            x = nn.Dense(
                model.components, kernel_init=nn.initializers.zeros_init(), name="gate"
            )(jax.lax.stop_gradient(x))
            weights = jax.nn.log_softmax(x.astype(jnp.float32).T, axis=0)
        part = _two_classes(deep) if model.wide else None
        return ClickOutput(_two_classes(score), part, weights, features)


def init_table(
    model: ClickModel, key: PRNGKey, input_scale: float | Array = 1.0
) -> Array:
    """The fused table of a replica before training, `[V, width]`.

    Embeddings are drawn like hidden weights, truncated normal, and their variance is
    scaled: `v ~ sqrt(s / D) N`; "normalised by the layer width" is read as 1 / D.
    Linear weights of a wide part start at zero. A component's numbers do not depend on
    the number of components.
    """
    shape = (model.rows, model.embedding_dim)
    stddev = jnp.sqrt(jnp.asarray(input_scale, jnp.float32) / model.embedding_dim)

    def draw(number):
        own = jax.random.fold_in(key, number)
        drawn = jax.random.truncated_normal(own, -2.0, 2.0, shape, jnp.float32)
        drawn = drawn * (stddev / _CUT_STDDEV)
        return jnp.pad(drawn, ((0, 0), (0, int(model.wide))))

    return jnp.concatenate([draw(t) for t in range(model.tables)], axis=1)
