"""The appendices' rows."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from churn_jax.configuration.rows import MethodSpec
from churn_jax.methods.ensemble_distillation import EnsembleDistributionDistillation
from churn_jax.studies.presets.diversity import Recipe, teacher_rows

EQ1, EQ4 = "[diversity] Eq. 1", "[diversity] Eq. 4"


def further_rows(recipe: Recipe, *, anneal_steps: float) -> tuple[MethodSpec, ...]:
    """The appendices' rows: other directions, and one plain student.

    Directions of `transfer_ods` come from the last of M + 1 networks, which is no
    student's teacher. How a mean of several teachers is tempered is not in the paper:
    `averaged` tempers the mean probabilities, `averaged_tempered` averages the tempered
    ones.
    """
    name = f"BE-{recipe.members} + KD"
    taught: dict[str, Any] = {"teacher": "teachers"}
    alone: dict[str, Any] = {"separate": True}  # one network, which shares nothing
    teachers, _ = teacher_rows(dataclasses.replace(recipe, members=recipe.members + 1))
    end2 = EnsembleDistributionDistillation(anneal_steps=anneal_steps)
    other, alike = recipe.student("ods", external_teachers=1), "One network + KD of the"
    plus = {"teacher": "teachers_plus"}
    students: Sequence[tuple[str, str, Any, str, dict[str, Any]]] = (
        ("adversarial", f"{name} + adversarial", recipe.student("adversarial"),
         "[diversity] Appendix A.2", {}),
        ("two_sided", f"{name} + two-sided", recipe.student("two_sided"),
         "[latent-be] Sec. 3", {}),
        ("transfer_ods", f"{name} + ODS of another network", other, EQ4, plus),
        ("averaged", f"{alike} mean", recipe.averaged(), EQ1, alone),
        ("averaged_tempered", f"{alike} mean, tempered before",
         recipe.averaged(average="tempered_probs"), EQ1, alone),
        ("averaged_ods", f"{alike} mean + ODS", recipe.averaged("ods"), EQ4, alone),
        ("end2", "One network, END²", end2, "[diversity] Table 5", alone),
    )  # fmt: skip
    rows = [
        MethodSpec(row, label, method, equation, **(taught | fields))
        for row, label, method, equation, fields in students
    ]
    rows.insert(2, dataclasses.replace(teachers, name="teachers_plus"))
    return tuple(rows)
