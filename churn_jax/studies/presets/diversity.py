"""The third paper's rows and recipe, and its study on the embedded digits."""

import dataclasses
from typing import Any

from churn_jax.configuration.network import ModelConfig, Sharing
from churn_jax.configuration.rows import MethodSpec
from churn_jax.configuration.study import DataConfig, StudyConfig
from churn_jax.configuration.training import OptimizerConfig, TrainConfig
from churn_jax.data.augment import Augmentation
from churn_jax.methods.ensemble_distillation import (
    EnsembleDistillation,
    OneToOneDistillation,
)
from churn_jax.methods.erm import ERM

COLUMNS = (
    *("accuracy", "nll", "brier", "ece"),
    *("calibrated_nll", "calibrated_brier", "calibrated_ece"),
    *("dee", "member_kl", "churn", "parameters"),
)


@dataclasses.dataclass(frozen=True)
class Recipe:
    """How teachers and students are trained.

    SGD with momentum 0.9, not Nesterov's, and coupled decay of everything but fast
    weights. The learning rate rises linearly from a hundredth of itself, is flat until
    half of the training, falls linearly to a hundredth until nine tenths and stays. The
    best validation accuracy is deployed.
    """

    members: int  # M, of teachers and students
    batch_size: int  # of students, in the paper an M-th of the teachers'
    learning_rate: float  # of students; fast weights have half of it
    epochs: int  # of students
    teacher_batch_size: int
    teacher_learning_rate: float
    teacher_epochs: int
    weight_decay: float
    warmup_epochs: float = 5.0
    eval_every_epochs: int = 5
    alpha: float = 0.9  # weight of the teachers
    temperature: float = 4.0
    step_size: float = 1 / 255  # eta, RMS change per pixel
    pixel_range: tuple[float, float] | None = (0.0, 1.0)

    def train(self, **fields: Any) -> TrainConfig:
        """Of the students, which is the study's; `fields` are the study's own."""
        return TrainConfig(
            epochs=self.epochs,
            batch_size=self.batch_size,
            eval_every_epochs=self.eval_every_epochs,
            optimizer=OptimizerConfig(
                learning_rate=self.learning_rate,
                momentum=0.9,
                nesterov=False,
                weight_decay=self.weight_decay,
                decay_on="all",
                schedule="flat_then_linear",
                warmup_epochs=self.warmup_epochs,
                warmup_start=0.01,
                flat_until=0.5,
                linear_until=0.9,
                final_factor=0.01,
                fast_rate=0.5,
            ),
            weights="best",
            **fields,
        )

    @property
    def as_teacher(self) -> tuple[tuple[str, Any], ...]:
        """Settings of the teachers' training, for `MethodSpec.train`."""
        return (
            ("epochs", self.teacher_epochs),
            ("batch_size", self.teacher_batch_size),
            ("optimizer.learning_rate", self.teacher_learning_rate),
        )

    def student(self, perturbation: str = "none", **fields: Any):
        """One-to-one distillation to M members."""
        return OneToOneDistillation(
            members=self.members,
            deploy="mean_probs",
            perturbation=perturbation,
            **self._distilled(perturbation),
            **fields,
        )

    def averaged(self, perturbation: str = "none", average: str = "probs"):
        """Distillation of the teachers' mean to one plain network."""
        return EnsembleDistillation(
            perturbation=perturbation, average=average, **self._distilled(perturbation)
        )

    def _distilled(self, perturbation: str) -> dict[str, Any]:
        fields: dict[str, Any] = {"alpha": self.alpha, "temperature": self.temperature}
        if perturbation != "none":
            fields |= {"step_size": self.step_size, "pixel_range": self.pixel_range}
        return fields


_STUDENTS = {
    "kd": ("none", "KD", "Eq. 2"),
    "gaussian": ("gaussian", "KD + Gaussian", "Sec. 5.1"),
    "ods": ("ods", "KD + ODS", "Eq. 5"),
    "conf_ods": ("conf_ods", "KD + ConfODS", "Eq. 8"),
}


def teacher_rows(
    recipe: Recipe, model: ModelConfig | None = None
) -> tuple[MethodSpec, ...]:
    """The deep ensemble `teachers`, and `single`, one network trained the same way."""
    ensemble = ERM(members=recipe.members, deploy="mean_probs")
    # The network of a study need not be as large as its teachers.
    label = f"DE-{recipe.members}" + ("" if model is None else f", {model.name}")
    own: dict[str, Any] = {"train": recipe.as_teacher, "separate": True}
    own["equation"] = "[diversity] Sec. 2.1"
    return (
        MethodSpec("teachers", label, ensemble, model=model, **own),
        MethodSpec("single", "DE-1", ERM(), **own),
    )


def main_rows(
    recipe: Recipe, *, teacher: ModelConfig | None = None, short: str = "BE"
) -> tuple[MethodSpec, ...]:
    """Table 1: teachers, one network, and students with each perturbation."""
    name = f"{short}-{recipe.members}"
    scratch = ERM(members=recipe.members, deploy="mean_probs", over_members="mean")
    return (
        *teacher_rows(recipe, teacher),
        MethodSpec("scratch", name, scratch, "[diversity] Sec. 2.3"),
        *(
            MethodSpec(
                row,
                f"{name} + {label}",
                recipe.student(perturbation),
                f"[diversity] {equation}",
                teacher="teachers",
            )
            for row, (perturbation, label, equation) in _STUDENTS.items()
        ),
    )


def dm_digits() -> StudyConfig:
    """Table 1 on the embedded digits with an MLP: minutes on a laptop.

    The paper's rules hold, lengths, rates and sizes are ours.
    """
    recipe = Recipe(
        members=4,
        batch_size=16,
        learning_rate=0.02,
        epochs=120,
        teacher_batch_size=64,
        teacher_learning_rate=0.08,
        teacher_epochs=96,  # in proportion as in the paper, 200 to 250
        weight_decay=4e-4,
        warmup_epochs=2.0,
        eval_every_epochs=10,
        # Sixteenths of grey, so a step that is seen is longer than one of 255.
        step_size=1 / 16,
    )
    return StudyConfig(
        name="dm-digits",
        title="Learning from ensembles on the UCI hand-written digits",
        data=DataConfig(name="digits", train_size=500, validation=400),
        model=ModelConfig(name="mlp", features=(64, 64), sharing=Sharing()),
        train=recipe.train(replicas=5, augmentation=Augmentation(shift=1)),
        methods=main_rows(recipe),
        baseline="scratch",
        columns=COLUMNS,
    )
