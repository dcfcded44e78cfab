"""Arrays in `.npy` and `.npz` files of any origin; files written whole or not at all.

Arrays are read when they are used. The header of an array is checked before its numbers
are read, and compressed data must fit into memory.
"""

import glob
import gzip
import io
import math
import os
import secrets
import struct
import sys
import threading
import time
import zipfile
import zlib
from collections import UserDict
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import numpy as np

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

_MAPPED_BYTES = 64 << 20  # smaller arrays of an archive are read at once
_CHECKED_BYTES = 64 << 20  # larger arrays are checked in the background
_CHECK_BYTES = 1 << 20
_HEADER_BYTES = 16 << 10  # NumPy reads no header that is longer than 10,000
_GROUP = "/sys/fs/cgroup"  # of the container, with its limit
_WRITING_SECONDS = 2  # younger temporary files may not be locked yet
_LOCAL_HEADER = struct.Struct("<4s22xHH")  # signature, lengths of name and extra field


class ArrayFileError(ValueError):
    """Raised if a file or an array cannot be read; the message does not name it."""


def read_npy(path: Path) -> np.ndarray:
    """The memory-mapped array of a `.npy` file, also of type bfloat16."""
    with open(path, "rb") as file:
        if file.read(6) != b"\x93NUMPY":
            raise ArrayFileError("it is not a NumPy .npy file")
        file.seek(0)
        shape, fortran, dtype, start = _header(file, path.stat().st_size)
    if 0 in shape:  # cannot be mapped
        return np.empty(shape, dtype)
    mapped = np.memmap(path, dtype, "r", start, shape, "F" if fortran else "C")
    return as_real(mapped)


class NpzArrays(UserDict[str, Any]):
    """The arrays of a `.npz` file by name; each is read when it is looked up."""

    # An array may take at most half of the free memory. With `mapped`, large
    # uncompressed arrays are memory-mapped; `checks` compute their CRC-32.

    def __init__(self, path: Path, mapped: bool = False):
        super().__init__()
        self._path, self._mapped = path, mapped
        self.checks: list[Callable[[], None]] = []
        if not zipfile.is_zipfile(path):
            with open(path, "rb") as file:
                cut = b"PK".startswith(file.read(2))  # also if it is empty
            raise ArrayFileError(
                "it is truncated" if cut else "it is not a NumPy .npz archive"
            )
        try:
            with zipfile.ZipFile(path) as archive:
                members = archive.infolist()
        except Exception as error:  # a damaged file may raise anything in a parser
            raise _damaged(error) from error
        for member in members:
            name = member.filename.removesuffix(".npy")
            if self.data.setdefault(name, member) is not member:
                raise ArrayFileError(f"it holds {name} twice")

    def __getitem__(self, key: str) -> np.ndarray:
        member = self.data[key]
        with _reading(key):
            return as_real(self._read(key, member))

    def check(self) -> None:
        """Returns once all mapped arrays are known to be as they were written."""
        for check in self.checks:
            check()

    def _read(self, name: str, member: zipfile.ZipInfo) -> np.ndarray:
        with zipfile.ZipFile(self._path) as archive:
            with archive.open(member) as entry:
                shape, fortran, dtype, start = _header(entry, member.file_size)
            size = member.file_size - start
            stored = member.compress_type == zipfile.ZIP_STORED
            if self._mapped and stored and size >= _MAPPED_BYTES:
                first = _data_start(self._path, member)

                def same() -> None:
                    if file_crc32(self._path, first, member.file_size) != member.CRC:
                        raise ArrayFileError("it is damaged (Bad CRC-32)")

                check = start_check(same, size)
                self.checks.append(_reading(name)(check))
                if len(shape) < 2 or dtype.kind not in "fV":
                    check()
                order = "F" if fortran else "C"
                return np.memmap(self._path, dtype, "r", first + start, shape, order)
            if size >= _MAPPED_BYTES:
                check_memory(size)
            with archive.open(member) as entry:
                array = np.lib.format.read_array(entry, allow_pickle=False)
                entry.read(1)  # the end, where the CRC-32 is checked
            return array


@contextmanager
def _reading(name: str) -> Iterator[None]:
    try:
        yield
    except ArrayFileError as error:
        raise ArrayFileError(f"{name}: {error}") from error
    except Exception as error:
        raise ArrayFileError(f"{name}: {_damaged(error)}") from error


def start_check(check: Callable[[], None], size: int) -> Callable[[], None]:
    """Starts a check of `size` bytes; returns a function that waits for its end."""
    done: Future[None] = Future()

    def work() -> None:
        try:
            done.set_result(check())
        except BaseException as error:
            done.set_exception(error)

    threading.Thread(target=work, daemon=True).start()
    if size < _CHECKED_BYTES:
        done.result()
    return done.result


def file_crc32(path: Path, start: int = 0, size: int | None = None) -> int:
    """CRC-32 of a file, or of `size` bytes in it."""
    found, left = 0, sys.maxsize if size is None else size
    with open(path, "rb", buffering=0) as file:
        file.seek(start)
        while block := file.read(min(_CHECK_BYTES, left)):
            found, left = zlib.crc32(block, found), left - len(block)
    return found


class UnpackedFile(io.RawIOBase):
    """The bytes of a `.gz` file, at most half of the free memory."""

    def __init__(self, path: Path):
        self._file, self._read, self._free = gzip.open(path), 0, _free_memory()

    def readable(self) -> bool:
        """Returns True."""
        return True

    def readinto(self, room: Any) -> int:
        """Reads bytes into `room`; returns their number."""
        count = self._file.readinto(room)
        self._read += count
        if self._free is not None and self._read > self._free / 2:
            raise ArrayFileError(
                "it unpacks to more than half of the "
                f"{self._free / 2**30:,.1f} GiB of memory that are free"
            )
        return count

    def close(self) -> None:
        """Closes the file."""
        self._file.close()
        super().close()


def as_real(array: np.ndarray) -> np.ndarray:
    """The array, with two-byte items without a type as bfloat16."""
    if array.dtype.kind != "V" or array.dtype.itemsize != 2 or array.dtype.names:
        return array
    import ml_dtypes

    return array.view(ml_dtypes.bfloat16)


@contextmanager
def replace_file(path: str | os.PathLike) -> Iterator[IO[bytes]]:
    """Context manager that writes a file whole or not at all, and creates its folder.

    The body writes to a temporary file, which replaces `path` once it is on the disk.
    After an error it is removed, and an earlier `path` is left as it was. Temporary
    files of killed processes are removed by the next call. A pipe or a device, such as
    `/dev/stdout`, is written to directly.
    """
    path = Path(path)
    if path.exists() and not path.is_file():  # opening a folder raises OSError
        with open(path, "wb") as file:
            yield file
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    remove_abandoned(path.parent.glob(f".{glob.escape(path.name)}.????????.tmp"))
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        with open(temporary, "xb") as file:
            _lock(file)
            yield file
            file.flush()
            os.fsync(file.fileno())
            if fcntl is not None:  # while it is locked, so that it is not removed
                os.replace(temporary, path)
        if fcntl is None:
            os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    if os.name != "posix":  # only there can a folder be opened and synced
        return
    folder = os.open(path.parent, os.O_RDONLY)  # the new name must survive a crash too
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def remove_abandoned(temporary: Iterable[Path]) -> None:
    """Removes temporary files of `replace_file` whose writers were killed."""
    for left in temporary:
        try:
            if time.time() - left.stat().st_mtime > _WRITING_SECONDS:
                with open(left, "rb") as file:
                    if _lock(file):
                        left.unlink()
        except OSError:
            continue  # its writer has finished, or it belongs to another user


def _lock(file: IO[bytes]) -> bool:
    """Locks a file until it is closed or its process ends; False if that fails."""
    if fcntl is None:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # another process has it
        return False
    return True


def write_file(path: str | os.PathLike, content: str | bytes) -> Path:
    """Writes text or bytes with `replace_file`."""
    path = Path(path)
    with replace_file(path) as file:
        file.write(content.encode() if isinstance(content, str) else content)
    return path


def _header(file: IO[bytes], size: int) -> tuple[tuple[int, ...], bool, np.dtype, int]:
    """Shape, order, type and start of the array; raises if the file is too short."""
    head = io.BytesIO(file.read(_HEADER_BYTES))  # a forged one may claim 4 GB
    try:
        major, minor = np.lib.format.read_magic(head)
        of = {3: "2_0"}.get(major, f"{major}_{minor}")  # 3.0 is 2.0 in UTF-8
        shape, fortran, dtype = getattr(np.lib.format, f"read_array_header_{of}")(head)
        if major == 3 and dtype.names is not None:
            dtype.names = [name.encode("latin1").decode() for name in dtype.names]
    except Exception as error:  # the parser of Python literals raises many kinds
        raise ArrayFileError("the header of the array is damaged") from error
    if dtype.hasobject:
        raise ArrayFileError("it holds pickled Python objects, which are not read")
    numbers = math.prod(shape)  # exact, even for huge damaged numbers
    needed, there = numbers * dtype.itemsize, size - head.tell()
    if min(shape, default=0) < 0 or needed != there or (numbers and not needed):
        raise ArrayFileError(
            f"the array {shape} of {dtype} needs {needed:,} bytes and {there:,} are "
            "there; the file is truncated or damaged"
        )
    return shape, fortran, dtype, head.tell()


def check_memory(size: int) -> None:
    """Raises if unpacking `size` bytes would leave too little memory."""
    free = _free_memory()
    if free is not None and size > free / 2:
        raise ArrayFileError(
            f"unpacking it would take {size / 2**30:,.1f} GiB, more than half of the "
            f"{free / 2**30:,.1f} GiB of memory that are free"
        )


def _free_memory() -> int | None:
    """Bytes that this process may still take; None if they are unknown."""

    def number(path: str, name: str = "") -> int:
        lines = Path(path).read_text(encoding="ascii").splitlines()
        line = next(line for line in lines if line.startswith(name))
        return int(line.removeprefix(name).split()[0])

    found = []  # a group's "anon" cannot be freed, unlike the files that it caches
    with suppress(OSError, ValueError, StopIteration, IndexError):  # none on macOS
        found.append(1024 * number("/proc/meminfo", "MemAvailable:"))
    with suppress(OSError, ValueError, StopIteration, IndexError):  # or "max"
        limit = number(f"{_GROUP}/memory.max")
        found.append(max(limit - number(f"{_GROUP}/memory.stat", "anon "), 0))
    return min(found, default=None)


def _data_start(path: Path, member: zipfile.ZipInfo) -> int:
    """Offset of the bytes of an archive's member."""
    with open(path, "rb") as file:
        file.seek(member.header_offset)
        signature, name, extra = _LOCAL_HEADER.unpack(file.read(_LOCAL_HEADER.size))
    if signature != b"PK\x03\x04":
        raise ArrayFileError("the archive is damaged")
    return member.header_offset + _LOCAL_HEADER.size + name + extra


def _damaged(error: Exception) -> ArrayFileError:
    if isinstance(error, MemoryError):
        return ArrayFileError("there is too little memory to unpack it")
    why = " ".join(str(error).split())[:200] or type(error).__name__
    return ArrayFileError(f"it is damaged ({why})")
