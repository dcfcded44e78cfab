"""Run folders with synthetic predictions, as a study would leave them."""

import csv
import dataclasses
import io
import json

import numpy as np
from rich.console import Console

from churn_compare.documents import csv_text, html_page, markdown
from churn_compare.store import Predictions, save_predictions
from churn_jax import reports
from churn_jax.configuration import StudyRecord, to_json
from churn_jax.configuration.record import DataRecord, LaunchRecord, RowRecord
from churn_jax.methods import ERM, Codistillation
from churn_jax.reports.published import published
from churn_jax.reports.study_report import study_document
from churn_jax.studies import DataConfig, MethodSpec, ModelConfig, StudyConfig
from churn_jax.training import TrainConfig


def markdown_table(report):
    """The text of `table.md`."""
    return markdown(study_document(report).at("summary"))


def csv_rows(source):
    """The lines of a CSV: of its text, or of the `table.csv` of a report."""
    text = source if isinstance(source, str) else csv_text(study_document(source).data)
    return list(csv.DictReader(io.StringIO(text)))


def cells_of(text):
    """The cells of all lines of tables in a Markdown text."""
    lines = [
        line.strip("|").split("|") for line in text.splitlines() if line[:1] == "|"
    ]
    return [[cell.strip() for cell in line] for line in lines]


def printed(report, width):
    """What `print_report` shows in a terminal of this width."""
    out = io.StringIO()
    reports.print_report(report, Console(file=out, width=width))
    return out.getvalue()


def render(report):
    """The text of `report.html`."""
    return html_page(study_document(report))


def next_to_paper(document):
    """The section with a paper's numbers, and its cells: row and column to text."""
    titles = {getattr(block, "title", ""): block for block in document.blocks}
    section = titles["Compared with the paper"]
    heads = [column.full_heading for column in section.blocks[0].heads]
    cells = {
        (row[0].text, head): f"{cell.text} {cell.mark}".strip()
        for row in section.blocks[0].cells
        for head, cell in zip(heads[1:], row[1:], strict=True)
    }
    return section, cells


def logits_of(classes, num_classes, margin=2.0):
    """`[R, N, C]` logits whose arg max is `classes [R, N]`."""
    return (margin * np.eye(num_classes)[classes]).astype(np.float32)


def noisy_logits(rng, labels, R, C, shared=1.0, own=1.0, margin=3.0, runs=None):
    """`[R, N, C]`: signal + what all runs share + what each run has of its own."""
    N = len(labels)
    common = margin * np.eye(C)[labels] + shared * rng.normal(size=(N, C))
    runs = rng.normal(size=(R, N, C)) if runs is None else runs
    return (common + own * runs).astype(np.float32)


SPEC = {field.name for field in dataclasses.fields(MethodSpec)}
CONFIG = ("title", "baseline", "published", "notes")
LAUNCH = ("command", "date", "hardware", "devices", "versions")


def merged(base, changes):
    """JSON values with others in their place, at any depth."""
    if not (isinstance(base, dict) and isinstance(changes, dict)):
        return changes
    return base | {k: merged(base.get(k), v) for k, v in changes.items()}


def row_of(i, name, **changes):
    """JSON of a row; `changes` are of its method's specification or of its record."""
    method = ERM() if i == 0 else Codistillation(beta=0.1 * i)
    label = name.replace("_", " ").capitalize()
    spec = MethodSpec(name, label, method, f"[reproducibility] Eq. {6 + i}")
    cost = float(method.members)
    of = {"training_cost": cost, "seconds": 12.3 + i, "compile_seconds": 2.1}
    row = RowRecord(name, label, spec, **of)
    found = to_json(row) | {"parameters": 12345}
    own = {k: v for k, v in changes.items() if k not in SPEC or k == "label"}
    found["spec"] |= {k: v for k, v in changes.items() if k in SPEC}
    return found | own


def write_study(folder, methods, labels, ids=None, stopped=None, entries=None, **facts):
    """Write a run folder; `methods` maps names to logits, or to None for planned rows.

    `entries` maps names to more keys of their rows, `facts` names settings and
    parts of the record; `config` may hold any setting. A study with published numbers
    is on their data set.
    """
    stopped, extra = stopped or {}, entries or {}
    labels = np.asarray(labels)
    ids = np.arange(len(labels)) if ids is None else ids
    rows = []
    for i, (name, logits) in enumerate(methods.items()):
        own = {"stopped": stopped.get(name, [])} | extra.get(name, {})
        rows.append(row_of(i, name, **own))
        if logits is not None:
            predictions = Predictions(
                ids, labels, logits, {"method": name, "stopped": own["stopped"]}
            )
            save_predictions(folder / "methods" / name / "predictions.npz", predictions)
            write_history(folder / "methods" / name / "metrics.jsonl", len(logits), i)
    runs = next((len(own) for own in methods.values() if own is not None), 3)
    train = TrainConfig(replicas=runs, epochs=20)
    config = StudyConfig(
        "fake", "A study of nothing", DataConfig(), ModelConfig(), train, ()
    )
    data = DataRecord(
        "digits", "", "sha256:0123456789abcdef", 10, 697, 100, len(labels)
    )
    launch = LaunchRecord(
        command="churn-jax study fake",
        date="2026-11-20T12:00:00",
        hardware="2 cores",
        devices=("CPU 0",),
        versions={"churn-jax": "0.1.0", "jax": "0.10.2"},
    )
    record = to_json(StudyRecord(config, data, launch))
    if printed := published(facts.get("published", "")):
        record["data"]["name"] = printed[0]["data"]
    record["config"]["methods"] = [row["spec"] for row in rows]
    record["methods"] = [r for r in rows if methods[r["name"]] is not None]
    for part, names in (("config", CONFIG), ("launch", LAUNCH)):
        record[part] |= {k: facts.pop(k) for k in names if k in facts}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "study.json").write_text(json.dumps(merged(record, facts)))
    return folder


def change_record(folder, **changes):
    """Other values of parts of `study.json`."""
    path = folder / "study.json"
    record = json.loads(path.read_text())
    path.write_text(json.dumps(merged(record, changes)))


def write_history(path, R, i=0, epochs=8):
    lines = []
    for epoch in range(1, epochs + 1):
        fall = float(np.exp(-epoch / (3 + i)))
        lines.append(
            {
                "epoch": epoch,
                "step": 40 * epoch,
                "seconds": 0.5 * epoch,
                "train": {"loss": [2 * fall + 0.01 * r for r in range(R)]},
                "validation": {
                    "accuracy": [0.95 - 0.6 * fall for _ in range(R)],
                    "nll": [fall + 0.1] * R,
                    "churn": 0.05 + 0.3 * fall,
                },
            }
        )
    path.write_text("\n".join(json.dumps(line) for line in lines) + "\n")
