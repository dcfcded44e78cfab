"""Arrays in `.npy` and `.npz` files, mapped into memory where they are large."""

import struct
import zipfile
from pathlib import Path
from typing import IO, Any

import numpy as np

from churn_jax.predictions import PredictionsError

__all__ = ["read_npy", "read_npz"]

_MAPPED_BYTES = 64 << 20  # smaller arrays of an archive are read at once
_LOCAL_HEADER = struct.Struct("<4s22xHH")  # signature, lengths of name and extra field


def read_npy(path: Path) -> np.ndarray:
    """The array of a `.npy` file, read only when it is used.

    Args:
        path: the file.

    Returns:
        A memory-mapped array; of bfloat16 where another library saved that.

    Raises:
        PredictionsError: it is no such file, is truncated or holds pickled objects.
    """
    with open(path, "rb") as file:
        if file.read(6) != b"\x93NUMPY":
            raise PredictionsError("it is no NumPy .npy file")
        file.seek(0)
        size = path.stat().st_size
        shape, fortran, dtype = _header(file, size)
        start = file.tell()
    if 0 in shape:  # cannot be mapped
        return np.empty(shape, dtype)
    mapped = np.memmap(path, dtype, "r", start, shape, "F" if fortran else "C")
    return as_real(mapped)


def read_npz(path: Path) -> dict[str, np.ndarray]:
    """The arrays of a `.npz` file by name.

    Large arrays of an archive that is not compressed are mapped into memory.

    Args:
        path: the file.

    Returns:
        Name to array.

    Raises:
        PredictionsError: it is no such file, is truncated or holds pickled objects.
    """
    if not zipfile.is_zipfile(path):
        with open(path, "rb") as file:
            cut = file.read(2) == b"PK"
        raise PredictionsError(
            "it is truncated" if cut else "it is no NumPy .npz archive"
        )
    arrays = {}
    with zipfile.ZipFile(path) as archive:
        for member in archive.infolist():
            name = member.filename.removesuffix(".npy")
            if name in arrays:
                raise PredictionsError(f"it holds {name} twice")
            with archive.open(member) as entry:
                try:
                    shape, fortran, dtype = _header(entry, member.file_size)
                except PredictionsError as error:
                    raise PredictionsError(f"{name}: {error}") from error
                order, start = "F" if fortran else "C", entry.tell()
                stored = member.compress_type == zipfile.ZIP_STORED
                if stored and member.file_size >= _MAPPED_BYTES:
                    start += _data_start(path, member)
                    array = np.memmap(path, dtype, "r", start, shape, order)
                else:
                    array = np.ndarray(shape, dtype, entry.read(), order=order)
            arrays[name] = as_real(array)
    return arrays


def as_real(array: np.ndarray) -> np.ndarray:
    r"""Two bytes without a type are bfloat16, the way `numpy.save` writes that.

    Example:
        >>> as_real(np.array([b"\x80\x3f"], "V2")).astype(np.float32)
        array([1.], dtype=float32)
    """
    if array.dtype.kind != "V" or array.dtype.itemsize != 2 or array.dtype.names:
        return array
    import ml_dtypes

    return array.view(ml_dtypes.bfloat16)


def _header(file: IO[bytes], size: int) -> tuple[tuple[int, ...], bool, np.dtype]:
    """Shape, order and type of the array that follows; the file must hold all of it."""
    try:
        version = np.lib.format.read_magic(file)
        read: Any = {
            (1, 0): np.lib.format.read_array_header_1_0,
            (2, 0): np.lib.format.read_array_header_2_0,
        }[version]
        shape, fortran, dtype = read(file)
    except (KeyError, ValueError, TypeError, OverflowError, SyntaxError) as error:
        raise PredictionsError("the header of the array is damaged") from error
    if dtype.hasobject:
        raise PredictionsError("it holds pickled Python objects, which are not read")
    numbers = 1
    for length in shape:  # exact, however large a damaged number is
        numbers *= length
    needed, there = numbers * dtype.itemsize, size - file.tell()
    if min(shape, default=0) < 0 or needed != there:
        raise PredictionsError(
            f"the array {shape} of {dtype} needs {needed:,} bytes and {there:,} are "
            "there; the file is truncated or damaged"
        )
    return shape, fortran, dtype


def _data_start(path: Path, member: zipfile.ZipInfo) -> int:
    """Where the bytes of an archive's member begin."""
    with open(path, "rb") as file:
        file.seek(member.header_offset)
        signature, name, extra = _LOCAL_HEADER.unpack(file.read(_LOCAL_HEADER.size))
    if signature != b"PK\x03\x04":
        raise PredictionsError("the archive is damaged")
    return member.header_offset + _LOCAL_HEADER.size + name + extra
