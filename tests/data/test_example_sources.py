"""Records of Hugging Face, Grain, PyTorch and plain Python as data sets.

`make test-sources` has an environment with all of them.
"""

import grain
import numpy as np
import pytest
from PIL import Image

from churn_jax.data import (
    DataError,
    Dataset,
    example_sources,
    from_source,
    is_tokens,
    load,
    named,
)
from tests.refusals import refusals

RNG = np.random.default_rng(0)
X = RNG.integers(256, size=(30, 6, 6, 3), dtype=np.uint8)
Y = np.arange(30) % 3
RECORDS = [{"image": x, "label": int(y)} for x, y in zip(X, Y, strict=True)]
PAIRS = [(x, y) for x, y in zip(X, Y, strict=True)]
WORDS = np.array(["dog", "cat", "bird"])
EXPECTED = Dataset.from_arrays(X, Y)


class Indexed:
    """A random-access source as PyTorch has them, which ends with no IndexError."""

    def __len__(self):
        return len(PAIRS)

    def __getitem__(self, index):
        return PAIRS[index % len(PAIRS)]


def grain_source():
    return grain.MapDataset.source(RECORDS)


@pytest.mark.parametrize(
    "source",
    [
        RECORDS,
        (record for record in [*RECORDS]),
        Indexed(),
        grain_source(),
        grain.MapDataset.source(PAIRS).to_iter_dataset(),
        [(Image.fromarray(x), y) for x, y in PAIRS],
        [(x, np.eye(3)[y]) for x, y in PAIRS],
        [{"image": Image.fromarray(x), "label": WORDS[2 - y]} for x, y in PAIRS],
    ],
    ids="dicts generator indexed map iter PIL one-hot strings".split(),
)
def test_records_are_read_as_arrays_are(source):
    assert from_source(source).fingerprint == EXPECTED.fingerprint


def test_splits_columns_ids_and_filters():
    rows = [{"pixels": x, "y": y, "id": 100 + i} for i, (x, y) in enumerate(PAIRS)]
    splits = {"train": rows, "test": rows[:9]}
    mine = from_source(splits, columns=("pixels", "y"), validation=0)
    assert mine.train.ids.tolist() == list(range(100, 130)) and len(mine.test) == 9
    assert load(named(splits, columns=("pixels", "y"))).test.ids[-1] == 108
    fewer = grain_source().filter(lambda record: record["label"] < 2)
    assert from_source(fewer).num_classes == 2
    assert len(from_source(RECORDS, test=RECORDS[:5], validation=PAIRS[:4]).test) == 5


def test_more_records_than_expected_are_kept():
    source = [(np.full(2, i), i % 2) for i in range(3000)]
    mine = from_source(iter(source), test=source[:5], validation=0)
    assert mine.train.images[:, 1].tolist() == list(range(3000))
    mixed = [([1, 2], 0), ([1.5, 2], 1)]
    assert from_source(mixed, test=mixed, validation=0).train.images[1, 0] == 1.5


@pytest.mark.parametrize("alpha", [0, 1])
def test_grey_images_among_coloured_ones_are_coloured_and_opaque(alpha):
    grey = np.repeat(X[..., :1], 3, axis=-1)
    colour, grey = (
        np.insert(x, [3] * alpha, opacity, axis=-1)
        for x, opacity in ((X, 7), (grey, 255))
    )
    mixed = [(x[..., 0] if i % 2 else x, i % 3) for i, x in enumerate(colour)]
    for first, part in ((0, mixed), (1, mixed[1:])):
        images = from_source({"train": part, "test": part}).test.images
        assert images.dtype == np.uint8
        for i in (first, first + 1):
            expected = (grey if i % 2 else colour)[i]
            np.testing.assert_array_equal(images[i - first], expected)


def test_pillow_images_are_converted_to_their_pixels():
    palette = Image.fromarray(X[0]).convert("P")
    bits = Image.fromarray(X[0]).convert("1")
    for image, shape in ((palette, (6, 6, 3)), (bits, (6, 6, 1))):
        source = [(image, 0), (image, 1)] * 5
        images = from_source(source).train.images
        assert images.shape[1:] == shape
        pixels = np.asarray(image.convert("RGB"))[..., : shape[-1]]
        np.testing.assert_array_equal(images[0], pixels)


def test_token_ids_are_padded():
    rows = [{"input_ids": [7] * (i % 3 + 1), "label": i % 2} for i in range(20)]
    splits = {"train": [r for r in rows if len(r["input_ids"]) < 3], "test": rows}
    mine = from_source(splits, columns=("input_ids", "label"))
    assert is_tokens(mine.test.images) and mine.train.images.shape[1] == 3
    assert mine.test.images[:3].tolist() == [[7, 0, 0], [7, 7, 0], [7, 7, 7]]
    empty = [*rows, {"input_ids": [], "label": 0}]
    with pytest.raises(DataError, match="1 of 21 texts have no token, the"):
        from_source(empty, columns=("input_ids", "label"))


class Unread:
    """As PyTorch's `IterableDataset` with a length, without its iterator."""

    def __len__(self):
        return len(PAIRS)

    def __getitem__(self, index):
        raise NotImplementedError("by no number")


class Iterated(Unread):
    def __iter__(self):
        return iter(PAIRS)


def test_a_source_that_has_a_length_may_be_read_in_order_only():
    assert from_source(Iterated()).fingerprint == EXPECTED.fingerprint
    with pytest.raises(DataError, match=r"example 0 cannot be read \(by no number"):
        from_source(Unread())


def batched():
    return [(X[i : i + 10], Y[i : i + 10]) for i in (0, 10, 20)]


def broken():
    yield PAIRS[0]
    raise OSError("broken.png\nline 2")


test_what_cannot_be_read_gives_one_sentence = refusals(
    (batched(), r"single examples; got images of shape \(10, 6, 6, 3\)"),
    ([(x[:, 0, 0], y) for x, y in batched()], r"single .*\(10, 3\).*\(10,\): leav"),
    (grain_source().batch(5), "single examples"),
    (grain_source().repeat(), "GiB, more than this machine's memory"),
    ([("a film", 1)], r"image holds texts: tokenize .*columns=\('input_ids'"),
    ([(b"\x89PNG", 1)], "image holds bytes: decode images to arrays"),
    ([(["a", "b"], 1)], "image holds list.*: tokenize"),
    ([(X[0], 0), (X[1][:5], 1)], r"one size; image 0 .*\(6, 6, 3\), image 1 \(5,"),
    ([(X[0], 0), (X[1] / 255, 1)], "one dtype; image 0 has uint8, image 1 float64"),
    ([([1, 2], 0), ([1], 1)], "one size.*resize them first, or tokenize"),
    ([{"img": X[0], "label": 1}], "no 'image', but img, label; .* columns="),
    ([(X[0], 0, 1)], "record 0 is tuple of 3. Several splits are given as"),
    ((grain_source(), grain_source()), r"one of arrays .*MapDataset. Several"),
    ([grain_source(), grain_source()], r"record 0 is \w*MapDataset. Several"),
    (broken(), r"train: example 1 cannot be read \(broken.png\)$"),
    ([(Image.new("I;16", (6, 6)), 0)], r"more than 8 bits a pixel \(mode I;16\)"),
    ([(x, None) for x, _ in PAIRS], "all of them strings; got None at position 0"),
    ([], "the split is empty"),
    (X, r"give images and labels as a pair of arrays \(x, y\)"),
    ({"train": {"image": X, "label": Y}}, r"train: give images and labels as a pair"),
    (7, r"expected arrays .x, y., .*; got int"),
    call=from_source,
    error=DataError,
)


def test_memory_is_not_exceeded_by_a_source_of_unknown_length(monkeypatch):
    monkeypatch.setattr(example_sources, "_memory", lambda: 3100 * X[0].nbytes)
    assert len(from_source(iter(PAIRS * 30)).train) > 600
    with pytest.raises(DataError, match="more than this machine's memory"):
        from_source(iter(PAIRS * 70))


def test_hugging_face_data_sets():
    hf = pytest.importorskip("datasets")
    pictures = {"img": [Image.fromarray(x) for x in X], "y": Y.tolist()}
    features = hf.Features({"img": hf.Image(), "y": hf.ClassLabel(names=[*WORDS])})
    images = hf.Dataset.from_dict(pictures, features=features)
    arrays = hf.Dataset.from_dict({"img": list(X), "y": Y.tolist()})
    with pytest.raises(DataError, match="got int64; pixels from 0 to 255 become so"):
        from_source(arrays, columns=("img", "y"))
    arrays = arrays.with_format("numpy", dtype=np.uint8)
    for source in (images, images.to_iterable_dataset(), arrays):
        mine = from_source(source, columns=("img", "y"))
        assert mine.fingerprint == EXPECTED.fingerprint
    splits = hf.DatasetDict(train=images, test=images.select(range(9)))
    assert len(load(named(splits, columns=("img", "y"))).test) == 9
    with pytest.raises(DataError, match="has no 'image', but img, y; name the image"):
        from_source(images)


def test_pytorch_data_sets():
    torch = pytest.importorskip("torch")
    pixels, labels = torch.as_tensor(X), torch.as_tensor(Y)
    tensors = torch.utils.data.TensorDataset(pixels, labels)
    for source in (tensors, (pixels, labels)):
        assert from_source(source).fingerprint == EXPECTED.fingerprint
    loader = torch.utils.data.DataLoader(tensors, batch_size=8)
    graded = torch.zeros(30, 3, requires_grad=True)
    for source, message in (
        (loader, "the data set instead of its DataLoader"),
        ((graded, labels), "Use tensor.detach"),
    ):
        with pytest.raises(DataError, match=message):
            from_source(source)


def test_pandas_frames():
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"a": Y * 2, "b": Y / 7, "work": WORDS[Y]})
    labels = pd.Series(WORDS[Y], dtype="category")
    mine = from_source(
        (pd.get_dummies(frame), labels), test=(pd.get_dummies(frame), WORDS[Y])
    )
    assert mine.class_names == ("bird", "cat", "dog")
    np.testing.assert_array_equal(mine.test.images[:, 2:], np.eye(3)[2 - Y])
    missing = pd.DataFrame({"a": pd.array([1, None] * 15, dtype="Int64")})
    for source, message in (
        ((frame, labels), r"1 that are not \(work\)"),
        ((missing, Y), "15 of 30 images hold NaN"),
        ((frame[["a"]], labels.where(Y > 0)), "of them strings; got nan at position 0"),
        (frame, "a table needs its labels"),
    ):
        with pytest.raises(DataError, match=message):
            from_source(source)
