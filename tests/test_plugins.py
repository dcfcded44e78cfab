"""A plugin that does not fit the installed JAX is named, with what repairs it."""

import importlib.metadata
import os
import re
import subprocess
import sys

import pytest

from churn_jax._plugins import misfits

JAX = importlib.metadata.version("jax")
LIBTPU = next(
    found[1]
    for line in importlib.metadata.requires("jax")
    if (found := re.match(r"libtpu==([\d.]*\d)", line))
)


def install(folder, name, version):
    """A distribution that has metadata and an empty package."""
    place = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    place.mkdir()
    (folder / name.replace("-", "_")).mkdir()
    (folder / name.replace("-", "_") / "__init__.py").touch()
    (place / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    )


def test_importing_says_which_plugin_does_not_fit_and_loads_no_jax(tmp_path):
    install(tmp_path, "jax-cuda12-plugin", "0.6.2")
    path = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
    done = subprocess.run(
        [sys.executable, "-c", "import sys, churn_jax; print('jax' in sys.modules)"],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
    )
    assert done.stdout == "False\n"
    assert f"jax-cuda12-plugin 0.6.2 does not fit jax {JAX}" in done.stderr
    assert f"pip install 'jax[cuda12]=={JAX}'" in done.stderr


@pytest.mark.parametrize(
    ("name", "version", "fits"),
    [
        ("jax-cuda13-plugin", JAX, True),
        ("jax-cuda13-plugin", JAX + "1", False),
        ("libtpu", LIBTPU, True),
        ("libtpu", LIBTPU + ".7", True),
        ("libtpu", LIBTPU + "7", False),
    ],
)
def test_the_versions_that_fit_are_those_of_jax_s_extras(
    name, version, fits, tmp_path, monkeypatch
):
    install(tmp_path, name, version)
    monkeypatch.syspath_prepend(tmp_path)
    assert [name in sentence for sentence in misfits()] == [True] * (not fits)
