"""WordPieces of a local vocabulary, as BERT reads text."""

import json
import pathlib
from collections.abc import Sequence

import numpy as np

from churn_jax.data.splits import DataError
from churn_jax.data.text import PADDING, TextOptions

__all__ = ["encode_texts"]

_SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")
_CHUNK = 4096  # texts at once; the library keeps kilobytes of each


def encode_texts(texts: Sequence[str], options: TextOptions) -> np.ndarray:
    """Token ids `[N, L]` int32 of texts, `[CLS] ... [SEP]`, cut and padded with 0."""
    # Texts are lower-cased and lose their accents, unless a `tokenizer_config.json`
    # next to the vocabulary says `"do_lower_case": false`.
    if options.vocabulary is None:
        raise DataError(
            "texts need a vocabulary of WordPieces: the vocab.txt of a local BERT "
            "folder (--data.vocabulary FOLDER)"
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
    for start in range(0, len(texts), _CHUNK):
        part = tokenizer.encode_batch_fast(list(texts[start : start + _CHUNK]))
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
            f"{path} is no vocabulary of WordPieces: it lacks {', '.join(missing)}"
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
    return bool(settings.get("do_lower_case", True))
