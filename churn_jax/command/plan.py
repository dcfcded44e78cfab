"""`churn-jax plan PRESET --topology v5e:4x4`: what a study takes on a TPU slice."""

import dataclasses
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tyro

from churn_compare.array_files import write_file
from churn_compare.documents import Document, Text
from churn_jax.command.listing import print_list
from churn_jax.command.options import (
    OWN,
    SHORT_FORMS,
    SHORT_FORMS_HELP,
    chosen,
    preset_first,
    read_options,
    with_coefficients,
    written_out,
)
from churn_jax.command.stream import SHORT_FORMS as STREAM_SHORT_FORMS
from churn_jax.command.study_file import FileOptions, print_if_asked, with_file
from churn_jax.setting_checks import check_least
from churn_jax.training.progress import Display, Work

# What the file of a study or a stream says, and a plan does not need.
_NOT_PLANNED = ("out", "minutes", "log", "only", "launch", "evaluation", "warm_share")
_DESCRIPTION = (
    "Compiles the real training step of a preset for TPU chips that need not be there, "
    "and says whether it fits, how long a step may take, what moves between chips and "
    "whether the placement rules hold. Needs the TPU compiler (libtpu) and no network, "
    "data or device. Without --mesh the likeliest meshes are tried and one is "
    "recommended. Several topologies, as v5e:1x1,2x2,4x4, are weak scaling. Exit code "
    "1: it does not fit, or a rule is broken."
)


@dataclasses.dataclass(frozen=True)
class _Shared(FileOptions):
    """Options of every plan.

    Attributes:
        topology: chips, `v4:2x2x1`, `v5e:4x4`, `v5p:2x2x1`, `v6e:4x4` or larger;
            several, from small to large, grow the study with the slice.
        row: row of the study; default the one with the most networks.
        tries: number of meshes to compile if `--mesh` names none.
        grow: what grows with the slice, `replicas` or `batch`.
        json: write everything as JSON to this file.
        svg: write the plot of several topologies to this file.
        quiet: show no progress.
    """

    topology: str = "v5e:4x4"
    row: str = ""
    tries: int = 3
    grow: str = "replicas"
    json: Path | None = None
    svg: Path | None = None
    quiet: bool = False


def _study_arguments(config: Any):
    from churn_jax.configuration.training import TrainConfig
    from churn_jax.studies import DataConfig, ModelConfig

    @dataclasses.dataclass(frozen=True)
    class Arguments(_Shared):
        """Options of a study's plan.

        Attributes:
            method: add rows of these methods with their default coefficients: names as
                in `churn_jax.methods`, or your own as `package.module:Class`.
            set: change coefficients, for example `codistill_skl.beta=0.2`.
            data: the data set; only its sizes are used.
            model: the network.
            train: how all rows are trained, and on which mesh (`--mesh`).
        """

        method: tuple[str, ...] = ()
        set: tuple[str, ...] = ()
        data: DataConfig = config.data
        # Without this, a model's `sharing` would be a word and no options.
        model: tyro.conf.AvoidSubcommands[ModelConfig] = config.model
        train: TrainConfig = config.train

    return Arguments


def _stream_arguments(config: Any):
    from churn_jax.configuration.streams import StreamConfig
    from churn_jax.studies.streams import StreamData, TowerConfig

    @dataclasses.dataclass(frozen=True)
    class Arguments(_Shared):
        """Options of a stream's plan.

        Attributes:
            set: change coefficients, for example `correlation_1_s1.strength=2`.
            data: the stream; only the sizes of its tables are used.
            model: the click model.
            train: how all rows are trained, and on which mesh (`--mesh`).
        """

        set: tuple[str, ...] = ()
        data: StreamData = config.data
        model: TowerConfig = config.model
        train: StreamConfig = config.train

    return Arguments


def read_plan(argv: Sequence[str]) -> tuple[Any, Any, bool]:
    """`(study, options, whether a mesh is named)` from the command line."""
    from churn_jax.studies import PRESETS
    from churn_jax.studies.streams import STREAM_PRESETS, is_stream, stream_preset

    every = (*PRESETS, *STREAM_PRESETS)
    given, file = with_file(argv, SHORT_FORMS, _NOT_PLANNED)
    name, rest = preset_first("plan", given, every, f", or {OWN} with --data FILE")
    meshed = any(w.startswith(("--mesh", "--train.mesh")) for w in argv)
    prog = f"churn-jax plan {name}"
    if is_stream(name):
        if file is not None:  # with the short forms of a stream
            given, file = with_file(argv, STREAM_SHORT_FORMS, _NOT_PLANNED)
            rest = given[1:]
        config = stream_preset(name)
        options = read_options(
            _stream_arguments(config),
            written_out(rest, STREAM_SHORT_FORMS),
            prog=prog,
            description=f"{_DESCRIPTION} Short forms: "
            f"{', '.join(STREAM_SHORT_FORMS)}, --mesh replica=4,data=1.",
            file=file,
        )
        config = dataclasses.replace(
            config, data=options.data, model=options.model, train=options.train
        )
        config = with_coefficients(config, options.set)
    else:

        def read(config, words):
            return read_options(
                _study_arguments(config),
                words,
                prog=prog,
                description=f"{_DESCRIPTION} `plan --list` lists the presets; {OWN} "
                f"with --data FILE is for your own data. {SHORT_FORMS_HELP}",
                file=file,
            )

        config, options = chosen(name, written_out(rest), read)
    print_if_asked(name, options, config)
    # A file with all options has a mesh of one device, which asks for none.
    return config, options, meshed or config.train.mesh.size > 1


def _slices(topology: str):
    """The slices of `--topology`; only the first has to name the chip."""
    from churn_jax.planning import Slice

    first, *others = topology.split(",")
    found = [Slice.parse(first.strip())]
    chip = found[0].chip.name
    for name in others:
        name = name.strip()
        found.append(Slice.parse(name if ":" in name else f"{chip}:{name}"))
    sizes = [part.chips for part in found]
    if sizes != sorted(set(sizes)):
        raise ValueError(f"topologies must grow from small to large; got {topology}")
    return found


def plan(argv: Sequence[str]) -> int:
    """Prints the plan; 0 where it fits and every rule holds, else 1."""
    if "--list" in argv:
        return print_list("plan", argv)
    config, options, meshed = read_plan(argv)
    if options.row:
        config.spec(options.row)
    import jax

    from churn_jax.planning import as_text, check_compiler, default_row
    from churn_jax.planning.scaling import GROW

    jax.config.update("jax_platforms", "cpu")  # a GPU that is here is left to others

    check_least("--tries", options.tries, 1)
    slices = _slices(options.topology)
    if len(slices) > 1 and meshed:
        raise ValueError(
            "several topologies have meshes of their own, along replica or data "
            "(--grow); leave --mesh out"
        )
    if options.svg is not None and len(slices) == 1:
        raise ValueError("--svg is of several topologies, as in v5e:1x1,2x2,4x4")
    if options.grow not in GROW:
        raise ValueError(f"--grow must be one of {', '.join(GROW)}; got {options.grow}")
    for option, path in (("--json", options.json), ("--svg", options.svg)):
        _check_file(option, path)  # now, and not after minutes of compiling
    row = options.row or default_row(config)
    check_compiler()
    with Display(quiet=options.quiet, stderr=True) as shown:
        if len(slices) > 1:
            said, found, fits = _scaling(config, row, slices, options, shown)
        elif meshed:
            said, found, fits = _one(config, row, slices[0], shown)
        else:
            said, found, fits = _several(config, row, slices[0], options, shown)
    print(as_text(said))
    if (path := options.json) is not None:
        write_file(path, json.dumps(found, indent=1) + "\n")
        print(f"written: {path}", file=sys.stderr)
    return 0 if fits else 1


def _check_file(option: str, path: Path | None) -> None:
    if path is None:
        return
    if path.name in ("", "-") or path.is_dir():
        raise ValueError(f"{option} needs the name of a file; got {path}")
    if not path.parent.is_dir():
        raise ValueError(f"{option} {path}: there is no folder {path.parent}")


def _one(
    config: Any, row: str, part: Any, shown: Display
) -> tuple[Document, Any, bool]:
    """The plan, the same as JSON, and whether it fits and every rule holds."""
    from churn_jax.planning import check_mesh, plan_apart, plan_document

    mesh = config.train.mesh
    check_mesh(mesh, part)
    shown.work(Work(f"{row} for {part.name}", "compiling, which takes minutes", 0))
    found = plan_apart(config, row, part, mesh)
    return plan_document(found), found.to_json(), found.fits and found.passed


def _several(
    config: Any, row: str, part: Any, options: Any, shown: Display
) -> tuple[Document, Any, bool]:
    from churn_jax.planning import comparison_table, mesh_name, plan_document, search

    found = search(
        config,
        row,
        part,
        many=options.tries,
        on_mesh=lambda mesh, number, count: shown.work(
            Work(
                f"{row} for {part.name}",
                f"compiling mesh {mesh_name(mesh)}, which takes minutes",
                number - 1,
                count,
                "meshes",
            )
        ),
    )
    best = plan_document(found.best).blocks if found.best is not None else ()
    why = Text(f"Recommended: {found.why}.")
    blocks = [*best, comparison_table(found.plans), why]
    record = {"plans": [one.to_json() for one in found.plans], "why": found.why}
    fits = found.best is not None and found.best.passed
    return Document("", blocks=blocks), record, fits


def _scaling(
    config: Any, row: str, slices: Any, options: Any, shown: Display
) -> tuple[Document, Any, bool]:
    from churn_jax.planning import scaling, scaling_document, scaling_svg

    points = scaling(
        config,
        row,
        slices,
        grow=options.grow,
        on_slice=lambda part, number, count: shown.work(
            Work(
                row,
                f"compiling for {part.name}, which takes minutes",
                number - 1,
                count,
                "slices",
            )
        ),
    )
    head = Text(f"{config.name}, row {row}, {options.grow} grow with the chips")
    if options.svg is not None:
        write_file(options.svg, scaling_svg({f"more {options.grow}": points}))
        shown.say(f"written: {options.svg}")
    entries = [
        {
            "chips": point.chips,
            "efficiency": point.efficiency,
            "per_doubling": point.per_doubling,
            **point.plan.to_json(),
        }
        for point in points
    ]
    fits = all(point.plan.fits and point.plan.passed for point in points)
    blocks = [head, *scaling_document(points).blocks]
    return Document("", blocks=blocks), entries, fits
