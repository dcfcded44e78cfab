"""Arrays of damaged and forged files: read where they are used, or one sentence."""

import io
import os
import struct
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

from churn_compare import array_files, compare
from churn_compare.reading.sides import read_side
from churn_compare.store import ShardWriter, load_predictions, write_index
from tests.cases import fails

IDS = np.arange(2000)


def test_a_container_may_take_its_limit_less_what_it_holds(tmp_path, monkeypatch):
    monkeypatch.setattr(array_files, "_GROUP", tmp_path)
    (tmp_path / "memory.stat").write_text("anon 400000\nfile 590000\n")
    found = []
    for limit in ("1000000", "3", "max"):
        (tmp_path / "memory.max").write_text(f"{limit}\n")
        found.append(array_files._free_memory())
    assert found[:2] == [600_000, 0] and (found[2] or 10**7) > 10**6


def _npy(header, data=b"", version=1):
    text = header.encode()
    length = struct.pack("<H" if version == 1 else "<I", len(text))
    return b"\x93NUMPY" + bytes([version, 0]) + length + text + data


def _header(shape, descr="'<f4'"):
    return f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}}}\n"


FORGED = {
    "negative": (_npy(_header("(-4,)"), bytes(16)), "the file is truncated or damaged"),
    "two negative": (_npy(_header("(-2, -2)"), bytes(16)), "truncated or damaged"),
    "no literal": (_npy(_header("(10**0 and 4, )")), "header of the array is damaged"),
    "overflow": (_npy(_header(f"({2**62}, 4)"), bytes(16)), "needs 73,786,976,294,838"),
    "huge and empty": (_npy(_header(f"(0, {2**70})")), "."),
    "no bytes": (_npy(_header(f"({10**12},)", "'<U0'")), "needs 0 bytes and 0 are"),
    "objects": (_npy(_header("(2,)", "'|O'"), bytes(16)), "holds pickled Python obj"),
    "in fields": (_npy(_header("(1,)", "[('a', '|O')]"), bytes(8)), "holds pickled"),
    "deep": (_npy(_header("(" * 3000)), "the header of the array is damaged"),
    "long": (_npy(_header(" " * 70_000 + "(4,)"), bytes(16), 2), "header of the array"),
    "claims": (b"\x93NUMPY\2\0\xff\xff\xff\xff" + bytes(99), "header of the array"),
}


@pytest.mark.parametrize("name", FORGED)
def test_forged_headers_are_refused(name, tmp_path):
    content, message = FORGED[name]
    (tmp_path / "a.npy").write_bytes(content)
    fails(message, array_files.read_npy, tmp_path / "a.npy", of=ValueError)
    with zipfile.ZipFile(tmp_path / "a.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.npy", content)
    with pytest.raises(array_files.ArrayFileError, match=f"^a: .*{message}"):
        array_files.NpzArrays(tmp_path / "a.npz")["a"]
    with pytest.raises(ValueError, match=r"^[^\n]*$"):
        read_side(tmp_path / "a.npz", prediction_column="a")


@pytest.mark.parametrize("savez", [np.savez, np.savez_compressed])
@pytest.mark.parametrize("order", ["C", "F"])
def test_every_array_is_read_as_numpy_reads_it(savez, order, rng, tmp_path):
    arrays = {
        "two": np.asarray(rng.normal(size=(5, 7)), order=order),
        "none": np.zeros((0, 3), np.int8),
        "one": np.array("text"),
        "big": np.arange(9, dtype=">i8"),
    }
    savez(tmp_path / "a.npz", **arrays)
    fields = np.array([(1, 2), (3, 4)], [("ž", "<i4"), ("label", "<f8")])
    with pytest.warns(UserWarning, match=r"format 3\.0"):  # its header is in UTF-8
        np.save(tmp_path / "a.npy", fields)
    assert array_files.read_npy(tmp_path / "a.npy").tolist() == fields.tolist()
    assert array_files.read_npy(tmp_path / "a.npy").dtype == fields.dtype
    found = array_files.NpzArrays(tmp_path / "a.npz")
    assert list(found) == list(arrays) and "two" in found and "no" not in found
    for name, array in arrays.items():
        np.testing.assert_array_equal(found[name], array)
        assert found[name].dtype == array.dtype


@pytest.mark.parametrize("form", ["small.npz", "a.npz", "a"])
def test_a_flipped_bit_of_a_mapped_array_is_found(form, rng, tmp_path, monkeypatch):
    """Before any number of it is given out, and before what else may be wrong."""
    logits, path = rng.normal(size=(1, 2000, 5)).astype(np.float32), tmp_path / form
    if form == "a":
        with ShardWriter(path, 0, 1, IDS, 0 * IDS, 1, 5) as file:
            file.write(logits)
        write_index(path, 1)
        content, wrong = path / "logits-00000-of-00001.npy", "a: logits-00000-of-00001"
    else:
        np.savez(path, ids=IDS, logits=logits)
        content, wrong = path, rf"{form}: logits: it is damaged \(Bad CRC-32"
    at = content.read_bytes().index(logits[0, 1500, 2].tobytes())
    damaged = bytearray(content.read_bytes())
    damaged[at : at + 4] = np.float32(np.nan).tobytes()
    content.write_bytes(damaged)
    monkeypatch.setattr(array_files, "_MAPPED_BYTES", 1024)
    if form == "small.npz":  # is checked before anything else
        monkeypatch.setattr(array_files, "_CHECK_BYTES", 1000)
        fails(wrong, read_side, path, of=ValueError)
        return
    monkeypatch.setattr(array_files, "_CHECKED_BYTES", 1024)
    side = read_side(path, kind="logits")
    for use in (
        lambda: load_predictions(path) if form == "a" else side.values[0],
        lambda: side.values[0, :3],
        lambda: np.asarray(side.values),
        lambda: compare(path, path, confirm=["same-file"]),
    ):
        with pytest.raises(ValueError, match=wrong) as error:
            use()
        assert str(error.value).count(str(path)) == 1


def test_what_a_killed_write_left_is_removed_by_the_next(tmp_path, monkeypatch):
    name = str(tmp_path / "a[1].json")
    write = "import os, sys; from churn_compare.array_files import replace_file\n"
    write += "with replace_file(sys.argv[1]) as file: "
    killed = write + "file.write(b'half'); file.flush(); os.kill(os.getpid(), 9)"
    assert subprocess.run([sys.executable, "-c", killed, name]).returncode < 0
    (left,) = tmp_path.iterdir()
    array_files.write_file(name, "whole")
    assert left.exists()  # its writer may be about to lock it
    os.utime(left, (0, 0))
    with array_files.replace_file(name) as file:  # one that is written to is kept
        (own,) = (p for p in tmp_path.glob(".*.tmp") if p != left)
        os.utime(own, (0, 0))
        array_files.write_file(name, "other")
        assert own.exists() and not left.exists()
        file.write(b"last")
    assert [p.name for p in tmp_path.iterdir()] == ["a[1].json"]
    assert Path(name).read_text() == "last"
    replace = os.replace

    def late(source, target):
        os.utime(source, (0, 0))
        array_files.remove_abandoned([source])  # by another writer, at this moment
        replace(source, target)

    monkeypatch.setattr(os, "replace", late)
    assert array_files.write_file(name, "slow").read_text() == "slow"


def test_a_file_is_written_whole_and_a_pipe_is_not_replaced(tmp_path):
    path = array_files.write_file(tmp_path / "new" / "a.txt", "é")
    assert path.read_bytes() == array_files.write_file(path, "é".encode()).read_bytes()
    assert [p.name for p in path.parent.iterdir()] == ["a.txt"]
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    array_files.write_file(pipe, "through")
    assert os.read(reader, 20) == b"through"
    with array_files.replace_file(pipe) as file:
        np.savez(file, a=np.arange(3))
    with np.load(io.BytesIO(os.read(reader, 4096))) as arrays:
        assert arrays["a"].tolist() == [0, 1, 2]
    os.close(reader)
    assert pipe.is_fifo()
    for write in (
        lambda: array_files.write_file(tmp_path, "a folder"),
        array_files.replace_file(tmp_path).__enter__,
    ):
        with pytest.raises(IsADirectoryError):
            write()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["new", "pipe"]
