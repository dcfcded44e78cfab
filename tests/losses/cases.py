"""The tables of losses under test, so that every test is written once.

`CASES`: one row per formula, two logit arguments each. A row's `loss` and `reference`
take `(logits_a, logits_b)`; losses of one prediction ignore the second.

`PENALTIES`: one row per batch-coupled loss. `loss` takes `(outputs, mask, axis_name)`,
`reference` the valid outputs only.
"""

import dataclasses
from collections.abc import Callable

import jax.numpy as jnp
import numpy as np

from churn_jax import losses
from tests import reference_losses as reference

CLASSES = 12


@dataclasses.dataclass(frozen=True)
class Case:
    name: str
    loss: Callable
    reference: Callable
    pair: bool = False
    symmetric: bool = False
    labelled: bool = False
    scale: float = 1.0  # what multiplies a divergence of order 1, and its rounding
    shifts: bool = True  # unchanged by a shift of all logits of an example
    bounded: bool = True  # by the size of the logits


def single(name, **options):
    loss, expected = getattr(losses, name), getattr(reference, name)
    label = ",".join([name, *(f"{k}={v}" for k, v in options.items())])
    return Case(
        label, lambda a, b: loss(a, **options), lambda a, b: expected(a, **options)
    )


def labelled(name, **options):
    """One label for every example, so that the row also makes sense inside vmap."""
    loss, expected = getattr(losses, name), getattr(reference, name)
    return Case(
        ",".join([name, *(f"{k}={v}" for k, v in options.items())]),
        lambda a, b: loss(a, jnp.full(a.shape[:-1], 3, jnp.int32), **options),
        lambda a, b: expected(a, np.full(a.shape[:-1], 3), **options),
        labelled=True,
    )


def distillation(temperature):
    return Case(
        f"distillation_kl,temperature={temperature}",
        lambda a, b: losses.distillation_kl(
            student_logits=a, teacher_logits=b, temperature=temperature
        ),
        lambda a, b: reference.distillation_kl(
            student_logits=a, teacher_logits=b, temperature=temperature
        ),
        pair=True,
        scale=temperature**2,
    )


def dirichlet(temperature):
    """Two teachers: `b`, and one that is less sure of the same."""
    return Case(
        f"dirichlet_nll,temperature={temperature}",
        lambda a, b: losses.dirichlet_nll(
            student_logits=a,
            teacher_logits=jnp.stack([b, b * jnp.asarray(0.5, b.dtype)]),
            temperature=temperature,
        ),
        lambda a, b: reference.dirichlet_nll(
            a, np.stack([b, 0.5 * b]), temperature=temperature
        ),
        pair=True,
        scale=16.0,  # the value is a sum of terms of this size
        shifts=False,  # of the student: the precision
        bounded=False,  # the precision is their exponential
    )


def difference(**options):
    """A teacher's classes all count: its logits are above those of unknown ones."""

    def loss(a, b):
        return losses.logit_difference_inhibition(
            student_logits=a, teacher_logits=b, **options
        )

    return Case(
        ",".join(["logit_difference_inhibition", *map(str, options.values())]),
        loss,
        lambda a, b: reference.logit_difference_inhibition(
            student_logits=a, teacher_logits=b, **options
        ),
        pair=True,
        shifts=False,
        bounded=False,  # the power of a difference
    )


def update(name, student="student_logits", old="old_logits", *, case=None, **options):
    """A loss between two versions, with one label for every example."""
    expected = getattr(reference, name)

    def loss(a, b):
        labels = jnp.full(a.shape[:-1], 3, jnp.int32)
        roles = {student: a, old: b}
        return getattr(losses, name)(**roles, labels=labels, **options)

    return Case(
        name,
        loss,
        lambda a, b: expected(
            **{student: a, old: b}, labels=np.full(a.shape[:-1], 3), **options
        ),
        pair=True,
        labelled=True,
        **(case or {}),
    )


UNBOUNDED = {"shifts": False, "bounded": False}


CASES = [
    labelled("cross_entropy"),
    labelled("label_smoothing", smoothing=0.2),
    labelled("squared_error"),
    labelled("focal", gamma=1.5),
    single("entropy"),
    single("entropy", top_k=3),
    single("renormalized_entropy", top_k=5),
    single("uniform_symmetric_kl"),
    single("uniform_symmetric_kl", top_k=3),
    single("renormalized_uniform_symmetric_kl", top_k=4),
    Case("l1", losses.l1, reference.l1, pair=True, symmetric=True),
    Case(
        "symmetric_kl",
        losses.symmetric_kl,
        reference.symmetric_kl,
        pair=True,
        symmetric=True,
    ),
    Case(
        "cross_entropy_between",
        lambda a, b: losses.cross_entropy_between(target_logits=a, logits=b),
        lambda a, b: reference.cross_entropy_between(target_logits=a, logits=b),
        pair=True,
    ),
    distillation(1.0),
    distillation(4.0),
    dirichlet(10.0),
    difference(top_k=3),
    difference(top_k=5, order=1.5, rank_by="student", margin=0.25),
    update(
        "released_logit_difference", old="teacher_logits", margin=0.1, case=UNBOUNDED
    ),
    update("focal_kl", temperature=2.0, alpha=0.5, beta=1.0, case={"scale": 6.0}),
    update("focal_logit_matching", alpha=0.5, beta=1.0, case=UNBOUNDED),
    labelled("backward_compatible"),
    update("ract", student="old_head_logits", old="new_logits", case={"shifts": False}),
]


MEMBERS, BATCH, OUTPUTS = 3, 24, 2


@dataclasses.dataclass(frozen=True)
class Penalty:
    name: str
    loss: Callable
    reference: Callable
    coupled: bool = True  # its value is no mean over examples
    ordered: bool = False  # the order of three members matters
    power: int | None = 4  # what c times the outputs do to it; None: no power of c
    divided_by: float = 1.0  # the share that is taken out of the gradient


def penalty(name, *, coupled=True, ordered=False, power=4, **options):
    loss, expected = getattr(losses, name), getattr(reference, name)
    return Penalty(
        ",".join([name, *(f"{k}={v}" for k, v in options.items())]),
        lambda z, mask=None, axis_name=None: loss(z, mask, axis_name, **options),
        lambda z: expected(z, **options),
        coupled=coupled,
        ordered=ordered,
        power=power,
    )


EARLIER = [
    np.random.default_rng(seed).normal(1.0, 1.5, (MEMBERS, 16, OUTPUTS))
    for seed in (100, 101)
]


def running(decay, centred):
    """The running penalty after two earlier batches; unlike the others, no power."""
    means, seconds, covariances = reference.running_moments(EARLIER, decay)
    state = losses.MomentState(
        weight=np.float32(1.0 - decay**2),
        mean=np.asarray(means.T[:, None], np.float32),
        second=np.asarray(seconds, np.float32),
        covariance=np.asarray(covariances, np.float32),
    )

    def loss(z, mask=None, axis_name=None):
        return losses.running_correlation_penalty(
            z, state, decay, mask, axis_name, centred
        ).penalty

    return Penalty(
        f"running_correlation_penalty,decay={decay},centred={centred}",
        loss,
        lambda z: reference.running_correlation_penalty([*EARLIER, z], decay, centred),
        power=None,
        divided_by=(1.0 - decay) / (1.0 - decay**3),
    )


PENALTIES = [
    penalty("correlation_penalty"),
    penalty("covariance_penalty"),
    penalty("residual_correlation_penalty"),
    penalty("orthogonalized_correlation_penalty", ordered=True),
    penalty("difference_penalty", coupled=False, power=2),
    penalty("difference_penalty", coupled=False, power=1, order=1),
    penalty("difference_penalty", coupled=False, power=None, order=2.5),
    penalty("inverse_difference_penalty", power=None, epsilon=0.1),
    penalty("cross_entropy_difference_penalty", coupled=False, power=None),
    running(0.5, centred=False),
    running(0.9, centred=True),
]
