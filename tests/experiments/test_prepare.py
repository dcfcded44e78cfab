"""The script that brings three public tables into time order, on tiny raw files."""

import gzip
import zipfile

import numpy as np
import pytest

from churn_jax.data import load_clicks
from experiments.anti_distillation import prepare

ADULT = (
    "39, State-gov, 77516, Bachelors, 13, Never-married, Adm-clerical, Not-in-family"
)
ADULT += ", White, Male, 2174, 0, 40, ?, "
KDD = "0,tcp,http,SF,181,5450" + ",0" * 35 + ","


def prepared(name, raw):
    """The clicks that the script makes of raw files."""
    out = raw.parent / f"{name}.npz"
    prepare.main([name, str(raw), str(out)])
    return load_clicks(str(out), validation=0.0)


def test_adult_is_the_training_set_and_then_the_test_set(tmp_path, capsys):
    (tmp_path / "adult.data").write_text(f"{ADULT}<=50K\n{ADULT}>50K\n\n")
    (tmp_path / "adult.test").write_text(f"|1x3 Cross validator\n{ADULT}>50K.\n")
    found = prepared("adult", tmp_path / "adult.data")
    assert capsys.readouterr().out.endswith("adult.npz: 3 examples\n")
    assert found.train.labels.tolist() == [0, 1, 1]
    # The first tenth has one word in every column but one, which is missing there.
    assert set(found.sizes) == {2} and found.train.ids.sum() == 3 * 7
    # Means have six digits.
    np.testing.assert_allclose(found.train.numeric, np.zeros((3, 5)), atol=1e-5)


def test_diabetes_is_sorted_by_stay_and_held_out_by_patient(tmp_path):
    # Twenty stays, the last one first, half of them readmitted early.
    table = prepare.TABLES["diabetes130"]
    columns = [*table.hashed, "gender", *table.numeric, *table.amounts]
    lines = [",".join(["encounter_id", "patient_nbr", "readmitted", *columns])]
    for i in reversed(range(20)):
        stay = [str(90 + i), f"p{i // 2}", ("<30", ">30")[i % 2]]
        lines.append(",".join(stay + ["1"] * len(columns)))
    raw = tmp_path / "raw.zip"
    with zipfile.ZipFile(raw, "w") as archive:
        archive.writestr("dataset/diabetic_data.csv", "\n".join(lines) + "\n")
    found = prepared("diabetes130", raw)
    assert found.train.labels.tolist() == [1, 0] * 10
    assert found.sizes == (500, 5000, 5000, 5000, 2)
    assert found.train.ids[0, 1:4].tolist() == [3507, 105, 2925]  # BLAKE2b of the words
    half = load_clicks(str(tmp_path / "diabetes130.npz"), validation=0.5)
    held_out = half.validation.keys.reshape(-1, 2)
    assert len(held_out) and np.all(held_out[:, 0] + 1 == held_out[:, 1])


def test_numbers_are_standardised_by_the_first_tenth():
    words = np.array(["0", "2", "?", "9"])
    found = prepare._standardised(words, 2, False)
    np.testing.assert_array_equal(found, np.float32([-1, 1, 0, 8]))
    logarithms = prepare._standardised(np.array(["0", "100"]), 1, True)
    np.testing.assert_allclose(logarithms, [0, np.log(101)], rtol=1e-6)


def test_kdd_labels_are_attacks(tmp_path):
    raw = tmp_path / "kddcup.gz"
    raw.write_bytes(gzip.compress(f"{KDD}normal.\n{KDD}smurf.\n".encode()))
    assert prepared("kddcup99", raw).train.labels.tolist() == [0, 1]


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
    tmp_path, capsys, name, content, said
):
    raw, out = tmp_path / "raw.csv", tmp_path / "out.npz"
    if content is not None:
        raw.write_bytes(content)
    with pytest.raises(SystemExit) as stopped:
        prepare.main([name, str(raw), str(out)])
    assert stopped.value.code == 2
    assert said in capsys.readouterr().err
    assert not list(tmp_path.glob("out.npz*"))
