"""Distillation on perturbed images, against NumPy with networks written out.

Students and teachers are linear maps of the normalised image; the students subtract
their batch's mean as a batch norm does and keep a running one.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from churn_jax import perturbations
from churn_jax.ensembles import Outputs
from churn_jax.methods import (
    ERM,
    Batch,
    Codistillation,
    EnsembleDistillation,
    EnsembleDistributionDistillation,
    OneToOneDistillation,
)
from churn_jax.methods.base import Passes
from churn_jax.methods.perturbing import PERTURBATIONS
from churn_jax.perturbations import draw_guides
from tests.differences import difference_quotient
from tests.methods import reference

EXAMPLES, CLASSES, MEMBERS = 6, 3, 2
MEAN, STD = (0.4, 0.5), (0.2, 0.3)
LAST = 5  # the row of padding
RNG = np.random.default_rng(0)
# Some steps of 0.1 leave [0, 1] and are clipped.
PIXELS = RNG.uniform(0, 1, (EXAMPLES, 2, 2, 2)).astype(np.float32)
LABELS = RNG.integers(0, CLASSES, EXAMPLES)
STUDENTS = RNG.normal(size=(MEMBERS, 8, CLASSES)).astype(np.float32)
TEACHERS = 2 * RNG.normal(size=(MEMBERS + 1, 8, CLASSES)).astype(np.float32)
RUNNING = RNG.normal(size=(MEMBERS, CLASSES)).astype(np.float32)
KEYS = jax.random.split(jax.random.key(1), EXAMPLES)
KEY = jax.random.key(3)
# A step is divided by a norm and by the deviation of pixels in float32.
RTOL = 3e-5
COMMON = {"alpha": 0.7, "temperature": 3.0, "step_size": 0.1}


def linear(x, weights):
    """Logits `[M, B, C]` of images `[B, ...]`."""
    return jnp.einsum("bd,mdc->mbc", x.reshape(x.shape[0], -1), weights)


def apply(variables, images, train=True):
    """The students: centred over the batch in training, by the running mean after."""
    raw, running = linear(images, variables["params"]), variables["running"]
    if not train:
        return Outputs(raw - running[:, None]), {"running": running}
    mean = jnp.mean(raw, axis=1)
    return Outputs(raw - mean[:, None]), {"running": 0.9 * running + 0.1 * mean}


@jax.jit
def evaluate(method, students, teachers):
    """`(LossOutput, gradient in the students, gradient in the teachers)`."""
    mask = jnp.ones(EXAMPLES).at[LAST].set(0.0)
    images = jnp.asarray(normalised(PIXELS), jnp.float32)
    images = images.at[LAST].set(jnp.nan)

    def objective(students, teachers):
        def teacher(images, pick=None):
            logits = linear(images, teachers)
            return logits if pick is None else logits[pick]

        out = method.loss(
            apply,
            {"params": students, "running": jnp.asarray(RUNNING)},
            Batch(
                images, jnp.asarray(LABELS), mask, KEYS, pixel_mean=MEAN, pixel_std=STD
            ),
            teacher=teacher,
            step=jnp.int32(0),
            key=KEY,
        )
        return out.loss, out

    both = jax.value_and_grad(objective, (0, 1), has_aux=True)
    (_, out), gradients = both(students, teachers)
    return out, *gradients


# The same in float64 NumPy.


def normalised(pixels):
    return (pixels - np.reshape(MEAN, (1, 1, 1, 2))) / np.reshape(STD, (1, 1, 1, 2))


def clean():
    images = normalised(PIXELS.astype(np.float64))
    images[LAST] = 0.0  # padding enters the network as zeros
    return images


def answer(images, weights):
    flat = images.reshape(len(images), -1)
    return np.stack([flat @ w for w in weights.astype(np.float64)])


def moved(kind, *, temperature, step_size, external=0):
    """The perturbed images, normalised; padding enters the network as zeros.

    The steps are the public ones, which tests/perturbations compares with NumPy.
    """
    if kind == "none":
        return clean()
    last = MEMBERS + external
    pick = int(jax.random.randint(KEY, (), MEMBERS if external else 0, last))

    def teachers(pixels, weights=TEACHERS[:MEMBERS]):
        return linear(normalised(pixels), weights)

    def drawn(pixels):
        return teachers(pixels, TEACHERS[pick : pick + 1])[0]

    def students(pixels):
        return linear(normalised(pixels), STUDENTS) - RUNNING[:, None]

    pixels = jnp.asarray(clean() * np.array(STD) + np.array(MEAN), jnp.float32)
    keys = jax.vmap(jax.random.fold_in, (0, None))(KEYS, 1)
    given = {
        "gaussian": (pixels, keys),
        "adversarial": (drawn, pixels, LABELS),
        "two_sided": (teachers, students, pixels),
    }.get(kind, (drawn, pixels, keys))

    @jax.jit
    def step(temperature, step_size):
        options = {} if kind == "gaussian" else {"temperature": temperature}
        return getattr(perturbations, kind)(*given, step_size=step_size, **options)

    images = np.array(normalised(step(temperature, step_size)))
    images[LAST] = 0.0
    return images


OBJECTIVES = {
    OneToOneDistillation: reference.one_to_one_distillation,
    EnsembleDistillation: reference.ensemble_distillation,
    EnsembleDistributionDistillation: functools.partial(
        reference.ensemble_distribution_distillation, smoothing=1e-4
    ),
}


def expected(cls, images, students=STUDENTS, *, alpha, temperature):
    """The loss where the perturbed images are `images`, and the running means."""
    passes = [answer(x, students) for x in (clean(), images)]
    means = [z.mean(axis=1) for z in passes]
    logits, heard = (z - m[:, None] for z, m in zip(passes, means))
    rows = slice(0, LAST)
    values = OBJECTIVES[cls](
        logits[:, rows],
        LABELS[rows],
        alpha=alpha,
        temperature=temperature,
        teacher=answer(images, TEACHERS[:MEMBERS])[:, rows],
        students=heard[:, rows],
    )
    return np.mean(values), means


CASES = [  # every method and every step
    (OneToOneDistillation, "none"),
    (EnsembleDistillation, "conf_ods"),
    (EnsembleDistributionDistillation, "gaussian"),
    *(
        pytest.param(OneToOneDistillation, kind, marks=pytest.mark.slow)
        for kind in ("adversarial", "two_sided")
    ),
]


@pytest.mark.parametrize(("cls", "kind"), CASES)
def test_loss_gradient_and_running_means_equal_numpy(cls, kind):
    """Means over valid rows; what made the perturbed image is not differentiated."""
    method = jax.tree.map(jnp.float32, cls(members=2, perturbation=kind, **COMMON))
    out, students, teachers = evaluate(method, STUDENTS, TEACHERS[:MEMBERS])
    images = moved(kind, temperature=3.0, step_size=0.1)
    share = {"alpha": 0.7, "temperature": 3.0}
    loss, means = expected(cls, images, **share)
    np.testing.assert_allclose(out.loss, loss, rtol=RTOL)
    # The clean batch comes first, the perturbed one after it.
    running = 0.9 * RUNNING + 0.1 * means[0]
    if kind != "none":
        running = 0.9 * running + 0.1 * means[1]
    np.testing.assert_allclose(out.model_state["running"], running, atol=1e-6)
    np.testing.assert_array_equal(teachers, 0.0)
    numeric = difference_quotient(
        lambda nudged: expected(cls, images, nudged, **share)[0], STUDENTS
    )
    np.testing.assert_allclose(students, numeric, atol=2e-5)
    assert np.abs(numeric).max() > 0.1


def test_every_step_has_a_case():
    tested = {getattr(case, "values", case)[1] for case in CASES}
    assert tested | {"ods"} == set(PERTURBATIONS)  # which is tested with coefficients


def test_coefficients_may_differ_and_an_external_teacher_gives_directions_alone():
    alphas, taus, sizes = [0.0, 0.4, 1.0], [1.0, 2.0, 5.0], [0.2, 0.05, 0.0]
    stacked = OneToOneDistillation(
        members=2,
        perturbation="ods",
        external_teachers=1,
        alpha=jnp.array(alphas),
        temperature=jnp.array(taus),
        step_size=jnp.array(sizes),
    )
    together = jax.vmap(evaluate, (0, None, None))(stacked, STUDENTS, TEACHERS)
    for r, (alpha, tau, size) in enumerate(zip(alphas, taus, sizes)):
        images = moved("ods", temperature=tau, step_size=size, external=1)
        loss, _ = expected(OneToOneDistillation, images, alpha=alpha, temperature=tau)
        np.testing.assert_allclose(together[0].loss[r], loss, rtol=RTOL)
    own, other = (
        moved("ods", temperature=3.0, step_size=0.1, external=e) for e in (0, 1)
    )
    assert np.abs(own - other).max() > 0.1


def test_guides_do_not_know_how_the_image_was_augmented():
    """The mirror bit is the first bit of the key's fifth number: so was a guide's."""
    keys = jax.random.split(jax.random.key(0), 500)
    method = OneToOneDistillation(
        perturbation="ods", step_size=1.0, pixel_range=None, temperature=1.0
    )

    def predict(images, pick=None):
        return images[None] if pick is None else images

    @jax.jit
    def draw(keys):
        bits = jax.vmap(lambda key: jax.random.bits(key, (5,))[4])(keys)
        batch = Batch(jnp.zeros((500, 5)), jnp.zeros(500, int), jnp.ones(500), keys)
        step = method.perturbed(batch, predict, predict, temperature=1.0, key=KEY)
        # The direction is the guide less its mean: nearly the guide's own sign.
        return bits >> 31, step[:, 4] > 0, draw_guides(keys, 5)[:, 4] > 0

    mirrored, seen, own = (np.asarray(x, float) for x in draw(keys))
    assert abs(np.corrcoef(seen, mirrored)[0, 1]) < 0.15
    # What it would be with the keys of the augmentation themselves.
    assert abs(np.corrcoef(own, mirrored)[0, 1]) > 0.99


def test_temperature_falls_linearly_to_one():
    method = EnsembleDistributionDistillation(temperature=10.0, anneal_steps=90.0)
    steps = [0, 30, 90, 1000]
    taus = [float(method.annealed(t)) for t in steps]
    np.testing.assert_allclose(taus, [10, 7, 1, 1], rtol=1e-6)
    constant = EnsembleDistributionDistillation(temperature=10.0)
    assert [float(constant.annealed(t)) for t in steps] == [10.0] * 4


def passes(kind):
    return OneToOneDistillation(members=2, perturbation=kind).passes


def test_passes_are_counted_by_hand():
    assert ERM().passes == Passes()
    assert EnsembleDistillation().passes == Passes(teachers=1)
    assert Codistillation(refresh_steps=2, update="independent").passes.forward == 1
    assert passes("none") == Passes(teachers=1)
    assert passes("gaussian") == Passes(training=2, teachers=1)
    for kind in ("ods", "conf_ods", "adversarial"):
        assert passes(kind) == Passes(training=2, teachers=1, drawn_teacher=1)
    assert passes("two_sided") == Passes(
        training=2, teachers=1, input_gradients=1, teachers_input_gradients=1
    )


def test_inputs_that_are_no_pixels_are_not_clipped_silently():
    ods = OneToOneDistillation(perturbation="ods")
    features = np.array([[-3.0, 2.0]], np.float32)
    with pytest.raises(ValueError, match=r"from -3 to 2, outside of pixel_range \(0"):
        ods.check_inputs(features)
    ods.check_inputs(features.clip(0, 1))
    ods.check_inputs(np.array([[0, 255]], np.uint8))
    ods.replace(pixel_range=(-3.0, 2.0)).check_inputs(features)
    ods.replace(pixel_range=None).check_inputs(features)
    OneToOneDistillation().check_inputs(features)
    ERM().check_inputs(features)
