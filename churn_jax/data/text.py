"""Texts as token ids: cut to one length, padded with 0 and checked.

A split of texts is a `Split` whose images are int32 `[N, L]`, see `is_tokens`. Ids are
neither normalised nor augmented. They come from an `.npz` file, or from texts in CSV
folders and TFDS sets, whose columns after the class (a title and a description, say)
are joined by a space and cut into WordPieces.
"""

import csv
import json
import pathlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from churn_jax.data.splits import DataError, Split, check_ids, check_labels

PADDING = 0
_CHUNK = 8192  # texts that are padded at once
_WORDS = 4096  # texts that are cut at once; the library keeps kilobytes of each
_SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")  # of BERT's WordPieces


@dataclass(frozen=True)
class TextOptions:
    """How texts become ids; data of other kinds ignore it.

    Attributes:
        sequence_length: L, to which every text is cut or padded.
        vocabulary_size: V, of token ids in a file: the last id, V - 1, stands for
            itself and all above it, the unknown token. None keeps every id.
        vocabulary: vocabulary of texts in words: a `vocab.txt` of WordPieces, or the
            folder that holds one.

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


def of_length(tokens: np.ndarray, length: int) -> np.ndarray:
    """`[N, L']` cut or padded to `[N, length]`."""
    if tokens.shape[1] == length:
        return tokens
    return np.pad(tokens[:, :length], ((0, 0), (0, max(length - tokens.shape[1], 0))))


def token_rows(
    where: str,
    tokens: np.ndarray,
    offsets: np.ndarray | None,
    options: TextOptions | None,
) -> np.ndarray:
    """Checked token ids `[N, L]` int32 of texts joined to `[T]` or padded to `[N, L']`.

    L is the length of the longest text without `options`.
    """
    if options is not None and options.vocabulary is not None:
        raise DataError(
            f"texts that are token ids already need no vocabulary; got "
            f"{options.vocabulary}"
        )
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
    if options is not None and options.vocabulary_size is not None:
        tokens = np.minimum(tokens, options.vocabulary_size - 1)
    elif tokens.max() >= 2**31:
        raise DataError(f"{where}: tokens must be below 2^31; got {tokens.max()}")
    if tokens.ndim == 2:
        length = tokens.shape[1] if options is None else options.sequence_length
        return of_length(tokens, length).astype(np.int32, copy=False)
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
    if not rising or offsets[0] or offsets[-1] != len(tokens):
        raise DataError(
            f"{where}: offsets must rise from 0 to the {len(tokens)} tokens; got "
            f"{offsets[:3].tolist()} ... {offsets[-2:].tolist()}"
        )
    longest = int(np.diff(offsets).max())
    length = longest if options is None else options.sequence_length
    return pad_tokens(tokens, offsets, length)


def is_text_folder(name: str | pathlib.Path) -> bool:
    """True if a folder holds `train.csv` or `test.csv`."""
    folder = pathlib.Path(name)
    return any((folder / f"{split}.csv").is_file() for split in ("train", "test"))


def read_text_folder(
    folder: str | pathlib.Path, options: TextOptions
) -> dict[str, Split]:
    """The splits of a folder with `train.csv` and `test.csv`, as AG News has."""
    # A line is a class, counted from 1, and columns of text. Backslashes, which stand
    # for line breaks in AG News, become spaces.
    splits = {}
    for split in ("train", "test"):
        path = pathlib.Path(folder) / f"{split}.csv"
        texts, labels = _read_csv(path)
        splits[split] = text_split(split, encode_texts(texts, options), labels, None)
    return splits


def _read_csv(path: pathlib.Path) -> tuple[list[str], list[int]]:
    if not path.is_file():
        raise DataError(f"there is no file {path}")
    texts, labels = [], []
    try:
        with path.open(encoding="utf-8", newline="") as file:
            lines = csv.reader(file, strict=True)
            for row in lines:
                if len(row) < 2 or not row[0].isdecimal() or row[0] == "0":
                    raise DataError(
                        f"{path}, line {lines.line_num}: expected a class, counted "
                        f"from 1, and columns of text; got {','.join(row)[:40]!r}"
                    )
                labels.append(int(row[0]) - 1)
                texts.append(" ".join(row[1:]).replace("\\", " "))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{path} cannot be read: {error}") from error
    if not texts:
        raise DataError(f"{path} is empty")
    return texts, labels


def encode_texts(texts: Sequence[str], options: TextOptions) -> np.ndarray:
    """Token ids `[N, L]` int32 of texts, `[CLS] ... [SEP]`, cut and padded with 0."""
    # Texts are lower-cased and lose their accents, unless a `tokenizer_config.json`
    # next to the vocabulary says `"do_lower_case": false`.
    if options.vocabulary is None:
        raise DataError(
            "texts need a vocabulary of WordPieces: the vocab.txt of a local BERT "
            "folder (data.vocabulary)"
        )
    if options.vocabulary_size is not None:
        raise DataError(
            "vocabulary_size cuts the token ids of a file; WordPieces are as many as "
            f"their vocabulary has, got vocabulary_size={options.vocabulary_size}"
        )
    length = options.sequence_length
    if length < 3:
        raise DataError(f"[CLS] word [SEP] need a sequence_length of 3; got {length}")
    tokenizer = _tokenizer(_vocabulary_file(options.vocabulary))
    tokenizer.enable_truncation(length)
    tokenizer.enable_padding(length=length, pad_id=PADDING, pad_token=_SPECIAL[0])
    ids = np.empty((len(texts), length), np.int32)
    for start in range(0, len(texts), _WORDS):
        part = tokenizer.encode_batch_fast(list(texts[start : start + _WORDS]))
        ids[start : start + len(part)] = [text.ids for text in part]
    return ids


def _vocabulary_file(vocabulary: str | pathlib.Path) -> pathlib.Path:
    path = pathlib.Path(vocabulary)
    path = path / "vocab.txt" if path.is_dir() else path
    if not path.is_file():
        raise DataError(f"there is no vocabulary {path}")
    return path


def _tokenizer(path: pathlib.Path):
    try:
        from tokenizers import Tokenizer
        from tokenizers.models import WordPiece
        from tokenizers.normalizers import BertNormalizer
        from tokenizers.pre_tokenizers import BertPreTokenizer
        from tokenizers.processors import BertProcessing
    except ImportError as error:
        raise DataError(
            "cutting texts into WordPieces needs tokenizers: pip install "
            "'churn-jax[text]'"
        ) from error
    try:
        # Not splitlines: a vocabulary has lines that are other breaks of Unicode.
        pieces = path.read_bytes().decode("utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path} cannot be read: {error}") from error
    if pieces[-1] == "":  # after the end of the last line
        pieces.pop()
    pieces = [piece.rstrip("\r") for piece in pieces]
    vocabulary = {piece: number for number, piece in enumerate(pieces)}
    missing = [piece for piece in _SPECIAL if piece not in vocabulary]
    if missing:
        raise DataError(
            f"{path} is not a vocabulary of WordPieces: it lacks {', '.join(missing)}"
        )
    if vocabulary[_SPECIAL[0]] != PADDING:
        raise DataError(
            f"{path}: {_SPECIAL[0]} must be on the first line, as in BERT's own; it is "
            f"on line {vocabulary[_SPECIAL[0]] + 1}"
        )
    tokenizer = Tokenizer(WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = BertNormalizer(lowercase=_lower_case(path.parent))
    tokenizer.pre_tokenizer = BertPreTokenizer()
    tokenizer.post_processor = BertProcessing(
        ("[SEP]", vocabulary["[SEP]"]), ("[CLS]", vocabulary["[CLS]"])
    )
    return tokenizer


def _lower_case(folder: pathlib.Path) -> bool:
    path = folder / "tokenizer_config.json"
    if not path.is_file():
        return True
    try:
        settings = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"{path} cannot be read: {error}") from error
    if not isinstance(settings, dict):
        raise DataError(f"{path} must be a JSON object; got {settings!r:.40}")
    return bool(settings.get("do_lower_case", True))
