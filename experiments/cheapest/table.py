"""What the studies here found, with costs: one CSV, and a figure of the Pareto front.

    python experiments/cheapest/table.py out.csv runs/cheapest-retrain-fashion ...
    python experiments/cheapest/table.py --choose runs/cheapest-retrain-choice-fashion

Costs are in trainings and forward passes of one network: of a release, what is trained
for it, with its teachers and not with the old model; of serving, the networks of a
prediction. A row counts where accuracy is not lower than that of no treatment by more
than two standard errors of the difference. With `--choose` the five settings of each
method are compared on the validation split instead.
"""

import argparse
import csv
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

import churn_compare
from churn_compare.array_files import write_file
from churn_compare.documents import Records, csv_text
from churn_jax.analysis import cross_fitted_selection
from churn_jax.analysis.significance import Difference, paired_leave_one_out_test
from churn_jax.configuration.study import StudyConfig
from churn_jax.reports import predictions
from churn_jax.reports.artefacts import read_study
from churn_jax.reports.estimates import over_runs
from churn_jax.reports.report import collected

Line = dict[str, Any]
FIELDS = ("study", "row", "label", "training", "serving")
MEASURED = ("churn", "error", "delta_churn", "delta_error")
RELEASE = 5  # runs of which one is shipped
# Rows whose validation accuracy is lower than without treatment by more are not chosen.
TOLERANCE = 0.003


def training(
    config: StudyConfig,
    name: str,
    deployed: str = "",
    sizes: Mapping[str, float] = MappingProxyType({}),
) -> float:
    """Networks trained for a release of a row, its teachers' included.

    Args:
        config: the study.
        name: the row.
        deployed: the old model's row, which is there already.
        sizes: size of a row's networks, in that of the untreated row's; 1 if missing.
    """
    spec = config.spec(name)
    of = set(spec.dependencies) - {deployed}
    own = spec.method.members * sizes.get(name, 1.0)
    return own + sum(training(config, other, deployed, sizes) for other in of)


def _sizes(config: StudyConfig, rows: Iterable[dict[str, str]]) -> dict[str, float]:
    """Parameters of every row's networks, in those of the untreated row's."""
    counts = {
        row["method"]: int(row["parameters"]) / int(row["members"])
        for row in rows
        if row["parameters"]
    }
    return {name: count / counts[config.baseline] for name, count in counts.items()}


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def _number(text: str) -> float:
    return float(text) if text else np.nan


def lines_of(folder: Path) -> list[Line]:
    """The rows of a study: its updates where it has some, else its retrained rows."""
    config = read_study(folder).config
    updates = folder / "updates.csv"
    old = "old" if updates.exists() else ""
    table = [row for row in _rows(folder / "table.csv") if row["churn"]]  # finished
    found: list[Line] = []
    sizes, averaged = _sizes(config, table), {row["method"] for row in table}
    for row in _rows(updates) if old else table:
        if not old and f"{row['method']}_ema" in averaged:
            continue  # of its weights as they are, no treatment once more
        if old and (row["first"], row["examples"]) != ("1", "all"):
            continue  # other pairs of runs, or the examples of old classes alone
        name = row["new"] if old else row["method"]
        spec = config.spec(name.removesuffix("_ema"))
        line: Line = {"study": config.name, "row": name, "label": row["label"]}
        line["training"] = training(config, spec.name, old, sizes)
        line["serving"] = spec.method.inference_cost * sizes[spec.name]
        # Updates are measured in negative flips, retraining in churn.
        read = ("negative_flip_rate", "new_error") if old else ("churn", "accuracy")
        for out, source in zip(("churn", "error"), read):
            for part in ("", "_stderr"):
                line[f"{out}{part}"] = _number(row[f"{source}{part}"])
                of = row.get(f"delta_{source}{part}", "")
                line[f"delta_{out}{part}"] = _number(of)
        if not old:
            line["error"], line["delta_error"] = 1 - line["error"], -line["delta_error"]
            line["ece"] = _number(row["ece"])
        found.append(line)
    if old:
        return [*found, *serving_lines(folder, config)]
    return [*found, selection_line(folder, config)]


def serving_lines(folder: Path, config: StudyConfig) -> list[Line]:
    """The retrained and the fine-tuned network, served together with the old one.

    `churn_compare.repair` chooses the rule of run r on the validation examples: a
    blend, a gate, or to keep the old version somewhere. Differences are to the
    retrained network as it is: in flips over all pairs of runs, as in `updates.csv`, in
    errors run by run.
    """
    splits = {split: predictions(folder, split) for split in ("test", "validation")}

    def sides(split: str, name: str, run: int) -> tuple[dict[str, Any], ...]:
        stored = splits[split]
        ids = [f"{split} {number}" for number in stored.ids]
        same = {"id": ids, "label": stored.labels}
        return tuple({**same, "logits": stored[row][run]} for row in ("old", name))

    test = splits["test"]
    right = {
        name: np.argmax(test[name], axis=-1) == test.labels
        for name in ("old", "none", "tuned")
        if name in test
    }
    flips = {name: np.mean(right["old"] & ~of, axis=-1) for name, of in right.items()}
    errors = {name: 1 - of.mean(-1) for name, of in right.items()}
    pairs = np.array([np.mean(of & ~right["none"], axis=-1) for of in right["old"]])
    found = []
    for name in [*right][1:]:
        results = [
            churn_compare.repair(
                *sides("test", name, run), validation=sides("validation", name, run)
            )
            for run in range(len(right[name]))
        ]
        churn = flips[name] - [r.flips_avoided.value for r in results]
        error = errors[name] - [r.accuracy_change.value for r in results]
        label = f"{config.spec(name).label}, served with the old"
        line: Line = {"study": config.name, "row": f"{name}_served", "label": label}
        line |= {"training": 1.0, "serving": 1 + np.mean([r.both for r in results])}
        numbers = {"churn": churn, "error": error}
        numbers["delta_error"] = error - errors["none"]
        for key, of in numbers.items():
            mean = over_runs(of)
            line |= {key: mean.mean, f"{key}_stderr": mean.stderr}
        fewer = fewer_flips(churn, pairs)
        line |= {"delta_churn": fewer.difference, "delta_churn_stderr": fewer.stderr}
        found.append(line)
    return found


def fewer_flips(own: np.ndarray, pairs: np.ndarray) -> Difference:
    """NFR of updates from run r to run r, `[R]`, minus that of all pairs, `[R, R]`."""
    kept = ~np.eye(len(own), dtype=bool)
    without = np.array([pairs[np.ix_(k, k)].mean() for k in kept])
    each = np.array([own[k].mean() for k in kept])
    return paired_leave_one_out_test(own.mean(), pairs.mean(), each, without)


def selection_line(folder: Path, config: StudyConfig) -> Line:
    """Of `RELEASE` runs of the baseline the one nearest to their mean is shipped."""
    stored = predictions(folder)
    logits = stored[config.baseline]
    size = min(RELEASE, len(logits) // 2)
    found = cross_fitted_selection(logits, stored.labels, size)
    return {
        "study": config.name,
        "row": "selection",
        "label": f"Nearest of {size}",
        "training": float(size),
        "serving": 1.0,
        "churn": found.churn,
        "error": 1 - found.accuracy,
        "delta_churn": found.churn - found.churn_of_any,
        "delta_error": found.accuracy_of_any - found.accuracy,
    }


def comparable(line: Line) -> bool:
    """True for a row that is not less accurate than no treatment, within its error."""
    delta, stderr = line.get("delta_error", np.nan), line.get("delta_error_stderr", 0.0)
    return not delta > 2 * np.nan_to_num(stderr)


def front(lines: Sequence[Line]) -> list[Line]:
    """The comparable rows that no other one beats in training, serving and churn."""
    able = [line for line in lines if comparable(line)]

    def costs(line: Line) -> np.ndarray:
        return np.array([line["training"], line["serving"], line["churn"]])

    def beaten(line: Line) -> bool:
        own = costs(line)
        others = (costs(other) for other in able)
        return any(np.all(c <= own) and np.any(c < own) for c in others)

    return [line for line in able if not beaten(line)]


def choices(folder: Path) -> list[tuple[str, str, float, float]]:
    """Row, old row, churn and accuracy of every row on the validation split.

    Churn is that between runs, or in a study of updates the rate of negative flips.
    """
    report = collected(read_study(folder), "validation")
    rows = {row.info.name: row.summary for row in report.rows}
    if report.updates is None:
        return [(n, "", s.churn.mean, s.accuracy.mean) for n, s in rows.items()]
    return [
        (u.new, u.old, u.first.negative_flip_rate.mean, rows[u.new].accuracy.mean)
        for u in report.updates.whole
    ]


def chosen(folder: Path) -> dict[str, tuple[str, int]]:
    """The row with the least churn of every method, and its place among its rows."""
    found = choices(folder)
    untreated = read_study(folder).config.baseline
    least = next(accuracy for name, _, _, accuracy in found if name == untreated)
    kinds: dict[str, list[tuple[str, float, float]]] = {}
    for name, _, churn, accuracy in found:
        words = name.removesuffix("_ema").split("_")
        kind = "_".join(w for w in words if not w[0].isdigit())
        if kind != name and (kind != "ema" or name.endswith("_ema")):
            kinds.setdefault(kind, []).append((name, churn, accuracy))
    best = {}
    for kind, rows in kinds.items():
        able = [row for row in rows if row[2] >= least - TOLERANCE]
        row = min(able, key=lambda r: r[1]) if able else max(rows, key=lambda r: r[2])
        best[kind] = (row[0], rows.index(row))
    return best


def draw(lines: Sequence[Line], path: Path) -> None:
    """Churn against the cost of training, the front as a line, serving as a size."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4.5), layout="constrained")
    best, gap = front(lines), 2 * max(line["churn"] for line in lines)  # in percent
    above: dict[float, float] = {}  # of the last label at a cost
    for line in sorted(lines, key=lambda line: line["churn"]):
        style = "o" if line in best else "." if comparable(line) else "x"
        x, y = line["training"], 100 * line["churn"]
        axes.scatter(x, y, s=30 * line["serving"], marker=style, c="C0")
        about = round(x)  # whose labels may overlap
        above[about] = max(y, above.get(about, -gap) + gap)
        place = 1.04 * max(x, about), above[about]
        axes.annotate(line["label"], place, va="center", fontsize=6)
    single = sorted((b for b in best if b["serving"] == 1), key=lambda b: b["training"])
    xs, ys = ([line[k] for line in single] for k in ("training", "churn"))
    axes.step(xs, 100 * np.array(ys), where="post", lw=1)
    axes.set(xlabel="networks trained for a release", ylabel="churn, or NFR, %")
    axes.set_xscale("log", base=2)
    ticks = sorted({round(line["training"]) for line in lines})
    axes.set_xticks(ticks, map(str, ticks))
    axes.set_xlim(right=1.4 * ticks[-1])  # room for labels
    with matplotlib.rc_context({"svg.hashsalt": path.stem}):  # else ids are random
        figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)


def write(lines: Iterable[Line], path: Path) -> None:
    """The lines as a CSV; those of the front are marked."""
    lines = list(lines)
    studies = dict.fromkeys(line["study"] for line in lines)
    best = [b for s in studies for b in front([x for x in lines if x["study"] == s])]
    measured = [name + part for name in MEASURED for part in ("", "_stderr")]
    fields = [*FIELDS, *measured, "ece", "comparable", "front"]
    rows = [
        {**line, "comparable": int(comparable(line)), "front": int(line in best)}
        for line in lines
    ]
    write_file(path, csv_text(Records(fields, rows)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--choose", action="store_true", help="settings of the studies")
    parser.add_argument("paths", nargs="+", type=Path, help="the CSV, and folders")
    options = parser.parse_args()
    if options.choose:
        for folder in options.paths:
            for kind, (name, place) in chosen(folder).items():
                print(f"{folder.name}: {kind!r}: {place},  # {name}")
        return
    out, *folders = options.paths
    every = [lines_of(folder) for folder in folders]
    write((line for lines in every for line in lines), out)
    for folder, lines in zip(folders, every, strict=True):
        draw(lines, out.with_name(f"{folder.name}.svg"))


if __name__ == "__main__":
    main()
