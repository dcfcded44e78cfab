"""The losses in float64 NumPy, written from the papers' equations, on probabilities.

Nothing here is shared with the library: softmax is spelled out, sums run over
probabilities and not in log space, and top-k sorts.
"""

import numpy as np


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


def entropy(logits, top_k=None):
    """[reproducibility] Eq. 6: H(f) = -sum_j f_j log f_j."""
    p = largest(softmax(logits), top_k)
    return -np.sum(p * np.log(p), axis=-1)


def renormalized_entropy(logits, top_k):
    p = largest(softmax(logits), top_k)
    p = p / p.sum(axis=-1, keepdims=True)
    return -np.sum(p * np.log(p), axis=-1)


def uniform_symmetric_kl(logits, top_k=None):
    """[reproducibility] Eq. 7: KL(f || Unif) + KL(Unif || f), both sums written out."""
    p = softmax(logits)
    uniform = 1.0 / p.shape[-1]
    p = largest(p, top_k)
    forward = np.sum(p * np.log(p / uniform), axis=-1)
    backward = np.sum(uniform * np.log(uniform / p), axis=-1)
    return forward + backward


def renormalized_uniform_symmetric_kl(logits, top_k):
    p = largest(softmax(logits), top_k)
    p = p / p.sum(axis=-1, keepdims=True)
    uniform = np.full_like(p, 1.0 / top_k)
    return kl(p, uniform) + kl(uniform, p)


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
