"""Makes the reports of the gallery by running the commands that its page shows.

    python docs/gallery/build.py docs/_build/gallery

The blocks of `docs/gallery/index.md` run in that folder, in order; studies go on where
they were, so that a second call takes seconds. `<!-- page: FOLDER/FILE.html NAME -->`
copies a page to `site/gallery/reports/NAME.html`, which Sphinx puts in the site.
"""

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = Path(__file__).with_name("index.md")
BLOCK = r"^```(?P<language>sh|py)\n(?P<code>.*?)^```"
PARTS = re.compile(rf"{BLOCK}|<!-- page: (?P<file>\S+) (?P<name>\S+)", re.M | re.S)


def build(folder: Path) -> None:
    """Runs all blocks in `folder` and copies the pages."""
    reports = folder / "site" / "gallery" / "reports"
    reports.mkdir(parents=True, exist_ok=True)
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    for part in PARTS.finditer(PAGE.read_text()):
        if part["file"]:
            shutil.copy(folder / part["file"], reports / f"{part['name']}.html")
            continue
        interpreter = {"sh": ["bash", "-euc"], "py": [sys.executable, "-c"]}
        command = [*interpreter[part["language"]], part["code"]]
        start = time.monotonic()
        done = subprocess.run(
            command,
            cwd=folder,
            env=os.environ | {"PATH": path, "GALLERY_ROOT": str(ROOT)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        print(f"{time.monotonic() - start:5.0f} s  {part['code'].splitlines()[-1]}")
        if done.returncode not in (0, 1):  # 1: a gate does not hold
            sys.exit(done.stdout)


if __name__ == "__main__":
    build(Path(sys.argv[1]))
