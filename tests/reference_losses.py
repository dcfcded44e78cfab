"""The losses in float64 NumPy, written from the papers' equations, on probabilities.

Nothing here is shared with the library: softmax is spelled out, sums run over
probabilities and not in log space, and top-k sorts.
"""

import numpy as np
from scipy.special import gammaln


def softmax(logits):
    z = np.asarray(logits, np.float64)
    e = np.exp(z - z.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def largest(probs, k):
    return probs if k is None else np.sort(probs, axis=-1)[..., ::-1][..., :k]


def kl(p, q):
    return np.sum(p * np.log(p / q), axis=-1)


def cross_entropy(logits, labels):
    """[reproducibility] Eq. 2, one summand: -log f(x)_y."""
    p = softmax(logits)
    return -np.log(np.take_along_axis(p, np.asarray(labels)[..., None], -1))[..., 0]


def label_smoothing(logits, labels, smoothing=0.1):
    """Cross-entropy with (1 - s) onehot + s / C."""
    p, classes = softmax(logits), np.shape(logits)[-1]
    target = (1 - smoothing) * np.eye(classes)[labels] + smoothing / classes
    return -np.sum(target * np.log(p), axis=-1)


def squared_error(logits, labels):
    """Brier: sum_c (f_c - onehot_c)^2."""
    p = softmax(logits)
    return np.sum((p - np.eye(p.shape[-1])[labels]) ** 2, axis=-1)


def focal(logits, labels, gamma=2.0):
    """Lin et al., Eq. 4: -(1 - f_y)^gamma log f_y."""
    p = softmax(logits)
    mine = np.take_along_axis(p, np.asarray(labels)[..., None], -1)[..., 0]
    return -((1 - mine) ** gamma) * np.log(mine)


def entropy(logits, top_k=None):
    """[reproducibility] Eq. 6: H(f) = -sum_j f_j log f_j."""
    p = largest(softmax(logits), top_k)
    return -np.sum(p * np.log(p), axis=-1)


def uniform_symmetric_kl(logits, top_k=None):
    """[reproducibility] Eq. 7: KL(f || Unif) + KL(Unif || f), both sums written out."""
    p = softmax(logits)
    uniform = 1.0 / p.shape[-1]
    p = largest(p, top_k)
    forward = np.sum(p * np.log(p / uniform), axis=-1)
    backward = np.sum(uniform * np.log(uniform / p), axis=-1)
    return forward + backward


def l1(logits_a, logits_b):
    """[reproducibility] Eq. 8: sum_j |f(x; w_1)_j - f(x; w_2)_j|."""
    return np.sum(np.abs(softmax(logits_a) - softmax(logits_b)), axis=-1)


def symmetric_kl(logits_a, logits_b):
    """[reproducibility] Eq. 9: KL(a || b) + KL(b || a)."""
    a, b = softmax(logits_a), softmax(logits_b)
    return kl(a, b) + kl(b, a)


def cross_entropy_between(*, target_logits, logits):
    """[reproducibility] Eq. 18: H(t, f) = -sum_j t_j log f_j."""
    return -np.sum(softmax(target_logits) * np.log(softmax(logits)), axis=-1)


def distillation_kl(*, student_logits, teacher_logits, temperature=1.0):
    """[diversity] Eq. 1: tau^2 KL(teacher at tau || student at tau)."""
    tau = np.float64(temperature)
    teacher = softmax(np.asarray(teacher_logits, np.float64) / tau)
    student = softmax(np.asarray(student_logits, np.float64) / tau)
    return tau**2 * kl(teacher, student)


def logit_difference_inhibition(
    *, student_logits, teacher_logits, top_k=10, order=2, rank_by="teacher", margin=0.0
):
    """[elodi] Eqs. 5, 7, 8, example by example."""
    s, t = (np.asarray(x, np.float64) for x in (student_logits, teacher_logits))
    ranked = t if rank_by == "teacher" else s
    total = np.zeros(s.shape[:-1])
    for i in np.ndindex(total.shape):
        known = [c for c in range(s.shape[-1]) if t[i][c] > -5000]
        highest = sorted(known, key=lambda c: -ranked[i][c])[: top_k or None]
        excess = [max(abs(s[i][c] - t[i][c]) - margin, 0.0) for c in highest]
        total[i] = sum(e**order for e in excess)
    return total


def released_logit_difference(*, student_logits, teacher_logits, labels, margin=1.0):
    """The public code: the mean over classes of squares, 0 at the label."""
    s, t = (np.asarray(x, np.float64) for x in (student_logits, teacher_logits))
    squares = np.maximum(np.abs(s - t) - margin, 1e-7) ** 2
    return np.mean(squares * (1 - np.eye(s.shape[-1])[labels]), axis=-1)


def focal_weights(old_logits, labels, alpha=1.0, beta=5.0):
    """alpha + beta [the old model is right]."""
    return alpha + beta * (np.argmax(np.asarray(old_logits), axis=-1) == labels)


def focal_kl(
    *, student_logits, old_logits, labels, temperature=100.0, alpha=1.0, beta=5.0
):
    """FD-KL where the old model knows every class."""
    return focal_weights(old_logits, labels, alpha, beta) * distillation_kl(
        student_logits=student_logits,
        teacher_logits=old_logits,
        temperature=temperature,
    )


def focal_logit_matching(*, student_logits, old_logits, labels, alpha=1.0, beta=5.0):
    """FD-LM where the old model knows every class."""
    s, o = (np.asarray(x, np.float64) for x in (student_logits, old_logits))
    weights = focal_weights(old_logits, labels, alpha, beta)
    return weights * np.mean((s - o) ** 2, axis=-1)


def backward_compatible(old_head_logits, labels):
    """BCT: the old classifier's cross-entropy of the new features."""
    return cross_entropy(old_head_logits, labels)


def ract(*, old_head_logits, new_logits, labels):
    """RACT: positives of the old classifier against negatives of both."""
    o, n = (np.asarray(x, np.float64) for x in (old_head_logits, new_logits))
    total = np.zeros(o.shape[:-1])
    for i in np.ndindex(total.shape):
        y = labels[i]
        negatives = np.concatenate([np.delete(o[i], y), np.delete(n[i], y)])
        total[i] = np.log(1.0 + np.sum(np.exp(negatives - o[i][y])))
    return total


def bayesian_posterior(predictions, confusions, prior=None):
    """Bayes' rule with products of shares, one example at a time."""
    p, f = np.asarray(predictions), np.asarray(confusions, np.float64)
    classes = f.shape[-1]
    belief = np.zeros((*p.shape[1:], classes))
    for i in np.ndindex(p.shape[1:]):
        b = np.ones(classes) / classes if prior is None else np.array(prior, float)
        for t, confusion in enumerate(f):
            b = b * confusion[:, p[t][i]]
            b = b / b.sum()
        belief[i] = b
    return belief


def bayesian_update_targets(
    predictions, confusions, rule="cr", cost_ratio=2.5, prior=None
):
    """Traeuble et al.'s three rules, one example and one vote at a time."""
    p = np.asarray(predictions)
    used = np.array(p[0])
    for t in range(1, len(p)):
        before = bayesian_posterior(p[:t], confusions[:t], prior)
        after = bayesian_posterior(p[: t + 1], confusions[: t + 1], prior)
        for i in np.ndindex(used.shape):
            b, a = before[i], after[i]
            best = np.argmax(a)
            accept = {
                "mb": True,
                "mbme": -np.sum(a * np.log(a)) < -np.sum(b * np.log(b)),
                "cr": best != used[i] and a[best] / a[used[i]] > cost_ratio,
            }[rule]
            used[i] = best if accept else used[i]
    return used


def by_class(outputs):
    """`[M, B, ...]` in float64 as one matrix `[M, B]` per trailing index."""
    z = np.asarray(outputs, np.float64)
    z = z.reshape(*z.shape[:2], -1)
    return [z[:, :, c] for c in range(z.shape[-1])]


def off_diagonal(matrix):
    """[anti-distillation] Eq. 5: half of ||A||_F^2 - ||diag(A)||_F^2."""
    return 0.5 * (np.sum(matrix**2) - np.sum(np.diag(matrix) ** 2))


def correlation_penalty(outputs):
    """[anti-distillation] Eqs. 2, 5."""
    return sum(off_diagonal(z @ z.T / z.shape[1]) for z in by_class(outputs))


def covariance_penalty(outputs):
    """[anti-distillation] Eqs. 3, 5."""
    return sum(off_diagonal(np.cov(z, bias=True)) for z in by_class(outputs))


def residual_correlation_penalty(outputs):
    """[anti-distillation] Eqs. 4, 5."""
    z = np.asarray(outputs, np.float64)
    return correlation_penalty(z - z.mean(axis=0))


def orthogonalized_correlation_penalty(outputs):
    """[anti-distillation] Sec. 4, from a QR factorisation: <q_i, z_j> = R_ii R_ij."""
    total = 0.0
    for z in by_class(outputs):
        r = np.linalg.qr(z.T)[1]
        total += np.sum(np.triu(np.diag(r)[:, None] * r / z.shape[1], 1) ** 2)
    return total


def ordered_pairs(outputs):
    z = np.asarray(outputs, np.float64)
    return [(a, b) for i, a in enumerate(z) for j, b in enumerate(z) if i != j]


def difference_penalty(outputs, order=2):
    """[anti-distillation] Eq. 7, any norm."""
    return -np.mean(
        [np.sum(np.abs(a - b) ** order) / len(a) for a, b in ordered_pairs(outputs)]
    )


def inverse_difference_penalty(outputs, order=2, epsilon=1e-3):
    """[anti-distillation] Sec. 4: 1 / (|L'| + epsilon)."""
    return 1.0 / (np.abs(difference_penalty(outputs, order)) + epsilon)


def cross_entropy_difference_penalty(logits):
    """Minus the mean cross-entropy of ordered pairs of members."""
    return -np.mean(
        [
            np.sum(cross_entropy_between(target_logits=a, logits=b)) / len(a)
            for a, b in ordered_pairs(logits)
        ]
    )


def running_moments(batches, decay):
    """Decaying means `[C, M]`, second moments and covariances `[C, M, M]`.

    Batch s of t weighs `(1 - d) d^(t - s) / (1 - d^t)`, written over the whole history;
    the covariance is around the weighted mean of all of it.
    """
    weights = decay ** np.arange(len(batches))[::-1]
    weights = weights / weights.sum()
    means, seconds, covariances = [], [], []
    for history in zip(*map(by_class, batches)):
        mean = sum(w * z.mean(1) for w, z in zip(weights, history))
        for centre, moments in ((0.0, seconds), (mean[:, None], covariances)):
            shifted = [z - centre for z in history]
            moments.append(
                sum(w * z @ z.T / z.shape[1] for w, z in zip(weights, shifted))
            )
        means.append(mean)
    return np.stack(means), np.stack(seconds), np.stack(covariances)


def running_correlation_penalty(batches, decay, centred=False):
    """[anti-distillation] Sec. 4: Eq. 5 of all batches so far, newest last."""
    _, seconds, covariances = running_moments(batches, decay)
    return sum(map(off_diagonal, covariances if centred else seconds))


def dirichlet_nll(student_logits, teacher_logits, temperature=1.0, smoothing=1e-4):
    """END^2: minus the mean of log Dir(p_m; exp(s / tau)) over the teachers."""
    s, t = (np.asarray(x, np.float64) for x in (student_logits, teacher_logits))
    a, classes = np.exp(s / temperature), s.shape[-1]
    p = (1 - smoothing) * softmax(t / temperature) + smoothing / classes
    log_norm = gammaln(a.sum(-1)) - gammaln(a).sum(-1)
    return -np.mean(log_norm + np.sum((a - 1) * np.log(p), axis=-1), axis=0)
