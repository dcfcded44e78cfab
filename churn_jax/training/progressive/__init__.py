"""One pass over clicks: score, then learn; tables of which only rows are touched.

Names are loaded when they are first used.
"""

from typing import TYPE_CHECKING

from churn_jax.lazy import load_on_use

if TYPE_CHECKING:
    from churn_jax.training.progressive.loop import ClickScores, train_clicks
    from churn_jax.training.progressive.state import ClickRun

__all__ = ["ClickRun", "ClickScores", "train_clicks"]

__getattr__, __dir__ = load_on_use(__name__, __all__, ("state", "loop"))
