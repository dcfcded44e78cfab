"""The table of costs: who is trained for a release, the front, the settings chosen."""

import csv
import shutil

import numpy as np
import pytest

from churn_jax.configuration import replaced
from churn_jax.reports import write
from churn_jax.studies import preset, run_study
from churn_jax.studies.study import FinishedStudy
from experiments.cheapest import presets, table, weights


@pytest.mark.parametrize(
    ("study", "row", "networks"),
    [
        (presets.retrain_choice_fashion, "baseline", 1),
        (presets.retrain_choice_fashion, "codistill_1", 2),
        (presets.retrain_choice_fashion, "distil_0_9_1", 3),
        (presets.retrain_choice_fashion, "neighbours_0_5_10", 2),
        # The old network is there already.
        (presets.update_choice_news, "churn_kd_0_5", 1),
        (presets.update_choice_news, "bcwi_0_25", 1),
        (presets.update_choice_news, "elodi_0_8", 5),
        (presets.growth_fashion, "mpt_4", 2),
    ],
)
def test_a_release_costs_its_networks_and_those_of_its_teachers(study, row, networks):
    assert table.training(study(), row, "old") == networks


def _line(training, serving, churn, delta=0.0, stderr=0.001):
    return {
        "training": training,
        "serving": serving,
        "churn": churn,
        "delta_error": delta,
        "delta_error_stderr": stderr,
    }


def test_the_front_by_hand():
    plain, pair, twice = _line(1, 1, 0.10), _line(2, 2, 0.05), _line(2, 1, 0.07)
    worse, wrong = _line(3, 1, 0.08), _line(1, 1, 0.01, delta=0.003)
    near = _line(1, 1, 0.11, delta=0.001)
    lines = [plain, pair, twice, worse, wrong, near]
    assert table.front(lines) == [plain, pair, twice]
    assert [table.comparable(line) for line in lines] == [1, 1, 1, 1, 0, 1]
    assert table.comparable({"delta_error": np.nan})  # no treatment itself


def test_a_served_update_is_compared_with_all_pairs_of_the_retrained_one():
    pairs = np.arange(9.0).reshape(3, 3) / 100
    change = table.fewer_flips(np.array([0.01, 0.02, 0.06]), pairs)
    np.testing.assert_allclose(change.difference, 0.03 - 0.04)
    # Without one run each: 0.04, 0.035, 0.015 of own pairs; 0.06, 0.04, 0.02 of all.
    left_out = np.array([-0.02, -0.005, -0.005])
    spread = np.sum((left_out - left_out.mean()) ** 2)
    np.testing.assert_allclose(change.stderr, np.sqrt(2 / 3 * spread))


def test_equal_numbers_are_equal_figures(tmp_path):
    lines = [_line(1, 1, 0.10) | {"label": "plain"}, _line(2, 2, 0.05) | {"label": "2"}]
    path, texts = tmp_path / "front.svg", set()
    for _ in range(2):
        table.draw(lines, path)
        texts.add(path.read_text())
    assert len(texts) == 1 and "plain" in texts.pop()


def _tiny(name, *rows):
    config = preset(f"experiments/cheapest/presets.py:{name}:tiny")
    kept = [*config.select(rows)]
    updates = tuple(u for u in config.updates if u.new in rows)
    changes = [("methods", tuple(kept)), ("updates", updates)]
    changes += [("data.name", "digits"), ("data.train_size", 192)]
    changes += [("train.replicas", 3)]
    return replaced(config, [*changes, ("data.validation", 600)])


@pytest.mark.slow
def test_a_table_and_choices_of_trained_studies(tmp_path, no_charts):
    retrained = _tiny(
        *("retrain_choice_fashion", "baseline", "entropy_0_1", "entropy_0_5"),
        *("neighbours_0_5_10", "ema_0_9"),
    )
    updated = _tiny("update_choice_fashion", "old", "none", "bcwi_0_5", "limit_0_05")
    folders = [tmp_path / "a", tmp_path / "b"]
    for config, folder in zip((retrained, updated), folders, strict=True):
        run_study(config, folder)
        write(folder)
    lines = [line for folder in folders for line in table.lines_of(folder)]
    table.write(lines, tmp_path / "table.csv")
    with (tmp_path / "table.csv").open() as file:
        rows = {row["row"]: row for row in csv.DictReader(file)}
    assert {"baseline", "ema_0_9_ema", "selection", "none", "bcwi_0_5"} <= set(rows)
    assert rows["neighbours_0_5_10"]["training"] == "2.0"
    assert rows["limit_0_05"]["training"] == "1.0"
    served = rows["none_served"]
    assert float(served["delta_churn"]) <= 0 and 1 <= float(served["serving"]) <= 2
    assert all(0 < float(row["error"]) < 1 for row in rows.values())
    assert sum(int(row["front"]) for row in rows.values()) >= 2
    found = table.chosen(folders[0])
    assert set(found) == {"entropy", "neighbours", "ema"}
    assert found["entropy"][0] == f"entropy_{('0_1', '0_5')[found['entropy'][1]]}"
    churn = {name: value for name, _, value, _ in table.choices(folders[1])}
    assert set(table.chosen(folders[1])) == {"bcwi", "limit"} and "none" in churn
    shutil.rmtree(folders[0] / "methods" / "entropy_0_5")  # a study that was stopped
    write(folders[0])
    assert "entropy_0_5" not in {line["row"] for line in table.lines_of(folders[0])}


@pytest.mark.slow
def test_weights_between_one_old_network_and_its_successors(tmp_path, monkeypatch):
    monkeypatch.setattr(weights, "EXAMPLES", 20)
    monkeypatch.setattr(weights, "SOUPS", (2,))
    run_study(_tiny("soup_fashion", "old", "tuned"), tmp_path)
    study = FinishedStudy(tmp_path)
    old, new = (study.restore(study.spec(name)) for name in ("old", "tuned"))
    images = study.dataset.test.images
    first = old.predict(images)
    np.testing.assert_allclose(first, first[[0, 0, 0]], atol=1e-4)  # one old network
    found = {line["row"]: line for line in weights.lines(study)}
    right, labels = first.argmax(-1) == study.dataset.test.labels, new.predict(images)
    labels = labels.argmax(-1) == study.dataset.test.labels
    np.testing.assert_allclose(found["tuned"]["nfr"], np.mean(right & ~labels))
    assert found["tuned"]["runs"] == 3 and found["soup_2"]["runs"] == 1
    # The more of the old weights, the fewer flips; all of them would be none.
    flips = [found[f"bcwi_{share:g}"]["nfr"] for share in weights.SHARES]
    assert flips[-1] <= flips[0] and found["fisher_0.9"]["nfr"] <= flips[0]
