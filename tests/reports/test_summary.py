"""Numbers of predictions that stay on the disk are those of predictions in memory."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest

from churn_compare import store
from churn_compare.documents import markdown
from churn_compare.store import (
    Predictions,
    PredictionsError,
    ShardWriter,
    StoredLogits,
    load_predictions,
    save_predictions,
    shard_folder,
    write_index,
    write_order,
)
from churn_jax import metrics, reports
from churn_jax.methods import UNKNOWN_LOGIT
from churn_jax.reports import summary
from churn_jax.reports.summary import summarize
from churn_jax.reports.updates import updates_document
from experiments.anti_distillation import calibrated
from experiments.elodi import displacement
from tests.reports.fake_study import markdown_table, noisy_logits, write_study

R, N, C = 4, 40, 5
HELD_OUT = 19  # examples of the validation split
BLOCK = 12  # examples: the last block of 40 is shorter


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr(summary, "BLOCK_NUMBERS", R * C * BLOCK)


def drawn(seed=6, runs=R, examples=N, unknown=None):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, C, examples)
    logits = noisy_logits(rng, labels, runs, C)
    if unknown is not None:
        logits[..., unknown] = UNKNOWN_LOGIT
    return Predictions(np.arange(examples), labels, logits)


def mapped(predictions, meta=None):
    halves = np.array_split(predictions.logits, 2, axis=1)
    rows = StoredLogits(halves)
    return Predictions(predictions.ids, predictions.labels, rows, meta or {})


def test_every_number_is_that_of_predictions_in_memory(monkeypatch):
    """Also where run 1 of those on the disk stopped, and a class is unknown."""
    test, held_out = drawn(unknown=2), drawn(4, examples=HELD_OUT, unknown=2)
    expected = summarize(test, validation=held_out)
    monkeypatch.setattr(summary, "BLOCK_NUMBERS", R * C * BLOCK)
    gone = {"stopped": [1]}
    halted, other = (
        Predictions(p.ids, p.labels, np.insert(p.logits, 1, filler, axis=0), gone)
        for p, filler in ((test, np.nan), (held_out, 0.0))
    )
    found = summarize(mapped(halted, gone), validation=mapped(other))
    assert found.runs == (0, 2, 3, 4) and found.stopped == (1,)
    found = dataclasses.replace(found, runs=expected.runs, stopped=())
    expected, found = numbers_of(expected), numbers_of(found)
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(  # sums in another order, in float32
            np.asarray(found[name], float),
            np.asarray(value, float),
            rtol=2e-6,
            atol=2e-7,
            err_msg=name,
        )
    assert np.isfinite(expected["estimates.temperature.mean"])


def test_logits_that_are_not_finite_are_refused_as_in_a_file(small_blocks):
    test = drawn()
    logits = test.logits.copy()
    logits[1, [3, 20]] = np.nan
    with pytest.raises(PredictionsError) as in_memory:
        Predictions(test.ids, test.labels, logits)
    rows = StoredLogits([logits])
    with pytest.raises(PredictionsError) as in_blocks:
        summarize(Predictions(test.ids, test.labels, rows))
    assert str(in_blocks.value) == str(in_memory.value)
    assert "run 1" in str(in_blocks.value) and "2 of 40" in str(in_blocks.value)


def test_ambiguity_of_blocks_is_that_of_all(small_blocks):
    test = drawn()
    np.testing.assert_allclose(
        summarize(mapped(test)).ambiguity,
        metrics.ambiguity(jnp.asarray(test.logits)),
        rtol=1e-6,  # JAX 0.7 compiles the division otherwise
    )


@pytest.fixture(scope="module")
def rows():
    """Labels, rows and their validation predictions."""
    test = drawn()
    methods = {"baseline": test.logits, "steady": drawn(2).logits + test.logits}
    return test.labels, methods, drawn(3, examples=HELD_OUT)


def into_shards(run_dir):
    """Every `predictions*.npz` becomes two shards next to it."""
    for path in sorted((run_dir / "methods").glob("*/predictions*.npz")):
        found, folder = load_predictions(path), shard_folder(path)
        runs, _, classes = found.shape
        for shard in range(2):
            rows = slice(shard, None, 2)
            of = found.ids[rows], found.labels[rows], runs, classes
            with ShardWriter(folder, shard, 2, *of) as writer:
                writer.write(found.logits[:, rows])
        write_order(folder, 2, found.ids)
        write_index(folder, 2, found.meta)
        path.unlink()
    return run_dir


def numbers_of(record):
    """Numbers of a dataclass, also inside of it, by name."""
    out = {}
    for field in dataclasses.fields(record):
        value = getattr(record, field.name)
        if isinstance(value, dict):
            for key, one in value.items():
                whole = dataclasses.is_dataclass(one)
                inner = numbers_of(one) if whole else {"": one}
                out |= {
                    f"{field.name}.{key}.{k}".strip("."): v for k, v in inner.items()
                }
        else:
            out[field.name] = value
    return out


def write_rows(folder, rows):
    labels, methods, held_out = rows
    wanted = ["accuracy", "churn", "calibrated_nll", "temperature"]
    planned = [{"old": "baseline", "new": "steady", "targeted": True}]
    config = {"columns": wanted, "updates": planned}
    write_study(folder, methods, labels, config=config)
    for name in methods:
        path = folder / "methods" / name / "predictions-validation.npz"
        save_predictions(path, held_out)
    return folder


def test_a_report_of_large_shards_is_that_of_files(
    tmp_path, rows, monkeypatch, capsys, small_blocks
):
    files = reports.collect(write_rows(tmp_path / "files", rows))
    folder = into_shards(write_rows(tmp_path / "shards", rows))
    monkeypatch.setattr(store, "WHOLE_BYTES", 4 * HELD_OUT * C)  # one run of it
    shards = reports.collect(folder)
    for page in (markdown_table, lambda of: markdown(updates_document(of))):
        assert page(shards) == page(files)

    # What needs all logits at once says so.
    with pytest.raises(store.TooLargeError, match="this needs all logits in memory"):
        calibrated.calibrated_records(folder)
    assert displacement.main([str(folder), "--old", "baseline"]) == 2
    said = capsys.readouterr().err
    assert "this needs all logits in memory" in said and "Traceback" not in said

    # Not even one run of the validation split: the other numbers are there.
    monkeypatch.setattr(store, "WHOLE_BYTES", 4 * HELD_OUT * C - 1)
    found = reports.collect(folder)
    assert np.isnan(found.rows[0].summary.temperature.mean)
    assert found.rows[0].summary.churn.mean == shards.rows[0].summary.churn.mean
    assert any("hold out fewer examples" in remark for remark in found.remarks)
