"""Sweeps: a grid of coefficients, whose points are the rows of a study."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from churn_jax.configuration.study import StudyConfig
from churn_jax.reports import Report, collect
from churn_jax.reports.sweep import CRITERIA
from churn_jax.setting_checks import check_choice, check_least
from churn_jax.studies.grid import Axis, swept
from churn_jax.studies.inputs import StudyError
from churn_jax.studies.processes import wait_for_all
from churn_jax.studies.study import run_study


def run_sweep(
    config: StudyConfig,
    axes: Sequence[Axis],
    out: Path,
    *,
    seeds: int = 5,
    baseline: bool = True,
    criterion: str = "churn",
    points_per_program: int = 0,
    **options: Any,
) -> Report:
    """Trains every value of the axes with the same seeds; finished points are kept.

    All points that differ by numbers alone are replicas of one program. The same folder
    goes on where it was left, and takes more values or axes in.

    Args:
        config: the study whose data, network, training and methods are used.
        axes: coefficients to sweep, each on its own (no products).
        out: folder of the sweep.
        seeds: runs per point; every point has the same ones.
        baseline: train the baseline too, as the value 0 where that is the baseline.
        criterion: one of `churn_jax.reports.sweep.CRITERIA`.
        points_per_program: at most so many points are trained together, to save
            memory; 0 trains all together.
        **options: as for `run_study`.

    Returns:
        Numbers of every point on both splits, and what the criterion picks.

    Raises:
        StudyError: `out` holds something else, or there is nothing to train.
        ValueError: an axis does not fit the study.
        churn_jax.data.DataError: the data cannot be used.
        Interrupted: `stop` was set.
    """
    axes = [axis.checked(config) for axis in axes]
    names = [axis.path for axis in axes]
    if not axes:
        raise StudyError("a sweep needs at least one METHOD.COEFFICIENT")
    if seeds < 2:
        raise StudyError(f"churn needs at least 2 seeds; got {seeds}")
    if twice := next((name for name in names if names.count(name) > 1), ""):
        raise StudyError(f"{twice} is named twice; give all its values at once")
    check_choice("criterion", criterion, CRITERIA)
    check_least("points_per_program", points_per_program, 0)
    study, sweep = swept(
        config,
        axes,
        seeds=seeds,
        baseline=baseline,
        criterion=criterion,
        points_per_program=points_per_program,
    )
    points = tuple(point.name for point in sweep.points)
    run_study(study, out, only=points, sweep=sweep, **options)
    wait_for_all("the sweep's predictions are written")
    return collect(out)
