"""Float64 NumPy versions of the metrics, written from the papers' equations.

Plain loops where the equation has a sum, so that they can be read against it. No masks:
tests filter the examples instead.
"""

import itertools

import numpy as np
from scipy.optimize import minimize_scalar

from tests.reference_losses import cross_entropy, softmax, squared_error
from tests.reference_losses import entropy as prediction_entropy  # noqa: F401
from tests.reference_losses import l1 as l1_distance


def accuracy(logits, labels):
    return np.mean(np.argmax(logits, -1) == labels)


def error_rate(logits, labels):
    return np.mean(np.argmax(logits, -1) != labels)


def negative_log_likelihood(logits, labels):
    return np.mean(cross_entropy(logits, labels))


def brier_score(logits, labels):
    return np.mean(squared_error(logits, labels))


def _log_odds(logits):
    logits = np.asarray(logits, np.float64)
    return logits[..., 1] - logits[..., 0]


def roc_auc(logits, labels):
    z = _log_odds(logits)
    if len(set(labels)) < 2:
        return np.nan
    pairs = [np.sign(p - n) for p in z[labels == 1] for n in z[labels == 0]]
    return np.mean(0.5 + 0.5 * np.array(pairs))


def binned_roc_auc(logits, labels, num_bins, limit):
    """`roc_auc` of the scores rounded down to their bin."""
    place = np.floor((_log_odds(logits) + limit) * num_bins / (2 * limit))
    z = np.clip(place, 0, num_bins - 1)
    return roc_auc(np.stack([0 * z, z], -1), labels)


def calibration_ratio(logits, labels):
    return np.sum(softmax(logits)[:, 1]) / np.sum(labels == 1)


def expected_calibration_error(logits, labels, num_bins=15):
    confidence = softmax(logits).max(-1)
    correct = np.argmax(logits, -1) == labels
    error = 0.0
    for m in range(1, num_bins + 1):
        inside = (confidence > (m - 1) / num_bins) & (confidence <= m / num_bins)
        if inside.any():
            gap = abs(correct[inside].mean() - confidence[inside].mean())
            error += inside.mean() * gap
    return error


def fit_temperature(logits, labels):
    """The minimum of the negative log-likelihood, searched in log T."""
    logits = np.asarray(logits, np.float64)

    def nll(log_t):
        return negative_log_likelihood(logits / np.exp(log_t), labels)

    options = {"xatol": 1e-10}
    found = minimize_scalar(nll, bounds=(-6, 6), method="bounded", options=options)
    return np.exp(found.x)


def calibrated_scores(logits, labels, validation_logits, validation_labels):
    temperature = fit_temperature(validation_logits, validation_labels)
    scaled = np.asarray(logits, np.float64) / temperature
    scores = (negative_log_likelihood, brier_score, expected_calibration_error)
    return temperature, *(score(scaled, labels) for score in scores)


def churn(logits_a, logits_b):
    return np.mean(np.argmax(logits_a, -1) != np.argmax(logits_b, -1))


def ambiguity(logits):
    predictions = np.argmax(logits, -1)
    pairs = list(itertools.combinations(predictions, 2))
    return np.mean([a != b for a, b in pairs], axis=0)


def rashomon_capacity(logits):
    f = softmax(logits)  # [R, N, C]
    p = np.full(f.shape[:2], 1 / len(f))
    for _ in range(300):  # as many updates as ours
        mixture = np.einsum("rn,rnc->nc", p, f)
        apart = np.sum(f * np.log(f / mixture), axis=-1)
        p *= np.exp(apart)
        p /= p.sum(axis=0)
    return np.exp(np.sum(p * apart, axis=0))


def surrogate_churn(logits_a, logits_b, alpha=1.0):
    f, g = softmax(logits_a), softmax(logits_b)
    f = (f / f.max(-1, keepdims=True)) ** alpha
    g = (g / g.max(-1, keepdims=True)) ** alpha
    return 0.5 * np.mean(np.sum(np.abs(f - g), -1))


def churn_by_correctness(logits_a, logits_b, labels):
    a, b = np.argmax(logits_a, -1), np.argmax(logits_b, -1)
    return np.mean((a != b)[a == labels]), np.mean((a != b)[a != labels])


def prediction_confidence(logits):
    ordered = np.sort(softmax(logits), -1)
    return ordered[..., -1] - ordered[..., -2]


def churn_bound_from_errors(logits_a, logits_b, labels):
    return error_rate(logits_a, labels) + error_rate(logits_b, labels)


def churn_bound_from_confidence(logits_a, logits_b):
    smaller = np.minimum(*map(prediction_confidence, (logits_a, logits_b)))
    return np.mean(l1_distance(logits_a, logits_b) > smaller)


def churn_bound_from_confidence_sum(logits_a, logits_b):
    total = prediction_confidence(logits_a) + prediction_confidence(logits_b)
    return np.mean(l1_distance(logits_a, logits_b) >= total)


def _over_models(logits, summand):
    """1/N sum_n 1/M sum_m summand(P_nm, Pbar_n, n)."""
    P = softmax(logits)
    M, N, _ = P.shape
    total = 0.0
    for n in range(N):
        mean = P[:, n].sum(0) / M
        for m in range(M):
            total += summand(P[m, n], mean, n) / M / N
    return total


def prediction_difference(logits, order=1):
    return _over_models(logits, lambda p, q, n: np.linalg.norm(p - q, order))


def weighted_prediction_difference(logits, order=1):
    return _over_models(logits, lambda p, q, n: np.linalg.norm(q * (p - q), order))


def pairwise_kl(logits):
    pairs = list(itertools.permutations(softmax(logits), 2))
    return np.mean([np.sum(p * np.log(p / q), -1) for p, q in pairs], axis=0)


def kl_prediction_difference(logits):
    return np.mean(pairwise_kl(logits))


def diversity_by_confidence(member_logits, num_bins=10):
    """Counts, means and quartiles per bin of the least confidence; the mean of all."""
    kl = pairwise_kl(member_logits)
    confidence = softmax(member_logits).max(-1).min(0)
    counts = np.zeros(num_bins, int)
    means, quartiles = np.full(num_bins, np.nan), np.full((5, num_bins), np.nan)
    for b in range(num_bins):
        low, high = b / num_bins, (b + 1) / num_bins
        inside = kl[(confidence > low) & (confidence <= high)]
        counts[b] = len(inside)
        if len(inside):
            means[b] = np.mean(inside)
            quartiles[:, b] = np.quantile(inside, (0, 0.25, 0.5, 0.75, 1))
    return counts, means, quartiles, np.nansum(counts * means) / counts.sum()


def member_diversity(member_logits, labels):
    P = softmax(member_logits)
    mean = P.mean(0)
    between = sum(np.sum((p - mean) ** 2) for p in P) / len(P)
    return (
        kl_prediction_difference(member_logits),
        hamming_prediction_difference(member_logits),
        between / np.sum(1 - np.sum(mean**2, -1)),
        np.mean([negative_log_likelihood(z, labels) for z in member_logits]),
        negative_log_likelihood(np.log(mean), labels),
        np.mean([accuracy(z, labels) for z in member_logits]),
        accuracy(mean, labels),
    )


def ensemble_reference_curve(
    member_logits, labels, validation_logits=None, validation_labels=None
):
    """Mean over every set of m members, for each m."""
    P, curve = softmax(member_logits), []
    for m in range(1, len(P) + 1):
        nlls = []
        for chosen in itertools.combinations(range(len(P)), m):
            logits = np.log(P[list(chosen)].mean(0))
            if validation_logits is not None:
                mean = softmax(validation_logits)[list(chosen)].mean(0)
                logits = logits / fit_temperature(np.log(mean), validation_labels)
            nlls.append(negative_log_likelihood(logits, labels))
        curve.append(np.mean(nlls))
    return np.array(curve)


def deep_ensemble_equivalent(nll, ensemble_nlls):
    """The first crossing, searched segment by segment."""
    if nll >= ensemble_nlls[0]:
        return 1.0
    for m, (worse, better) in enumerate(itertools.pairwise(ensemble_nlls), start=1):
        if better <= nll:
            return m + (worse - nll) / (worse - better)
    return float(len(ensemble_nlls))


def js_prediction_difference(logits):
    return _over_models(logits, lambda p, q, n: np.sum(p * np.log(p / q)))


def relative_prediction_difference(logits):
    return _over_models(logits, lambda p, q, n: np.sum(np.abs(p - q) / q))


def positive_prediction_difference(logits):
    return _over_models(logits, lambda p, q, n: np.sum(np.abs(p - q)) / q[1])


def label_prediction_difference(logits, labels):
    def summand(p, q, n):
        return abs(p[labels[n]] - q[labels[n]]) / q[labels[n]]

    return _over_models(logits, summand)


def hamming_prediction_difference(logits):
    pairs = itertools.combinations(np.argmax(logits, -1), 2)
    return np.mean([np.mean(a != b) for a, b in pairs])


def _old_new(old_logits, new_logits, labels):
    return np.argmax(old_logits, -1) == labels, np.argmax(new_logits, -1) == labels


def flip_rates(old_logits, new_logits, labels):
    old, new = _old_new(old_logits, new_logits, labels)
    return (
        np.mean(old & ~new),
        np.mean(~old & new),
        np.mean(old & ~new) / (np.mean(old) * np.mean(~new)),
        np.sum(old & new) / np.sum(old),
        np.sum(~old & ~new) / np.sum(~new),
    )


def flip_rank(old_logits, new_logits, labels):
    old, new = _old_new(old_logits, new_logits, labels)
    ranks = np.zeros(len(labels), int)
    for n in np.flatnonzero(old & ~new):
        order = np.argsort(-np.asarray(old_logits[n], np.float64), kind="stable")
        ranks[n] = 1 + list(order).index(np.argmax(new_logits[n]))
    return ranks


def summarize_pairs(matrix):
    """Mean, std over pairs, jackknife standard error, by deleting rows and columns."""
    matrix = np.asarray(matrix, np.float64)
    R = len(matrix)

    def values(m):
        return m[~np.eye(len(m), dtype=bool)]

    left_out = [
        values(np.delete(np.delete(matrix, r, 0), r, 1)).mean() for r in range(R)
    ]
    stderr = np.sqrt((R - 1) / R * np.sum((left_out - np.mean(left_out)) ** 2))
    return values(matrix).mean(), values(matrix).std(), stderr


def summarize_cross(matrix):
    """Mean, std over pairs and two-way jackknife, by deleting rows, columns, cells."""
    matrix = np.asarray(matrix, np.float64)
    R1, R2 = matrix.shape

    def variance(left_out):
        k = len(left_out)
        return (k - 1) / k * np.sum((left_out - np.mean(left_out)) ** 2)

    old = variance([np.delete(matrix, i, 0).mean() for i in range(R1)])
    new = variance([np.delete(matrix, j, 1).mean() for j in range(R2)])
    own = matrix - matrix.mean(0) - matrix.mean(1)[:, None] + matrix.mean()
    pair = np.sum(own**2) / (R1 * R2 * (R1 - 1) * (R2 - 1))
    stderr = np.sqrt(max(old + new - pair, (old + new) / 2))
    return matrix.mean(), matrix.std(), stderr
