"""A study as data: which data, which network, which methods, how trained."""

from __future__ import annotations

import dataclasses
import difflib
from typing import Any

import numpy as np

from churn_jax import ensembles, models
from churn_jax.data import TextOptions
from churn_jax.methods.base import QUIET, Method, at_rest, check_teacher
from churn_jax.reports.quantities import check_columns
from churn_jax.studies.evaluation import EvaluationConfig
from churn_jax.studies.named import named, with_coefficient
from churn_jax.studies.network import ModelConfig, Sharing
from churn_jax.studies.teaching import Teaching, Update
from churn_jax.training.config import TrainConfig

__all__ = [
    "DataConfig",
    "EvaluationConfig",
    "MethodSpec",
    "ModelConfig",
    "Sharing",
    "StudyConfig",
    "Teaching",
    "Update",
    "averaged_name",
    "resolved",
]


@dataclasses.dataclass(frozen=True)
class DataConfig:
    """Which examples.

    Attributes:
        name: `digits` (embedded), a TFDS name, a path to an `.npz`, or a folder with
            `train.csv` and `test.csv` of texts.
        data_dir: where TFDS keeps prepared sets.
        manual_dir: where TFDS looks for files downloaded by hand.
        train_size: cut the training set to so many examples; None keeps all.
        validation: examples held out of training, a count or a share; None is the
            set's own validation split, where it has one.
        image_size: side in pixels to which images of various sizes are cropped.
        threads: that read and decode such images, per process.
        workers: processes beside each that read them too.
        sequence_length: tokens to which texts are cut or padded.
        vocabulary_size: of texts that are token ids in an `.npz`: the last id stands
            for all above it; None keeps every id.
        vocabulary: of texts in words: a `vocab.txt`, or the folder that holds one.
    """

    name: str = "digits"
    data_dir: str | None = None
    manual_dir: str | None = None
    train_size: int | None = None
    validation: int | float | None = 0.1
    image_size: int = 224
    threads: int = 16
    workers: int = 0
    sequence_length: int = dataclasses.field(default=64, metadata=QUIET)
    vocabulary_size: int | None = dataclasses.field(default=None, metadata=QUIET)
    vocabulary: str | None = dataclasses.field(default=None, metadata=QUIET)

    def text(self) -> TextOptions:
        """How texts become token ids."""
        return TextOptions(self.sequence_length, self.vocabulary_size, self.vocabulary)


@dataclasses.dataclass(frozen=True)
class MethodSpec:
    """One row of the study's table.

    Attributes:
        name: folder name.
        label: shown in tables.
        method: with its coefficients.
        equation: where it comes from, `[key] Eq. N`.
        teacher: name of the method that teaches it, or None.
        models: committee of several architectures, `((network, size), ...)`; a network
            is a name, with the row's other options, or a `ModelConfig`, so that members
            may differ in width or in what they see of the input. Empty means `members`
            networks of the row's model.
        train: what this row trains with instead of the study's `TrainConfig`, by dotted
            path: `(("seeds.init", "fixed"), ("optimizer.weight_decay", 0.0))`.
        train_size: keep so many training examples for this row, a prefix of the
            study's training split in its fixed order; None keeps all.
        model: network of this row instead of the study's; None is the study's.
        separate: every member is a network of its own, also where the model says that
            members share weights (`ModelConfig.sharing`).
        teaching: see `Teaching`.
        classes: ids of the classes that the row is trained on and knows, increasing;
            empty is all of them. Logits of the others are `UNKNOWN_LOGIT`.
        class_share: share of every class's training examples, the first ones in the
            study's fixed order.
        start: name of the row whose deployed weights training starts from.
        keep: share of those weights in the deployed ones; see `interpolate_weights`.
    """

    name: str
    label: str
    method: Method
    equation: str = ""
    teacher: str | None = None
    models: tuple[tuple[str | ModelConfig, int], ...] = ()
    train: tuple[tuple[str, Any], ...] = ()
    train_size: int | None = None
    model: ModelConfig | None = dataclasses.field(default=None, metadata=QUIET)
    separate: bool = dataclasses.field(default=False, metadata=QUIET)
    teaching: Teaching = dataclasses.field(default=Teaching(), metadata=QUIET)
    classes: tuple[int, ...] = dataclasses.field(default=(), metadata=QUIET)
    class_share: float = dataclasses.field(default=1.0, metadata=QUIET)
    start: str = dataclasses.field(default="", metadata=QUIET)
    keep: float = dataclasses.field(default=0.0, metadata=QUIET)

    def __post_init__(self):
        """Checks what needs no study."""
        if not 0.0 < self.class_share <= 1.0:
            raise ValueError(
                f"{self.name}: class_share must be above 0 and at most 1; got "
                f"{self.class_share}"
            )
        if not 0.0 <= self.keep <= 1.0:
            raise ValueError(f"{self.name}: keep must be from 0 to 1; got {self.keep}")
        if self.keep and not self.start:
            raise ValueError(
                f"{self.name}: keep={self.keep} is of the weights that training starts "
                "from; name their row as start"
            )
        if self.teaching.logits and self.teacher is not None:
            raise ValueError(
                f"{self.name}: a file of logits teaches instead of a row, but teacher "
                f"is {self.teacher}"
            )
        own = (self.teaching.members, self.teaching.offline, self.teaching.calibrated)
        if self.teacher is None and (any(own) or self.teaching.dtype):
            raise ValueError(
                f"{self.name}: teaching.members, offline, calibrated and dtype are of "
                "a teacher; it has none"
            )
        self._check_old_models()
        perturbed = getattr(self.method, "perturbation", "none") != "none"
        if (self.teaching.offline or self.teaching.logits) and perturbed:
            raise ValueError(
                f"{self.name}: an offline teacher has not seen perturbed images"
            )

    def _check_old_models(self) -> None:
        """Refuses old models that the method would not ask, or would not understand."""
        old, kind = self.teaching.old, type(self.method).__name__
        if old and not self.method.old_models:
            raise ValueError(
                f"{self.name}: {kind} learns nothing from old models; teaching.old "
                f"names {', '.join(old)}"
            )
        named = self.teacher or self.teaching.logits
        if self.method.old_models == "alone" and named:
            raise ValueError(
                f"{self.name}: {kind} learns from old models alone; {named} is named "
                "as its teacher"
            )
        if old and (olds := getattr(self.method, "olds", len(old))) != len(old):
            raise ValueError(
                f"{self.name}: olds={olds}, but teaching.old names {', '.join(old)}"
            )

    @property
    def taught(self) -> bool:
        """Whether anybody teaches the row."""
        return bool(self.teacher or self.teaching.old or self.teaching.logits)

    @property
    def tutors(self) -> tuple[str, ...]:
        """Names of all rows that must be trained before this one."""
        teacher = () if self.teacher is None else (self.teacher,)
        start = (self.start,) if self.start else ()
        return tuple(dict.fromkeys((*teacher, *self.teaching.old, *start)))

    def config(self, train: TrainConfig) -> TrainConfig:
        """How this row is trained: the study's `train` with the row's changes.

        Raises:
            ValueError: a path is unknown, or a value cannot be; the message names the
                row.

        Example:
            >>> from churn_jax.methods import ERM
            >>> spec = MethodSpec("a", "A", ERM(), train=(("seeds.init", "fixed"),))
            >>> spec.config(TrainConfig()).seeds.init
            'fixed'
        """
        for path, value in self.train:
            try:
                train = _replaced(train, path, value)
            except (ValueError, TypeError) as error:
                raise ValueError(f"{self.name}: {error}") from error
        return train

    def groups(
        self, model: ModelConfig, num_classes: int
    ) -> tuple[ensembles.Group, ...]:
        """The committee of one replica; `model` is the study's.

        A method that deploys a gate gets one: linear in the flattened input, or
        constant, with separate weights for every member. Where the model says that
        members share weights, there are as many networks as it takes to yield them all.

        Raises:
            ValueError: a network cannot be built, or its members are not a divisor of
                the method's.

        Example:
            >>> from churn_jax.methods import AntiDistillation
            >>> parts = [ModelConfig(inputs=tuple(range(32)), features=(16,)),
            ...          ModelConfig(inputs=tuple(range(32, 64)), features=(24,))]
            >>> spec = MethodSpec("halves", "Halves", AntiDistillation(),
            ...                   models=tuple((part, 1) for part in parts))
            >>> [g.network.name[:16] for g in spec.groups(ModelConfig(), 10)]
            ['mlp on 32 inputs', 'mlp on 32 inputs']
        """
        model = self.model or model
        gate = ()
        if self.method.deploy == "gate":
            kind = self.method.gate
            module = models.Gate(1, constant=kind == "constant")
            network = ensembles.from_linen(module, name=f"{kind} gate")
            gate = (ensembles.Group(network, self.method.members, gate=True),)
        parts = self.models or ((model, self.method.members),)
        built = []
        for part, size in parts:
            own = _network(part, model)
            if self.separate:
                own = dataclasses.replace(own, sharing=None)
            outputs = len(self.classes) or num_classes
            try:
                network = own.build(outputs, size)
                if self.classes:
                    network = ensembles.with_classes(network, self.classes, num_classes)
            except ValueError as error:
                raise ValueError(f"{self.name}: {error}") from error
            built.append(ensembles.Group(network, size // own.heads(size)))
        return (*built, *gate)


def _network(part: str | ModelConfig, model: ModelConfig) -> ModelConfig:
    """A part of a committee; one that is only named takes options of `model`."""
    if isinstance(part, ModelConfig):
        return part
    return dataclasses.replace(model, name=part, features=())


def _replaced(config: Any, path: str, value: Any, above: str = "") -> Any:
    """The dataclass with the field at the dotted `path` set to `value`.

    Raises:
        ValueError: no such field, or the configuration refuses the value.
    """
    field, _, rest = path.partition(".")
    known = [f.name for f in dataclasses.fields(config)]
    if field not in known:
        close = difflib.get_close_matches(field, known, n=2, cutoff=0.4)
        hint = f"; did you mean {' or '.join(close)}?" if close else ""
        where = above.rstrip(".") or "the training"
        raise ValueError(
            f"{where} has no setting {field!r} (train={above}{path}); known: "
            f"{', '.join(known)}{hint}"
        )
    old = getattr(config, field)
    if rest:
        if not dataclasses.is_dataclass(old):
            raise ValueError(f"{above}{field} has no settings; got {above}{path}")
        value = _replaced(old, rest, value, f"{above}{field}.")
    elif dataclasses.is_dataclass(old) and not isinstance(value, type(old)):
        first = f"{above}{field}.{dataclasses.fields(old)[0].name}"
        raise ValueError(
            f"{above}{field} must be a {type(old).__name__}, or name one of its "
            f"settings ({first}); got {value!r}"
        )
    return dataclasses.replace(config, **{field: value})


@dataclasses.dataclass(frozen=True)
class StudyConfig:
    """A whole study.

    Attributes:
        name: of the preset and of the default output folder.
        title: heading of the report.
        data: see `DataConfig`.
        model: see `ModelConfig`.
        train: see `TrainConfig`; shared by all methods.
        methods: rows of the table.
        baseline: name of the row that the others are compared with.
        published: `<paper>/<table>/<data set>`, the printed numbers that reports show
            beside ours; empty where there are none.
        columns: of the tables and figures, fields of a `MethodSummary`; empty is those
            of the first paper. With `prediction_difference` among them, rows are
            compared in it instead of in churn.
        updates: which rows replace which, for the report's figures of model updates.
        evaluation: see `EvaluationConfig`.
        notes: sentences on where the settings come from, shown before training and in
            the report.
        changes: what is computed otherwise than in the preset `name`, in words.
    """

    name: str
    title: str
    data: DataConfig
    model: ModelConfig
    train: TrainConfig
    methods: tuple[MethodSpec, ...]
    baseline: str = "baseline"
    published: str = ""
    columns: tuple[str, ...] = dataclasses.field(default=(), metadata=QUIET)
    updates: tuple[Update, ...] = dataclasses.field(default=(), metadata=QUIET)
    evaluation: EvaluationConfig = dataclasses.field(
        default=EvaluationConfig(), metadata=QUIET
    )
    notes: tuple[str, ...] = dataclasses.field(default=(), metadata=QUIET)
    changes: tuple[str, ...] = dataclasses.field(default=(), metadata=QUIET)

    def __post_init__(self):
        """Checks names, teachers and every row's training."""
        check_columns(self.columns)
        names = [spec.name for spec in self.methods]
        if len(set(names)) != len(names):
            raise ValueError(f"two methods have one name: {', '.join(names)}")
        for spec in self.methods:
            train = spec.config(self.train)
            if train.ema_decay and averaged_name(spec.name) in names:
                raise ValueError(
                    f"{averaged_name(spec.name)} is the row of {spec.name}'s averaged "
                    "weights; another method cannot have that name"
                )
            if train.ema_decay and spec.keep:
                raise ValueError(
                    f"{spec.name}: keep mixes the deployed weights alone, and "
                    "ema_decay has averaged ones beside them; use one of the two"
                )
            replicas = train.replicas
            if replicas != self.train.replicas:
                raise ValueError(
                    f"{spec.name} has {replicas} replicas, the study "
                    f"{self.train.replicas}; rows are compared run by run"
                )
            if spec.train_size is not None and spec.train_size < 1:
                raise ValueError(
                    f"{spec.name}: train_size must be at least 1; got {spec.train_size}"
                )
            self._check_tutors(spec, (spec.name,), names)
            if spec.method.needs_teacher and not spec.taught:
                raise ValueError(f"{spec.name} needs the name of its teacher method")
        for update in self.updates:
            for name in (update.old, update.new):
                if name not in names and not (name == update.old and update.from_file):
                    raise ValueError(
                        f"an update is of {name!r}, which is not in the study: "
                        f"{', '.join(names)}"
                    )

    def _check_tutors(
        self, spec: MethodSpec, seen: tuple[str, ...], names: list[str]
    ) -> None:
        """Refuses rows that are not there, circles, and old models that are several."""
        for name in spec.tutors:
            if name in seen:
                raise ValueError(
                    f"{seen[0]} would be taught by itself: {' <- '.join([*seen, name])}"
                )
            if name not in names:
                raise ValueError(
                    f"{spec.name} is taught by {name!r}, which is not in the study: "
                    f"{', '.join(names)}"
                )
            tutor = self.spec(name)
            if name != spec.start:
                check_teacher(tutor.method, spec.name)
                if tutor.train_size != spec.train_size:
                    raise ValueError(
                        f"{spec.name} (train_size {spec.train_size}) and {name} "
                        f"({tutor.train_size}) normalise pixels otherwise, so one "
                        "cannot learn from the other; use class_share instead"
                    )
            if name in spec.teaching.old and tutor.method.members != 1:
                raise ValueError(
                    f"{spec.name}: an old model is one network; {name} deploys "
                    f"{tutor.method.members}"
                )
            self._check_tutors(tutor, (*seen, name), names)
        wanted = spec.teaching.members
        if spec.teacher is not None and wanted:
            there = self.spec(spec.teacher)
            shared = (there.model or self.model).sharing and not there.separate
            if shared:
                raise ValueError(
                    f"{spec.name}: teaching.members takes whole networks; members of "
                    f"{there.name} share theirs"
                )
            if wanted > there.method.members or len(there.models) > 1:
                raise ValueError(
                    f"{spec.name}: teaching.members must be 0 or some of "
                    f"{there.name}'s {there.method.members} members, which must be of "
                    f"one network; got {wanted}"
                )

    def spec(self, name: str) -> MethodSpec:
        """The method called `name`.

        Raises:
            ValueError: there is none; the message has the closest names.
        """
        return named(self.methods, name, "method")

    def select(self, names: tuple[str, ...]) -> tuple[MethodSpec, ...]:
        """The named methods after those they learn from; all if none are named."""
        wanted = [self.spec(name) for name in names] or list(self.methods)
        ordered: list[MethodSpec] = []

        def add(spec: MethodSpec) -> None:
            for name in spec.tutors:
                add(self.spec(name))
            if spec not in ordered:
                ordered.append(spec)

        for spec in wanted:
            add(spec)
        return tuple(ordered)

    def with_coefficient(self, path: str, value: float) -> "StudyConfig":
        """Sets `method.coefficient`, for example `codistill_skl.beta`.

        Raises:
            ValueError: no such method, or it has no such coefficient.
        """
        return with_coefficient(self, path, value)


def averaged_name(name: str) -> str:
    """Of the row that shows a method's averaged weights (`TrainConfig.ema_decay`)."""
    return f"{name}_ema"


def resolved(value: Any) -> Any:
    """A configuration as JSON values; classes are named.

    Settings that came later and are at their defaults (`QUIET`) are left out.
    """
    if hasattr(value, "__array__"):  # of NumPy or JAX, which may not be loaded
        return np.asarray(value).tolist()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {
            f.name: resolved(getattr(value, f.name))
            for f in dataclasses.fields(value)
            if not at_rest(value, f)
        }
        if isinstance(value, Method):
            return {"class": type(value).__name__, **fields}
        return fields
    if isinstance(value, (tuple, list)):
        return [resolved(v) for v in value]
    return value
