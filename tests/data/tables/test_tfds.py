"""TFDS sets as tables."""

import numpy as np
import pytest
import tensorflow_datasets as tfds

from churn_jax.data.splits import DataError
from churn_jax.data.tables import Categorical, Numeric, TableSchema, open_table, sources
from tests.data.small_sets import SmallSet

SCHEMA = TableSchema(
    "outcome",
    ("click",),
    (Categorical("site", vocabulary=("s0", "s1", "s2")),),
    (Numeric("price"),),
    time="at",
)


class ChurnClicks(SmallSet):
    """Thirty impressions in time order."""

    in_order = True

    def contents(self):
        features = {
            "site": tfds.features.Text(),
            "price": np.float32,
            "at": np.int64,
            "pair": tfds.features.Tensor(shape=(2,), dtype=np.float32),
            "outcome": tfds.features.ClassLabel(names=["none", "click"]),
        }
        records = [
            {
                "site": f"s{i % 4}",
                "price": i / 2,
                "at": i,
                "pair": np.zeros(2, np.float32),
                "outcome": i % 2,
            }
            for i in range(30)
        ]
        return features, {"train": records}


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tfds")
    builder = ChurnClicks(data_dir=str(folder))
    builder.download_and_prepare(file_format="array_record")
    return folder


def test_a_tfds_split_is_a_stream(data_dir, monkeypatch):
    monkeypatch.setattr(sources, "_BLOCK_ROWS", 8)
    stream = open_table("tfds:churn_clicks/train", SCHEMA, data_dir=data_dir)
    windows = list(stream.windows(20))
    i = np.arange(20)
    assert windows[0].ids[:, 0].tolist() == ((i % 4 + 1) % 4).tolist()
    assert windows[0].numeric[:, 0].tolist() == (i / 2).tolist()
    assert windows[0].labels.tolist() == (i % 2).tolist()
    assert (stream.count(), windows[1].first, windows[1].mask.sum()) == (30, 20, 10)
    assert len(stream.fingerprint) == 64


@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        ("churn_clicks/test", {}, "has no 'test' split; it has train"),
        ("churn_clicks/train", {"time": "when"}, "no column 'when'"),
        ("churn_clicks/train", {"numeric": (Numeric("pair"),)}, "one value per exam"),
        ("churn_nothing/train", {}, "'churn_nothing' is neither"),
    ],
)
def test_a_set_that_does_not_fit_is_refused(data_dir, name, change, said):
    schema = TableSchema(**{**vars(SCHEMA), **change})
    with pytest.raises(DataError, match=said):
        open_table(f"tfds:{name}", schema, data_dir=data_dir)
