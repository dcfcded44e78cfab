"""The table of methods under test, and a network that returns the logits it holds."""

import dataclasses
from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from churn_jax import methods
from churn_jax.ensembles import Outputs
from tests.methods import reference

EXAMPLES, CLASSES, TEACHERS, OLDS = 8, 5, 2, 2
SHARDS = 4


@dataclasses.dataclass(frozen=True, eq=False)
class Case:
    name: str
    method: methods.Method
    reference: Callable  # (logits, labels, fixed, **coefficients) -> [B]
    coefficients: dict  # of both
    terms: frozenset[str]
    steepest: float = 1e5  # gradient in a logit where logits are of size 1e4


def draw(seed, *shape, scale=2.0):
    return scale * np.random.default_rng(seed).normal(size=shape)


TEACHER = draw(99, TEACHERS, EXAMPLES, CLASSES).astype(np.float32)
STALE = draw(98, 4, EXAMPLES, CLASSES).astype(np.float32)
# Old models, and their last layers: of features that are the student's logits.
OLD = draw(97, OLDS, EXAMPLES, CLASSES).astype(np.float32)
HEADS = draw(96, OLDS, CLASSES, CLASSES, scale=0.5).astype(np.float32)
# Confusions that were counted before: of the old models, then of two members.
COUNTS = np.random.default_rng(95).integers(1, 9, (OLDS + 2, CLASSES, CLASSES))
COUNTS = (COUNTS + 9 * np.eye(CLASSES, dtype=int)).astype(np.float32)


def has_old(method):
    """True if old models teach `method`, alone or with a teacher."""
    return isinstance(
        method, (methods.ELODI, methods.FocalDistillation, methods.Updating)
    )


def teacher_of(method):
    """What teaches `method`: other networks, or its own members at an earlier step.

    Old models come after the teacher's members.
    """
    if method.stale_steps:
        return STALE[: method.members]
    if isinstance(method, methods.Updating):
        return OLD
    return np.concatenate([TEACHER, OLD]) if has_old(method) else TEACHER


@struct.dataclass
class KnownTeachers:
    """Answers `[T + O, B, C]` of a teacher's members and, after them, of old models."""

    answers: jax.Array
    olds: int = struct.field(pytree_node=False, default=OLDS)

    @property
    def size(self):
        return self.answers.shape[0] - self.olds

    def __call__(self, images, pick=None):
        del images
        return self.answers[: self.size] if pick is None else self.answers[pick]

    def old(self, images):
        del images
        return self.answers[self.size :]

    def classify(self, features):
        return jnp.matmul(features.astype(jnp.float32), HEADS[: self.olds])


def case(build, objective, *terms, sweep=None, steepest=1e5, **structure):
    """`sweep` are coefficients of the method and arguments of the reference alike."""
    sweep = sweep or {}
    about = " ".join(f"{name}={value}" for name, value in structure.items())
    known = {k: v for k, v in structure.items() if k != "members"}
    return Case(
        f"{build.__name__} {about}",
        build(**structure, **sweep),
        partial(objective, **known),
        sweep,
        frozenset(terms),
        steepest,
    )


LABELS, PEER, MIXED = "cross_entropy", "peer_cross_entropy", "ensemble_cross_entropy"
TAUGHT = {"alpha": 0.7, "temperature": 3.0}
PULLED, BOTH = {"beta": 0.4, "alpha": 0.0}, {"beta": 0.4, "alpha": 0.2}
FOCAL = {"alpha": 0.7, "focal_base": 0.5, "focal_beta": 2.0}
ELODI_SWEEP = {"alpha": 0.7, "mix": 0.4, "margin": 0.3}
MULTIPLIER = {"start": 0.7, "rate": 0.5, "limit": 0.2}
LABEL_LOSSES = ("focal", "squared_error", LABELS, "label_smoothing")


def entropy(kind, **structure):
    form = methods.MinimumEntropy, reference.minimum_entropy, LABELS, kind
    return case(*form, sweep={"alpha": 0.3}, kind=kind, **structure)


def peers(divergence, kind="entropy", sweep=PULLED, **structure):
    term = PEER if divergence == LABELS else divergence
    form = methods.Codistillation, reference.codistillation, LABELS, term, kind
    return case(*form, sweep=sweep, divergence=divergence, kind=kind, **structure)


def taught(build, objective, term="distillation", sweep=TAUGHT, **structure):
    return case(build, objective, LABELS, term, sweep=sweep, **structure)


def elodi(steepest=1e6, **structure):  # linear in the logits, of order 2
    form = methods.ELODI, reference.elodi, LABELS, "ldi_ensemble", "ldi_old"
    return case(*form, sweep=ELODI_SWEEP, steepest=steepest, **structure)


def apart(strength, penalty, *terms, **structure):
    form = methods.AntiDistillation, reference.anti_distillation, penalty, *terms
    # The third power of the logits.
    options = {"sweep": {"strength": strength}, "steepest": 1e14}
    return case(*form, **options, penalty=penalty, **structure)


distillation = partial(
    taught, methods.EnsembleDistillation, reference.ensemble_distillation
)
one_to_one = partial(
    taught, methods.OneToOneDistillation, reference.one_to_one_distillation
)
distribution = partial(
    taught,
    methods.EnsembleDistributionDistillation,
    reference.ensemble_distribution_distillation,
    "distribution",
    TAUGHT | {"smoothing": 0.01},
)
focal = partial(taught, methods.FocalDistillation, reference.focal_distillation)
COMPATIBLE = partial(reference.backward_compatible, heads=HEADS)
CONTRAST = partial(reference.ract, heads=HEADS)
UPDATED = partial(reference.bayesian_update, counts=COUNTS)
constraint = partial(
    case,
    methods.ChurnConstraint,
    reference.churn_constraint,
    *(LABELS, "divergence", "multiplier"),
    sweep=MULTIPLIER,
)

CASES = [
    case(methods.ERM, reference.erm, LABELS, members=3),
    entropy("uniform_skl", top_k=3, members=2),
    peers("l1", sweep=BOTH, members=3),
    peers(LABELS, members=3),
    peers("joint_cross_entropy", members=3),
    peers("skl", "uniform_skl", BOTH, top_k=2),
    peers("kl"),
    peers(LABELS, update="independent", refresh_steps=5),
    peers("skl", sweep=BOTH, update="independent", members=3),
    peers("kl", update="independent"),
    distillation(average="probs"),
    distillation(average="logits", members=2),
    distillation(average="tempered_probs"),
    apart(0.05, "orthogonalized", LABELS, members=3),
    apart(0.2, "correlation", LABELS, MIXED, train_on="both", deploy="mean_logits"),
    apart(
        2.0,
        "inverse_difference",
        MIXED,
        **{"order": 1, "epsilon": 0.1, "train_on": "ensemble", "members": 3},
    ),
    apart(
        50.0,
        "covariance",
        "label_loss",
        **{"on": "probabilities", "component_losses": LABEL_LOSSES, "members": 4},
    ),
    one_to_one(members=2),
    # Concentrations up to e^30, times a logit.
    distribution(steepest=1e18, members=2),
    elodi(top_k=2, order=1.5, rank_by="student", members=2),
    focal("focal_kl", FOCAL | {"temperature": 3.0}, members=2),
    focal("focal_logits", FOCAL, steepest=1e6, divergence="logits"),
    taught(
        methods.BackwardCompatible,
        COMPATIBLE,
        "old_cross_entropy",
        {"weight": 0.7},
        members=2,
    ),
    taught(methods.RACT, CONTRAST, "ract", {"weight": 0.7}),
    constraint(examples="all", members=2),
    constraint(examples="right", members=1),
    taught(
        methods.BayesianUpdate,
        UPDATED,
        "updated_cross_entropy",
        {"alpha": 0.7, "cost_ratio": 1.5},
        **{"members": 2, "rule": "cr", "olds": OLDS},
    ),
    elodi(steepest=1e10, top_k=0, order=3.0),
    elodi(form="release", top_k=1),
]


def logits_of(case, seed, *, replicas=None, scale=2.0):
    lead = () if replicas is None else (replicas,)
    shape = (*lead, case.method.members, EXAMPLES, CLASSES)
    return draw(seed, *shape, scale=scale).astype(np.float32)


def labels_of(seed):
    return np.random.default_rng(seed + 1000).integers(0, CLASSES, EXAMPLES)


def batch_of(labels, mask=None, axis_name=None):
    """A batch whose images carry nothing: the network knows its answer."""
    labels = jnp.asarray(labels, jnp.int32)
    size = labels.shape[0]
    mask = jnp.ones(size, jnp.float32) if mask is None else jnp.asarray(mask)
    keys = jax.random.wrap_key_data(jnp.zeros((size, 2), jnp.uint32))
    return methods.Batch(jnp.zeros((size, 1)), labels, mask, keys, axis_name)


def known_logits(variables, images, train=True, extras=()):
    """A network whose parameters are its logits, and its features too."""
    del images, train
    features = variables["params"] if "features" in extras else None
    return Outputs(variables["params"], features), {"seen": jnp.zeros(())}


def plain_loss(method, logits, batch, *, step=0, teacher=None):
    """`LossOutput` of `method` for members that answer `logits`."""
    if not isinstance(teacher, KnownTeachers):
        answers = jnp.asarray(teacher_of(method) if teacher is None else teacher)
        taught = method.needs_teacher or method.stale_steps
        alone = (lambda images: answers) if taught else None
        teacher = KnownTeachers(answers) if has_old(method) else alone
    if isinstance(method, methods.BayesianUpdate) and isinstance(batch.memory, tuple):
        batch = batch.replace(memory=jnp.asarray(COUNTS))
    if isinstance(method, methods.ChurnConstraint) and isinstance(batch.memory, tuple):
        batch = batch.replace(memory=jnp.full(method.members, 0.3))
    return method.loss(
        known_logits,
        {"params": jnp.asarray(logits)},
        batch,
        teacher=teacher,
        step=step,
        key=batch.keys[0],
    )


loss_of = jax.jit(plain_loss)  # once per structure


@jax.jit
@jax.vmap
def value_and_gradients(method, logits, labels, mask, teacher):
    """`(loss, terms), gradient in the logits, in the teachers` of every replica.

    Shards share a replica's batch. An output of one shard alone would raise an error:
    only those of all shards may have no axis of shards.
    """

    def local(logits, labels, mask, teacher):
        batch = batch_of(labels, mask, axis_name="data")
        out = plain_loss(method, logits, batch, teacher=teacher)
        return out.loss, dict(out.terms), out.memory

    def objective(logits, teacher):
        logits, teacher = (
            x.reshape(len(x), SHARDS, -1, CLASSES) for x in (logits, teacher)
        )
        rows = (x.reshape(SHARDS, -1) for x in (labels, mask))
        shared = jax.vmap(local, (1, 0, 0, 1), None, axis_name="data")
        loss, terms, _ = shared(logits, *rows, teacher)
        return loss, terms

    both = jax.value_and_grad(objective, (0, 1), has_aux=True)
    value, (gradient, theirs) = both(logits, teacher)
    return value, gradient, theirs


def evaluate(case, logits, labels, mask=None, teacher=None, scale=1.0):
    """`(loss, terms), gradient in the logits` of replicas; none reaches the teachers.

    Each replica has coefficients of its own: those of the case times `scale`.
    """
    replicas = len(logits)
    scale = np.broadcast_to(np.float32(scale), replicas)
    if mask is None:
        mask = np.ones((replicas, EXAMPLES), np.float32)
    if teacher is None:
        teacher = np.stack([teacher_of(case.method)] * replicas)
    method = jax.tree.map(lambda c: c * scale, case.method)
    value, gradient, theirs = jax.device_get(
        value_and_gradients(method, logits, np.int32(labels), mask, teacher)
    )
    assert not np.any(theirs)
    return value, gradient


def expected(case, logits, labels, *, rows=slice(None), fixed=None, **coefficients):
    """The reference objective: the mean over `rows`, float64."""
    options = {**case.coefficients, **coefficients}
    if case.method.needs_teacher and not isinstance(case.method, methods.Updating):
        options["teacher"] = TEACHER[:, rows]
    if has_old(case.method):
        options["old"] = OLD[:, rows]
    if case.method.stale_steps:
        options["stale"] = teacher_of(case.method)[:, rows]
    logits = np.asarray(logits, np.float64)[:, rows]
    fixed = logits if fixed is None else np.asarray(fixed, np.float64)[:, rows]
    return np.mean(case.reference(logits, labels[rows], fixed, **options))
