"""Base of the methods that learn from a teacher on perturbed images."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from churn_jax.lazy import jax, lazy
from churn_jax.methods.base import Method, Passes
from churn_jax.methods.batch import Apply, Batch, Teacher, forward, with_state
from churn_jax.methods.fields import check_choices, coefficient, pytree, static
from churn_jax.setting_checks import check_least

if TYPE_CHECKING:
    from jaxtyping import PyTree

    from churn_jax.typing import Array, Logits

perturbations = lazy("churn_jax.perturbations")


PERTURBATIONS = ("none", "gaussian", "ods", "conf_ods", "adversarial", "two_sided")


class Answers(NamedTuple):
    """Logits of students and teachers of one batch; padding is hidden."""

    clean: Logits  # of students on clean images, [M, B, C]
    labels: Array  # [M, B]
    students: Logits  # of students on perturbed images; `clean` without perturbation
    teachers: Logits  # on perturbed images, [T, B, C], external ones left out, stopped
    model_state: PyTree  # of the students' last pass


@pytree
class Perturbing(Method):
    """Base of the methods that distil on images moved by a small step.

    Attributes:
        perturbation: `none`, `gaussian`, `ods`, `conf_ods`, `adversarial` or
            `two_sided`; see `churn_jax.perturbations`.
        step_size: eta, RMS change per pixel on the scale from 0 to 1 (paper: 1/255).
        pixel_range: to which perturbed pixels are clipped; None where inputs are not
            pixels.
        external_teachers: how many of the teacher's last members do not teach; where
            there are some, directions come from them (transfer) instead of from the
            teachers.

    References:
        [diversity] Sec. 3.1 -- Nam et al., Diversity Matters When Learning From
        Ensembles, NeurIPS 2021. https://arxiv.org/abs/2110.14149
    """

    perturbation: str = static("none")
    step_size: float = coefficient(1 / 255)
    pixel_range: tuple[float, float] | None = static((0.0, 1.0))
    external_teachers: int = static(0)

    def __post_init__(self):
        """Checks structure."""
        super().__post_init__()
        check_choices(self, perturbation=PERTURBATIONS)
        check_least("external_teachers", self.external_teachers, 0)
        if self.external_teachers and self.perturbation == "two_sided":
            raise ValueError(
                "a two_sided step follows the teachers themselves; got "
                f"external_teachers={self.external_teachers}"
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

    def answers(
        self,
        apply: Apply,
        variables: PyTree,
        batch: Batch,
        *,
        teacher: Teacher | None,
        temperature: Any,
        key: jax.Array,
    ) -> Answers:
        """Students' logits of clean and perturbed images, teachers' of the latter.

        With a perturbation the students see the clean and the perturbed batch in two
        passes, both in training mode, so running batch statistics see both, as in the
        public code. Without one a single pass serves both terms.

        Args:
            apply: function of the students, as are the variables.
            variables: variables of the students.
            batch: the clean batch.
            teacher: as `Method.loss` has it.
            temperature: tau of the probabilities that directions are taken from.
            key: shared by the batch.

        Raises:
            ValueError: there is no teacher, or all of them are external.
        """
        if teacher is None:
            raise ValueError(f"{type(self).__name__} needs a teacher; none was given")
        clean, labels, state = forward(apply, variables, batch)
        students, images = clean, batch.hide(batch.images, axis=0)
        if self.perturbation != "none":
            images = self.perturbed(
                batch,
                teacher,
                temperature=temperature,
                key=key,
                apply=apply,
                variables=variables,
            )
            moved = dataclasses.replace(batch, images=images)
            students, _, state = forward(apply, with_state(variables, state), moved)
        taught = batch.hide(teacher(images), axis=-2)
        taught = taught[: self._own_teachers(taught.shape[0])]
        # No gradient flows into the teachers (Hinton et al., 2015).
        return Answers(clean, labels, students, jax.lax.stop_gradient(taught), state)

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
        *,
        temperature: Any,
        key: jax.Array,
        apply: Apply,
        variables: PyTree,
    ) -> Array:
        """The batch's perturbed images, normalised, without gradients.

        One teacher is drawn for the whole batch; the arguments are those of `answers`.
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
        # Augmentation has used the batch's keys themselves: with the same bits, whether
        # an image is mirrored would decide the sign of one entry of its guide.
        keys = jax.vmap(jax.random.fold_in, (0, None))(batch.keys, 1)
        if kind == "gaussian":
            moved = perturbations.gaussian(images, keys, **options)
            return jax.lax.stop_gradient(batch.from_pixels(moved))
        options["temperature"] = temperature
        # Shapes alone: how many teachers there are.
        count = self._own_teachers(jax.eval_shape(teacher, clean).shape[0])
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
            moved = move(drawn, images, keys, **options)
        # The perturbed image is data: no gradient flows through how it was made.
        return jax.lax.stop_gradient(batch.from_pixels(moved))


def check_pixels(method: Any, images: Any) -> None:
    """Refuses inputs that cannot be perturbed, or that `pixel_range` would clip."""
    if method.perturbation == "none":
        return
    if images.dtype == np.int32:
        raise ValueError(
            f"perturbation {method.perturbation!r} moves pixels by small steps; token "
            "ids have none"
        )
    if method.pixel_range is None or images.dtype == np.uint8:
        return
    low, high = float(np.min(images)), float(np.max(images))
    if low < method.pixel_range[0] or high > method.pixel_range[1]:
        raise ValueError(
            f"inputs run from {low:g} to {high:g}, outside of pixel_range "
            f"{method.pixel_range}, to which perturbed ones are clipped; set "
            "pixel_range to the inputs' own range, or to None for inputs that are no "
            "pixels"
        )
