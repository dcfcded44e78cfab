"""What the papers report, for reports to show next to what was measured.

The numbers are in `<paper>.json`, one object per table and data set, as they are
printed: percent where the paper prints percent, `[mean, standard deviation]`, and a
third entry with the reason where a cell must not be relied upon, or with the name of a
reason that many cells share. A table also has its data set, networks (as in
`churn_jax.models`), epochs and numbers of examples, where the paper says them. A
quantity that is printed nowhere and follows from others is listed as `derived`, and its
third entry says how. Here they become fractions, the unit of every measured number. A
published number is context, never a target: it comes from other hardware, and often
from other data.
"""

import dataclasses
import functools
import json
from collections.abc import Mapping
from importlib import resources

from churn_compare.suggestions import did_you_mean

__all__ = ["Published", "PublishedTable", "published", "published_keys", "table"]


@dataclasses.dataclass(frozen=True)
class Published:
    """One number of a paper.

    Attributes:
        mean: over the paper's runs; shares (accuracy, churn, ECE, ...) as fractions.
        std: standard deviation over those runs; None for a setting or a cost, and in
            papers that print none.
        doubtful: whether the cell must not be relied upon.
        note: why it is doubtful, or what it was computed from; empty otherwise.
        source: where it is printed, such as `"Table 2"`.
        derived: whether it is printed nowhere and was computed from what is.
    """

    mean: float
    std: float | None = None
    doubtful: bool = False
    note: str = ""
    source: str = ""
    derived: bool = False

    @property
    def mark(self) -> str:
        """What a reader is told with the number: `doubtful`, `derived` or nothing."""
        return "doubtful" if self.doubtful else "derived" if self.derived else ""


@dataclasses.dataclass(frozen=True)
class PublishedTable:
    """The rows of one table for one data set.

    Attributes:
        key: such as `"reproducibility/table2/cifar10"`.
        title: data set and network.
        runs: how many runs the paper has per row; 0 where it does not say.
        citation: authors, title, year.
        url: where the paper is.
        rows: method name to metric to `Published`; names as in the presets.
        data: name of the data set; empty where it is private.
        networks: of the rows, a name of `churn_jax.models.available()` and widths.
        epochs: length of training; this and the next two are None where unknown.
        train: number of training examples.
        test: number of test examples.
    """

    key: str
    title: str
    runs: int
    citation: str
    url: str
    rows: Mapping[str, Mapping[str, Published]]
    data: str = ""
    networks: tuple[str, ...] = ()
    epochs: int | None = None
    train: int | None = None
    test: int | None = None


@functools.cache
def _paper(name: str) -> dict:
    file = resources.files(__name__).joinpath(f"{name}.json")
    return json.loads(file.read_text(encoding="utf-8"))


@functools.cache
def published_keys() -> tuple[str, ...]:
    """Every key that `published` takes, in the order of the papers.

    Example:
        >>> published_keys()[0]
        'anti-distillation/table1/mnist'
    """
    files = resources.files(__name__).iterdir()
    papers = sorted(f.name[:-5] for f in files if f.name.endswith(".json"))
    return tuple(
        f"{paper}/{key}" for paper in papers for key in _paper(paper)["tables"]
    )


def published(key: str) -> Mapping[str, Mapping[str, Published]]:
    """The rows of a published table: method name to metric to number.

    A `table2` also holds what the paper says about the same models elsewhere: the
    2-ensemble and the inference costs of Table 7, the ECE of Table 4, the coefficients
    of Table 5; each number names its `source`.

    [reproducibility] Table 2; [anti-distillation] Table 1; [diversity] Table 1;
    [elodi] Table 1.

    Example:
        >>> row = published("reproducibility/table2/cifar10")["baseline"]
        >>> row["churn"].mean, row["churn"].std, row["churn"].doubtful
        (0.0572, 0.0018, False)
        >>> row["ece"].source
        'Table 4'
    """
    return table(key).rows


@functools.cache
def table(key: str) -> PublishedTable:
    """A published table with its title and source; see `published`.

    Example:
        >>> table("reproducibility/table6/cifar10").title
        'CIFAR-10, ResNet-32'
    """
    if key not in published_keys():
        hint = did_you_mean(key, published_keys(), count=3, cutoff=0.5)
        raise ValueError(f"no published table {key!r}{hint}")
    name, _, inner = key.partition("/")
    paper = _paper(name)
    entry = paper["tables"][inner]
    rows: dict[str, dict[str, Published]] = {}
    for part in (inner, *entry.get("completed_by", ())):
        for method, cells in paper["tables"][part]["rows"].items():
            row = rows.setdefault(method, {})
            for metric, cell in cells.items():
                row.setdefault(metric, _cell(cell, metric, part, paper))
    return PublishedTable(
        key=key,
        title=entry["title"],
        runs=entry["runs"],
        citation=paper["citation"],
        url=paper["url"],
        rows=rows,
        data=entry.get("data", ""),
        networks=tuple(entry.get("networks", ())),
        epochs=entry.get("epochs"),
        train=entry.get("train"),
        test=entry.get("test"),
    )


def _cell(cell: float | list, metric: str, part: str, paper: Mapping) -> Published:
    parts = cell if isinstance(cell, list) else [cell]
    mean, std = parts[0], parts[1] if len(parts) > 1 else None
    note = parts[2] if len(parts) > 2 else ""
    note = paper.get("notes", {}).get(note, note)
    if metric in paper["percent"]:
        mean, std = _fraction(mean), None if std is None else _fraction(std)
    derived = metric in paper.get("derived", ())
    return Published(
        mean,
        std,
        doubtful=bool(note) and not derived,
        note=note,
        source=paper["tables"][part].get("source") or _place(part),
        derived=derived,
    )


def _place(part: str) -> str:
    """`Table 2` of `table2/cifar10`."""
    where = part.partition("/")[0]
    word = where.rstrip("0123456789")
    return f"{word.capitalize()} {where[len(word) :]}"


def _fraction(value: float) -> float:
    """Of a percentage; rounded, so that 5.72 becomes 0.0572 and not its neighbour."""
    return round(value / 100, 6)
