"""A study of the user's own data: a recipe for their kind and size, with its reasons.

The recipe is ours and a start: every number of it can be set, and `churn-jax sweep own`
chooses rates and coefficients on the validation split.
"""

import dataclasses
import re
import shlex
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np

from churn_jax.configuration.names import (
    data_name,
    data_stem,
    network_name,
    short_name,
)
from churn_jax.configuration.network import ModelConfig
from churn_jax.configuration.study import DataConfig, StudyConfig
from churn_jax.configuration.training import OptimizerConfig, TrainConfig
from churn_jax.data import (
    Augmentation,
    Dataset,
    StreamingDataset,
    is_tokens,
)
from churn_jax.registry import is_own
from churn_jax.studies.inputs import load_inputs
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
# Stands for a length that was not given; whatever a mesh has divides it.
ANY = 64 * 720_720
# Between what the presets chose on the validation splits of the digits and of MNIST.
_ALPHA, _TEMPERATURE = 0.9, 2.0
_BETA = {"ce": 1.0, "skl": 1.0}


@dataclasses.dataclass(frozen=True)
class _Family:
    """How networks of one kind are trained, at a batch of 128."""

    reason: str  # shown with the optimiser
    optimizer: OptimizerConfig
    updates: int  # of the whole training, as far as the epochs allow
    epochs: tuple[int, int]  # fewest and most
    # The rate is proportional to the batch, else to its square root.
    linear: bool = False


def _sgd(learning_rate: float, weight_decay: float) -> OptimizerConfig:
    return OptimizerConfig(
        learning_rate=learning_rate, weight_decay=weight_decay, schedule="cosine"
    )


def _adam(learning_rate: float, weight_decay: float) -> OptimizerConfig:
    return OptimizerConfig(
        name="adam",
        learning_rate=learning_rate,
        weight_decay=weight_decay,
        decay="decoupled",
        schedule="cosine",
    )


_FAMILIES = {
    "dense": _Family(
        "Adam needs no tuning to the scale of the inputs",
        _adam(2e-3, 1e-2),
        5000,
        (10, 100),
    ),
    "plain": _Family(
        "the usual one for convolutions without batch norm",
        _sgd(0.05, 5e-4),
        5000,
        (10, 100),
    ),
    "batch_norm": _Family(
        "the usual one for networks with batch norm",
        _sgd(0.1, 5e-4),
        20_000,
        (30, 200),
        linear=True,
    ),
    "transformer": _Family(
        "as transformers are usually trained", _adam(1e-3, 1e-2), 4000, (3, 30)
    ),
    "own": _Family(
        "Adam needs no tuning to a network that is not known",
        _adam(1e-3, 1e-2),
        5000,
        (10, 100),
    ),
    "pretrained": _Family(
        "the usual small rate for fine-tuning", _adam(5e-5, 1e-2), 4000, (3, 10)
    ),
}


class DataFacts(NamedTuple):
    """What a recipe depends on."""

    kind: str  # images, table or tokens
    shape: tuple[int, ...]  # of one example
    train: int
    validation: int
    test: int
    classes: int
    tokens: int = 0  # number of ids, the largest plus one; 0 for other kinds
    streamed: bool = False  # images are cropped from larger ones of any size

    @classmethod
    def of(cls, dataset: Dataset | StreamingDataset) -> "DataFacts":
        """The facts of a data set."""
        tokens, streamed = 0, isinstance(dataset, StreamingDataset)
        if isinstance(dataset, StreamingDataset):
            shape = dataset.train.image_shape
        else:
            shape = tuple(dataset.train.images.shape[1:])
            if is_tokens(dataset.train.images):
                parts = (dataset.train, dataset.validation, dataset.test)
                tokens = 1 + max(int(np.max(p.images, initial=0)) for p in parts)
        return cls(
            kind="tokens" if tokens else "images" if len(shape) == 3 else "table",
            shape=shape,
            train=len(dataset.train),
            validation=len(dataset.validation),
            test=len(dataset.test),
            classes=dataset.num_classes,
            tokens=tokens,
            streamed=streamed,
        )

    @property
    def side(self) -> int:
        """The shorter side of an image in pixels."""
        return min(self.shape[:2])


def data_facts(data: DataConfig) -> DataFacts:
    """Opens the data."""
    if not data.name:
        raise ValueError(
            "a study of your own data needs --data: an .npz file, a TFDS name, a "
            "folder with train.csv and test.csv of texts, or package.module:function "
            "of a function that returns a data set"
        )
    return DataFacts.of(load_inputs(data, data.train_size).dataset)


def unknown(length: int = 0) -> StudyConfig:
    """What options default to before the data are known; `length` stands for epochs."""
    train = TrainConfig(replicas=_RUNS)
    if length:
        train = dataclasses.replace(train, epochs=length, batch_size=length)
    return StudyConfig(
        name="own",
        title="Your own data with a recipe for their kind and size (defaults of the "
        "training and the network depend on them: add --data to see yours)",
        data=DataConfig(name="", validation=None),
        model=ModelConfig(name=""),
        train=train,
        methods=_methods(1),
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
        facts: of the data; None opens them.
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
    model = ModelConfig(name=model) if isinstance(model, str) else model
    if not model.name:
        model = dataclasses.replace(model, name=_network(facts)[0])
    if facts.tokens and not model.vocabulary_size and not model.pretrained:
        model = dataclasses.replace(model, vocabulary_size=facts.tokens)
    family = _family(model)
    batch_size = batch_size or _batch_size(facts)
    steps = max(facts.train // batch_size, 1)
    epochs = epochs or _epochs(family, steps)
    scale = batch_size / 128 if family.linear else (batch_size / 128) ** 0.5
    rate: Any = family.optimizer.learning_rate
    optimizer = dataclasses.replace(
        family.optimizer,
        learning_rate=float(f"{rate * scale:.2g}"),
        warmup_epochs=round(max(epochs / 20, min(1.0, epochs / 4)), 2),
    )
    train = TrainConfig(
        replicas=_RUNS,
        epochs=epochs,
        batch_size=batch_size,
        eval_every_epochs=max(epochs // 10, 1),
        optimizer=optimizer,
        augmentation=_augmentation(facts, model, epochs)[0],
    )
    set_name = re.sub(r"[^\w.-]+", "-", data_stem(data.name))
    title = f"Churn on {data_name(data.name)} with {network_name(model.name)}"
    if data.train_size is not None:
        title += f", {data.train_size:,} training examples"
    study = StudyConfig(
        name=f"own-{set_name}-{short_name(model.name)}",
        title=title,
        data=data,
        model=model,
        train=train,
        methods=_methods(epochs * steps),
    )
    return described(study, study, facts)


def described(
    chosen: StudyConfig, study: StudyConfig, facts: DataFacts, *, command: bool = True
) -> StudyConfig:
    """The study with notes on what it trains and why.

    `study` is the recipe `chosen` with what was given otherwise, which has no reason;
    with `command` the notes name the options of the command line.
    """
    given = "as given"

    def line(what: str, text: str, reason: str, options: str, *paths: str) -> str:
        same = all(
            attrgetter(path)(study) == attrgetter(path)(chosen) for path in paths
        )
        why = reason if same else given
        return (
            f"{what}: {text} ({why}; {options})."
            if command
            else (f"{what}: {text} ({why}).")
        )

    train, rule, name = study.train, study.train.optimizer, study.model.name
    steps = facts.train // train.batch_size
    rows = ", ".join(spec.name for spec in study.methods)
    usual, why = _network(facts)
    warmup = (
        f"{rule.warmup_epochs:g} {'epoch' if rule.warmup_epochs == 1 else 'epochs'}"
    )
    notes = [
        line(
            "Data",
            _examples(facts),
            "validation is the set's own split or a tenth held out, always the same"
            if study.data.validation is None
            else "validation as given",
            "--train-size, --validation",
        ),
        line("Network", network_name(name), why if name == usual else given, "--model"),
        line(
            "Optimiser",
            _optimizer(rule),
            _family(study.model).reason,
            "--optimizer, .weight-decay",
            *(f"train.optimizer.{f}" for f in ("name", "momentum", "weight_decay")),
        ),
        line(
            "Learning rate",
            f"{_number(rule.learning_rate)}, warm-up over {warmup}, then "
            f"{rule.schedule}",
            "to zero, so that the weights settle",
            "--learning-rate, .warmup-epochs, .schedule",
            *(f"train.optimizer.{f}" for f in _RATE),
        ),
        line(
            "Length",
            f"{train.epochs} epochs of {steps:,} updates with {train.batch_size} "
            "examples each",
            _length_reason(study, facts),
            "--epochs, --batch-size",
        ),
        line(
            "Augmentation",
            _moves(study, facts),
            _augmentation(facts, study.model, train.epochs)[1],
            "--train.augmentation.shift, .flip, .pad-crop",
            "train.augmentation",
            "train.seeds.augment",
        ),
    ]
    if facts.kind == "images":
        notes.append(
            "Pixels: standardised by mean and deviation of the training images, per "
            "channel; a loop of one's own needs data.normalize to be the same."
        )
    if not rule.learning_rate:  # a transformation with rates of its own
        notes = [note for note in notes if not note.startswith("Learning rate")]
    defaults = [
        f"Methods, {train.replicas} runs each: {rows} (an ensemble churns least, at "
        "twice the cost of prediction; the others cost one network; entropy "
        "regularisers, which did not lower churn on the digits and MNIST, are left "
        "out; --only, --replicas).",
        f"Their coefficients are a start: {_sweep_words(study)} chooses one on the "
        "validation split (--set).",
    ]
    notes += defaults if command else []
    return dataclasses.replace(study, notes=tuple(notes))


def _sweep_words(study: StudyConfig) -> str:
    """How a coefficient is chosen: by a command, unless it could not find an object."""
    data, model = study.data.name, study.model.name
    if "@" in data + model:
        return "churn_jax.studies.run_sweep"
    words = f"--data {shlex.quote(data)} --model {model}"
    return f"`churn-jax sweep own codistill_skl.beta {words}`"


_OPTIMIZERS = {"sgd": "SGD", "adam": "Adam", "adagrad": "AdaGrad"}
_RATE = ("learning_rate", "warmup_epochs", "schedule")


def _optimizer(rule: OptimizerConfig) -> str:
    """What updates the weights, in words."""
    own = "an optax transformation" if "@" in rule.name else short_name(rule.name)
    parts = [_OPTIMIZERS.get(rule.name, own)]
    if rule.name == "sgd":
        parts.append(f"momentum {rule.momentum:g}")
    if rule.name in _OPTIMIZERS:  # one's own may read no weight decay
        kind = "decoupled " if rule.decay == "decoupled" else ""
        parts.append(f"{kind}weight decay {_number(rule.weight_decay)}")
    return ", ".join(parts)


def _examples(facts: DataFacts) -> str:
    """How many examples of what."""
    shape = " x ".join(map(str, facts.shape))
    what = {
        "images": f"images of {shape}",
        "table": f"rows of {shape} numbers",
        "tokens": f"texts of at most {shape} tokens",
    }[facts.kind]
    return (
        f"{facts.train:,} training, {facts.validation:,} validation and "
        f"{facts.test:,} test {what}, {facts.classes} classes"
    )


def _moves(study: StudyConfig, facts: DataFacts) -> str:
    """What the augmentation does, in words."""
    policy = study.train.augmentation
    if study.train.seeds.augment == "off":
        return "none, the seed of augmentation is off"
    moves = ["random crops, half of them mirrored"] if facts.streamed else []
    if policy.shift:
        moves.append(f"shifts by up to {_pixels(policy.shift)}")
    if policy.pad_crop:
        moves.append(f"crops after padding by {_pixels(policy.pad_crop)}")
    if policy.flip:
        moves.append("mirroring")
    return " and ".join(moves) or "none"


def _pixels(count: int) -> str:
    return f"{count} pixel{'s' if count > 1 else ''}"


def _number(value: float | tuple[float, ...]) -> str:
    return "per run" if isinstance(value, tuple) else f"{value:g}"


def _methods(steps: int):
    """The rows; coefficients grow over the whole training, as the rate falls."""
    return paper_rows(
        distillation=(_ALPHA, _TEMPERATURE),
        codistill_ce=_BETA["ce"],
        codistill_skl=_BETA["skl"],
        ramp_steps=float(steps),
    )


def _network(facts: DataFacts) -> tuple[str, str]:
    """The network for the data, and why."""
    if facts.kind == "tokens":
        return "text_encoder", "it trains from scratch on a CPU"
    if facts.kind == "table":
        return "mlp", "for flat vectors"
    if facts.side < _SMALL:
        return "mlp", "convolutional networks take larger images"
    if facts.side <= _GREY and facts.shape[2] == 1:
        return "lenet5", "small grey images; it trains on a CPU"
    if facts.side <= _LARGE:
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
        return still, "the usual one for images of any size"
    if model.name == "mlp":
        return still, "an MLP does not gain by shifted images"
    reason = "no mirroring: a mirrored digit or letter is another one"
    if epochs < _SHIFTED_FROM:
        return still, f"shifts from {_SHIFTED_FROM} epochs on; {reason}"
    shift = min(max(round(facts.side / _SHIFT), 1), _MOST_SHIFT)
    return Augmentation(shift=shift), reason


def _batch_size(facts: DataFacts) -> int:
    """Examples per update: fewer where there are few, so that updates are enough."""
    chosen = next(size for least, size in _BATCHES if facts.train >= least)
    return min(chosen, facts.train)


def _epochs(family: _Family, steps: int) -> int:
    """As many as make the family's updates, within its limits."""
    fewest, most = family.epochs
    return min(max(-(-family.updates // steps), fewest), most)


def _length_reason(study: StudyConfig, facts: DataFacts) -> str:
    train, family = study.train, _family(study.model)
    steps = max(facts.train // train.batch_size, 1)
    if train.epochs != _epochs(family, steps) or train.batch_size != _batch_size(facts):
        return "as given"
    reason = f"for about {family.updates:,} updates"
    if train.epochs in family.epochs:
        bound = "fewest" if train.epochs == family.epochs[0] else "most"
        reason += f", but {train.epochs} epochs at {bound}"
    return reason
