"""Names of slices, public figures, and a missing compiler."""

import importlib.util

import pytest

from churn_jax.planning import Slice
from churn_jax.planning.chips import CHIPS, NoCompilerError, check_compiler, devices_of


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
        ("v5e:4", "lacks its grid"),
        ("v5e:0x4", "lacks its grid"),
        ("v5e:4x32", "no side of a v5e slice has more than 16 chips"),
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


def test_a_slice_that_cannot_be_is_refused_by_the_compiler():
    pytest.importorskip("libtpu")
    with pytest.raises(ValueError, match="refuses the topology v5e:3x4: INVALID"):
        devices_of(Slice.parse("v5e:3x4"))


def test_without_libtpu_it_is_said_how_to_install_it(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(NoCompilerError, match=r"pip install \"churn-jax\[tpu\]\""):
        check_compiler()
    with pytest.raises(NoCompilerError):
        devices_of(Slice.parse("v5e:2x2"))
