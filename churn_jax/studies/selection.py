"""The paper's way to its coefficients: beta first, then alpha at the best beta."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from churn_jax.configuration.rows import MethodSpec
from churn_jax.configuration.study import StudyConfig
from churn_jax.methods.base import Ramp
from churn_jax.reports.sweep import SweepResult
from churn_jax.studies.folder import StudyError
from churn_jax.studies.grid import Axis
from churn_jax.studies.sweep import run_sweep

__all__ = ["run_selection"]


def run_selection(
    config: StudyConfig,
    method: str,
    out: Path,
    *,
    betas: Sequence[float] = (),
    alphas: Sequence[float] = (),
    criterion: str = "churn",
    **options,
) -> SweepResult:
    """The paper's selection: beta first, then alpha at the best beta.

    A method with one of the two gets one stage. For the combined objective the first
    stage is the same method with alpha 0, which is the study's Co-distill SKL where
    that has the same structure.

    Args:
        config: the study.
        method: name of a row with a coefficient `beta` or `alpha`.
        out: folder of the sweep; both stages live in it.
        betas: values of beta; empty takes 1/4 to 4 times the preset's.
        alphas: values of alpha, likewise.
        criterion: see `run_sweep`; of both stages.
        **options: as for `run_sweep`.

    Returns:
        The `SweepResult` of all stages.

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
    choice = first.choice(axis.name)
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
