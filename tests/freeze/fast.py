"""What takes seconds: presets, names, help, errors, comparisons."""

import dataclasses
import importlib
import inspect
import json
import pkgutil
import re
import shlex
from pathlib import Path
from typing import Any

from tests.freeze.inputs import write_inputs
from tests.freeze.session import Session

COMMANDS = "study sweep stream plan report compare diversity displacement data doctor"

# What is compared, by name: two files (or a folder) and options.
COMPARISONS = {
    "logits": "old.npz new.npz",
    "logits-slices": "old.npz new.npz --slices slices.csv --regressions 5",
    "level-seed": "old.npz new.npz --level 0.9 --seed 3 --regressions 0",
    "runs": "old-runs.npz new-runs.npz --slices slices.csv",
    "runs-one-side": "old.npz new-runs.npz",
    "runs-csv": "old-runs.csv new-runs.csv",
    "classes": "old-classes.csv new-classes.csv",
    "classes-against-logits": "old-classes.csv new.npz",
    "logits-against-classes": "old.npz new-classes.csv",
    "probabilities": "old-probabilities.parquet new-probabilities.csv.gz",
    "half": "old-half.npz new-half.npz",
    "shards": "old-shards new-shards",
    "shards-against-file": "old-shards new.npz --slices slices.csv",
    "rows": "old.npy new.npy --labels labels.npy",
    "rows-logits": "old-logits.npy new-logits.npy --labels labels.npy",
    "rows-probabilities": "old-logits.npy new.npy --labels labels.npy "
    "--old-kind logits --new-kind classes",
    "no-labels": "old.npy new.npy",
    "no-labels-logits": "old-logits.npy new-logits.npy",
    "names": "old-names.csv new-names.csv --id-column key --label-column truth "
    "--prediction-column answer --class-map classes-map.csv --kind classes",
    "names-unmapped": "old-names.csv old-names.csv --id-column key "
    "--label-column truth --prediction-column answer",
    "class-map-json": "old.npz new.npz --class-map classes-map.json",
    "more-classes": "old.npz wide.npz",
    "more-classes-identity": "old.npz wide.npz --class-map identity",
    "missing": "old.npz some.npz",
    "missing-intersect": "old.npz some.npz --on-missing intersect --slices slices.csv",
    "other-labels": "old.npz other-labels.npz",
    "nan": "old.npz nan.npz",
    "same": "old.npz old.npz",
    "versions": "versions",
    "versions-order": "versions --order v1 v10 v3 --max-nfr 5% --slices slices.csv",
    "gates-pass": "old.npz new.npz --max-churn 90% --max-nfr 50% "
    "--max-relative-nfr 3 --min-accuracy-gain=-50%",
    "gates-fail": "old.npz new.npz --max-churn 1% --max-nfr 0.01 "
    "--min-accuracy-gain 20%",
    "gates-bound": "old.npz new.npz --max-churn .2 --max-nfr 9% --on bound",
    "gates-groups": "old.npz new.npz --slices slices.csv --max-slice-churn 20% "
    "--max-slice-nfr 10% --min-slice-accuracy-gain 0 --max-class-churn 30% "
    "--max-class-nfr 15% --min-class-accuracy-gain -5% --min-examples 40",
    "gates-excess": "old-runs.npz new-runs.npz --max-excess-churn 1%",
    "gates-file": "old.npz new.npz --slices slices.csv --gates gates.toml",
    "gates-file-option": "old.npz new.npz --slices slices.csv --gates gates.toml "
    "--max-nfr 50%",
    "gates-versions": "versions --gates gates.toml --slices slices.csv",
}

# Bad input: a sentence and exit code 2.
ERRORS = """
studdy
study
study digit
study digits:huge
study own
study digits:tiny --bogus 3
study digits:tiny --epochs many
study digits:tiny --epochs 0
study digits:tiny --epochs
study digits:tiny --replicas 0
study digits:tiny --mapping spread
study digits:tiny --train.weights first
study digits:tiny --train.optimizer.name lion
study digits:tiny --mesh rows=2
study digits:tiny --mesh replica=0
study digits:tiny --mesh replica=3 --replicas 4
study digits:tiny --set codistill_skl.beta
study digits:tiny --set codistill_skl.beta=nan
study digits:tiny --set codistil_skl.beta=1
study digits:tiny --set codistill_skl.gamma=1
study digits:tiny --minutes -1
study digits:tiny --only baselin
study digits:tiny --only baseline --model mpl
study digits:tiny --only baseline --model.dtype float16
study digits:tiny --only baseline --model lenet5
study digits:tiny --only baseline --batch-size 300
study digits:tiny --only baseline --mesh replica=16 --replicas 16
study digits:tiny --only baseline --data.train-size 5000
study digits:tiny --only baseline --data missing.npz
study digits:tiny --only baseline --data no_such_set
study digits:tiny --only baseline --data nan.npz
sweep
sweep digitz codistill_skl.beta
sweep digits
sweep digits codistill_skl.betta
sweep digits codistill_skl.beta --values a
sweep digits codistill_skl.beta --seeds 1
sweep digits codistill_skl.beta --criterion x
sweep digits --select
sweep digits baseline --select
stream
stream clciks
stream ad-table3-adult
stream ad-table3 --data nowhere.csv --schema adult
stream clicks --batch-size 100
stream clicks:tiny --only nothing
stream clicks --set baseline.strength=1
plan
plan digit
plan digits --topology v9:2x2
plan digits --topology v5e:2x2,1x1
plan digits --mesh replica=3
report nowhere
report versions
diversity --examples 3
diversity nowhere
displacement nowhere --old a
doctor digist
doctor --launches 1
data
compare
compare old.npz
compare old.npz gone.npz
compare old.npz new.npz --max-chrun 1%
compare old.npz new.npz --max-churn 5
compare old.npz new.npz --max-churn 5x
compare old.npz new.npz --kind scores
compare old.npz new.npz --level 95
compare old.npz new.npz --resamples 10
compare old.npz new.npz --max-slice-nfr 1%
compare old.npz new.npz --max-excess-churn 1%
compare old.npz new.npz --gates bad-gates.toml
compare old.npz new.npz --gates gone.toml
compare old.npz new.npz --slices gone.csv
compare old.npz new.npz --order a b
compare old.npz new.npz --on bound
compare old.npz new.npz --json new.npz
compare old.npz new.npz --json a --markdown a
compare old.npz new.npz --class-map gone.json
compare versions --old-kind logits
compare old.npy new-classes.csv
"""


def presets(session: Session) -> None:
    """Every preset and its tiny form, field by field; golden files keep the JSON."""
    from churn_jax.studies import PRESETS, preset
    from churn_jax.studies.streams import STREAM_PRESETS, stream_preset

    kinds = ((preset, PRESETS, "study"), (stream_preset, STREAM_PRESETS, "stream"))
    for find, names, kind in kinds:
        for form in (form for name in names for form in (name, f"{name}:tiny")):
            text = json.dumps(plain(find(form)), indent=1)
            session.keep(f"{kind}-fields/{form.replace(':', '-')}.json", text)


def plain(value: Any) -> Any:
    """A configuration as JSON, by the fields of its dataclasses alone."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {
            f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)
        }
        return {"class": type(value).__name__} | fields
    if isinstance(value, dict):
        return {str(key): plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [plain(entry) for entry in value]
    known = value is None or isinstance(value, bool | int | float | str)
    return value if known else re.sub(r" at 0x\w+", "", str(value))


def equations(session: Session) -> None:
    """The rows of the index, without the files that functions are in."""
    out = session.run("all", "equations")
    lines = re.sub(r"churn_jax/[\w/]+\.py:\d+", "", out).splitlines()
    rows = [[cell.strip() for cell in line.split("│")] for line in lines]
    rows = [row[1:-2] for row in rows if len(row) > 3]
    session.keep("all.txt", "\n".join(" | ".join(row) for row in rows) + "\n")


def public(session: Session) -> None:
    """Names that packages give, with the parameters of functions and their defaults."""
    import churn_jax

    names = ["churn_jax", "churn_jax.testing", "churn_jax.predictions", "churn_jax.cli"]
    names += [
        f"churn_jax.{m.name}"
        for m in pkgutil.iter_modules(churn_jax.__path__)
        if m.ispkg
    ]
    names += ["churn_jax.studies.streams", "churn_jax.studies.diversity"]
    names += ["churn_jax.data.tables", "churn_jax.training.progressive"]
    names += ["churn_jax.reports.published"]
    for name in names:
        try:
            package = importlib.import_module(name)
        except ModuleNotFoundError:
            session.keep(f"{name}.txt", "there is no such package\n")
            continue
        lines = [
            _signature(x, getattr(package, x))
            for x in sorted(getattr(package, "__all__", ()))
        ]
        session.keep(f"{name}.txt", "\n".join(lines) + "\n")


def _signature(name: str, value: Any) -> str:
    if not callable(value):
        return f"{name}: {type(value).__name__}"
    try:
        parameters = inspect.signature(value).parameters.values()
    except (TypeError, ValueError):
        return name
    shown = []
    for p in parameters:
        given = "" if p.default is p.empty else f"={p.default!r}"
        star = {p.VAR_POSITIONAL: "*", p.VAR_KEYWORD: "**"}.get(p.kind, "")
        only = "(kw)" if p.kind is p.KEYWORD_ONLY else ""
        shown.append(f"{star}{p.name}{only}{given}")
    text = re.sub(r" at 0x\w+|<function (\w+\.)*", "", ", ".join(shown))
    return f"{name}({re.sub(r'churn_jax(.[a-z_]+)+[.]', '', text)})"


def help(session: Session) -> None:
    """Usage, options of every command, and the lists of presets and rows."""
    session.run("usage", "-h")
    session.run("version", "--version")
    for command in COMMANDS.split():
        session.run(command, command, "-h")
    session.run("study-elodi", "study", "elodi-digits", "-h")
    session.run("stream-adult", "stream", "ad-table3-adult", "-h")
    session.run("list", "study", "--list")
    for name in ("digits", "elodi-digits", "dm-digits", "ad-table1"):
        session.run(f"list-{name}", "study", name, "--list")
    session.run("costs", "study", "digits", "--dry-run")
    session.run("costs-elodi", "study", "elodi-digits", "--dry-run")
    session.run("costs-dm", "study", "dm-digits", "--dry-run", "--only", "kd")


def errors(session: Session) -> None:
    """Wrong words and files: the sentence and the exit code."""
    write_inputs(Path())
    for line in ERRORS.strip().splitlines():
        name = re.sub(r"[^\w.-]+", "_", line)
        session.run(name, *shlex.split(line))


def compare(session: Session) -> None:
    """Two versions, runs, slices, classes, gates: terminal, JSON, Markdown, page."""
    write_inputs(Path())
    for name, words in COMPARISONS.items():
        files = [Path(f"{name}.{end}") for end in ("json", "md", "html")]
        options = zip(("--json", "--markdown", "--html"), files)
        written = [word for option in options for word in option]
        few = ["--resamples", 200]
        session.run(name, "compare", *shlex.split(words), *few, *written)
        session.keep_files(name, [f for f in files if f.exists()], varies=False)


AREAS = {f.__name__: f for f in (presets, equations, public, help, errors, compare)}
