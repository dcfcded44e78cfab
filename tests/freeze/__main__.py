"""Keeps what the program says, and compares it with what it said before.

python -m tests.freeze --write FOLDER [--all | --only AREA ...]
python -m tests.freeze --compare FOLDER [--all | --only AREA ...]

Without `--all`, what takes seconds: presets, names, help, errors, comparisons. `--all`
trains, too. Exit code 1 where something differs.
"""

import argparse
import os
import shutil
import sys
import tempfile
import time
import traceback
from pathlib import Path

SETTINGS = {
    "JAX_PLATFORMS": "cpu",
    "JAX_NUM_CPU_DEVICES": "4",
    "JAX_DISABLE_MOST_OPTIMIZATIONS": "1",
    "XLA_FLAGS": "--xla_cpu_parallel_codegen_split_count=1",
    "JAX_COMPILATION_CACHE_DIR": str(Path(tempfile.gettempdir(), "freeze_xla")),
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    "TPU_SKIP_MDS_QUERY": "1",
    "COLUMNS": "100",
    "LINES": "50",
    "NO_COLOR": "1",
    "TERM": "dumb",
    "TZ": "UTC",
    "PYTHONHASHSEED": "0",  # messages that list a set
}


def _areas(parsed: argparse.Namespace):
    from tests.freeze import fast, trained

    known = fast.AREAS | trained.AREAS
    names = parsed.only or list(known if parsed.all else fast.AREAS)
    if wrong := [name for name in names if name not in known]:
        sys.exit(f"unknown areas {', '.join(wrong)}; there are {', '.join(known)}")
    return {name: known[name] for name in names}


def _produce(areas, folder: Path) -> list[str]:
    """Runs the areas; returns the names of those that ended in an error."""
    from tests.freeze.session import Session

    failed = []
    for name, area in areas.items():
        shutil.rmtree(folder / name, ignore_errors=True)
        began, session = time.perf_counter(), Session(folder)
        session.area = name
        os.chdir(session.work)
        try:
            area(session)
        except Exception:
            traceback.print_exc()
            failed.append(name)
        finally:
            os.chdir("/")
            session.close()
        print(f"{name}: {time.perf_counter() - began:.1f} s", flush=True)
    return failed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--write", type=Path, metavar="FOLDER")
    what.add_argument("--compare", type=Path, metavar="FOLDER")
    parser.add_argument("--all", action="store_true", help="train, too")
    parser.add_argument("--only", nargs="+", metavar="AREA")
    parser.add_argument("--keep", type=Path, help="folder of what is said now")
    parser.add_argument("--lines", type=int, default=12, help="of a difference")
    parsed = parser.parse_args()
    if any(os.environ.get(name) != value for name, value in SETTINGS.items()):
        words = [sys.executable, "-m", "tests.freeze", *sys.argv[1:]]
        os.execve(sys.executable, words, os.environ | SETTINGS)
    areas = _areas(parsed)
    if parsed.write:
        return 1 if _produce(areas, parsed.write.resolve()) else 0
    from tests.freeze.differences import report

    keep = parsed.keep or Path(tempfile.mkdtemp(prefix="freeze-now-"))
    keep = keep.resolve()
    baseline = parsed.compare.resolve()
    failed = _produce(areas, keep)
    differs = report(baseline, keep, list(areas), lines=parsed.lines)
    return 1 if failed else differs


if __name__ == "__main__":
    sys.exit(main())
