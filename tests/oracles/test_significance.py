"""The exact McNemar test, Holm's adjustment and clusters against statsmodels."""

import numpy as np
import pytest

from churn_compare.significance import holm, mcnemar_exact
from churn_compare.sums import ratio

pytestmark = pytest.mark.oracle
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


def test_variance_over_clusters_equals_statsmodels():
    models = pytest.importorskip("statsmodels.regression.linear_model")
    rng = np.random.default_rng(2)
    clusters = np.sort(rng.integers(0, 25, size=300))
    flips = (rng.random(300) < rng.random(25)[clusters]).astype(float)
    fit = models.OLS(flips, np.ones(300)).fit(
        cov_type="cluster", cov_kwds={"groups": clusters}, use_t=True
    )
    sums, sizes = np.bincount(clusters, flips), np.bincount(clusters)
    found = ratio(sums[:, None, None], sizes[:, None, None], np.nan)
    known = found.uncertainty(clusters=len(sizes))
    assert found.value == pytest.approx(fit.params[0], rel=1e-12)
    assert np.sqrt(known.total) == pytest.approx(fit.bse[0], rel=1e-12)
