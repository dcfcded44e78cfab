"""Bad input is one sentence and exit code 2, and earlier results stay as they were."""

import sys
from pathlib import Path

import pytest

STUDY = ["study", "digits:tiny", "--only", "baseline"]
OWN = "own data needs --data: an .npz file, a TFDS name"


# What a network, an optimiser, devices or data cannot do is seen when a run begins, and
# each mistake in a setting has its test with the setting.
@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("studdy", "did you mean study?"),
        ("zzz", "-h lists them"),
        ("equations Eq.9", "Eq.9"),
        ("study none.json", "none.json is not a record of a study"),
        ("study digits --epoch 3", "did you mean --epochs?"),
        ("study digits --learnin-rate 1", "mean --learning-rate?"),
        ("study digits --epochs many", "'many'"),
        ("study digits --optimizer lion", "sgd, adam"),
        ("study digits --mesh rows=2", "replica, member and data"),
        ("study digits --set codistill_skl.beta", "method.coefficient=value"),
        ("study digits --set baseline=entropy", "method.coefficient=value"),
        ("study digits --set codistill_skl.beta=big", "'big'"),
        ("study digits --set train.epoch=3", "no setting 'epoch'"),
        ("study digits --set train.epochs=2.5", "train.epochs must be a whole number"),
        ("study digits --set train.epochs=2 --epochs 3", "train.epochs is given twice"),
        ("study digits --set train.epochs=2 train.epochs=3", "epochs is given twice"),
        ("study digits --set data.nme=x", "data has no setting 'nme'"),
        ("study digits --set model=x", "model must be an object"),
        ("study digits:tiny --data missing.npz", "missing.npz"),
        ("study digits:tiny --out=", "--out needs the name of a folder"),
        ("study own --data digits --batch-size -5", "batch_size must be at least 1"),
        ("study digits:tiny --optimizer optax:lionn --dry-run", "did you mean lion"),
        ("study digits:tiny --optimizer optax:lionn", "did you mean lion"),
        (
            "study digits --optimizer adam --set train.optimizer.momentum=0.5",
            "momentum is not read: it is for sgd; the optimizer is adam",
        ),
        (
            "study digits --set train.optimizer.schedule=cosine "
            "train.optimizer.flat_until=0.2",
            "flat_until is not read: it is for the schedule flat_then_linear",
        ),
        (
            "study own --data digits --optimizer optax:sgd --learning-rate 0.1 --set "
            "train.optimizer.weight_decay=0.3",
            "weight_decay is not read: the optimizer is not given it; set it there",
        ),
        (
            "sweep digits optimizer.weight_decay=0.1 --optimizer optax:sgd",
            "weight_decay is not read: the optimizer is not given it; set it there",
        ),
        (
            "study own --data digits --set data.image_size=4",
            "data.image_size is for images of various sizes, which digits is not",
        ),
        (
            "study own --data digits --set data.vocabulary=x",
            "data.vocabulary is for texts, which digits is not; leave it out",
        ),
        ("study digits --list --method ELODI", "elodi: it needs a teacher; give"),
        ("study own", OWN),
        ("sweep", "needs the name of a preset"),
        ("sweep digitz codistill_skl.beta", "unknown preset 'digitz'"),
        ("sweep digits", "needs what to sweep"),
        ("sweep digits codistill_skl.beta --replicas 3", "unknown option --replicas"),
        ("sweep digits codistill_skl.beta --set train.replicas=3", "are --seeds"),
        ("sweep digits codistill_skl.beta --criterion x", "criterion must be"),
        ("sweep digits codistill_skl.beta --minutes -1", "--minutes must be"),
        (
            "sweep digits codistill_skl.beta=1 --points-per-program -1",
            "points_per_program must be at least 0; got -1",
        ),
        ("sweep digits codistill_skl.beta=0.1 --values 0.5", "--values is for an axis"),
        ("sweep digits entropy.alpha=0.1,2", "alpha must be from 0 to 1; got 2.0"),
        (
            "sweep digits codistill_skl.beta=0.1 codistill_skl.beta=0.1,0.3",
            "codistill_skl.beta is named twice",
        ),
        (
            "sweep digits codistill_skl.beta=0.1 --set codistill_skl.beta=0.3",
            "codistill_skl.beta is swept, and --set gives it, too; leave one out",
        ),
        ("sweep own", OWN),
        ("plan", "plan needs the name of a preset"),
        ("plan zzz", "unknown preset 'zzz'; known: digits"),
        ("plan digit", "did you mean digits"),
        ("plan digits:small", "digits:tiny"),
        ("plan digits --topology v9:2x2", "must be one of v4, v5e, v5p, v6e"),
        ("plan digits --mesh replica=3", "10 replicas cannot be sharded"),
        ("plan digits --mesh data=64 --quiet", "needs 64 devices; v5e:4x4 has 16"),
        ("plan digits --data mine --quiet", "knows those of digits, mnist"),
        ("plan digits --json no/such/x.json", "there is no folder no/such"),
        ("plan digits --json -", "--json needs the name of a file; got -"),
        ("plan clicks", "clicks passes over its examples once; only studies that"),
        ("plan own", OWN),
        ("doctor --launches 1", "at least two launches"),
        ("doctor --updates 0", "one update"),
        ("doctor --row distillation", "learns from a teacher"),
        ("doctor --steps 5", "--steps"),
        ("doctor digist", "did you mean digits"),
        ("doctor --row baselin", "did you mean baseline"),
        ("report .", "study.json"),
    ],
)
def test_mistakes_are_named_and_nothing_is_left(
    refused, words, said, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("churn_jax.planning.compile.check_compiler", lambda: None)
    refused(words.split(), said)
    assert list(Path().iterdir()) == []


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("--model lenet5", ["12 x 12", "8, 8"]),
        ("--mesh replica=16 --replicas 16", ["16 devices", "present"]),
        ("--set train.steps_per_call=300", ["steps_per_call 300"]),
        ("--set train.optimizer.learning_rate=1,2,3", ["3", "2"]),
        ("--train-size 5000", ["train_size=5000", "digits"]),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_settings_that_do_not_fit_are_refused_and_bind_nobody(
    refused, tmp_path, options, words
):
    out = tmp_path / "run"
    refused([*STUDY, "--out", out, *options.split()], *words)
    assert not list(out.glob("methods/*/predictions.npz"))
    assert not list(out.glob("methods/*/checkpoints/*"))


@pytest.mark.parametrize(
    ("package", "options", "words"),
    [
        ("matplotlib", [], "Matplotlib, which draws the report"),
        ("wandb", ["--log", "wandb"], "pip install wandb"),
        ("mlflow", ["--log", "mlflow"], "pip install mlflow"),
    ],
)
def test_a_missing_package_is_said_before_anything_is_trained(
    refused, monkeypatch, tmp_path, package, options, words
):
    monkeypatch.setitem(sys.modules, package, None)
    refused([*STUDY, *options, "--out", tmp_path / "run"], words)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("name", ["file/run", "file"])
def test_a_folder_that_cannot_be_written_is_refused(refused, tmp_path, name):
    """Below a regular file, where not even root can write."""
    (tmp_path / "file").write_text("precious")
    refused([*STUDY, "--out", tmp_path / name], tmp_path / "file")
    assert (tmp_path / "file").read_text() == "precious"


@pytest.mark.parametrize("text", ["{", "[]", '{"config": 3}'])
def test_a_record_that_is_not_a_studys_is_refused(refused, tmp_path, text):
    (tmp_path / "study.json").write_text(text)
    refused([*STUDY, "--out", tmp_path], tmp_path / "study.json", "--fresh")
    refused(["report", tmp_path], "study.json")
    assert (tmp_path / "study.json").read_text() == text
