"""Rows of growing data, other distances, offline guides and curves."""

from typing import Any

from churn_jax.configuration.rows import Teaching
from churn_jax.configuration.study import Update
from churn_jax.methods.base import Method
from churn_jax.methods.erm import ERM
from churn_jax.studies.presets.elodi import (
    Rows,
    Setting,
    best_rows,
    elodi_pair,
    equation_of,
    guided,
    joined,
    pair,
)


def growth_rows(s: Setting, num_classes: int, share: float = 0.5) -> Rows:
    """Table 3: old models of half the classes, or of half of every class's examples.

    Names of rows with half the classes end in `_classes`, with half the examples in
    `_samples`. The new rows are those of all data.
    """
    (_, none, _, ensemble), _ = pair(s)
    full = s.elodi(top_k=s.top_k)
    rows = [
        none,
        ensemble,
        s.row(
            "elodi",
            "ELODI, all classes",
            s.elodi(),
            teacher="ensemble",
            equation=equation_of(s.elodi()),
        ),
        s.row(
            s.top,
            f"ELODI, K = {s.top_k}",
            full,
            teacher="ensemble",
            equation=equation_of(full),
        ),
    ]
    updates: list[Update] = []
    kinds: dict[str, dict[str, Any]] = {
        "classes": {"classes": tuple(range(int(num_classes * share)))},
        "samples": {"class_share": share},
    }
    for kind, cut in kinds.items():
        what = f"half the {kind}"
        rows += [
            s.old_row(f"old_{kind}", f"Old, {what}", ERM(), **cut),
            s.old_row(
                f"old_ensemble_{kind}", f"Old ensemble, {what}", s.ensemble(), **cut
            ),
        ]
        for name, method in (("elodi", s.elodi()), (s.top, full)):
            rows.append(
                s.old_row(
                    f"old_{name}_{kind}",
                    f"Old, {name}, {what}",
                    method,
                    teacher=f"old_ensemble_{kind}",
                    **cut,
                )
            )
        rows.append(
            s.row(
                f"fd_{kind}",
                f"Focal distillation, {what}",
                s.fd(),
                teaching=Teaching(old=(f"old_{kind}",)),
                equation="[elodi] Table 3",
            )
        )
        updates += [
            Update(f"old_{kind}", "none", f"No treatment, {what}"),
            Update(f"old_{kind}", f"fd_{kind}", f"Focal distillation, {what}", True),
            Update(f"old_ensemble_{kind}", "ensemble", f"Ensemble paragon, {what}"),
            Update(f"old_elodi_{kind}", "elodi", f"ELODI, {what}"),
            Update(f"old_{s.top}_{kind}", s.top, f"ELODI, K = {s.top_k}, {what}"),
        ]
    return tuple(rows), tuple(updates)


def distance_rows(s: Setting) -> Rows:
    """Table 10: the same ensembles distilled by other distances."""
    tau = f"{s.temperature:g}"
    kinds: tuple[tuple[str, str, Method], ...] = (
        ("kd_ensemble", f"Ensemble w/ KD, tau = {tau}", s.kd(average="logits")),
        ("fd_ensemble", f"Ensemble w/ FD, tau = {tau}", s.fd()),
        ("fd_ensemble_t1", "Ensemble w/ FD, tau = 1", s.fd(temperature=1.0)),
        ("elodi_release", "ELODI, the release's mean", s.elodi(form="release")),
    )
    others = (guided(s, *kind, equation="[elodi] Table 10") for kind in kinds)
    return joined(pair(s), best_rows(s), *others)


def offline_rows(s: Setting) -> Rows:
    """Table 11: the ensemble's logits inferred in every update, or once before."""
    method = s.elodi(top_k=s.top_k)
    cached = Teaching(offline=True)
    return joined(
        pair(s),
        elodi_pair(s, "elodi_online", "Online", method),
        elodi_pair(s, "elodi_offline", "Offline", method, teaching=cached),
    )


def curve_rows(
    s: Setting, sizes: tuple[int, ...] = (1, 2, 4), alphas: tuple[float, ...] = ()
) -> Rows:
    """Figure 6: NFR and ER against the size of the ensemble and the weight of LDI."""
    parts = [pair(s)]
    for m in (*sizes, s.members):
        taught = Teaching(members=m if m < s.members else 0)
        name, label = f"elodi_m{m}", f"ELODI, m={m}"
        method = s.elodi(top_k=s.top_k)
        parts.append(elodi_pair(s, name, label, method, teaching=taught))
    if alphas:  # the default's row is that of all members
        name = f"elodi_m{s.members}"
        default = Update(f"old_{name}", name, f"ELODI, alpha={s.alpha:g}")
        parts.append(((), (default,)))
    for alpha in alphas:
        name = f"elodi_alpha{round(100 * alpha):03d}"
        method = s.elodi(top_k=s.top_k, alpha=alpha)
        parts.append(elodi_pair(s, name, f"ELODI, alpha={alpha:g}", method))
    return joined(*parts)
