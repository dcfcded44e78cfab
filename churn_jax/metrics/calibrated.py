"""Temperature scaling, and scores of probabilities at the fitted temperature.

Temperature changes every score but accuracy: a positive factor does not move the arg
max. Two models compared at their own best temperatures differ in their predictions and
not in their overconfidence. There are two protocols, whose numbers must not be mixed:
the temperature is fitted on a validation split (`calibrated_...`), or on one half of
the test split for the other half (`two_fold_calibrated_scores`).
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from churn_jax._checks import check_labels, check_logits
from churn_jax.divergences import log_probs
from churn_jax.metrics.calibration import expected_calibration_error
from churn_jax.metrics.scoring import brier_score, negative_log_likelihood
from churn_jax.metrics.state import valid_examples
from churn_jax.typing import Labels, Logits, Mask, PRNGKey, Scalar

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
        A float32 scalar in `[exp(-7), exp(7)]`; nan without a valid example. At the
        lower end no prediction is wrong, at the upper one the logits are useless.
        Divide other logits of the same model by it.

    Raises:
        ValueError: labels or mask do not fit the logits.

    Notes:
        Log-probabilities of an ensemble (`average_probs`) are logits here as anywhere.
        A logit of -inf keeps its probability 0 at every temperature.

    Example:
        >>> import jax.numpy as jnp
        >>> z = jnp.array([[2.0, 0.0], [2.0, 0.0], [2.0, 0.0], [2.0, 0.0]])
        >>> labels = jnp.array([0, 0, 0, 1])  # right 3 times in 4: log 3 = 2 / T
        >>> f"{fit_temperature(z, labels):.4f}"
        '1.8205'

    References:
        [diversity] Eq. 16
    """
    check_logits(logits=logits)
    labels = jnp.asarray(labels)
    check_labels(labels, logits)
    valid = valid_examples(mask, labels.shape)
    z = jnp.asarray(logits).astype(jnp.float32)
    possible = z > -jnp.inf
    # Shifted so that the largest is 0: the same distribution, and no large terms.
    z = z - jnp.max(z, axis=-1, keepdims=True)
    finite = jnp.where(possible, z, 0.0)
    at_label = jnp.take_along_axis(finite, labels[..., None], axis=-1)[..., 0]

    def slope(log_inverse):
        scaled = jnp.where(possible, jnp.exp(log_inverse) * finite, -jnp.inf)
        expected = jnp.sum(jax.nn.softmax(scaled, axis=-1) * finite, axis=-1)
        return jnp.sum(jnp.where(valid, expected - at_label, 0.0))

    def halve(_, bounds):
        low, high = bounds
        middle = 0.5 * (low + high)
        above = slope(middle) > 0.0  # the minimum is at a smaller inverse temperature
        return jnp.where(above, low, middle), jnp.where(above, middle, high)

    start = (jnp.float32(-_LOG_RANGE), jnp.float32(_LOG_RANGE))
    low, high = jax.lax.fori_loop(0, _HALVINGS, halve, start)
    temperature = jnp.exp(-0.5 * (low + high))
    return jnp.where(jnp.any(valid), temperature, jnp.nan)


def _calibrated(logits, validation_logits, validation_labels, validation_mask):
    """`logits / T` and T, fitted on the validation split."""
    check_logits(logits=logits, validation_logits=validation_logits)
    if jnp.shape(logits)[-1] != jnp.shape(validation_logits)[-1]:
        raise ValueError(
            "logits and validation_logits must have the same classes; got shapes "
            f"{jnp.shape(logits)} and {jnp.shape(validation_logits)}"
        )
    check_labels(validation_labels, validation_logits, logits_name="validation_logits")
    temperature = fit_temperature(validation_logits, validation_labels, validation_mask)
    # Normalised first: a quotient of large logits would be rounded.
    return log_probs(logits) / temperature, temperature


def calibrated_negative_log_likelihood(
    logits: Logits,
    labels: Labels,
    *,
    validation_logits: Logits,
    validation_labels: Labels,
    validation_mask: Mask | None = None,
    mask: Mask | None = None,
) -> Scalar:
    """Mean of `-log softmax(z / T)(label)`, with T fitted on a validation split.

    Args:
        As in `calibrated_scores`, which gives all scores for one fit; errors as there.

    Returns:
        A float32 scalar in nats; nan without a valid example in either split.

    Example:
        >>> import jax.numpy as jnp
        >>> z, labels = jnp.array([[2.0, 0.0]] * 4), jnp.array([0, 0, 0, 1])
        >>> nll = calibrated_negative_log_likelihood(  # at p = 3/4 for class 0
        ...     z, labels, validation_logits=z, validation_labels=labels
        ... )
        >>> f"{nll:.4f}"
        '0.5623'

    References:
        [diversity] Eq. 17
    """
    scaled, _ = _calibrated(
        logits, validation_logits, validation_labels, validation_mask
    )
    return negative_log_likelihood(scaled, labels, mask)


def calibrated_brier_score(
    logits: Logits,
    labels: Labels,
    *,
    validation_logits: Logits,
    validation_labels: Labels,
    validation_mask: Mask | None = None,
    mask: Mask | None = None,
) -> Scalar:
    """Mean of `sum_j (softmax(z / T)_j - [j = label])^2`, T from a validation split.

    Args:
        As in `calibrated_scores`, which gives all scores for one fit; errors as there.

    Returns:
        A float32 scalar in [0, 2]; nan without a valid example in either split.

    Notes:
        The temperature is still the likelihood's and not the one that this score is
        smallest at.

    Example:
        >>> import jax.numpy as jnp
        >>> z, labels = jnp.array([[2.0, 0.0]] * 4), jnp.array([0, 0, 0, 1])
        >>> brier = calibrated_brier_score(  # 3/4 * 2/16 + 1/4 * 18/16
        ...     z, labels, validation_logits=z, validation_labels=labels
        ... )
        >>> f"{brier:.4f}"
        '0.3750'

    References:
        [diversity] Eq. 17
    """
    scaled, _ = _calibrated(
        logits, validation_logits, validation_labels, validation_mask
    )
    return brier_score(scaled, labels, mask)


def calibrated_expected_calibration_error(
    logits: Logits,
    labels: Labels,
    *,
    validation_logits: Logits,
    validation_labels: Labels,
    num_bins: int = 15,
    validation_mask: Mask | None = None,
    mask: Mask | None = None,
) -> Scalar:
    """`expected_calibration_error` of `z / T`, with T fitted on a validation split.

    Args:
        As in `calibrated_scores`, which gives all scores for one fit; errors as there.

    Returns:
        A float32 scalar in [0, 1]; nan without a valid example in either split.

    Notes:
        The temperature is the likelihood's; it need not make this error smaller.

    Example:
        >>> import jax.numpy as jnp
        >>> z, labels = jnp.array([[2.0, 0.0]] * 4), jnp.array([0, 0, 0, 1])
        >>> ece = calibrated_expected_calibration_error(
        ...     z, labels, validation_logits=z, validation_labels=labels
        ... )
        >>> f"{ece:.3f}"  # right 3 times in 4, and sure to 3/4
        '0.000'

    References:
        [diversity] Eq. 17
    """
    scaled, _ = _calibrated(
        logits, validation_logits, validation_labels, validation_mask
    )
    return expected_calibration_error(scaled, labels, num_bins, mask)


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
        valid example in either split.

    Raises:
        ValueError: labels, masks or numbers of classes do not fit together, or no bin.

    Notes:
        Accuracy is not among them: it is the same at every temperature. All of `logits`
        counts as one model with one temperature. For runs or replicas `[R, N, C]` use
        `jax.vmap`, which fits one for each. An ensemble is one model: give it the
        log of its mean probabilities. A gradient takes the temperature as a constant.

    Example:
        >>> import jax.numpy as jnp
        >>> z, labels = jnp.array([[2.0, 0.0]] * 4), jnp.array([0, 0, 0, 1])
        >>> scores = calibrated_scores(
        ...     z, labels, validation_logits=z, validation_labels=labels
        ... )
        >>> f"{scores.temperature:.4f} {scores.negative_log_likelihood:.4f}"
        '1.8205 0.5623'

    References:
        [diversity] Eqs. 16, 17
    """
    scaled, temperature = _calibrated(
        logits, validation_logits, validation_labels, validation_mask
    )
    return _scores(scaled, labels, temperature, num_bins, mask)


def _scores(scaled, labels, temperature, num_bins, mask) -> CalibratedScores:
    return CalibratedScores(
        temperature,
        negative_log_likelihood(scaled, labels, mask),
        brier_score(scaled, labels, mask),
        expected_calibration_error(scaled, labels, num_bins, mask),
    )


def two_fold_calibrated_scores(
    logits: Logits,
    labels: Labels,
    key: PRNGKey,
    *,
    repeats: int = 5,
    num_bins: int = 15,
    mask: Mask | None = None,
) -> CalibratedScores:
    """Calibrated scores by cross-validation on the test split: it reads test labels.

    The examples are halved at random; the temperature that suits one half scales the
    other one, which is scored, and the other way round. The mean of both scores, over
    `repeats` such halvings.

    Args:
        logits: `[..., C]`.
        labels: `[...]` class ids, which the temperatures are fitted to as well.
        key: draws the halves.
        repeats: number of halvings, static.
        num_bins: number of bins of the calibration error, static. With half the
            examples this error is biased upwards more than on all of them.
        mask: `[...]` valid examples.

    Returns:
        `CalibratedScores` of float32 scalars, each a mean over `2 * repeats` folds; nan
        with fewer than two valid examples.

    Raises:
        ValueError: labels or mask do not fit, there is no bin or no halving.

    Notes:
        For a test split that no validation split goes with, and to compare with results
        that were published so. It is not the protocol of [diversity], which fits on the
        validation split: `calibrated_scores`. The halves are not stratified by class.
        They depend on the shape, so padding changes which examples are drawn.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> z, labels = jnp.array([[2.0, 0.0]] * 4), jnp.array([0, 0, 0, 1])
        >>> z, labels = jnp.tile(z, (500, 1)), jnp.tile(labels, 500)
        >>> scores = two_fold_calibrated_scores(z, labels, jax.random.key(0))
        >>> f"{scores.negative_log_likelihood:.2f}"
        '0.56'

    References:
        [pitfalls] Sec. 3 -- Ashukha et al., Pitfalls of In-Domain Uncertainty
        Estimation and Ensembling in Deep Learning, ICLR 2020.
        https://arxiv.org/abs/2002.06470
    """
    if repeats < 1:
        raise ValueError(f"repeats must be at least 1; got {repeats}")
    check_logits(logits=logits)
    check_labels(labels, logits)
    z, labels = log_probs(logits), jnp.asarray(labels)
    valid = valid_examples(mask, labels.shape)
    examples = jnp.sum(valid, dtype=jnp.int32)

    def one_halving(key):
        # Invalid examples are drawn last, so the valid ones fall into equal halves.
        draws = jnp.where(valid, jax.random.uniform(key, valid.shape), 2.0)
        places = jnp.argsort(jnp.argsort(draws.ravel())).reshape(valid.shape)
        first = valid & (places < examples // 2)
        folds = [
            _scores(z / temperature, labels, temperature, num_bins, scored)
            for fitted, scored in ((first, valid & ~first), (valid & ~first, first))
            for temperature in [fit_temperature(z, labels, fitted)]
        ]
        return jax.tree.map(lambda a, b: 0.5 * (a + b), *folds)

    every = jax.lax.map(one_halving, jax.random.split(key, repeats))
    return CalibratedScores(*(jnp.mean(values) for values in every))
