"""What a compiled program moves between devices, read from its HLO text."""

import dataclasses
import math
import re
from collections.abc import Iterator

import numpy as np
from jax.sharding import Mesh

__all__ = ["Collective", "find_collectives"]

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
    """

    kind: str
    axes: tuple[str, ...]
    parts: tuple[int, ...]

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
        match = _LINE.search(line)
        if match is None:
            continue
        groups = _groups(line, mesh.size)
        crossed = {name for group in groups if group for name in axes(group)}
        found.append(
            Collective(
                match["kind"],
                tuple(name for name in mesh.axis_names if name in crossed),
                _parts(match["shape"], match["kind"], bool(match["start"])),
            )
        )
    return found
