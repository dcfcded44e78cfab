"""Where the penalty's gain ends: its effects against epochs and width.

Of a study of `presets.py:length_14x14`, each row with the penalty is compared with the
one without that is as wide and was trained as long:

    python -m experiments.anti_distillation.length runs/NAME CSV FIGURE
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from churn_compare.array_files import write_file
from churn_compare.command_line import run, words_of
from churn_compare.documents import Records, csv_text
from churn_compare.documents.plotting import INK, drawing, legend, line_style
from churn_jax.reports import collect
from churn_jax.reports.artefacts import ReportError
from experiments.anti_distillation.calibrated import calibrated_records
from experiments.differences import differences

# Quantities of the figure, with what makes them the unit of the axis.
PANELS = {
    "prediction_difference": ("Δ₁ as deployed", 1),
    "calibrated_prediction_difference": ("Δ₁ calibrated", 1),
    "churn": ("Churn, points", 100),
    "accuracy": ("Accuracy, points", 100),
    "nll": ("NLL, nats", 1),
    "ece": ("ECE, points", 100),
}
PAIRED = ("churn", "accuracy", "nll", "ece")


def _plain(name: str) -> str:
    return name.replace("ad_", "plain_")


def changes(folder: Path) -> list[dict]:
    """The penalty's effect at each width and length; p is adjusted over all of them."""
    wanted = ["method", "label", "runs"]
    calibrated = {
        record["method"]: {
            key: value
            for key, value in record.items()
            if key in wanted or "prediction_difference" in key
        }
        for record in calibrated_records(folder, _plain).rows
    }
    rows = {row.info.name: row for row in collect(folder).rows}
    names = [name for name in rows if name != _plain(name) and _plain(name) in rows]
    if not names:
        raise ReportError(f"{folder} has no row `ad_...` with one `plain_...` of it")
    found = differences([(rows[name], rows[_plain(name)]) for name in names], PAIRED)
    lines = []
    for name, line in zip(names, found, strict=True):
        width, epochs = map(int, name.split("_")[1:])
        own = {**calibrated[name], "width": width, "epochs": epochs}
        lines.append({**own, **line, "label": own["label"]})
    return lines


def figure(lines: Sequence[dict]) -> str:
    """A panel for every quantity: changes against epochs, a line for each width."""
    with drawing(7.4, 4.6) as (canvas, done):
        panels = canvas.subplots(2, 3, sharex=True).T.ravel()
        for panel, (name, (title, scale)) in zip(panels, PANELS.items(), strict=True):
            for i, width in enumerate(sorted({line["width"] for line in lines})):
                own = [line for line in lines if line["width"] == width]
                key = f"delta_{name}"
                panel.errorbar(
                    [line["epochs"] for line in own],
                    [scale * line[key] for line in own],
                    [scale * line[f"{key}_stderr"] for line in own],
                    label=f"width {width}",
                    **line_style(i),
                )
            panel.axhline(0, color=INK, linewidth=0.8)
            panel.set(xscale="log", title=f"Change of {title}")
            panel.title.set_fontsize(9)
            ticks = sorted({line["epochs"] for line in lines})
            panel.set_xticks(ticks, map(str, ticks))
            panel.minorticks_off()
        for panel in panels[1::2]:
            panel.set_xlabel("Epochs")
        legend(canvas, panels[0])
        return done("What the penalty changes, against epochs and width")


def main(argv: Sequence[str] | None = None) -> int:
    """Writes both files; 2 for a folder that they cannot be made of."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments.anti_distillation.length",
        description=__doc__.partition("\n")[0],
    )
    parser.add_argument("run", type=Path, help="folder of the study")
    parser.add_argument("csv", type=Path, help="file of the numbers")
    parser.add_argument("figure", type=Path, help="the SVG file")
    words, verbose = words_of(argv, "length")
    arguments = parser.parse_args(words)

    def work() -> int:
        lines = changes(arguments.run)
        write_file(arguments.csv, csv_text(Records(list(lines[0]), lines)))
        write_file(arguments.figure, figure(lines))
        return 0

    return run(work, "length", verbose)


if __name__ == "__main__":
    sys.exit(main())
