"""TPU chips and slices: public figures, and devices to compile for."""

import dataclasses
import importlib.util
import math
import os
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from churn_compare.suggestions import did_you_mean


class NoCompilerError(ValueError):
    """The TPU compiler is not installed."""


class Chip(NamedTuple):
    """The peaks of one device of a chip, as the compiler counts devices.

    Attributes:
        name: as in the name of a topology.
        kind: as `jax.Device.device_kind` has it.
        hbm: GiB of memory.
        room: GiB of it that the compiler gives to a program.
        flops: peak operations per second in bfloat16.
        bandwidth: bytes per second between chip and memory.
        clock: cycles per second.
        side: chips along the longest side that a slice can have.
        devices: per chip.
    """

    name: str
    kind: str
    hbm: float
    room: float
    flops: float
    bandwidth: float
    clock: float
    side: int
    devices: int = 1


# Memory, peak arithmetic and memory bandwidth are those of the pages "TPU v4", "TPU
# v5e", "TPU v5p" and "TPU v6e" of cloud.google.com/tpu/docs. A slice has at most
# 16 x 16 chips (v5e, v6e), 16 x 16 x 16 (v4) or 16 x 16 x 24 (v5p). The room is what
# the compiler names where it refuses a program that is too large.
#
# The clock is derived: peak arithmetic over 2 x the multiplications of one cycle, which
# are 4 or 8 units of 128 x 128 (v5e; v4 and v5p), or 4 times 256 x 256 (v6e). With it
# the compiler's estimate of a product of two matrices of 8192 x 8192 is 87 (v5e), 90
# (v4, v5p) and 70 % (v6e) of the peak. The compiler's v4 has one device per core, two
# per chip, so figures are halved there.
CHIPS = {
    chip.name: chip
    for chip in (
        Chip("v4", "TPU v4", 16, 15.25, 137.5e12, 614e9, 1.05e9, 16, devices=2),
        Chip("v5e", "TPU v5 lite", 16, 15.75, 197e12, 819e9, 1.5e9, 16),
        Chip("v5p", "TPU v5", 95, 95, 459e12, 2765e9, 1.75e9, 24),
        Chip("v6e", "TPU v6 lite", 32, 31.25, 918e12, 1640e9, 1.75e9, 16),
    )
}


@dataclasses.dataclass(frozen=True)
class Slice:
    """A grid of chips.

    Attributes:
        chip: kind of chip.
        grid: chips along every dimension.
    """

    chip: Chip
    grid: tuple[int, ...]

    @classmethod
    def parse(cls, name: str) -> "Slice":
        """From a name such as `v5e:4x4` or `v5p:2x2x1`.

        Raises:
            ValueError: there is no such chip or grid; the message says what there is.

        Example:
            >>> Slice.parse("v5e:4x8").devices
            32
        """
        kind, _, grid = name.partition(":")
        if kind not in CHIPS:
            hint = did_you_mean(kind, CHIPS, count=1)
            raise ValueError(
                f"unknown topology {name!r}: its chip must be one of "
                f"{', '.join(CHIPS)}, as in v5e:4x4 or v5p:2x2x1{hint}"
            )
        chip = CHIPS[kind]
        if not re.fullmatch(r"[1-9]\d*(x[1-9]\d*)+", grid):
            raise ValueError(
                f"topology {name!r} lacks its grid of chips, as in v5e:4x4 or v5p:2x2x1"
            )
        sizes = tuple(map(int, grid.split("x")))
        if max(sizes) > chip.side:
            raise ValueError(
                f"topology {name!r}: no side of a {kind} slice has more than "
                f"{chip.side} chips"
            )
        return cls(chip, sizes)  # the compiler refuses other grids that cannot be

    @property
    def name(self) -> str:
        """As `parse` takes it."""
        return f"{self.chip.name}:{'x'.join(map(str, self.grid))}"

    @property
    def chips(self) -> int:
        """Number of chips."""
        return math.prod(self.grid)

    @property
    def devices(self) -> int:
        """Number of devices for the compiler, which counts the cores of a v4."""
        return self.chips * self.chip.devices


def check_compiler() -> None:
    """Refuses to go on without the TPU compiler; says how to install it.

    Raises:
        NoCompilerError: libtpu is not installed.
    """
    if importlib.util.find_spec("libtpu") is None:
        raise NoCompilerError(
            "the TPU compiler, libtpu, is not installed; it needs no TPU: "
            'pip install "churn-jax[tpu]", or pip install libtpu'
        )


def devices_of(part: Slice) -> Sequence[Any]:
    """The slice's devices, to compile for; none of them has to be there."""
    check_compiler()
    # Nothing is asked of a TPU machine, and no chip has to be locked.
    os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")
    os.environ.setdefault("ALLOW_MULTIPLE_LIBTPU_LOAD", "1")
    from jax.experimental import topologies

    options = {}
    if max(part.grid) <= 2:  # else the compiler's hosts of 2 x 2 must divide it
        bounds = (*part.grid, 1)[:3]
        options["chips_per_host_bounds"] = (*bounds[:2], 1)
    try:
        found = topologies.get_topology_desc(
            platform="tpu", topology_name=part.name, **options
        ).devices
    except Exception as error:
        raise ValueError(
            f"the TPU compiler refuses the topology {part.name}: "
            f"{str(error).splitlines()[0]}"
        ) from error
    return found
