"""Eight CPU devices and strict rank promotion for every test."""

import contextlib
import ctypes
import gc
import os
from pathlib import Path

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")

import jax
import numpy as np
import pytest

if os.environ.get("JAX_DISABLE_MOST_OPTIMIZATIONS"):  # as the Makefile has it
    # One part per program and XLA's older emitters save a third of the compilation
    # that is left. JAX 0.11.2 has those no more, and an unknown flag ends the process.
    flags = ["--xla_cpu_parallel_codegen_split_count=1"]
    if jax.__version_info__ < (0, 11, 2):
        flags.append("--xla_cpu_use_fusion_emitters=false")
    os.environ.setdefault("XLA_FLAGS", " ".join(flags))

jax.config.update("jax_num_cpu_devices", 8)
jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_traceback_in_locations_limit", 0)  # a tenth of tracing

_MOST_BYTES = 3e9  # of memory, after which compiled programs are dropped


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.fixture
def strict_dtypes():
    """Strict dtype promotion, for tests of losses and metrics."""
    with jax.numpy_dtype_promotion("strict"):
        yield


@pytest.fixture
def blocks_of(monkeypatch):
    """Makes training look up after every so many updates instead of every second."""
    from churn_jax.training import loop

    def fix(updates):
        monkeypatch.setattr(loop, "_FIRST_BLOCK", updates)
        monkeypatch.setattr(loop, "_next_block", lambda done, seconds: updates)

    return fix


@pytest.fixture(scope="session")
def compilation_cache(tmp_path_factory):
    """Large programs are compiled once, whichever worker needs them first.

    Small ones take as long to read as to compile.

    Returns:
        The folder; give it to subprocesses as `JAX_COMPILATION_CACHE_DIR`.
    """
    from jax.experimental.compilation_cache import compilation_cache as cache

    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "compiled"
    settings = {
        "jax_compilation_cache_dir": str(folder),
        "jax_persistent_cache_min_compile_time_secs": 0.1,
        "jax_persistent_cache_min_entry_size_bytes": -1,
    }
    before = {name: getattr(jax.config, name) for name in settings}
    for name, value in settings.items():
        jax.config.update(name, value)
    cache.reset_cache()
    yield folder
    for name, value in before.items():
        jax.config.update(name, value)
    cache.reset_cache()


@pytest.fixture(scope="module", autouse=True)
def bounded_memory():
    """Programs of earlier files are dropped once the process is large."""
    yield
    if _resident() > _MOST_BYTES:
        jax.clear_caches()
        gc.collect()
        with contextlib.suppress(AttributeError):  # not in every C library
            ctypes.CDLL(None).malloc_trim(0)


def _resident() -> int:
    """Bytes of this process in memory; 0 where Linux does not tell."""
    with contextlib.suppress(OSError), open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return 0


@pytest.fixture(scope="module")
def quick_to_compile(compilation_cache):
    """XLA hardly optimises, for tests that compile for seconds and run for none.

    Not for tests of bits or of speed.
    """
    name = "jax_disable_most_optimizations"
    before = jax.config.read(name)
    jax.config.update(name, True)
    yield compilation_cache
    jax.config.update(name, before)
    if not before:
        jax.clear_caches()  # what was compiled so is for no other module


@pytest.fixture(scope="module")
def fully_optimized():
    """XLA's optimisations, most of which `make test` turns off."""
    name = "jax_disable_most_optimizations"
    before = jax.config.read(name)
    jax.config.update(name, False)
    yield
    jax.config.update(name, before)
    if before:
        jax.clear_caches()


# Files here take longest, so they come first: two workers that take whole files end
# together if short ones are left for the end.
_LONGEST = ("integration", "training", "studies", "command", "ensembles")


def pytest_configure(config):
    gc.disable()  # until all tests are collected
    # Files in our order: `--dist loadfile` puts those with few tests last.
    if hasattr(config.option, "loadscopereorder"):  # pytest-xdist is there
        config.option.loadscopereorder = False


def pytest_collection_finish():
    """Modules and tests stay to the end: no need to look for garbage there."""
    gc.freeze()
    gc.enable()
    gc.set_threshold(50_000, 10, 10)  # JAX makes much that lives


def _turn(item) -> int:
    here = Path(__file__).parent
    inside = here in item.path.parents
    folder = item.path.relative_to(here).parts[0] if inside else ""
    return _LONGEST.index(folder) if folder in _LONGEST else len(_LONGEST)


def pytest_collection_modifyitems(config, items):
    items.sort(key=_turn)
    for item in items:
        if isinstance(item, pytest.DoctestItem):  # examples; tests have all they show
            item.add_marker(pytest.mark.slow)
    if any(device.platform in ("gpu", "tpu") for device in jax.devices()):
        return
    left_out = [item for item in items if "accelerator" in item.keywords]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if "accelerator" not in item.keywords]
