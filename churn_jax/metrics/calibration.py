"""Calibration of probabilities: its error in bins, and temperature scaling.

Temperature changes every score but accuracy: a positive factor does not move the arg
max. Two models compared at their own best temperatures differ in their predictions and
not in their overconfidence.
"""

from typing import NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from churn_jax._checks import check_labels, check_logits
from churn_jax.divergences import log_probs
from churn_jax.metrics.scoring import (
    brier_score,
    class_ids,
    is_correct,
    negative_log_likelihood,
)
from churn_jax.metrics.state import AdditiveState, LongSum, ratio, valid_examples
from churn_jax.typing import Array, Labels, Logits, Mask, PerExample, Scalar


def bin_of(shares: PerExample, num_bins: int) -> Array:
    """Index among equal bins of [0, 1], open left, closed right, `[...]` int32."""
    # Compared with the edges: ceil(share * num_bins) would round 3/15 up. A nan falls
    # into the first bin, where it is seen.
    edges = jnp.asarray(np.arange(1, num_bins) / num_bins, jnp.float32)
    above = shares[..., None] > edges.reshape((1,) * shares.ndim + (-1,))
    return jnp.sum(above, axis=-1, dtype=jnp.int32)


def in_bins(index: Array, num_bins: int) -> Array:
    """`index [...]` as `[..., num_bins]` bools."""
    bins = jnp.arange(num_bins, dtype=jnp.int32)
    return index[..., None] == bins.reshape((1,) * index.ndim + (-1,))


@struct.dataclass
class ECEState(AdditiveState):
    """Streamed `expected_calibration_error`; sums per bin.

    `examples [num_bins]` and `correct [num_bins]` are int32 counts, `confidence
    [num_bins]` the sum of the top probabilities. `empty(num_bins=...)` fixes the bins.
    """

    examples: jax.Array
    correct: jax.Array
    confidence: LongSum

    @classmethod
    def empty(cls, num_bins: int = 15) -> Self:  # pyrefly: ignore[bad-override]
        """No examples yet.

        Raises:
            ValueError: there is no bin.
        """
        return super().empty(num_bins=num_bins)

    def update(self, logits, labels, mask=None) -> Self:
        """Adds a batch; arguments as in `expected_calibration_error`."""
        right = is_correct(logits, labels)
        # The largest of many classes may be a number where one of them is nan.
        confidence = jnp.exp(jnp.max(log_probs(logits), axis=-1))
        confidence = jnp.where(jnp.isnan(right), jnp.nan, confidence)
        num_bins = self.examples.shape[-1]
        inside = in_bins(bin_of(confidence, num_bins), num_bins)
        confidence = jnp.where(inside, confidence[..., None], 0.0)
        return self.plus(mask, inside, inside & (right[..., None] == 1.0), confidence)

    def compute(self) -> Scalar:
        """The calibration error, float32; nan before the first valid example."""
        gaps = jnp.abs(self.correct.astype(jnp.float32) - self.confidence.value())
        return ratio(jnp.sum(gaps, axis=-1), jnp.sum(self.examples, -1, jnp.int32))


def expected_calibration_error(
    logits: Logits, labels: Labels, num_bins: int = 15, mask: Mask | None = None
) -> Scalar:
    """Expected calibration error of the top prediction (ECE).

    `sum_m |B_m| / N * |acc(B_m) - conf(B_m)|` with `M` bins of equal width over the
    top probability; bin m is `((m - 1)/M, m/M]`, open left, closed right.

    Args:
        logits: `[..., C]`.
        labels: `[...]` class ids; a valid example with another id gives nan.
        num_bins: M, static. The papers do not state theirs; 15 is usual.
        mask: `[...]` valid examples.

    Returns:
        A float32 scalar in [0, 1]; nan without a valid example.

    Raises:
        ValueError: labels or mask are not shaped like the examples, or no bin.

    Notes:
        Not differentiable across bin edges and biased upwards on few examples. Bins
        of equal mass do not add up over batches and are not offered here.

    Example:
        >>> logits = jnp.log(jnp.array([[0.75, 0.25], [0.75, 0.25]]))
        >>> f"{expected_calibration_error(logits, jnp.array([0, 1])):.2f}"
        '0.25'

    References:
        [reproducibility] Table 4
        [calibration] Eq. 3 -- Guo et al., On Calibration of Modern Neural Networks,
        ICML 2017. https://arxiv.org/abs/1706.04599
        [diversity] Eq. 15
    """
    return ECEState.empty(num_bins).update(logits, labels, mask).compute()


# exp(-7) to exp(7): beyond it the model is always right, or its logits are noise.
_LOG_RANGE = 7.0
_HALVINGS = 32  # of a range of 14: to 3e-9, finer than float32 tells apart


class CalibratedScores(NamedTuple):
    """A model's scores at the temperature that was fitted for it."""

    temperature: Scalar
    negative_log_likelihood: Scalar
    brier_score: Scalar
    expected_calibration_error: Scalar


def fit_temperature(logits: Logits, labels: Labels, mask: Mask | None = None) -> Scalar:
    r"""The temperature T that minimises the negative log-likelihood of `logits / T`.

    In the inverse temperature a = 1/T the likelihood is convex, so its minimum is
    where the derivative `1/N sum_n (E_{softmax(a z_n)}[z_n] - z_n(y_n))` crosses zero:
    found by bisection, without a learning rate and without a starting point.

    Args:
        logits: `[..., C]` of a split that nothing else is chosen on (validation).
        labels: `[...]` class ids.
        mask: `[...]` valid examples.

    Returns:
        A float32 scalar in `[exp(-7), exp(7)]`; nan without a valid example, or where a
        valid one has nan, another label or a label with logit -inf. At the lower end no
        prediction is wrong or all logits are equal, at the upper one the logits are
        useless. Divide other logits of the model by it.

    Raises:
        ValueError: labels or mask do not fit the logits.

    Notes:
        Log-probabilities of an ensemble (`average_probs`) are logits here as anywhere.
        A logit of -inf keeps its probability 0 at every temperature.

    Example:
        >>> z = jnp.array([[2.0, 0.0], [2.0, 0.0], [2.0, 0.0], [2.0, 0.0]])
        >>> labels = jnp.array([0, 0, 0, 1])  # right 3 times in 4: log 3 = 2 / T
        >>> f"{fit_temperature(z, labels):.4f}"
        '1.8205'

    References:
        [diversity] Eq. 16
    """
    check_logits(logits=logits)
    check_labels(labels, logits)
    labels = class_ids(labels)
    valid = valid_examples(mask, labels.shape)
    z = jnp.asarray(logits).astype(jnp.float32)
    possible = z > -jnp.inf
    # Shifted so that the largest is 0: the same distribution, and no large terms.
    z = z - jnp.max(z, axis=-1, keepdims=True)
    finite = jnp.where(possible, z, 0.0)
    at_label = jnp.take_along_axis(z, labels[..., None], axis=-1)[..., 0]
    # No temperature fits a label that is ruled out; -1 is no label, as C is none.
    at_label = jnp.where((labels < 0) | (at_label == -jnp.inf), jnp.nan, at_label)

    def slope(log_inverse):
        scaled = jnp.where(possible, jnp.exp(log_inverse) * finite, -jnp.inf)
        expected = jnp.sum(jax.nn.softmax(scaled, axis=-1) * finite, axis=-1)
        return jnp.sum(jnp.where(valid, expected - at_label, 0.0))

    def halve(i, log_inverse):
        rises = slope(log_inverse)  # then the minimum is at a smaller one; nan stays
        towards = jnp.where(rises == 0.0, 1.0, -jnp.sign(rises))
        return log_inverse + towards * jnp.ldexp(jnp.float32(_LOG_RANGE), -1 - i)

    log_inverse = jax.lax.fori_loop(0, _HALVINGS, halve, jnp.float32(0.0))
    return jnp.where(jnp.any(valid), jnp.exp(-log_inverse), jnp.nan)


def calibrated_scores(
    logits: Logits,
    labels: Labels,
    *,
    validation_logits: Logits,
    validation_labels: Labels,
    num_bins: int = 15,
    validation_mask: Mask | None = None,
    mask: Mask | None = None,
) -> CalibratedScores:
    """NLL, Brier score and ECE of `z / T`, with T fitted on a validation split.

    `T = argmin_T -1/N sum_n log softmax(z_n / T)(y_n)` over the validation split, once
    for all three scores.

    Args:
        logits: `[..., C]` of the split that is scored.
        labels: `[...]` class ids.
        validation_logits: `[..., C]` of the same model on a split that it was not
            trained on, and that is not the one scored.
        validation_labels: class ids of that split.
        num_bins: number of bins of the calibration error, static.
        validation_mask: valid examples of the validation split.
        mask: `[...]` valid examples of `logits`.

    Returns:
        `CalibratedScores(temperature, negative_log_likelihood, brier_score,
        expected_calibration_error)`, float32 scalars; the scores are nan without a
        valid example in either split, or where `fit_temperature` is nan.

    Raises:
        ValueError: labels, masks or numbers of classes do not fit together, or no bin.

    Notes:
        Accuracy is not among them: it is the same at every temperature. The temperature
        is the likelihood's and need not make the other scores smaller. All of `logits`
        counts as one model with one temperature. For runs or replicas `[R, N, C]` use
        `jax.vmap`, which fits one for each. An ensemble is one model: give it the
        log of its mean probabilities. A gradient takes the temperature as a constant.

    Example:
        >>> z, labels = jnp.array([[2.0, 0.0]] * 4), jnp.array([0, 0, 0, 1])
        >>> scores = calibrated_scores(
        ...     z, labels, validation_logits=z, validation_labels=labels
        ... )
        >>> f"{scores.temperature:.4f} {scores.negative_log_likelihood:.4f}"
        '1.8205 0.5623'

    References:
        [diversity] Eqs. 16, 17
    """
    check_logits(logits=logits)
    check_logits(validation_logits=validation_logits)
    if jnp.shape(logits)[-1] != jnp.shape(validation_logits)[-1]:
        raise ValueError(
            "logits and validation_logits must have the same classes; got shapes "
            f"{jnp.shape(logits)} and {jnp.shape(validation_logits)}"
        )
    check_labels(validation_labels, validation_logits, logits_name="validation_logits")
    temperature = fit_temperature(validation_logits, validation_labels, validation_mask)
    # Normalised first: a quotient of large logits would be rounded.
    scaled = log_probs(logits) / temperature
    return CalibratedScores(
        temperature,
        negative_log_likelihood(scaled, labels, mask),
        brier_score(scaled, labels, mask),
        expected_calibration_error(scaled, labels, num_bins, mask),
    )
