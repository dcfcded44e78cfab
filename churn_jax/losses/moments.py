"""Second moments of the members' outputs over the global batch, and running ones.

The batch-coupled losses share these: padding is zeroed before anything is computed,
sums are added over the devices (`axis_name`) before they are divided by the number of
valid examples of the *global* batch, and the off-diagonal entries are selected, never
found by subtracting the diagonal (`inf - inf` would hide which term diverged).
"""

import dataclasses
import functools
import math
from typing import NamedTuple, Self

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Float

from churn_jax._checks import check_mask, known_number
from churn_jax.setting_checks import check_share
from churn_jax.typing import Array, Mask, Scalar

MemberOutputs = Float[Array, "M B *classes"]
"""One signal per member and example: logits, probabilities or part of a network."""

AxisName = str | tuple[str, ...] | None
"""Mapped axes that share the batch; None where the array holds the whole batch."""


class Examples(NamedTuple):
    """The valid examples of a batch; K is the number of classes."""

    values: Array  # [M, B, K] float32, 0 in padded rows
    valid: Array  # [1, B, 1] bool
    count: Scalar  # valid examples of the global batch, at least 1, float32
    any_valid: Scalar  # bool


def sum_over_devices(x: Array, axis_name: AxisName) -> Array:
    """`x` added over the mapped axes that share the batch."""
    return x if axis_name is None else jax.lax.psum(x, axis_name)


def gather_examples(
    outputs: MemberOutputs, mask: Mask | None, axis_name: AxisName, *, least: int = 2
) -> Examples:
    """The checked outputs of at least `least` members, without the padding."""
    shape = tuple(jnp.shape(outputs))
    if len(shape) < 2 or shape[0] < least:
        raise ValueError(
            f"outputs must be [M, B, ...] with at least {least} members on the first "
            f"axis; got shape {shape}"
        )
    if not jnp.issubdtype(jnp.result_type(outputs), jnp.floating):
        raise TypeError(
            f"outputs must be floating point; got {jnp.result_type(outputs)}"
        )
    members, size = shape[:2]
    check_mask(mask, (size,))
    classes = math.prod(shape[2:])  # not -1: there may be no example
    values = jnp.asarray(outputs).astype(jnp.float32).reshape(members, size, classes)
    if mask is None:
        valid = jnp.ones((1, size, 1), jnp.bool_)
    else:
        valid = jnp.asarray(mask).astype(jnp.bool_).reshape(1, size, 1)
    count = sum_over_devices(jnp.sum(valid, dtype=jnp.float32), axis_name)
    # Selected, not multiplied: what a padded row holds reaches neither value nor
    # gradient, nan and inf included.
    return Examples(
        jnp.where(valid, values, 0.0), valid, jnp.maximum(count, 1.0), count > 0
    )


def batch_mean(examples: Examples, axis_name: AxisName) -> Array:
    """Mean output of each member and class over the global batch, `[M, 1, K]`."""
    total = jnp.sum(examples.values, axis=1, keepdims=True)
    return sum_over_devices(total, axis_name) / examples.count


def inner_products(a: Array, b: Array, axis_name: AxisName) -> Array:
    """`sum_t a_it b_jt` over the global batch per class; `[M, B, K]` to `[K, M, M]`."""
    whole, sharding = None, jax.typeof(a).sharding
    if any(axis is not None for axis in sharding.spec):
        # On meshes with explicit axes the type says how the batch is sharded; then a
        # product over the batch must say how its result is.
        everywhere = jax.sharding.PartitionSpec(None, None, None)
        whole = jax.sharding.NamedSharding(sharding.mesh, everywhere)
    local = jnp.einsum(
        "ibk,jbk->kij", a, b, precision=jax.lax.Precision.HIGHEST, out_sharding=whole
    )
    return sum_over_devices(local, axis_name)


def second_moments(values: Array, count: Scalar, axis_name: AxisName) -> Array:
    """`1/k sum_t v_it v_jt` for every class; `[M, B, K]` to `[K, M, M]` float32."""
    return inner_products(values, values, axis_name) / count


def covariances(examples: Examples, mean: Array, axis_name: AxisName) -> Array:
    """Second moments around `mean [M, 1, K]`, in two passes; `[K, M, M]`."""
    # The mean is subtracted from the outputs, not its square from their second moment:
    # no digits are lost where the mean is large compared with the spread.
    centred = jnp.where(examples.valid, examples.values - mean, 0.0)
    return second_moments(centred, examples.count, axis_name)


def half_squared_off_diagonal(matrix: Array) -> Scalar:
    """`1/2 sum_k (||A_k||_F^2 - ||diag(A_k)||_F^2)`; `[K, M, M]` to a scalar."""
    diagonal = jnp.eye(matrix.shape[-1], dtype=jnp.bool_)[None]
    return 0.5 * jnp.sum(jnp.square(jnp.where(diagonal, 0.0, matrix)))


class RunningPenalty(NamedTuple):
    """Result of `running_correlation_penalty`; unpacks as `penalty, state`."""

    penalty: Scalar
    state: "MomentState"


# Not `flax.struct`: importing flax loads far more than a loss needs.
@functools.partial(
    jax.tree_util.register_dataclass,
    data_fields=["weight", "mean", "second", "covariance"],
    meta_fields=[],
)
@dataclasses.dataclass(frozen=True)
class MomentState:
    """Exponentially decaying moments of the members' outputs across mini-batches.

    With the current batch's share `a = (1 - d) / (1 - d^t)` at update t (`d` is the
    decay), `estimate_t = (1 - a) estimate_(t-1) + a batch_t`. That is the usual
    decaying average divided by `1 - d^t`, so it is unbiased from the first batch on.

    Example:
        >>> state = MomentState.empty(2)
        >>> state = state.update(jnp.array([[1.0, 2.0], [3.0, -1.0]]), decay=0.9)
        >>> f"{state.second[0, 0, 1]:.4f} {state.weight:.4f}"
        '0.5000 0.1000'

    Notes:
        Batches count alike, whatever their number of valid examples; one without any
        changes nothing. Nothing here is differentiated.

    References:
        [anti-distillation] Sec. 4
    """

    weight: Array  # scalar, `1 - d^t`; 0 before the first batch
    mean: Array  # `[M, 1, K]`, K the number of classes
    second: Array  # `[K, M, M]` uncentred second moments
    # `[K, M, M]` moments around the running mean, by the update that loses no digits:
    # `(1 - a) old + a batch + a (1 - a) D D^T`, `D` the difference of the two means
    covariance: Array

    @classmethod
    def empty(cls, members: int, classes_shape: tuple[int, ...] = ()) -> Self:
        """No batch yet, for outputs `[members, B, *classes_shape]`."""
        classes = math.prod(classes_shape)
        return cls(
            weight=jnp.zeros((), jnp.float32),
            mean=jnp.zeros((members, 1, classes), jnp.float32),
            second=jnp.zeros((classes, members, members), jnp.float32),
            covariance=jnp.zeros((classes, members, members), jnp.float32),
        )

    def update(
        self,
        outputs: MemberOutputs,
        decay: ArrayLike,
        mask: Mask | None = None,
        axis_name: AxisName = None,
    ) -> Self:
        """This state and one more batch `[M, B, ...]`; no gradient passes.

        Raises:
            ValueError: the outputs, the mask or the decay do not fit.
        """
        examples = gather_examples(outputs, mask, axis_name, least=1)
        return jax.lax.stop_gradient(self._blend(examples, decay, axis_name)[0])

    def _blend(
        self, examples: Examples, decay: ArrayLike, axis_name: AxisName
    ) -> tuple[Self, Scalar]:
        """The next state, differentiable in the batch, and the batch's share in it."""
        check_share("decay", known_number(decay, 0.0))
        members, _, classes = examples.values.shape
        if self.second.shape != (classes, members, members):
            raise ValueError(
                f"outputs have {members} members and {classes} classes; the state is "
                f"for {self.second.shape[1]} and {self.second.shape[0]}"
            )
        old = jax.lax.stop_gradient(self)
        decay = jnp.asarray(decay, jnp.float32)
        weight = decay * old.weight + (1.0 - decay)
        share = jnp.where(examples.any_valid, (1.0 - decay) / weight, 0.0)

        def blend(before, now):
            # A share of exactly 1 (decay 0, or the first batch) is the batch itself:
            # `0 * before + 1 * now` is nan where `before` is infinite.
            mixed = (1.0 - share) * before + share * now
            return jnp.where(share == 1.0, now, mixed)

        mean = batch_mean(examples, axis_name)
        second = second_moments(examples.values, examples.count, axis_name)
        batch_covariance = covariances(examples, mean, axis_name)
        drift = jnp.where(share == 1.0, 0.0, mean - old.mean)  # as in `blend`
        drift = jnp.transpose(drift, (2, 0, 1))  # [K, M, 1]
        drift = drift * jnp.transpose(drift, (0, 2, 1))
        new = type(self)(
            weight=jnp.where(examples.any_valid, weight, old.weight),
            mean=blend(old.mean, mean),
            second=blend(old.second, second),
            covariance=blend(old.covariance, batch_covariance + (1.0 - share) * drift),
        )
        return new, share


@jax.custom_jvp
def _scale_gradient(x, factor):
    """`x`, whose derivative counts `factor` times."""
    del factor
    return x


@_scale_gradient.defjvp
def _scale_gradient_jvp(primals, tangents):
    x, factor = primals
    return x, tangents[0] * factor


def running_correlation_penalty(
    outputs: MemberOutputs,
    state: MomentState,
    decay: ArrayLike,
    mask: Mask | None = None,
    axis_name: AxisName = None,
    centred: bool = False,
) -> RunningPenalty:
    """Half the squared off-diagonal entries of a running correlation matrix.

    `L = 1/2 sum_c (||E_c||_F^2 - ||diag(E_c)||_F^2)` with the estimate
    `E = (1 - a) stop(E_old) + a C`, `C` the current batch's matrix and `a` its share
    (see `MomentState`).

    Args:
        outputs: `[M, B, ...]`, M at least 2.
        state: moments of the batches before this one.
        decay: in [0, 1); 0 forgets everything and equals `correlation_penalty`
            (`covariance_penalty` where `centred`) exactly.
        mask: `[B]` valid examples.
        axis_name: mapped axes that share the batch.
        centred: static; penalise the running covariance instead.

    Returns:
        The float32 penalty and the state with this batch in it, cut from the gradient.

    Raises:
        ValueError: the outputs, the mask, the state or the decay do not fit.
        TypeError: the outputs are not floating point.

    Example:
        >>> z = jnp.array([[1.0, 2.0], [3.0, -1.0]])
        >>> state = MomentState.empty(2)
        >>> first, state = running_correlation_penalty(z, state, 0.5)
        >>> second, state = running_correlation_penalty(-3.0 * z[:, ::-1], state, 0.5)
        >>> f"{first:.4f} {second:.4f}"
        '0.2500 10.0278'

    Notes:
        The gradient flows through the current batch only and is divided by `a`, about
        `1 - d`: it is `sum E_ij dC_ij`, of the size of the plain penalty's, so that
        lambda means the same for every decay. For the derivative of the value as
        written multiply it by `a`. The paper expects gains only for small batches and
        warns that the estimate lags behind: members that are decorrelated by now still
        pay for old batches. The first estimate is the first batch alone, for any decay.

    References:
        [anti-distillation] Sec. 4
    """
    examples = gather_examples(outputs, mask, axis_name)
    new, share = state._blend(examples, decay, axis_name)
    estimate = new.covariance if centred else new.second
    share = jnp.where(share > 0.0, share, 1.0)
    penalty = half_squared_off_diagonal(_scale_gradient(estimate, 1.0 / share))
    return RunningPenalty(penalty, jax.lax.stop_gradient(new))
