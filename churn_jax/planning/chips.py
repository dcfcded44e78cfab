"""TPU chips and slices: public figures, devices to compile for, images to deliver."""

import dataclasses
import importlib.util
import math
import os
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from churn_compare.suggestions import did_you_mean

__all__ = [
    "CHIPS",
    "Chip",
    "InputNeed",
    "NoCompilerError",
    "Slice",
    "check_compiler",
    "devices_of",
    "images_per_second",
    "input_need",
]


class NoCompilerError(ValueError):
    """The TPU compiler is not installed."""


@dataclasses.dataclass(frozen=True)
class Chip:
    """What one device of a chip can do, as the compiler counts devices.

    Attributes:
        name: as in the name of a topology.
        kind: as `jax.Device.device_kind` has it.
        hbm: bytes of memory.
        room: bytes of it that the compiler gives to a program.
        flops: peak operations per second in bfloat16.
        bandwidth: bytes per second between chip and memory.
        link: bytes per second that one link to a neighbour carries in one direction.
        clock: cycles per second.
        dims: of the grid of chips, 2 or 3.
        side: chips along the longest side that a slice can have.
        devices: per chip.
    """

    name: str
    kind: str
    hbm: int
    room: int
    flops: float
    bandwidth: float
    link: float
    clock: float
    dims: int
    side: int
    devices: int = 1


_GIB, _TERA, _GIGA = 2**30, 1e12, 1e9

# Memory, peak arithmetic, memory bandwidth and interconnect are those of the pages "TPU
# v4", "TPU v5e", "TPU v5p" and "TPU v6e" of cloud.google.com/tpu/docs. The interconnect
# is given there per chip in Gbps (2400, 1600, 4800, 3584), and is shared here among the
# links of a chip, four in a grid of two dimensions and six in one of three. A slice has
# at most 16 x 16 chips (v5e, v6e), 16 x 16 x 16 (v4) or 16 x 16 x 24 (v5p). The room is
# what the compiler names where it refuses a program that is too large.
#
# The clock is derived: peak arithmetic over 2 x the multiplications of one cycle, which
# are 4 or 8 units of 128 x 128 (v5e; v4 and v5p), or 4 times 256 x 256 (v6e). With it
# the compiler's estimate of a product of two matrices of 8192 x 8192 is 87 (v5e), 90
# (v4, v5p) and 70 % (v6e) of the peak. The compiler's v4 has one device per core, two
# per chip, so figures are halved there.
CHIPS = {
    "v4": Chip(
        name="v4",
        kind="TPU v4",
        hbm=16 * _GIB,
        room=int(15.25 * _GIB),
        flops=137.5 * _TERA,
        bandwidth=614 * _GIGA,
        link=2400 / 8 / 6 * _GIGA,
        clock=1.05e9,
        dims=3,
        side=16,
        devices=2,
    ),
    "v5e": Chip(
        name="v5e",
        kind="TPU v5 lite",
        hbm=16 * _GIB,
        room=int(15.75 * _GIB),
        flops=197 * _TERA,
        bandwidth=819 * _GIGA,
        link=1600 / 8 / 4 * _GIGA,
        clock=1.5e9,
        dims=2,
        side=16,
    ),
    "v5p": Chip(
        name="v5p",
        kind="TPU v5",
        hbm=95 * _GIB,
        room=95 * _GIB,
        flops=459 * _TERA,
        bandwidth=2765 * _GIGA,
        link=4800 / 8 / 6 * _GIGA,
        clock=1.75e9,
        dims=3,
        side=24,
    ),
    "v6e": Chip(
        name="v6e",
        kind="TPU v6 lite",
        hbm=32 * _GIB,
        room=int(31.25 * _GIB),
        flops=918 * _TERA,
        bandwidth=1640 * _GIGA,
        link=3584 / 8 / 4 * _GIGA,
        clock=1.75e9,
        dims=2,
        side=16,
    ),
}


@dataclasses.dataclass(frozen=True)
class Slice:
    """A grid of chips.

    Attributes:
        chip: of which kind.
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
            example = "x".join(["2"] * chip.dims)
            raise ValueError(
                f"topology {name!r} lacks its grid of chips, as in {kind}:{example}"
            )
        sizes = tuple(map(int, grid.split("x")))
        if len(sizes) != chip.dims:
            raise ValueError(
                f"topology {name!r}: {kind} has a grid of {chip.dims} dimensions; got "
                f"{len(sizes)}"
            )
        if max(sizes) > chip.side:
            raise ValueError(
                f"topology {name!r}: no side of a {kind} slice has more than "
                f"{chip.side} chips"
            )
        # Chips come in hosts of 2 x 2; smaller slices are parts of one.
        if max(sizes) > 2 and any(size % 2 for size in sizes[:2]):
            raise ValueError(
                f"topology {name!r}: chips come in hosts of 2 x 2, so the first two "
                "sizes must be even, or none above 2"
            )
        return cls(chip, sizes)

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


class InputNeed(NamedTuple):
    """What one host must deliver, per second."""

    hosts: int  # how many there are
    images: float  # that a host reads, decodes and crops
    file_bytes: float  # of the files that they are read from
    placed_bytes: float  # that go to its chips


def images_per_second(
    chip: Chip, chips: int, *, flops: float, utilisation: float = 0.4
) -> float:
    """Images per second of all replicas that a slice trains: `chips u peak / flops`."""
    # M members that are trained on the same images take M times the operations of one.
    return chips * chip.devices * chip.flops * utilisation / flops


def input_need(
    images: float,
    chips: int,
    *,
    chips_per_host: int = 8,
    file_bytes: float = 110e3,
    image_bytes: float = 224 * 224 * 3,
) -> InputNeed:
    """What one host must deliver if every replica draws images of its own."""
    # Replicas that share order and crops, and lie on one host, need less. A host has 8
    # chips of v5e (also lent as two of 4), 4 of v4 and v5p; 110 kB is the mean of
    # ImageNet's files.
    if min(images, chips, chips_per_host, file_bytes, image_bytes) <= 0:
        raise ValueError(
            "images, chips and bytes must be positive; got "
            f"{(images, chips, chips_per_host, file_bytes, image_bytes)}"
        )
    hosts = math.ceil(chips / chips_per_host)
    each = images / hosts
    return InputNeed(hosts, each, each * file_bytes, each * image_bytes)
