"""Tables, figures and page of `churn-jax diversity`, from numbers that are made up."""

import numpy as np
import pytest

from churn_compare.documents import Table
from churn_jax.reports.artefacts import ReportError
from experiments.diversity.corruption import corruption_summary
from experiments.diversity.foreign_examples import out_of_distribution
from experiments.diversity.record import SectionRecord
from experiments.diversity.report import collect_diversity, write_diversity
from experiments.diversity.report_figures import corruption_boxes, entropy_histograms
from experiments.diversity.report_numbers import corruptions_of, rocs_of, spreads_of
from tests.reports.fake_study import change_record, row_of, write_study

ROWS = {"teachers": None, "scratch": None, "kd": "teachers"}


def spread(mean, *, bins=2, **step):
    """All examples in the last bin."""
    return {
        "edges": np.linspace(0, 1, bins + 1),
        "counts": [0] * (bins - 1) + [40],
        "bin_mean_kl": [np.nan] * (bins - 1) + [mean],
        "quartiles": [[np.nan] * (bins - 1) + [mean * k] for k in (0, 1, 2, 3, 4)],
        "mean_kl": mean,
        "box": [mean * k for k in (0.5, 1, 2, 3, 4)],
        "accuracy": 0.75,
        **step,
    }


@pytest.fixture
def folder(tmp_path):
    """A study of three rows and two replicas; each test adds the sections it needs."""
    ensemble = {"class": "ERM", "members": 2, "deploy": "mean_probs"}
    rows = [
        row_of(0, row, label=row.title(), teacher=teacher, method=ensemble)
        for row, teacher in ROWS.items()
    ]
    write_study(tmp_path, {}, [], title="A <study>", baseline="scratch")
    specs = {"methods": [row["spec"] for row in rows]}
    change_record(tmp_path, methods=rows, config=specs)
    return tmp_path


def put(folder, section, settings, parts, arrays=None):
    record = SectionRecord(folder, section, settings)
    for key, value in parts.items():
        record.put(key, "stamp", value, (arrays or {}).get(key))
    return record


def cells(document):
    """The only table, by row."""
    section, _ = document.blocks  # and what was run
    (table,) = (block for block in section.blocks if isinstance(block, Table))
    return {row[0]: row[1:] for row in table.rows}


def test_ratios_are_taken_run_by_run(folder):
    parts = {
        f"teachers/{run}": {
            "clean": spread(clean),
            "ods": spread(clean * factor, size=1 / 255, temperature=4.0),
        }
        for run, (clean, factor) in enumerate([(0.1, 2.0), (0.3, 4.0)])
    }
    put(folder, "teachers", {"examples": 40}, parts)
    found = cells(collect_diversity(folder))
    assert found["Training images"][:2] == ("0.200 ± 0.141", "1.00")
    assert found["+ ODS"][:2] == ("0.700 ± 0.707", "3.00 ± 1.41")
    assert found["+ ODS"][2:] == ("75.00 ± 0.00", "1/255, tau 4")


def test_students_are_compared_with_their_teachers(folder):
    parts = {
        f"{row}/{run}": {"test": spread(mean)}
        for row, mean in (("teachers", 0.4), ("scratch", 0.2), ("kd", 0.1))
        for run in range(2)
    }
    put(folder, "students", {"examples": 40}, parts)
    document = collect_diversity(folder)
    found = {row: numbers[1] for row, numbers in cells(document).items()}
    assert found == {"Teachers": "–", "Scratch": "0.50", "Kd": "0.25"}


def test_bins_are_weighted_by_their_examples():
    record = SectionRecord("nowhere", "students", {})
    one, other = spread(0.1), spread(0.5)
    one["counts"], other["counts"] = [0, 30], [0, 10]
    record.parts = {"kd/0": {"test": one}, "kd/1": {"test": other}}
    found = spreads_of(record)["kd"]["test"]
    np.testing.assert_allclose(found.by_bin, [np.nan, 0.2])
    np.testing.assert_allclose(found.shares, [0, 1])


def test_areas_compare_the_same_run():
    rows = {"scratch": [[0.0, 0.1]], "kd": [[0.05, 0.2]]}
    found = rocs_of(
        {row: {"0": np.array(values)} for row, values in rows.items()}, "scratch"
    )
    assert [roc.auc for roc in found["kd"]] == [0.75]
    assert "scratch" not in found
    # A run that stopped from scratch has nothing to be compared with.
    assert rocs_of({"scratch": {}, "kd": {"0": np.ones((1, 2))}}, "scratch") == {}


def test_a_row_without_all_corrupted_sets_is_left_out():
    record = SectionRecord("nowhere", "corruptions", {})
    cell = {name: [0.5, 0.7] for name in ("accuracy", "nll", "brier", "ece")}
    record.parts = dict.fromkeys(("kd/fog/1", "kd/fog/3", "scratch/fog/1"), cell)
    found, incomplete = corruptions_of(record)
    assert (list(found), incomplete) == (["kd"], ("scratch",))
    assert found["kd"].severities == (1, 3)
    np.testing.assert_allclose(found["kd"].mean("nll"), [0.5, 0.7])


def test_parts_of_other_settings_or_of_another_training_are_not_kept(tmp_path):
    put(tmp_path, "students", {"examples": 40}, {"kd/0": {"x": np.nan}})
    again = SectionRecord(tmp_path, "students", {"examples": 40})
    assert again.parts == {"kd/0": {"x": None}} and not again.replaced
    assert again.has("kd/0", "stamp") and not again.has("kd/0", "another")
    other = SectionRecord(tmp_path, "students", {"examples": 41})
    assert other.parts == {} and other.replaced
    again.path.write_text("{")
    with pytest.raises(ValueError, match=r"students.json is not what the analyses"):
        SectionRecord(tmp_path, "students", {"examples": 40})


def test_a_study_without_results_says_how_to_compute_them(folder):
    with pytest.raises(ReportError, match=r"experiments\.diversity\.analyses"):
        collect_diversity(folder)


@pytest.mark.slow
def test_the_page_draws_every_section(folder):
    kinds = {"clean": spread(0.1), "ods": spread(0.3, size=1 / 255, temperature=4.0)}
    put(folder, "teachers", {"examples": 40}, {"teachers/0": kinds})
    put(folder, "students", {"examples": 40}, {"kd/0": {"test": spread(0.2)}})
    rng = np.random.default_rng(0)
    arrays = {f"{row}/0": rng.uniform(-1, 1, (2, 9)) for row in ("scratch", "kd")}
    nothing = {key: {} for key in arrays}
    put(folder, "jacobians", {"jacobian_examples": 9}, nothing, arrays)
    ratios = {"gaussian": {"signal_to_noise": 0.4}, "ods": {"signal_to_noise": 0.8}}
    put(folder, "matching", {"batch": 8, "draws": 5}, {"kd/0": ratios})
    foreign = dict.fromkeys(("entropy_in", "entropy_out"), 0.5)
    foreign |= dict.fromkeys(("auroc_entropy", "auroc_max_probability"), 0.5)
    foreign |= {"edges": [0, 1, 2], "counts_in": [3, 1], "counts_out": [1, 3]}
    put(folder, "ood", {"examples": 4, "ood": "svhn"}, {"kd/0": foreign})
    cell = {name: [0.5] for name in ("accuracy", "nll", "brier", "ece")}
    part = {"source": "ours", **cell}
    put(folder, "corruptions", {"examples": 4}, {"kd/fog/1": part})
    page = write_diversity(folder, command="churn-jax diversity <run>").read_text()
    for title in (
        "Teachers: what a perturbation does to them",
        "Students: how much they differ",
        "Jacobians of students and teachers",
        "Matching of Jacobians",
        "Foreign images",
        "Corrupted images",
    ):
        assert f"<h2>{title}</h2>" in page
    assert page.count("<svg") == 11
    assert "A &lt;study&gt;" in page and "diversity &lt;run&gt;" in page
    assert "://" not in page.replace("http://www.w3.org", "")
    text = (folder / "diversity" / "diversity.md").read_text()
    assert "| Kd | 0.400 | 0.800 | 2.000 |" in text


def test_histograms_show_shares_of_both_sets_without_stopped_runs(rng, drawn):
    logits = 4 * rng.normal(size=(3, 60, 3)), rng.normal(size=(3, 50, 3))
    logits[0][2, 5] = np.nan
    found = out_of_distribution(*logits, bins=6)
    svg = entropy_histograms({"BE-4": found, "BE-4 + ODS": found}, foreign="SVHN")
    for text in ("BE-4 + ODS", "SVHN", "own test images", "Entropy, nats"):
        assert text in svg
    assert len(drawn["stairs"]) == 4
    alone = out_of_distribution(*(side[:2] for side in logits), bins=6)
    for ((shares, edges), _), side, examples in zip(
        drawn["stairs"], (alone.histogram_in, alone.histogram_out), (120, 100)
    ):
        np.testing.assert_array_equal(edges, found.histogram_in.edges)
        np.testing.assert_allclose(shares, 100 * side.counts.sum(0) / examples)


@pytest.fixture
def corrupted(rng):
    labels = rng.integers(0, 4, 40)
    return {
        (kind, severity): (rng.normal(size=(2, 40, 4)).astype(np.float32), labels)
        for kind in ("fog", "snow", "frost", "contrast", "pixelate")
        for severity in (1, 2, 3)
    }


def test_boxes_are_the_quartiles_of_what_they_show(corrupted, drawn):
    summary = corruption_summary(corrupted)
    svg = corruption_boxes({"BE-4": summary, "DE-4": summary})
    for text in ("BE-4", "DE-4", "NLL, nats", "ECE", "Severity"):
        assert text in svg
    calls = drawn["bxp"]
    assert len(calls) == 4  # two panels of two methods
    for ((boxes, *_), _), quantity in ((calls[0], "nll"), (calls[3], "ece")):
        found = [list(box.values()) for box in boxes]
        np.testing.assert_array_equal(found, summary.quartiles(quantity))
    left, right = (options["positions"] for _, options in calls[:2])
    np.testing.assert_allclose((left + right) / 2, [0, 1, 2])  # side by side
    assert "Accuracy %" in corruption_boxes({"a": summary}, ("accuracy",))
    median = calls[-1][0][0][1]["med"]
    assert median == pytest.approx(100 * summary.quartiles("accuracy")[1].median)


def test_what_cannot_be_drawn_is_refused(corrupted, rng):
    six, seven = (
        out_of_distribution(*rng.normal(size=(2, 1, 5, 3)), bins=bins)
        for bins in (6, 7)
    )
    with pytest.raises(ValueError, match=r"6 bins up to 1.099 and 7 up to 1.099"):
        entropy_histograms({"a": six, "b": seven})
    summary = corruption_summary(corrupted)
    fewer = corruption_summary({("fog", 1): corrupted["fog", 1]})
    with pytest.raises(ValueError, match=r"b has \(1,\), others have \(1, 2, 3\)"):
        corruption_boxes({"a": summary, "b": fewer})
    with pytest.raises(ValueError, match="quantity must be one of"):
        corruption_boxes({"a": summary}, ("churn",))
    for draw in (entropy_histograms, corruption_boxes):
        with pytest.raises(ValueError, match="at least one method"):
            draw({})
