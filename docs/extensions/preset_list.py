"""The presets, and all that has a name on the command line, as Markdown."""

from collections.abc import Iterator, Sequence
from typing import Any

from churn_jax.command.listing import described
from churn_jax.configuration.training import OPTIMIZERS
from churn_jax.methods.base import METHODS
from churn_jax.models.names import MODELS, NETWORKS
from churn_jax.studies.presets import PRESETS, by_paper
from churn_jax.studies.streams import STREAM_PRESETS
from churn_jax.training.loggers import LOGGERS

SHOWN_ROWS = 12


def studies(paper: str) -> str:
    """The presets of a paper."""
    return "\n".join(_study(name) for name in by_paper()[paper])


def streams(_: str) -> str:
    """The presets of `churn-jax stream`."""
    return "\n".join(_stream(name) for name in STREAM_PRESETS)


def names(kind: str) -> str:
    """A table of the names that `--method`, `--model`, ... take."""
    registries = {"method": METHODS, "optimizer": OPTIMIZERS, "log": LOGGERS}
    if kind == "model":
        rows = dict(NETWORKS)
    else:
        rows = dict(described(registries[kind], registries[kind]))
    lines = [f"| `{name}` | {line} |" for name, line in rows.items()]
    return "\n".join([f"| `--{kind}` | What it is |", "|---|---|", *lines])


def _study(name: str) -> str:
    config = PRESETS[name]()
    train, data = config.train, config.data
    size = f", {data.train_size:,} training examples" if data.train_size else ""
    networks = dict.fromkeys(
        getattr(found, "name", found)
        for row in config.methods
        for found in ([m for m, _ in row.models] or [row.model or config.model])
    )
    shown = ", ".join(f"`{network}`" for network in networks or [config.model.name])
    facts = [
        f"data `{data.name}`{size}",
        f"{'network' if len(networks) < 2 else 'networks'} {shown}",
        _count(train.replicas, "run"),
        _count(train.epochs, "epoch"),
    ]
    return _entry(name, config, facts)


def _stream(name: str) -> str:
    config = STREAM_PRESETS[name]()
    data = config.data
    source = data.source or "a file (`--data`)"
    facts = [
        f"stream {source}" + (f", schema `{data.schema}`" if data.schema else ""),
        _count(config.train.replicas, "run"),
        f"windows of {config.train.window:,}",
    ]
    return _entry(name, config, facts)


def _entry(name: str, config: Any, facts: Sequence[str]) -> str:
    rows = [f"`{row.name}`" for row in config.methods]
    more = f" and {len(rows) - SHOWN_ROWS} more" if len(rows) > SHOWN_ROWS else ""
    lines = [f"{config.title}.{_published(config)}", f"{'; '.join(facts)}."]
    lines += [f"{_count(len(rows), 'row')}: {', '.join(rows[:SHOWN_ROWS])}{more}."]
    return f"[`{name}`]{{#preset-{name}}}\n: {' '.join(map(_upper, lines))}\n"


def _upper(text: str) -> str:
    return text[:1].upper() + text[1:]


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _published(config: Any) -> str:
    """Which printed numbers the report shows next to the study's."""
    if not config.published:
        return ""
    _, table, *data = config.published.split("/")
    place = table.replace("table", "Table ").replace("figure", "Figure ")
    of = f" ({data[0]})" if data else ""
    return f" Shown next to the paper's {place}{of}."


def every_name() -> Iterator[str]:
    """All that a reader may look for on the page."""
    yield from (*PRESETS, *STREAM_PRESETS, *METHODS, *MODELS, *OPTIMIZERS, *LOGGERS)
