"""churn_jax: measure and reduce the churn of neural-network predictions, in JAX.

`churn_jax.losses` and `churn_jax.metrics` are functions on arrays and import nothing
heavy; `churn_jax.methods`, `churn_jax.training` and `churn_jax.studies` train.
"""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("churn-jax")
except PackageNotFoundError:  # a source tree that was never installed
    __version__ = "0.0.0"

__all__ = ["__version__"]
