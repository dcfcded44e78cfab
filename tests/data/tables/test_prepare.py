"""The script that brings three public tables into time order, on tiny raw files."""

import gzip
import pathlib
import runpy
import sys
import zipfile

import pytest

from churn_jax.data.tables import TableSchema, open_table

SCRIPT = pathlib.Path(__file__).parents[3] / "experiments/anti_distillation/prepare.py"

ADULT = (
    "39, State-gov, 77516, Bachelors, 13, Never-married, Adm-clerical, Not-in-family"
)
ADULT += ", White, Male, 2174, 0, 40, ?, "
KDD = "0,tcp,http,SF,181,5450" + ",0" * 35 + ","


def prepare(monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["prepare.py", *map(str, arguments)])
    runpy.run_path(str(SCRIPT), run_name="__main__")


def labels(path, schema):
    (window,) = open_table(path, schema).windows(20)
    return window.labels[window.mask > 0].tolist()


def diabetes_raw(folder):
    """Twenty stays, the last one first, half of them readmitted early."""
    schema = TableSchema.load("diabetes130")
    header = ["encounter_id", "patient_nbr", "readmitted"]
    header += [f.name for f in (*schema.categorical, *schema.numeric)]
    lines = [",".join(header)]
    for i in reversed(range(20)):
        stay = [str(90 + i), f"p{i // 2}", ("<30", ">30")[i % 2]]
        lines.append(",".join(stay + ["1"] * (len(header) - 3)))
    path = folder / "raw.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("dataset/diabetic_data.csv", "\n".join(lines) + "\n")
    return path


def test_adult_is_the_training_set_and_then_the_test_set(tmp_path, monkeypatch, capsys):
    (tmp_path / "adult.data").write_text(f"{ADULT}<=50K\n{ADULT}>50K\n\n")
    (tmp_path / "adult.test").write_text(f"|1x3 Cross validator\n{ADULT}>50K.\n")
    prepare(monkeypatch, "adult", tmp_path, tmp_path / "adult.csv")
    assert capsys.readouterr().out.endswith("adult.csv: 3 examples\n")
    assert labels(tmp_path / "adult.csv", TableSchema.load("adult")) == [0, 1, 1]


def test_diabetes_is_sorted_by_stay_and_a_schema_is_written(tmp_path, monkeypatch):
    out, toml = tmp_path / "diabetes.csv", tmp_path / "mine.toml"
    raw = diabetes_raw(tmp_path)
    prepare(monkeypatch, "diabetes130", raw, out, "--schema", toml)
    packaged, mine = TableSchema.load("diabetes130"), TableSchema.load(toml)
    assert labels(out, packaged) == labels(out, mine) == [1, 0] * 10
    assert (mine.time, mine.group) == (packaged.time, packaged.group)
    # The first tenth: two stays, all of whose other columns hold 1.
    assert mine.categorical[0].vocabulary == ("1",)
    assert {n.std for n in mine.numeric} == {0.25, 1.0}


def test_kdd_labels_are_attacks(tmp_path, monkeypatch):
    raw = tmp_path / "kddcup.gz"
    raw.write_bytes(gzip.compress(f"{KDD}normal.\n{KDD}smurf.\n".encode()))
    prepare(monkeypatch, "kddcup99", raw, tmp_path / "kdd.csv")
    assert labels(tmp_path / "kdd.csv", TableSchema.load("kddcup99")) == [0, 1]


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("adult", None, "No such file"),
        ("kddcup99", b"", "the raw files hold no examples"),
        ("kddcup99", b"0,tcp,smurf.\n", "example 1 has 3 fields instead of 42"),
        ("diabetes130", b"a,b\n1,2\n", "there is no column encounter_id"),
    ],
)
def test_other_files_are_refused_and_nothing_is_written(
    tmp_path, monkeypatch, capsys, name, content, said
):
    raw, out = tmp_path / "raw.csv", tmp_path / "out.csv"
    if content is not None:
        raw.write_bytes(content)
    with pytest.raises(SystemExit) as stopped:
        prepare(monkeypatch, name, raw, out)
    assert stopped.value.code == 2
    assert said in capsys.readouterr().err
    assert not list(tmp_path.glob("out.csv*"))
