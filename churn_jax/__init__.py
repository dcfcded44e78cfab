"""churn_jax: measure and reduce the churn of neural-network predictions, in JAX.

`churn_jax.losses` and `churn_jax.metrics` are functions on arrays and import nothing
heavy; `churn_jax.methods`, `churn_jax.training` and `churn_jax.studies` train.
`churn_jax.study` trains methods on data, a network and an optimiser of your own;
`churn_jax.compare` decides on an update by predictions of any framework;
`churn_jax.report` makes the whole report of logits.
"""

import importlib
import warnings
from typing import TYPE_CHECKING, Any

from churn_jax._plugins import misfits as _misfits
from churn_jax.lazy import load_on_use as _load_on_use

if TYPE_CHECKING:
    from churn_jax.comparison.compare import compare
    from churn_jax.reports.logits import report
    from churn_jax.studies.own import StudyResult, study

    __version__: str

for _sentence in _misfits():
    warnings.warn(_sentence, stacklevel=2)

__all__ = ["StudyResult", "__version__", "compare", "report", "study"]

_HOMES = {
    "StudyResult": "studies.own",
    "compare": "comparison.compare",
    "report": "reports.logits",
    "study": "studies.own",
}

_PACKAGES = (
    "analysis",
    "data",
    "ensembles",
    "losses",
    "methods",
    "metrics",
    "models",
    "perturbations",
    "predictions",
    "reports",
    "studies",
    "testing",
    "training",
)

_find, _ = _load_on_use(__name__, (), _PACKAGES)


def __getattr__(name: str) -> Any:
    """Loads a name when it is first used, so that the package stays light."""
    if name in _HOMES:
        try:
            return getattr(importlib.import_module(f"churn_jax.{_HOMES[name]}"), name)
        except ModuleNotFoundError as error:
            if not (error.name or "").startswith(__name__):
                raise
            raise ModuleNotFoundError(
                f"churn_jax.{name} is part of churn-jax, and here only churn-compare "
                "is installed: pip install churn-jax",
                name=error.name,
            ) from error
    if name == "__version__":
        from importlib.metadata import PackageNotFoundError, version

        for distribution in ("churn-jax", "churn-compare"):
            try:
                return version(distribution)
            except PackageNotFoundError:
                continue
        return "0.0.0"  # a source tree that was never installed
    return _find(name)


def __dir__() -> list[str]:
    """What completion offers, loaded or not."""
    return sorted({*globals(), *__all__, *_PACKAGES})
