"""`--list`: all that has a name on the command line; and `churn-jax equations`."""

import dataclasses
import inspect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from churn_jax.command.options import OWN, flat
from churn_jax.registry import Registry, dotted_name, module_of_file


def print_list(options: Any) -> int:
    """Prints all there is, the rows of a preset or the studies of a file; returns 0."""
    name = options.preset
    if name.endswith(".py"):
        lines = {}
        for study, made in studies_in(name).items():
            try:
                lines[study] = made().title
            except Exception as error:  # of one study; the others are listed
                lines[study] = f"{type(error).__name__}: {error}"
        if not lines:
            raise ValueError(f"{name}: no function is declared NAME() -> StudyConfig")
    elif name:
        from churn_jax.studies.own_data import unknown
        from churn_jax.studies.presets import as_row, preset

        config = unknown() if name == OWN else preset(name)
        rows = (*config.methods, *map(as_row, flat(options.method)))
        config = dataclasses.replace(config, methods=rows)  # refuses what cannot be
        lines = {row.name: row.label for row in config.methods}
    else:
        print("\n".join(_everything()))
        return 0
    print("\n".join(_table(lines, "")))
    return 0


def studies_in(file: str) -> dict[str, Any]:
    """A file's public functions that are annotated as making a study, by name."""
    from churn_jax.studies import StudyConfig

    module = module_of_file(file)
    return {
        f"{file}:{name}": made
        for name, made in vars(module).items()
        if inspect.isfunction(made)
        and made.__module__ == module.__name__
        and not name.startswith("_")
        and made.__annotations__ == {"return": StudyConfig}
    }


def _everything() -> Iterator[str]:
    from churn_jax.configuration.training import OPTIMIZERS
    from churn_jax.methods.base import METHODS
    from churn_jax.models.names import MODELS, NETWORKS
    from churn_jax.studies.presets import PRESETS
    from churn_jax.training.loggers import LOGGERS

    def others(kind: Registry, known: Mapping[str, str]) -> dict[str, str]:
        # Without JAX, which those of the package would import.
        return dict(described(kind, [name for name in kind if name not in known]))

    rules = {"sgd": "with momentum", "adam": "Adam, AdamW", "adagrad": "AdaGrad"}
    parts = {
        "Studies: churn-jax study NAME (small: NAME:tiny; its rows: NAME --list)": {
            **{name: PRESETS[name]().title for name in PRESETS},
            OWN: "a recipe for your own data, their kind and size (--data)",
        },
        "Methods: --method NAME adds a row to a study, unless it needs a teacher": dict(
            described(METHODS, METHODS)
        ),
        "Networks: --model NAME": {**NETWORKS, **others(MODELS, NETWORKS)},
        "Optimisers: --optimizer NAME": {**rules, **others(OPTIMIZERS, rules)},
        "Loggers: --log NAME": dict(described(LOGGERS, LOGGERS)),
    }
    for title, lines in parts.items():
        yield from (title, "", *_table(lines), "")
    yield "Of the papers: experiments/PAPER/presets.py:NAME (the file --list)."
    yield "Also package.module:name or FILE.py:name (docs/how_to/own_method.md)."


def _table(lines: Mapping[str, str], indent: str = "    ") -> list[str]:
    width = max(map(len, lines), default=0)
    return [f"{indent}{name:{width}}  {line}" for name, line in lines.items()]


def described(kind: Registry, names: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Names with the first line of what the value says about itself."""
    for name in names:
        value = getattr(kind[name], "func", kind[name])
        value = value if hasattr(value, "__name__") else type(value)
        said = (inspect.getdoc(value) or "").partition("\n")[0]
        if said.startswith(f"{value.__name__}("):  # what a dataclass writes by itself
            said = ""
        yield name, said or dotted_name(value)


def equations(argv: Sequence[str]) -> int:
    """Prints every equation of the papers with its function, file and line."""
    from churn_jax.equations import print_equations

    if argv and argv[0] not in ("-h", "--help"):
        raise ValueError(f"equations takes no words; got {argv[0]}")
    print("usage: churn-jax equations") if argv else print_equations()
    return 0
