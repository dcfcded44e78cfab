"""Progress of a study that is trained."""

from collections.abc import Sequence

from churn_jax.studies.grid import Program
from churn_jax.training.progress import Display
from churn_jax.training.run import Progress


class StudyDisplay(Display):
    """The programs of a study; time left is counted in epochs of one network."""

    def __init__(self, **shown: bool):
        """`shown` is given to `Display`; programs come with the plan."""
        super().__init__(**shown)
        self._programs: dict[str, Program] = {}

    def plan(self, programs: Sequence[Program]) -> None:
        """Adds planned programs; the two stages of a selection plan in turn."""
        self._programs |= {program.name: program for program in programs}
        every = self._programs.values()
        rows = sum(len(program.rows) for program in every)
        self.expect(sum(p.work for p in every), f"all {rows} methods")

    def start(self, program: Program, finished: bool) -> None:
        """A program begins, or was finished before."""
        self.begin(
            program.name, program.label, weight=program.work, finished_before=finished
        )

    def update(self, progress: Progress) -> None:
        """Shows the last evaluation; of several rows the mean over them."""
        program = self._programs.get(progress.name)
        if program is None or len(program.rows) == 1:
            super().update(progress)
            return
        found = f"mean validation accuracy {100 * progress.accuracy:.2f} %"
        self.evaluated(progress, found)
        for stopped in progress.stopped:
            row, run = divmod(stopped.replica, program.replicas)
            self.note_stopped(program.rows[row].name, "run", run, stopped)
