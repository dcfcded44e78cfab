"""`churn-jax compare OLD NEW`: what an update changes, and whether it may."""

import dataclasses
import os
import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from churn_jax.command.compare_options import DESCRIPTION, Arguments, Gates, Reading
from churn_jax.command.options import read_options
from churn_jax.comparison.display import CompareResult, VersionsResult
from churn_jax.comparison.gates import closest
from churn_jax.comparison.reading.contents import ENDINGS
from churn_jax.documents import print_document
from churn_jax.escaping import printable
from churn_jax.predictions import replace_file

__all__ = ["compare"]

_COLUMNS = ("id_column", "label_column", "prediction_column")
_OF_BOTH = ("kind", "class_map", "on_missing", *_COLUMNS)
_OF_TWO = ("old_kind", "new_kind")
_READ = ("old", "new", "labels", "slices", "ids")
_WRITTEN = ("html", "json", "markdown")


def compare(argv: Sequence[str]) -> int:
    """Compares, prints, writes the files asked for; returns the exit code."""
    _check_options(argv)
    arguments = read_options(
        Arguments,
        _negative_limits(argv),
        prog="churn-jax compare",
        description=DESCRIPTION,
    )
    _check_outputs(arguments)
    found = _versions if arguments.new is None else _two
    with Console(stderr=True).status("Reading and comparing"):
        result = found(arguments)
    print_document(result.terminal())
    written = []
    if arguments.html:
        command = shlex.join(["churn-jax", "compare", *argv])
        written.append(result.save_html(arguments.html, command=command))
    if arguments.json:
        written.append(result.save_json(arguments.json))
    if arguments.markdown:
        written.append(_write_markdown(result, arguments.markdown))
    if written:
        print(f"\nWritten: {printable(', '.join(map(str, written)))}")
    return 0 if result.passed else 1


def _check_outputs(arguments: Arguments) -> None:
    """Refuses, before the work, to write over what is read, or twice to one file."""
    read = [getattr(arguments, name) for name in _READ]
    read += [arguments.gate.gates, arguments.reading.class_map]
    # `Path.resolve` raises for a loop of links; opening the file then says so.
    taken = {
        os.path.realpath(path): "what is read" for path in read if path is not None
    }
    for name in _WRITTEN:
        path = getattr(arguments, name)
        if path is None:
            continue
        if path.exists() and not path.is_file():
            what = "a folder" if path.is_dir() else "no ordinary file"
            raise ValueError(f"--{name}: {path} is {what}; name a file")
        if path.name.lower().endswith(ENDINGS):
            raise ValueError(
                f"--{name}: {path} is called like predictions; name it .{name}"
            )
        if os.path.realpath(path) in taken:
            what = taken[os.path.realpath(path)]
            raise ValueError(f"--{name}: {path} would write over {what}; name another")
        taken[os.path.realpath(path)] = f"the file of --{name}"


def _check_options(argv: Sequence[str]) -> None:
    """Names an unknown option, which would else take a file's place."""
    classes = (Arguments, Gates, Reading)
    fields = {field.name for of in classes for field in dataclasses.fields(of)}
    fields -= {"gate", "reading"}  # whose own fields are options
    known = [f"--{name.replace('_', '-')}" for name in ("help", *fields)]
    for word in argv:
        name = word.partition("=")[0]
        if name.startswith("--") and name.replace("_", "-") not in known:
            hint = closest(name, known) or "churn-jax compare -h lists them"
            raise ValueError(f"unknown option {name}; {hint}")


def _negative_limits(argv: Sequence[str]) -> list[str]:
    """Joins `--option -0.5%` with `=`, else -0.5% would be taken for an option."""
    joined: list[str] = []
    for word in argv:
        if re.fullmatch(r"-\.?\d.*", word) and joined and joined[-1].startswith("--"):
            joined[-1] += f"={word}"
        else:
            joined.append(word)
    return joined


def _shared(arguments: Arguments) -> dict[str, Any]:
    """What goes for two versions and for a folder of them."""
    names = ("labels", "slices", "ids", "regressions", "level", "resamples", "seed")
    found = {name: getattr(arguments, name) for name in names}
    found |= {name: getattr(arguments.reading, name) for name in _OF_BOTH}
    return found | {"gates": arguments.gate.read()}


def _write_markdown(result: CompareResult | VersionsResult, path: Path) -> Path:
    with replace_file(path) as file:
        file.write(result.markdown().encode())
    return path


def _two(arguments: Arguments) -> CompareResult:
    from churn_jax.comparison.compare import compare as compare_two

    if arguments.reading.order:
        raise ValueError("--order is for a folder of versions; here are OLD and NEW")
    reading = vars(arguments.reading)
    only = {name: reading[name] for name in _OF_TWO if reading[name] is not None}
    return compare_two(arguments.old, arguments.new, **_shared(arguments), **only)


def _versions(arguments: Arguments) -> VersionsResult:
    from churn_jax.comparison.versions import compare_versions

    if not arguments.old.is_dir():
        raise ValueError(
            f"{arguments.old}: NEW is missing; name two versions, or a folder of them"
        )
    for name in _OF_TWO:
        if getattr(arguments.reading, name) is not None:
            option = f"--{name.replace('_', '-')}"
            raise ValueError(f"{option} is for OLD and NEW, not for a folder")
    order = arguments.reading.order or None
    return compare_versions(arguments.old, **_shared(arguments), order=order)
