"""Numbers of the papers, which reports show next to measured ones.

`FILE.csv:TABLE` names a table of a file such as `experiments/elodi/published.csv`: a
line per number, `table,row,quantity,value,std,note`, as it is printed. Quantities in
the paper's `percent` are times 100, the note says why a number must not be relied upon,
or of a quantity in `derived`, which is printed nowhere, what it was computed from.
Lines without a row are facts of a table: its title, number of runs, data set, networks
(as in `churn_jax.models`), epochs and numbers of examples where the paper says them,
and the tables that complete it. Lines without a table are facts of the paper.

Here they become fractions, the unit of every measured number. A published number is
context, never a target: it comes from other hardware, and often from other data.
"""

import csv
import dataclasses
from collections.abc import Mapping
from pathlib import Path


@dataclasses.dataclass(frozen=True)
class Published:
    """One number of a paper."""

    # over the paper's runs; shares (accuracy, churn, ECE, ...) as fractions
    mean: float
    # over those runs; None for a setting or a cost, and in papers that print none
    std: float | None = None
    # `doubtful`, if it must not be relied upon; `derived`, if it is printed nowhere
    mark: str = ""
    note: str = ""  # why it is doubtful, or what it was computed from
    source: str = ""  # where it is printed, such as `"Table 2"`


def published(
    place: str,
) -> tuple[dict[str, str], dict[str, dict[str, Published]]] | None:
    """The table `FILE.csv:TABLE`: its facts, and the numbers of every row by quantity.

    None if there is no such file or table here. Rows are named as in the presets.

    It also holds what other tables say about the same models: `table2` of the first
    paper has the 2-ensemble and the inference costs of Table 7, the ECE of Table 4 and
    the coefficients of Table 5; each number names its `source`.

    [reproducibility] Table 2; [anti-distillation] Table 1; [diversity] Table 1;
    [elodi] Table 1.
    """
    file, _, name = place.rpartition(":")
    if not Path(file).is_file():
        return None
    facts: dict[str, dict[str, str]] = {}
    cells: dict[str, list[dict[str, str]]] = {}
    with open(file, encoding="utf-8", newline="") as lines:
        for line in csv.DictReader(lines):
            if line["row"]:
                cells.setdefault(line["table"], []).append(line)
            else:
                facts.setdefault(line["table"], {})[line["quantity"]] = line["value"]
    if name not in facts or not name:
        return None
    paper, own = facts[""], facts[name]
    rows: dict[str, dict[str, Published]] = {}
    for part in (name, *_list(own.get("completed_by"))):
        where = part.partition("/")[0]  # `table2` of `table2/cifar10`
        word = where.rstrip("0123456789")
        source = facts[part].get("source", f"{word.capitalize()} {where[len(word) :]}")
        for cell in cells[part]:
            row = rows.setdefault(cell["row"], {})
            row.setdefault(cell["quantity"], _number(cell, paper, source))
    return {"data": "", **paper, **own}, rows


def _list(text: str | None) -> list[str]:
    return text.split("; ") if text else []


def _number(cell: Mapping[str, str], paper: Mapping[str, str], source: str):
    mean, std = float(cell["value"]), float(cell["std"]) if cell["std"] else None
    if cell["quantity"] in _list(paper["percent"]):
        # Rounded, so that 5.72 becomes 0.0572 and not its neighbour.
        mean = round(mean / 100, 6)
        std = None if std is None else round(std / 100, 6)
    derived = cell["quantity"] in _list(paper.get("derived"))
    mark = "derived" if derived else "doubtful" if cell["note"] else ""
    return Published(mean, std, mark, cell["note"], source)
