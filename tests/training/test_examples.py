"""Networks of other people on data of other people: computed rightly, or refused."""

import dataclasses
from types import SimpleNamespace

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from churn_jax.data import Augmentation, Dataset, Split
from churn_jax.ensembles import from_function, from_linen, from_nnx, with_classes
from churn_jax.methods import ERM, EnsembleDistillation
from churn_jax.models import MLP, create
from churn_jax.training import MeshShape, Seeds, train
from churn_jax.training.examples import check_run, check_teacher_classes, split_example
from churn_jax.training.predictions import placed
from churn_jax.training.session import open_session
from churn_jax.training.teachers import repeated
from tests.refusals import refusals
from tests.training import tiny
from tests.training.tiny_texts import Bag


class Subclass(nn.BatchNorm):
    """Batch norm with another momentum, and the axis name of another trainer."""

    axis_name: str | None = "batch"
    momentum: float = 0.8


class Normalised(nn.Module):
    """Batch norm as everybody writes it, and state that follows from the weights."""

    @nn.compact
    def __call__(self, x, train):
        x = nn.Conv(4, (3, 3), strides=2)(x)
        x = nn.BatchNorm(use_running_average=not train, momentum=0.9)(x)
        x = nn.remat(Subclass)(use_running_average=not train)(nn.relu(x))
        x = nn.LayerNorm(epsilon=0.1)(x).reshape(x.shape[0], -1)
        return nn.SpectralNorm(nn.Dense(tiny.CLASSES))(x, update_stats=train)


class NnxNormalised(nnx.Module):
    def __init__(self, rngs):
        self.conv = nnx.Conv(1, 4, (3, 3), strides=2, rngs=rngs)
        self.norm = nnx.BatchNorm(4, momentum=0.9, rngs=rngs)
        self.layer = nnx.LayerNorm(4, epsilon=0.1, rngs=rngs)
        self.head = nnx.Linear(64, tiny.CLASSES, rngs=rngs)

    def __call__(self, x):
        x = self.layer(nnx.relu(self.norm(self.conv(x))))
        return self.head(x.reshape(x.shape[0], -1))


class LocalNorm(nn.Module):
    """Keeps the mean of the examples that it sees, and cannot average over devices."""

    @nn.compact
    def __call__(self, x, train):
        mean = self.variable("batch_stats", "mean", jnp.zeros, x.shape[-1:])
        if train and not self.is_initializing():
            mean.value = 0.9 * mean.value + 0.1 * jnp.mean(x, axis=(0, 1, 2))
        return x - mean.value[None, None, None]


class Local(nn.Module):
    classes: int = tiny.CLASSES

    @nn.compact
    def __call__(self, x, train):
        x = LocalNorm(name="norm")(x, train)
        return nn.Dense(self.classes)(x.reshape(x.shape[0], -1))


class Convolved(nn.Module):
    classes: int = tiny.CLASSES

    @nn.compact
    def __call__(self, x):
        x = nn.Conv(4, (3, 3))(x)
        return nn.Dense(self.classes)(x.reshape(x.shape[0], -1))


def after(network, mesh=MeshShape(), steps=3, replicas=2):
    """The state after a few updates of two networks, and where it started."""
    run = tiny.make_run(ERM(members=2), network=network, mesh=mesh, replicas=replicas)
    stepper = tiny.stepper(run)
    return stepper.now(), stepper.advance(steps)


@pytest.mark.slow
@pytest.mark.parametrize("network", [Normalised(), NnxNormalised], ids=["linen", "nnx"])
def test_statistics_are_those_of_the_global_batch_on_every_mesh(network):
    linen = isinstance(network, nn.Module)
    network = from_linen(network) if linen else from_nnx(network)
    start, one = after(network)
    _, mesh = after(network, MeshShape(2, 2, 2))
    moved = zip(*(jax.tree.leaves(s.model_state) for s in (start, one)), strict=True)
    assert all(np.max(np.abs(a - b)) > 1e-4 for a, b in moved)
    for a, b in ((one.model_state, mesh.model_state), (one.params, mesh.params)):
        assert tiny.largest_difference(a, b) < 1e-5


@pytest.mark.slow
def test_state_of_the_examples_is_right_on_one_device_and_refused_on_two():
    start, moved = after(from_linen(Local()), steps=1)
    mean = moved.model_state[0]["batch_stats"]["norm"]["mean"]
    assert (
        np.max(np.abs(mean - start.model_state[0]["batch_stats"]["norm"]["mean"])) > 0
    )
    message = "Local keeps batch_stats/norm/mean from the examples of one device, of 2"
    with pytest.raises(ValueError, match=message):
        after(from_linen(Local()), MeshShape(data=2))


def one_layer(classes):
    return from_function(
        lambda key, x: {"w": jnp.zeros((x[0].size, classes))},
        lambda params, x: x.reshape(x.shape[0], -1) @ params["w"],
        name="linear",
    )


test_answers_that_do_not_fit_the_classes_are_refused = refusals(
    (one_layer(7), "tiny: .*linear returns 7 logits, but the data has 5 classes"),
    (from_linen(Convolved(4)), "tiny: .*returns 4 logits, .*last layer 5 outputs"),
    (
        from_linen(nn.Dense(5)),
        r"tiny: .*Dense returns logits \[7, 8, 8, 5\].*\[B, C\]",
    ),
    (from_linen(nn.Embed(9, 5)), r"tiny: .*cannot be applied to examples \[8, 8, 1\]"),
    (
        from_function(lambda k, x: {}, lambda params, x: (x, x), name="pair"),
        "tiny: .*pair returns a tuple",
    ),
    call=lambda network: train(tiny.make_run(ERM(), network=network), tiny.dataset()),
)


LINEAR = tiny.make_run(ERM(), network=tiny.LINEAR)
test_what_a_training_cannot_do_with_what_it_is_given_is_refused = refusals(
    ({"std": 0.0}, "tiny: std must be above 0; got 0"),
    ({"std": (1.0, np.nan)}, r"tiny: std must be above 0; got \(1.0, nan\)"),
    ({}, 0.5, "tiny: keep=0.5 needs a start"),
    call=lambda given, keep=0.0: open_session(
        dataclasses.replace(LINEAR, keep=keep), tiny.dataset(), **given
    ),
)


def data(validation=None, **changes):
    """The tiny set with other examples, which are all of its splits."""
    part = dataclasses.replace(tiny.dataset().train, **changes)
    validation = part if validation is None else part.take(validation)
    splits = {"train": part, "validation": validation, "test": part}
    return dataclasses.replace(tiny.dataset(), **splits)


IMAGES, LABELS = tiny.dataset().train.images, tiny.dataset().train.labels
FLAT, FIRST = data(images=IMAGES[..., 0]), data(images=IMAGES.transpose(0, 3, 1, 2))
UNKNOWN = dataclasses.replace(data(), validation=data(labels=LABELS + 1).train)
CONVOLVED = from_linen(Convolved())


def check(network, dataset):
    check_run(tiny.make_run(ERM(), network=network), dataset)


test_data_that_do_not_fit_are_refused = refusals(
    (CONVOLVED, FLAT, r"Convolved convolves .* images\[\.\.\., None\]"),
    (from_nnx(NnxNormalised), FLAT, r"tiny: NnxNormalised .*given \[B, H, W, C\]"),
    (CONVOLVED, FIRST, r"tiny: .* channels last"),
    (CONVOLVED, UNKNOWN, r"tiny: validation labels must lie in 0\.\.4"),
    (CONVOLVED, data(slice(0)), "tiny: there are no validation examples"),
    call=check,
)


def test_what_does_not_convolve_takes_images_without_channels():
    check(one_layer(tiny.CLASSES), FLAT)
    with pytest.raises(ValueError, match=r"images: .* channels last"):
        placed(FIRST.test.images, None)


def test_teachers_of_some_classes_say_which():
    example = split_example(tiny.dataset().train)
    student = tiny.make_run(EnsembleDistillation())
    few = from_linen(Convolved(3))
    teacher = tiny.make_run(ERM(), network=few)
    with pytest.raises(ValueError, match="teacher Convolved returns 3 logits, not 5"):
        check_teacher_classes(student, teacher, example, tiny.CLASSES)
    known = tiny.make_run(ERM(), network=with_classes(few, (0, 2, 4), tiny.CLASSES))
    check_teacher_classes(student, known, example, tiny.CLASSES)
    with pytest.raises(ValueError, match="tiny: its teacher linear returns 7 logits"):
        tiny.session_of(student, taught_by=tiny.teacher(2, network=one_layer(7)))
    with pytest.raises(ValueError, match=r"alike; .* \(0.0, 1.0\) and \(0.5, 0.25\)"):
        open_session(student, tiny.dataset(), teacher=tiny.teacher(2))
    with pytest.raises(ValueError, match="tiny: teacher teaches 2 replicas"):
        tiny.session_of(student, taught_by=tiny.teacher(2, replicas=2))


def test_weights_to_start_from_are_of_all_replicas_and_of_pixels_on_one_scale():
    old = tiny.teacher(1, 2, tiny.LINEAR)
    (variables,) = old.teacher_variables()

    def session(times, **moments):
        params = repeated((variables["params"],), times)
        start = SimpleNamespace(**vars(old), params=params, model_state=({},))
        return open_session(LINEAR, tiny.dataset(), start=start, **moments)

    found = session(2, **tiny.MOMENTS).parts[0].state.params[0]["kernel"]
    kernel = variables["params"]["kernel"]
    np.testing.assert_array_equal(found, np.concatenate([kernel, kernel]))
    with pytest.raises(ValueError, match="members or replicas differ"):
        session(1, **tiny.MOMENTS)
    with pytest.raises(ValueError, match="tiny and teacher must normalise pixels alik"):
        session(2)


# Token ids: what is refused; `tests/studies/test_text_study.py` trains on them.
TOKENS = np.array([[3, 4, 0], [19, 0, 0]], np.int32)

_SPLIT = Split(TOKENS, np.arange(2), np.array(["a", "b"]))
TEXTS = Dataset("texts", _SPLIT, _SPLIT, _SPLIT, 3, "")
OFF = {"augmentation": Augmentation(), "batch_size": 2}  # as small as the set


def run(module, method=ERM(), **options):
    return tiny.make_run(method, network=from_linen(module), **OFF | options)


@pytest.mark.parametrize("split", ["validation", "test"])
def test_token_ids_of_every_split_must_be_known(split):
    for number, said in ((20, "token ids go up to 20, but Bag has 20"), (-1, "got -1")):
        ids = dataclasses.replace(_SPLIT, images=np.full_like(TOKENS, number))
        with pytest.raises(ValueError, match=said):
            check_run(run(Bag()), dataclasses.replace(TEXTS, **{split: ids}))


def test_heads_of_attention_are_no_members():
    for name in ("text_encoder", "swin_tiny"):
        assert from_linen(create(name, num_classes=3)).heads == 1


def test_texts_that_are_neither_moved_nor_unknown_are_let_through():
    check_run(run(Bag()), TEXTS)
    off = {"augmentation": Augmentation(flip=True), "seeds": Seeds(augment="off")}
    check_run(run(Bag(), **off), TEXTS)


test_what_would_move_texts_or_not_know_them_is_refused = refusals(
    (run(Bag(), augmentation=Augmentation(flip=True)), "tiny: token ids are not"),
    (run(Bag(), EnsembleDistillation(perturbation="ods")), "token ids have none"),
    (run(MLP(num_classes=3, features=(4,))), "be applied to token ids .*got int32"),
    (run(Bag(vocabulary=19)), "Bag has 19 embeddings; set data.vocabulary_size=19"),
    call=lambda refused: check_run(refused, TEXTS),
)
