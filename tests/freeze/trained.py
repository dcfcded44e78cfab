"""What trains: every method on the digits, streams, sweeps, and what reads studies."""

import json
import shutil
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from tests.freeze.session import Session, digest

SMALL = "--data.train-size 64 --data.validation 60 --batch-size 32".split()
TINY = ["--model.features", "8", *SMALL]
REPORTS = ("table.csv", "table.md", "updates.csv", "updates.md", "report.html")


def _study(session: Session, name: str, preset: str, *words: Any) -> Path:
    """Trains a study quietly and keeps all that it has left."""
    out = Path(name)
    session.run(
        name, "study", preset, "--quiet", "--out", out, *words, varies=True, code=0
    )
    _keep_study(session, out)
    return out


def _keep_study(session: Session, out: Path) -> None:
    name = str(out)
    session.keep(f"{name}/names.txt", _names(out))
    reports = [out / report for report in REPORTS]
    session.keep_files(name, [path for path in reports if path.exists()], varies=True)
    for row in sorted((out / "methods").iterdir()):
        history = [row / "metrics.jsonl"] if (row / "metrics.jsonl").exists() else []
        session.keep_files(f"{name}/{row.name}", history, varies=True)
        for path in sorted(row.glob("*.npz")):
            with np.load(path) as found:
                arrays = {k: found[k] for k in found.files if k != "meta"}
            session.keep_arrays(f"{name}/{row.name}/{path.stem}", arrays)
        session.keep(f"{name}/{row.name}/weights.txt", _weights(row / "checkpoints"))


def _names(out: Path) -> str:
    """Files that a study leaves, but for the insides of others' formats."""
    foreign = ("checkpoints", "tensorboard")
    paths = (path.relative_to(out) for path in out.rglob("*") if path.is_file())
    kept = sorted(str(p) for p in paths if not set(foreign) & set(p.parts))
    return "\n".join(kept) + "\n"


def _weights(folder: Path) -> str:
    """Digests of all arrays of the last checkpoint, in an order of their own."""
    import orbax.checkpoint as ocp

    steps = [int(p.name) for p in folder.glob("*") if p.name.isdigit()]
    if not steps:
        return "no checkpoint\n"
    state = folder / str(max(steps)) / "state"
    with warnings.catch_warnings(), ocp.PyTreeCheckpointer() as checkpointer:
        warnings.simplefilter("ignore")  # that it may be read on other devices
        tree = checkpointer.restore(state.absolute())
    lines: list[str] = []
    _leaves(tree, lines)
    return f"after {max(steps)} updates\n" + "\n".join(sorted(lines)) + "\n"


def _leaves(tree: Any, lines: list[str]) -> None:
    if isinstance(tree, dict):
        tree = list(tree.values())
    if isinstance(tree, list | tuple):
        for part in tree:
            _leaves(part, lines)
    elif tree is not None:
        lines.append(digest(np.asarray(tree)))


def methods(session: Session) -> None:
    """The first paper's methods; the report with a row that stopped, and damaged."""
    words = [*TINY, "--replicas", 3, "--set", "uniform_skl.alpha=1e38"]
    out = _study(session, "digits", "digits:tiny", *words)
    (out / "methods/entropy/predictions.npz").unlink()
    (out / "methods/codistill_ce/predictions.npz").write_bytes(b"damaged")
    session.run("damaged", "report", out, varies=True)
    session.keep_files("damaged", [out / "table.md", out / "report.html"], varies=True)


def updates(session: Session) -> None:
    """The fourth paper's methods: old and new models and the section on updates."""
    out = _study(session, "elodi", "elodi-digits:tiny", *TINY)
    versions = Path("versions")
    versions.mkdir()
    for number, row in enumerate(("old", "none", "kd"), 1):
        shutil.copy(out / f"methods/{row}/predictions.npz", versions / f"v{number}.npz")
    files = [Path(f"compared.{end}") for end in ("json", "md", "html")]
    options = zip(("--json", "--markdown", "--html"), files)
    written = [word for option in options for word in option]
    few = ["--resamples", 100, "--max-nfr", "20%"]
    session.run("compared", "compare", versions, *few, *written)
    session.keep_files("compared", files, varies=False)


def ensembles(session: Session) -> None:
    """Methods of the second and the third paper, and what analyses them."""
    words = ["--data.train-size", 64, "--data.validation", 40, "--model.features", 12]
    out = _study(session, "dm", "dm-digits:tiny", *words)
    few = "--examples 40 --jacobian-examples 6 --batch 8 --draws 4 --corruptions"
    few += " --types fog --severities 1 5 --quiet"
    session.run("diversity", "diversity", out, *few.split(), varies=True, code=0)
    kept = [p for p in sorted((out / "diversity").iterdir()) if p.suffix != ".npz"]
    session.keep_files("diversity", [p for p in kept if p.is_file()], varies=True)
    mlp = ["--data", "digits", "--model", "mlp", *TINY]
    rows = ["--only", "baseline", "ad_0_1", "ad_0_5"]
    _study(session, "ad", "ad-mnist:tiny", *mlp, *rows)
    rows = ["--only", "ad", "orthogonalized", "wide"]
    _study(session, "losses", "ad-mnist-losses:tiny", *mlp, *rows)
    rows = ["--only", "end2", "transfer_ods", "averaged_ods"]
    _study(session, "more", "dm-fashion-more:tiny", *mlp, *rows)


def networks(session: Session) -> None:
    """Batch norm, a mesh of four devices, and a user's own data."""
    norm = ["--data", "digits", *SMALL, "--epochs", 1, "--only", "baseline"]
    _study(session, "resnet", "cifar10:tiny", *norm)
    mesh = ["--mesh", "replica=2,data=2", "--only", "baseline", "codistill_skl"]
    _study(session, "mesh", "digits:tiny", *TINY, *mesh)
    rng = np.random.default_rng(1)
    labels = np.arange(240) % 3
    images = 60 * labels[:, None, None, None] + rng.integers(0, 90, (240, 6, 6, 1))
    np.savez("mine.npz", images=images.astype(np.uint8), labels=labels)
    _study(session, "own", "own", "--data", "mine.npz", "--epochs", 2, "--replicas", 2)


def resume(session: Session) -> None:
    """A study in pieces, kept, begun afresh, refused and trained again."""
    words = ["study", "digits:tiny", *TINY, "--only", "baseline", "entropy"]
    words += ["--quiet", "--out", "pieces"]
    for piece in range(1, 5):
        session.run(f"piece-{piece}", *words, "--minutes", "0.0005", varies=True)
    session.run("rest", *words, varies=True, code=0)
    _keep_study(session, Path("pieces"))
    session.run("other-epochs", *words, "--epochs", 3, varies=True)
    session.run("other-data", *words, "--data.train-size", 96, varies=True)
    session.run("coefficient", *words, "--set", "entropy.alpha=0.123", varies=True)
    session.run("fresh", *words, "--fresh", "--epochs", 1, varies=True)
    (name,) = [p.name for p in Path().glob("pieces.*")]
    session.keep("aside.txt", name[:7] + "\n")
    session.keep("names.txt", _names(Path("pieces")))


def stream(session: Session) -> None:
    """Click models, in one go and in two."""
    words = "--holdout 0.2 --quiet --only baseline correlation_0_02_s1 covariance_1_s1"
    command = ["stream", "clicks:tiny", *words.split(), "--out"]
    session.run("stream", *command, "stream", varies=True, code=0)
    session.run("piece", *command, "pieces", "--minutes", 1e-9, varies=True, code=3)
    session.run("rest", *command, "pieces", varies=True, code=0)
    for out in (Path("stream"), Path("pieces")):
        _keep_study(session, out)
        for path in sorted(out.glob("methods/*/result.json")):
            session.keep_files(f"{out}/{path.parent.name}", [path], varies=True)
    for form in ("gated", "warm", "summed"):
        row = ["--only", "correlation_0_02_s1", "--out", form, "--quiet"]
        session.run(form, "stream", f"clicks:{form}:tiny", *row, varies=True, code=0)
        _keep_study(session, Path(form))


def sweep(session: Session) -> None:
    """Two coefficients side by side, and beta before alpha."""
    few = ["--seeds", 3, "--quiet", *TINY]
    axes = ["entropy.alpha=0.1,0.5", "codistill_skl.beta=0.1,0.4"]
    session.run(
        "grid", "sweep", "digits:tiny", *axes, *few, "--out", "grid", varies=True
    )
    chosen = ["codistill_skl_entropy", "--select", "--betas", "0.1,0.4"]
    chosen += ["--alphas", "0.1,0.2", "--criterion", "churn-at-accuracy"]
    session.run(
        "select", "sweep", "digits:tiny", *chosen, *few, "--out", "select", varies=True
    )
    for out in (Path("grid"), Path("select")):
        kept = [
            p for p in sorted(out.iterdir()) if p.suffix in (".csv", ".md", ".html")
        ]
        session.keep_files(str(out), kept, varies=True)
        session.keep(f"{out}/names.txt", _names(out))
        points = json.loads((out / "sweep.json").read_text()).get("points")
        session.keep(f"{out}/points.json", json.dumps(points, indent=1), varies=True)


def displacement(session: Session) -> None:
    """How far logits move, for one row and for two."""
    rows = ["--only", "baseline", "entropy", "--replicas", 6, "--quiet"]
    out = Path("run")
    session.run(
        "study", "study", "digits:tiny", *TINY, *rows, "--out", out, varies=True
    )
    few = "--sizes 1,3 --images 2 --draws 30 --resamples 4 --quiet".split()
    both = ["--new", "entropy", "--heterogeneous", "baseline,entropy", "--out", "both"]
    one = ["displacement", out, "--old", "baseline", *few]
    session.run("one", *one, varies=True, code=0)
    session.run("both", *one, *both, varies=True, code=0)
    session.keep_files("one", sorted((out / "displacement").iterdir()), varies=True)
    session.keep_files("both", sorted(Path("both").iterdir()), varies=True)


def machine(session: Session) -> None:
    """What launches of their own and the TPU compiler say."""
    session.run(
        "doctor", "doctor", "digits:tiny", "--updates", 2, "--out", "d", varies=True
    )
    session.keep_files("doctor", sorted(Path("d").iterdir()), varies=True)
    few = [
        "--topology",
        "v5e:2x2",
        "--mesh",
        "replica=2,data=2",
        "--quiet",
        "--json",
        "p.json",
    ]
    session.run("plan", "plan", "digits:tiny", "--replicas", 2, *few, varies=True)
    session.keep_files("plan", [Path("p.json")], varies=True)


_ALL = (methods, updates, ensembles, networks, resume, stream, sweep, displacement)
AREAS = {f.__name__: f for f in (*_ALL, machine)}
