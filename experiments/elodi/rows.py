"""Rows of the tables: growing data, distances, chains, other networks, guides."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from churn_jax.configuration.network import ModelConfig
from churn_jax.configuration.rows import MethodSpec, Teaching
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


def _taught(s: Setting, name: str, label: str, method: Method, guide: str, **fields):
    """A row that a guide teaches; its equation is by default its method's."""
    fields = {"equation": equation_of(method)} | fields
    return s.row(name, label, method, teacher=guide, **fields)


def growth_rows(s: Setting, num_classes: int) -> Rows:
    """Table 3: old models of half the classes, or of half of every class's examples.

    Names of rows with half the classes end in `_classes`, with half the examples in
    `_samples`. The new rows are those of all data.
    """
    (_, none, _, ensemble), _ = pair(s)
    full = s.elodi(top_k=s.top_k)
    rows = [
        none,
        ensemble,
        _taught(s, "elodi", "ELODI, all classes", s.elodi(), "ensemble"),
        _taught(s, s.top, f"ELODI, K = {s.top_k}", full, "ensemble"),
    ]
    updates: list[Update] = []
    kinds: dict[str, dict[str, Any]] = {
        "classes": {"classes": tuple(range(num_classes // 2))},
        "samples": {"class_share": 0.5},
    }
    for kind, cut in kinds.items():
        what, old, guide = f"half the {kind}", f"old_{kind}", f"old_ensemble_{kind}"
        focal: dict[str, Any] = {"equation": "[elodi] Table 3"}
        focal["teaching"] = Teaching(old=(old,))
        taught: dict[str, Any] = cut | {"teacher": guide}
        name, top = f"old_elodi_{kind}", f"old_{s.top}_{kind}"
        rows += [
            s.old_row(old, f"Old, {what}", ERM(), **cut),
            s.old_row(guide, f"Old ensemble, {what}", s.ensemble(), **cut),
            s.old_row(name, f"Old, elodi, {what}", s.elodi(), **taught),
            s.old_row(top, f"Old, {s.top}, {what}", full, **taught),
            s.row(f"fd_{kind}", f"Focal distillation, {what}", s.fd(), **focal),
        ]
        updates += [
            Update(old, "none", f"No treatment, {what}"),
            Update(old, f"fd_{kind}", f"Focal distillation, {what}", True),
            Update(guide, "ensemble", f"Ensemble paragon, {what}"),
            Update(name, "elodi", f"ELODI, {what}"),
            Update(top, s.top, f"ELODI, K = {s.top_k}, {what}"),
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


def curve_rows(s: Setting, sizes: tuple[int, ...]) -> Rows:
    """Figure 6: NFR and ER against the size of the ensemble and the weight of LDI."""
    parts = [pair(s)]
    for m in (*sizes, s.members):
        taught = Teaching(members=m if m < s.members else 0)
        name, label = f"elodi_m{m}", f"ELODI, m={m}"
        method = s.elodi(top_k=s.top_k)
        parts.append(elodi_pair(s, name, label, method, teaching=taught))
    # The row of all members has the default's weight.
    default = Update(f"old_{name}", name, f"ELODI, alpha={s.alpha:g}")
    parts.append(((), (default,)))
    for alpha in (0.5, 0.6, 0.7, 0.9, 1.0):
        name = f"elodi_alpha{round(100 * alpha):03d}"
        method = s.elodi(top_k=s.top_k, alpha=alpha)
        parts.append(elodi_pair(s, name, f"ELODI, alpha={alpha:g}", method))
    return joined(*parts)


def _versions(s: Setting, models: Sequence[ModelConfig]):
    """A setting for every version, from 1; each has seeds of its own."""
    return {
        number: dataclasses.replace(
            s, new=model, of_new=(*s.of_new, ("seeds.base", number - 1))
        )
        for number, model in enumerate(models, 1)
    }


def _between(names: Sequence[str], label: str, targeted: bool = False):
    """Every earlier version against every later one."""
    return tuple(
        Update(old, new, f"{label}: {i} to {j}", targeted)
        for i, old in enumerate(names, 1)
        for j, new in enumerate(names, 1)
        if i < j
    )


def chain_rows(s: Setting, models: Sequence[ModelConfig]) -> Rows:
    """Table 5: three versions without treatment, by focal distillation, and by ELODI.

    Focal distillation aims at the version before (chain), the first (radial), or all
    before (fully connected); the second version is the same in all three.
    """
    made = _versions(s, models)
    top = s.elodi(top_k=s.top_k)
    rows: list[MethodSpec] = []
    for number, of in made.items():
        untreated = "v1" if number == 1 else f"none_v{number}"
        rows += [
            of.row(untreated, f"Version {number}, no treatment", ERM()),
            of.row(f"ensemble_v{number}", f"Version {number}, ensemble", s.ensemble()),
            _taught(
                *(of, f"elodi_v{number}", f"Version {number}, ELODI", top),
                f"ensemble_v{number}",
            ),
        ]
    aims = {
        "fd_v2": (2, ("v1",)),
        "fd_chain_v3": (3, ("fd_v2",)),
        "fd_radial_v3": (3, ("v1",)),
        "fd_fc_v3": (3, ("v1", "fd_v2")),
    }
    for name, (number, old) in aims.items():
        label = f"Version {number}, FD at {' and '.join(old)}"
        fields = {"teaching": Teaching(old=old), "equation": "[elodi] Table 5"}
        rows.append(made[number].row(name, label, s.fd(), **fields))
    updates = (
        *_between(("v1", "none_v2", "none_v3"), "None"),
        *_between(("v1", "fd_v2", "fd_chain_v3"), "FD (chain)", True),
        *_between(("v1", "fd_v2", "fd_radial_v3"), "FD (radial)", True),
        *_between(("v1", "fd_v2", "fd_fc_v3"), "FD (fc)", True),
        *_between(("ensemble_v1", "ensemble_v2", "ensemble_v3"), "Ensemble"),
        *_between(("elodi_v1", "elodi_v2", "elodi_v3"), "ELODI"),
    )
    # The first focal update is one and the same in the three schemes.
    seen = {(update.old, update.new): update for update in reversed(updates)}
    return tuple(rows), tuple(u for u in updates if seen[u.old, u.new] is u)


def legacy_rows(s: Setting, models: Sequence[ModelConfig]) -> Rows:
    """Table 7: version 1 has had no treatment; LDI towards it never, once, or twice."""
    made, plainly = _versions(s, models), s.elodi(top_k=s.top_k)
    rows = [made[1].row("v1", "Version 1, no treatment", ERM())]
    names = {2: ("none_v2", "both_v2"), 3: ("none_v3", "once_v3")}
    for number, (plain, legacy) in names.items():
        of, guide = made[number], f"ensemble_v{number}"
        both = f"Version {number}, ELODI and LDI to version 1"
        aimed = {"teaching": Teaching(old=("v1",)), "equation": "[elodi] Eq. 9"}
        rows += [
            of.row(guide, f"Version {number}, ensemble", s.ensemble()),
            _taught(of, plain, f"Version {number}, ELODI", plainly, guide),
            _taught(of, legacy, both, s.elodi(top_k=s.top_k, mix=0.5), guide, **aimed),
        ]
    updates = (
        *_between(("v1", "none_v2", "none_v3"), "LDI never"),
        Update("v1", "once_v3", "LDI once: 1 to 3", True),
        Update("none_v2", "once_v3", "LDI once: 2 to 3"),
        Update("v1", "both_v2", "LDI twice: 1 to 2", True),
        Update("both_v2", "once_v3", "LDI twice: 2 to 3"),
    )
    return tuple(rows), updates


def architecture_rows(s: Setting, models: dict[str, ModelConfig]) -> Rows:
    """Table 6: one old network, new ones of other families, by name."""
    old = [
        s.old_row("old", "Old, no treatment", ERM()),
        s.old_row("old_ensemble", f"Old, ensemble of {s.members}", s.ensemble()),
        s.old_row(
            "old_elodi", "Old, ELODI", s.elodi(top_k=s.top_k), teacher="old_ensemble"
        ),
    ]
    rows, updates = old, []
    for name, model in models.items():
        of = dataclasses.replace(s, new=model)
        rows = [
            *rows,
            of.row(f"none_{name}", f"{name}, no treatment", ERM()),
            of.row(f"ensemble_{name}", f"{name}, ensemble", s.ensemble()),
            _taught(
                *(of, f"elodi_{name}", f"{name}, ELODI", s.elodi(top_k=s.top_k)),
                f"ensemble_{name}",
                equation="[elodi] Table 6",
            ),
        ]
        updates += [
            Update("old", f"none_{name}", f"None, to {name}"),
            Update("old_ensemble", f"ensemble_{name}", f"Ensemble, to {name}"),
            Update("old_elodi", f"elodi_{name}", f"ELODI, to {name}"),
        ]
    return tuple(rows), tuple(updates)


def guide_rows(
    s: Setting,
    weak: Sequence[ModelConfig],
    strong: Sequence[ModelConfig],
    mixed: tuple[ModelConfig, ModelConfig],
) -> Rows:
    """Table 8: both networks guided by homogeneous, mixed and all-different ensembles.

    `weak` and `strong` are the networks of the all-different ensembles of old and new
    strength; `mixed` are the second kinds of network in the old and the new ensemble.
    """
    half, method = s.members // 2, s.elodi(top_k=s.top_k)
    ensembles = {
        "all_diff": ([(model, 1) for model in weak], [(model, 1) for model in strong]),
        "mixed": (
            [(s.old, half), (mixed[0], half)],
            [(s.new, half), (mixed[1], half)],
        ),
    }
    words = {"all_diff": "All-different", "mixed": "Mixed"}
    guides: list[MethodSpec] = []
    for kind, sides in ensembles.items():
        for row, side, models in zip(
            (s.old_row, s.row), ("weak", "strong"), sides, strict=True
        ):
            members = sum(size for _, size in models)
            guide = ERM(members=members, deploy="mean_logits")
            name, label = f"{kind}_guide_{side}", f"{words[kind]} ensemble, {side}"
            guides.append(row(name, label, guide, models=tuple(models)))
    of = {kind: (f"{kind}_guide_weak", f"{kind}_guide_strong") for kind in ensembles}
    calibrated = Teaching(calibrated=True)
    parts = [
        pair(s),
        (tuple(guides), ()),
        guided(s, "all_diff_strong", "All-different", method, of["all_diff"]),
        guided(
            s,
            "all_diff_strong_calibrated",
            "All-different, calibrated",
            method,
            of["all_diff"],
            teaching=calibrated,
        ),
        guided(s, "mixed_strong", "Mixed", method, of["mixed"]),
        guided(s, "homogeneous_strong", "Homogeneous", method),
    ]
    # The old network's guide teaches the new one, too.
    for kind, guide in (
        ("all_diff", of["all_diff"][0]),
        ("mixed", of["mixed"][0]),
        ("homogeneous", "old_ensemble"),
    ):
        label = f"{kind.replace('_', '-').capitalize()}, old guide for both"
        row = s.row(f"{kind}_weak", label, method, teacher=guide)
        update = Update(f"old_{kind}_strong", row.name, label)
        parts.append(((row,), (update,)))
    return joined(*parts)


def interpolation_rows(s: Setting) -> Rows:
    """Weight interpolation (BCWI): new data for the same network, trained further.

    The old network has seen half of every class's examples; the new one starts from
    its weights and sees all.
    """
    rows = [s.row("old_half", "Old, half the samples", ERM(), class_share=0.5)]
    updates = []
    for share in (0.0, 0.25, 0.5, 0.75):
        name = f"bcwi_{round(100 * share):03d}"
        label = f"Fine-tuned, {share:g} old weights"
        kept = {"start": "old_half", "keep": share, "equation": "[bcwi] Sec. 3"}
        rows.append(s.row(name, label, ERM(), **kept))
        updates.append(Update("old_half", name, label, targeted=True))
    scratch = s.row(
        "retrained", "Retrained", ERM(), train=(*s.of_new, ("seeds.base", 2))
    )
    update = Update("old_half", "retrained", "Retrained on all samples")
    return (*rows, scratch), (update, *updates)
