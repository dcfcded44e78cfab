"""churn_jax: measure and reduce the churn of neural-network predictions, in JAX.

`churn_jax.losses` and `churn_jax.metrics` are functions on arrays and import nothing
heavy; `churn_jax.methods`, `churn_jax.training` and `churn_jax.studies` train.
`churn_jax.study` trains methods on data, a network and an optimiser of your own;
`churn_jax.compare` decides on an update by predictions of any framework.
"""

from typing import TYPE_CHECKING

from churn_compare.lazy import load_on_use as _load_on_use

if TYPE_CHECKING:
    from churn_compare.comparison import compare
    from churn_jax.studies.own import StudyResult, study

    __version__: str

__getattr__, __dir__, __all__ = _load_on_use(__name__, ["__version__"])
