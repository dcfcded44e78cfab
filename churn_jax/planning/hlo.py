"""A compiled program as text: what it moves between devices, its loops and its cycles.

A computation that a loop repeats counts as often as the loop turns. Fusions carry an
estimate of their own, so only collectives are looked at inside them: one that overlaps
with arithmetic is written in every fusion that it overlaps with.
"""

import dataclasses
import math
import re
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from jax.sharding import Mesh

_HEADER = re.compile(r"^(?P<entry>ENTRY )?%?(?P<name>[\w.\-]+) \(.*\{$")
_INSTRUCTION = re.compile(
    r"^\s+(?P<root>ROOT )?%?(?P<name>[\w.\-]+) = (?P<shape>.*?) "
    r"(?P<opcode>[a-z][\w\-]*)\("
)
_CYCLES = re.compile(r'"estimated_cycles":"(\d+)"')
_TRIPS = re.compile(r'"known_trip_count":\{"n":"(\d+)"\}')
_CALLED = re.compile(r"(?:body|to_apply|calls)=%?([\w.\-]+)")
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
    r"(ragged-)?(all-reduce|all-gather|all-to-all|reduce-scatter|collective)"
)
_ARRAY = re.compile(r"\b(?P<dtype>pred|[a-z]+(?P<bits>\d+)\w*)\[(?P<dims>[\d,]*)\]")
# Groups of devices: in a list (pairs of a permutation, too), as an array in another
# order, or since jax 0.12 by the axes that take part.
_LISTED = re.compile(
    r"(?:replica_groups|source_target_pairs)=\{(?P<groups>(?:\{[\d,]*\},?)*)\}"
)
_IOTA = re.compile(
    r"replica_groups=\[(?P<dims>[\d,]+)\]<=\[(?P<source>[\d,]+)\]"
    r"(?:T\((?P<order>[\d,]+)\))?"
)
_AXES = re.compile(r"replica_groups=mesh\[.*?\] \{(?P<over>'\w+'(?:,'\w+')*)\}")


class _Instruction(NamedTuple):
    root: bool
    name: str
    shape: str
    opcode: str
    line: str

    @property
    def cycles(self) -> int | None:
        """The compiler's estimate, if it has one."""
        found = _CYCLES.search(self.line)
        return int(found[1]) if found else None

    @property
    def operands(self) -> list[str]:
        text = self.line.partition(f" {self.opcode}(")[2]
        text = re.sub(r"/\*.*?\*/", "", text).partition(")")[0]
        return [name.strip().lstrip("%") for name in text.split(",")]

    @property
    def collective(self) -> str:
        """Its kind without `-start`; empty for others and for halves that are done."""
        done = self.opcode.endswith("-done")
        if done or not _COLLECTIVE.match(self.opcode):
            return ""
        return self.opcode.removesuffix("-start")


@dataclasses.dataclass(frozen=True)
class Collective:
    """One collective operation of a compiled program."""

    kind: str  # its HLO name, without `-start`
    axes: tuple[str, ...]  # of the mesh, along which the devices that take part differ
    parts: tuple[int, ...]  # bytes of each array that it yields on one device
    times: int = 1  # how often one call of the program runs it

    @property
    def bytes(self) -> int:
        """Bytes that it yields on one device."""
        return sum(self.parts)


def _integers(text: str) -> list[int]:
    return [int(number) for number in text.split(",") if number]


def _parts(one: _Instruction) -> tuple[int, ...]:
    found = [
        (int(m["bits"] or 8), _integers(m["dims"]), m[0])
        for m in _ARRAY.finditer(one.shape)
    ]
    if one.opcode.endswith("-start") and one.collective != "all-reduce":
        for _ in range(2):  # (operands, results, up to two context words)
            if len(found) > 2 and found[-1][2] == "u32[]":
                found.pop()
        found = found[len(found) // 2 :]
    return tuple(math.ceil(bits / 8 * math.prod(dims)) for bits, dims, _ in found)


def _axes(line: str, mesh: Mesh) -> tuple[str, ...]:
    """The mesh axes along which devices of a group differ."""
    if match := _AXES.search(line):
        over = re.findall(r"\w+", match["over"])
        return tuple(n for n in mesh.axis_names if n in over and mesh.shape[n] > 1)
    groups: list[list[int]]
    if match := _IOTA.search(line):
        source = _integers(match["source"])
        order = _integers(match["order"] or "") or range(len(source))
        numbers = np.arange(math.prod(source)).reshape(source).transpose(order)
        groups = numbers.reshape(_integers(match["dims"])).tolist()
    elif match := _LISTED.search(line):
        listed = re.findall(r"\{([\d,]*)\}", match["groups"])
        groups = [_integers(group) for group in listed] or [list(range(mesh.size))]
    else:
        raise ValueError(f"no groups of devices in {line.strip()[:300]!r}")
    crossed = set()
    for group in filter(None, groups):
        places = np.unravel_index(group, tuple(mesh.shape.values()))
        crossed |= {n for n, row in zip(mesh.axis_names, places) if np.ptp(row)}
    return tuple(name for name in mesh.axis_names if name in crossed)


class Cycles(NamedTuple):
    """The compiler's estimate of a program's cycles on one device."""

    total: int  # over all kernels, loops counted as often as they turn
    unknown: int  # kernels without an estimate, and loops of unknown length


def _computations(hlo: str) -> tuple[dict[str, list[_Instruction]], str]:
    """Instructions of every computation by name, and the name of the first."""
    found: dict[str, list[_Instruction]] = {}
    own: list[_Instruction] = []
    entry = ""
    for line in hlo.splitlines():
        if match := _HEADER.match(line):
            own = found.setdefault(match["name"], [])
            entry = match["name"] if match["entry"] else entry
        elif match := _INSTRUCTION.match(line):
            root, name, shape, opcode = match.groups()
            own.append(_Instruction(bool(root), name, shape, opcode, line))
    if not entry:
        raise ValueError("the compiled program has no entry")
    return found, entry


def _walk(
    computations: dict[str, list[_Instruction]], name: str, *, every: bool = False
) -> Iterator[tuple[list[_Instruction], int, int]]:
    """`(instructions, times, open loops)` of all that is run, or of `every` branch."""
    # Otherwise the most expensive branch of a condition stands for all.

    def cost(name: str) -> int:
        return sum(
            times * (one.cycles or 0) for own, times, _ in visit(name, 1) for one in own
        )

    def visit(name: str, times: int):
        opened = 0
        called: list[tuple[str, int]] = []
        for one in computations[name]:
            if one.opcode == "while":
                body, condition = (
                    re.findall(rf"{key}=%?([\w.\-]+)", one.line)[0]
                    for key in ("body", "condition")
                )
                known = _turns(one, computations[condition], computations[body])
                opened += known is None  # such a loop is taken to turn once
                called.append((body, times * (1 if known is None else known)))
            elif one.opcode in ("call", "async-start"):
                called += [(found, times) for found in _CALLED.findall(one.line)]
            elif one.opcode == "conditional":
                if branches := _BRANCHES.search(one.line):
                    names = re.findall(r"[\w.\-]+", branches[1])
                else:
                    names = _EITHER.findall(one.line)
                if names and not every:
                    names = [max(names, key=cost)]
                called += [(found, times) for found in names]
        yield computations[name], times, opened
        for found, count in called:
            yield from visit(found, count)

    yield from visit(name, 1)


def _turns(
    loop: _Instruction, condition: list[_Instruction], body: list[_Instruction]
) -> int | None:
    """How often a loop turns, where the text says so."""
    # The TPU compiler says it by a condition `counter < constant` and a body that adds
    # to the counter, which begins at 0: a `lax.scan`, also where two of its turns were
    # made one. A number that the body chooses, as where a step is repeated, is no
    # counter.
    if known := _TRIPS.search(loop.line):
        return int(known[1])

    def constants(own: list[_Instruction]) -> dict[str, int]:
        found = {one.name: one.operands[0] for one in own if one.opcode == "constant"}
        return {name: int(text) for name, text in found.items() if text.isdigit()}

    tests = [one for one in condition if one.root and "direction=LT" in one.line]
    if not tests or tests[0].opcode != "compare":
        return None
    counter, limit = tests[0].operands
    taken = next((one for one in condition if one.name == counter), None)
    index = re.search(r"index=(\d+)", taken.line) if taken else None
    results = next((one.operands for one in body if one.root), [])
    most = constants(condition).get(limit)
    if index is None or most is None or int(index[1]) >= len(results):
        return None
    made = next((one for one in body if one.name == results[int(index[1])]), None)
    if made is None or made.opcode != "add":
        return None
    steps = constants(body)
    step = next((steps[name] for name in made.operands if name in steps), 1)
    return -(-most // max(step, 1))


def cycles_of(hlo: str) -> Cycles:
    """Adds up the TPU compiler's estimates."""
    total = unknown = 0
    for instructions, times, opened in _walk(*_computations(hlo)):
        unknown += opened
        for one in instructions:
            if one.cycles is not None:
                total += times * one.cycles
            elif one.opcode not in _FREE and not _COLLECTIVE.match(one.opcode):
                unknown += times
    return Cycles(total, unknown)


def collectives_of(hlo: str, mesh: Mesh) -> list[Collective]:
    """Every collective that a call runs, and how often."""
    # Those of all branches of a condition are there, since each may be taken.
    computations, entry = _computations(hlo)
    return [
        Collective(one.collective, _axes(one.line, mesh), _parts(one), times)
        for own, times, _ in _walk(computations, entry, every=True)
        for one in (*own, *_fused(own, computations))
        if one.collective
    ]


def _fused(
    instructions: list[_Instruction], computations: dict[str, list[_Instruction]]
) -> list[_Instruction]:
    """Collectives inside of fusions, one of each chain of fusions."""
    found: dict[tuple, _Instruction] = {}
    for one in instructions:
        called = _CALLED.search(one.line) if one.opcode == "fusion" else None
        if called is None:
            continue
        for inner in computations.get(called[1], ()):
            if inner.collective:
                chain, name = _CHAIN.search(inner.line), _OPERATION.search(inner.line)
                group = chain[1] if chain else called[1]
                key = (inner.collective, group, name[1] if name else "")
                found.setdefault(key, inner)
    return list(found.values())
