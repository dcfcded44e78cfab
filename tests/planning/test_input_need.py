"""What hosts must read: worked by hand, and the same however they are cut."""

import dataclasses
from typing import Any

import pytest

from churn_jax.planning.chips import CHIPS, images_per_second, input_need


def test_a_slice_worked_by_hand():
    """Four chips of 100 TFLOP/s, half used, 1 TFLOP an image: 200 images a second."""
    chip = dataclasses.replace(CHIPS["v5e"], flops=100e12)
    images = images_per_second(chip, 4, flops=1e12, utilisation=0.5)
    assert images == pytest.approx(200)
    need = input_need(images, 4, chips_per_host=2, file_bytes=1000, image_bytes=10)
    assert need == (2, 100, 100_000, 1000)


def test_two_devices_of_a_chip_train_together():
    """A v4 chip has two, each with half of its peak."""
    v4, v5e = CHIPS["v4"], CHIPS["v5e"]
    ratio = images_per_second(v4, 8, flops=1e9) / images_per_second(v5e, 8, flops=1e9)
    assert ratio == pytest.approx(275 / 197)


@pytest.mark.parametrize("chips_per_host", [1, 4, 8, 256])
def test_all_hosts_together_read_every_image(chips_per_host):
    need = input_need(1e6, 256, chips_per_host=chips_per_host)
    assert need.hosts * need.images == pytest.approx(1e6)
    assert need.hosts * need.file_bytes == pytest.approx(1e6 * 110e3)


def test_half_a_host_is_one():
    assert input_need(100.0, 4, chips_per_host=8).hosts == 1


@pytest.mark.parametrize("change", [{"chips": 0}, {"images": -1.0}, {"file_bytes": 0}])
def test_nothing_is_refused(change):
    given: dict[str, Any] = {"images": 1.0, "chips": 1, **change}
    with pytest.raises(ValueError, match="must be positive; got"):
        input_need(**given)
