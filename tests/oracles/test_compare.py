"""PyTorch's predictions compared end to end, through `.npy` and through Parquet."""

import json
import runpy
from pathlib import Path

import numpy as np
import pytest
import torch

from churn_compare.significance import holm, mcnemar_exact
from churn_compare.sums import ratio
from churn_jax.cli import main

pytestmark = pytest.mark.oracle
SCRIPT = Path(__file__).resolve().parents[2] / "experiments" / "compare" / "pytorch.py"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Predictions of two networks, as the example writes them."""
    folder = tmp_path_factory.mktemp("predictions")
    runpy.run_path(str(SCRIPT))["write_predictions"](folder)
    return folder


def compared(folder, *words):
    """Every number of the command, by name."""
    report = folder / "report.json"
    few = ["--json", str(report)]
    assert main(["compare", *map(str, words), *few]) == 0
    found = json.loads(report.read_text())
    return found["examples"], found["quantities"], found["regressions_total"]


def test_both_formats_give_what_torch_gives(folder, capsys):
    old, new = (torch.from_numpy(np.load(folder / f"{n}.npy")) for n in ("old", "new"))
    labels = torch.from_numpy(np.load(folder / "labels.npy").astype(np.int64))
    right = [(logits.argmax(-1) == labels) for logits in (old, new)]
    expected = {
        "accuracy_old": right[0].double().mean(),
        "accuracy_new": right[1].double().mean(),
        "churn": (old.argmax(-1) != new.argmax(-1)).double().mean(),
        "negative_flip_rate": (right[0] & ~right[1]).double().mean(),
        "positive_flip_rate": (~right[0] & right[1]).double().mean(),
        "nll_old": torch.nn.functional.cross_entropy(old.double(), labels),
        "nll_new": torch.nn.functional.cross_entropy(new.double(), labels),
    }
    sides = folder / "old.npy", folder / "new.npy", "--labels", folder / "labels.npy"
    by_row = compared(folder, *sides)
    by_id = compared(folder, folder / "old.parquet", folder / "new.parquet")
    for examples, quantities, regressions in (by_row, by_id):
        assert examples == 897 and regressions == int((right[0] & ~right[1]).sum())
        for name, value in expected.items():
            found = quantities[name]
            assert found["value"] == pytest.approx(float(value), rel=1e-5), name
            assert found["low"] <= found["value"] <= found["high"]
    assert "Negative flips (NFR)" in capsys.readouterr().out
    with capsys.disabled():
        print(f"\nPyTorch {torch.__version__}, 897 digits, found by both:")
        for name, value in expected.items():
            print(f"  {name:<20} {float(value):.4f}")


contingency = pytest.importorskip("statsmodels.stats.contingency_tables")
multitest = pytest.importorskip("statsmodels.stats.multitest")


def test_mcnemar_equals_statsmodels():
    rng = np.random.default_rng(0)
    for most in (3, 30, 3000):
        for b, c in rng.integers(0, most, size=(50, 2)).tolist():
            theirs = contingency.mcnemar([[5, b], [c, 7]], exact=True).pvalue
            assert mcnemar_exact(b, c) == pytest.approx(float(theirs), rel=1e-9)


def test_holm_equals_statsmodels():
    rng = np.random.default_rng(1)
    for count in (1, 2, 9, 200):
        p = rng.beta(0.3, 2.0, size=count).round(3)  # with ties
        theirs = multitest.multipletests(p, method="holm")[1]
        np.testing.assert_allclose(holm(p), theirs, rtol=1e-12)


def test_variance_over_equal_clusters_equals_statsmodels():
    models = pytest.importorskip("statsmodels.regression.linear_model")
    rng = np.random.default_rng(2)
    clusters = np.arange(300) // 12
    flips = (rng.random(300) < rng.random(25)[clusters]).astype(float)
    fit = models.OLS(flips, np.ones(300)).fit(
        cov_type="cluster", cov_kwds={"groups": clusters}, use_t=True
    )
    sums, sizes = np.bincount(clusters, flips), np.bincount(clusters)
    found = ratio(sums[:, None, None], sizes[:, None, None], np.nan, 25)
    known = found.uncertainty(clusters=len(sizes))
    assert found.value == pytest.approx(fit.params[0], rel=1e-12)
    assert np.sqrt(known.total) == pytest.approx(fit.bse[0], rel=1e-12)
