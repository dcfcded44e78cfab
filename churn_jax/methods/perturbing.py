"""Base of the methods that learn from a teacher on perturbed images."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from churn_compare.class_sets import UNKNOWN_LOGIT, known_classes
from churn_jax import losses
from churn_jax.lazy import Lazy, jax, jnp
from churn_jax.methods.base import Method, Passes
from churn_jax.methods.batch import LossOutput, forward, teacher_logits, with_state
from churn_jax.methods.fields import coefficient, pytree, share, static
from churn_jax.setting_checks import check_none

if TYPE_CHECKING:
    from jax.typing import ArrayLike

    from churn_jax.methods.batch import Batch, Teacher
    from churn_jax.typing import Array, Logits

perturbations = Lazy("churn_jax.perturbations")


PERTURBATIONS = ("none", "gaussian", "ods", "conf_ods", "adversarial", "two_sided")


@pytree
class Perturbing(Method):
    """Base of the methods that distil, also on images moved by a small step.

    `(1 - alpha) L + alpha D`: the labels' loss is of clean images and the divergence
    from the teachers of perturbed ones. With a perturbation the students see both in
    two passes, in training mode, so running batch statistics see both, as in the public
    code. Without one a single pass serves both terms.

    Attributes:
        alpha: weight of the teachers.
        temperature: tau of the divergence, and of the probabilities that directions are
            taken from.
        perturbation: `none`, `gaussian`, `ods`, `conf_ods`, `adversarial` or
            `two_sided`; see `churn_jax.perturbations`.
        step_size: eta, RMS change per pixel, pixels in [0, 1] (paper: 1/255; `conf_ods`
            at most).
        pixel_range: range to which perturbed pixels are clipped; None for other inputs.
        external_teachers: number of the teacher's last members that do not teach; if
            above 0, perturbation directions come from them (transfer), not from the
            teachers.

    References:
        [diversity] Sec. 3.1
    """

    perturbation: str = static("none", of=PERTURBATIONS)
    step_size: float = coefficient(1 / 255, "at least 0")
    pixel_range: tuple[float, float] | None = static((0.0, 1.0))
    external_teachers: int = static(0, of=0)
    alpha: float = share(0.9)
    temperature: float = coefficient(1.0, "above 0")

    needs_teacher = True
    # The name of the second term in logs.
    term = "distillation"

    def __post_init__(self):
        """Checks structure."""
        super().__post_init__()
        low, high = self.pixel_range or (0.0, 1.0)
        check_none(
            "",
            (
                self.external_teachers and self.perturbation == "two_sided",
                "a two_sided step follows the teachers themselves; got "
                f"external_teachers={self.external_teachers}",
            ),
            (not low < high, f"pixel_range must rise; got {self.pixel_range}"),
        )

    @property
    def passes(self) -> Passes:
        """Without a perturbation one forward pass serves both terms."""
        plain = super().passes
        if self.perturbation == "none":
            return plain
        moved = plain._replace(training=2)
        if self.perturbation == "two_sided":
            return moved._replace(input_gradients=1, teachers_input_gradients=1)
        return moved._replace(drawn_teacher=int(self.perturbation != "gaussian"))

    def loss(self, apply, variables, batch, *, teacher, step, key):
        """The labels' cross-entropy mixed with the divergence from the teachers."""
        if teacher is None:
            raise ValueError(f"{type(self).__name__} needs a teacher; none was given")
        temperature = self.annealed(step)
        clean, labels, state = forward(apply, variables, batch)
        students = clean
        if self.perturbation != "none":
            frozen = jax.lax.stop_gradient(variables)
            images = self.perturbed(
                batch,
                teacher,
                lambda images: apply(frozen, images, False)[0].logits,
                temperature=temperature,
                key=key,
            )
            batch = dataclasses.replace(batch, images=images)
            students, _, state = forward(apply, with_state(variables, state), batch)
        taught = teacher_logits(teacher, batch)
        taught = taught[: self._own_teachers(len(taught))]
        # Classes that the students do not have are ignored.
        taught = jnp.where(known_classes(students[:1]), taught, UNKNOWN_LOGIT)
        cross_entropy = self.reduced(batch, losses.cross_entropy(clean, labels))
        other = self.divergence(batch, students, taught, temperature)
        loss = (1.0 - self.alpha) * cross_entropy + self.alpha * other
        terms = {"cross_entropy": cross_entropy, self.term: other}
        return LossOutput(loss, terms, state)

    def divergence(
        self, batch: Batch, students: Logits, teachers: Logits, temperature: Any
    ) -> Array:
        """The second term, of `[M, B, C]` and `[T, B, C]`, which has no gradient."""
        raise TypeError(f"{type(self).__name__} defines no divergence")

    def reduced(self, batch: Batch, values: Array) -> Array:
        """Sum over members of the means over examples of `[M, B]`."""
        return batch.total(values)

    def annealed(self, step: ArrayLike) -> Any:
        """`tau` at `step` (0 is the first update)."""
        del step
        return self.temperature

    def check_inputs(self, images: Any) -> None:
        """Refuses inputs that cannot be perturbed, or that `pixel_range` would clip."""
        if self.perturbation == "none":
            return
        if images.dtype == np.int32:
            raise ValueError(
                f"perturbation {self.perturbation!r} moves pixels by small steps; "
                "token ids have none"
            )
        if self.pixel_range is None or images.dtype == np.uint8:
            return
        low, high = float(np.min(images)), float(np.max(images))
        if low < self.pixel_range[0] or high > self.pixel_range[1]:
            raise ValueError(
                f"inputs run from {low:g} to {high:g}, outside of pixel_range "
                f"{self.pixel_range}, to which perturbed ones are clipped; set "
                "pixel_range to the inputs' own range, or to None for inputs that are "
                "not pixels"
            )

    def _own_teachers(self, count: int) -> int:
        """The number of teachers that are not external."""
        if count <= self.external_teachers:
            raise ValueError(
                f"{self.external_teachers} external teachers leave none to learn from; "
                f"got {count} teachers"
            )
        return count - self.external_teachers

    def perturbed(
        self,
        batch: Batch,
        teacher: Teacher,
        students: Callable[[Array], Logits],
        *,
        temperature: Any,
        key: jax.Array,
    ) -> Array:
        """The batch's perturbed images, normalised, without gradients.

        One teacher is drawn for the whole batch, by `key`.
        """
        kind, clean = self.perturbation, batch.hide(batch.images, axis=0)
        images = batch.to_pixels(clean)
        options: dict[str, Any] = {
            "step_size": self.step_size,
            "pixel_range": self.pixel_range,
        }
        # Shapes alone: how many teachers there are.
        total = jax.eval_shape(teacher, clean).shape[0]
        count = self._own_teachers(total)
        if kind != "gaussian":
            options["temperature"] = temperature
        # Augmentation has used the batch's keys themselves: with the same bits, whether
        # an image is mirrored would decide the sign of one entry of its guide.
        keys = jax.vmap(jax.random.fold_in, (0, None))(batch.keys, 1)
        first, last = (count, total) if self.external_teachers else (0, count)
        pick = jax.random.randint(key, (), first, last)

        def drawn(pixels):
            return teacher(batch.from_pixels(pixels), pick)

        if kind == "gaussian":
            moved = perturbations.gaussian(images, keys, **options)
        elif kind == "adversarial":
            moved = perturbations.adversarial(drawn, images, batch.labels, **options)
        elif kind == "two_sided":
            moved = perturbations.two_sided(
                lambda pixels: teacher(batch.from_pixels(pixels))[:count],
                lambda pixels: students(batch.from_pixels(pixels)),
                images,
                **options,
            )
        else:
            move = perturbations.ods if kind == "ods" else perturbations.conf_ods
            moved = move(drawn, images, keys, **options)
        # The perturbed image is data: no gradient flows through how it was made.
        return jax.lax.stop_gradient(batch.from_pixels(moved))
