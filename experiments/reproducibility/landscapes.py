"""Figures 4 and 5 of the first paper as one image.

python -m experiments.reproducibility.landscapes --out landscapes.png
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from churn_compare.documents.plotting import drawing, line_style
from churn_jax.analysis.landscapes import (
    entropy_regularized_log_loss,
    entropy_regularized_logistic_loss,
    tempered_logistic_loss,
)

ALPHAS = (0.0, 0.25, 0.5, 0.75, 1.0)
TEMPERATURES = (0.5, 1.0, 2.0, 4.0)
FORMATS = (".png", ".svg", ".pdf")


def save_landscapes(
    path,
    alphas: Sequence[float] = ALPHAS,
    temperatures: Sequence[float] = TEMPERATURES,
) -> Path:
    """Draws the three losses ([reproducibility] Fig. 4, Fig. 5)."""
    # The paper does not print its values of alpha and tau; these are ours.
    path = Path(path)
    if path.suffix not in FORMATS:
        raise ValueError(f"{path}: must end in {', '.join(FORMATS)}")
    probs = np.linspace(0.0, 1.0, 501)[1:]
    scores = np.linspace(-6.0, 6.0, 481)
    panels = (
        (probs, entropy_regularized_log_loss, alphas, "α", "Probability p"),
        (scores, entropy_regularized_logistic_loss, alphas, "α", "Score f"),
        (scores, tempered_logistic_loss, temperatures, "τ", "Score f"),
    )
    titles = (
        "Entropy-regularised log-loss",
        "Entropy-regularised logistic loss",
        "Logistic loss at a temperature",
    )
    with drawing(12.0, 3.8) as (figure, _):
        for axes, (x, loss, values, symbol, label), title in zip(
            figure.subplots(1, 3), panels, titles, strict=True
        ):
            for i, value in enumerate(values):
                style = line_style(i, f"{symbol} = {value:g}") | {"marker": None}
                axes.plot(x, loss(x, value), **style, linewidth=1.8)
            axes.set_title(title, fontsize=11)
            axes.set(xlabel=label, ylabel="Loss, nats", ylim=(0, 5))
            axes.legend()
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=120)
    return path


def main(argv: Sequence[str] | None = None) -> int:
    """Writes the image; 2 for a file that cannot be written."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments.reproducibility.landscapes",
        description="Figures 4 and 5 of the first paper: binary loss landscapes.",
    )
    parser.add_argument("--out", type=Path, required=True, metavar="FILE")
    arguments = parser.parse_args(argv)
    try:
        print(save_landscapes(arguments.out))
    except (OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
