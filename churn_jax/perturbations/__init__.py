"""Perturbations of inputs: pure functions of images and a network's predictions."""

from churn_compare.lazy import load_on_use
from churn_jax.perturbations.ods import (
    Directions,
    adversarial,
    all_teacher_direction,
    conf_ods,
    draw_guides,
    gaussian,
    ods,
    ods_directions,
    pair_disagreement,
    step,
    two_sided,
    unit_directions,
)

__getattr__, __dir__, __all__ = load_on_use(__name__)
