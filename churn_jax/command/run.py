"""One launch of a command that trains: the folder, progress, stopping, the report."""

import shlex
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from churn_compare.escaping import printable
from churn_jax.command.launch import connect, ending_at_once
from churn_jax.command.signals import NOT_FINISHED, stopping
from churn_jax.training.progress import COMPILING, Work


def run_command(options: Any, command: str, train: Callable[..., Any]) -> int:
    """Trains into `options.out` and reports; returns the exit code.

    `options` are an `AllOfFolder` with its folder.
    """
    # `train(**told)` is called after the processes are connected, so it may
    # import what needs them; process 0 alone reports.
    process = connect(options.launch)
    try:  # for the report: a matplotlibrc that cannot be read is found before training
        import matplotlib  # noqa: F401
    except Exception as error:
        raise ValueError(
            f"Matplotlib, which draws the report, cannot be imported ({error}); see "
            "whether a matplotlibrc of this folder or MATPLOTLIBRC is damaged"
        ) from error
    with ending_at_once():
        return _run(process, options, command, train)


def show_report(folder: Path, began: float) -> Any:
    """Writes the report of a folder, prints it and where it is; returns it."""
    from churn_jax import reports

    written = reports.write(folder)
    reports.print_report(written)
    seconds = time.perf_counter() - began
    print(f"\n{seconds:.0f} s. Report: {written.files['report.html']}")
    return written


def _run(process: int, options: Any, command: str, train) -> int:
    import jax

    from churn_jax.studies.study import StudyDisplay
    from churn_jax.training.run import Interrupted

    if options.fresh:
        from churn_jax.training.folder_lock import set_aside

        if moved := set_aside(options.out):
            print(moved)
    began = time.perf_counter()
    several = jax.process_count() > 1
    # The same command, without the flag that would start again.
    go_on = shlex.join(word for word in shlex.split(command) if word != "--fresh")
    with stopping(options.minutes, go_on=go_on) as asked:
        asked.unsaved = several
        try:
            with StudyDisplay(silent=process != 0, quiet=options.quiet) as shown:
                asked.say = shown.note

                def start(work, finished: bool) -> None:
                    shown.start(work, finished)
                    asked.unsaved = several
                    if not finished:
                        asked.begin()

                def work(work: Work) -> None:
                    shown.work(work)
                    asked.unsaved = several or work.doing != COMPILING

                train(
                    command=command,
                    on_plan=shown.plan,
                    on_start=start,
                    on_progress=shown.update,
                    on_work=work,
                    on_note=shown.note,
                    stop=asked.event,
                )
        except (Interrupted, KeyboardInterrupt) as error:
            if process == 0:
                said = str(error) or "stopped at once; the last checkpoint is kept"
                if asked.exit_code == NOT_FINISHED:
                    said = f"{said}, as --minutes {asked.minutes:g} are over"
                print(f"\n{printable(said)}. To go on: {go_on}")
            return asked.exit_code
    if process == 0:
        show_report(options.out, began)
    return 0
