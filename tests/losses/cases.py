"""The tables of losses under test, so that every test is written once.

`CASES`: one row per formula, two logit arguments each. A row's `loss` and `reference`
take `(logits_a, logits_b)`; losses of one prediction ignore the second.

`PENALTIES`: one row per batch-coupled loss. `loss` takes `(outputs, mask, axis_name)`,
`reference` the valid outputs only.
"""

import dataclasses
import functools
from collections.abc import Callable

import jax
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
    distance: bool = False  # 0 between equal models, where its gradient is 0
    unlabelled: bool = True
    scale: float = 1.0  # what multiplies a divergence of order 1, and its rounding
    shifts: bool = True  # unchanged by a shift of all logits of an example
    bounded: bool = True  # by the size of the logits


def _label(name, options):
    return ",".join([name, *(f"{k}={v}" for k, v in options.items())])


def case(name, *roles, labelled=False, about=None, **options):
    """A loss of one prediction or, by keyword, of two models; perhaps of labels."""

    def call(module, a, b):
        given = dict(zip(roles or ("logits",), (a, b)))
        if labelled:  # of each example its own; the classes of `b` in another order
            numpy = jnp if module is losses else np
            given["labels"] = numpy.argmax(b[..., ::-1], axis=-1).astype(np.int32)
        return getattr(module, name)(**given, **options)

    return Case(
        _label(name, options),
        functools.partial(call, losses),
        functools.partial(call, reference),
        pair=len(roles) > 1,
        unlabelled=not labelled,
        **(about or {}),
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


of_labels = functools.partial(case, labelled=True)
PAIR = ("logits_a", "logits_b")
STUDENT = ("student_logits", "teacher_logits")
UPDATE = ("student_logits", "old_logits")
DISTANCE = {"distance": True}
SYMMETRIC = {"symmetric": True, **DISTANCE}
UNBOUNDED = {"shifts": False, "bounded": False}  # the power of a difference
FORM = {"top_k": 5, "order": 1.5, "rank_by": "student", "margin": 0.25}
FOCAL = {"alpha": 0.5, "beta": 1.0}


CASES = [
    of_labels("cross_entropy"),
    of_labels("label_smoothing", smoothing=0.2),
    of_labels("squared_error"),
    of_labels("focal", gamma=1.5),
    of_labels("backward_compatible", "old_head_logits"),
    case("entropy"),
    case("entropy", top_k=3),
    case("uniform_symmetric_kl"),
    case("uniform_symmetric_kl", top_k=3),
    case("l1", *PAIR, about=SYMMETRIC),
    case("symmetric_kl", *PAIR, about=SYMMETRIC),
    case("cross_entropy_between", "target_logits", "logits"),
    case("distillation_kl", *STUDENT, temperature=1.0, about=DISTANCE),
    case(
        "distillation_kl", *STUDENT, temperature=4.0, about=DISTANCE | {"scale": 16.0}
    ),
    dirichlet(10.0),
    case("logit_difference_inhibition", *STUDENT, top_k=3, about=UNBOUNDED | DISTANCE),
    case("logit_difference_inhibition", *STUDENT, **FORM, about=UNBOUNDED | DISTANCE),
    of_labels("released_logit_difference", *STUDENT, about=UNBOUNDED, margin=0.1),
    of_labels(
        "focal_kl", *UPDATE, **FOCAL, temperature=2.0, about=DISTANCE | {"scale": 6.0}
    ),
    of_labels("focal_logit_matching", *UPDATE, **FOCAL, about=UNBOUNDED | DISTANCE),
    of_labels("ract", "old_head_logits", "new_logits", about={"shifts": False}),
]


MEMBERS, BATCH, OUTPUTS = 3, 24, 2


@dataclasses.dataclass(frozen=True)
class Penalty:
    name: str
    loss: Callable
    reference: Callable
    coupled: bool = True  # its value is not a mean over examples
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


def value_and_gradients(loss, options, arrays):
    """The value of a loss, and its gradient in every floating-point array by name."""
    floating = {k for k, x in arrays.items() if jnp.issubdtype(x.dtype, jnp.floating)}
    fixed = {k: x for k, x in arrays.items() if k not in floating} | dict(options)
    value, pull = jax.vjp(
        lambda moving: loss(**moving, **fixed), {k: arrays[k] for k in floating}
    )
    return value, pull(jnp.ones_like(value))[0]


def options_and_arrays(**given):
    """Lists are float32 arrays; Python's numbers and strings are options."""
    options, arrays = {}, {}
    for name, x in given.items():
        if x is None or isinstance(x, (str, int, float)):
            options[name] = x
        else:
            real = isinstance(x, list) or np.issubdtype(x.dtype, np.floating)
            arrays[name] = np.asarray(x, np.float32) if real else x
    return options, arrays


_compiled = jax.jit(value_and_gradients, static_argnums=(0, 1))
_value = jax.jit(
    lambda loss, options, arrays: loss(**arrays, **dict(options)), static_argnums=(0, 1)
)


def evaluate(loss, **given):
    """`value_and_gradients` of a loss, compiled once per shapes and options."""
    options, arrays = options_and_arrays(**given)
    return jax.device_get(_compiled(loss, tuple(sorted(options.items())), arrays))


def value_of(loss, **given):
    """The value alone, which compiles in a third of the time."""
    options, arrays = options_and_arrays(**given)
    return jax.device_get(_value(loss, tuple(sorted(options.items())), arrays))


def remembered(program):
    """The program's results in NumPy, computed once for equal arrays."""
    found = {}

    def call(*arrays):
        key = tuple(np.asarray(x).tobytes() for x in arrays)
        if key not in found:
            found[key] = jax.device_get(program(*arrays))
        return found[key]

    return call
