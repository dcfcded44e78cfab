"""Sweeps: a grid of coefficients, whose points are the rows of a study."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from churn_jax.configuration.rows import MethodSpec
from churn_jax.configuration.study import StudyConfig
from churn_jax.methods.base import Ramp
from churn_jax.reports import Report, collect
from churn_jax.reports.sweep import CRITERIA
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
    names = [axis.name for axis in axes]
    for wrong, sentence in (
        (not axes, "a sweep needs at least one METHOD.COEFFICIENT"),
        (seeds < 2, f"churn needs at least 2 seeds; got {seeds}"),
        (
            criterion not in CRITERIA,
            f"criterion must be one of {', '.join(CRITERIA)}; got {criterion!r}",
        ),
        (
            points_per_program < 0,
            f"points_per_program must be at least 0; got {points_per_program}",
        ),
        *(
            (names.count(n) > 1, f"{n} is named twice; give all its values at once")
            for n in names
        ),
    ):
        if wrong:
            raise StudyError(sentence)
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


def run_selection(
    config: StudyConfig,
    method: str,
    out: Path,
    *,
    betas: Sequence[float] = (),
    alphas: Sequence[float] = (),
    criterion: str = "churn",
    **options,
) -> Report:
    """The paper's selection: beta first, then alpha at the best beta.

    A method with one of the two gets one stage. For the combined objective the first
    stage is the same method with alpha 0, which is the study's Co-distill SKL where
    that has the same structure.

    Args:
        config: the study.
        method: name of a row with a coefficient `beta` or `alpha`.
        out: folder of the sweep; both stages live in it.
        betas: values of beta; empty takes 1/4 to 4 times the preset's.
        alphas: values of alpha; empty takes the same multiples.
        criterion: see `run_sweep`; of both stages.
        **options: as for `run_sweep`.

    Returns:
        The `Report` of all stages.

    Raises:
        StudyError: the method has neither coefficient, or no beta could be chosen.
    """
    spec = config.spec(method)
    own: Any = spec.method
    fields = [f for f in ("beta", "alpha") if hasattr(own, f)]
    combined = len(fields) == 2 and own.alpha != 0
    options["criterion"] = criterion
    if not fields:
        raise StudyError(
            f"{method} has neither beta nor alpha; name what to sweep instead, "
            f"{method}.COEFFICIENT"
        )
    if not combined:
        values = betas if fields[0] == "beta" else alphas
        return run_sweep(
            config, [Axis(method, fields[0], tuple(values))], out, **options
        )
    axis = _without_alpha(config, spec, betas).checked(config)
    first = run_sweep(config, [axis], out, **options)
    assert first.sweep is not None
    choice = first.sweep.choices[axis.name]
    if choice.value is None:
        raise StudyError(
            f"no value of {axis.path} could be chosen ({choice.reason}), so there is "
            "none at which to sweep alpha"
        )
    fixed = (("beta", choice.value),)
    second = Axis(method, "alpha", tuple(alphas), fixed)
    options["baseline"] = False  # the first stage has it
    return run_sweep(config, [second], out, **options)


def _without_alpha(config: StudyConfig, spec: MethodSpec, betas) -> Axis:
    """Beta of the row that is `spec` without alpha, else of `spec` with alpha at 0."""
    changes: dict[str, Any] = {"alpha": 0.0, "beta": 0.0}
    if hasattr(spec.method, "alpha_ramp"):
        changes["alpha_ramp"] = Ramp()
    plain = dataclasses.replace(spec.method, **changes)
    for row in config.methods:
        if type(row.method) is not type(plain):
            continue
        uncoupled: dict[str, Any] = {"beta": 0.0}
        same = dataclasses.replace(row.method, **uncoupled) == plain
        if same and dataclasses.replace(row, **_what_it_is(spec)) == spec:
            return Axis(row.name, "beta", tuple(betas))
    return Axis(spec.name, "beta", tuple(betas), (("alpha", 0.0),))


def _what_it_is(spec: MethodSpec) -> dict[str, Any]:
    """The fields in which two rows of equal training may differ."""
    return {
        field: getattr(spec, field) for field in ("name", "label", "equation", "method")
    }
