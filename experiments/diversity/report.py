"""The report of the analyses: members, Jacobians, foreign images."""

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from churn_compare.documents import (
    Document,
    Figure,
    Grid,
    Section,
    Table,
    Text,
    html_page,
    markdown,
    write_files,
)
from churn_jax.reports.artefacts import ReportError, Study, read_study
from churn_jax.reports.cells import number, percent
from churn_jax.reports.run_facts import page_facts, run_section
from experiments.diversity import report_figures as plots
from experiments.diversity.corruption import QUANTITIES
from experiments.diversity.record import FOLDER, SECTIONS, SectionRecord
from experiments.diversity.report_numbers import (
    Spread,
    corruptions_of,
    estimate,
    foreign_of,
    rocs_of,
    similarities_of,
    spreads_of,
)

KINDS = {
    "clean": "Training images",
    "gaussian": "+ Gaussian noise",
    "ods": "+ ODS",
    "conf_ods": "+ ConfODS",
    "transfer": "+ ODS of another run",
    "adversarial": "+ adversarial step",
    "test": "Test images",
}
DRAWN = {"gaussian": "Gaussian noise", "ods": "ODS"}
RUNS = "Mean ± standard deviation over runs."
BOX = (
    "Boxes: first quartile, median, third quartile; whiskers: 5th and 95th percentile; "
    "each the mean over runs."
)
BIN_BOX = (
    "Boxes: quartiles of the examples of a bin; whiskers: smallest and largest; each "
    f"the mean over runs. Bins with fewer than {plots.FEWEST} examples are left out, "
    "and whiskers far below the boxes are cut."
)
BY_BIN = (
    "Examples are put into bins by the smallest top probability that a member gives. "
    f"Above: their mean pairwise KL; below: how many there are. Bins with fewer than "
    f"{plots.FEWEST} examples are left out above."
)


def collect_diversity(run_dir, *, command: str = "") -> Document:
    """The sections that have been computed so far; `command` is shown on the page."""
    study = read_study(run_dir)
    sections = []
    for name in SECTIONS:
        record = SectionRecord(run_dir, name, None)
        if record.parts:
            sections.append(_BUILDERS[name](study, record))
    if not sections:
        raise ReportError(
            f"{Path(run_dir) / FOLDER} has no results; "
            f"python -m experiments.diversity.analyses {run_dir} computes them"
        )
    facts = page_facts(study.record, f"{study.config.train.replicas} runs per method")
    run = run_section(study.record, {"Runs per method": study.config.train.replicas})
    title = f"{study.config.title}: members, Jacobians and foreign images"
    return Document(title, facts, [*sections, run], command)


def write_diversity(run_dir, *, command: str = "") -> Path:
    """Writes `diversity/diversity.md` and `diversity/diversity.html`."""
    document = collect_diversity(run_dir, command=command)
    text = markdown(document.at("summary"))
    pages = {"diversity.md": text, "diversity.html": html_page(document)}
    return write_files(Path(run_dir) / FOLDER, pages)["diversity.html"]


def _section(
    title: str, text: str, tables: Sequence[Table], figures: Sequence[Figure] = ()
) -> Section:
    """Text, tables and figures; the verdict has the tables alone."""
    about = Section("", [Text(text, "soft")], detail="summary")
    return Section(title, [about, *tables, Grid(figures)])


def _labels(study: Study) -> dict[str, str]:
    return {info.name: info.label for info in study.methods}


def _teachers(study: Study, record: SectionRecord) -> Section:
    tables, figures, labels = [], [], _labels(study)
    for row, kinds in spreads_of(record).items():
        label = labels.get(row, row)
        rows = [
            (
                KINDS.get(kind, kind),
                number(estimate(found.mean_kl)),
                _times(found, kinds["clean"]),
                percent(estimate(found.accuracy)),
                _step(found),
            )
            for kind, found in kinds.items()
        ]
        heads = ("Images", "KL of two networks, nats", "Times clean")
        heads = (*heads, "Accuracy of the mean %", "Step")
        tables.append(Table(heads, rows, f"{label}. {RUNS}"))
        shown = {KINDS.get(kind, kind): found for kind, found in kinds.items()}
        figures += _spread_figures(shown, label)
    examples = record.settings.get("examples", 0)
    text = (
        f"At most {examples:,} training images without augmentation, and as many test "
        f"images. KL{_tempered(record)}: mean over ordered pairs of networks, then "
        "over images. Times clean: divided, run by run, by its value on the clean "
        "training images. Every network leads the direction for an equal share of the "
        "images; ODS of another run follows networks that are not among those that are "
        "measured. The mean is that of probabilities. The step is that of the "
        "students' methods."
    )
    title = "Teachers: what a perturbation does to them"
    return _section(title, text, tables, figures)


def _tempered(record: SectionRecord) -> str:
    """The temperature of the softmax before the KL, where it is not 1."""
    tau = record.settings.get("temperature", 1.0)
    return "" if tau == 1.0 else f" at temperature {tau:g}"


def _times(found: Spread, clean: Spread) -> str:
    """Mean ratio to the same run's clean value."""
    base = dict(zip(clean.runs, clean.mean_kl, strict=True))
    ratios = [
        kl / base[run]
        for run, kl in zip(found.runs, found.mean_kl, strict=True)
        if base.get(run)
    ]
    shown = estimate(ratios)
    if not np.isfinite(shown.mean):
        return "–"
    spread = f" ± {shown.std:.2f}" if shown.std > 0 else ""
    return f"{shown.mean:.2f}{spread}"


def _step(found: Spread) -> str:
    if not found.step:
        return "–"
    return f"{255 * found.step['size']:.3g}/255, tau {found.step['temperature']:g}"


def _spread_figures(shown: Mapping[str, Spread], label: str) -> list[Figure]:
    cuts = {kind: found.box for kind, found in shown.items()}
    axis, what = "Pairwise KL, nats, log scale", f"Pairwise KL, {label}"
    return [
        Figure(
            functools.partial(plots.diversity_by_confidence, shown, label),
            f"{label}: KL by confidence",
            BY_BIN,
        ),
        Figure(
            functools.partial(plots.boxes, cuts, axis, what, log=True),
            f"{label}: KL over all images",
            BOX,
        ),
        Figure(
            functools.partial(plots.boxes_by_confidence, shown, label),
            f"{label}: boxes by confidence",
            BIN_BOX,
            wide=True,
        ),
    ]


def _students(study: Study, record: SectionRecord) -> Section:
    labels = _labels(study)
    found = {row: kinds["test"] for row, kinds in spreads_of(record).items()}
    taught_by = {row.name: row.spec.teacher for row in study.record.methods}
    usual = next((name for name in taught_by.values() if name in found), None)
    rows = []
    for row, spread in found.items():
        teacher = taught_by.get(row) or usual
        against = None if teacher is None or teacher == row else found.get(teacher)
        rows.append(
            (
                labels.get(row, row),
                number(estimate(spread.mean_kl)),
                "–" if against is None else _times(spread, against),
                percent(estimate(spread.accuracy)),
            )
        )
    shown = {labels.get(row, row): spread for row, spread in found.items()}
    heads = ("Method", "KL of two members, nats", "Times the teachers'")
    table = Table((*heads, "Accuracy of the mean %"), rows, RUNS)
    figures = _spread_figures(shown, "Test images")
    text = (
        f"At most {record.settings.get('examples', 0):,} test images, as they are. "
        f"KL{_tempered(record)}: mean over ordered pairs of members, then over images. "
        "Times the teachers': divided, run by run, by the KL of the networks that "
        "teach the row; for a row from scratch, by that of the study's ensemble. The "
        "mean is that of probabilities."
    )
    return _section("Students: how much they differ", text, [table], figures)


def _jacobians(study: Study, record: SectionRecord) -> Section:
    labels = _labels(study)
    similarities = similarities_of(record)
    scratch = study.config.baseline
    rocs = rocs_of(similarities, scratch)
    rows = []
    for row, runs in similarities.items():
        means = estimate([found.mean() for found in runs.values()])
        areas = estimate([roc.auc for roc in rocs.get(row, ())])
        rows.append((labels.get(row, row), number(means), number(areas)))
    name = labels.get(scratch, scratch)
    heads = ("Method", "Cosine with the teacher", f"AUC against {name}")
    table = Table(heads, rows, RUNS)
    cuts = {
        labels.get(row, row): np.stack(
            [np.percentile(found, (5, 25, 50, 75, 95)) for found in runs.values()]
        )
        for row, runs in similarities.items()
    }
    what = "Cosine of the Jacobians of teacher and student"
    boxes = functools.partial(plots.boxes, cuts, what, what, log=False)
    curves = {labels.get(row, row): roc for row, roc in rocs.items()}
    figures = [
        Figure(boxes, "Similarity", BOX),
        Figure(
            functools.partial(plots.roc_curves, curves, name),
            "Distilled or from scratch?",
            "A threshold on the similarity tells a distilled student from one that has "
            "not met the teacher; on the thin line is chance. Mean over runs.",
        ),
    ]
    text = (
        "Cosine of the Jacobian of the probabilities with respect to the pixels, as "
        "one vector, between teacher m and member m of the student, at most "
        f"{record.settings.get('jacobian_examples', 0):,} test images. AUC: chance "
        f"that a member of the row has a higher cosine than one of {name}; with 0.5 "
        "the teacher cannot be recognised."
    )
    return _section("Jacobians of students and teachers", text, [table], figures)


def _matching(study: Study, record: SectionRecord) -> Section:
    labels, rows, found = _labels(study), [], {}
    for row, parts in record.of_rows().items():
        kinds = {
            DRAWN[kind]: np.array(
                [part[kind]["signal_to_noise"] or np.nan for part in parts.values()],
                np.float64,
            )
            for kind in DRAWN
        }
        found[labels.get(row, row)] = kinds
        gaussian, ods = kinds.values()
        cells = (number(estimate(values)) for values in (gaussian, ods, ods / gaussian))
        rows.append((labels.get(row, row), *cells))
    heads = ("Method", *(f"{name}, ratio" for name in DRAWN.values()))
    table = Table((*heads, "ODS over Gaussian, run by run"), rows, RUNS)
    words = (
        "Signal-to-noise ratio of the gradient",
        "Signal-to-noise ratio by perturbation",
    )
    svg = functools.partial(plots.ratios, found, *words)
    figures = [Figure(svg, "Signal of the Jacobian-matching gradient", RUNS)]
    text = (
        "Gradient of the Jacobian-matching term in the weights of the student, at "
        f"temperature 1, on {record.settings.get('batch', 0)} training images: norm of "
        f"its mean over {record.settings.get('draws', 0)} draws of the perturbation, "
        "divided by the root of its summed element-wise variance."
    )
    return _section("Matching of Jacobians", text, [table], figures)


def _ood(study: Study, record: SectionRecord) -> Section:
    labels, foreign = _labels(study), str(record.settings.get("ood", "foreign images"))
    found = {
        labels.get(row, row): numbers for row, numbers in foreign_of(record).items()
    }
    names = ("entropy_in", "entropy_out", "auroc_entropy", "auroc_max_probability")
    rows = [
        (label, *(number(estimate(getattr(numbers, name))) for name in names))
        for label, numbers in found.items()
    ]
    heads = ("Method", "Entropy, own, nats", f"Entropy, {foreign}, nats")
    heads += ("AUROC of entropy", "AUROC of top probability")
    caption = (
        f"Left: own test images; right: {foreign}. Of what a row deploys, all runs "
        "together. Further to the right is less sure."
    )
    svg = functools.partial(plots.entropy_histograms, found, foreign=foreign)
    figures = [Figure(svg if found else "", "Entropy of predictions", caption)]
    text = (
        f"At most {record.settings.get('examples', 0):,} own test images and as many "
        f"of {foreign}. AUROC: chance that a foreign image gets a higher entropy (a "
        "lower top probability) than an own one; 0.5 is no better than a coin."
    )
    return _section("Foreign images", text, [Table(heads, rows, RUNS)], figures)


def _corruptions(study: Study, record: SectionRecord) -> Section:
    labels = _labels(study)
    summaries, incomplete = corruptions_of(record)
    found = {labels.get(row, row): summary for row, summary in summaries.items()}
    writes = dict.fromkeys(QUANTITIES, number) | {"accuracy": percent}
    rows = [
        (label, *(writes[name](estimate(summary.mean(name))) for name in QUANTITIES))
        for label, summary in found.items()
    ]
    heads = ("Method", "Accuracy %", "NLL, nats", "Brier", "ECE")
    sources = sorted({part["source"] for part in record.parts.values()})
    first = next(iter(summaries.values()), None)
    text = [f"Images: {'; '.join(sources)}."]
    if first is not None:
        levels = ", ".join(map(str, first.severities))
        text.append(
            f"Means over {len(first.corruptions)} kinds "
            f"({', '.join(first.corruptions)}) and the severities {levels}; at most "
            f"{record.settings.get('examples', 0):,} images each."
        )
    if incomplete:
        named = ", ".join(labels.get(row, row) for row in incomplete)
        text.append(f"Not finished, and in no table: {named}.")
    caption = (
        "Boxes over the kinds of corruption, of means over runs; whiskers: best and "
        "worst kind. Lower is better."
    )
    svg = functools.partial(plots.corruption_boxes, found) if found else ""
    figures = [Figure(svg, "NLL and ECE by severity", caption)]
    table = Table(heads, rows, RUNS)
    return _section("Corrupted images", " ".join(text), [table], figures)


_BUILDERS = {
    "teachers": _teachers,
    "students": _students,
    "jacobians": _jacobians,
    "matching": _matching,
    "ood": _ood,
    "corruptions": _corruptions,
}
