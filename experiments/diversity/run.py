"""All sections of the third paper's analyses on one finished study, part by part."""

import dataclasses
import datetime
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from churn_jax.configuration.study import DataConfig
from churn_jax.data import is_tokens
from churn_jax.studies.finished import FinishedStudy
from churn_jax.studies.folder import hardware
from experiments.diversity.jacobian_sections import jacobian_parts, matching_parts
from experiments.diversity.record import SECTIONS, SectionRecord
from experiments.diversity.robustness import corruption_parts, ood_parts
from experiments.diversity.spread import student_parts, teacher_parts
from experiments.diversity.study import AnalysedStudy, DiversityOptions, Part

_PARTS: Mapping[str, Callable[[AnalysedStudy], list[Part]]] = {
    "teachers": teacher_parts,
    "students": student_parts,
    "jacobians": jacobian_parts,
    "matching": matching_parts,
    "ood": ood_parts,
    "corruptions": corruption_parts,
}
# Sections that move pixels or differentiate in them.
_OF_PIXELS = ("teachers", "jacobians", "matching", "corruptions")
# What the numbers of a section depend on, apart from its rows.
_SETTINGS = {
    "teachers": ("examples", "bins", "seed", "temperature"),
    "students": ("examples", "bins", "temperature"),
    "jacobians": ("jacobian_examples",),
    "matching": ("batch", "draws", "seed"),
    "ood": ("examples", "ood"),
    "corruptions": ("examples",),
}
_NOTHING = {
    "teachers": "no row that has finished teaches another with several networks",
    "students": "no row that has finished has several members",
    "jacobians": "no row that has finished has as many members as its teacher",
    "matching": "no row that has finished is distilled one to one on clean images",
}


def run_diversity(
    out: Path,
    sections: tuple[str, ...],
    options: DiversityOptions = DiversityOptions(),
    *,
    data: DataConfig | None = None,
    on_note: Callable[[str], None] = lambda note: None,
    on_part: Callable[[str], None] = lambda key: None,
) -> Path:
    """Computes sections of the analyses; parts that are there are kept.

    The paper's counts of examples and draws are lost in our copy of its text; those of
    `DiversityOptions` are ours. Directions follow every network in turn, a block of
    examples each, where training draws one network per batch.

    Args:
        out: the folder of a finished study.
        sections: of `SECTIONS`.
        options: see `DiversityOptions`.
        data: where the data are; None is where they were when the study ran.
        on_note: called with sentences for the user.
        on_part: called with the key of every part that has been computed.

    Returns:
        `out`.

    Raises:
        ValueError: there is no such section, row or study, or data do not fit.
    """
    for section in sections:
        if section not in SECTIONS:
            raise ValueError(
                f"there is no section {section!r}; known: {', '.join(SECTIONS)}"
            )
    if "ood" in sections and not options.ood:
        raise ValueError("the section ood needs --ood, the name of another data set")
    analysed = AnalysedStudy(FinishedStudy(out, data), options)
    tokens = is_tokens(analysed.dataset.test.images)
    asked = dataclasses.asdict(options)
    for section in (s for s in SECTIONS if s in sections):
        if tokens and section in _OF_PIXELS:
            on_note(f"{section}: it needs pixels, and token ids have none")
            continue
        settings = {name: asked[name] for name in _SETTINGS[section]}
        if settings.get("temperature") == 1.0:  # as in records without that setting
            del settings["temperature"]
        record = SectionRecord(out, section, settings)
        if record.replaced:
            on_note(f"{record.path} has other settings and is computed again")
        parts = _PARTS[section](analysed)
        if not parts:
            on_note(f"{section}: {_NOTHING.get(section, 'nothing to compute')}")
            continue
        left = [part for part in parts if not record.has(part.key, part.stamp)]
        on_note(f"{section}: {len(parts)} parts, {len(parts) - len(left)} were there")
        for part in left:
            value, array = part.compute()
            record.put(part.key, part.stamp, value, array, _facts())
            on_part(part.key)
    return out


def _facts() -> dict[str, Any]:
    now = datetime.datetime.now().astimezone().isoformat(timespec="seconds")
    return {"date": now, "hardware": hardware()}
