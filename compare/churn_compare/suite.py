"""Comparison of a release on many benchmarks, with one decision."""

import contextlib
import dataclasses
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from churn_compare.array_files import ArrayFileError
from churn_compare.comparison import compare, compare_outcomes, outcome_sides
from churn_compare.display import CompareResult, Display, OutcomesResult
from churn_compare.documents import Block, Cell, Column, Document, Section, Table, Text
from churn_compare.example_ids import PredictionsError, some
from churn_compare.gate_outcomes import judge_measures
from churn_compare.gates import (
    WAIVE,
    Gate,
    GateError,
    check_keys,
    errors_in,
    gates_of,
    read_toml,
    waivers_in,
)
from churn_compare.number_text import (
    NOTHING,
    count_text,
    equals_text,
    listed,
    p_text,
    remark,
    with_range,
)
from churn_compare.quantities import QUANTITIES
from churn_compare.reading.account import settle
from churn_compare.reading.contents import ENDINGS, parts_of
from churn_compare.reading.join import Errors
from churn_compare.reading.logs import reader_of
from churn_compare.reading.outcomes import has_outcomes
from churn_compare.reading.sides import same_file, side_names
from churn_compare.report import composed, sections
from churn_compare.result import GateOutcome, Measured, Waiver, state_of
from churn_compare.significance import holm
from churn_compare.tables import number_cell

Tier = Literal["required", "advisory"]
_KEYS = {"tier": str, "file": str, "score": str, "lower-is-better": bool}
_KEYS |= {"errors": str, "gates": dict}
# samples_mmlu_2026-01-31T12-30-00.123.jsonl, details_mmlu|0_2026-...parquet
_NAME = re.compile(r"^(?:samples_|details_)?(.*?)(?:_\d{4}-\d\d-\d\dT[\d.:-]+)?$")
# 2026-01-31T12-30-00+00-00_mmlu_Gprr29Mvx7Q2.eval
_INSPECT = re.compile(r"\d{4}-\d\d-\d\dT[\d.Z+-]+_(.+)_[A-Za-z0-9]+\.(?:eval|json)")
_SKIPPED = ("results", "config", "summary")  # files that tools write next to these


@dataclasses.dataclass(frozen=True)
class Rules:
    """The rules of a suite for one benchmark."""

    # "required" benchmarks decide on the release; "advisory" ones are only reported.
    tier: Tier = "required"
    # Its file, by name or path inside both folders; None if it is called like the
    # benchmark.
    file: str | None = None
    score: str | None = None  # column that is compared; None for all columns
    # True if a lower score is better; None to follow its log or its name.
    lower_is_better: bool | None = None
    errors: Errors | None = None  # as in `compare_outcomes`; None as for the suite
    gates: tuple[Gate, ...] = ()  # its conditions
    waivers: tuple[Waiver, ...] = ()  # negative flips that its gates do not count


@dataclasses.dataclass(frozen=True)
class Suite:
    """The rules of a release for its benchmarks."""

    rules: Mapping[str, Rules] = dataclasses.field(default_factory=dict)  # by name
    others: Rules = Rules()  # rules of benchmarks without a name here

    def of(self, name: str) -> Rules:
        """The rules for a benchmark."""
        return self.rules.get(name, self.others)


def read_suite(path: str | os.PathLike) -> Suite:
    '''Reads the rules of a release.

    Entries before the first benchmark apply to all benchmarks that are not named.

    Raises:
        GateError: if the file cannot be read or an entry is invalid.

    Example:
        >>> import tempfile
        >>> text = """
        ... tier = "advisory"
        ... [benchmark.mmlu]
        ... gates = {max-nfr = "2%"}
        ... """
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder) / "suite.toml"
        ...     _ = path.write_text(text)
        ...     suite = read_suite(path)
        >>> [suite.of(name).tier for name in ("mmlu", "another")]
        ['required', 'advisory']
    '''
    table = read_toml(Path(path))
    with errors_in(path):
        named = table.pop("benchmark", {})
        if not isinstance(named, Mapping):
            raise GateError("benchmarks are tables, [benchmark.NAME]")
        others, rules = _rules(table), {}
        for name, of in named.items():
            with errors_in(f"benchmark.{name}"):
                rules[name] = _rules(of)
    return Suite(rules, others)


def _rules(table: Any) -> Rules:
    if not isinstance(table, Mapping):
        raise GateError("a benchmark is a table")
    check_keys(table, _KEYS)
    for key, value in table.items():
        if not isinstance(value, _KEYS[key]):
            what: dict[type, str] = {dict: "table, such as {max-nfr = 0.01}"}
            name = what.get(_KEYS[key], _KEYS[key].__name__)
            raise GateError(f"{key} must be a {name}")
    for key, known in {"tier": Tier, "errors": Errors}.items():
        if key in table and table[key] not in get_args(known):
            names = " or ".join(f'"{name}"' for name in get_args(known))
            raise GateError(f"{key} must be {names}")
    fields = {key.replace("-", "_"): value for key, value in table.items()}
    if "gates" in fields:
        given = dict(fields["gates"])
        fields["waivers"] = waivers_in(given.pop(WAIVE, []))
        fields["gates"] = gates_of(given)
    return Rules(**fields)


@dataclasses.dataclass(frozen=True, eq=False)
class Benchmark:
    """One benchmark of a release."""

    name: str
    rules: Rules
    # The comparison; None if the benchmark could not be compared.
    result: CompareResult | OutcomesResult | None
    missing: str = ""  # reason why it could not be compared
    # p-value of no change of each measure, adjusted by Holm over the release.
    adjusted_p: tuple[float, ...] = ()
    # Outcomes of its conditions; two are that it exists and does not get worse.
    gates: tuple[GateOutcome, ...] = ()

    @property
    def measures(self) -> dict[str, Measured]:
        """Measures by name; a single measure has the name of the benchmark."""
        found = self.result.each() if self.result else {}
        names = [f"{self.name}: {name}" for name in found]
        names = [self.name] if len(found) == 1 else names
        return dict(zip(names, found.values()))


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class SuiteResult(Display):
    """The result of `compare_suite`."""

    old: str  # name of the folder of the version in use
    new: str  # name of the folder of the version that is to replace it
    level: float  # confidence level of all intervals
    benchmarks: tuple[Benchmark, ...]  # benchmarks, required ones first
    left_out: tuple[str, ...] = ()  # files that were not compared

    def suites(self) -> list[tuple[str, Sequence[GateOutcome]]]:
        """Names of the required benchmarks with their gates."""
        needed = [of for of in self.benchmarks if of.rules.tier == "required"]
        return [(of.name, of.gates) for of in needed]

    @property
    def gates(self) -> tuple[GateOutcome, ...]:
        """Outcomes of the conditions on required benchmarks."""
        return tuple(gate for _, gates in self.suites() for gate in gates)

    @property
    def title(self) -> str:
        """Names of both folders."""
        return f"{self.old} → {self.new}"

    def verdict(self) -> list[str]:
        """Sentences on the compared and the advisory benchmarks."""
        compared = [of for of in self.benchmarks if of.result is not None]
        advisory = [of for of in self.benchmarks if of.rules.tier == "advisory"]
        gates = [gate for of in advisory for gate in of.gates if gate.state != "pass"]
        unjudged = [name for name, of in self.suites() if not of]
        return [
            f"{count_text(len(compared))} of {count_text(len(self.benchmarks))} "
            "benchmarks were compared; p-values are adjusted for all of them (Holm).",
            *(f"Advisory, not counted: {of.line.split('  ', 1)[1]}" for of in gates),
            *[f"Not judged, without labels or gates: {some(unjudged)}."]
            * bool(unjudged),
            *[f"Files left out: {listed(self.left_out, 12)}."] * bool(self.left_out),
        ]

    def document(self, command: str = "") -> Document:
        """The report, with the command under its title."""
        rows, parts, notes = [], [], {}
        for of in self.benchmarks:
            state = state_of(gate.state for gate in of.gates)
            tone = {"pass": "better"}.get(state, "worse")
            mark = Cell(state.upper(), tone=tone) if of.gates else NOTHING
            if of.result is None:
                rows.append((Cell(of.name, below=of.rules.tier), *[NOTHING] * 5, mark))
                continue
            notes |= dict.fromkeys(f"{of.name}: {line}" for line in of.result.read)
            notes |= dict.fromkeys(remark(f"{of.name}: {n}") for n in of.result.notes)
            for (name, m), p in zip(of.measures.items(), of.adjusted_p, strict=True):
                names = (f"{m.mean}_old", f"{m.mean}_new", m.change)
                cells = [number_cell(m.quantities.get(n), n) for n in names]
                row = (count_text(of.result.examples), *cells, p_text(p), mark)
                rows.append((Cell(name, below=of.rules.tier), *row))
                inside: list[Block] = []  # titles of its sections are lines
                for part in filter(lambda part: part.blocks, sections("", m)):
                    inside += [Text(part.title, "soft")] * bool(part.title)
                    inside += part.blocks
                parts.append(Section(name, inside, detail="full"))
        count = Column("Examples", from_width=100)
        heads = ("Benchmark", count, "Old", "New", "Change", "p (Holm)", "")
        table = Section("Benchmarks", [Table(heads, rows, kind="compare")])
        facts = {"Old": self.old, "New": self.new}
        about = f"{count_text(len(self.benchmarks))} benchmarks"
        return composed(self, [table, *parts], [*notes], facts, command, about=about)


def compare_suite(
    old: str | os.PathLike,
    new: str | os.PathLike,
    *,
    suite: Suite | str | os.PathLike = Suite(),
    level: float = 0.95,
    confirm: Sequence[str] = (),
    on_missing: Literal["error", "intersect"] = "error",
    errors: Errors | None = None,
) -> SuiteResult:
    """Compares two folders of results, one benchmark at a time.

    Files of the same name in both folders are one benchmark; time stamps, the ids of
    Inspect and the prefixes of lm-evaluation-harness (`samples_`) and lighteval
    (`details_`) are ignored. A required benchmark fails if one folder lacks it, if it
    cannot be compared, if one of its gates fails, or if it gets worse detectably, by
    Holm's procedure over all measures of the release.

    Args:
        old: folder of the version in use.
        new: folder of the version that is to replace it.
        suite: rules of the benchmarks, or a file for `read_suite`; by default all
            benchmarks are required.
        level: confidence level of the intervals.
        confirm, on_missing: as in `compare`.
        errors: as in `compare_outcomes`, for benchmarks without a rule for it.

    Raises:
        PredictionsError: if a folder has no results, or two files of one name.
        GateError: if the suite cannot be read.
    """
    suite = suite if isinstance(suite, Suite) else read_suite(suite)
    called = side_names(os.path.abspath(old), os.path.abspath(new))
    each = zip((old, new), called, strict=True)
    found, left = zip(*(_files(Path(of), name, suite.rules) for of, name in each))
    names = dict.fromkeys((*suite.rules, *sorted({*found[0], *found[1]})))
    shared = {"level": level, "confirm": confirm, "on_missing": on_missing}
    compared = []
    for name in names:
        rules = suite.of(name)
        before, now = (of.get(name) for of in found)
        lacking = [of for of, path in zip(called, (before, now)) if path is None]
        file = rules.file or "it"
        result, missing = None, f"{file} is missing in {' and in '.join(lacking)}"
        if not lacking:
            try:
                own = {"errors": rules.errors or errors, "waivers": rules.waivers}
                result, missing = _compared(before, now, rules, shared | own), ""
            except (PredictionsError, ArrayFileError, GateError) as error:
                missing = f"{error}"
        compared.append(Benchmark(name, rules, result, missing))
    decided = tuple(_decided(compared, level))
    return SuiteResult(*called, level, decided, sum(left, ()))


def _files(
    folder: Path, called: str, rules: Mapping[str, Rules]
) -> tuple[dict[str, Path], tuple[str, ...]]:
    """Files by benchmark, of which several may have one file, and files left out."""
    if not folder.is_dir():
        raise PredictionsError(f"{folder}: this is not a folder of results")
    if _one_table(folder):
        raise PredictionsError(
            f"{folder}: this is one table, not a folder of results; compare it without "
            "suite"
        )
    found: dict[str, Path] = {}
    left: list[str] = []
    tables: set[Path] = set()
    files = {n: Path(of.file) for n, of in rules.items() if of.file}
    by_path = {n for n, file in files.items() if (folder / file).exists()}
    for path in sorted(folder.rglob("*")):
        inside, lower = path.relative_to(folder), path.name.lower()
        hidden = any(part.startswith(".") for part in inside.parts)
        if hidden or not tables.isdisjoint(path.parents):
            continue
        if table := path.is_dir() and _one_table(path):
            tables.add(path)
        if not (table or path.is_file()):
            continue
        endings = [e for e in (*ENDINGS, ".eval", ".json") if lower.endswith(e)]
        stem = path.name[: len(lower) - max(map(len, endings), default=0)]
        match = _INSPECT.fullmatch(path.name) or _NAME.fullmatch(stem)
        name: str = match[1]  # type: ignore[index]
        skipped = name.lower() in _SKIPPED or not (endings or table)
        if ".json" in endings and not skipped:  # a log, or else a report or settings
            skipped = True
            with contextlib.suppress(PredictionsError):
                skipped = reader_of(path) is None
        here = {True: inside, False: Path(path.name)}
        named = [n for n, file in files.items() if file == here[n in by_path]]
        # A benchmark with a file has no other, though one may be called like it.
        if name not in files and not skipped and (name in rules or not named):
            named.append(name)
        if not named:
            left.append(f"{called}/{inside}")
        for name in named:
            if name in found:
                raise PredictionsError(
                    f"{folder}: {found[name].relative_to(folder)} and "
                    f"{inside} are both called {name!r}; keep one, or name one, with "
                    "its folders, as the file of the benchmark"
                )
            found[name] = path
    if not found:
        raise PredictionsError(f"{folder}: there are no files of results in it")
    return found, tuple(left)


def _one_table(folder: Path) -> bool:
    """True if a folder is a store of shards, or the parts of a table."""
    return any(folder.glob("logits-*-of-*.npy")) or bool(parts_of(folder))


def _compared(old: Any, new: Any, rules: Rules, shared: dict[str, Any]):
    if (score := rules.score) is None:
        if rules.lower_is_better:
            raise GateError("lower-is-better is for a score; name it")
        if has_outcomes(old):
            return compare_outcomes(old, new, gates=rules.gates, **shared)
        del shared["errors"]  # is for outcomes
        return compare(old, new, gates=rules.gates, **shared)
    settle(same_file(old, new), shared["confirm"])
    less = [score] * bool(rules.lower_is_better)
    sides: list = []
    with contextlib.suppress(PredictionsError):
        sides = outcome_sides(old, new, lower_is_better=less)
    if not sides or any(score not in side.measures for side in sides):
        columns = {"lower_is_better": less, "score_columns": [score]}
        sides = outcome_sides(old, new, **columns)  # the score has an unusual name
    if (lower := rules.lower_is_better) is not None:  # whatever its name or log says
        sides = [
            dataclasses.replace(of, less={**of.less, score: lower}) for of in sides
        ]
    found = compare_outcomes(*sides, **shared)
    chosen = tuple(m for m in found.measures if m.name == score)
    if not chosen:
        raise PredictionsError(f"{score} cannot be compared")
    gates = judge_measures(rules.gates, chosen)
    return dataclasses.replace(found, measures=chosen, gates=gates)


def _decided(compared: Sequence[Benchmark], level: float) -> Iterator[Benchmark]:
    """Benchmarks with adjusted p-values and the outcomes of all conditions."""
    every = [m.p for of in compared for m in of.measures.values()]
    adjusted = iter(holm(every).tolist())
    each = [(of, tuple(next(adjusted) for _ in of.measures)) for of in compared]
    for of, p in sorted(each, key=lambda of: of[0].rules.tier != "required"):
        if of.result is None:
            line = f"FAIL  {of.name}: {of.missing}"
            lacks = GateOutcome("compared", of.name, np.nan, np.nan, False, line)
            yield dataclasses.replace(of, gates=(lacks,))
            continue
        gates = []
        for gate in of.result.gates:
            line = gate.line.replace("  ", f"  {of.name}: ", 1)
            where = f"{of.name} {gate.where}".strip()
            gates.append(dataclasses.replace(gate, line=line, where=where))
        for (name, m), adjusted_p in zip(of.measures.items(), p, strict=True):
            if not m.change:
                continue
            change, what = m[m.change], "no detectable change for the worse"
            worse = (change.value < 0) == m.higher_is_better and change.value != 0
            falls = worse and adjusted_p < 1 - level
            said = f"{'gets' if falls else 'does not get'} worse detectably: "
            said += with_range(change, QUANTITIES[m.change].unit)
            said = f"{name} {said}, {equals_text(adjusted_p)}"
            line = f"{'FAIL' if falls else 'PASS'}  {said}"
            gates.append(GateOutcome(what, name, change.value, 0.0, not falls, line))
        yield dataclasses.replace(of, adjusted_p=p, gates=tuple(gates))
