"""Methods that learn from a teacher on perturbed images."""

from typing import Any

import jax
from flax import struct

from churn_jax import perturbations
from churn_jax.methods.base import (
    QUIET,
    Apply,
    Batch,
    Method,
    Teacher,
    coefficient,
    static,
)
from churn_jax.typing import Array, PyTree

__all__ = ["PERTURBATIONS", "Perturbing"]

PERTURBATIONS = ("none", "gaussian", "ods", "conf_ods", "adversarial", "two_sided")


@struct.dataclass
class Perturbing(Method):
    """Base of the methods that distil on images moved by a small step.

    Attributes:
        perturbation: `none`, `gaussian`, `ods`, `conf_ods`, `adversarial` or
            `two_sided`; see `churn_jax.perturbations`.
        step_size: eta, RMS change per pixel on the scale from 0 to 1 (paper: 1/255).
        pixel_range: to which perturbed pixels are clipped; None where inputs are no
            pixels.
        external_teachers: how many of the teacher's last members teach nobody; where
            there are some, directions come from them (transfer) instead of from the
            teachers.
    """

    perturbation: str = static("none", metadata=QUIET)
    step_size: float = coefficient(1 / 255, metadata=QUIET)
    pixel_range: tuple[float, float] | None = static((0.0, 1.0), metadata=QUIET)
    external_teachers: int = static(0, metadata=QUIET)

    def __post_init__(self):
        """Checks structure."""
        super().__post_init__()
        if self.perturbation not in PERTURBATIONS:
            raise ValueError(
                f"perturbation must be one of {', '.join(PERTURBATIONS)}; got "
                f"{self.perturbation!r}"
            )
        if self.external_teachers < 0:
            raise ValueError(
                f"external_teachers must be at least 0; got {self.external_teachers}"
            )

    def perturbed(
        self,
        batch: Batch,
        teacher: Teacher,
        *,
        temperature: Any,
        key: jax.Array,
        apply: Apply,
        variables: PyTree,
    ) -> Array:
        """The batch's images, normalised, after the step; gradients are stopped.

        One teacher is drawn for the whole batch.

        Args:
            batch: the clean batch.
            teacher: as `Method.loss` has it.
            temperature: tau of the teacher's probabilities.
            key: shared by the batch.
            apply: of the students, for `two_sided`.
            variables: of the students.
        """
        kind = self.perturbation
        clean = batch.hide(batch.images, axis=0)
        images = batch.to_pixels(clean)
        options: dict[str, Any] = {
            "step_size": self.step_size,
            "pixel_range": self.pixel_range,
        }
        if kind == "none":
            return clean
        if kind == "gaussian":
            moved = perturbations.gaussian(images, batch.keys, **options)
            return jax.lax.stop_gradient(batch.from_pixels(moved))
        options["temperature"] = temperature
        # Shapes alone: how many teachers there are.
        count = jax.eval_shape(teacher, clean).shape[0] - self.external_teachers
        first, last = 0, count
        if self.external_teachers:
            first, last = count, count + self.external_teachers
        pick = jax.random.randint(key, (), first, last)

        def drawn(pixels):
            return teacher(batch.from_pixels(pixels), pick)

        if kind == "adversarial":
            moved = perturbations.adversarial(drawn, images, batch.labels, **options)
        elif kind == "two_sided":
            frozen = jax.lax.stop_gradient(variables)
            moved = perturbations.two_sided(
                lambda pixels: teacher(batch.from_pixels(pixels))[:count],
                lambda pixels: (
                    apply(frozen, batch.from_pixels(pixels), False)[0].logits
                ),
                images,
                **options,
            )
        else:
            move = perturbations.ods if kind == "ods" else perturbations.conf_ods
            moved = move(drawn, images, batch.keys, **options)
        # The perturbed image is data: nothing is learnt through how it was made.
        return jax.lax.stop_gradient(batch.from_pixels(moved))
