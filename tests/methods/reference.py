"""Objectives of the methods in float64 NumPy, one value per example.

Written from the papers' equations, members in a Python loop. Every objective is a mean
of these values over examples, so `[B]` is what a mask filters. `fixed` are the logits
on the side where the paper fixes a prediction; a difference quotient moves `logits` and
leaves `fixed` where it was.
"""

import itertools

import numpy as np

from tests import reference_losses as one


def _regularizer(logits, kind, top_k):
    if kind == "entropy":
        return one.entropy(logits, top_k=top_k)
    return -one.uniform_symmetric_kl(logits, top_k=top_k)


def erm(logits, labels, fixed=None):
    """[reproducibility] Eq. 2, for each member."""
    return sum(one.cross_entropy(z, labels) for z in logits)


def mixed(logits, labels, alpha, other):
    """Cross-entropy and `other(member, logits)`, summed over members."""
    return sum(
        (1 - alpha) * one.cross_entropy(z, labels) + alpha * other(m, z)
        for m, z in enumerate(logits)
    )


def minimum_entropy(logits, labels, fixed=None, *, alpha, kind="entropy", top_k=None):
    """[reproducibility] Eqs. 6 and 7, for each member."""
    return mixed(logits, labels, alpha, lambda m, z: _regularizer(z, kind, top_k))


def _distance(kind, target, z):
    """D of Eqs. 8, 9, 17 and 18; the mean is under the target."""
    if kind == "l1":
        return one.l1(target, z)
    if kind == "skl":
        return one.symmetric_kl(target, z)
    if kind == "kl":
        return one.distillation_kl(student_logits=z, teacher_logits=target)
    return one.cross_entropy_between(target_logits=target, logits=z)


def disagreement(logits, fixed, divergence):
    """D of Eqs. 8 and 9, or both lines of Eq. 18, summed over unordered pairs."""
    total = 0.0
    fixed = logits if divergence == "joint_cross_entropy" else fixed
    for i, j in itertools.combinations(range(len(logits)), 2):
        if divergence in ("l1", "skl"):
            total = total + _distance(divergence, logits[i], logits[j])
        else:
            total = total + _distance(divergence, fixed[j], logits[i])
            total = total + _distance(divergence, fixed[i], logits[j])
    return total


def stale_disagreement(logits, stale, divergence):
    """The coupling of Eqs. 17 and 18, or D of Eqs. 8 and 9, summed over all members."""
    pairs = itertools.permutations(range(len(logits)), 2)
    stale = np.asarray(stale, np.float64)
    return sum(_distance(divergence, stale[j], logits[i]) for i, j in pairs)


def codistillation(
    logits,
    labels,
    fixed=None,
    *,
    beta,
    alpha=0.0,
    divergence="skl",
    kind="entropy",
    top_k=None,
    stale=None,
    **structure,
):
    """[reproducibility] Eqs. 8, 9, 17, 18 and, with alpha, 19."""
    if stale is None:
        apart = disagreement(logits, logits if fixed is None else fixed, divergence)
    else:
        apart = stale_disagreement(logits, stale, divergence)
    penalty = sum(_regularizer(z, kind, top_k) for z in logits)
    return erm(logits, labels) + beta * apart + alpha * penalty


def ensemble_distillation(
    logits, labels, fixed=None, *, alpha, temperature, teacher, average="probs", **heard
):
    """Tempered KL from the averaged teacher, mixed with the labels' cross-entropy.

    The KL is that of `students`, unless they are not given.
    """
    teacher = np.asarray(teacher, np.float64)
    if average == "tempered_probs":
        tempered = np.mean([one.softmax(t / temperature) for t in teacher], axis=0)
    else:
        mean = one.softmax(np.mean(teacher, axis=0))
        if average == "probs":
            mean = np.mean([one.softmax(t) for t in teacher], axis=0)
        tempered = mean ** (1 / temperature)
        tempered = tempered / tempered.sum(axis=-1, keepdims=True)
    students = np.asarray(heard.get("students", logits), np.float64)

    def apart(m, z):
        followed = one.kl(tempered, one.softmax(students[m] / temperature))
        return temperature**2 * followed

    return mixed(logits, labels, alpha, apart)


def one_to_one_distillation(
    logits, labels, fixed=None, *, alpha, temperature, teacher, students=None
):
    """[diversity] Eq. 5, the mean over members; `students` are those of the KL."""
    students = logits if students is None else students

    def apart(m, z):
        roles = {"student_logits": students[m], "teacher_logits": teacher[m]}
        return one.distillation_kl(**roles, temperature=temperature)

    return mixed(logits, labels, alpha, apart) / len(logits)


def ensemble_distribution_distillation(
    logits, labels, fixed=None, *, alpha, temperature, smoothing, teacher, students=None
):
    """END^2: the teachers' likelihood under each student's Dirichlet, times tau^2."""
    students = logits if students is None else students

    def unlikely(m, z):
        form = teacher, temperature, smoothing
        return temperature**2 * one.dirichlet_nll(students[m], *form)

    return mixed(logits, labels, alpha, unlikely)


def elodi(
    logits, labels, fixed=None, *, alpha, mix, teacher, old, form="paper", **options
):
    """[elodi] Sec. 4.2 and Eq. 9, the sum over members."""

    def apart(z, target):
        roles = {"student_logits": z, "teacher_logits": target}
        if form == "release":  # which knows no top K
            margin = options["margin"]
            return one.released_logit_difference(**roles, labels=labels, margin=margin)
        return one.logit_difference_inhibition(**roles, **options)

    def both(m, z):
        legacy = np.mean([apart(z, o) for o in old], axis=0)
        return mix * apart(z, ensemble) + (1 - mix) * legacy

    ensemble = np.mean(np.asarray(teacher, np.float64), axis=0)
    return mixed(logits, labels, alpha, both)


def churn_constraint(
    logits, labels, fixed=None, *, start, rate, limit, teacher, moved=0.3, examples
):
    """Cross-entropy and the multiplier times the KL from the teacher's mean."""
    del rate, limit, fixed  # of the next update
    target = np.mean([one.softmax(np.asarray(t, np.float64)) for t in teacher], axis=0)
    weight = (target.argmax(-1) == labels) if examples == "right" else 1.0
    by = max(start + moved, 0.0)
    away = [weight * one.kl(target, one.softmax(z)) for z in logits]
    return mixed(logits, labels, by / (1 + by), lambda m, z: away[m])


def focal_distillation(
    logits, labels, fixed=None, *, alpha, teacher, old, divergence="kl", **options
):
    """FD-KL or FD-LM from each old model and from the averaged teacher alike."""
    loss = one.focal_kl if divergence == "kl" else one.focal_logit_matching
    options |= {"alpha": options.pop("focal_base"), "beta": options.pop("focal_beta")}
    targets = [*old, np.mean(np.asarray(teacher, np.float64), axis=0)]

    def apart(m, z):
        roles = {"student_logits": z, "labels": labels, **options}
        return np.mean([loss(old_logits=target, **roles) for target in targets], axis=0)

    return mixed(logits, labels, alpha, apart)


def backward_compatible(logits, labels, fixed=None, *, weight, heads, old):
    """BCT: both classifiers' cross-entropy; the features are the logits."""
    heads = np.asarray(heads, np.float64)
    return sum(
        one.cross_entropy(z, labels)
        + weight * np.mean([one.cross_entropy(z @ h, labels) for h in heads], axis=0)
        for z in logits
    )


def ract(logits, labels, fixed=None, *, weight, heads, old):
    """RACT: the old classifier's positives against both classifiers' negatives."""
    total = 0.0
    for z in logits:
        parts = [
            one.ract(old_head_logits=z @ h, new_logits=z, labels=labels)
            for h in np.asarray(heads, np.float64)
        ]
        total = total + one.cross_entropy(z, labels) + weight * np.mean(parts, axis=0)
    return total


def bayesian_update(
    logits, labels, fixed=None, *, alpha, cost_ratio, rule, olds, counts, old
):
    """BU: the target is updated by each member's own vote, which is fixed."""
    confusions = counts / counts.sum(-1, keepdims=True, dtype=np.float64)
    fixed = logits if fixed is None else fixed

    def updated(m, z):
        votes = np.argmax([*old, fixed[m]], axis=-1)
        known = [*confusions[:olds], confusions[olds + m]]
        target = one.bayesian_update_targets(votes, known, rule, cost_ratio)
        return one.cross_entropy(z, target)

    return mixed(logits, labels, alpha, updated)


def anti_distillation(
    logits,
    labels,
    fixed=None,
    *,
    strength,
    penalty="correlation",
    on="logits",
    train_on="components",
    deploy="mean_probs",
    component_losses=(),
    **options,
):
    """[anti-distillation] Eq. 6; the penalty is of the batch, the same in every row."""
    logits = np.asarray(logits, np.float64)
    total = np.zeros(logits.shape[1])
    names = component_losses or ["cross_entropy"] * len(logits)
    if train_on != "ensemble":
        for z, name in zip(logits, names, strict=True):
            total = total + getattr(one, name)(z, labels)
    if train_on != "components":
        if deploy == "mean_probs":
            mean = np.log(np.mean([one.softmax(z) for z in logits], axis=0))
        else:
            mean = np.mean(logits, axis=0)
        total = total + one.cross_entropy(mean, labels)
    signal = logits if on == "logits" else one.softmax(logits)
    if penalty == "orthogonalized":
        penalty = "orthogonalized_correlation"
    return total + strength * getattr(one, f"{penalty}_penalty")(signal, **options)
