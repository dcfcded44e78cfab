"""Runs commands in this process and keeps what they say, without what must vary."""

import contextlib
import csv
import hashlib
import io
import json
import re
import shutil
import tempfile
from collections.abc import Iterable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["Session", "words_of_page"]

_INLINE = set("a abbr b code em i mark small span strong sub sup tspan var".split())
_NUMBER = r"(?<![\w.])\d(?:[\d.,]*\d)?(?:e[+-]?\d+)?"
_UNIT = r"(?:s|ms|µs|min|h|seconds|minutes|(?:examples|updates|steps)/s)"
_VARYING = {
    r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d+)?(?:[+-]\d\d:\d\d|Z)?": "<date>",
    r"\b\d?\d:\d\d(?::\d\d)?\b": "<clock>",
    rf"{_NUMBER} ?{_UNIT}\b": "<time>",
    r"\.before\.\d+|\.\d{8}-\d{6}": "<aside>",
    r'"[0-9a-f]{16}"': '"<identity>"',  # of records, which hold dates
}
_TIMED = re.compile(r"seconds|_time$|^time$|per_second|date$|hardware|versions|devices")


class _Text(HTMLParser):
    """Text between tags; `pre` blocks and what is no text are kept apart."""

    def __init__(self):
        super().__init__()
        self.words: list[str] = []
        self.blocks: list[str] = []
        self._inside: list[str] = []

    def handle_starttag(self, tag, attrs):
        del attrs
        if tag in ("script", "style", "pre"):
            self._inside.append(tag)
        if tag == "pre":
            self.blocks.append("")
        if tag not in _INLINE:
            self.words.append("\n")

    def handle_endtag(self, tag):
        if self._inside and tag == self._inside[-1]:
            self._inside.pop()
        if tag not in _INLINE:
            self.words.append("\n")

    def handle_data(self, data):
        if not self._inside:
            self.words.append(data)
        elif self._inside[-1] == "pre":
            self.blocks[-1] += data


def words_of_page(page: str) -> tuple[str, str, str]:
    """Text without tags, that of `pre` blocks, and what a page must have."""
    parser = _Text()
    parser.feed(page)
    lines = (" ".join(line.split()) for line in "".join(parser.words).split("\n"))
    counts = {tag: len(re.findall(rf"<{tag}[\s>]", page)) for tag in ("svg", "img")}
    facts = {
        **counts,
        "policy": "Content-Security-Policy" in page,
        "viewport": 'name="viewport"' in page,
        "dark": "prefers-color-scheme" in page,
        "print": "@media print" in page,
        "network": bool(
            re.search(r'(?:src|href)="?https?:[^>]*\.(?:js|css|woff)', page)
        ),
    }
    text = "\n".join(line for line in lines if line) + "\n"
    return text, "\n".join(parser.blocks), json.dumps(facts, indent=1) + "\n"


def _untimed(value: Any) -> Any:
    """JSON without the entries that say how long or when."""
    if isinstance(value, dict):
        return {k: _untimed(v) for k, v in value.items() if not _TIMED.search(k)}
    return [_untimed(v) for v in value] if isinstance(value, list) else value


def _table(text: str) -> str:
    rows = list(csv.reader(io.StringIO(text)))
    varies = [bool(_TIMED.search(name)) for name in rows[0]]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    for i, row in enumerate(rows):
        cells = zip(row, varies, strict=True)
        writer.writerow(["<time>" if v and i and c else c for c, v in cells])
    return out.getvalue()


def digest(array: np.ndarray) -> str:
    """Shape, kind and the first digits of a checksum of an array."""
    array = np.ascontiguousarray(array)
    found = hashlib.sha256(array.tobytes()).hexdigest()[:20]
    return f"{array.dtype} {list(array.shape)} {found}"


class Session:
    """A folder to work in and a folder that keeps what is found there."""

    def __init__(self, kept: Path):
        self.kept = kept
        self.work = Path(tempfile.mkdtemp(prefix="freeze-")).resolve()
        self.area = ""

    def close(self) -> None:
        shutil.rmtree(self.work, ignore_errors=True)

    def keep(self, name: str, text: str, *, varies: bool = False) -> None:
        """Keeps a text; `varies` says that times in it are to be left out."""
        text = text.replace(str(self.work), "<work>")
        for pattern, word in _VARYING.items() if varies else ():
            text = re.sub(pattern, word, text)
        path = self.kept / self.area / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def keep_arrays(self, name: str, arrays: dict[str, np.ndarray]) -> None:
        """Keeps arrays whole, so that a difference can be measured."""
        path = self.kept / self.area / f"{name}.npz"
        path.parent.mkdir(parents=True, exist_ok=True)
        np.savez_compressed(path, **arrays)
        lines = (f"{key} {digest(array)}" for key, array in arrays.items())
        self.keep(f"{name}.digests.txt", "\n".join(lines) + "\n")

    def run(
        self, name: str, *words: Any, varies: bool = False, code: Any = None
    ) -> str:
        """Runs the command; keeps its words, exit code, output and errors."""
        from churn_jax.cli import main

        argv = [str(word) for word in words]
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                returned: Any = main(argv)
            except SystemExit as stopped:
                returned = f"SystemExit {stopped.code}"
        if code is not None and returned != code:
            raise RuntimeError(f"{argv} returned {returned}: {err.getvalue()}")
        text = f"$ churn-jax {' '.join(argv)}\nexit code {returned}\n"
        text += f"--- output\n{out.getvalue()}--- errors\n{err.getvalue()}"
        self.keep(f"{name}.txt", text, varies=varies)
        return out.getvalue()

    def keep_files(self, name: str, files: Iterable[Path], *, varies: bool) -> None:
        """Keeps what is text in files that a command has written."""
        for path in files:
            target = f"{name}/{path.name}"
            if not path.exists():
                self.keep(f"{target}.txt", "there is no such file\n")
                continue
            if path.suffix == ".png":
                self.keep(f"{target}.txt", "a picture\n")
                continue
            text = path.read_text()
            if path.suffix == ".html":
                words, blocks, facts = words_of_page(text)
                self.keep(f"{target}.words", words, varies=varies)
                self.keep(f"{target}.pre", blocks, varies=varies)
                self.keep(f"{target}.facts", facts)
            elif path.suffix == ".svg":  # lines' ends depend on fonts
                self.keep(f"{target}.words", words_of_page(text)[0])
            elif path.suffix == ".csv" and varies:
                self.keep(target, _table(text))
            elif path.suffix == ".jsonl":
                lines = (json.dumps(_untimed(json.loads(x))) for x in text.splitlines())
                self.keep(target, "\n".join(lines) + "\n")
            elif path.suffix == ".json" and varies:
                self.keep(target, json.dumps(_untimed(json.loads(text)), indent=1))
            else:
                self.keep(target, text, varies=varies)
