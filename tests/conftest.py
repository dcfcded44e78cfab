"""Eight CPU devices and strict rank promotion for every test."""

import contextlib
import ctypes
import functools
import gc
import os
import sys
import threading
import time
from pathlib import Path

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")
# Tests compile for longer than they run, so XLA hardly optimises on a CPU. Tests of
# optimised programs ask for them (the fixture fully_optimized); libtpu's compiler runs
# as users run it (tests/environment.py).
os.environ.setdefault(
    "JAX_DISABLE_MOST_OPTIMIZATIONS", str(int(os.environ["JAX_PLATFORMS"] == "cpu"))
)
os.environ.setdefault("JAX_TRACEBACK_IN_LOCATIONS_LIMIT", "0")  # a tenth of tracing

import jax
import numpy as np
import pytest

if os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] == "1":
    # One part per program and XLA's older emitters save a third of the compilation
    # that is left. JAX 0.11.2 has those no more, and an unknown flag ends the process.
    flags = ["--xla_cpu_parallel_codegen_split_count=1"]
    if jax.__version_info__ < (0, 11, 2):
        flags.append("--xla_cpu_use_fusion_emitters=false")
    os.environ.setdefault("XLA_FLAGS", " ".join(flags))

jax.config.update("jax_num_cpu_devices", 8)
jax.config.update("jax_numpy_rank_promotion", "raise")

# A worker with a quarter of the machine's memory drops its compiled programs.
_MOST_BYTES = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 4


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.fixture
def strict_dtypes():
    """Strict dtype promotion, for tests of losses and metrics."""
    with jax.numpy_dtype_promotion("strict"):
        yield


@pytest.fixture
def refused(capsys):
    """Runs the command, which says one sentence with all of these parts."""
    from churn_jax.cli import main

    def run(words, *parts):
        capsys.readouterr()
        assert main([str(word) for word in words]) == 2
        out, err = capsys.readouterr()
        (sentence,) = err.splitlines()
        assert sentence.startswith("churn-jax: ") and "Traceback" not in out
        for part in parts:
            assert str(part) in sentence

    return run


@pytest.fixture(scope="module")
def collected():
    """What a file's tests leave behind is collected there, not in another's tests."""
    yield
    gc.collect()


@pytest.fixture
def own_columns(monkeypatch):
    """Columns that a test registers are forgotten after it."""
    from churn_jax.reports import QUANTITIES

    monkeypatch.setattr(QUANTITIES, "_registered", dict(QUANTITIES._registered))


@pytest.fixture
def no_charts(monkeypatch):
    """Pages are written without their charts, in tests of everything else."""
    from churn_compare.documents import Figure

    monkeypatch.setattr(Figure, "draw", lambda figure: Figure())


@pytest.fixture
def no_pandas(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)


@pytest.fixture
def blocks_of(monkeypatch):
    """Makes training look up after every so many updates instead of every second."""
    from churn_jax.training import loop

    def fix(updates):
        monkeypatch.setattr(loop, "_FIRST_BLOCK", updates)
        monkeypatch.setattr(loop, "_next_block", lambda done, seconds: updates)

    return fix


@pytest.fixture(scope="module", autouse=True)
def bounded_memory():
    """What earlier files lowered is dropped, programs once the process is large."""
    yield
    vars(_contexts).clear()
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
def fully_optimized():
    """XLA's optimisations, most of which are off above."""
    name = "jax_disable_most_optimizations"
    before = jax.config.read(name)
    jax.config.update(name, False)
    jax.clear_caches()  # what earlier tests compiled is not optimised
    yield
    jax.config.update(name, before)
    jax.clear_caches()


# Files here take longest, so they come first: two workers that take whole files end
# together if short ones are left for the end.
_LONGEST = ("integration", "training", "experiments", "studies", "command", "ensembles")


def pytest_configure(config):
    gc.disable()  # until all tests are collected
    if config.option.markexpr == "not slow":
        config.option.doctestmodules = False  # examples are slow tests
    _share_compiled_programs(config)
    _share_contexts()
    # Files in our order: `--dist loadfile` puts those with few tests last.
    if hasattr(config.option, "loadscopereorder"):  # pytest-xdist is there
        config.option.loadscopereorder = False


def _share_compiled_programs(config):
    """Whichever process needs a program first compiles it, also for the next run.

    Reading one takes a tenth of compiling a small one. JAX finds them by what they
    compute, its version and its flags; those of a week ago are compiled again.
    """
    name = "JAX_COMPILATION_CACHE_DIR"
    if name not in os.environ:  # workers and processes inherit it
        folder = config.rootpath / ".cache" / "xla"
        for file in folder.glob("*"):
            with contextlib.suppress(FileNotFoundError):  # another run removed it
                if file.stat().st_mtime < time.time() - 7 * 86400:
                    file.unlink()
        os.environ[name] = str(folder)
        os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
        os.environ["JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"] = "-1"
    jax.config.update("jax_compilation_cache_dir", os.environ[name])
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)


_contexts = threading.local()  # each thread's, for one file of tests


def _share_contexts():
    """What JAX lowers into, and makes anew for each program, in 4 to 8 ms."""
    with contextlib.suppress(ImportError, AttributeError):  # is not public
        from jax._src.interpreters import mlir

        make = mlir.make_ir_context

        def shared():
            if not hasattr(_contexts, "lowering"):
                _contexts.lowering = make()
            return _contexts.lowering

        mlir.make_ir_context = shared


def pytest_collection_finish():
    """Modules and tests stay to the end: no need to look for garbage there."""
    gc.freeze()
    gc.enable()
    gc.set_threshold(200_000, 10, 10)  # JAX makes much that lives


@functools.cache
def _turn(file: Path) -> int:
    here = Path(__file__).parent
    folder = file.relative_to(here).parts[0] if here in file.parents else ""
    return _LONGEST.index(folder) if folder in _LONGEST else len(_LONGEST)


def pytest_collection_modifyitems(config, items):
    items.sort(key=lambda item: _turn(item.path))
    for item in items:
        if isinstance(item, pytest.DoctestItem):  # examples; tests have all they show
            item.add_marker(pytest.mark.slow)
    if any(device.platform in ("gpu", "tpu") for device in jax.devices()):
        return
    left_out = [item for item in items if "accelerator" in item.keywords]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if "accelerator" not in item.keywords]
