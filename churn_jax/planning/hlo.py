"""A compiled program as text: its loops, estimated cycles and collectives.

A computation that a loop repeats counts as often as the loop turns. Fusions carry an
estimate of their own, so only collectives are looked at inside them: one that overlaps
with arithmetic is written in every fusion that it overlaps with.
"""

import collections
import dataclasses
import re
from collections.abc import Iterator

from jax.sharding import Mesh

from churn_jax.planning.collectives import Collective, find_collectives

__all__ = ["Counted", "Cycles", "collectives_of", "cycles_of"]

_HEADER = re.compile(r"^(?P<entry>ENTRY )?%?(?P<name>[\w.\-]+) \(.*\{$")
_INSTRUCTION = re.compile(r"^\s+(?:ROOT )?%?[\w.\-]+ = .*? (?P<opcode>[a-z][\w\-]*)\(")
_CYCLES = re.compile(r'"estimated_cycles":"(\d+)"')
_TRIPS = re.compile(r'"known_trip_count":\{"n":"(\d+)"\}')
_NAME = re.compile(r"^\s+(?:ROOT )?%?([\w.\-]+) = ")
_ROOT = re.compile(r"^\s+ROOT ")
_CALLED = re.compile(r"(?:body|to_apply|calls)=%?([\w.\-]+)")
_FUSION = re.compile(r" fusion\(.*calls=%?([\w.\-]+)")
_CHAIN = re.compile(r'chain_id="(\w+)"')
_OPERATION = re.compile(r'op_name="([^"]*)"')
_BRANCHES = re.compile(r"branch_computations=\{([^}]*)\}")
_EITHER = re.compile(r"(?:true|false)_computation=%?([\w.\-]+)")
# What costs nothing or is counted elsewhere: copies overlap with arithmetic.
_FREE = frozenset(
    "parameter constant get-tuple-element tuple bitcast partition-id replica-id "
    "after-all copy-start copy-done slice-start slice-done add-dependency "
    "optimization-barrier while call conditional async-start async-update async-done "
    "opt-barrier domain".split()
)
_COLLECTIVE = re.compile(
    r"^(ragged-)?(all-reduce|all-gather|all-to-all|reduce-scatter|collective)"
)


@dataclasses.dataclass(frozen=True)
class Counted:
    """A collective and how often one call of the program runs it."""

    collective: Collective
    times: int


@dataclasses.dataclass(frozen=True)
class Cycles:
    """The compiler's estimate of a program's cycles on one device."""

    total: int  # over all kernels, loops counted as often as they turn
    kernels: int  # that have an estimate
    unknown: dict[str, int]  # how many of each kind have none, without collectives
    open_loops: int  # whose length the compiler does not know


def _computations(hlo: str) -> tuple[dict[str, list[str]], str]:
    """Lines of every computation by name, and the name of the first."""
    found: dict[str, list[str]] = {}
    lines: list[str] = []
    entry = ""
    for line in hlo.splitlines():
        if match := _HEADER.match(line):
            lines = found.setdefault(match["name"], [])
            entry = match["name"] if match["entry"] else entry
        else:
            lines.append(line)
    if not entry:
        raise ValueError("the compiled program has no entry")
    return found, entry


def _walk(
    hlo: str, trips: int, *, every: bool = False
) -> Iterator[tuple[list[str], int, int]]:
    """`(lines, times, open loops)` of every computation that the program runs."""
    # The most expensive branch of a condition stands for all, unless `every`.
    computations, entry = _computations(hlo)

    def cost(name: str, depth: int) -> int:
        return sum(times * _own_cycles(ls) for ls, times, _ in visit(name, 1, depth))

    def visit(name: str, times: int, depth: int):
        opened = 0
        called: list[tuple[str, int, int]] = []
        for line in computations[name]:
            match = _INSTRUCTION.match(line)
            if match is None:
                continue
            opcode = match["opcode"]
            if opcode == "while":
                body, condition = (_one(key, line) for key in ("body", "condition"))
                known = _turns(line, computations[condition], computations[body])
                opened += known is None
                # A loop inside of an open one is taken to turn once.
                turns = (trips if depth == 0 else 1) if known is None else known
                inner = depth + (known is None)
                called.append((body, times * turns, inner))
            elif opcode in ("call", "async-start"):
                called += [(found, times, depth) for found in _CALLED.findall(line)]
            elif opcode == "conditional":
                branches = _BRANCHES.search(line)
                names = (
                    re.findall(r"[\w.\-]+", branches[1])
                    if branches
                    else _EITHER.findall(line)
                )
                if names and not every:
                    names = [max(names, key=lambda name: cost(name, depth))]
                called += [(found, times, depth) for found in names]
        yield computations[name], times, opened
        for one in called:
            yield from visit(*one)

    yield from visit(entry, 1, 0)


def _one(key: str, line: str) -> str:
    found = re.search(rf"{key}=%?([\w.\-]+)", line)
    if found is None:
        raise ValueError(f"a loop without {key}: {line.strip()[:200]}")
    return found[1]


def _turns(line: str, condition: list[str], body: list[str]) -> int | None:
    """How often a loop turns, where the text says so."""
    # The TPU compiler says it by a condition `counter < constant` and a body that adds
    # to the counter, which begins at 0: a `lax.scan`, also where two of its turns were
    # made one. A number that the body chooses, as where a step is repeated, is no
    # counter.
    if known := _TRIPS.search(line):
        return int(known[1])
    defined = {m[1]: text for text in condition if (m := _NAME.match(text))}
    root = next((text for text in condition if _ROOT.match(text)), "")
    compare = re.search(r" compare\(%?([\w.\-]+), %?([\w.\-]+)\), direction=LT", root)
    if compare is None:
        return None
    counter = re.search(
        r"get-tuple-element\(.*index=(\d+)", defined.get(compare[1], "")
    )
    limit = re.search(r" constant\((\d+)\)", defined.get(compare[2], ""))
    if counter is None or limit is None:
        return None
    last = next((text for text in body if _ROOT.match(text)), "")
    results = re.sub(r"/\*.*?\*/", "", last.rpartition(" tuple(")[2]).split(")")[0]
    names = [name.strip().lstrip("%") for name in results.split(",")]
    if int(counter[1]) >= len(names):
        return None
    wanted = names[int(counter[1])]
    made = next((t for t in body if (m := _NAME.match(t)) and m[1] == wanted), "")
    added = re.search(r" add\(%?([\w.\-]+), %?([\w.\-]+)\)", made)
    if added is None:
        return None
    constants = {
        m[1]: int(found[1])
        for text in body
        if (m := _NAME.match(text))
        and (found := re.search(r" constant\((\d+)\)", text))
    }
    step = next((constants[n] for n in added.groups() if n in constants), 1)
    return -(-int(limit[1]) // max(step, 1))


def _own_cycles(lines: list[str]) -> int:
    return sum(int(found[1]) for line in lines if (found := _CYCLES.search(line)))


def cycles_of(hlo: str, *, trips: int = 1) -> Cycles:
    """Adds up the TPU compiler's estimates; `trips` is the turns of an unknown loop."""
    total = kernels = open_loops = 0
    unknown: collections.Counter[str] = collections.Counter()
    for lines, times, opened in _walk(hlo, trips):
        open_loops += opened
        for line in lines:
            match = _INSTRUCTION.match(line)
            if match is None:
                continue
            if cycles := _CYCLES.search(line):
                total += times * int(cycles[1])
                kernels += times
            elif match["opcode"] not in _FREE and not _COLLECTIVE.match(
                match["opcode"]
            ):
                unknown[match["opcode"]] += times
    return Cycles(total, kernels, dict(unknown), open_loops)


def collectives_of(hlo: str, mesh: Mesh, *, trips: int = 1) -> list[Counted]:
    """Every collective that a call runs, and how often."""
    # Those of all branches of a condition are there, since each may be taken.
    computations, _ = _computations(hlo)
    found = []
    for lines, times, _ in _walk(hlo, trips, every=True):
        text = "\n".join([*lines, *_fused(lines, computations)])
        found += [Counted(one, times) for one in find_collectives(text, mesh)]
    return found


def _fused(lines: list[str], computations: dict[str, list[str]]) -> Iterator[str]:
    """Lines of collectives inside of fusions, one of each chain of fusions."""
    seen = set()
    for line in lines:
        called = _FUSION.search(line)
        if called is None:
            continue
        for inner in computations.get(called[1], ()):
            match = _INSTRUCTION.match(inner)
            if match is None or not _COLLECTIVE.match(match["opcode"]):
                continue
            if match["opcode"].endswith("-done"):
                continue
            chain, name = _CHAIN.search(inner), _OPERATION.search(inner)
            key = (
                match["opcode"].removesuffix("-start"),
                chain[1] if chain else called[1],
                name[1] if name else "",
            )
            if key not in seen:
                seen.add(key)
                yield inner
