"""A preset's row on a topology and a mesh: built, compiled and looked at."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from churn_jax.models.backend import compiling_for
from churn_jax.planning.chips import Slice, devices_of
from churn_jax.planning.datasets import row_sizes
from churn_jax.planning.estimate import Plan, estimate
from churn_jax.planning.rules import check_study
from churn_jax.planning.steps import study_step, without_weights
from churn_jax.studies.config import StudyConfig
from churn_jax.studies.cost import example_flops
from churn_jax.training.examples import example_of
from churn_jax.training.partition import MeshShape

__all__ = ["default_row", "plan"]


def default_row(config: Any) -> str:
    """The row that asks for the most networks, its own and those that teach it.

    Of several the last one, which in our presets is the method that a study is about.

    Args:
        config: a `StudyConfig` or a `StreamStudyConfig`.
    """

    def networks(spec: Any) -> int:
        count = spec.method.members
        for name in getattr(spec, "tutors", ()):
            count += config.spec(name).method.members
        return count

    most = max(map(networks, config.methods))
    return [spec.name for spec in config.methods if networks(spec) == most][-1]


def plan(
    config: Any,
    row: str,
    part: Slice,
    mesh: MeshShape | None = None,
    *,
    devices: Sequence[Any] | None = None,
) -> Plan:
    """Compiles one row's training step for a slice and reads what the compiler says.

    Args:
        config: a `StudyConfig` or a `StreamStudyConfig`.
        row: its name.
        part: the slice of chips.
        mesh: how its devices are used; None is the study's.
        devices: others than the slice's, for tests.

    Raises:
        ValueError: no such row or slice, or the mesh does not fit.
        NoCompilerError: libtpu is not installed.
    """
    if mesh is not None:
        train = dataclasses.replace(config.train, mesh=mesh)
        config = dataclasses.replace(config, train=train)
    shape: MeshShape = config.train.mesh
    found = devices_of(part) if devices is None else devices
    if shape.size > len(found):
        raise ValueError(
            f"mesh replica={shape.replica},member={shape.member},data={shape.data} "
            f"needs {shape.size} devices; {part.name} has {len(found)}"
        )
    with compiling_for(found[0].platform):
        if isinstance(config, StudyConfig):
            step = study_step(config, row, found)
            useful = _useful(without_weights(config), row)
            return estimate(step, part, check_study, preset=config.name, useful=useful)
        from churn_jax.planning.streams import check_stream, stream_step

        step = stream_step(config, row, found)
        return estimate(step, part, check_stream, preset=config.name)


def _useful(config: StudyConfig, row: str) -> float:
    """Operations of an update of all replicas."""
    spec = config.spec(row)
    sizes, train = row_sizes(config.data, spec), spec.config(config.train)
    example = example_of(sizes.shape, tokens=sizes.tokens)
    each = example_flops(config, spec, example, sizes.classes)
    return train.replicas * train.batch_size * each
