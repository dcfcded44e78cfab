"""Texts as token ids: from `.npz`, CSV and TFDS, padded, cut and refused."""

import csv
import dataclasses
import sys

import jax.numpy as jnp
import numpy as np
import pytest
import tensorflow_datasets as tfds

from churn_jax.data import (
    DataError,
    TextOptions,
    channel_statistics,
    is_streaming,
    is_tokens,
    load,
    normalize,
    prepare,
)
from tests.data.small_sets import SmallSet, class_label
from tests.refusals import refusals

PIECES = (
    *("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", ".", ",", "'", "rain", "over"),
    *("the", "cup", "final", "oil", "price", "##s", "fall", "new", "phone", "cafe"),
)
# Made up: class, title, description.
HEADLINES = (
    ("2", "Cup final", "Rain over the cup final."),
    ("3", "Oil prices fall", "Oil\\prices fall, the PRICE of oil falls."),
    ("4", "New phone", "The new phone's price."),
    ("1", "Rain", 'Rain over the "Café".'),
    ("3", "Prices", "Over, over and over."),
    ("4", "A phone", "The phone."),
)


@pytest.fixture
def vocabulary(tmp_path):
    (tmp_path / "bert").mkdir()
    (tmp_path / "bert" / "vocab.txt").write_text("\n".join(PIECES) + "\n")
    return tmp_path / "bert"


@pytest.fixture
def folder(tmp_path):
    parts = {"train": HEADLINES[:4], "test": HEADLINES[4:]}
    for split, rows in parts.items():
        path = tmp_path / f"{split}.csv"
        with path.open("w", newline="", encoding="utf-8") as file:
            csv.writer(file, quoting=csv.QUOTE_ALL).writerows(rows)
    return tmp_path


def _arrays(rng):
    found = {}
    for split, count in (("train", 30), ("test", 12)):
        offsets = np.concatenate([[0], np.cumsum(rng.integers(1, 9, count))])
        found[f"{split}_tokens"] = rng.integers(1, 91, offsets[-1]).astype(np.uint32)
        found |= {f"{split}_offsets": offsets, f"{split}_label": np.arange(count) % 3}
    return found


def _saved(tmp_path, arrays):
    np.savez(tmp_path / "texts.npz", **arrays)
    return tmp_path / "texts.npz"


def test_joined_tokens_are_cut_and_padded(rng, tmp_path, monkeypatch):
    monkeypatch.setattr("churn_jax.data.text._CHUNK", 7)  # texts at a time
    arrays = _arrays(rng)
    path, options = _saved(tmp_path, arrays), TextOptions(5, vocabulary_size=20)
    found = load(path, validation=10, text=options)
    assert [len(s) for s in (found.train, found.validation, found.test)] == [20, 10, 12]
    assert found.num_classes == 3 and not is_streaming(str(path))
    for split in (found.train, found.validation, found.test):
        assert is_tokens(split.images) and split.images.shape[1] == 5
        for row, label, name in zip(split.images, split.labels, split.ids):
            source, i = name.split("/")
            start, stop = arrays[f"{source}_offsets"][int(i) :][:2]
            # The last of 20 ids is the unknown token.
            text = [min(t, 19) for t in arrays[f"{source}_tokens"][start:stop]][:5]
            assert row.tolist() == text + [0] * (5 - len(text))
            assert label == int(i) % 3
    assert found.train.images.max() == 19
    whole = load(path, validation=10, text=TextOptions(5))
    assert whole.train.images.max() > 19
    assert whole.fingerprint != found.fingerprint


def test_padded_tokens_are_cut_or_padded_again(rng, tmp_path):
    arrays = {}
    for split in ("train", "validation", "test"):
        arrays[f"{split}_tokens"] = rng.integers(1, 9, (12, 6))
        arrays[f"{split}_label"] = np.arange(12) % 2
        arrays[f"{split}_id"] = np.array([f"{split}-{i}" for i in range(12)])
    path = _saved(tmp_path, arrays)
    short, long = (load(path, text=TextOptions(length)) for length in (4, 8))
    for name in ("train", "validation", "test"):
        tokens = arrays[f"{name}_tokens"]
        np.testing.assert_array_equal(getattr(short, name).images, tokens[:, :4])
        padded = np.pad(tokens, ((0, 0), (0, 2)))
        np.testing.assert_array_equal(getattr(long, name).images, padded)
        assert getattr(long, name).ids[-1] == f"{name}-11"


def test_tokens_have_no_moments_and_are_not_normalised():
    tokens = np.array([[3, 0], [7, 200]], np.int32)
    mean, std = channel_statistics(tokens)
    assert (mean.tolist(), std.tolist()) == ([0.0], [1.0])
    same = normalize(jnp.asarray(tokens), 5.0, 2.0)
    assert same.dtype == jnp.int32 and same.tolist() == tokens.tolist()


def load_changed(rng, tmp_path, change, options):
    arrays = _arrays(rng) | change
    path = _saved(tmp_path, {k: v for k, v in arrays.items() if v is not None})
    load(path, text=TextOptions(**options))


test_token_files_that_cannot_be = refusals(
    ({"train_offsets": None}, {}, r"joined tokens .* need train_offsets"),
    ({"train_label": None}, {}, "texts need train_tokens and train_label"),
    ({"train_label": np.zeros(3, int)}, {}, r"one label per text, \(30,\)"),
    ({"test_tokens": np.zeros(80, int)}, {}, r"at least 1; got 0 \(0 is padding"),
    ({"test_tokens": np.ones(80)}, {}, "must be integers.*float64"),
    ({"test_tokens": -np.ones((12, 4), int)}, {}, "at least 0; got -1"),
    ({"test_tokens": np.eye(12, 4, dtype=int)}, {}, "8 of 12 texts.*position 4"),
    ({"test_offsets": np.arange(13)[::-1]}, {}, r"rise from 0 to .*\[12, 11, 10\]"),
    ({"test_offsets": np.arange(13) * 99}, {}, "rise from 0"),
    ({"test_offsets": np.arange(13)}, {}, r"rise from 0 to .* \[11, 12\]"),
    ({}, {"sequence_length": 0}, "sequence_length must be at least 1; got 0"),
    ({}, {"vocabulary_size": 2}, "vocabulary_size must be at least 3.*got 2"),
    ({}, {"vocabulary": "x"}, "token ids already need no vocabulary"),
    call=load_changed,
    error=DataError,
    fixtures=["rng", "tmp_path"],
)


def test_headlines_are_cut_into_word_pieces(folder, vocabulary):
    tokenizers = pytest.importorskip("tokenizers")
    options = TextOptions(16, vocabulary=vocabulary)
    found = load(str(folder), validation=0, text=options)
    assert found.num_classes == 4 and not is_streaming(str(folder))
    assert found.train.labels.tolist() == [1, 2, 3, 0]
    assert found.train.ids.tolist() == [f"train/{i}" for i in range(4)]
    # Worked out by hand: lower case, no accent, the backslash a space, unknown words.
    words = [" ".join(PIECES[i] for i in row if i) for row in found.train.images]
    assert words == [
        "[CLS] cup final rain over the cup final . [SEP]",
        # Cut: the last place is [SEP]'s.
        "[CLS] oil price ##s fall oil price ##s fall , the price [UNK] oil fall [SEP]",
        "[CLS] new phone the new phone ' [UNK] price . [SEP]",
        "[CLS] rain rain over the [UNK] cafe [UNK] . [SEP]",
    ]
    library = tokenizers.BertWordPieceTokenizer(
        tokenizers.models.WordPiece.read_file(str(vocabulary / "vocab.txt"))
    )
    library.enable_truncation(16)
    library.enable_padding(length=16)
    texts = [f"{t} {d}".replace("\\", " ") for _, t, d in HEADLINES[4:]]
    theirs = [text.ids for text in library.encode_batch(texts)]
    np.testing.assert_array_equal(found.test.images, theirs)
    # A file instead of its folder; words of a cased vocabulary keep their case.
    file = dataclasses.replace(options, vocabulary=vocabulary / "vocab.txt")
    assert load(folder, validation=0, text=file).fingerprint == found.fingerprint
    (vocabulary / "tokenizer_config.json").write_text('{"do_lower_case": false}')
    cased = load(folder, validation=0, text=options)
    assert (cased.train.images == 1).sum() > (found.train.images == 1).sum()


def load_broken(folder, vocabulary, options, file, content):
    pytest.importorskip("tokenizers")
    if content is None:
        (folder / file).unlink()
    elif file:
        (folder / file).write_text(content)
    load(folder, text=TextOptions(**{"vocabulary": vocabulary, **options}))


test_texts_that_cannot_be_read = refusals(
    ({"vocabulary": None}, None, "", "need a vocabulary .*data.vocabulary"),
    ({"vocabulary": "nowhere"}, None, "", "there is no vocabulary nowhere"),
    ({"vocabulary_size": 9}, None, "", "got vocabulary_size=9"),
    ({"sequence_length": 2}, None, "", "sequence_length of 3; got 2"),
    ({}, "bert/vocab.txt", "the\n", r"lacks \[PAD\], \[UNK\]"),
    ({}, "bert/vocab.txt", "a\n" + "\n".join(PIECES), r"\[PAD\].*it is on line 2"),
    ({}, "bert/tokenizer_config.json", "[]", r"must be a JSON object; got \[\]"),
    ({}, "test.csv", "World,rain\n", r"test.csv, line 1: expected a class.*'World"),
    ({}, "test.csv", '"1","rain\n', "test.csv cannot be read"),
    ({}, "test.csv", "", "test.csv is empty"),
    ({}, "test.csv", None, "there is no file .*test.csv"),
    call=load_broken,
    error=DataError,
    fixtures=["folder", "vocabulary"],
)


def test_without_the_library_one_sentence_says_what_to_install(
    folder, vocabulary, monkeypatch
):
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(DataError, match=r"pip install 'churn-jax\[text\]'"):
        load(folder, text=TextOptions(vocabulary=vocabulary))


class AgNewsSubset(SmallSet, skip_registration=True):
    """As the official one, whose archive cannot be had here, with our headlines."""

    keys = ("description", "label")
    in_order = True

    def contents(self):
        text = tfds.features.Text()
        records = [
            {"label": int(number) - 1, "title": title, "description": description}
            for number, title, description in HEADLINES
        ]
        features = {"label": class_label(4), "title": text, "description": text}
        return features, {"train": records[:4], "test": records[4:]}


def test_the_set_of_tfds_is_read_as_the_csv_files_are(folder, vocabulary, tmp_path):
    pytest.importorskip("tokenizers")
    AgNewsSubset(data_dir=tmp_path).download_and_prepare(file_format="array_record")
    there = prepare("ag_news_subset", data_dir=tmp_path)
    assert there.splits == {"train": 4, "test": 2}
    options = TextOptions(12, vocabulary=vocabulary)
    found = load("ag_news_subset", data_dir=tmp_path, validation=0, text=options)
    same = load(folder, validation=0, text=options)
    assert found.fingerprint == same.fingerprint
    assert not is_streaming("ag_news_subset", data_dir=tmp_path)
    with pytest.raises(DataError, match="need a vocabulary"):
        load("ag_news_subset", data_dir=tmp_path)
