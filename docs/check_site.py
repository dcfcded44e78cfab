"""Checks the site after a build: `python docs/check_site.py docs/_build/html`.

Every link leads to a file and an anchor of the site, nothing is loaded from a network,
every public name has its page and its entry in objects.inv, and the command-line page
has every command and option of the parser.
"""

import re
import subprocess
import sys
import time
import zlib
from concurrent.futures import ThreadPoolExecutor
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag, urlsplit

sys.path.insert(0, str(Path(__file__).parent / "extensions"))

import public_names

LOADED = {
    "script": "src",
    "img": "src",
    "source": "src",
    "video": "src",
    "audio": "src",
    "iframe": "src",
    "embed": "src",
    "object": "data",
}
LINK_KINDS = {"stylesheet", "icon", "preload", "modulepreload", "prefetch"}
CSS_URL = re.compile(r"""(?:url\(\s*|@import\s+)["']?(https?:)?//""")
COMMAND_PAGE = "reference/command_line.html"


class Page(HTMLParser):
    """The anchors, links and loaded files of a page."""

    def __init__(self, text: str):
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        """Notes what an element names and where it leads."""
        found = dict(attrs)
        self.anchors.update(filter(None, (found.get("id"), found.get("name"))))
        if tag in ("a", "area") and found.get("href"):
            self.links.append(found["href"])
        if tag == "link" and set((found.get("rel") or "").split()) & LINK_KINDS:
            self.loads.append(found.get("href") or "")
        if tag in LOADED and found.get(LOADED[tag]):
            self.loads.append(found[LOADED[tag]])
        for choice in (found.get("srcset") or "").split(","):
            if choice.strip():
                self.loads.append(choice.split()[0])


def broken_links(site: Path) -> tuple[list[str], int, int]:
    """What leads nowhere, the number of pages and of links."""
    pages = {
        path: Page(path.read_text(encoding="utf-8"))
        for path in sorted(site.rglob("*.html"))
        if "_static" not in path.relative_to(site).parts
    }
    wrong, count = [], 0
    exists: dict[Path, bool] = {}
    for path, page in pages.items():
        where = path.relative_to(site).as_posix()
        for target in page.loads:
            if urlsplit(target).scheme in ("http", "https") or target.startswith("//"):
                wrong.append(f"{where} loads {target} from the network")
        for target in (*page.links, *page.loads):
            parts = urlsplit(target)
            if parts.scheme or parts.netloc:
                continue
            count += 1
            file, anchor = urldefrag(target)
            file = unquote(file.partition("?")[0])
            to = (path.parent / file).resolve() if file else path
            to = to / "index.html" if to.is_dir() else to
            if not exists.setdefault(to, to.exists()):
                wrong.append(f"{where}: no file {target}")
            elif anchor and to in pages and unquote(anchor) not in pages[to].anchors:
                wrong.append(f"{where}: no anchor {target}")
    for css in site.rglob("*.css"):
        if CSS_URL.search(css.read_text(encoding="utf-8", errors="replace")):
            wrong.append(f"{css.relative_to(site)} loads from the network")
    return wrong, len(pages), count


def inventory(site: Path) -> dict[str, str]:
    """Python names of objects.inv with their places."""
    data = (site / "objects.inv").read_bytes()
    for _ in range(4):  # lines of text before what is compressed
        data = data.partition(b"\n")[2]
    found = {}
    for line in zlib.decompress(data).decode().splitlines():
        name, kind, _, place, _ = line.split(" ", 4)
        if kind.startswith("py:"):
            found[name] = place.replace("$", name)
    return found


def missing_names(site: Path) -> tuple[list[str], int]:
    """Public names without an entry or a page, and their number."""
    wrong, known, count = [], inventory(site), 0
    for package in public_names.packages():
        if package not in (*public_names.MODULES, *public_names.INTERNAL):
            wrong.append(f"{package} is neither in the reference nor internal")
    for module in public_names.MODULES:
        for name in public_names.exported(module):
            count += 1
            place = known.get(f"{module}.{name}", "")
            if not place:
                wrong.append(f"{module}.{name} is not in the reference")
            elif not (site / place.partition("#")[0]).is_file():
                wrong.append(f"{module}.{name} has no page")
    return wrong, count


def help_of(command: str) -> str:
    """What `churn-jax COMMAND --help` says."""
    code = "from churn_jax.cli import main; main()"
    arguments = [sys.executable, "-c", code, *command.split(), "--help"]
    done = subprocess.run(arguments, capture_output=True, text=True)
    return done.stdout


def missing_options(site: Path) -> tuple[list[str], int]:
    """Commands and options that the command-line page lacks, and their number."""
    from churn_jax.command import COMMANDS

    page = site / COMMAND_PAGE
    if not page.is_file():
        return [f"there is no {COMMAND_PAGE}"], 0
    text = re.sub(r"<[^>]*>", "", page.read_text(encoding="utf-8"))
    words = set(re.findall(r"--[a-z][\w.-]*", text))
    wrong, count = [], 0
    with ThreadPoolExecutor(2) as pool:
        helps = dict(zip(COMMANDS, pool.map(help_of, COMMANDS), strict=True))
    for command, said in helps.items():
        if not re.search(rf"churn-jax {re.escape(command)}\b", text):
            wrong.append(f"{COMMAND_PAGE} lacks the command {command}")
        for option in sorted(set(re.findall(r"(?<![\w-])--[a-z][\w.-]*", said))):
            count += 1
            if option != "--help" and option.rstrip(".") not in words:
                wrong.append(f"{COMMAND_PAGE} lacks {command} {option}")
    return wrong, count


def main() -> int:
    """Prints what is wrong, and numbers; 1 if anything is."""
    start, site = time.perf_counter(), Path(sys.argv[1]).resolve()
    links, pages, followed = broken_links(site)
    names, public = missing_names(site)
    options, offered = missing_options(site)
    for wrong in (found := [*links, *names, *options]):
        print(wrong)
    size = sum(p.stat().st_size for p in site.rglob("*") if p.is_file()) / 1e6
    print(
        f"{pages} pages, {followed} links, {public} names, {offered} options: "
        f"{len(found)} defects; {size:.0f} MB, checked in "
        f"{time.perf_counter() - start:.0f} s"
    )
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
