"""Names of slices, public figures, images to deliver, and a missing compiler."""

import dataclasses
import importlib.util
from typing import Any

import pytest

from churn_jax.planning import CHIPS, NoCompilerError, Slice
from churn_jax.planning.chips import (
    check_compiler,
    devices_of,
    images_per_second,
    input_need,
)


@pytest.mark.parametrize(
    ("name", "chips", "devices"),
    [
        ("v5e:1x1", 1, 1),
        ("v5e:16x16", 256, 256),
        ("v4:2x2x1", 4, 8),
        ("v5p:2x2x4", 16, 16),
        ("v6e:4x8", 32, 32),
    ],
)
def test_a_slice_has_the_chips_of_its_grid_and_a_v4_two_cores_each(
    name, chips, devices
):
    found = Slice.parse(name)
    assert (found.name, found.chips, found.devices) == (name, chips, devices)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("v7:2x2", "one of v4, v5e, v5p, v6e"),
        ("v5", "one of v4"),
        ("v5e", "lacks its grid of chips, as in v5e:2x2"),
        ("v5e:4", "lacks its grid"),
        ("v5e:0x4", "lacks its grid"),
        ("v5e:2x2x1", "grid of 2 dimensions; got 3"),
        ("v4:2x2", "grid of 3 dimensions; got 2"),
        ("v5e:4x32", "no side of a v5e slice has more than 16 chips"),
        ("v5e:3x4", "first two sizes must be even"),
    ],
)
def test_a_name_that_is_no_slice_is_said(name, said):
    with pytest.raises(ValueError, match=said):
        Slice.parse(name)


@pytest.mark.parametrize("name", CHIPS)
def test_a_chips_public_figures_fit_each_other(name):
    """Units of 128 x 128, of which a v6e's are counted as four, two by two."""
    chip = CHIPS[name]
    units = {"v4": 4, "v5e": 4, "v5p": 8, "v6e": 16}[name]
    assert 2 * units * 128**2 * chip.clock == pytest.approx(chip.flops, rel=0.01)
    assert 0.95 * chip.hbm < chip.room <= chip.hbm  # which a program may use


def test_without_libtpu_it_is_said_how_to_install_it(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(NoCompilerError, match=r"pip install \"churn-jax\[tpu\]\""):
        check_compiler()
    with pytest.raises(NoCompilerError):
        devices_of(Slice.parse("v5e:2x2"))


def test_a_slice_worked_by_hand():
    """Four chips of 100 TFLOP/s, half used, 1 TFLOP an image: 200 images a second."""
    chip = dataclasses.replace(CHIPS["v5e"], flops=100e12)
    images = images_per_second(chip, 4, flops=1e12, utilisation=0.5)
    assert images == pytest.approx(200)
    need = input_need(images, 4, chips_per_host=2, file_bytes=1000, image_bytes=10)
    assert need == (2, 100, 100_000, 1000)
    # A v4 chip has two devices, each with half of its peak.
    v4, v5e = (images_per_second(CHIPS[n], 8, flops=1e9) for n in ("v4", "v5e"))
    assert v4 / v5e == pytest.approx(275 / 197)
    assert input_need(100.0, 4, chips_per_host=8).hosts == 1
    for chips_per_host in (1, 4, 8, 256):  # all hosts together read every image
        need = input_need(1e6, 256, chips_per_host=chips_per_host)
        assert need.hosts * need.images == pytest.approx(1e6)
        assert need.hosts * need.file_bytes == pytest.approx(1e6 * 110e3)
    for change in ({"chips": 0}, {"images": -1.0}, {"file_bytes": 0}):
        given: dict[str, Any] = {"images": 1.0, "chips": 1, **change}
        with pytest.raises(ValueError, match="must be positive; got"):
            input_need(**given)
