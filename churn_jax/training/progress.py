"""Progress of a training: one line on a terminal, one line after another elsewhere.

A thread writes them, so that they go on while XLA compiles or the data are loaded.
"""

import contextlib
import dataclasses
import math
import threading
import time
from typing import TYPE_CHECKING

from rich.console import Console
from rich.errors import LiveError
from rich.status import Status

from churn_compare.escaping import terminal_text

if TYPE_CHECKING:  # they come with JAX, which `--help` can do without
    from churn_jax.configuration.record import Stopped
    from churn_jax.training.run import Progress


# `Work.doing` before the first update of a launch; stopping then loses nothing.
COMPILING = "compiling"


@dataclasses.dataclass(frozen=True)
class Work:
    """How far a training is: what the devices have done, not what they were given."""

    name: str  # name of the run
    doing: str  # what happens now, such as `COMPILING` or "saving"
    done: int  # updates, or whatever `unit` says
    total: int | None = None  # how many there will be, or None if that is not known
    unit: str = "updates"  # unit of what is counted


def line_interval(seconds: float) -> float:
    """Seconds to the next line after so many: 1, then 5, 30 after half an hour."""
    return min(max(seconds / 60, 5.0), 30.0) if seconds >= 1.0 else 1.0


@dataclasses.dataclass
class _Task:
    """One piece of work, mostly a method's training."""

    label: str
    weight: float
    work: Work
    found: str = ""
    began: float = dataclasses.field(default_factory=lambda: time.monotonic())
    # When the first work of this launch had been done, and how much was done by then.
    first: tuple[float, float] | None = None
    seen: float = 0.0  # when `work` was last told

    def tell(self, work: Work) -> None:
        now = time.monotonic()
        if work.doing == COMPILING or work.done < self.work.done:
            self.first = None
        elif self.first is None:
            self.first = now, work.done
        total = work.total or self.work.total
        self.work, self.seen = dataclasses.replace(work, total=total), now

    def share(self, since: float = 0.0) -> float:
        """The share that was done since so much had been."""
        return (self.work.done - since) / (self.work.total or math.inf)

    def __str__(self) -> str:
        work, now = self.work, time.monotonic()
        parts = [work.doing, f"{_clock(now - self.began)} so far"]
        if work.total:
            counted = f"{work.done:,.0f} of {work.total:,.0f} {work.unit}"
            parts.insert(0, f"{counted} ({self.share():.0%})")
        elif work.done:
            parts.insert(0, f"{work.done:,.0f} {work.unit}")
        if self.first and work.total and self.first[1] < work.done < work.total:
            passed, done = self.seen - self.first[0], work.done - self.first[1]
            left = (work.total - work.done) / done * passed - (now - self.seen)
            parts.append(f"about {_clock(max(left, 0.0))} left")
        return "; ".join(filter(None, (", ".join(parts), self.found)))


class Display:
    """Shows tasks, one at a time, and how far all of them are.

    `silent` shows nothing at all, `quiet` only what `note` is given.
    """

    def __init__(
        self, *, silent: bool = False, quiet: bool = False, stderr: bool = False
    ):
        self.console = Console(quiet=silent, stderr=stderr, force_jupyter=False)
        self.quiet = quiet or silent
        self._stopped: set[tuple[str, int]] = set()
        self._tasks: dict[str, _Task] = {}
        self._task = _Task("", 0.0, Work("", "starting", 0))
        self._expected, self._everything = 0.0, ""
        self._began = time.monotonic()
        self._status: Status | None = None  # of a terminal
        self._over = threading.Event()
        self._writer: threading.Thread | None = None

    def __enter__(self):
        if self.quiet:
            return self
        # FORCE_COLOR makes rich believe that a file is a terminal.
        if self.console.file.isatty() and not self.console.is_dumb_terminal:
            status = self.console.status(self._line())
            with contextlib.suppress(LiveError):  # the program has bars of its own
                status.start()
                self._status = status
        self._writer = threading.Thread(target=self._write, daemon=True)
        self._writer.start()
        return self

    def __exit__(self, *error):
        if self._writer is not None:
            self._over.set()
            self._writer.join()
        if self._status is not None:
            self._status.stop()

    def expect(self, weight: float, everything: str) -> None:
        """Sets how much work all tasks are together; `everything` names them."""
        self._expected, self._everything = weight, everything

    def begin(
        self, name: str, label: str = "", *, weight: float = 0.0, kept: bool = False
    ) -> None:
        """Begins a task with its part of the weight given to `expect`.

        If it was finished before and is `kept`, the display only says so.
        """
        work = Work(name, "preparing", int(kept), int(kept))
        self._tasks[name] = task = _Task(label or name, weight, work)
        if kept:
            self.say(f"{task.label}: finished before, kept")
        else:
            self._task = task

    def work(self, work: Work) -> None:
        """Updates a task, or begins one that is not known yet."""
        self._task = self._tasks.setdefault(work.name, _Task(work.name, 0.0, work))
        self._task.tell(work)

    def update(self, progress: "Progress") -> None:
        """Shows the result of an evaluation."""
        found = (
            f"validation accuracy {100 * progress.accuracy:.2f} %, "
            f"churn {100 * progress.churn:.2f} %"
        )
        self.evaluated(progress, found)
        for stopped in progress.stopped:
            self.note_stopped(progress.name, "replica", stopped.replica, stopped)

    def evaluated(self, progress: "Progress", found: str) -> None:
        """Shows `found` with the task; on a line of its own after the last epoch."""
        name, epoch, epochs = progress.name, progress.epoch, progress.epochs
        if name in self._tasks:
            self._tasks[name].found = f"epoch {epoch} of {epochs}: {found}"
        if epoch == epochs:
            self.say(f"{name}: {found}")

    def note_stopped(self, name: str, kind: str, number: int, why: "Stopped") -> None:
        """Notes once that a run stopped, and why."""
        if (name, number) not in self._stopped:
            self._stopped.add((name, number))
            self.note(
                f"{name}: {kind} {number} stopped at update {why.step}, {why.term} was "
                "not finite; the others go on"
            )

    def say(self, sentence: str) -> None:
        """Prints a line."""
        if not self.quiet:
            self.note(sentence, style="")

    def note(self, sentence: str, style: str = "yellow") -> None:
        """Prints a sentence, even if `quiet`."""
        if self._writer is not None and self._status is None:
            sentence = f"{time.strftime('%H:%M:%S')} {sentence}"
        self.console.print(terminal_text(sentence, style), soft_wrap=True)

    def _write(self) -> None:
        def pause() -> float:
            passed = time.monotonic() - self._began
            return 0.5 if self._status else line_interval(passed)

        while not self._over.wait(pause()):
            with contextlib.suppress(OSError, ValueError):  # nobody reads any more
                if self._status is not None:
                    self._status.update(terminal_text(self._line()))
                else:
                    self.say(self._line())

    def _line(self) -> str:
        """How far the task is, and all of them if there are several."""
        task, tasks = self._task, list(self._tasks.values())
        said = f"{task.label}: {task}" if task.label else str(task)
        if self._expected <= max((task.weight for task in tasks), default=0.0):
            return said
        done = sum(task.weight * task.share() for task in tasks)
        begun = [(task, *task.first) for task in tasks if task.first]
        now = sum(task.weight * task.share(since=since) for task, _, since in begun)
        said += f"; {self._everything} {done / self._expected:.0%}"
        if now:
            passed = time.monotonic() - min(first for _, first, _ in begun)
            left = (self._expected - done) / now * passed
            said += f", about {_clock(left)} left"
        return said


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
