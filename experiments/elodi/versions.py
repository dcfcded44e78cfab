"""Rows of chains of versions, of other architectures and of other guides."""

import dataclasses
from collections.abc import Sequence

from churn_jax.configuration.network import ModelConfig
from churn_jax.configuration.rows import MethodSpec, Teaching
from churn_jax.configuration.study import Update
from churn_jax.methods.erm import ERM
from churn_jax.studies.presets.elodi import (
    Rows,
    Setting,
    equation_of,
    guided,
    joined,
    pair,
)


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
            of.row(
                f"elodi_v{number}",
                f"Version {number}, ELODI",
                top,
                teacher=f"ensemble_v{number}",
                equation=equation_of(top),
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
        rows += [
            of.row(guide, f"Version {number}, ensemble", s.ensemble()),
            of.row(
                plain,
                f"Version {number}, ELODI",
                plainly,
                teacher=guide,
                equation=equation_of(plainly),
            ),
            of.row(
                legacy,
                f"Version {number}, ELODI and LDI to version 1",
                s.elodi(top_k=s.top_k, mix=0.5),
                teacher=guide,
                teaching=Teaching(old=("v1",)),
                equation="[elodi] Eq. 9",
            ),
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
            of.row(
                f"elodi_{name}",
                f"{name}, ELODI",
                s.elodi(top_k=s.top_k),
                teacher=f"ensemble_{name}",
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
    half = s.members // 2
    guides: list[MethodSpec] = []
    for name, label, old, new in (
        (
            "all_diff",
            "All-different ensemble",
            tuple((model, 1) for model in weak),
            tuple((model, 1) for model in strong),
        ),
        (
            "mixed",
            "Mixed ensemble",
            ((s.old, half), (mixed[0], half)),
            ((s.new, half), (mixed[1], half)),
        ),
    ):
        weaker, stronger = (
            ERM(members=sum(size for _, size in models), deploy="mean_logits")
            for models in (old, new)
        )
        guides += [
            s.old_row(f"{name}_guide_weak", f"{label}, weak", weaker, models=old),
            s.row(f"{name}_guide_strong", f"{label}, strong", stronger, models=new),
        ]
    method = s.elodi(top_k=s.top_k)
    different = ("all_diff_guide_weak", "all_diff_guide_strong")
    equal = ("mixed_guide_weak", "mixed_guide_strong")
    calibrated = Teaching(calibrated=True)
    parts = [
        pair(s),
        (tuple(guides), ()),
        guided(s, "all_diff_strong", "All-different", method, different),
        guided(
            s,
            "all_diff_strong_calibrated",
            "All-different, calibrated",
            method,
            different,
            teaching=calibrated,
        ),
        guided(s, "mixed_strong", "Mixed", method, equal),
        guided(s, "homogeneous_strong", "Homogeneous", method),
    ]
    # The old network's guide teaches the new one, too.
    for kind, guide in (
        ("all_diff", "all_diff_guide_weak"),
        ("mixed", "mixed_guide_weak"),
        ("homogeneous", "old_ensemble"),
    ):
        label = f"{kind.replace('_', '-').capitalize()}, old guide for both"
        row = s.row(f"{kind}_weak", label, method, teacher=guide)
        update = Update(f"old_{kind}_strong", row.name, label)
        parts.append(((row,), (update,)))
    return joined(*parts)


def interpolation_rows(s: Setting, shares: Sequence[float] = (0.25, 0.5, 0.75)) -> Rows:
    """Weight interpolation (BCWI): new data for the same network, trained further.

    The old network has seen half of every class's examples; the new one starts from
    its weights and sees all.
    """
    rows = [s.row("old_half", "Old, half the samples", ERM(), class_share=0.5)]
    updates = []
    for share in (0.0, *shares):
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
