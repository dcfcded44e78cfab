"""Texts as token ids: cut to one length, padded with 0 and checked.

A split of texts is a `Split` whose images are int32 `[N, L]`, see `is_tokens`. Ids are
neither normalised nor augmented.
"""

import pathlib
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from churn_jax.data.splits import DataError, Split, check_ids, check_labels

__all__ = [
    "PADDING",
    "TextOptions",
    "pad_tokens",
    "text_split",
    "token_splits",
]

PADDING = 0
_CHUNK = 8192  # texts that are padded at once
_SPLITS = ("train", "validation", "test")


@dataclass(frozen=True)
class TextOptions:
    """How texts become ids; other data have no use for it.

    Attributes:
        sequence_length: L, to which every text is cut or padded.
        vocabulary_size: V, of token ids in a file: the last id, V - 1, stands for
            itself and all above it, the unknown token. None keeps every id.
        vocabulary: of texts in words: a `vocab.txt` of WordPieces, or the folder that
            holds one.

    Raises:
        DataError: a length or a size that cannot be.
    """

    sequence_length: int = 64
    vocabulary_size: int | None = None
    vocabulary: str | pathlib.Path | None = None

    def __post_init__(self):
        if self.sequence_length < 1:
            raise DataError(
                f"sequence_length must be at least 1; got {self.sequence_length}"
            )
        if self.vocabulary_size is not None and self.vocabulary_size < 3:
            raise DataError(
                "vocabulary_size must be at least 3 (padding, a token, the unknown "
                f"one); got {self.vocabulary_size}"
            )


def pad_tokens(tokens: np.ndarray, offsets: np.ndarray, length: int) -> np.ndarray:
    """Texts `tokens[offsets[i]:offsets[i + 1]]` as `[N, L]` int32, cut or padded."""
    starts = np.asarray(offsets[:-1], np.int64)
    kept = np.minimum(np.asarray(offsets[1:], np.int64) - starts, length)
    padded = np.full((len(starts), length), PADDING, np.int32)
    place = np.arange(length)
    for first in range(0, len(starts), _CHUNK):
        rows = slice(first, first + _CHUNK)
        inside = place < kept[rows, None]
        padded[rows][inside] = tokens[(starts[rows, None] + place)[inside]]
    return padded


def text_split(where: str, tokens: np.ndarray, labels, ids) -> Split:
    """A `Split` of padded texts `[N, L]`; `where` is for messages."""
    labels = np.asarray(labels)
    if labels.shape != tokens.shape[:1]:
        raise DataError(
            f"{where}: there must be one label per text, ({len(tokens)},); got shape "
            f"{labels.shape}"
        )
    labels = check_labels(where, labels)
    empty = ~(tokens != PADDING).any(1)
    if empty.any():
        raise DataError(
            f"{where}: {int(empty.sum())} of {len(tokens)} texts have no token, the "
            f"first at position {int(np.argmax(empty))}"
        )
    return Split(tokens, labels, check_ids(where, ids, len(labels)))


def token_splits(
    arrays: Mapping[str, np.ndarray], options: TextOptions
) -> dict[str, Split]:
    """The splits of a file that holds token ids."""
    # {train,test}_tokens are all texts joined, with offsets [N + 1], or [N, L'] padded
    # with 0; {train,test}_label, optional ids and validation.
    if options.vocabulary is not None:
        raise DataError(
            f"texts that are token ids already need no vocabulary; got "
            f"{options.vocabulary}"
        )
    keys = {key.removesuffix("s"): key for key in arrays}

    def found(key: str) -> np.ndarray | None:
        return arrays[keys[key]] if key in keys else None

    splits = {}
    for split in _SPLITS:
        if split == "validation" and f"{split}_token" not in keys:
            continue
        missing = {f"{split}_token", f"{split}_label"} - keys.keys()
        if missing:
            raise DataError(
                f"texts need {split}_tokens and {split}_label; found "
                f"{', '.join(arrays)}"
            )
        tokens = _checked(split, arrays[keys[f"{split}_token"]], options)
        if tokens.ndim == 2:
            padding = options.sequence_length - tokens.shape[1]
            tokens = tokens[:, : options.sequence_length]
            padded = np.pad(tokens, ((0, 0), (0, max(padding, 0))))
        else:
            offsets = _checked_offsets(split, found(f"{split}_offset"), tokens)
            padded = pad_tokens(tokens, offsets, options.sequence_length)
        splits[split] = text_split(
            split,
            padded.astype(np.int32, copy=False),
            arrays[keys[f"{split}_label"]],
            found(f"{split}_id"),
        )
    return splits


def _checked(where: str, tokens: np.ndarray, options: TextOptions) -> np.ndarray:
    """Ids below the size of the vocabulary, `[T]` or `[N, L']`."""
    if tokens.ndim not in (1, 2) or not np.issubdtype(tokens.dtype, np.integer):
        raise DataError(
            f"{where}: tokens must be integers, joined to [T] or padded to [N, L]; got "
            f"{tokens.dtype} of shape {tokens.shape}"
        )
    if not tokens.size:
        raise DataError(f"{where}: there are no tokens")
    # Padding between the texts of a padded array; a joined one has no room for it.
    least = 0 if tokens.ndim == 2 else 1
    if tokens.min() < least:
        raise DataError(
            f"{where}: tokens must be at least {least}; got {tokens.min()} (0 is "
            "padding)"
        )
    largest = options.vocabulary_size or 2**31
    return np.minimum(tokens, largest - 1)


def _checked_offsets(where: str, offsets, tokens: np.ndarray) -> np.ndarray:
    """Where the texts begin, `[N + 1]`."""
    if offsets is None:
        raise DataError(
            f"{where}: joined tokens {tokens.shape} need {where}_offsets, or pad them "
            "with 0 to [N, L]"
        )
    if offsets.ndim != 1 or not np.issubdtype(offsets.dtype, np.integer):
        raise DataError(
            f"{where}: offsets must be integers [N + 1]; got {offsets.dtype} of shape "
            f"{offsets.shape}"
        )
    offsets = offsets.astype(np.int64)
    rising = len(offsets) > 1 and (np.diff(offsets) >= 0).all()
    if not rising or offsets[0] < 0 or offsets[-1] > len(tokens):
        raise DataError(
            f"{where}: offsets must rise from 0 to the {len(tokens)} tokens; got "
            f"{offsets[:3].tolist()} ... {offsets[-2:].tolist()}"
        )
    return offsets
