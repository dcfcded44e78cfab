"""`churn-jax stream PRESET`: progressive validation of several methods."""

import dataclasses
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tyro

from churn_jax.command.listing import print_list
from churn_jax.command.options import (
    AllOfFolder,
    Preset,
    Words,
    configured,
    named,
    print_if_asked,
    read_options,
    settings_of,
)
from churn_jax.command.run import run_command
from churn_jax.command.signals import check_minutes
from churn_jax.training.loggers import as_loggers
from churn_jax.training.progress import Display, Work

SETTINGS = {
    "data": "data.source",
    "schema": "data.schema",
    "holdout": "data.holdout",
    "group": "data.group",
    "data_dir": "data.data_dir",
    "examples": "data.examples",
    "optimizer": "train.optimizer.name",
    "learning_rate": "train.optimizer.learning_rate",
    "replicas": "train.replicas",
    "batch_size": "train.batch_size",
    "window": "train.window",
    "seed": "train.seeds.base",
    "mesh": "train.mesh",
    "warm_share": "warm_share",
}


@dataclasses.dataclass(frozen=True)
class Arguments(AllOfFolder):
    """Trains click models in one pass over a stream and scores before it learns.

    Attributes:
        preset: a built-in stream or FILE.py:NAME, with the forms `:summed`, `:init`,
            `:warm`, `:gated` and `:tiny`.
        data: `synthetic`, a table or folder of tables in time order, or
            `tfds:NAME/SPLIT`.
        schema: what the columns mean: a name or a `.toml` file.
        holdout: share of the examples that is never learned and scored at the end.
        group: column whose values are held out together.
        data_dir: where TFDS keeps prepared sets.
        examples: stop after so many.
        optimizer: `adagrad` or `sgd`.
        learning_rate: of all rows.
        replicas: runs of every row.
        batch_size: examples per update and replica.
        window: examples inside which replicas differ in order.
        seed: of the study.
        mesh: devices along the replica axis, such as `replica=4`.
        warm_share: share of the stream in which all replicas are one model, if that is
            longer than `train.warm_examples`.
        only: train these rows only.
        set: change coefficients and settings, for example `correlation_1_s1.strength=2`
            or `model.features=8,8`.
        list: list what has a name, or the rows of a preset, and stop.
        print_config: print the study's record and stop.
    """

    preset: Preset = ""
    data: str = ""
    schema: str = ""
    holdout: float | None = None
    group: str = ""
    data_dir: str | None = None
    examples: int | None = None
    optimizer: str = ""
    learning_rate: float | None = None
    replicas: int | None = None
    batch_size: int | None = None
    window: int | None = None
    seed: int | None = None
    mesh: str = ""
    warm_share: float | None = None
    only: tuple[str, ...] = ()
    set: Words = ()
    method: tyro.conf.Suppress[Words] = ()
    list: bool = False
    print_config: bool = False


def read_stream(argv: Sequence[str]) -> tuple[Any, Arguments]:
    """`(StreamStudyConfig, options)` from the command line."""
    from churn_jax.studies.streams import STREAM_PRESETS, stream_preset

    options = read_options(Arguments, argv, command="churn-jax stream")
    if options.list:
        return None, options
    config = stream_preset(named(options, "stream", STREAM_PRESETS))
    check_minutes(options.minutes)
    as_loggers(options.log)
    config = configured(config, settings_of(options, SETTINGS), options)
    print_if_asked(options, config)
    out = options.out or Path("runs") / config.name
    return config, dataclasses.replace(options, out=out)


class StreamProgress(Display):
    """Each row's pass; the first row tells how long the stream is."""

    def __init__(self, **shown: bool):
        """`shown` is given to `Display`."""
        super().__init__(**shown)
        self._label, self._examples = "", 0
        self._last: Any = None

    def __exit__(self, *error):
        """Says how the last row ended, and stops drawing."""
        if error[0] is None:
            self._end()
        super().__exit__(*error)

    def start(self, spec, finished: bool) -> None:
        """A row begins, or was finished before."""
        self._end()
        self._label = spec.label
        self.begin(spec.name, spec.label, finished_before=finished)

    def work(self, work: Work) -> None:
        """Shows that a window is done."""
        super().work(dataclasses.replace(work, total=self._examples or None))

    def update(self, progress: Any) -> None:
        """Shows the metrics of a stretch of the stream."""
        self._last = progress
        self.found(progress.name, _stretch(progress))
        self.detail(
            f"{self._label}: {progress.examples:,} examples, {_stretch(progress)}"
        )
        for stopped in progress.stopped:
            self.note_stopped(self._label, "replica", stopped.replica, stopped)

    def _end(self) -> None:
        if self._last is not None:
            self._examples = self._last.examples
            self.say(
                f"{self._label}: {self._examples:,} examples, last stretch: "
                f"{_stretch(self._last)}"
            )
            self._last = None


def _stretch(progress: Any) -> str:
    return f"log loss {progress.log_loss:.4f}, Δʳ₁ {progress.relative_pd:.4f}"


def stream(argv: Sequence[str]) -> int:
    """Trains, scores and reports; returns the exit code."""
    config, options = read_stream(argv)
    if options.list:
        return print_list("stream", options)

    def train(progress, **told):
        from churn_jax.studies.streams import run_stream_study

        out: Any = options.out
        run_stream_study(config, out, only=options.only, loggers=options.log, **told)

    return run_command(
        options,
        shlex.join(["churn-jax", "stream", *argv]),
        progress=StreamProgress,
        train=train,
        show=show,
    )


def show(out: Path, seconds: float):
    """Writes the report of a stream study and prints it; returns the report."""
    from churn_jax import reports

    written = reports.write_stream(out)
    reports.print_stream(written)
    print(f"\n{seconds:.0f} s. Report: {written.files['report.html']}")
    return written
