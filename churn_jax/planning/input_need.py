"""What the hosts of a slice must read so that its chips do not wait for images."""

import math
from typing import NamedTuple

from churn_jax.planning.chips import Chip

__all__ = ["InputNeed", "images_per_second", "input_need"]


class InputNeed(NamedTuple):
    """What one host must deliver, per second."""

    hosts: int  # how many there are
    images: float  # that a host reads, decodes and crops
    file_bytes: float  # of the files that they are read from
    placed_bytes: float  # that go to its chips


def images_per_second(
    chip: Chip, chips: int, *, flops: float, utilisation: float = 0.4
) -> float:
    """Images of all replicas that a slice trains on: `chips u peak / flops`."""
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
    # Replicas that share order and crops, and lie on one host, need less. A v5e host
    # has 8 chips, v4 and v5p 4; 110 kB is ImageNet's mean file.
    if min(images, chips, chips_per_host, file_bytes, image_bytes) <= 0:
        raise ValueError(
            "images, chips and bytes must be positive; got "
            f"{(images, chips, chips_per_host, file_bytes, image_bytes)}"
        )
    hosts = math.ceil(chips / chips_per_host)
    each = images / hosts
    return InputNeed(hosts, each, each * file_bytes, each * image_bytes)
