"""Options of `churn-jax diversity`; read for the help, so without JAX."""

import dataclasses
import math

from churn_jax.setting_checks import check_least

__all__ = ["DiversityOptions"]


@dataclasses.dataclass(frozen=True)
class DiversityOptions:
    """What is computed of a finished study.

    Attributes:
        rows: names of rows; empty is all that have finished.
        examples: of the training split, the test split, a foreign or a corrupted set
            that are looked at, evenly spaced; all where there are fewer.
        jacobian_examples: the same, for the Jacobians.
        bins: of confidence.
        temperature: of the softmax before the KL of teachers and of students; a loss at
            tau = 4 sees that at 4, and the paper's figures have 1.
        draws: S, of a perturbation for a signal-to-noise ratio.
        batch: examples whose gradient that is of.
        ood: a data set whose test images are foreign; empty is none.
        types: kinds of corruption; empty is all.
        severities: of corruptions; empty is all.
        seed: of guides and noise.
    """

    rows: tuple[str, ...] = ()
    examples: int = 2000
    jacobian_examples: int = 500
    bins: int = 10
    temperature: float = 1.0
    draws: int = 50
    batch: int = 64
    ood: str = ""
    types: tuple[str, ...] = ()
    severities: tuple[int, ...] = ()
    seed: int = 0

    def __post_init__(self):
        """Checks the counts."""
        for name in ("examples", "jacobian_examples", "bins", "batch"):
            check_least(name, getattr(self, name), 1)
        check_least("draws", self.draws, 2)
        if not 0.0 < self.temperature < math.inf:
            raise ValueError(
                f"temperature must be positive and finite; got {self.temperature}"
            )
