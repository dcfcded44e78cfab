"""CRC-32 of large files at the speed of memory; `zlib` reads 1 GB/s."""

import concurrent.futures
import functools
import io
import os
import sys
import zlib
from pathlib import Path

import numpy as np

# The remainder of a polynomial over GF(2) does not change if a multiple of the
# generator is added to it. x^91639 + x^41678 + 1 is one, and so is its 32nd power: a
# word of 32 bits may move 49,961 and 91,639 words further on. What is left at the end
# are 91,639 words. (Kadatch and Russell, "Chorba: A novel CRC32 implementation".)
_FAR, _NEAR = 91_639, 91_639 - 41_678
_ROUNDS = 8  # of `_NEAR` words, before the last words are moved to the front
_WINDOW_BYTES = 64 << 20  # of one thread at a time
_THREADS = 4
_REVERSED = 0xEDB88320  # the generator, the lowest power in the highest bit


def file_crc32(path: Path, start: int = 0, size: int | None = None) -> int:
    """CRC-32 of a file, or of `size` bytes in it.

    Raises:
        OSError: the file cannot be read or is too short.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder) / "a"
        ...     _ = path.write_bytes(b"123456789")
        ...     f"{file_crc32(path):x}"
        'cbf43926'
    """
    size = path.stat().st_size - start if size is None else size

    def of_window(first: int) -> tuple[int, int]:
        length = min(_WINDOW_BYTES, size - first)
        with open(path, "rb", buffering=0) as file:
            file.seek(start + first)
            return _crc32(file, length), length

    total = 0
    threads = min(_THREADS, os.cpu_count() or 1)
    with concurrent.futures.ThreadPoolExecutor(threads) as pool:
        for found, length in pool.map(of_window, range(0, size, _WINDOW_BYTES)):
            total = _product(_power(length), total) ^ found
    return total


def _crc32(file: io.FileIO, size: int) -> int:
    """CRC-32 of the next bytes of a file."""
    count = size // 4
    if count < 4 * _FAR or sys.byteorder != "little":
        return zlib.crc32(_filled(np.empty(size, np.uint8), file).data)
    words = np.empty(_FAR + _ROUNDS * _NEAR, np.uint32)
    _filled(words[:_FAR], file)
    words[0] ^= np.uint32(0xFFFFFFFF)  # what a CRC-32 begins with
    words[_NEAR:_FAR] ^= words[: _FAR - _NEAR]
    done = end = _FAR
    last_near = count - _FAR + _NEAR  # the last words stay where they are
    while done < count:
        if end == len(words):
            words[:_FAR] = words[-_FAR:]
            end = _FAR
        stop = last_near if done < last_near else count
        length = min(_NEAR, stop - done, len(words) - end)
        block = _filled(words[end : end + length], file)
        block ^= words[end - _FAR : end - _FAR + length]
        if done < last_near:
            block ^= words[end - _NEAR : end - _NEAR + length]
        end, done = end + length, done + length
    left = zlib.crc32(words[end - _FAR : end].data, 0xFFFFFFFF)
    return zlib.crc32(_filled(np.empty(size % 4, np.uint8), file).data, left)


def _filled(room: np.ndarray, file: io.FileIO) -> np.ndarray:
    """An array with the next bytes of a file."""
    bytes_left = room.view(np.uint8).data
    while bytes_left:
        count = file.readinto(bytes_left)
        if not count:
            raise OSError("the file is truncated")
        bytes_left = bytes_left[count:]
    return room


@functools.cache
def _power(length: int) -> int:
    """x^(8 length) modulo the generator."""
    power, square = 1 << 31, 1 << 23
    while length:
        if length & 1:
            power = _product(square, power)
        square, length = _product(square, square), length >> 1
    return power


def _product(a: int, b: int) -> int:
    """Product of two polynomials modulo the generator."""
    product = 0
    for bit in range(31, -1, -1):
        if a >> bit & 1:
            product ^= b
        b = (b >> 1) ^ (_REVERSED if b & 1 else 0)
    return product
