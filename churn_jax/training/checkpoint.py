"""Checkpoints through Orbax: written whole or not at all, refused by their identity.

The identity of a training is settings, data and names, and no hash of the step's
jaxpr. Coefficients, rates and seeds are arguments of the step, so its hash would not
hold them; networks are traced otherwise for each backend, so a training
could not go on on another one; and tracing a step takes seconds for a ResNet. A study
puts the hash of what an object of the user's computes (`computation`) into its name
instead.
"""

import contextlib
import dataclasses
import errno
import functools
import hashlib
import json
import os
import re
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
from jaxtyping import PyTree

from churn_jax.configuration.codec import differences, in_words, to_json, without
from churn_jax.training.folder_lock import check_lock, free_name
from churn_jax.training.partition import any_process, compilation, fetch
from churn_jax.training.run import Run, Trained
from churn_jax.training.teachers import Teachers

_FORMAT = "churn_jax/4"
_FIRST_SECONDS = 15.0  # of work before the first checkpoint of a launch
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class CheckpointClock:
    """Says when to save, so that a kill loses at most so many seconds of work.

    Only work that the devices have done counts, so wait for them before asking. The
    first checkpoint comes earlier: a launch that is killed soon should leave something.
    """

    def __init__(self, seconds: float):
        self.seconds = seconds
        self._wait = min(seconds, _FIRST_SECONDS)
        self._since = time.perf_counter()
        self._took = 0.0

    def due(self, ahead: float = 0.0) -> bool:
        """True to save now; the next look comes in about `ahead` seconds."""
        # Writing takes time, too.
        margin = min(self._took + ahead, self._wait / 2)
        return time.perf_counter() - self._since + margin > self._wait

    @contextlib.contextmanager
    def saving(self) -> Iterator[None]:
        """To be entered while a checkpoint is written."""
        self._since = time.perf_counter()
        yield
        self._took, self._wait = time.perf_counter() - self._since, self.seconds


class CheckpointError(ValueError):
    """No checkpoint can be used; the message says which and why."""


class OtherConfiguration(CheckpointError):  # noqa: N818 -- what it is
    """An intact checkpoint, but of another training."""


@dataclasses.dataclass(frozen=True)
class Restored:
    """A checkpoint that was read back."""

    tree: PyTree  # with the shardings that were asked for
    meta: dict[str, Any]  # as `save` was given it
    skipped: tuple[str, ...]  # a clause for every newer one that could not be used


class Checkpoints:
    """The checkpoints of one method's training."""

    # Orbax writes into a temporary folder and renames it, so a process killed in the
    # middle of a write leaves the previous checkpoint as the newest. It keeps no
    # checksums of array data, so they are stored here and compared on restoring.

    def __init__(self, directory: Path, *, identity: str, also: Any = None):
        """Opens or creates `directory`; another identity is refused, or `also`."""
        self.directory = Path(directory).absolute()
        self.identity, self.also = identity, to_json(also or {})  # older ones lack it
        self.directory.mkdir(parents=True, exist_ok=True)
        self._manager = ocp.CheckpointManager(
            self.directory,
            options=ocp.CheckpointManagerOptions(
                max_to_keep=2,
                enable_async_checkpointing=False,
                cleanup_tmp_directories=True,  # of killed and failed writes
            ),
        )

    def save(self, step: int, tree: PyTree, meta: dict[str, Any]) -> None:
        """Writes a checkpoint to the disk; an `OSError` leaves older ones intact."""
        check_lock(self.directory)
        if step in self._manager.all_steps():
            return
        own = {"format": _FORMAT, "identity": self.identity, "also": self.also}
        meta = {**own, "checksums": _checksums(tree), **meta}
        meta["crc32"] = _crc32(meta)
        args = ocp.args.Composite(
            state=ocp.args.StandardSave(tree), meta=ocp.args.JsonSave(meta)
        )
        try:
            self._manager.save(step, args=args, force=True)
            self._manager.wait_until_finished()
        except Exception as error:  # TensorStore reports a full disk as a ValueError
            check_lock(self.directory)
            text = str(error)
            for code in _FULL:
                what = os.strerror(code)
                if what in text or f"os_error_code='{code}'" in text:
                    raise OSError(code, what, str(self.directory)) from error
            raise

    def restore(self, like: PyTree) -> Restored | None:
        """The newest checkpoint that can be read, placed like `like`; None without any.

        Newer ones that cannot be read are renamed to `<step>.unreadable`, so that the
        steps they stand for can be saved again. Raises `OtherConfiguration` if it is of
        something else, `CheckpointError` if none can be read.
        """
        like = jax.tree.map(
            lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding), like
        )
        steps = sorted(self._manager.all_steps(), reverse=True)
        skipped = []
        for position, step in enumerate(steps):
            where, reason = self.directory / str(step), ""
            meta, tree = {}, None
            try:
                meta = self._meta(step)
                theirs = json.loads(meta["identity"]) | (meta.get("also") or self.also)
                ours = json.loads(self.identity) | self.also
                if found := differences(theirs, ours):
                    raise OtherConfiguration(
                        f"{where} was written by another configuration "
                        f"({in_words(found)}); use another output folder or --fresh"
                    )
                args = ocp.args.Composite(state=ocp.args.StandardRestore(like))
                tree = self._manager.restore(step, args=args)["state"]
            except OtherConfiguration:
                raise
            except Exception as error:  # Orbax and TensorStore raise many kinds
                lines = str(error).strip().splitlines() or [type(error).__name__]
                reason = lines[0][:160]
            if any_process(bool(reason)):  # all go on to the one before
                reason = reason or "another process could not read it"
            else:  # checksums take all processes, which find the same
                for name, found in _checksums(tree).items():
                    if not reason and found != meta["checksums"].get(name):
                        reason = f"the checksum of {name} differs from the written one"
            if reason:
                skipped.append(f"{where} cannot be read ({reason})")
                continue
            newer = steps[:position]
            for bad in newer if jax.process_index() == 0 else ():
                path = self.directory / str(bad)
                path.rename(free_name(path.with_name(f"{bad}.unreadable")))
            if newer:
                any_process(False)  # a barrier: they are put aside
            self._manager.reload()
            return Restored(tree, meta, tuple(skipped))
        if not steps:
            return None
        raise CheckpointError(
            f"no checkpoint can be read: {'; '.join(skipped)}. Use another output "
            "folder or --fresh to train again"
        )

    def _meta(self, step: int) -> dict[str, Any]:
        restored = self._manager.restore(
            step, args=ocp.args.Composite(meta=ocp.args.JsonRestore())
        )
        meta = restored["meta"]
        if not isinstance(meta, dict) or meta.get("format") != _FORMAT:
            raise CheckpointError(f"it is not a checkpoint of format {_FORMAT}")
        if meta.pop("crc32", None) != _crc32(meta):
            raise CheckpointError("its metadata are damaged")
        return meta

    def close(self) -> None:
        """Releases Orbax's threads."""
        self._manager.close()


def _crc32(meta: dict[str, Any]) -> int:
    return zlib.crc32(json.dumps(meta, sort_keys=True).encode())


@functools.cache
def _compiled():
    return jax.jit(checksum, compiler_options=compilation())


def checksum(array: jax.Array) -> jax.Array:
    """A uint32 that changes when any one element does, whatever the sharding."""
    # Each element's bits are mixed with its position by an invertible function
    # (MurmurHash3's finalizer) and added modulo 2^32, in any order.
    if jnp.issubdtype(array.dtype, jax.dtypes.prng_key):
        array = jax.random.key_data(array)
    if jnp.iscomplexobj(array):
        array = jnp.stack([array.real, array.imag])
    if array.dtype == jnp.bool_:
        array = array.astype(jnp.uint8)
    unsigned = {1: jnp.uint8, 2: jnp.uint16}.get(array.dtype.itemsize, jnp.uint32)
    bits = jax.lax.bitcast_convert_type(array, unsigned).astype(jnp.uint32)
    position = jnp.uint32(0)
    for axis, size in enumerate(bits.shape):
        index = jax.lax.broadcasted_iota(jnp.uint32, bits.shape, axis)
        position = position * jnp.uint32(size) + index
    mixed = bits ^ (position * jnp.uint32(0x9E3779B1))
    mixed = (mixed ^ (mixed >> 16)) * jnp.uint32(0x85EBCA6B)
    mixed = (mixed ^ (mixed >> 13)) * jnp.uint32(0xC2B2AE35)
    return jnp.sum(mixed ^ (mixed >> 16), dtype=jnp.uint32)


def _checksums(tree: PyTree) -> dict[str, int]:
    found = {}
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        # One at a time: sums that run at once over the same devices can deadlock.
        found[jax.tree_util.keystr(path)] = int(fetch(_compiled()(leaf)))
    return found


def jax_settings() -> dict[str, Any]:
    """Settings of JAX that decide which numbers are drawn, and how they are rounded."""
    names = (
        *("jax_default_prng_impl", "jax_threefry_partitionable"),
        *("jax_random_seed_offset", "jax_enable_x64", "jax_default_matmul_precision"),
    )
    return {name: getattr(jax.config, name) for name in names}


def identity_of(
    run: Run,
    fingerprint: str,
    teachers: Teachers | None = None,
    start: Trained | None = None,
) -> str:
    """The identity that a checkpoint must have to be continued by `run`.

    Equal texts mean equal training, of equal networks (which are only named) on pixels
    of equal moments: checkpoints hold those apart. `fingerprint` is that of the data.
    """
    began = None
    if start is not None:
        began = {"name": start.run.name, **json.loads(start.identity)}
    parts = {
        "data": fingerprint,
        "method": run.method,
        "networks": [[group.network.name, group.size] for group in run.groups],
        "clicks": run.clicks,
        "stream": run.stream,
        "keep": run.keep,
        "teacher": None if teachers is None else teachers.identity(),
        "start": began,
        "jax": jax_settings(),
    }
    return json.dumps(without(to_json(run.config) | to_json(parts)), sort_keys=True)


def computation(function: Callable, *arguments: Any) -> str:
    """A hash of what a pure function of arrays computes, equal in every process.

    Of the arguments only shapes and dtypes count. Another version of JAX may trace the
    same function into other operations, and so give another hash.
    """
    traced = jax.make_jaxpr(function)(*arguments)
    # Functions that an operation holds are printed with their addresses.
    digest = hashlib.sha256(re.sub(r"0x[0-9a-f]+", "", str(traced)).encode())
    for constant in _constants(traced):
        if jax.dtypes.issubdtype(getattr(constant, "dtype", None), jax.dtypes.prng_key):
            constant = jax.random.key_data(constant)
        digest.update(np.asarray(constant).tobytes())
    return digest.hexdigest()


def _constants(traced: Any):
    """Arrays that a traced function holds, also those of the functions it calls."""
    yield from getattr(traced, "consts", ())
    for equation in getattr(traced, "eqns", ()):
        for value in equation.params.values():
            for part in value if isinstance(value, (tuple, list)) else [value]:
                yield from _constants(part)
