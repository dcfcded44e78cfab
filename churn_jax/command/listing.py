"""`--list`: all that has a name on the command line, one a line, by paper."""

import inspect
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from churn_jax.command.options import OWN, SHORT_FORMS, method_rows, written_out
from churn_jax.command.study_file import with_file
from churn_jax.registry import Registry, dotted_name, module_of_file

_PAPERS = {
    "reproducibility": "On the Reproducibility of Neural Network Predictions "
    "(Bhojanapalli et al., 2021)",
    "anti-distillation": "Anti-Distillation: Improving Reproducibility of Deep "
    "Networks (Shamir and Coviello, 2020)",
    "diversity": "Diversity Matters When Learning From Ensembles (Nam et al., 2021)",
    "elodi": "ELODI: Ensemble Logit Difference Inhibition for Positive-Congruent "
    "Training (Zhao et al., 2023)",
    "": "Your own, and of installed packages",
}
_TAG = re.compile(r"^\s*\[([a-z-]+)\] ", re.M)  # of a line of References


def print_list(command: str, argv: Sequence[str]) -> int:
    """Prints all there is, the rows of presets or the studies of a file; returns 0."""
    words, _ = with_file([word for word in argv if word != "--list"], SHORT_FORMS)
    names = _values(words)
    if names and names[0].endswith(".py"):
        found = {name: config.title for name, config in studies_in(names[0]).items()}
        print("\n".join(_table(found)))
    elif names:
        rows = [row for name in names for row in rows_of(command, name)]
        words = written_out(words)
        if "--method" in words:
            rows += method_rows(_values(words[words.index("--method") + 1 :]))
        print("\n".join(_table({row.name: row.label for row in rows})))
    else:
        print("\n".join(_everything()))
    return 0


def _values(words: Sequence[str]) -> list[str]:
    """The words before the next option."""
    return list(itertools.takewhile(lambda word: not word.startswith("-"), words))


def rows_of(command: str, name: str) -> Sequence[Any]:
    """The rows of a preset, as a command names it.

    Raises:
        ValueError: there is no such preset.
    """
    from churn_jax.studies.presets import preset
    from churn_jax.studies.streams import is_stream, stream_preset

    if command == "stream" or is_stream(name):
        return stream_preset(name).methods
    if name == OWN:
        from churn_jax.studies.own_data import unknown

        return unknown().methods
    return preset(name).methods


def studies_in(file: str) -> dict[str, Any]:
    """The studies and streams that a Python file makes, by `FILE.py:name`.

    They are those of its own public functions whose annotation says so.
    """
    from churn_jax.studies import StudyConfig
    from churn_jax.studies.streams import StreamStudyConfig

    module = module_of_file(file)
    return {
        f"{file}:{name}": made()
        for name, made in vars(module).items()
        if inspect.isfunction(made)
        and made.__module__ == module.__name__
        and not name.startswith("_")
        and made.__annotations__
        in ({"return": StudyConfig}, {"return": StreamStudyConfig})
    }


def _everything() -> Iterator[str]:
    from churn_jax.configuration.training import OPTIMIZERS
    from churn_jax.methods.base import METHODS
    from churn_jax.models.names import MODELS, NETWORKS
    from churn_jax.studies.presets import PRESETS
    from churn_jax.studies.streams import STREAM_PRESETS
    from churn_jax.training.loggers import LOGGERS

    yield "Studies: churn-jax study NAME (small: NAME:tiny; its rows: NAME --list)"
    yield ""
    own = {OWN: "a recipe for your own data, their kind and size (--data)"}
    titles = {name: PRESETS[name]().title for name in PRESETS}
    yield from _table(titles | own, "    ")
    yield "  Of the papers: experiments/PAPER/presets.py:NAME (the file --list)"
    yield from ("", "Streams of clicks: churn-jax stream NAME", "")
    yield from _table({k: make().title for k, make in STREAM_PRESETS.items()}, "    ")
    yield from (
        "",
        "Methods: --method NAME adds a row to a study, unless it needs a teacher",
    )
    lines = dict(described(METHODS, METHODS))
    for paper in _PAPERS:
        found = {k: v for k, v in lines.items() if _paper(METHODS[k]) == paper}
        yield from _group(paper, found)
    yield from ("", "Networks: --model NAME", "")
    own = [name for name in MODELS if name not in NETWORKS]
    yield from _table({**NETWORKS, **dict(described(MODELS, own))}, "    ")
    yield from ("", "Optimisers: --optimizer NAME", "")
    rules = {"sgd": "with momentum", "adam": "Adam, AdamW", "adagrad": "AdaGrad"}
    own = [name for name in OPTIMIZERS if name not in rules]
    yield from _table({**rules, **dict(described(OPTIMIZERS, own))}, "    ")
    yield from ("", "Loggers: --log NAME", "")
    yield from _table(dict(described(LOGGERS, LOGGERS)), "    ")
    yield ""
    yield "Also package.module:name or FILE.py:name (docs/how_to/own_method.md)."


def _group(paper: str, lines: Mapping[str, str]) -> Iterator[str]:
    if lines:
        yield from ("", f"  {_PAPERS[paper]}")
        yield from _table(lines, "    ")


def _table(lines: Mapping[str, str], indent: str = "") -> list[str]:
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


def _paper(method: type) -> str:
    tag = _TAG.search(vars(method).get("__doc__") or "")
    return tag[1] if tag and tag[1] in _PAPERS else ""
