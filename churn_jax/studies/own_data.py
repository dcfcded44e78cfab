"""A study of the user's own data: a recipe for their kind and size, with its reasons.

The recipe is ours and a start: every number of it can be set, and `churn-jax sweep own`
chooses rates and coefficients on the validation split.
"""

import dataclasses
import re
from operator import attrgetter
from typing import Any, NamedTuple

from churn_jax.configuration.network import (
    ModelConfig,
    data_name,
    data_stem,
    network_name,
    short_name,
)
from churn_jax.configuration.study import DataConfig, StudyConfig
from churn_jax.configuration.training import OptimizerConfig, TrainConfig
from churn_jax.data import Augmentation, DataError
from churn_jax.methods.fields import check_whole
from churn_jax.registry import is_own
from churn_jax.setting_checks import check_least
from churn_jax.studies.inputs import DataFacts, facts_of, load_inputs
from churn_jax.studies.presets.reproducibility import paper_rows

_SMALL, _LARGE = 12, 80  # sides of images: an MLP below, a ResNet for 224 pixels above
_GREY = 40  # side up to which images of one channel take LeNet5
_SHIFT = 14  # one pixel of shift for so many of the side, at most _MOST_SHIFT
_MOST_SHIFT = 4
# Epochs from which images are shifted. Accuracy on the validation split with shifts and
# without: LeNet5 on Fashion-MNIST, 54,000 images and 12 epochs 90.8 and 91.6 %, 2,000
# images and 60 epochs 85.0 and 84.3 %; an MLP on 700 digits, 100 epochs, 95.0 and
# 97.7 %.
_SHIFTED_FROM = 20
_BATCHES = ((4000, 128), (1000, 64), (1, 32))  # from so many examples on
_RUNS = 5
# Between what the presets chose on the validation splits of the digits and of MNIST.
_COEFFICIENTS: dict[str, Any] = {
    "distillation": (0.9, 2.0),
    "codistill_ce": 1.0,
    "codistill_skl": 1.0,
}


class _Family(NamedTuple):
    """How networks of one kind are trained, at a batch of 128."""

    reason: str  # shown with the optimiser
    name: str
    rate: float
    weight_decay: float
    updates: int = 5000  # of the whole training, as far as the epochs allow
    epochs: tuple[int, int] = (10, 100)  # fewest and most

    def optimizer(self, batch_size: int, epochs: int) -> OptimizerConfig:
        """The optimiser for a batch and a length."""
        # Linear in the batch with batch norm, else with its square root.
        linear = self is _FAMILIES["batch_norm"]
        scale = (batch_size / 128) ** (1.0 if linear else 0.5)
        return OptimizerConfig(
            name=self.name,
            learning_rate=float(f"{self.rate * scale:.2g}"),
            weight_decay=self.weight_decay,
            decay="decoupled" if self.name == "adam" else "l2",
            schedule="cosine",
            warmup_epochs=round(max(epochs / 20, min(1.0, epochs / 4)), 2),
        )


_FAMILIES = {
    "dense": _Family(
        "Adam needs no tuning to the scale of the inputs", "adam", 2e-3, 1e-2
    ),
    "plain": _Family(
        "the usual one for convolutions without batch norm", "sgd", 0.05, 5e-4
    ),
    "batch_norm": _Family(
        "the usual one for networks with batch norm",
        "sgd",
        0.1,
        5e-4,
        20_000,
        (30, 200),
    ),
    "transformer": _Family(
        "as transformers are usually trained", "adam", 1e-3, 1e-2, 4000, (3, 30)
    ),
    "own": _Family(
        "Adam needs no tuning to a network that is not known", "adam", 1e-3, 1e-2
    ),
    "pretrained": _Family(
        "the usual small rate for fine-tuning", "adam", 5e-5, 1e-2, 4000, (3, 10)
    ),
}


def data_facts(data: DataConfig) -> DataFacts:
    """Opens the data."""
    if not data.name:
        raise ValueError(
            "a study of your own data needs --data: an .npz file, a TFDS name, a "
            "folder with train.csv and test.csv of texts, or package.module:function "
            "of a function that returns a data set"
        )
    facts = facts_of(load_inputs(data, data.train_size).dataset)
    # Not of every study: the tiny form of a preset sets them for data of any kind.
    texts = ("texts", facts.kind == "tokens")
    read = {"image_size": ("images of various sizes", facts.streamed)}
    read |= dict.fromkeys(("sequence_length", "vocabulary_size", "vocabulary"), texts)
    for field, (what, holds) in read.items():
        if not holds and getattr(data, field) != getattr(DataConfig, field):
            raise DataError(
                f"data.{field} is for {what}, which {data.name} is not; leave it out"
            )
    return facts


def unknown() -> StudyConfig:
    """The study before its data are known."""
    return StudyConfig(
        name="own",
        title="Your own data with a recipe for their kind and size",
        data=DataConfig(name="", validation=None),
        model=ModelConfig(name=""),
        train=TrainConfig(replicas=_RUNS),
        methods=paper_rows(**_COEFFICIENTS, ramp_steps=1.0),
    )


def own_study(
    data: DataConfig,
    facts: DataFacts | None = None,
    *,
    model: ModelConfig | str = "",
    epochs: int = 0,
    batch_size: int = 0,
) -> StudyConfig:
    """A study of any data with a recipe for their kind and size.

    Args:
        data: which examples; with `train_size` None all of them train.
        facts: facts of the data; None opens them.
        model: the network or its name; empty chooses one.
        epochs: passes over the training set; 0 chooses.
        batch_size: examples per update; 0 chooses.

    Returns:
        The study, whose `notes` say what was chosen and why.

    Raises:
        churn_jax.data.DataError: the data cannot be used.

    Example:
        >>> study = own_study(DataConfig("digits", validation=None))
        >>> study.title, study.model.name, study.train.epochs
        ('Churn on the UCI hand-written digits with MLP', 'mlp', 100)
    """
    facts = data_facts(data) if facts is None else facts
    check_least("training examples", facts.train, 1)
    for name, value in (("epochs", epochs), ("batch_size", batch_size)):
        check_whole(name, value)
        check_least(name, value, 0)
    model = ModelConfig(name=model) if isinstance(model, str) else model
    if not model.name:
        model = dataclasses.replace(model, name=_network(facts)[0])
    if facts.tokens and not model.vocabulary_size and not model.pretrained:
        model = dataclasses.replace(model, vocabulary_size=facts.tokens)
    family = _family(model)
    batch_size = batch_size or _batch_size(facts)
    steps = max(facts.train // batch_size, 1)
    epochs = epochs or _epochs(family, steps)
    title = f"Churn on {data_name(data.name)} with {network_name(model.name)}"
    if data.train_size is not None:
        title += f", {data.train_size:,} training examples"
    set_name = re.sub(r"[^\w.-]+", "-", data_stem(data.name))
    study = StudyConfig(
        name=f"own-{set_name}-{short_name(model.name)}",
        title=title,
        data=data,
        model=model,
        train=TrainConfig(
            replicas=_RUNS,
            epochs=epochs,
            batch_size=batch_size,
            eval_every_epochs=max(epochs // 10, 1),
            optimizer=family.optimizer(batch_size, epochs),
            augmentation=_augmentation(facts, model, epochs)[0],
        ),
        # Coefficients grow over the whole training, as the rate falls.
        methods=paper_rows(**_COEFFICIENTS, ramp_steps=float(epochs * steps)),
    )
    return described(study, study, facts)


def described(chosen: StudyConfig, study: StudyConfig, facts: DataFacts) -> StudyConfig:
    """The study with notes: its data, and a table of setting, value and why.

    `study` is the recipe `chosen` with what was given otherwise, which has no reason.
    """
    model, train, optimizer = study.model, study.train, chosen.train.optimizer
    family = _family(model)
    still = train.seeds.augment == "off"
    steps = max(facts.train // train.batch_size, 1)
    here, (least, most) = f"here {train.epochs * steps:,}", family.epochs
    length = f"for about {family.updates:,} updates in {least} to {most} epochs, {here}"
    settle = "warm-up, then cosine to zero so that weights settle"
    course = attrgetter("schedule", "warmup_epochs", "final_factor")
    if course(train.optimizer) != course(optimizer):
        settle = "its schedule as given"
    if (name := train.optimizer.name) != optimizer.name:
        other = f"chosen for {optimizer.name}, so give one for {short_name(name)}"
        settle = f"{other}; {settle}"
    table = [  # setting, what is chosen where nothing is given, and why
        ("model.name", *_network(facts)),
        ("train.optimizer.name", optimizer.name, family.reason),
        ("train.optimizer.learning_rate", optimizer.learning_rate, settle),
        ("train.epochs", _epochs(family, steps), length),
        ("train.batch_size", _batch_size(facts), "smaller sets take smaller batches"),
        ("train.augmentation", *_augmentation(facts, model, train.epochs)),
    ]
    shape = " x ".join(map(str, facts.shape))
    kinds = {
        "images": f"images of {shape}",
        "table": f"rows of {shape} numbers",
        "tokens": f"texts of at most {shape} tokens",
    }
    notes = [
        f"{facts.train:,} training, {facts.validation:,} validation and "
        f"{facts.test:,} test {kinds[facts.kind]}, {facts.classes} classes."
    ]
    if facts.kind == "images":
        own, large = "those of the training images", "ImageNet's mean and deviation"
        notes.append(f"Pixels are standardised by {large if facts.streamed else own}.")
    for path, value, why in table:
        found = attrgetter(path)(study)
        if not found or (path == "train.augmentation" and still):
            continue
        if path.endswith("learning_rate") and train.optimizer.unread("learning_rate"):
            continue  # of a transformation, which has its own
        shown = short_name(found) if isinstance(found, str) else found
        if isinstance(found, Augmentation):
            fields = dataclasses.asdict(found).items()
            shown = ", ".join(f"{k} {v}" for k, v in fields if v) or "none"
        notes.append(f"{path} = {shown} ({why if found == value else 'as given'}).")
    if chosen.methods == study.methods:
        notes.append(
            "Coefficients of methods are starting values; sweeps choose them on the "
            "validation split."
        )
    return dataclasses.replace(study, notes=tuple(notes))


def _network(facts: DataFacts) -> tuple[str, str]:
    """The network for the data, and why."""
    if facts.kind == "tokens":
        return "text_encoder", "it trains from scratch on a CPU"
    if facts.kind == "table":
        return "mlp", "for flat vectors"
    side = min(facts.shape[:2])
    if side < _SMALL:
        return "mlp", "convolutional networks take larger images"
    if side <= _GREY and facts.shape[2] == 1:
        return "lenet5", "small grey images; it trains on a CPU"
    if side <= _LARGE:
        return "resnet20", "the smallest ResNet for images of this size"
    return "resnet18", "the smallest ResNet for images of this size"


def _family(model: ModelConfig) -> _Family:
    name = model.name
    if model.pretrained:
        return _FAMILIES["pretrained"]
    if is_own(name):
        return _FAMILIES["own"]
    if name == "mlp":
        return _FAMILIES["dense"]
    if name.startswith(("bert", "text", "swin")):
        return _FAMILIES["transformer"]
    plain = name == "lenet5" or (name.startswith("vgg") and not name.endswith("_bn"))
    return _FAMILIES["plain" if plain else "batch_norm"]


def _augmentation(
    facts: DataFacts, model: ModelConfig, epochs: int
) -> tuple[Augmentation, str]:
    """The augmentation for the data, and why."""
    still = Augmentation()
    if facts.kind != "images":
        return still, "only images are augmented"
    if facts.streamed:
        return still, "images are cropped at random as they are read"
    if model.name == "mlp":
        return still, "an MLP does not gain by shifted images"
    reason = "no mirroring: a mirrored digit or letter is another one"
    if epochs < _SHIFTED_FROM:
        return still, f"shifts from {_SHIFTED_FROM} epochs on; {reason}"
    shift = min(max(round(min(facts.shape[:2]) / _SHIFT), 1), _MOST_SHIFT)
    return Augmentation(shift=shift), reason


def _batch_size(facts: DataFacts) -> int:
    """Examples per update: fewer where there are few, so that updates are enough."""
    chosen = next(size for least, size in _BATCHES if facts.train >= least)
    return min(chosen, facts.train)


def _epochs(family: _Family, steps: int) -> int:
    """As many as make the family's updates, within its limits."""
    fewest, most = family.epochs
    return min(max(-(-family.updates // steps), fewest), most)
