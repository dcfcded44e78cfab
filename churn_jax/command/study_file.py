"""A command's options in a TOML file: `--config` reads it, `--print-config` writes it.

The file says what the options say: a table for every dot of their names, a list where
an option takes several values, and the text "None" where they take None.
"""

import dataclasses
import json
import re
import textwrap
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from pathlib import Path
from typing import Any

from churn_compare.option_list import Option, options_of
from churn_compare.suggestions import did_you_mean
from churn_jax.configuration.codec import from_json, to_json
from churn_jax.configuration.rows import coefficients
from churn_jax.configuration.training import MeshShape

# These are for one launch: in a file, `fresh` would start again every time.
_LAUNCH_ONLY = ("config", "print_config", "fresh", "dry_run", "yes")
_WIDTH = 88


@dataclasses.dataclass(frozen=True)
class FileOptions:
    """Options of a command whose options may stand in a file.

    Attributes:
        config: TOML file with options, as --print-config writes it; options that are
            given in addition win.
        print_config: only write all options, resolved, as a file for --config.
    """

    config: Path | None = None
    print_config: bool = False


@dataclasses.dataclass(frozen=True)
class StudyFile:
    """The options in a file.

    Attributes:
        path: of the file, for messages.
        preset: the preset that it names; empty if it names none.
        axes: what a sweep sweeps.
        values: the options' values by the path of their field.
        known: short names of options, for messages.
    """

    path: str
    preset: str
    axes: tuple[str, ...]
    values: Mapping[str, Any]
    known: tuple[str, ...]

    @classmethod
    def load(cls, path: str, short_forms: Mapping[str, str]) -> "StudyFile":
        """Reads a file.

        Raises:
            ValueError: it cannot be read, or says something twice.
        """
        try:
            text = Path(path).expanduser().read_text(encoding="utf-8-sig")
            table = tomllib.loads(text)
        except OSError as error:
            raise ValueError(f"--config {path}: {error.strerror}") from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise ValueError(f"{path} is not valid TOML: {error}") from None
        short = {_field(short): _field(long) for short, long in short_forms.items()}
        try:
            preset = from_json(str, table.pop("preset", ""), "preset")
            axes = from_json(tuple[str, ...], table.pop("axes", []), "axes")
            values: dict[str, Any] = {}
            if "set" in table:
                values["set"] = _assignments(table.pop("set"))
            for name, value in _long_forms(_leaves(table), short):
                if name in values:
                    raise ValueError(f"{name} is given twice")
                values[name] = value
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error
        return cls(path, preset, axes, values, (*short, "preset", "axes", "mesh"))

    def without(self, names: Sequence[str]) -> "StudyFile":
        """The file without some options and the tables of these names."""
        kept = {k: v for k, v in self.values.items() if k.split(".")[0] not in names}
        return dataclasses.replace(self, values=kept)

    def check(self, cls: type) -> None:
        """Refuses what is no option of a command, and values of other types.

        Raises:
            ValueError: with the file, the option, and the closest names.
        """
        options = options_of(cls)
        for path, value in self.values.items():
            if path in _LAUNCH_ONLY:
                word = "--" + path.replace("_", "-")
                said = f"{word} is for one launch; give it on the command line"
            elif path in options:
                said = _misfit(options[path], value)
            elif inside := [name for name in options if name.startswith(f"{path}.")]:
                said = f"{path} is a table; write {inside[0]} = ... or [{path}]"
            else:
                hint = did_you_mean(path, (*options, *self.known), 1, cutoff=0.6)
                said = f"there is no option {path}{hint}"
            if said:
                raise ValueError(f"{self.path}: {said}")

    def words(self, given: Sequence[str]) -> list[str]:
        """The options as words in front of those `given`, which win."""
        words: list[str] = []
        for path, value in self.values.items():
            # --set adds to the file's: later assignments win one by one.
            if path in ("only", "method", "log") and f"--{path}" in given:
                continue
            table, dot, name = path.replace("_", "-").rpartition(".")
            if isinstance(value, bool):
                words.append(f"--{table}{dot}{'' if value else 'no-'}{name}")
            elif isinstance(value, list):
                words += [f"--{table}{dot}{name}", *map(str, value)]
            else:
                words.append(f"--{table}{dot}{name}={value}")
        return words


def with_file(
    argv: Sequence[str],
    short_forms: Mapping[str, str],
    ignored: Sequence[str] = (),
) -> tuple[list[str], StudyFile | None]:
    """A command's words with those of `--config FILE`, and the file.

    Args:
        argv: the preset, what a sweep sweeps, and options.
        short_forms: of options.
        ignored: options and tables of other commands that a file may have, too.

    Raises:
        ValueError: the file cannot be read, or names no preset or another one.
    """
    argv = list(argv)
    at = [i for i, w in enumerate(argv) if w.partition("=")[0] == "--config"]
    if not at:
        return argv, None
    path = argv[at[-1]].partition("=")[2] or "".join(argv[at[-1] + 1 : at[-1] + 2])
    if not path or path.startswith("--"):
        raise ValueError("--config needs a TOML file; --print-config writes one")
    file = StudyFile.load(path, short_forms).without(ignored)
    first = next(i for i, word in enumerate(argv) if word.startswith("-"))
    named, rest = argv[:first], argv[first:]
    if not named and not file.preset:
        raise ValueError(f'{path} names no preset; write preset = "digits" in it')
    if named and file.preset not in ("", named[0]):
        raise ValueError(
            f"{path} names the preset {file.preset}, and the command {named[0]}; name "
            "one of them"
        )
    named = named or [file.preset]
    axes = () if named[1:] else file.axes
    return [*named, *axes, *file.words(rest), *rest], file


def print_if_asked(
    name: str, options: Any, config: Any, axes: Sequence[str] = ()
) -> None:
    """With `--print-config`, prints the file and exits as -h does."""
    if not options.print_config:
        return
    for row in getattr(options, "only", ()):
        config.spec(row)
    print("\n".join(_lines(name, options, config, axes)))
    raise SystemExit(0)


def _lines(name: str, options: Any, config: Any, axes: Sequence[str]) -> Iterator[str]:
    """The lines of a file with all options."""
    resolved = dataclasses.replace(
        options,
        **{
            field.name: getattr(config, field.name)
            for field in dataclasses.fields(options)
            if field.name in ("data", "model", "train", "evaluation", "warm_share")
        },
    )
    yield from _comment("Options by their names; what is left out is the preset's.")
    yield f"preset = {_toml(name)}"
    if axes:
        yield from _comment("what to sweep.")
        yield f"axes = {_toml(list(axes))}"
    every = options_of(type(options))
    coefficients_help = every.pop("set").help
    tables: dict[str, list[str]] = {"": []}
    for path, option in every.items():
        if path not in _LAUNCH_ONLY:
            lines = tables.setdefault(path.rpartition(".")[0], [])
            lines += _entry(option, attrgetter(path)(resolved))
    yield from tables.pop("")
    yield from ("", *_comment(coefficients_help), "[set]")
    for row in config.methods:
        for name, value in coefficients(row.method).items():
            yield f"{_key(row.name)}.{name} = {_toml(to_json(value))}"
    for table, lines in tables.items():
        yield from ("", f"[{table}]", *lines)


def _entry(option: Option, value: Any) -> Iterator[str]:
    yield from _comment(option.help)
    name = option.path.rpartition(".")[2]
    if value is None:  # TOML has no null
        unset = "# " if option.default is None else ""
        yield f'{unset}{name} = "None"'
        return
    found = to_json(value)
    yield f"{name} = {_toml(float(found) if option.kind is float else found)}"


def _comment(text: str) -> list[str]:
    return textwrap.wrap(
        text,
        _WIDTH,
        initial_indent="# ",
        subsequent_indent="# ",
        break_on_hyphens=False,
    )


def _toml(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, float):
        return repr(value)
    # JSON escapes what TOML does, except for one control character.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _key(name: str) -> str:
    return name if re.fullmatch(r"[\w-]+", name, re.ASCII) else _toml(name)


def _field(word: str) -> str:
    return word.removeprefix("--").replace("-", "_")


def _leaves(table: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """The values of nested tables with their dotted names."""
    for name, value in table.items():
        path = f"{above}{_field(name)}"
        if isinstance(value, dict):
            yield from _leaves(value, f"{path}.")
        else:
            yield path, value


def _long_forms(
    leaves: Iterable[tuple[str, Any]], short: Mapping[str, str]
) -> Iterator[tuple[str, Any]]:
    for path, value in leaves:
        if path == "mesh":
            for axis, size in dataclasses.asdict(MeshShape.parse(str(value))).items():
                yield f"train.mesh.{axis}", size
        else:
            yield short.get(path, path), value


def _assignments(value: Any) -> list[str]:
    """`set` as `method.coefficient=value`, from a list of these or a table."""
    if not isinstance(value, dict):
        return list(from_json(tuple[str, ...], value, "set"))
    found = []
    for method, inside in value.items():
        parts = inside if isinstance(inside, dict) else {"": inside}
        for name, number in parts.items():
            path = f"{method}.{name}".rstrip(".")
            from_json(float, number, f"set.{path}")
            found.append(f"{path}={number!r}")
    return found


def _misfit(option: Option, value: Any) -> str:
    """Why a value cannot be the option's; empty if it can."""
    if value == "None":
        value = None
    try:
        from_json(option.kind, value, option.path)
    except ValueError as error:
        return str(error)
    return ""
