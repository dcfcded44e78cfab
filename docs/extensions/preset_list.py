"""The presets, and all that has a name on the command line, as Markdown."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from churn_jax.command.listing import described, studies_in
from churn_jax.configuration.training import OPTIMIZERS
from churn_jax.methods.base import METHODS
from churn_jax.models.names import MODELS, NETWORKS
from churn_jax.studies.presets import PRESETS
from churn_jax.training.loggers import LOGGERS

ROOT = Path(__file__).parents[2]
FILES = ("presets.py", "small.py", "clicks.py")  # of a paper's folder
SHOWN_ROWS = 12


def of_paper(paper: str) -> dict[str, Any]:
    """The studies in the folder of a paper, by name; all if it is empty."""
    with contextlib.chdir(ROOT):
        files = Path("experiments").glob(f"{paper or '*'}/*.py")
        found = sorted(str(path) for path in files if path.name in FILES)
        return {k: make() for file in found for k, make in studies_in(file).items()}


def built_in() -> dict[str, Any]:
    """The studies of the package, by name."""
    return {name: PRESETS[name]() for name in PRESETS}


def studies(paper: str) -> str:
    """The studies of a paper, or those of the package."""
    found = of_paper(paper) if paper else built_in()
    return "\n".join(_entry(*item) for item in found.items())


def names(kind: str) -> str:
    """A table of the names that `--method`, `--model`, ... take."""
    registries = {"method": METHODS, "optimizer": OPTIMIZERS, "log": LOGGERS}
    if kind == "model":
        rows = dict(NETWORKS)
    else:
        rows = dict(described(registries[kind], registries[kind]))
    lines = [f"| `{name}` | {line} |" for name, line in rows.items()]
    return "\n".join([f"| `--{kind}` | What it is |", "|---|---|", *lines])


def _of_study(config: Any) -> list[str]:
    train, data = config.train, config.data
    size = f", {data.train_size:,} training examples" if data.train_size else ""
    networks = dict.fromkeys(
        getattr(found, "name", found)
        for row in config.methods
        for found in ([m for m, _ in row.models] or [row.model or config.model])
    )
    shown = ", ".join(f"`{network}`" for network in networks or [config.model.name])
    return [
        f"data `{data.name}`{size}",
        f"{'network' if len(networks) < 2 else 'networks'} {shown}",
        _count(train.replicas, "run"),
        _count(train.epochs, "epoch")
        if train.one_pass is None
        else f"one pass in windows of {train.one_pass.window:,}",
    ]


def _entry(name: str, config: Any) -> str:
    facts = _of_study(config)
    rows = [f"`{row.name}`" for row in config.methods]
    more = f" and {len(rows) - SHOWN_ROWS} more" if len(rows) > SHOWN_ROWS else ""
    lines = [f"{config.title}.{_published(config)}", f"{'; '.join(facts)}."]
    lines += [f"{_count(len(rows), 'row')}: {', '.join(rows[:SHOWN_ROWS])}{more}."]
    return f"[`{name}`]{{#preset-{config.name}}}\n: {' '.join(map(_upper, lines))}\n"


def _upper(text: str) -> str:
    return text[:1].upper() + text[1:]


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _published(config: Any) -> str:
    """Which printed numbers the report shows next to the study's."""
    if not config.published:
        return ""
    table, *data = config.published.rpartition(":")[2].split("/")
    place = table.replace("table", "Table ").replace("figure", "Figure ")
    of = f" ({data[0]})" if data else ""
    return f" Shown next to the paper's {place}{of}."


def every_name() -> Iterator[str]:
    """All that a reader may look for on the page."""
    yield from (*built_in(), *of_paper(""))
    yield from (*METHODS, *MODELS, *OPTIMIZERS, *LOGGERS)
