"""Rows that several presets share: the paper's methods and its ablations."""

import dataclasses

from churn_jax.methods import ERM, Codistillation, EnsembleDistillation, MinimumEntropy
from churn_jax.methods.base import Ramp
from churn_jax.studies.config import MethodSpec

__all__ = ["fixed_input", "fixed_seeds", "paper_rows", "with_and_without_decay"]


def paper_rows(
    *,
    entropy: float | None = None,
    uniform_skl: float | None = None,
    distillation: tuple[float, float] | None = None,
    codistill_ce: float | None = None,
    codistill_skl: float | None = None,
    combined: tuple[float, float] | None = None,
    ramp_steps: float,
    top_k: int | None = None,
) -> tuple[MethodSpec, ...]:
    """The methods of the paper's Tables 2 and 7; None leaves a row out.

    Args:
        entropy: alpha of Eq. 6.
        uniform_skl: alpha of Eq. 7.
        distillation: alpha and temperature of the distilled 2-ensemble, which brings
            the row of its teacher.
        codistill_ce: beta of the cross-entropy between peers.
        codistill_skl: beta of Eq. 9.
        combined: alpha and beta of Eq. 19.
        ramp_steps: updates in which co-distillation's coefficients grow to their
            value; the paper's ramp is linear, its length is not given.
        top_k: the regularisers look at so many classes (ImageNet: 10).
    """
    linear = Ramp("linear", ramp_steps)
    rows = [MethodSpec("baseline", "Baseline", ERM(), "[reproducibility] Eq. 2")]

    def add(name, label, method, equation, teacher=None):
        rows.append(
            MethodSpec(
                name, label, method, f"[reproducibility] {equation}", teacher=teacher
            )
        )

    if entropy is not None:
        add("entropy", "Entropy", MinimumEntropy(alpha=entropy, top_k=top_k), "Eq. 6")
    if uniform_skl is not None:
        method = MinimumEntropy(alpha=uniform_skl, kind="uniform_skl", top_k=top_k)
        add("uniform_skl", "SKL", method, "Eq. 7")
    if distillation is not None:
        alpha, temperature = distillation
        ensemble = ERM(members=2, deploy="mean_probs")
        student = EnsembleDistillation(alpha=alpha, temperature=temperature)
        add("ensemble", "2-Ensemble", ensemble, "Table 7")
        add("distillation", "2-Ensemble distil.", student, "Table 2", "ensemble")
    if codistill_ce is not None:
        method = Codistillation(
            beta=codistill_ce, divergence="cross_entropy", beta_ramp=linear
        )
        add("codistill_ce", "Co-distill CE", method, "Eq. 18")
    if codistill_skl is not None:
        method = Codistillation(beta=codistill_skl, beta_ramp=linear)
        add("codistill_skl", "Co-distill SKL", method, "Eq. 9")
    if combined is not None:
        alpha, beta = combined
        method = Codistillation(
            beta=beta, alpha=alpha, top_k=top_k, beta_ramp=linear, alpha_ramp=linear
        )
        label = "Co-distill SKL + Entropy"
        add("codistill_skl_entropy", label, method, "Eq. 19")
    return tuple(rows)


_SAME = {
    "init": (("seeds.init", "fixed"),),
    "order": (("seeds.order", "fixed"),),
    "off": (("seeds.augment", "off"),),
    # Which pixels arrive, and in which order: Table 6's "identical input data".
    "data": (("seeds.order", "fixed"), ("seeds.augment", "fixed")),
}
_WORDS = {
    "init": "same init",
    "order": "same order",
    "off": "no augmentation",
    "data": "same input data",
}


def _factors(table: str, *combinations: str) -> tuple[MethodSpec, ...]:
    rows = [MethodSpec("baseline", "All varied", ERM(), f"[reproducibility] {table}")]
    for name in combinations:
        factors = name.split("_")
        words = ", ".join(_WORDS[factor] for factor in factors)
        rows.append(
            dataclasses.replace(
                rows[0],
                name=name,
                label=words[0].upper() + words[1:],
                train=tuple(change for f in factors for change in _SAME[f]),
            )
        )
    return tuple(rows)


def fixed_seeds() -> tuple[MethodSpec, ...]:
    """Table 1: initialisation x mini-batch order x {augmentation varied, off}.

    Rows are named after what runs have in common; `baseline` has nothing. Replicas of
    `off_init_order` are one computation, so they churn by what the machine adds, which
    slots of one launch hide: `churn-jax doctor` measures it across launches.
    """
    return _factors(
        "Table 1",
        *("init", "order", "init_order"),
        *("off", "off_init", "off_order", "off_init_order"),
    )


def fixed_input() -> tuple[MethodSpec, ...]:
    """Table 6: initialisation x input data, which is order and augmentation together.

    As for `fixed_seeds`, `init_data` wants separate launches.
    """
    return _factors("Table 6", "init", "data", "init_data")


def with_and_without_decay(rows: tuple[MethodSpec, ...]) -> tuple[MethodSpec, ...]:
    """Table 3: each row as the study trains it, and `<name>_wd0` without decay."""
    both = []
    for spec in rows:
        both += [
            dataclasses.replace(spec, equation="[reproducibility] Table 3"),
            dataclasses.replace(
                spec,
                name=f"{spec.name}_wd0",
                label=f"{spec.label}, no weight decay",
                equation="[reproducibility] Table 3",
                train=(*spec.train, ("optimizer.weight_decay", 0.0)),
            ),
        ]
    return tuple(both)
