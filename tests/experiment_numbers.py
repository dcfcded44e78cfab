"""The numbers of the experiments' pages against the CSV files committed next to them.

    python -m tests.experiment_numbers [PAGE ...]

prints what is wrong and what is unchecked; without a page it takes all of them.
`results/NAME.csv` next to a page is the `table.csv` (or `updates.csv`) that a study
wrote, unchanged; `-second` is the same with `--seed 1000`, and `-differences` are rows
against rows by `experiments/differences.py`. A page says what belongs together in HTML
comments:

* `table: results/NAME.csv`, directly above a table. A row is found by the text of its
  first cell, a column by its heading; other headings and rows are named behind
  semicolons, as in `table: results/NAME.csv; Gain = delta_accuracy; pairing = own`.
  Every cell must be the file's value, or 100 times it, rounded to the digits shown.
* `cells: results/A.csv results/B.csv`, directly above a table of several files: every
  `a ± b` in a cell must be in one of them.
* `numbers: results/NAME.csv`, for more files of the same section. Decimals in the text
  must be in one of the section's files: `a ± b` anywhere, a number alone in a column
  that a table of the page shows or that the comment names, `p = 0.002` in the column of
  the number before it. A sentence that says "paper" may also have the paper's numbers,
  from the papers' `published.csv`. Settings stand in code and
  are not compared, nor are whole numbers in the text.
* `claims:`, above the table of claims. Decimals under "Here" must be in the files that
  the row links, and a p of 5 % or more goes with neither *confirmed* nor *refuted*.
* `unchecked: REASON`, for a section and those below it that have no file. A table of
  numbers without any of these fails.
"""

import contextlib
import csv
import dataclasses
import functools
import math
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from markdown_it import MarkdownIt

from churn_jax.reports import QUANTITIES
from churn_jax.reports.published import published
from churn_jax.reports.updates import RATES
from tests.experiments.presets import PAPERS

ROOT = Path(__file__).parents[1]
PAGES = [
    ROOT / "README.md",
    *(
        ROOT / "docs" / f"{page}.md"
        for page in (
            "results/index",
            "start/train",
            "concepts/choosing",
            "concepts/determinism",
            "how_to/ensembles",
            "how_to/updates",
        )
    ),
    *sorted((ROOT / "experiments").rglob("*.md")),
]
VERDICTS = ("confirmed", "refuted", "not shown", "not run")

_HEADINGS = {q.heading: q.name for q in (*QUANTITIES.values(), *RATES)}
for q in QUANTITIES.values():
    _HEADINGS[f"Δ of {q.heading}"] = f"delta_{q.name}"
    _HEADINGS[f"{q.heading} as deployed"] = q.name
    _HEADINGS[f"{q.heading} calibrated"] = f"calibrated_{q.name}"
_HEADINGS |= {"Pairs": "pairs", "Runs": "runs", "Examples": "num_examples"}
_HEADINGS |= {"NFR, points": "delta_negative_flip_rate"}
_HEADINGS |= {"ER new, points": "delta_new_error", "Gap closed %": "gap_closed"}
_HEADINGS |= {"Δ churn": "delta_churn", "Δ accuracy": "delta_accuracy"}
_HEADINGS |= {"Training cost": "training_cost", "Inference cost": "inference_cost"}

_MARKS = "table|cells|numbers|claims|unchecked"
_MARK = re.compile(rf"<!--\s*({_MARKS})\b:?\s*(.*?)\s*-->", re.S)
_NUMBER = re.compile(r"(?<![\w.,])([+-]?)(\d[\d,]*(?:\.\d+)?)(?!\.?\d)(?!\w)")
_PAIR = re.compile(rf"{_NUMBER.pattern}\s*(?:%|points)?\s*±\s*{_NUMBER.pattern}")
_P = re.compile(r"\bp ([=<]) (\d\.\d+)")
_PAIR_P = re.compile(rf"{_PAIR.pattern}(?: (?:%|points))?(?:, | \()?(?:{_P.pattern})?")
# Numbers that say where something stands or which version it is.
_PLACE = re.compile(
    r"\b(?:[Ss]ec(?:tion|\.)s?|Eqs?\.|Tables?|Fig(?:ure|\.)s?|App(?:endix|\.)|arXiv|Python"
    r"|jax|flax|CC BY|Apache)[\s-]+[A-Z]?\d[\d.]*\b|\b\d+\.\d+\.\d+\b"
)


@dataclasses.dataclass
class Section:
    """What stands under a heading, and the marks that hold for its prose."""

    level: int
    parent: "Section | None"
    unchecked: str = ""
    files: list[Path] = dataclasses.field(default_factory=list)

    def marked(self) -> "Section | None":
        """This section or the nearest above it that has marks."""
        if self.unchecked or self.files or self.parent is None:
            return self if self.unchecked or self.files else None
        return self.parent.marked()


@dataclasses.dataclass
class Found:
    """What the check of a page found."""

    wrong: list[str] = dataclasses.field(default_factory=list)
    unchecked: dict[str, int] = dataclasses.field(default_factory=dict)  # by reason
    checked: int = 0


@functools.cache
def _records(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


class Numbers(dict):
    """A record without what is no number; `pairs` are its columns with an error."""

    def __init__(self, record: dict[str, str]) -> None:
        for name, text in record.items():
            with contextlib.suppress(TypeError, ValueError):
                self[name] = float(text)
        ends = [(n, n + end) for n in self for end in ("_std", "_stderr")]
        self.pairs = [(n, self[n], self[end]) for n, end in ends if end in self]


@functools.cache
def _numbers(path: Path) -> list[Numbers]:
    return [*map(Numbers, _records(path))]


def _shows(text: str, value: str | float | None, scales=(1, 100), sign=True) -> set:
    """The scales at which `text` is `value` rounded to the digits of `text`."""
    try:
        exact = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return set()
    shown = float(text.replace(",", ""))
    if not sign:
        exact, shown = abs(exact), abs(shown)
    half = 0.5 * 10.0 ** -len(text.partition(".")[2])
    return {s for s in scales if abs(s * exact - shown) <= half * (1 + 1e-6)}


@functools.cache
def _plain(text: str) -> str:
    """Without code, targets of links, emphasis, and numbers of places."""
    text = re.sub(r"`[^`]*`|https?://[^\s)]*", "`", text)
    text = re.sub(r"\]\([^)]*\)", "]", text).replace("**", "").replace("[", "")
    return _PLACE.sub("", text.replace("]", "").replace("−", "-").replace("\\", ""))


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip())[1:-1]]


def published_places(file: str) -> tuple[str, ...]:
    """The places that `published` takes of a file, in its order."""
    with open(file, encoding="utf-8", newline="") as lines:
        tables = dict.fromkeys(line["table"] for line in csv.DictReader(lines))
    return tuple(f"{file}:{table}" for table in tables if table)


@functools.cache
def paper_numbers(folder: str) -> frozenset[float]:
    """What the papers say in their published tables."""
    files = [f"experiments/{paper}/published.csv" for paper in PAPERS]
    files = [file for file in files if folder in file] or files
    tables = [published(place) for file in files for place in published_places(file)]
    cells = [c for _, rows in tables for row in rows.values() for c in row.values()]
    numbers = {x for c in cells for x in (c.mean, c.std) if x is not None}
    return frozenset(x for x in numbers if math.isfinite(x))


def _of_paper(text: str, page: Path) -> bool:
    return any(_shows(text, x, sign=False) for x in paper_numbers(page.parent.name))


class Page:
    """One page, read once from top to bottom."""

    def __init__(self, page: Path) -> None:
        self.page, self.found = page, Found()
        self.columns: dict[str, set] = {}  # those shown, with their scales
        self.section = Section(0, None)
        self.pending: tuple[str, str] | None = None  # a mark that a table may follow
        self.prose: list[tuple[int, str, Section]] = []
        self.claims = False
        whole = page.read_text(encoding="utf-8")
        self.links = dict(re.findall(r"^\[([^]]+)\]: (\S+)$", whole, re.M))
        for number, kind, text in _blocks(whole):
            self._take(number, kind, text)
        for number, text, section in self.prose:  # when all columns are known
            self._check_prose(number, text, section)

    def _say(self, number: int, what: str) -> None:
        where = self.page.relative_to(ROOT) if ROOT in self.page.parents else self.page
        self.found.wrong.append(f"{where}:{number}: {what}")

    def _leave_out(self, reason: str, count: int) -> None:
        if count:
            self.found.unchecked[reason] = self.found.unchecked.get(reason, 0) + count

    def _take(self, number: int, kind: str, text: str) -> None:
        if kind == "table":
            mark, self.pending = self.pending, None
            return self._take_table(number, text.splitlines(), mark)
        if self.pending is not None:
            self._close_mark(number)
        if kind == "heading":
            level = len(text)
            parent: Section | None = self.section
            while parent is not None and parent.level >= level:
                parent = parent.parent
            self.section = Section(level, parent)
        elif kind == "mark":
            name, rest = _MARK.fullmatch(text).groups()  # type: ignore[union-attr]
            if name == "numbers":
                self._options(number, rest)
            else:
                self.pending = (name, rest)
        else:
            self.prose.append((number, text, self.section))
        return None

    def _close_mark(self, number: int) -> None:
        """A mark that no table follows."""
        name, rest = self.pending or ("", "")
        self.pending = None
        if name != "unchecked":
            self._say(number, f"no table follows the mark `{name}`")
        elif not rest:
            self._say(number, "unchecked: why?")
        else:
            self.section.unchecked = rest

    def _options(self, number: int, rest: str) -> tuple[list[Path], dict[str, str]]:
        """Files and the pairs of a mark; bare names are columns."""
        first, *others = [part.strip() for part in rest.split(";")]
        files = [self.page.parent / name for name in first.split()]
        for file in [f for f in files if not f.is_file()]:
            self._say(number, f"no file {file.relative_to(self.page.parent)}")
        files = [file for file in files if file.is_file()]
        self.section.files += files
        pairs = {}
        for part in filter(None, others):
            left, equals, right = (x.strip() for x in part.partition("="))
            if equals:
                pairs[left] = right
            else:
                self.columns[left] = {1, 100}
        return files, pairs

    def _take_table(self, number: int, lines: list[str], mark) -> None:
        header, _, *rows = [_cells(line) for line in lines]
        text = _plain("\n".join(" | ".join(row[1:]) for row in rows))
        count = len(_NUMBER.findall(text))
        name, rest = mark or ("", "")
        if name == "unchecked" and not self.section.files:
            self.section.unchecked = rest
        if name == "claims":
            self._options(number, f"; {rest}")
            return self._check_claims(number, header, rows)
        if name == "table":
            return self._check_table(number, header, rows, rest)
        if name == "cells":
            self._options(number, rest)
            text = "\n\n".join(cell.replace("<br>", "; ") for r in rows for cell in r)
            self.prose.append((number, text, self.section))
            return None
        if not name:
            cells = [_plain(cell) for row in rows for cell in row[1:]]
            if not any(_NUMBER.fullmatch(cell) or "±" in cell for cell in cells):
                text = "\n\n".join(map(" ".join, rows))
                self.prose.append((number, text, self.section))
                return None
            marked = self.section.marked()
            rest = marked.unchecked if marked else ""
        if not rest:
            self._say(number, "a table of numbers without a mark")
        return self._leave_out(rest or "no mark", count)

    def _check_table(self, number: int, header: list[str], rows, rest: str) -> None:
        files, pairs = self._options(number, rest)
        records = [record for file in files for record in _records(file)]
        if not records:
            return None
        fields = set().union(*records)
        wanted = {k: v for k, v in pairs.items() if k in fields}
        records = [r for r in records if all(r.get(k) == v for k, v in wanted.items())]
        columns: list[str | None] = [None]
        for heading in map(_plain, header[1:]):
            columns.append(self._column(number, heading, pairs, fields, columns[-1]))
        scales = [{1, 100} for _ in columns]
        for offset, row in enumerate(rows, 2):
            label = _plain(row[0])
            named = [r for r in records if label in map(_plain, map(str, r.values()))]
            fits = [[_cell(t, r, c) for t, c in zip(row, columns)] for r in named]
            if not named:
                self._say(number + offset, f"no row {label!r} in {rest}")
                continue
            best = max(fits, key=lambda fit: sum(map(bool, fit)))
            for j, scale in enumerate(best):
                if columns[j] is None:
                    continue
                self.found.checked += 1
                scales[j] &= scale
                if not scales[j]:
                    said = f"{label!r}, {header[j]!r}: {row[j]!r}"
                    self._say(number + offset, f"{said} is not in {rest}")
                    scales[j] = {1, 100}
            if "Paper" in " ".join(header):
                self._check_paper(number + offset, header, row)
        for column, scale in zip(columns, scales, strict=True):
            if column:
                self.columns[column] = self.columns.get(column, set()) | scale
        return None

    def _check_paper(self, number: int, header: list[str], row: list[str]) -> None:
        for heading, cell in zip(header, row, strict=True):
            for sign, text in _NUMBER.findall(_plain(cell)):
                if "Paper" in heading and not _of_paper(text, self.page):
                    self._say(number, f"{sign}{text} is not a number of the paper's")

    def _column(self, number: int, heading: str, pairs, fields, last) -> str | None:
        """The column of the CSV that a heading means; None for no number of ours."""
        if "Paper" in heading:
            return None
        if heading in ("p", "p (Holm)"):
            return f"{last}_p_holm"
        short = heading.partition(",")[0]
        known = _HEADINGS.get(heading) or _HEADINGS.get(short, heading)
        if heading == "change":
            known = f"delta_{last}"
        name = pairs.get(heading, known)
        if name in fields:
            return name
        self._say(number, f"heading {heading!r}: name its column in the mark")
        return None

    def _check_claims(self, number: int, header: list[str], rows) -> None:
        if not header[1:] or "Paper" not in header[1] or header[-1] != "Verdict":
            self._say(number, "claims: | # | Paper ... | Here | ... | Verdict |")
        for offset, row in enumerate(rows, 2):
            here, verdicts = _plain(row[2]), re.findall(r"\*([^*]+)\*", row[-1])
            if not verdicts or not set(verdicts) <= set(VERDICTS):
                self._say(number + offset, f"{row[-1]!r} is none of {VERDICTS}")
                continue
            verdict = verdicts[0]  # of what stands under Here; others have their own
            certain = all(float(value) < 0.05 for _, value in _P.findall(here))
            if verdict in ("confirmed", "refuted") and not certain:
                self._say(number + offset, f"{verdict}, with p of 5 % or more")
            if verdict == "not run" and "±" in here:
                self._say(number + offset, "not run, with a number")
            linked = re.findall(r"\]\(([^)]*)\)|\]\[([^]]*)\]", " ".join(row))
            names = [path or self.links.get(name, "") for path, name in linked]
            names = [name for name in names if name.endswith(".csv")]
            files = [self.page.parent / name for name in names]
            section = Section(9, None, files=files)
            if not files:
                reason = "claims of tables without a csv"
                section = Section(9, None, unchecked=reason)
            self.prose += [(number + offset, row[i], section) for i in (2, -1)]

    def _check_prose(self, number: int, text: str, section: Section) -> None:
        marked = section.marked()
        records = [r for f in marked.files for r in _numbers(f)] if marked else []
        for sentence in re.split(r"(?<=[.;:?!])\s+", _plain(text)):
            paper = re.search(r"\b[Pp]apers?\b", sentence)
            pairs = [m for m in _PAIR_P.finditer(sentence) if "." in m[0]]
            rest = _PAIR_P.sub(" ", sentence)
            values = _P.findall(rest)
            singles = _NUMBER.findall(_P.sub(" ", rest))
            singles = [(sign, text) for sign, text in singles if "." in text]
            if marked is None and pairs + values + singles:
                said = pairs[0][0] if pairs else "".join((values + singles)[0])
                self._say(number, f"{said} stands in a section without a mark")
            if marked is None or not marked.files:
                reason = marked.unchecked if marked else "no mark"
                self._leave_out(reason, len(pairs) + len(values) + len(singles))
                continue
            said = []  # text, True if a record has it, its number
            for sign, value, _, error, relation, p in (m.groups() for m in pairs):
                text = f"{sign}{value} ± {error}{f', p {relation} {p}' if p else ''}"
                pair = (sign + value, error, relation, p)
                said.append((text, any(_has_pair(r, *pair) for r in records), value))
            for relation, value in values:
                found = any(_has_p(r, relation, value) for r in records)
                said.append((f"p {relation} {value}", found, ""))
            for sign, value in singles:
                found = any(self._has(r, sign, value) for r in records)
                said.append((sign + value, found, value))
            self.found.checked += len(said)
            for text, found, value in said:
                if not found and not (paper and value and _of_paper(value, self.page)):
                    self._say(number, f"{text} is in no csv of its section")

    def _has(self, record: dict, sign: str, text: str) -> bool:
        return any(
            _shows(sign + text, record.get(f"{column}{end}"), scales, bool(sign))
            for column, scales in self.columns.items()
            for end in ("", "_std", "_stderr")
        )


def _has_p(record: dict, relation: str, text: str, column: str = r".*") -> bool:
    names = [name for name in record if re.fullmatch(rf"{column}_p(_holm)?", name)]
    values = [record[name] for name in names]
    if relation == "<":
        return any(value < float(text) for value in values)
    return any(_shows(text, value, (1,)) for value in values)


def _has_pair(record: Numbers, value: str, error: str, relation: str, p: str) -> bool:
    """True if a column has the value, its error and, where one follows, its p."""
    return any(
        _shows(error, off, (scale,))
        and (not p or _has_p(record, relation, p, re.escape(name)))
        for name, exact, off in record.pairs
        for scale in _shows(value, exact, sign=value[0] in "+-")
    )


def _cell(text: str, record: dict, column: str | None) -> set:
    """The scales at which a cell of a table is that of the CSV; empty for none."""
    text = _plain(text).strip("≥×% ")
    unit = {"k": 1e-3, "M": 1e-6}.get(text[-1:], 1)
    text = re.sub(r" (own|all|known)$", "", text.rstrip("kM "))  # pairs, examples
    if column is None or not re.search(r"\d", text):
        return {1, 100}
    value = record.get(column)
    if text.startswith("<"):
        small = value and float(value) < float(text[1:])
        return {1, 100} if small else set()
    if unit != 1:
        value = float(value or "nan") * unit
    number, _, error = (part.strip() for part in text.partition("±"))
    if not all(_NUMBER.fullmatch(part) for part in (number, error) if part):
        return set()
    scales = _shows(number, value)
    if error:
        ends = ("_std", "_stderr")
        scales &= set().union(*(_shows(error, record.get(column + e)) for e in ends))
    return scales


def _blocks(text: str) -> Iterator[tuple[int, str, str]]:
    """Line, kind (`heading`, `mark`, `table`, `prose`) and text, in order."""
    lines, end = text.splitlines(), 0
    for token in MarkdownIt("commonmark").enable("table").parse(text):
        if token.map is None or token.map[0] < end:  # inside of a table or a heading
            continue
        first, last = token.map
        if token.type == "heading_open":
            end = last
            yield first + 1, "heading", token.markup
        elif token.type == "table_open":
            end = last
            yield first + 1, "table", "\n".join(map(str.strip, lines[first:last]))
        elif token.type == "html_block" and _MARK.fullmatch(token.content.strip()):
            yield first + 1, "mark", token.content.strip()
        elif token.type == "inline":
            yield first + 1, "prose", re.sub(r"\s*\n\s*", " ", token.content)


def check(page: Path) -> Found:
    """Checks every number of a page."""
    return Page(page).found


def main(names: list[str]) -> int:
    """Prints what is wrong and what is unchecked."""
    wrong, checked, left_out = 0, 0, 0
    for page in [Path(name).resolve() for name in names] or PAGES:
        found = check(page)
        print(*found.wrong, sep="\n", end="\n" if found.wrong else "")
        for reason, count in found.unchecked.items():
            print(f"{page.relative_to(ROOT)}: {count} numbers unchecked: {reason}")
        wrong += len(found.wrong)
        checked += found.checked
        left_out += sum(found.unchecked.values())
    print(f"{checked} numbers checked, {wrong} wrong, {left_out} unchecked")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
