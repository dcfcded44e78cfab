"""A stream study as data: which stream, which click model, which rows, how trained."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

from churn_jax import models
from churn_jax.configuration.rows import RowSettings, StudyRows
from churn_jax.configuration.training import (
    MeshShape,
    OptimizerConfig,
    Seeds,
    check_replicas,
)
from churn_jax.methods.base import Method
from churn_jax.setting_checks import check_least, check_share

SYNTHETIC = "synthetic"


def _adagrad() -> OptimizerConfig:
    return OptimizerConfig(
        name="adagrad",
        learning_rate=0.02,
        momentum=0.0,
        nesterov=False,
        weight_decay=0.0,
        adagrad_accumulator=0.1,
    )


@dataclasses.dataclass(frozen=True)
class StreamConfig:
    """How replicas are trained in one pass over a stream.

    Attributes:
        replicas: R, independent repetitions.
        seed_numbers: which seeds the replicas have, R numbers; empty means 0 .. R-1.
        batch_size: B, examples per update and replica.
        window: W, examples inside which replicas differ in order; a multiple of
            `batch_size`. Scores are compared window by window.
        optimizer: `adagrad`, or `sgd` without momentum, with a constant schedule:
            what else there is would touch every row of every table at every update.
            Weight decay is of the towers' kernels, not of the tables.
        seeds: the paper's replicas start from equal weights (`init="fixed"`) and
            differ by the order inside a window (`order="varied"`).
        mesh: devices along replica; the other axes must be 1.
        warm_examples: the first part of the stream, rounded up to whole windows, in
            which all replicas are replica number 0; metrics begin after it.
        report_every_windows: windows per line of metrics. From the 512th line on
            lines cover ever more windows, so that a long stream has few.
        checkpoint_every_seconds: time between checkpoints.

    Raises:
        ValueError: numbers do not fit each other.
    """

    replicas: int = 10
    seed_numbers: tuple[int, ...] = ()
    batch_size: int = 256
    window: int = 8192
    optimizer: OptimizerConfig = dataclasses.field(default_factory=_adagrad)
    seeds: Seeds = Seeds(init="fixed", order="varied")
    mesh: MeshShape = MeshShape()
    warm_examples: int = 0
    report_every_windows: int = 1
    checkpoint_every_seconds: float = 60.0

    def __post_init__(self):
        """Checks that the numbers fit each other."""
        check_replicas(self, "window", "report_every_windows")
        check_least("warm_examples", self.warm_examples, 0)
        if self.warm_examples and self.seeds.init == "varied":
            raise ValueError(
                f"the first {self.warm_examples} examples are a warm start of one "
                "model, so seeds.init='varied' would change nothing; set warm_examples "
                "to 0, or seeds.init to 'fixed'"
            )
        if self.window % self.batch_size:
            raise ValueError(
                f"window {self.window} is not a multiple of batch_size "
                f"{self.batch_size}"
            )
        if self.mesh.member * self.mesh.data != 1:
            raise ValueError(
                "a stream's mesh has the replica axis alone, over which replicas and "
                f"their tables are shared out; got {self.mesh}"
            )
        _check_optimizer(self.optimizer)

    @property
    def numbers(self) -> tuple[int, ...]:
        """The seed number of every replica."""
        return self.seed_numbers or tuple(range(self.replicas))

    @property
    def warm_windows(self) -> int:
        """Windows of the shared start."""
        return -(-self.warm_examples // self.window)


def _check_optimizer(optimizer: OptimizerConfig) -> None:
    """Only updates that leave untouched rows as they are."""
    plain = optimizer.name == "sgd" and optimizer.momentum == 0.0
    if optimizer.name != "adagrad" and not plain:
        raise ValueError(
            "a stream is trained by adagrad, or by sgd with momentum 0, which leave "
            f"rows that are not in the batch as they are; got {optimizer.name} with "
            f"momentum {optimizer.momentum}"
        )
    if optimizer.member_algorithms:
        raise ValueError(
            "a stream's components are trained by one algorithm; got "
            f"member_algorithms {', '.join(optimizer.member_algorithms)}"
        )
    if optimizer.schedule != "constant" or optimizer.warmup_epochs:
        raise ValueError(
            "a stream has no epochs, so its learning rate is constant; got schedule "
            f"{optimizer.schedule!r} with {optimizer.warmup_epochs} warmup_epochs"
        )
    if optimizer.clip_norm is not None:
        raise ValueError(
            f"a stream's gradients are not clipped; got clip_norm {optimizer.clip_norm}"
        )


@dataclasses.dataclass(frozen=True)
class StreamData:
    """Which examples, in which order.

    Attributes:
        source: `synthetic`, which needs no file; a file `.csv`, `.csv.gz` or
            `.parquet` in time order; a folder of such files, in the order of their
            names; or `tfds:NAME/SPLIT`. Empty asks for `--data`.
        schema: what the columns mean: the name of a schema that comes with the package,
            or a `.toml` file.
        holdout: share of the examples that is never learned and scored at the end.
        group: column whose values are held out together; empty is the schema's.
        data_dir: where TFDS keeps prepared sets.
        examples: stop after so many; None goes through the whole stream. A synthetic
            stream needs a number.
        fields: categorical fields of a synthetic stream.
        buckets: rows of each field's table of a synthetic stream.
        hint: where to get the file, for the message that it is missing.

    Raises:
        ValueError: a number is out of range.
    """

    source: str = SYNTHETIC
    schema: str = ""
    holdout: float = 0.0
    group: str = ""
    data_dir: str | None = None
    examples: int | None = None
    fields: int = 6
    buckets: int = 1000
    hint: str = ""

    def __post_init__(self):
        """Checks ranges."""
        check_share("holdout", self.holdout)
        if self.examples is not None:
            check_least("examples", self.examples, 1)
        check_least("fields", self.fields, 1)
        check_least("buckets", self.buckets, 1)
        if self.source == SYNTHETIC and self.examples is None:
            raise ValueError("a synthetic stream needs its number of examples")


@dataclasses.dataclass(frozen=True)
class TowerConfig:
    """Which click model; the tables' sizes come from the schema.

    Attributes:
        embedding_dim: length of a field's embedding.
        features: widths of a tower's hidden layers, narrowing.
        shared_embeddings: all towers read the same tables.
        wide: add a linear part to every tower.
        gate: learn how much each tower weighs, for methods that deploy a gate: the
            form `:gated` of every preset.
        component_fields: fields that each component sees, by position; empty is all.
    """

    embedding_dim: int = 8
    features: tuple[int, ...] = (64, 32, 16)
    shared_embeddings: bool = False
    wide: bool = False
    gate: bool = False
    component_fields: tuple[tuple[int, ...], ...] = ()

    def build(self, sizes: tuple[int, ...], numeric: int, components: int):
        """The `ClickModel` of a stream.

        Args:
            sizes: rows of each field's table.
            numeric: how many numeric features there are.
            components: towers, the members of the method.

        Raises:
            ValueError: the numbers do not fit each other.

        Example:
            >>> TowerConfig(features=(8,)).build((10, 4), 2, 3).rows
            14
        """
        return models.ClickModel(
            sizes=sizes,
            numeric=numeric,
            components=components,
            **{f.name: getattr(self, f.name) for f in dataclasses.fields(self)},
        )


@dataclasses.dataclass(frozen=True)
class StreamSpec(RowSettings):
    """One row of the study's table.

    Attributes:
        name: folder name.
        label: shown in tables.
        method: with its coefficients; `input_scale` is the paper's s.
        equation: where it comes from, `[key] Eq. N`.
        train: what this row trains with instead of the study's `StreamConfig`, by
            dotted path: `(("optimizer.learning_rate", 0.05),)`.
        model: its click model instead of the study's; None is the study's.
    """

    name: str
    label: str
    method: Method
    equation: str = ""
    train: tuple[tuple[str, Any], ...] = ()
    model: TowerConfig | None = None


@dataclasses.dataclass(frozen=True)
class StreamStudyConfig(StudyRows):
    """A whole stream study.

    Attributes:
        name: of the preset and of the default output folder.
        title: heading of the report.
        data: see `StreamData`.
        model: see `TowerConfig`.
        train: see `StreamConfig`; shared by all rows.
        methods: rows of the table.
        baseline: name of the row that the others are compared with.
        published: `FILE.csv:TABLE`, the printed numbers that reports show next to ours
            (`churn_jax.reports.published`); empty if there are none.
        warm_share: at least this share of the stream is one in which all replicas are
            one model: the warm start from a converged model.

    Raises:
        ValueError: names repeat, the baseline is missing, or rows have other replicas.
    """

    name: str
    title: str
    data: StreamData
    model: TowerConfig
    train: StreamConfig
    methods: tuple[StreamSpec, ...]
    baseline: str = "baseline"
    published: str = ""
    warm_share: float = 0.0

    ROW: ClassVar = "row"

    def __post_init__(self):
        """Checks names and every row's training."""
        names = self.check_names()
        if self.baseline not in names:
            raise ValueError(
                f"the baseline {self.baseline!r} is no row: {', '.join(names)}"
            )
        check_share("warm_share", self.warm_share)
        for spec in self.methods:
            train = spec.config(self.train)
            if train.numbers != self.train.numbers:
                raise ValueError(
                    f"{spec.name} has other replicas than the study; rows are "
                    "compared run by run"
                )

    def select(self, names: tuple[str, ...]) -> tuple[StreamSpec, ...]:
        """The named rows in the study's order; all if none is named."""
        wanted = {self.spec(name).name for name in names}
        return tuple(s for s in self.methods if not wanted or s.name in wanted)


def differs(train: StreamConfig) -> str:
    """What two replicas of a row differ in, in words.

    Example:
        >>> differs(StreamConfig(window=4096))
        'the order of examples inside windows of 4,096'
    """
    varied = []
    if train.seeds.init == "varied":
        varied.append("the initial weights")
    if train.seeds.order == "varied":
        varied.append(f"the order of examples inside windows of {train.window:,}")
    if not varied:
        return "nothing that is chosen; what is left is the machine's"
    text = " and ".join(varied)
    if train.warm_examples:
        shared = train.warm_windows * train.window
        text += f", after {shared:,} examples in which all are one model"
    return text
