"""What the next word of a command line may be, from the words before it."""

import typing
from collections.abc import Container, Mapping, Sequence
from typing import Any

from churn_compare.option_list import ASK, Asked, Option, options_of
from churn_jax.command import COMMANDS, command_named
from churn_jax.command.completion import SHELLS
from churn_jax.command.listing import rows_of
from churn_jax.command.options import LISTS, OWN, SHORT_FORMS
from churn_jax.command.stream import SHORT_FORMS as STREAM_SHORT_FORMS
from churn_jax.command.study_file import with_file
from churn_jax.configuration.rows import coefficients
from churn_jax.models.names import MODELS, NETWORKS

_PRESETS = ("study", "sweep", "stream", "plan")  # commands that take one first


def candidates(words: Sequence[str], current: str = "") -> dict[str, str]:
    """What the word `current` after `words` may become, with a line on each.

    Empty where nothing is known; shells then offer files.

    Example:
        >>> sorted(candidates(["study", "digits", "--only"]))[:2]
        ['baseline', 'codistill_ce']
    """
    command, *rest = words
    if command == "completion" and not rest:
        return dict.fromkeys(SHELLS, "")
    if command not in COMMANDS or command in ("completion", "equations"):
        return {}
    if not current.startswith("-"):
        if command in _PRESETS and not rest:
            return _presets(command, current)
        given = [word for word in rest if word.startswith("-")]
        if given and (given[-1] == rest[-1] or given[-1] in LISTS):
            return _values(command, _preset(rest), given[-1])
        if command == "sweep" and not given:
            return _coefficients(command, rest[0])
        if command not in _PRESETS:
            return {}
    return {word: option.help for word, option in _options(command, rest[:1]).items()}


def _preset(words: Sequence[str]) -> str:
    """The preset that is named, or that `--config FILE` names."""
    try:
        return with_file(words, SHORT_FORMS)[0][0]
    except ValueError:
        return words[0]


def _presets(command: str, current: str) -> dict[str, str]:
    from churn_jax.studies.presets import PRESETS
    from churn_jax.studies.streams.presets import FORMS, STREAM_PRESETS

    found: dict[str, Any] = {}
    if command != "stream":
        found |= {name: PRESETS[name]().title for name in PRESETS}
        found[OWN] = "your own data (--data)"
    if command in ("stream", "plan"):
        found |= {name: make().title for name, make in STREAM_PRESETS.items()}
    base, colon, _ = current.partition(":")
    if colon and base in found:
        forms = ("tiny",) if base in PRESETS else FORMS
        return {f"{base}:{form}": found[base] for form in forms}
    return found


def _values(command: str, preset: str, option: str) -> dict[str, str]:
    """What an option may be set to; empty for any text, number or file."""
    if option in ("--only", "--row"):
        return {row.name: row.label for row in _rows(command, preset)}
    if option == "--set":
        return {f"{k}=": line for k, line in _coefficients(command, preset).items()}
    if registry := _registry(option):
        return {name: NETWORKS.get(name, "") for name in registry}
    options = _options(command, [preset])
    if option not in options or options[option].kind is bool:
        # A flag takes no value, so the next word is another option.
        return {word: found.help for word, found in options.items()}
    kind = options[option].kind
    parts = [part for part in (kind, *typing.get_args(kind))]
    literals = [p for p in parts if typing.get_origin(p) is typing.Literal]
    return {str(value): "" for p in literals for value in typing.get_args(p)}


def _registry(option: str) -> Mapping[str, Any]:
    from churn_jax.configuration.training import OPTIMIZERS
    from churn_jax.methods.base import METHODS
    from churn_jax.training.loggers import LOGGERS

    known = {
        "--method": METHODS,
        "--model.name": MODELS,
        "--train.optimizer.name": OPTIMIZERS,
        "--log": LOGGERS,
    }
    return known.get(SHORT_FORMS.get(option, option), {})


def _rows(command: str, preset: str) -> Sequence[Any]:
    try:
        return rows_of(command, preset)
    except ValueError:  # of a name that is not finished
        return ()


def _coefficients(command: str, preset: str) -> dict[str, str]:
    return {
        f"{row.name}.{name}": row.label
        for row in _rows(command, preset)
        for name in coefficients(row.method)
    }


def arguments_of(command: str, *named: str) -> type | None:
    """The dataclass of a command's options; None if it declares none.

    Raises:
        ValueError: there is no preset of the name.
    """
    try:
        command_named(command)([*named, "-h", ASK])
    except Asked as asked:
        return asked.cls
    return None


def short_forms_of(long: Container[str]) -> dict[str, str]:
    """Short forms of the options that are there, to the long ones."""
    forms = [*SHORT_FORMS.items(), *STREAM_SHORT_FORMS.items()]
    return {word: form for word, form in forms if form in long}


def _options(command: str, named: Sequence[str]) -> dict[str, Option]:
    """The options of a command by their words, short forms first."""
    named = [w for w in named if command in _PRESETS and not w.startswith("-")]
    try:
        cls = arguments_of(command, *named)
    except ValueError:  # an unknown preset
        return {}
    if cls is None:
        return {}
    declared = options_of(cls).values()
    long = {option.word: option for option in declared}
    short = {word: long[form] for word, form in short_forms_of(long).items()}
    if "--train.mesh.replica" in long:
        short["--mesh"] = Option(
            "", "", str, "", "devices per axis, as replica=4,data=2"
        )
    return short | {_word(option): option for option in declared}


def _word(option: Option) -> str:
    """The option's word; of a flag the one that changes it."""
    if option.kind is bool and option.default is True:
        table, dot, name = option.word.rpartition(".")
        return f"{table}.no-{name}" if dot else f"--no-{name.removeprefix('--')}"
    return option.word
