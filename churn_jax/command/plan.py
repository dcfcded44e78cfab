"""`churn-jax plan PRESET --topology v5e:4x4`: what a study takes on a TPU slice."""

import dataclasses
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tyro

from churn_compare.array_files import write_file
from churn_jax.command.listing import print_list
from churn_jax.command.options import (
    OWN,
    SHORT_FORMS,
    SHORT_FORMS_HELP,
    chosen,
    preset_first,
    read_options,
    written_out,
)
from churn_jax.command.study_file import FileOptions, print_if_asked, with_file
from churn_jax.training.progress import Display, Work

# What the file of a study says, and a plan does not need.
_NOT_PLANNED = ("out", "minutes", "log", "only", "launch", "evaluation", "warm_share")
_DESCRIPTION = (
    "Compiles the real training step of a preset for TPU chips that need not be there, "
    "and says whether it fits, what moves between chips and how many cycles a step "
    "takes. Needs the TPU compiler (libtpu) and no network, data or device. Without "
    "--mesh as many devices as divide the replicas lie along replica, the others along "
    "data. Exit code 1: it does not fit, or something moves between replicas."
)


@dataclasses.dataclass(frozen=True)
class _Shared(FileOptions):
    """Options of every plan.

    Attributes:
        topology: chips, `v4:2x2x1`, `v5e:4x4`, `v5p:2x2x1`, `v6e:4x4` or larger.
        row: row of the study; default the one with the most networks.
        json: write everything as JSON to this file.
        quiet: show no progress.
    """

    topology: str = "v5e:4x4"
    row: str = ""
    json: Path | None = None
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


def read_plan(argv: Sequence[str]) -> tuple[Any, Any, bool]:
    """`(study, options, whether a mesh is named)` from the command line."""
    from churn_jax.studies import PRESETS

    given, file = with_file(argv, SHORT_FORMS, _NOT_PLANNED)
    name, rest = preset_first("plan", given, [*PRESETS], f", or {OWN} with --data FILE")

    def read(config, words):
        return read_options(
            _study_arguments(config),
            words,
            prog=f"churn-jax plan {name}",
            description=f"{_DESCRIPTION} `plan --list` lists the presets; {OWN} "
            f"with --data FILE is for your own data. {SHORT_FORMS_HELP}",
            file=file,
        )

    config, options = chosen(name, written_out(rest), read)
    print_if_asked(name, options, config)
    # A file with all options has a mesh of one device, which asks for none.
    meshed = any(word.startswith(("--mesh", "--train.mesh")) for word in argv)
    return config, options, meshed or config.train.mesh.size > 1


def plan(argv: Sequence[str]) -> int:
    """Prints the plan; 0 where it fits and replicas are apart, else 1."""
    if "--list" in argv:
        return print_list("plan", argv)
    config, options, meshed = read_plan(argv)
    if options.row:
        config.spec(options.row)
    import jax

    from churn_jax import planning

    jax.config.update("jax_platforms", "cpu")  # a GPU that is here is left to others
    part, path = planning.Slice.parse(options.topology), options.json
    if path is not None:  # refused now, and not after minutes of compiling
        if path.name in ("", "-") or path.is_dir():
            raise ValueError(f"--json needs the name of a file; got {path}")
        if not path.parent.is_dir():
            raise ValueError(f"--json {path}: there is no folder {path.parent}")
    row = options.row or planning.default_row(config)
    mesh = config.train.mesh if meshed else planning.default_mesh(config, part)
    planning.check_mesh(mesh, part)
    planning.check_compiler()
    with Display(quiet=options.quiet, stderr=True) as shown:
        shown.work(Work(f"{row} for {part.name}", "compiling, which takes minutes", 0))
        found = planning.plan_apart(config, row, part, mesh)
    print(planning.plan_text(found))
    if path is not None:
        write_file(path, json.dumps(found.to_json(), indent=1) + "\n")
        print(f"written: {path}", file=sys.stderr)
    return 0 if found.fits and found.apart else 1
