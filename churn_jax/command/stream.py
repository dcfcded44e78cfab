"""`churn-jax stream PRESET`: progressive validation of several methods."""

import dataclasses
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from churn_jax.command.listing import print_list
from churn_jax.command.options import (
    preset_first,
    read_options,
    with_coefficients,
    written_out,
)
from churn_jax.command.run import Launched, run_command
from churn_jax.command.signals import check_minutes
from churn_jax.command.study_file import print_if_asked, with_file
from churn_jax.training.loggers import as_loggers
from churn_jax.training.progress import Display, Work

SHORT_FORMS = {
    "--data": "--data.source",
    "--schema": "--data.schema",
    "--holdout": "--data.holdout",
    "--group": "--data.group",
    "--data-dir": "--data.data-dir",
    "--examples": "--data.examples",
    "--optimizer": "--train.optimizer.name",
    "--replicas": "--train.replicas",
    "--batch-size": "--train.batch-size",
    "--window": "--train.window",
    "--seed": "--train.seeds.base",
}


def _arguments(config):
    """The options as a dataclass whose defaults are the preset's."""
    from churn_jax.configuration.streams import StreamConfig
    from churn_jax.studies.streams import StreamData, TowerConfig

    @dataclasses.dataclass(frozen=True)
    class Arguments(Launched):
        """Options of a stream study.

        Attributes:
            only: train these rows only.
            set: change coefficients, for example `correlation_1_s1.strength=2`.
            warm_share: share of the stream in which all replicas are one model, if
                that is longer than `train.warm_examples`.
            data: the stream.
            model: the click model.
            train: how all rows are trained.
        """

        out: Path = Path("runs") / config.name
        only: tuple[str, ...] = ()
        set: tuple[str, ...] = ()
        warm_share: float = config.warm_share
        data: StreamData = config.data
        model: TowerConfig = config.model
        train: StreamConfig = config.train

    return Arguments


def read_stream(argv: Sequence[str]):
    """`(StreamStudyConfig, options)` from the command line."""
    from churn_jax.studies.streams import STREAM_PRESETS, stream_preset
    from churn_jax.studies.streams.presets import FORMS

    names = tuple(STREAM_PRESETS)
    argv, file = with_file(argv, SHORT_FORMS)
    name, words = preset_first("stream", argv, names)
    config = stream_preset(name)
    forms = ", ".join(f":{form}" for form in FORMS)
    options = read_options(
        _arguments(config),
        written_out(words, SHORT_FORMS),
        prog=f"churn-jax stream {name}",
        description=f"{config.title}. Presets: {', '.join(names)}, each with the forms "
        f"{forms}. Short forms: {', '.join(SHORT_FORMS)}, --mesh replica=4,data=1.",
        file=file,
    )
    check_minutes(options.minutes)
    as_loggers(options.log)
    config = dataclasses.replace(
        config,
        data=options.data,
        model=options.model,
        train=options.train,
        warm_share=options.warm_share,
    )
    config = with_coefficients(config, options.set)
    print_if_asked(name, options, config)
    return config, options


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
    if "--list" in argv:
        return print_list("stream", argv)
    config, options = read_stream(argv)

    def train(progress, **told):
        from churn_jax.studies.streams import run_stream_study

        run_stream_study(
            config, options.out, only=options.only, loggers=options.log, **told
        )

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
