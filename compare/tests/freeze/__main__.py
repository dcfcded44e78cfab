"""Keeps what churn_compare says, and compares what a checkout says with it.

python -m tests.freeze write GOLDEN CHECKOUT [NAME ...]
python -m tests.freeze check GOLDEN CHECKOUT [NAME ...]
python -m tests.freeze list
python -m tests.freeze lines CHECKOUT FILE

NAME is a part of the names of comparisons. `check` ends with 1 where something differs.
`lines` writes which lines of the package never run; it needs the package coverage.
"""

import argparse
import os
import sys
import time
from pathlib import Path

SETTINGS = {
    "JAX_PLATFORMS": "cpu",
    "COLUMNS": "80",
    "LINES": "50",
    "NO_COLOR": "1",
    "TERM": "dumb",
    "TZ": "UTC",
    "MPLBACKEND": "agg",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}
REMOVED = ("FORCE_COLOR", "GITHUB_STEP_SUMMARY", "GITHUB_ACTIONS", "PYTHONPATH")


def use(checkout: Path) -> None:
    """Makes the churn_compare of a checkout the one that is imported, without JAX."""
    folder = (checkout / "compare").resolve()
    here = {str(Path.cwd()), ""}
    sys.path[:] = [str(folder), *(p for p in sys.path if p not in here)]
    sys.modules["jax"] = sys.modules["jaxlib"] = None  # type: ignore[assignment]
    import churn_compare

    there = Path(churn_compare.__file__).resolve()
    assert there.is_relative_to(folder), f"{there} is not in {folder}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("write", "check", "list", "lines"))
    parser.add_argument("words", nargs="*")
    parser.add_argument("--lines", type=int, default=3, help="of a difference")
    parser.add_argument("--ignore", default="", help="pattern of lines that may differ")
    parser.add_argument("--summary", action="store_true", help="kinds of differences")
    parser.add_argument("--keep", type=Path, help="folder of what is said now")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--slow", action="store_true", help="say what takes long")
    given = parser.parse_intermixed_args()
    wrong = any(os.environ.get(name) != value for name, value in SETTINGS.items())
    if wrong or any(name in os.environ for name in REMOVED):
        kept = {n: v for n, v in os.environ.items() if n not in REMOVED}
        words = [sys.executable, "-m", "tests.freeze", *sys.argv[1:]]
        os.execve(sys.executable, words, kept | SETTINGS)
    if given.what == "list":
        use(Path.cwd().parent)
        from tests.freeze.cases import CASES

        print("\n".join(CASES))
        return 0
    if given.what == "lines":
        from tests.freeze.uncovered import write_uncovered

        return write_uncovered(Path(given.words[0]), Path(given.words[1]))
    golden, checkout, *names = given.words
    folder = Path(golden).resolve() / "outputs"
    use(Path(checkout).resolve())
    from tests.freeze.cases import CASES
    from tests.freeze.differences import report
    from tests.freeze.session import produce

    chosen = {
        name: case
        for name, case in CASES.items()
        if not names or any(part in name for part in names)
    }
    began = time.perf_counter()
    said = produce(chosen, slow=given.slow, jobs=given.jobs)
    took = f"{time.perf_counter() - began:.1f} s"
    if given.what == "write":
        folder.mkdir(parents=True, exist_ok=True)
        if not names:
            for old in folder.glob("*.txt"):
                old.unlink()
        for name, text in said.items():
            (folder / f"{name}.txt").write_text(text, encoding="utf-8")
        print(f"{len(said)} comparisons written to {folder} in {took}")
        return 0
    if given.keep:
        given.keep.mkdir(parents=True, exist_ok=True)
        for name, text in said.items():
            (given.keep / f"{name}.txt").write_text(text, encoding="utf-8")
    kept = {path.stem: path for path in folder.glob("*.txt")}
    if names:
        kept = {n: p for n, p in kept.items() if any(part in n for part in names)}
    differ = report(
        kept, said, lines=given.lines, ignore=given.ignore, summary=given.summary
    )
    print(f"{differ} of {len(kept.keys() | said.keys())} comparisons differ; {took}")
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())
