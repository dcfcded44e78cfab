"""Days in hospital by two regressions of scikit-learn, as CSV.

python experiments/compare/regression.py dataset_diabetes.zip days
churn-jax compare days/old.csv days/new.csv --tolerance 1 --cluster patient_nbr

Diabetes 130-US hospitals, stays in the order of their numbers: a ridge regression on
the first 20,000 is in use, gradient boosting on the first 80,000 is to replace it;
compared are the last 10,000.
"""

import argparse
import csv
import io
import zipfile
from pathlib import Path

import numpy as np
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import RidgeCV

NUMBERS = (
    "num_lab_procedures num_procedures num_medications number_outpatient "
    "number_emergency number_inpatient number_diagnoses"
).split()
KINDS = ["age", "admission_type_id", "admission_source_id", "medical_specialty"]
TESTED = 10_000


def stays(path):
    """Columns of the table, as texts, in the order of the stays' numbers."""
    with zipfile.ZipFile(path) as archive:
        name = next(n for n in archive.namelist() if n.endswith("diabetic_data.csv"))
        with io.TextIOWrapper(archive.open(name), "utf-8") as file:
            rows = list(csv.DictReader(file))
    rows.sort(key=lambda row: int(row["encounter_id"]))
    return {name: np.array([row[name] for row in rows]) for name in rows[0]}


def features(table):
    """Numbers, and a 0 or 1 for each value that a hundred stays have."""
    columns = [table[name].astype(float) for name in NUMBERS]
    for name in KINDS:
        values, counts = np.unique(table[name], return_counts=True)
        columns += [table[name] == value for value in values[counts >= 100]]
    return np.stack(columns, axis=1).astype(np.float64)


def write_days(path, folder):
    """`old.csv` and `new.csv`: a row per stay, with what was predicted and the days."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    table = stays(path)
    x, days = features(table), table["time_in_hospital"].astype(float)
    x = (x - x[:20_000].mean(axis=0)) / np.maximum(x[:20_000].std(axis=0), 0.01)
    for name, model, first in (
        ("old", RidgeCV(), 20_000),
        ("new", HistGradientBoostingRegressor(random_state=0), 80_000),
    ):
        value = model.fit(x[:first], days[:first]).predict(x[-TESTED:])
        with open(folder / f"{name}.csv", "w", newline="") as file:
            rows = csv.writer(file)
            rows.writerow(["id", "value", "target", "age", "patient_nbr"])
            facts = (table["encounter_id"], days, table["age"], table["patient_nbr"])
            for guess, (stay, *more) in zip(value, zip(*(f[-TESTED:] for f in facts))):
                rows.writerow([stay, f"{guess:.3f}", *more])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("path", help="the .zip of the UCI Machine Learning Repository")
    parser.add_argument("folder", help="of the files to write")
    write_days(**vars(parser.parse_args()))
