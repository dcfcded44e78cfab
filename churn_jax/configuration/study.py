"""A study as data: which data, which network, which methods, how trained."""

from __future__ import annotations

import dataclasses
import graphlib
from collections.abc import Callable

from churn_compare.store import fits_whole
from churn_compare.suggestions import did_you_mean
from churn_jax.configuration.codec import replaced
from churn_jax.configuration.network import ModelConfig
from churn_jax.configuration.rows import MethodSpec, averaged_name, coefficient_names
from churn_jax.configuration.training import NETWORK, TrainConfig
from churn_jax.data import TextOptions
from churn_jax.setting_checks import check_fields, check_least, check_none, setting


@dataclasses.dataclass(frozen=True)
class DataConfig:
    """Which examples.

    Attributes:
        name: `digits` (embedded), a TFDS name, a path to an `.npz`, a folder with
            `train.csv` and `test.csv` of texts, or `package.module:function` of your
            own function that returns a data set. For a click model `clicks`, a path or
            a function, as for `churn_jax.data.clicks.load_clicks`.
        data_dir: where TFDS keeps prepared sets.
        manual_dir: where TFDS looks for files downloaded by hand.
        train_size: cut the training set to so many examples; None keeps all.
        validation: examples held out of training, a count or a share; None is the
            set's own validation split, where it has one.
        image_size: side in pixels to which images of various sizes are cropped.
        threads: number of threads that read and decode such images, per process.
        workers: number of further processes that read them.
        sequence_length: tokens to which texts are cut or padded.
        vocabulary_size: for texts that are token ids in an `.npz`, the number of ids;
            the last one stands for all above it. None keeps every id.
        vocabulary: for texts in words, a `vocab.txt` or the folder that holds one.
    """

    name: str = "digits"
    data_dir: str | None = None
    manual_dir: str | None = None
    train_size: int | None = None
    validation: int | float | None = 0.1
    image_size: int = 224
    threads: int = 16
    workers: int = 0
    sequence_length: int = 64
    vocabulary_size: int | None = None
    vocabulary: str | None = None

    def text(self) -> TextOptions:
        """How texts become token ids."""
        return TextOptions(self.sequence_length, self.vocabulary_size, self.vocabulary)


@dataclasses.dataclass(frozen=True)
class EvaluationConfig:
    """How a study keeps what its rows predict.

    Attributes:
        predictions: `file` is one `predictions.npz` for each row and split, for which
            every process gathers all logits `[R, N, C]`. `shards` is a folder
            `predictions` in its place, into which every process writes what its own
            devices predict, batch by batch. `auto` is `shards` where the logits of a
            split have more than 2 GiB, else `file`. Rows that are finished stay as they
            are.
    """

    predictions: str = setting("auto", of=("auto", "file", "shards"))

    def __post_init__(self):
        """Refuses unknown forms."""
        check_fields(self, "evaluation.")

    def sharded(self, runs: int, examples: int, classes: int) -> bool:
        """True if logits `[R, N, C]` go into shards."""
        if self.predictions == "auto":
            return not fits_whole(runs * examples * classes)
        return self.predictions == "shards"


@dataclasses.dataclass(frozen=True)
class Update:
    """One model that replaces another.

    Attributes:
        old: row of the model in use.
        new: row of the model that replaces it.
        label: shown in tables; empty makes it of the rows' labels.
        targeted: run r of the new row was trained against run r of the old one, so
            only these pairs are updates that would happen; else every old run may be
            replaced by every new one.
    """

    old: str
    new: str
    label: str = ""
    targeted: bool = False

    def __post_init__(self):
        """Refuses a file, and a row that replaces itself."""
        if self.old.endswith(".npz"):
            raise ValueError(
                f"an update from {self.old!r}: old is a row; compare files with "
                "churn-compare"
            )
        if self.old == self.new:
            raise ValueError(f"{self.old!r} cannot replace itself")


@dataclasses.dataclass(frozen=True)
class StudyConfig:
    """A whole study.

    Attributes:
        name: name of the preset and of the default output folder.
        title: heading of the report.
        data: see `DataConfig`.
        model: see `ModelConfig`.
        train: see `TrainConfig`; shared by all methods.
        methods: rows of the table.
        baseline: name of the row that the others are compared with.
        published: `FILE.csv:TABLE`, the printed numbers that reports show next to ours
            (`churn_jax.reports.published`); empty if there are none.
        columns: columns of the tables and figures, fields of a `MethodSummary`; empty
            is those of the first paper. With `prediction_difference`, or else
            `calibrated_nll`, among them rows are compared in it instead of in churn.
        updates: rows that replace others, for the report's figures of model updates.
        evaluation: see `EvaluationConfig`.
        notes: sentences on where the settings come from, shown before training and in
            the report.
    """

    name: str
    title: str
    data: DataConfig
    model: ModelConfig
    train: TrainConfig
    methods: tuple[MethodSpec, ...]
    baseline: str = "baseline"
    published: str = ""
    columns: tuple[str, ...] = ()
    updates: tuple[Update, ...] = ()
    evaluation: EvaluationConfig = EvaluationConfig()
    notes: tuple[str, ...] = ()

    def __post_init__(self):
        """Checks names, teachers and every row's training."""
        names = [spec.name for spec in self.methods]
        known = ", ".join(names)
        if len(set(names)) != len(names):
            raise ValueError(f"two methods have one name: {known}")
        taught = {spec.name: spec.dependencies for spec in self.methods}
        try:
            graphlib.TopologicalSorter(taught).prepare()
        except graphlib.CycleError as error:
            circle = error.args[1][::-1]
            raise ValueError(
                f"{circle[0]} would be taught by itself: {' <- '.join(circle)}"
            ) from None
        for spec in self.methods:
            train = spec.config(self.train)
            clicks = (spec.model or self.model).name == "click"
            averaged = train.ema_decay and averaged_name(spec.name)
            networks = (spec.model or "", *(part for part, _ in spec.models))
            kinds = {type(n).__name__ for n in networks} - {"ModelConfig", "str"}
            check_none(
                spec.name,
                (
                    clicks != (train.one_pass is not None),
                    "a click model learns in one pass, and nothing else does; set both "
                    "model.name to click and train.one_pass, or neither",
                ),
                (
                    averaged in names,
                    f"{averaged} is the row of {spec.name}'s averaged weights; another "
                    "method cannot have that name",
                ),
                (
                    averaged and spec.keep,
                    "keep mixes the deployed weights alone, and ema_decay has averaged "
                    "ones, too; use one of the two",
                ),
                (
                    train.replicas != self.train.replicas,
                    f"it has {train.replicas} replicas, the study "
                    f"{self.train.replicas}; rows are compared run by run",
                ),
                (
                    kinds,
                    "a network is a ModelConfig here; a module, a class or a function "
                    f"is taken by churn_jax.study; got {', '.join(sorted(kinds))}",
                ),
                (
                    spec.method.needs_teacher and not spec.taught,
                    "it needs a teacher; give it as MethodSpec(..., teacher=NAME), "
                    "where NAME is another row's",
                ),
                (
                    len({n for n in train.numbers if 0 <= n < NETWORK})
                    < train.replicas,
                    f"seed_numbers must be different ones from 0 to {NETWORK - 1}, as "
                    f"equal ones make equal runs; got {train.seed_numbers}",
                ),
            )
            if spec.train_size is not None:
                check_least(f"{spec.name}: train_size", spec.train_size, 1)
            self._check_dependencies(spec, names)
        for update in self.updates:
            if self.updates.count(update) > 1:
                raise ValueError(f"updates name {update.old} to {update.new} twice")
            for name in (update.old, update.new):
                if name not in names:
                    raise ValueError(
                        f"an update is of {name!r}, which is not in the study: {known}"
                    )

    def _check_dependencies(self, spec: MethodSpec, names: list[str]) -> None:
        """Refuses unknown rows, and old models of several networks."""
        for name in spec.dependencies:
            if name not in names:
                lost = f"{name!r}, which is not in the study: {', '.join(names)}"
                raise ValueError(f"{spec.name} is taught by {lost}")
            other = self.spec(name)
            members, wanted = other.method.members, spec.teaching.members
            teaches = name == spec.teacher and wanted
            shares = (other.model or self.model).sharing and not other.separate
            sizes = [self.first(row).train_size for row in (spec, other)]
            if name != spec.start:
                other.method.check_teaches(spec.name)
            check_none(
                spec.name,
                (
                    sizes[0] != sizes[1],
                    f"it (train_size {sizes[0]}) and {name} ({sizes[1]}) normalise "
                    "pixels otherwise, so one cannot learn from the other; use "
                    "class_share instead",
                ),
                (
                    name in spec.teaching.old and members != 1,
                    f"an old model is trained as one network; {name} trains {members}",
                ),
                (
                    teaches and shares,
                    f"teaching.members takes whole networks; members of {name} share "
                    "theirs",
                ),
                (
                    teaches and (wanted > members or len(other.models) > 1),
                    f"teaching.members must be 0 or some of {name}'s {members} "
                    f"members, which must be of one network; got {wanted}",
                ),
            )

    def spec(self, name: str) -> MethodSpec:
        """The row called `name`; a `ValueError` has the closest names."""
        rows = {row.name: row for row in self.methods}
        if name in rows:
            return rows[name]
        known = f"known: {', '.join(rows)}{did_you_mean(name, rows)}"
        raise ValueError(f"unknown method {name!r}; {known}")

    def first(self, spec: MethodSpec) -> MethodSpec:
        """The row whose pixels' moments one has: where its chain of `start` begins."""
        rows = {row.name: row for row in self.methods}
        while spec.start in rows:
            spec = rows[spec.start]
        return spec

    def with_coefficient(self, path: str, value: float) -> StudyConfig:
        """Sets `row.coefficient`, for example `codistill_skl.beta`."""
        name, _, field = path.partition(".")
        spec = self.spec(name)
        known = ", ".join(names := coefficient_names(spec.method))
        if field not in names:
            raise ValueError(
                f"{name} has no coefficient {field!r}; it has: {known or 'none'}"
            )
        changed = replaced(spec, [(f"method.{field}", float(value))])
        rows = tuple(changed if row is spec else row for row in self.methods)
        return dataclasses.replace(self, methods=rows)

    def select(self, names: tuple[str, ...]) -> tuple[MethodSpec, ...]:
        """The named methods after those they learn from; all if none are named."""
        ordered: dict[str, MethodSpec] = {}

        def add(spec: MethodSpec) -> None:
            if spec.name not in ordered:
                for name in spec.dependencies:
                    add(self.spec(name))
                ordered[spec.name] = spec

        for spec in map(self.spec, names) if names else self.methods:
            add(spec)
        return tuple(ordered.values())

    def with_networks(
        self, change: Callable[[ModelConfig], ModelConfig]
    ) -> StudyConfig:
        """The study with every network changed, its own and those of its rows."""
        rows = tuple(spec.with_networks(change) for spec in self.methods)
        return dataclasses.replace(self, model=change(self.model), methods=rows)

    def dependencies(self, spec: MethodSpec) -> tuple[MethodSpec, ...]:
        """The rows that one learns or starts from, and theirs."""
        return self.select(spec.dependencies) if spec.dependencies else ()
