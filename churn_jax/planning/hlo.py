"""A compiled program as text: what it moves between devices, its loops and its cycles.

A computation that a loop repeats counts as often as the loop turns. Fusions carry an
estimate of their own, so only collectives are looked at inside them: one that overlaps
with arithmetic is written in every fusion that it overlaps with.
"""

import dataclasses
import math
import re
from collections.abc import Iterator

import numpy as np
from jax.sharding import Mesh

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


_KINDS = (
    "all-reduce",
    "all-gather",
    "all-to-all",
    "ragged-all-to-all",
    "reduce-scatter",
    "collective-permute",
    "collective-broadcast",
)
# `%name = <shape> <kind>(operands), attributes`; `-done` halves carry no groups.
_LINE = re.compile(
    r"=\s+(?P<shape>\(.*?\)|\S+)\s+(?P<kind>"
    + "|".join(_KINDS)
    + r")(?P<start>-start)?\("
)
_ARRAY = re.compile(r"\b(?P<dtype>pred|[a-z]+\d+\w*)\[(?P<dims>[\d,]*)\]")
_LISTED = re.compile(r"replica_groups=\{(?P<groups>(?:\{[\d,]*\},?)*)\}")
_IOTA = re.compile(
    r"replica_groups=\[(?P<dims>[\d,]+)\]<=\[(?P<source>[\d,]+)\]"
    r"(?:T\((?P<order>[\d,]+)\))?"
)
# Since jax 0.12: the mesh of the program and the axes that take part.
_MESH = re.compile(
    r"replica_groups=mesh\[(?P<axes>'\w+'=\d+(?:,'\w+'=\d+)*)\] "
    r"\{(?P<over>'\w+'(?:,'\w+')*)\}"
)
_PAIRS = re.compile(r"source_target_pairs=\{(?P<groups>(?:\{[\d,]*\},?)*)\}")


@dataclasses.dataclass(frozen=True)
class Collective:
    """One collective operation of a compiled program.

    Attributes:
        kind: its HLO name, without `-start`.
        axes: mesh axes along which the devices that take part differ.
        parts: bytes of each array that it yields on one device.
        times: how often one call of the program runs it.
    """

    kind: str
    axes: tuple[str, ...]
    parts: tuple[int, ...]
    times: int = 1

    @property
    def bytes(self) -> int:
        """Bytes that it yields on one device."""
        return sum(self.parts)


def _integers(text: str) -> list[int]:
    return [int(number) for number in text.split(",") if number]


def _itemsize(dtype: str) -> float:
    if dtype == "pred":
        return 1.0
    bits = re.search(r"\d+", dtype)
    assert bits is not None
    return int(bits.group()) / 8


def _parts(shape: str, kind: str, start: bool) -> tuple[int, ...]:
    found = [(m["dtype"], m["dims"]) for m in _ARRAY.finditer(shape)]
    if start and kind != "all-reduce":  # (operands, results, up to two context words)
        for _ in range(2):
            if len(found) > 2 and found[-1] == ("u32", ""):
                found.pop()
        found = found[len(found) // 2 :]
    return tuple(
        math.ceil(_itemsize(dtype) * math.prod(_integers(dims)))
        for dtype, dims in found
    )


def _groups(line: str, devices: int) -> list[list[int]]:
    """The groups of devices that exchange something, by position in the mesh."""
    if match := _IOTA.search(line):
        source = _integers(match["source"])
        order = _integers(match["order"] or "") or range(len(source))
        numbers = np.arange(math.prod(source)).reshape(source).transpose(order)
        return numbers.reshape(_integers(match["dims"])).tolist()
    if match := _MESH.search(line):
        sizes = {
            name: int(size)
            for name, size in re.findall(r"'(\w+)'=(\d+)", match["axes"])
        }
        over = re.findall(r"\w+", match["over"])
        order = [name for name in sizes if name not in over] + over
        numbers = np.arange(math.prod(sizes.values())).reshape(list(sizes.values()))
        together = numbers.transpose([list(sizes).index(name) for name in order])
        return together.reshape(-1, math.prod(sizes[n] for n in over)).tolist()
    if match := _LISTED.search(line) or _PAIRS.search(line):
        groups = re.findall(r"\{([\d,]*)\}", match["groups"])
        return [_integers(group) for group in groups] or [list(range(devices))]
    raise ValueError(f"no groups of devices in {line.strip()[:300]!r}")


def find_collectives(hlo: str, mesh: Mesh) -> list[Collective]:
    """Every collective of a program compiled for `mesh`."""
    shape = tuple(mesh.shape.values())

    def axes(group: list[int]) -> Iterator[str]:
        coordinates = np.array(np.unravel_index(group, shape))
        for name, row in zip(mesh.axis_names, coordinates, strict=True):
            if np.ptp(row):
                yield name

    found = []
    for line in hlo.splitlines():
        if match := _LINE.search(line):
            groups = _groups(line, mesh.size)
            crossed = {name for group in groups if group for name in axes(group)}
            along = tuple(name for name in mesh.axis_names if name in crossed)
            parts = _parts(match["shape"], match["kind"], bool(match["start"]))
            found.append(Collective(match["kind"], along, parts))
    return found


@dataclasses.dataclass(frozen=True)
class Cycles:
    """The compiler's estimate of a program's cycles on one device."""

    total: int  # over all kernels, loops counted as often as they turn
    kernels: int  # that have an estimate
    unknown: int  # that have none, without collectives
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


def _walk(hlo: str, *, every: bool = False) -> Iterator[tuple[list[str], int, int]]:
    """`(lines, times, open loops)` of every computation that the program runs."""
    # The most expensive branch of a condition stands for all, unless `every`.
    computations, entry = _computations(hlo)

    def cost(name: str) -> int:
        return sum(times * _own_cycles(lines) for lines, times, _ in visit(name, 1))

    def visit(name: str, times: int):
        opened = 0
        called: list[tuple[str, int]] = []
        for line in computations[name]:
            opcode = _opcode(line)
            if opcode == "while":
                body, condition = (_one(key, line) for key in ("body", "condition"))
                known = _turns(line, computations[condition], computations[body])
                opened += known is None  # such a loop is taken to turn once
                called.append((body, times * (1 if known is None else known)))
            elif opcode in ("call", "async-start"):
                called += [(found, times) for found in _CALLED.findall(line)]
            elif opcode == "conditional":
                if branches := _BRANCHES.search(line):
                    names = re.findall(r"[\w.\-]+", branches[1])
                else:
                    names = _EITHER.findall(line)
                if names and not every:
                    names = [max(names, key=cost)]
                called += [(found, times) for found in names]
        yield computations[name], times, opened
        for one in called:
            yield from visit(*one)

    yield from visit(entry, 1)


def _opcode(line: str) -> str:
    """The operation of an instruction; empty for any other line."""
    match = _INSTRUCTION.match(line)
    return "" if match is None else match["opcode"]


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


def cycles_of(hlo: str) -> Cycles:
    """Adds up the TPU compiler's estimates."""
    total = kernels = unknown = open_loops = 0
    for lines, times, opened in _walk(hlo):
        open_loops += opened
        for line in lines:
            opcode = _opcode(line)
            if opcode and (cycles := _CYCLES.search(line)):
                total += times * int(cycles[1])
                kernels += times
            elif opcode and opcode not in _FREE and not _COLLECTIVE.match(opcode):
                unknown += times
    return Cycles(total, kernels, unknown, open_loops)


def collectives_of(hlo: str, mesh: Mesh) -> list[Collective]:
    """Every collective that a call runs, and how often."""
    # Those of all branches of a condition are there, since each may be taken.
    computations, _ = _computations(hlo)
    found = []
    for lines, times, _ in _walk(hlo, every=True):
        text = "\n".join([*lines, *_fused(lines, computations)])
        for one in find_collectives(text, mesh):
            found.append(dataclasses.replace(one, times=times))
    return found


def _fused(lines: list[str], computations: dict[str, list[str]]) -> Iterator[str]:
    """Lines of collectives inside of fusions, one of each chain of fusions."""
    seen = set()
    for line in lines:
        called = found[1] if (found := _FUSION.search(line)) else ""
        for inner in computations.get(called, ()):
            opcode = _opcode(inner)
            if not _COLLECTIVE.match(opcode) or opcode.endswith("-done"):
                continue
            chain, name = _CHAIN.search(inner), _OPERATION.search(inner)
            key = (
                opcode.removesuffix("-start"),
                chain[1] if chain else called,
                name[1] if name else "",
            )
            if key not in seen:
                seen.add(key)
                yield inner
