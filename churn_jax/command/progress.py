"""What a study shows while it trains: bars with the time left, accuracy and churn."""

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

__all__ = ["Notes", "StudyProgress"]


class Notes:
    """Sentences above the bars; a replica that stopped is told of once."""

    def __init__(self, *, quiet: bool = False):
        """Nothing was said yet."""
        self.console = Console(quiet=quiet)
        self.frozen: set[tuple[str, int]] = set()

    def note(self, sentence: str) -> None:
        """Says something above the bars."""
        self.console.print(sentence, style="yellow", highlight=False)

    def note_stopped(self, name: str, replicas) -> None:
        """Says which of a row's replicas stopped, and why, unless it was said."""
        for stopped in replicas:
            if (name, stopped.replica) not in self.frozen:
                self.frozen.add((name, stopped.replica))
                self.note(
                    f"{name}: replica {stopped.replica} stopped at update "
                    f"{stopped.step}, {stopped.term} was not finite; the others go on"
                )


class StudyProgress(Notes):
    """Two bars: the method's epochs, and all epochs of the study."""

    def __init__(self, config, only: tuple[str, ...], *, quiet: bool = False):
        """Prepares the bars of the selected methods."""
        super().__init__(quiet=quiet)
        self.config = config
        self.specs = config.select(only)
        # A bar is redrawn in place; a log file gets one line per finished method.
        self.live = self.console.is_terminal and not quiet
        self.bars = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("epochs"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            TextColumn("{task.fields[status]}"),
            console=self.console,
            disable=not self.live,
        )
        # Work in units of one network's epochs, so that the time left is right.
        self.weights = {s.name: s.method.members for s in self.specs}
        self.epochs = {s.name: s.config(config.train).epochs for s in self.specs}
        total = sum(n * self.weights[name] for name, n in self.epochs.items())
        self.all = self.bars.add_task("all methods", total=total, status="")
        self.task: TaskID | None = None
        self.before = 0

    def __enter__(self):
        """Starts drawing."""
        self.bars.__enter__()
        return self

    def __exit__(self, *error):
        """Stops drawing."""
        self.bars.__exit__(*error)

    def start(self, spec, finished: bool) -> None:
        """A method begins, or was finished before."""
        if self.task is not None:
            self.bars.update(self.task, visible=False)
        epochs = self.epochs.get(spec.name, self.config.train.epochs)
        self.before = 0
        status = "finished before" if finished else "compiling"
        self.task = self.bars.add_task(f"{spec.label:<20}", total=epochs, status=status)
        if finished:
            self.bars.update(self.task, completed=epochs)
            self.bars.advance(self.all, epochs * self.weights[spec.name])
            self.console.print(f"{spec.label}: finished before, kept")

    def update(self, progress) -> None:
        """After an evaluation."""
        status = (
            f"validation accuracy {100 * progress.accuracy:.2f} %, "
            f"churn {100 * progress.churn:.2f} %"
        )
        if self.task is not None:
            self.bars.update(self.task, completed=progress.epoch, status=status)
        new = progress.epoch - self.before
        self.before = progress.epoch
        self.bars.advance(self.all, new * self.weights.get(progress.name, 1))
        self.note_stopped(progress.name, progress.stopped)
        if progress.epoch == progress.epochs:
            self.console.print(f"{progress.name}: {status}", highlight=False)
