"""A preset's row on a topology and a mesh: built, compiled and looked at."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from churn_jax.configuration.study import StudyConfig
from churn_jax.configuration.training import MeshShape
from churn_jax.models.layers import compiling_for
from churn_jax.planning.chips import Slice, devices_of
from churn_jax.planning.datasets import row_sizes
from churn_jax.planning.estimate import Plan, estimate
from churn_jax.planning.meshes import mesh_name
from churn_jax.planning.rules import check_study
from churn_jax.planning.steps import study_step, without_weights
from churn_jax.studies.cost import example_flops
from churn_jax.training.examples import example_of

__all__ = ["check_mesh", "default_row", "plan", "useful_flops"]


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


def check_mesh(mesh: MeshShape, part: Slice) -> None:
    """Refuses a mesh of more devices than a slice has.

    Args:
        mesh: devices along every axis.
        part: the slice.

    Raises:
        ValueError: there are fewer.
    """
    if mesh.size > part.devices:
        raise ValueError(
            f"mesh {mesh_name(mesh)} needs {mesh.size} devices; {part.name} has "
            f"{part.devices}"
        )


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
    check_mesh(config.train.mesh, part)
    found = devices_of(part) if devices is None else devices
    with compiling_for(found[0].platform):
        if isinstance(config, StudyConfig):
            step = study_step(config, row, found)
            useful = useful_flops(without_weights(config), row)
            return estimate(step, part, check_study, preset=config.name, useful=useful)
        from churn_jax.planning.streams import check_stream, stream_step

        step = stream_step(config, row, found)
        return estimate(step, part, check_stream, preset=config.name)


def useful_flops(config: StudyConfig, row: str) -> float:
    """Operations of an update of all replicas, as `example_flops` counts them."""
    spec = config.spec(row)
    sizes, train = row_sizes(config.data, spec), spec.config(config.train)
    example = example_of(sizes.shape, tokens=sizes.tokens)
    each = example_flops(config, spec, example, sizes.classes)
    return train.replicas * train.batch_size * each
