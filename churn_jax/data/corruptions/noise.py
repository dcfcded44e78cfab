"""Gaussian, shot and impulse noise."""

import numpy as np
from scipy import special

from churn_jax.data.corruptions.draws import Draws

__all__ = ["gaussian_noise", "impulse_noise", "shot_noise"]

STANDARD_DEVIATION = (0.04, 0.08, 0.12, 0.16, 0.20)
PHOTONS = (150, 75, 40, 20, 10)  # that a white pixel counts on average
CHANGED_SHARE = (0.02, 0.05, 0.09, 0.14, 0.20)


def gaussian_noise(x: np.ndarray, draws: Draws, level: int) -> np.ndarray:
    """`x + s n` with n standard normal in every pixel and channel."""
    return x + STANDARD_DEVIATION[level] * draws.normal(*x.shape[1:])


def shot_noise(x: np.ndarray, draws: Draws, level: int) -> np.ndarray:
    """`Poisson(c x) / c`: few photons are counted, c for a white pixel on average."""
    photons = PHOTONS[level]
    grey = np.rint(255.0 * x).astype(np.int64)  # x comes from bytes: 256 values
    most = photons + int(12 * np.sqrt(photons)) + 12
    through = special.pdtr(
        np.arange(most + 1), photons * np.arange(256)[:, None] / 255.0
    )
    through[:, -1] = 1.0
    # Inverting 256 distribution functions by one search: the one of grey value g is
    # raised by g, so that they follow each other in one rising table.
    table = (np.arange(256)[:, None] + through).reshape(-1)
    place = np.searchsorted(table, grey + draws.uniform(*x.shape[1:]))
    count = np.clip(place - grey * (most + 1), 0, most)
    return count / photons


def impulse_noise(x: np.ndarray, draws: Draws, level: int) -> np.ndarray:
    """A share of the pixels, channel by channel, becomes black or white."""
    share, drawn = CHANGED_SHARE[level], draws.uniform(*x.shape[1:])
    return np.where(drawn < share / 2, 0.0, np.where(drawn < share, 1.0, x))
