"""Array aliases used in every signature; the axis letters are those of the docs.

`R` replicas, `M` members, `T` teacher members, `B` batch, `N` evaluation examples,
`C` classes, `D` features, `K` top-k. The order is always `[R, M, B, C]`.
"""

from jax import Array
from jaxtyping import Bool, Float, Int, Key, Num, Shaped

Logits = Float[Array, "*batch C"]
"""Unnormalised log-probabilities, class axis last."""

Targets = Float[Array, "*batch C"]
"""A distribution over classes."""

Labels = Int[Array, "*batch"]
"""Integer class ids."""

Mask = Bool[Array, "*batch"] | Num[Array, "*batch"]
"""Valid examples: bool, or 0 and 1; of numbers under `jit`, 0 alone is not valid."""

PerExample = Float[Array, "*batch"]
"""One float32 value per example."""

Scalar = Shaped[Array, ""]
"""A single number."""

PRNGKey = Key[Array, ""]
"""A typed PRNG key (`jax.random.key`)."""
