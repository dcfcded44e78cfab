"""Rows that several of the paper's studies share: its ablations."""

import dataclasses
from typing import Any

from churn_jax.configuration.rows import MethodSpec
from churn_jax.methods.base import Ramp
from churn_jax.methods.codistillation import Codistillation
from churn_jax.methods.erm import ERM
from experiments.variants import variant


def on_grid(
    study: tuple[MethodSpec, ...], grid: dict[str, tuple[str, tuple[float, ...]]]
) -> tuple[MethodSpec, ...]:
    """The baseline of a study, and rows of it once for every value of a coefficient.

    Args:
        study: rows, the baseline first.
        grid: by the name of a row, its coefficient and the values; value 0.05 makes
            the row `<name>_0_05`.
    """
    made = [study[0]]
    for name, (coefficient, values) in grid.items():
        row = next(row for row in study if row.name == name)
        for value in values:
            change: dict[str, Any] = {coefficient: value}
            method = dataclasses.replace(row.method, **change)
            ending, words = f"{value:g}".replace(".", "_"), f"{coefficient} {value:g}"
            made.append(variant(row, ending, words, method=method))
    return tuple(made)


_SAME = {
    "init": ("same init", (("seeds.init", "fixed"),)),
    "order": ("same order", (("seeds.order", "fixed"),)),
    "off": ("no augmentation", (("seeds.augment", "off"),)),
    # Which pixels arrive, and in which order: Table 6's "identical input data".
    "data": (
        "same input data",
        (("seeds.order", "fixed"), ("seeds.augment", "fixed")),
    ),
}


def _factors(table: str, *combinations: str) -> tuple[MethodSpec, ...]:
    equation = f"[reproducibility] {table}"
    rows = [MethodSpec("baseline", "All varied", ERM(), equation)]
    for name in combinations:
        words, changes = zip(*(_SAME[factor] for factor in name.split("_")))
        label = ", ".join(words).capitalize()
        rows.append(MethodSpec(name, label, ERM(), equation, train=sum(changes, ())))
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
    for row in rows:
        row = dataclasses.replace(row, equation="[reproducibility] Table 3")
        none = (*row.train, ("optimizer.weight_decay", 0.0))
        both += [row, variant(row, "wd0", "no weight decay", train=none)]
    return tuple(both)


_DIVERGENCES = {
    "skl": ("skl", "SKL"),
    "l1": ("l1", "L1"),
    "ce": ("cross_entropy", "CE, fixed targets"),
    "ce_both": ("joint_cross_entropy", "CE, gradients into both"),
}


def design_claims(
    *, betas: dict[str, float], ramp_steps: float, stale: tuple[int, float]
) -> tuple[MethodSpec, ...]:
    """Appendix C and section 4: which disagreement, which update, which ramp.

    Rows are `<disagreement>_<joint|independent>_<constant|step|linear>`; gradients into
    both peers have no independent form. `skl_joint_linear` is the paper's proposal and
    is called `codistill_skl`. Then the same with one initialisation in all runs, with
    the baseline for it, and with three and four peers, whose beta is divided by
    M - 1 so that the pull on a peer is that of a pair.

    Args:
        betas: for each of `skl`, `l1`, `ce` and `ce_both`.
        ramp_steps: length of the linear ramp.
        stale: updates between refreshes of stale copies, and before the step.
    """
    rows = [MethodSpec("baseline", "Baseline", ERM(), "[reproducibility] Eq. 2")]
    appendix = "[reproducibility] Appendix C"
    refresh_steps, burn_in = stale
    lengths = {"constant": 0.0, "step": burn_in, "linear": ramp_steps}
    for short, (divergence, words) in _DIVERGENCES.items():
        for update in ("joint", "independent"):
            if divergence == "joint_cross_entropy" and update == "independent":
                continue
            for ramp in lengths:
                name = f"{short}_{update}_{ramp}"
                method = Codistillation(
                    beta=betas[short],
                    divergence=divergence,
                    beta_ramp=Ramp(ramp, lengths[ramp]),
                    update=update,
                    refresh_steps=refresh_steps if update == "independent" else 1,
                )
                label = f"{words}, {update}, {_RAMPS[ramp]}"
                if name == "skl_joint_linear":
                    name = "codistill_skl"
                rows.append(MethodSpec(name, label, method, appendix))
    proposal = next(row for row in rows if row.name == "codistill_skl")
    words, train = _SAME["init"]
    same: dict[str, Any] = {"train": train, "equation": "[reproducibility] Sec. 4"}
    rows += [variant(row, "init", words, **same) for row in (rows[0], proposal)]
    for peers in (3, 4):
        changes: dict[str, Any] = {"members": peers, "beta": betas["skl"] / (peers - 1)}
        method = dataclasses.replace(proposal.method, **changes)
        rows.append(variant(proposal, str(peers), f"{peers} peers", method=method))
    return tuple(rows)


_RAMPS = {"constant": "no ramp", "step": "burn-in", "linear": "linear ramp"}


def cross_sample(*, beta: float, ramp_steps: float) -> tuple[MethodSpec, ...]:
    """Churn between runs whose training sets are resampled.

    Rows that resample per member take the whole set from the study, or they would
    resample twice; the study's own `sample` is `bootstrap`, with seeds varied.
    """
    pair = Codistillation(beta=beta, beta_ramp=Ramp("linear", ramp_steps))
    per_member = (("sample", "all"),)
    eq2, eq9 = "[reproducibility] Eq. 2", "[reproducibility] Eq. 9"
    bagging = ERM(members=2, deploy="mean_probs", member_sample="bootstrap")
    return (
        MethodSpec("baseline", "Baseline, one bootstrap", ERM(), eq2),
        MethodSpec(
            "ensemble",
            "2-Ensemble, one bootstrap",
            ERM(members=2, deploy="mean_probs"),
            "[reproducibility] Table 7",
        ),
        MethodSpec("bagging", "2-Bagging", bagging, eq2, train=per_member),
        MethodSpec("codistill_skl", "Co-distill SKL, one bootstrap", pair, eq9),
        MethodSpec(
            "twin_bootstrap",
            "Twin bootstrap",
            dataclasses.replace(pair, member_sample="bootstrap"),
            eq9,
            train=per_member,
        ),
    )
