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
    """The peaks of one device of a chip, as the compiler counts devices."""

    name: str  # as in the name of a topology
    kind: str  # as `jax.Device.device_kind` has it
    room: float  # GiB of memory that the compiler gives to a program
    flops: float  # peak operations per second in bfloat16
    bandwidth: float  # bytes per second between chip and memory
    clock: float  # cycles per second
    devices: int = 1  # per chip


# Peak arithmetic and memory bandwidth are those of the pages "TPU v4", "TPU v5e", "TPU
# v5p" and "TPU v6e" of cloud.google.com/tpu/docs. The room is what the compiler names
# where it refuses a program that is too large.
#
# The clock is derived: peak arithmetic over 2 x the multiplications of one cycle, which
# are 4 or 8 units of 128 x 128 (v5e; v4 and v5p), or 4 times 256 x 256 (v6e). With it
# the compiler's estimate of a product of two matrices of 8192 x 8192 is 87 (v5e), 90
# (v4, v5p) and 70 % (v6e) of the peak. The compiler's v4 has one device per core, two
# per chip, so figures are halved there.
CHIPS = {
    chip.name: chip
    for chip in (
        Chip("v4", "TPU v4", 15.25, 137.5e12, 614e9, 1.05e9, devices=2),
        Chip("v5e", "TPU v5 lite", 15.75, 197e12, 819e9, 1.5e9),
        Chip("v5p", "TPU v5", 95, 459e12, 2765e9, 1.75e9),
        Chip("v6e", "TPU v6 lite", 31.25, 918e12, 1640e9, 1.75e9),
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
            ValueError: the chip is unknown, or the text has no grid.

        Example:
            >>> Slice.parse("v5e:4x8").devices
            32
        """
        kind, _, grid = name.partition(":")
        if kind not in CHIPS or not re.fullmatch(r"[1-9]\d*(x[1-9]\d*)+", grid):
            hint = "" if kind in CHIPS else did_you_mean(kind, CHIPS, count=1)
            raise ValueError(
                f"topology {name!r} must be one of {', '.join(CHIPS)} with its grid of "
                f"chips, as in v5e:4x4 or v5p:2x2x1{hint}"
            )
        # The compiler refuses grids that cannot be.
        return cls(CHIPS[kind], tuple(map(int, grid.split("x"))))

    @property
    def name(self) -> str:
        """As `parse` takes it."""
        return f"{self.chip.name}:{'x'.join(map(str, self.grid))}"

    @property
    def devices(self) -> int:
        """Number of devices for the compiler, which counts the cores of a v4."""
        return math.prod(self.grid) * self.chip.devices


def check_compiler() -> None:
    """Refuses to go on without the TPU compiler; says how to install it."""
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
        return topologies.get_topology_desc(
            platform="tpu", topology_name=part.name, **options
        ).devices
    except Exception as error:
        raise ValueError(
            f"the TPU compiler refuses the topology {part.name}: "
            f"{str(error).splitlines()[0]}"
        ) from error
