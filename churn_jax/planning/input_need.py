"""What the hosts of a slice must read so that its chips do not wait for images."""

import math
from typing import NamedTuple

from churn_jax.planning.chips import Chip

__all__ = ["InputNeed", "images_per_second", "input_need"]


class InputNeed(NamedTuple):
    """What one host must deliver, per second.

    Attributes:
        hosts: how many there are.
        images: that a host reads, decodes and crops.
        file_bytes: of the files that they are read from.
        placed_bytes: that go to its chips.
    """

    hosts: int
    images: float
    file_bytes: float
    placed_bytes: float


def images_per_second(
    chip: Chip, chips: int, *, flops: float, utilisation: float = 0.4
) -> float:
    """Images that a slice trains on: `chips u peak / flops`.

    Args:
        chip: of the slice.
        chips: how many.
        flops: operations that an image takes, of all networks that see it: a step that
            trains M members on the same images takes M times those of one network.
        utilisation: u, the share of the peak that a step reaches.

    Returns:
        Images per second, those of all replicas together.

    Example:
        >>> from churn_jax.planning.chips import CHIPS
        >>> round(images_per_second(CHIPS["v5e"], 256, flops=24.6e9))
        820033
    """
    return chips * chip.devices * chip.flops * utilisation / flops


def input_need(
    images: float,
    chips: int,
    *,
    chips_per_host: int = 8,
    file_bytes: float = 110e3,
    image_bytes: float = 224 * 224 * 3,
) -> InputNeed:
    """What one host must deliver if every replica draws images of its own.

    Replicas that share order and crops, and lie on one host, need less.

    Args:
        images: per second, of the whole slice.
        chips: of the slice.
        chips_per_host: 8 for v5e, whose machines are also lent as two of 4; 4 for v4
            and v5p.
        file_bytes: of an image's file; 110 kB is ImageNet's mean.
        image_bytes: of an image on its way to a chip, uint8.

    Returns:
        `InputNeed`.

    Raises:
        ValueError: a number is not positive.

    Example:
        >>> need = input_need(820033, 256)
        >>> need.hosts, round(need.images), round(need.file_bytes / 1e9, 2)
        (32, 25626, 2.82)
    """
    if min(images, chips, chips_per_host, file_bytes, image_bytes) <= 0:
        raise ValueError(
            "images, chips and bytes must be positive; got "
            f"{(images, chips, chips_per_host, file_bytes, image_bytes)}"
        )
    hosts = math.ceil(chips / chips_per_host)
    each = images / hosts
    return InputNeed(hosts, each, each * file_bytes, each * image_bytes)
