"""How a study keeps what its rows predict."""

import dataclasses

from churn_jax.prediction_shards import fits_whole

__all__ = ["EvaluationConfig"]

_FORMS = ("auto", "file", "shards")


@dataclasses.dataclass(frozen=True)
class EvaluationConfig:
    """How a study keeps what its rows predict.

    Attributes:
        predictions: `file` is one `predictions.npz` for each row and split, for which
            every process gathers all logits `[R, N, C]`. `shards` is a folder
            `predictions` in its place, into which every process writes what its own
            devices predict, batch by batch. `auto` is `shards` where the logits of a
            split have more than 2 GiB, else `file`. Rows that are finished stay as they
            are.
    """

    predictions: str = "auto"

    def __post_init__(self):
        """Refuses unknown forms."""
        if self.predictions not in _FORMS:
            raise ValueError(
                f"evaluation.predictions must be one of {', '.join(_FORMS)}; got "
                f"{self.predictions!r}"
            )

    def sharded(self, runs: int, examples: int, classes: int) -> bool:
        """Whether logits `[R, N, C]` go into shards.

        Args:
            runs: R.
            examples: N.
            classes: C.

        Example:
            >>> EvaluationConfig().sharded(10, 10_000, 10)
            False
            >>> EvaluationConfig().sharded(1, 1_000_000, 21_841)
            True
        """
        if self.predictions == "auto":
            return not fits_whole(runs * examples * classes)
        return self.predictions == "shards"
