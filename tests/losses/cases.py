"""The table of losses under test: one row per formula, two logit arguments each.

A row's `loss` and `reference` take `(logits_a, logits_b)`. Losses of one prediction
ignore the second, so that every test is written once.
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
    scale: float = 1.0  # what multiplies a divergence of order 1, and its rounding


def single(name, **options):
    loss, expected = getattr(losses, name), getattr(reference, name)
    label = ",".join([name, *(f"{k}={v}" for k, v in options.items())])
    return Case(
        label, lambda a, b: loss(a, **options), lambda a, b: expected(a, **options)
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


CASES = [
    # One label for every example, so that the row also makes sense inside vmap.
    Case(
        "cross_entropy",
        lambda a, b: losses.cross_entropy(a, jnp.full(a.shape[:-1], 3, jnp.int32)),
        lambda a, b: reference.cross_entropy(a, np.full(a.shape[:-1], 3)),
    ),
    single("entropy"),
    single("entropy", top_k=1),
    single("entropy", top_k=3),
    single("entropy", top_k=CLASSES),
    single("renormalized_entropy", top_k=2),
    single("renormalized_entropy", top_k=5),
    single("uniform_symmetric_kl"),
    single("uniform_symmetric_kl", top_k=3),
    single("uniform_symmetric_kl", top_k=CLASSES),
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
    distillation(0.5),
]
