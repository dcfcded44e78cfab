"""Files that were made to do harm: refused in a sentence, or shown without effect."""

import gzip
import io
import json
import re
import struct
import zipfile

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from churn_compare import array_files, label_queue, read_side
from churn_compare.cli import main
from tests.cases import fails, jsonl

ROWS = "id,label,prediction\n" + "".join(f"e{i},a,a\n" for i in range(30))


def refused(folder, name, content, message):
    """Asserts that a file is refused in a sentence with its name and this message."""
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    said = f"^(?=.*/{name}: )(?=.*{re.escape(message)}).{{,600}}$"
    fails(said, label_queue, path, path, confirm=["same-file"])


def test_pickles_are_never_read(tmp_path):
    class Harm:
        def __reduce__(self):
            return (tmp_path / "harmed").touch, ()

    harm = np.array([Harm(), 1], object)
    np.save(tmp_path / "a.npy", harm, allow_pickle=True)
    np.savez(tmp_path / "a.npz", predictions=[0, 1], ids=harm)
    np.savez(tmp_path / "b.npz", predictions=[0, 1], meta=harm[:1])
    for name in ("a.npy", "a.npz", "b.npz"):
        fails("pickled Python objects", read_side, tmp_path / name)
    assert not (tmp_path / "harmed").exists()


def test_what_unpacks_to_more_than_the_memory_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(array_files, "_free_memory", lambda: 1_000_000)
    monkeypatch.setattr(array_files, "_MAPPED_BYTES", 4096)
    with gzip.open(tmp_path / "a.csv.gz", "wb") as file:
        file.write(b"id,prediction\n" + b"0,1\n" * 200_000)
    np.savez_compressed(tmp_path / "a.npz", logits=np.zeros((1000, 1000)))
    same = {f"prob_{c}": np.full(50_000, 0.5) for c in range(2)}
    pq.write_table(pa.table(same), tmp_path / "a.parquet")
    for name in ("a.csv.gz", "a.npz", "a.parquet"):
        assert (tmp_path / name).stat().st_size < 10_000
        said = f"^{tmp_path / name}: .* more than half of the[^\n]*$"
        fails(said, read_side, tmp_path / name)
    bomb = json.dumps(SAMPLE | {"input": "0" * 1_000_000})
    refused(tmp_path, "a.eval", archive(bomb), "more than half of the")


@pytest.mark.parametrize("column", ["id", "label", "prediction"])
def test_very_long_names_are_refused(tmp_path, column):
    rows = [{"id": f"e{i}", "label": "a", "prediction": "a"} for i in range(30)]
    rows[3][column] = "<b>" * 100_000
    said = "at most 10,000 characters; one has 300,000"
    refused(tmp_path, "a.jsonl", "\n".join(map(json.dumps, rows)), said)


def archive(*samples, changed=()):
    """A log of Inspect; `changed` are bytes of its second entry in the directory."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("header.json", "{}")
        file.writestr("samples/../../../evil.json", json.dumps(SAMPLE))
        for number, sample in enumerate(samples):
            file.writestr(f"samples/{number}.json", sample)
    content = bytearray(packed.getvalue())
    entry = content.index(b"PK\x01\x02", content.index(b"PK\x01\x02") + 4)
    for place, kind, value in changed:
        struct.pack_into(kind, content, entry + place, value)
    return bytes(content)


SAMPLE = {"id": 1, "input": "?", "scores": {"match": {"value": "C", "answer": "a"}}}
DEEP = "[" * 100_000 + "]" * 100_000


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", ROWS.replace("e3,", "e\0,"), "the character with number 0"),
        ("a.csv", ROWS.replace("e3,", "x" * 5_000_000 + ","), "a million characters"),
        ("a.csv", ROWS.replace("e3,a", 'e3,"a'), "a.csv"),
        ("a.jsonl", '{"id": ' + "[" * 100_000, "line 1 is not JSON"),
        ("a.jsonl", '{"id": 1, "correct": 1, "correct": 0}', "the key 'correct' twice"),
        ("a.jsonl", b'{"id": "\xe9", "prediction": 1}', "not in UTF-8"),
        ("a.json", '{"columns": ["id"], "data": [1]}', "a.json: cannot be read"),
        ("a.parquet", b"PAR1" + b"\xff" * 100 + b"PAR1", "a.parquet"),
        ("a.eval", archive(changed=[(24, "<I", 10)]), "Bad CRC-32"),  # its size
        ("a.eval", archive(changed=[(42, "<I", 2**31)]), "Truncated"),  # its place
        ("a.eval", archive(changed=[(8, "<H", 1)]), "is encrypted"),
        ("a.eval", archive(changed=[(10, "<H", 93)]), "ZSTD"),
        ("a.eval", archive(changed=[(10, "<H", 77)]), "not supported"),
        ("a.eval", archive('{"input": 1}'), "is not a log of an evaluation tool"),
        ("a.eval", archive('{"id": 2, "input": ' + DEEP + "}"), "nested too deep"),
        ("a.eval", archive(b'{"id": "\xe9"}'), "not in UTF-8"),
        ("a.json", '{"eval": {}, "samples": ' + DEEP, "nested too deep"),
        ("a.json", '{"eval": {}, "samples": [7]}', "not a log of an evaluation tool"),
        ("a.jsonl", '{"id": 1, "correct": ' + DEEP + "}", "line 1 is not JSON"),
        ("a.jsonl", '{"id": 1, "score": 1e308}', "numbers as large as 1e+308"),
        ("a.jsonl", '{"id": 1, "answer": "\\ud800"}', "surrogates not allowed"),
    ],
)
def test_files_that_lie_are_refused_in_a_sentence(tmp_path, name, content, message):
    refused(tmp_path, name, content, message)


def test_answers_are_shown_without_harm(tmp_path, capsys):
    harm = "<script>alert(1)</script>|`x`](javascript:alert(1))\x1b[31m\u202e\0"
    answers = harm, "x" * 1_000_000, "\0", "word " * 200_000
    rows = [{"id": f"<b>{i}|", "answer": "a", "target": "a"} for i in range(30)]
    lines = [rows, [*({**rows[i], "answer": of} for i, of in enumerate(answers))]]
    lines[1] += rows[len(answers) :]
    sides = [jsonl(tmp_path / f"{i}.jsonl", side) for i, side in enumerate(lines)]
    pages = [tmp_path / "page.html", tmp_path / "page.md"]
    words = [*sides, "--html", pages[0], "--markdown", pages[1]]
    assert main([*map(str, words)]) == 0
    shown, *written = capsys.readouterr().out, *(page.read_text() for page in pages)
    for text in (shown, *written):
        assert len(text) < 50_000
        assert not any(mark in text for mark in ("\x1b[31m", "\0", "\u202e"))
    assert not any("<script>alert" in page or "<b>0" in page for page in written)
