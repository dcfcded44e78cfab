"""Tries the wheels in `dist` in empty environments; prints what they take.

python packaging/check.py dist --constraints constraints.txt

`churn-compare` alone, which must compare every kind of input (`trials.py`) without
Matplotlib, then with `churn-jax`, which needs it and has Matplotlib.
"""

import argparse
import csv
import os
import statistics
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

TRIALS = Path(__file__).resolve().with_name("trials.py")  # every kind of input
MOST_PACKAGES, MOST_MB = 25, 420  # of churn-compare; SciPy takes a third
CASES = {
    "-h": ["-h"],
    "1,000 rows": ["old.csv", "new.csv"],
    "and --html": ["old.csv", "new.csv", "--max-nfr", "2%", "--html", "page.html"],
}
FROM_PYTHON = """
import churn_compare
result = churn_compare.compare("old.csv", "new.csv", gates={"max_nfr": 0.02})
assert result.passed and churn_compare.__version__ != "0.0.0"
"""


class Environment:
    """A new virtual environment, and a folder with files to compare."""

    def __init__(self, folder: Path, constraints: Path):
        venv.create(folder, with_pip=True)
        self.folder, self.constraints = folder, constraints.resolve()
        self.bin = folder / ("Scripts" if os.name == "nt" else "bin")
        for name, wrong in (("old", 7), ("new", 11)):
            with open(folder / f"{name}.csv", "w", newline="") as file:
                rows = csv.writer(file)
                rows.writerow(["id", "label", "prediction"])
                for i in range(1000):
                    label = i % 10
                    flipped = i % 97 == wrong
                    rows.writerow([f"e{i}", label, (label + flipped) % 10])

    def pip(self, *words: str) -> None:
        """Runs pip inside."""
        command = [self.bin / "python", "-m", "pip", "--disable-pip-version-check"]
        subprocess.run([*command, *words, "--quiet"], check=True)

    def install(self, *wheels: Path) -> None:
        """Installs wheels with what they need."""
        paths = [str(wheel.resolve()) for wheel in wheels]
        self.pip("install", "-c", str(self.constraints), *paths)

    def run(self, *command: str, check: bool = True) -> subprocess.CompletedProcess:
        """Runs a program of the environment in its folder, without other paths."""
        program, *words = command
        return subprocess.run(
            [self.bin / program, *words],
            cwd=self.folder,
            check=check,
            stdout=subprocess.PIPE,
            stderr=None if check else subprocess.PIPE,  # shown where it must not fail
            text=True,
            env={k: v for k, v in os.environ.items() if not k.startswith("PYTHON")},
        )

    def works(self, *command: str) -> None:
        """Checks command and API."""
        self.run(
            *command, "old.csv", "new.csv", "--max-nfr", "2%", "--html", "page.html"
        )
        page = (self.folder / "page.html").read_text(encoding="utf-8")
        assert "Where changed predictions go" in page
        failed = self.run(
            *command, "old.csv", "new.csv", "--max-churn", "0", check=False
        )
        assert failed.returncode == 1, failed.stderr
        said = self.run(*command, "--demo").stdout
        assert "897 examples" in said
        self.run("python", "-c", FROM_PYTHON)

    def seconds(self, *command: str) -> list[str]:
        """Median seconds of each case, of five, and those of the processor."""
        found = []
        for words in CASES.values():
            walls, busy = [], []
            for _ in range(6):  # the first one fills the disk's cache
                start, used = time.perf_counter(), _processor_seconds()
                self.run(*command, *words)
                walls.append(time.perf_counter() - start)
                busy.append(_processor_seconds() - used)
            wall, cpu = (statistics.median(times[1:]) for times in (walls, busy))
            found.append(f"{wall:.2f} s ({cpu:.2f})")
        return found

    def size(self) -> tuple[int, float]:
        """Installed packages without pip, and their megabytes (10^6 bytes)."""
        self.pip("uninstall", "--yes", "setuptools")
        (site,) = self.folder.rglob("site-packages")
        packages = [
            p for p in site.glob("*.dist-info") if not p.name.startswith("pip-")
        ]
        size = sum(
            file.stat().st_size
            for file in site.rglob("*")
            if file.is_file() and file.relative_to(site).parts[0] != "pip"
        )
        return len(packages), size / 1e6


def _processor_seconds() -> float:
    """What processes that have ended took of the processors."""
    found = os.times()
    return found.children_user + found.children_system


def check(dist: Path, constraints: Path, *, only_compare: bool = False) -> None:
    """Installs, tries, prints; raises if something does not hold."""
    (light,), (whole,) = dist.glob("churn_compare-*.whl"), dist.glob("churn_jax-*.whl")
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        alone = Environment(Path(folder) / "light", constraints)
        alone.install(light)
        alone.works("churn-compare")
        packages, size = alone.size()
        rows.append(("churn-compare", packages, size, alone.seconds("churn-compare")))
        alone.pip("install", "-c", str(alone.constraints), "pytest")
        alone.run("python", str(TRIALS), "--pytest")
        if not only_compare:
            both = Environment(Path(folder) / "whole", constraints)
            both.install(light, whole)
            command = ("churn-jax", "compare")
            both.works(*command)
            both.works("churn-compare")
            both.run("python", str(TRIALS))
            rows.append(("churn-jax", *both.size(), both.seconds(*command)))
    print("Median seconds of five, of which on a processor in brackets:")
    print(f"{'':14}{'packages':>9}{'MB':>7}", *(f"{case:>14}" for case in CASES))
    for name, count, megabytes, seconds in rows:
        times = (f"{second:>14}" for second in seconds)
        print(f"{name:14}{count:>9}{megabytes:>7.0f}", *times)
    if packages > MOST_PACKAGES or size > MOST_MB:
        sys.exit(
            f"churn-compare takes more than {MOST_PACKAGES} packages, {MOST_MB} MB"
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("dist", type=Path)
    parser.add_argument("--constraints", type=Path, default=Path("constraints.txt"))
    parser.add_argument("--only-compare", action="store_true")
    given = parser.parse_args()
    check(given.dist, given.constraints, only_compare=given.only_compare)
