"""A study of Python objects: a network, data, an optimiser and methods of your own."""

from __future__ import annotations

import dataclasses
import functools
import numbers
import os
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import jax
import numpy as np

from churn_jax import reports
from churn_jax.configuration.codec import replaced, to_json
from churn_jax.configuration.network import ModelConfig
from churn_jax.configuration.rows import MethodSpec
from churn_jax.configuration.study import DataConfig, StudyConfig, Update
from churn_jax.configuration.training import (
    OPTIMIZERS,
    MeshShape,
    OptimizerConfig,
    check_read,
)
from churn_jax.data import Dataset, find_dataset, is_tokens, named
from churn_jax.ensembles import as_network, from_function
from churn_jax.methods import ELODI
from churn_jax.methods.base import Method
from churn_jax.methods.fields import check_whole
from churn_jax.models import MODELS
from churn_jax.reports.quantities import DEFAULT_COLUMNS, column_name
from churn_jax.setting_checks import check_minutes
from churn_jax.studies.folder import read_study
from churn_jax.studies.grid import Program
from churn_jax.studies.own_data import data_facts, described, own_study
from churn_jax.studies.presets import as_row
from churn_jax.studies.study import StudyDisplay, run_study
from churn_jax.training.checkpoint import computation
from churn_jax.training.examples import example_of
from churn_jax.training.folder_lock import set_aside
from churn_jax.training.loggers import Logger, as_loggers
from churn_jax.training.optim import Optimizer
from churn_jax.training.run import Interrupted


def study(
    data: Any,
    methods: Mapping[str, Any] | Sequence[Any] = (),
    *,
    model: Any = "",
    optimizer: Any = None,
    learning_rate: float | None = None,
    epochs: int = 0,
    batch_size: int = 0,
    replicas: int = 5,
    seed: int = 0,
    validation: int | float | None = None,
    train_size: int | None = None,
    metrics: Sequence[Any] = (),
    columns: Sequence[Any] = (),
    updates: Sequence[Any] = (),
    baseline: str = "",
    mesh: MeshShape | str = MeshShape(),
    settings: Mapping[str, Any] | None = None,
    title: str = "",
    out: str | os.PathLike | None = None,
    fresh: bool = False,
    loggers: Sequence[str | Logger] = ("tensorboard",),
    minutes: float | None = None,
    show_progress: bool = True,
) -> StudyResult:
    """Trains methods on data with a network and an optimiser of your own.

    What is not given is chosen for the kind and size of the data, as `churn-jax study
    own` does, and the report says what was chosen. Pixels are standardised per channel
    by the training images, those of streams by ImageNet's. The same call goes on in
    `out` where a stopped or killed one was, bit by bit.

    Args:
        data: arrays `(x, y)` or `((x, y), (x_test, y_test))`, a dict of arrays, any
            records, as Hugging Face and Grain have them, a `churn_jax.data.Dataset`, or
            a name or path; see `churn_jax.data.from_source`.
        methods: rows of the study by label, each a method with its coefficients, its
            class, its name, or a `MethodSpec` where it has a teacher or settings of its
            own, such as a `model` in any form that is taken here; or a list of such
            rows. Empty trains those of `churn-jax study own`.
        model: a Linen module or its class, an NNX class, a function that makes one
            (called with those of `num_classes` and `rngs` that it names), a
            `ModelConfig`, or a name.
        optimizer: any `optax.GradientTransformation`; a function that makes one,
            called with the arguments that it names, see `OptimizerConfig.name`; an
            `OptimizerConfig`; or a name such as `optax:lion`.
        learning_rate: the peak, for optimisers that are given one.
        epochs: passes over the training set; 0 chooses.
        batch_size: examples per update; 0 chooses.
        replicas: runs of every method.
        seed: seed of the study.
        validation: examples held out of training, a count or a share; None is the
            data's own validation split, or a tenth.
        train_size: number of training examples to keep; None is all.
        metrics: columns of your own in addition to the usual ones: functions of
            `(logits [R, N, C], labels [N])`, or what `churn_jax.reports.column` makes.
        columns: all columns of the table instead, by name or as in `metrics`.
        updates: rows that replace others, `(old, new)` by label or name, or
            `churn_jax.studies.Update`: the report then has the flips of each and names
            no best row. Empty is every row with its old models (`teaching.old`) and,
            in a study with `ELODI`, rows of one method on other data or another
            network, in their order.
        baseline: label of the row that the others are compared with; empty is
            `baseline`, or the first one.
        mesh: devices along the axes, such as `replica=2,member=2,data=2`.
        settings: any other setting of `TrainConfig` by its dotted path, such as
            `{"seeds.init": "fixed", "ema_decay": 0.999}`.
        title: heading of the report.
        out: folder of the artefacts; None is `runs/<name of data and network>`.
        fresh: True to move what is in the folder aside and start again.
        loggers: where metrics go in addition to the folder, see
            `churn_jax.training.LOGGERS`.
        minutes: time limit above 0, after which it saves and returns, finished or not.
        show_progress: show one line on a terminal, and elsewhere one every few seconds;
            otherwise only notes on what is missing or goes wrong.

    Returns:
        A `StudyResult`.

    Raises:
        StudyError: `out` holds another study.
        ValueError: something cannot be used; one sentence says what, and why.

    Example:
        >>> import tempfile
        >>> from flax import linen as nn
        >>> from churn_jax.data import load
        >>> from churn_jax.methods import ERM, Codistillation
        >>> digits = load("digits", train_size=128)
        >>> rows = {"baseline": ERM(), "co-distilled": Codistillation(beta=0.5)}
        >>> net = nn.Sequential([lambda x: x.reshape(len(x), -1), nn.Dense(10)])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     result = study(digits, rows, model=net, epochs=1, replicas=2,
        ...                    out=folder, show_progress=False)
        ...     list(result.predictions), result.finished
        (['baseline', 'co-distilled'], True)
    """
    check_minutes("minutes", minutes)
    if not isinstance(validation, (numbers.Real, type(None))):
        raise ValueError(
            "validation is a count or a share; examples of your own are given with the "
            'data, as {"train": ..., "validation": ..., "test": ...}'
        )
    cut = {"validation": validation, "train_size": train_size}
    where, held = _data(data, {k: v for k, v in cut.items() if v is not None})
    facts = data_facts(where)
    example = example_of(facts.shape, tokens=facts.kind == "tokens")
    made = functools.partial(_model, classes=facts.classes, example=example)
    recipe = own_study(
        where, facts, model=made(model), epochs=epochs, batch_size=batch_size
    )
    if isinstance(mesh, str):
        mesh = MeshShape.parse(mesh)
    check_whole("replicas", replicas)
    changes: dict[str, Any] = {"replicas": replicas, "mesh": mesh, "seeds.base": seed}
    if optimizer is not None:
        changes["optimizer"] = _optimizer(
            optimizer, recipe.model, facts.classes, example, recipe.train.optimizer
        )
    if learning_rate is not None:
        changes["optimizer.learning_rate"] = learning_rate
    rows = tuple(row.with_networks(made) for row in _rows(methods)) or recipe.methods
    labels = [row.label for row in rows]
    if twice := {label for label in labels if label and labels.count(label) > 1}:
        raise ValueError(
            f"two rows are labelled {min(twice)!r}; give each a label of its own"
        )
    by_label = dict(zip(labels, (row.name for row in rows)))
    names = [row.name for row in rows]
    first = "baseline" if "baseline" in names else names[0]
    given = (*(columns or DEFAULT_COLUMNS), *metrics) if columns or metrics else ()
    shown = tuple(map(column_name, dict.fromkeys(given)))
    if twice := {name for name in shown if shown.count(name) > 1}:
        raise ValueError(
            f"two columns are called {min(twice)!r}; give each function a name of its "
            "own"
        )
    if own := {*changes, "epochs", "batch_size"} & {*(settings or ())}:
        raise ValueError(f"settings name {min(own)}, which has an argument; give that")
    changes |= settings or {}
    train = replaced(recipe.train, changes.items())
    check_read(changes, *(row.config(train).optimizer for row in rows))
    for row in rows:
        check_read(dict(row.train), row.config(train).optimizer)
    config = dataclasses.replace(
        recipe,
        train=train,
        methods=rows,
        baseline=by_label.get(baseline, baseline) if baseline else first,
        updates=_updates(rows, updates),
        columns=shown,
        title=title or recipe.title,
    )
    config.spec(config.baseline)  # refuses a label that is none
    config = described(recipe, config, facts)
    folder = Path("runs") / config.name if out is None else Path(out)
    kept = tuple(as_loggers(loggers))
    if fresh and (moved := set_aside(folder)) and show_progress:
        print(moved)
    return StudyResult(folder, config, show_progress, kept, held).resume(minutes)


@dataclasses.dataclass(frozen=True)
class StudyResult:
    """A study's folder in Python: numbers, figures, predictions, the report.

    Attributes:
        out: the folder.
        config: study that was trained; None reads it from the folder.
        show_progress: True to show the progress of `resume`.
        loggers: loggers of `resume`.
        data: the data set if it was given as a Python object, so that it is not
            forgotten while this result is there.

    Example:
        `StudyResult("runs/digits").table` is the table of a study that
        `churn-jax study digits` has trained.
    """

    out: Path
    config: StudyConfig = dataclasses.field(default=cast(Any, None), repr=False)
    show_progress: bool = True
    loggers: tuple[str | Logger, ...] = ("tensorboard",)
    data: Dataset | None = dataclasses.field(default=None, repr=False)

    def __post_init__(self):
        """Takes a path as text too, and reads what is not given."""
        object.__setattr__(self, "out", Path(self.out))
        if self.config is None:
            object.__setattr__(self, "config", read_study(self.out).config)

    def __str__(self) -> str:
        """The table, as `table.md` has it."""
        return self.report().with_name("table.md").read_text(encoding="utf-8")

    @property
    def finished(self) -> bool:
        """True if every row was trained."""
        record = read_study(self.out)
        names = {row.name for row in record.methods if not record.outdated(row)}
        return names >= {spec.name for spec in self.config.methods}

    @property
    def table(self) -> Any:
        """A row per method, see `churn_jax.reports.table`."""
        return reports.table(self.out)

    @property
    def figures(self) -> dict[str, Any]:
        """The report's figures, see `churn_jax.reports.figures`."""
        return reports.figures(self.out)

    @property
    def predictions(self) -> Mapping[str, np.ndarray]:
        """Test logits `[R, N, C]` by row, see `churn_jax.reports.predictions`."""
        return reports.predictions(self.out)

    def report(self) -> Path:
        """Writes tables and the report; returns the path of the page."""
        reports.write(self.out)
        return self.out / "report.html"

    def resume(self, minutes: float | None = None) -> StudyResult:
        """Trains what is not finished, for so many minutes at most; returns itself.

        Raises:
            StudyError: the folder holds another study.
            ValueError: the network, the data or the optimiser were Python objects of
                another process.
        """
        check_minutes("minutes", minutes)
        stop = threading.Event()
        clock = threading.Timer(60 * (minutes or 0.0), stop.set)
        clock.daemon = True
        silent, quiet = jax.process_index() != 0, not self.show_progress
        with StudyDisplay(silent=silent, quiet=quiet) as display:

            def start(program: Program, finished: bool) -> None:
                display.start(program, finished)
                if minutes is not None and not clock.ident:  # loading is not training
                    clock.start()

            def noted(sentence: str) -> None:
                if not quiet or sentence not in self.config.notes:
                    display.note(sentence)

            try:
                run_study(
                    self.config,
                    self.out,
                    command="churn_jax.study",
                    on_plan=display.plan,
                    on_start=start,
                    on_progress=display.update,
                    on_work=display.work,
                    on_note=noted,
                    loggers=self.loggers,
                    stop=stop,
                )
            except Interrupted as stopped:
                noted(f"{stopped}; resume() goes on")
            finally:
                clock.cancel()
        return self

    def _repr_html_(self) -> str:
        from churn_jax.reports.study_report import html_table

        return html_table(reports.collect(self.out))


def _data(given: Any, cut: Mapping[str, Any]) -> tuple[DataConfig, Dataset | None]:
    """The settings of data, and the data set itself if it was given as an object."""
    if isinstance(given, DataConfig):
        return dataclasses.replace(given, **cut), None
    where = dataclasses.replace(DataConfig(named(given), validation=None), **cut)
    if "@" not in where.name:
        return where, None
    held = find_dataset(where.name)
    if is_tokens(held.train.images):  # texts keep their length
        length = held.train.images.shape[1]
        where = dataclasses.replace(where, sequence_length=length)
    return where, held


def _rows(methods: Mapping[str, Any] | Sequence[Any]) -> tuple[MethodSpec, ...]:
    """The rows of a study, of methods by label or of a list of them."""
    if isinstance(methods, Mapping):
        return tuple(as_row(method, label) for label, method in methods.items())
    if isinstance(methods, (str, Method, MethodSpec, type)):
        methods = [methods]
    return tuple(map(as_row, methods))


# Settings of a row in which a version of a model differs from the last one.
_VERSION = ("model", "models", "train_size", "classes", "class_share")


def _updates(rows: Sequence[MethodSpec], given: Sequence[Any]) -> tuple[Update, ...]:
    """The updates that are given, or those that the rows themselves say."""
    by_label = {row.label: row.name for row in rows}
    taught = {row.name: row.dependencies for row in rows}
    said = [(old, row.name) for row in rows for old in row.teaching.old]
    if any(isinstance(row.method, ELODI) for row in rows):
        latest: dict[str, MethodSpec] = {}
        for row in rows:
            same = str(to_json(row.method))
            old = latest.setdefault(same, row)
            if any(getattr(old, name) != getattr(row, name) for name in _VERSION):
                said.append((old.name, row.name))
                latest[same] = row
    found = []
    for one in given or dict.fromkeys(said):
        if not isinstance(one, Update):
            if isinstance(one, str) or len(one) != 2:
                raise ValueError(
                    f"an update is a pair (old, new) of rows, or an Update; got {one!r}"
                )
            old, new = (by_label.get(name, name) for name in one)
            one = Update(old, new, targeted=old in taught.get(new, ()))
        found.append(one)
    return tuple(found)


def _model(given: Any, classes: int, example: jax.ShapeDtypeStruct) -> ModelConfig:
    """The settings of a network that is given in any form, an object by its name."""
    if isinstance(given, ModelConfig):
        return given
    if isinstance(given, str):
        return ModelConfig(name=given)
    if isinstance(given, tuple) and len(given) == 2 and all(map(callable, given)):
        given = from_function(*given)

    def computed() -> str:
        network, key = as_network(given, classes, name="network"), jax.random.key(0)
        variables = jax.eval_shape(network.init, key, example)

        def used(variables, x, key):
            first = network.init(key, x), network.apply(variables, x, train=False)
            return *first, network.apply(variables, x, train=True, key=key)

        return computation(used, variables, example, key)

    return ModelConfig(name=MODELS.name(given, computed))


def _optimizer(
    given: Any,
    model: ModelConfig,
    classes: int,
    example: jax.ShapeDtypeStruct,
    usual: OptimizerConfig,
) -> OptimizerConfig:
    """The settings of an optimiser that is given as an object, or by its name."""
    if isinstance(given, OptimizerConfig):
        return given
    if isinstance(given, str):
        return dataclasses.replace(usual, name=given)

    def computed() -> str:
        made = Optimizer(OptimizerConfig(), 10, 100, given).transformation(
            learning_rate=0.1, weight_decay=0.1
        )
        network = model.build(classes)
        variables = jax.eval_shape(network.init, jax.random.key(0), example)

        def update(params):
            state = made.init(params)
            return state, made.update(params, state, params)

        return computation(update, variables["params"])

    name = OPTIMIZERS.name(given, computed)
    if callable(given) and not hasattr(given, "update"):
        return dataclasses.replace(usual, name=name)
    # A transformation has rates of its own.
    return OptimizerConfig(name, learning_rate=0.0, weight_decay=0.0)
