"""How many independent networks a model is worth: the deep-ensemble equivalent."""

import itertools
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from churn_jax._checks import check_labels, check_logits
from churn_jax.divergences import log_probs
from churn_jax.metrics.calibration import fit_temperature
from churn_jax.metrics.scoring import negative_log_likelihood
from churn_jax.typing import Array, Labels, Logits, Mask

# 255 subsets of 8 members: beyond it, every further member doubles the work.
_MOST_FOR_ALL_SUBSETS = 8


class DeepEnsembleEquivalent(NamedTuple):
    """The size of an equally good ensemble, and whether the curve reaches so far."""

    value: Array
    below: Array
    saturated: Array


def deep_ensemble_equivalent(
    nll: Array, ensemble_nlls: Array
) -> DeepEnsembleEquivalent:
    """Smallest number of independent networks whose ensemble is as good (DEE).

    `min { m >= 1 : NLL(m) <= nll }`, with `NLL(m)` linear between whole sizes.

    Args:
        nll: `[...]` negative log-likelihoods of the models in question; calibrated if
            the curve is.
        ensemble_nlls: `[M]`, of deep ensembles of 1 to M members, in this order, on the
            same examples; `ensemble_reference_curve` gives it.

    Returns:
        `DeepEnsembleEquivalent(value, below, saturated)`, each `[...]`: the size in
        [1, M], float32; whether the model is worse than one network (the value is then
        1); whether it is better than every ensemble (the value is then M, and the true
        one larger). A `nll` of nan gives nan and no flag.

    Raises:
        ValueError: no ensemble, a curve that is not `[M]`, or one that is not finite.
            Under `jit` its numbers cannot be looked at and all values are nan instead.

    Notes:
        A measured curve need not fall everywhere. The minimum in the equation is taken
        literally: where the curve passes `nll` more than once, the first time counts.
        For a band, give the curve moved up and down by its deviation over runs. The
        gradient is that of the segment the model lands on; 0 at both ends.

    Example:
        >>> curve = jnp.array([0.789, 0.708, 0.673, 0.655])
        >>> dee = deep_ensemble_equivalent(jnp.array([0.9, 0.75, 0.6]), curve)
        >>> [f"{size:.2f}" for size in dee.value]
        ['1.00', '1.48', '4.00']
        >>> dee.below.tolist(), dee.saturated.tolist()
        ([True, False, False], [False, False, True])

    References:
        [diversity] Eq. 20
    """
    curve = jnp.asarray(ensemble_nlls)
    if curve.ndim != 1 or curve.shape[0] < 1:
        raise ValueError(
            "ensemble_nlls must be [M], of ensembles of 1 to M members; got shape "
            f"{curve.shape}"
        )
    curve = curve.astype(jnp.float32)
    finite = jnp.all(jnp.isfinite(curve))
    if not isinstance(finite, jax.core.Tracer) and not finite:
        raise ValueError(f"ensemble_nlls must be finite; got {curve.tolist()}")
    nll = jnp.asarray(nll).astype(jnp.float32)
    known = finite & ~jnp.isnan(nll)
    as_good = curve.reshape((1,) * nll.ndim + (-1,)) <= nll[..., None]
    reached = jnp.any(as_good, axis=-1)
    first = jnp.argmax(as_good, axis=-1)
    # Every size before the first one that is as good is worse: above > nll >= under.
    above, under = curve[jnp.maximum(first - 1, 0)], curve[first]
    between = reached & (first > 0) & known
    drop = jnp.where(between, above - under, 1.0)
    fraction = jnp.where(between, above - nll, 0.0) / drop
    size = jnp.where(reached, jnp.maximum(first, 1), curve.shape[0])
    value = size.astype(jnp.float32) + fraction
    return DeepEnsembleEquivalent(
        jnp.where(known, value, jnp.nan), known & (nll > curve[0]), known & ~reached
    )


def _subsets(members: int, subsets: str) -> np.ndarray:
    """Bool `[S, M]`: which members each ensemble has."""
    if subsets == "prefixes":
        return np.tri(members, dtype=bool)
    if subsets != "all":
        raise ValueError(f"subsets must be 'all' or 'prefixes'; got {subsets!r}")
    if members > _MOST_FOR_ALL_SUBSETS:
        raise ValueError(
            f"{members} members have {2**members - 1} subsets, too many to score; say "
            f"subsets='prefixes' for more than {_MOST_FOR_ALL_SUBSETS}"
        )
    return np.array(list(itertools.product([False, True], repeat=members))[1:])


def _check_members(logits, name):
    check_logits(**{name: logits})
    if jnp.ndim(logits) < 3 or jnp.shape(logits)[0] < 1:
        raise ValueError(
            f"{name} must be [M, N, C] with at least one member; got shape "
            f"{jnp.shape(logits)}"
        )


def _ensemble_logits(log_p, chosen):
    """Log of the mean probability over the members that are `chosen [M]`."""
    chosen = chosen.reshape((-1,) + (1,) * (log_p.ndim - 1))
    count = jnp.sum(chosen, dtype=jnp.int32).astype(jnp.float32)
    members = jnp.where(chosen, log_p, -jnp.inf)
    return jax.nn.logsumexp(members, axis=0) - jnp.log(count)


def _temperatures(shape, validation_logits, validation_labels, mask):
    """The temperature of the ensemble of `chosen [M]`, as a function; 1 unfitted."""
    if validation_logits is None or validation_labels is None:
        if not (validation_logits is validation_labels is mask):
            raise ValueError(
                "validation_logits and validation_labels are given together or not at "
                "all, and validation_mask only with them"
            )
        return lambda chosen: jnp.float32(1.0)
    _check_members(validation_logits, "validation_logits")
    other = jnp.shape(validation_logits)
    if (other[0], other[-1]) != (shape[0], shape[-1]):
        raise ValueError(
            "member_logits and validation_logits must have the same members and "
            f"classes; got shapes {tuple(shape)} and {other}"
        )
    one = "validation_logits of one member"
    check_labels(validation_labels, validation_logits[0], logits_name=one)
    log_p = log_probs(validation_logits)

    def fitted(chosen):
        return fit_temperature(_ensemble_logits(log_p, chosen), validation_labels, mask)

    return fitted


def ensemble_reference_curve(
    member_logits: Logits,
    labels: Labels,
    *,
    validation_logits: Logits | None = None,
    validation_labels: Labels | None = None,
    subsets: Literal["all", "prefixes"] = "all",
    validation_mask: Mask | None = None,
    mask: Mask | None = None,
) -> Array:
    """NLL of deep ensembles of 1 to M of the given members.

    At size m the mean over ensembles of m members of `-1/N sum_n log softmax(z_n / T)
    (y_n)`, where z is the log of the members' mean probabilities and T is fitted for
    each ensemble on the validation split (1 without such a split).

    Args:
        member_logits: `[M, N, C]` (or `[M, ..., C]`) of independently trained networks.
        labels: `[N]` class ids.
        validation_logits: `[M, Nv, C]`, the same members on their validation split.
        validation_labels: `[Nv]`; given together with the logits.
        subsets: which ensembles of m members. "all" takes every one (`2^M - 1` in all,
            M at most 8), so that no member is favoured; "prefixes" the first m members.
        validation_mask: `[Nv]` valid examples.
        mask: `[N]` valid examples.

    Returns:
        `[M]` float32 in nats, for `deep_ensemble_equivalent`; nan where a
        temperature is.

    Raises:
        ValueError: shapes or splits do not fit together, or M above 8 with all subsets.

    Notes:
        One ensemble after another: memory is that of the members and not of the
        subsets. For replicas of the whole ensemble use `jax.vmap`. The means over all
        subsets fall with m where they are not calibrated, because -log is convex.

    Example:
        >>> probs = jnp.array([[[0.5, 0.5]], [[0.25, 0.75]]])
        >>> curve = ensemble_reference_curve(jnp.log(probs), jnp.array([0]))
        >>> [f"{nll:.4f}" for nll in curve]  # (log 2 + log 4) / 2, -log .375
        ['1.0397', '0.9808']

    References:
        [diversity] Eqs. 18, 19, 20
    """
    _check_members(member_logits, "member_logits")
    check_labels(labels, member_logits[0], logits_name="logits of one member")
    log_p = log_probs(member_logits)
    chosen = _subsets(log_p.shape[0], subsets)
    temperature = _temperatures(
        log_p.shape, validation_logits, validation_labels, validation_mask
    )

    def score(chosen):
        logits = _ensemble_logits(log_p, chosen) / temperature(chosen)
        return negative_log_likelihood(logits, labels, mask)

    nlls = jax.lax.map(score, jnp.asarray(chosen))
    sizes = chosen.sum(axis=1)
    return jnp.stack([jnp.mean(nlls[sizes == m]) for m in range(1, len(log_p) + 1)])
