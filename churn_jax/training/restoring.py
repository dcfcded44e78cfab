"""A trained method from its checkpoint alone; nothing is trained."""

from collections.abc import Sequence
from pathlib import Path

from churn_jax.training.checkpoint import CheckpointError
from churn_jax.training.loop import plain_numbers, trained_of
from churn_jax.training.run import Run, Trained
from churn_jax.training.setup import open_session
from churn_jax.training.tutors import Tutors, tutors_of

__all__ = ["restore"]


def restore(
    run: Run,
    dataset,
    *,
    directory: Path,
    teacher: Trained | Tutors | None = None,
    start: Trained | None = None,
    mean: float | Sequence[float] = 0.0,
    std: float | Sequence[float] = 1.0,
) -> Trained:
    """What `train` returned when it had finished.

    Args:
        run: what was trained.
        dataset: the data it was trained on.
        directory: what `train` was given.
        teacher: likewise.
        start: likewise.
        mean: likewise.
        std: likewise.

    Returns:
        A `Trained`; of its `seconds`, none are compilation.

    Raises:
        CheckpointError: there is no checkpoint, training had not finished, or it was
            of something else.
        ValueError: configuration and data do not fit.
    """
    saved = directory / "checkpoints"
    if not saved.is_dir():  # opening it would create it
        raise CheckpointError(f"{saved} does not exist; {run.name} cannot be restored")
    session = open_session(
        run,
        dataset,
        directory=directory,
        teacher=tutors_of(teacher),
        start=start,
        mean=plain_numbers(mean),
        std=plain_numbers(std),
    )
    if session.checkpoints is not None:
        session.checkpoints.close()
    total = session.steps_per_epoch * run.config.epochs
    if session.done < total:
        raise CheckpointError(
            f"{saved} holds update {session.done} of {total}; {run.name} has not "
            "finished"
        )
    return trained_of(
        run, session, session.state, session.best, seconds=session.seconds
    )
