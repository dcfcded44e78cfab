"""Figures 4 and 5 of the first paper as one image: binary losses.

    python -m experiments.reproducibility.landscapes landscapes.png

`p` is the probability of the true class, `f` its score with `p = sigmoid(f)`. All in
log-space: a score of 1000 or a probability of 0 gives the limit, not NaN. NumPy,
float64; the losses that train are in `churn_jax.losses`.
"""

import sys
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from churn_compare.documents.plotting import drawing, line_style

# The paper does not print its values of alpha and tau; these are ours.
ALPHAS = (0.0, 0.25, 0.5, 0.75, 1.0)
TEMPERATURES = (0.5, 1.0, 2.0, 4.0)


def entropy_regularized_log_loss(probs: ArrayLike, alpha: float) -> NDArray[np.float64]:
    """The regularised log-loss, `(1 - alpha) (-log p) + alpha H_bin(p)`, in nats.

    `H_bin(p) = -p log p - (1 - p) log(1 - p)`. Infinite at `p = 0` unless alpha is 1.

    References:
        [reproducibility] Fig. 4
    """
    probs = np.asarray(probs, np.float64)
    entropy = special.entr(probs) + special.entr(1.0 - probs)
    with np.errstate(divide="ignore"):
        # At alpha = 1 the log-loss has weight 0, also where it is infinite.
        log_loss = -np.log(probs) if alpha < 1 else np.zeros_like(probs)
    return (1.0 - alpha) * log_loss + alpha * entropy


def entropy_regularized_logistic_loss(
    scores: ArrayLike, alpha: float
) -> NDArray[np.float64]:
    """The same of a score, `(1 - alpha) (-log s(f)) + alpha H_bin(s(f))`.

    With s the sigmoid, `-log s(f) = log(1 + exp(-f))`, and as `1 - s(f) = s(-f)`, the
    entropy is `s(f) log(1 + exp(-f)) + s(-f) log(1 + exp(f))`: no logarithm is taken of
    a probability that has rounded to 0. As f goes to minus infinity the slope goes to
    `-(1 - alpha)`: a confident wrong prediction costs less the larger alpha.

    References:
        [reproducibility] Fig. 4
    """
    scores = np.asarray(scores, np.float64)
    right, wrong = np.logaddexp(0.0, -scores), np.logaddexp(0.0, scores)
    entropy = special.expit(scores) * right + special.expit(-scores) * wrong
    return (1.0 - alpha) * right + alpha * entropy


def tempered_logistic_loss(
    scores: ArrayLike, temperature: float
) -> NDArray[np.float64]:
    """The logistic loss at a temperature, `-log s(f / tau)`, not multiplied by tau^2.

    References:
        [reproducibility] Fig. 5
    """
    return np.logaddexp(0.0, -np.asarray(scores, np.float64) / temperature)


def save_landscapes(path: Path) -> Path:
    """Draws the three losses ([reproducibility] Fig. 4, Fig. 5)."""
    probs = np.linspace(0.0, 1.0, 501)[1:]
    scores = np.linspace(-6.0, 6.0, 481)
    panels = (
        (probs, entropy_regularized_log_loss, ALPHAS, "α", "Probability p"),
        (scores, entropy_regularized_logistic_loss, ALPHAS, "α", "Score f"),
        (scores, tempered_logistic_loss, TEMPERATURES, "τ", "Score f"),
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


if __name__ == "__main__":  # FILE: where Figures 4 and 5 of the first paper go
    print(save_landscapes(Path(sys.argv[1])))
