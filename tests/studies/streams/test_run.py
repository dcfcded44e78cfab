"""The folder of a stream study, with a made-up training loop."""

import dataclasses
import itertools
import json
import threading

import numpy as np
import pytest

from churn_jax.data.tables import synthetic_clicks
from churn_jax.studies import StudyError
from churn_jax.studies.streams import StreamData, run_stream_study, stream_preset
from churn_jax.studies.streams import run as module
from churn_jax.studies.streams.inputs import FirstExamples, open_stream
from churn_jax.studies.streams.run import stream_run
from churn_jax.training.checkpoint import OtherConfiguration
from churn_jax.training.progressive import StreamResult
from churn_jax.training.run import Interrupted
from tests.experiments.presets import stream
from tests.reports.fake_stream import totals, write_row


@pytest.fixture
def study():
    return stream_preset("clicks:tiny")


@pytest.fixture
def trained(monkeypatch):
    """Names of the rows that were trained, by a loop that takes no time."""
    names = []

    def run_stream(run, stream, directory, *, stop, **told):
        if stop is not None and stop.is_set():
            raise Interrupted("stopped")
        left = directory / "checkpoints" / "strength"
        strength = str(getattr(run.method, "strength", 0.0))
        if left.exists() and left.read_text() != strength:
            raise OtherConfiguration("method.strength")
        left.parent.mkdir(parents=True, exist_ok=True)
        left.write_text(strength)
        names.append(run.name)
        found = totals([0.5, 0.6], 0.05)
        write_row(directory.parents[1], run.name, found)
        return StreamResult(
            256,
            256,
            1.5,
            run.model.rows,
            (),
            {k: np.array(v) for k, v in found.items()},
            [],
            {},
        )

    monkeypatch.setattr(module, "run_stream", run_stream)
    return names


def test_rows_are_trained_once_and_kept(study, trained, tmp_path):
    starts = []
    for _ in range(2):
        run_stream_study(
            study, tmp_path, on_start=lambda s, done: starts.append((s.name, done))
        )
    names = [s.name for s in study.methods]
    assert trained == names
    assert starts == [(n, False) for n in names] + [(n, True) for n in names]
    record = json.loads((tmp_path / "study.json").read_text())
    assert record["kind"] == "stream" and record["data"]["examples"] == 256
    assert [m["name"] for m in record["methods"]] == names
    assert record["config"]["model"]["features"] == [2]


def test_a_row_with_a_new_coefficient_is_set_aside_and_trained_again(
    study, trained, tmp_path
):
    row, notes = "correlation_0_02_s1", []
    run_stream_study(study, tmp_path, only=(row,))
    assert trained == [row]
    other = study.with_coefficient(f"{row}.strength", 3.0)
    run_stream_study(other, tmp_path, only=(row,), on_note=notes.append)
    assert trained == [row, row]
    assert "trained again, because its settings changed" in notes[0]
    assert (tmp_path / "methods" / f"{row}.before" / "result.json").exists()
    # A lost result is made again.
    (tmp_path / "methods" / row / "result.json").unlink()
    run_stream_study(other, tmp_path, only=(row,))
    assert trained == [row] * 3


def test_a_row_is_trained_with_its_own_settings_and_model(study):
    towers = dataclasses.replace(study.model, features=(3,))
    changes = {"train": (("batch_size", 16),), "model": towers}
    spec = dataclasses.replace(study.methods[0], **changes)
    run = stream_run(study, spec, (4, 5), 2)
    assert run.config.batch_size == 16 and study.train.batch_size == 32
    assert (run.model.features, run.model.sizes) == ((3,), (4, 5))


def test_a_half_done_row_of_other_settings_is_set_aside(study, trained, tmp_path):
    left = tmp_path / "methods" / "correlation_0_02_s1" / "checkpoints" / "strength"
    left.parent.mkdir(parents=True)
    left.write_text("7.0")
    notes = []
    run_stream_study(study, tmp_path, on_note=notes.append)
    assert "correlation_0_02_s1" in trained and len(notes) == 1


def test_another_study_in_the_folder_is_refused(study, trained, tmp_path):
    run_stream_study(study, tmp_path)
    train = dataclasses.replace(study.train, window=32)
    with pytest.raises(StudyError, match=r"train\.window: 64 there, 32 here"):
        run_stream_study(dataclasses.replace(study, train=train), tmp_path)
    data = dataclasses.replace(study.data, buckets=17)
    with pytest.raises(StudyError, match="holds a study of other data"):
        run_stream_study(dataclasses.replace(study, data=data), tmp_path)


def test_a_stop_ends_before_the_next_row(study, trained, tmp_path):
    stop = threading.Event()

    def on_start(spec, finished):
        if spec.name == study.methods[1].name:
            stop.set()

    with pytest.raises(Interrupted):
        run_stream_study(study, tmp_path, on_start=on_start, stop=stop)
    assert trained == ["baseline"]
    run_stream_study(study, tmp_path)
    assert trained == [s.name for s in study.methods]


@pytest.mark.parametrize("share", [0.1, 0.5, 0.6])
def test_a_warm_start_is_a_share_of_what_is_learned(trained, tmp_path, share):
    """Or the study's own number of examples, if that is more."""
    plain = stream_preset("clicks:tiny")
    learned = open_stream(plain.data).count()
    run_stream_study(dataclasses.replace(plain, warm_share=share), tmp_path)
    record = json.loads((tmp_path / "study.json").read_text())
    warm = max(64, int(share * learned))
    assert record["config"]["train"]["warm_examples"] == warm


def test_a_warm_start_that_leaves_nothing_is_refused(trained, tmp_path):
    study = stream_preset("clicks:warm:tiny")
    train = dataclasses.replace(study.train, window=256)
    with pytest.raises(StudyError, match="leaves none of the stream's"):
        run_stream_study(dataclasses.replace(study, train=train), tmp_path)
    assert trained == []


def test_a_study_of_a_users_table_says_what_it_needs(tmp_path):
    data = stream("ad-table3-adult").data
    with pytest.raises(StudyError, match=r"needs --data FILE: .*prepare.py adult RAW"):
        open_stream(data)
    with pytest.raises(StudyError, match=r"gone.csv does not exist; .*prepare.py"):
        open_stream(dataclasses.replace(data, source=str(tmp_path / "gone.csv")))
    with pytest.raises(StudyError, match=r"needs --schema, the name .*\(adult, "):
        open_stream(StreamData(source="clicks.csv"))


def test_a_users_table_is_opened_with_its_schema_and_group(tmp_path):
    path = tmp_path / "clicks.csv"
    rows = "".join(f"{'ab'[i % 2]},u{i % 7},{i % 3 == 0:d}\n" for i in range(40))
    path.write_text("site,user,clicked\n" + rows)
    schema = tmp_path / "clicks.toml"
    schema.write_text(
        'label = "clicked"\npositive = ["1"]\n[[categorical]]\nname = "site"\n'
    )
    data = StreamData(str(path), str(schema), holdout=0.3, group="user", examples=9)
    stream = open_stream(data)
    assert stream.schema.group == "user"
    assert stream.count() == 9


@pytest.mark.parametrize("start", [0, 5, 11])
def test_the_first_examples_are_those_of_the_whole_stream(start):
    whole = synthetic_clicks(100, fields=2, buckets=5)
    cut = FirstExamples(whole, 11)
    keys = [w.keys[w.mask > 0] for w in cut.windows(4, start=start)]
    np.testing.assert_array_equal(np.concatenate([*keys, []]), np.arange(start, 11))
    assert cut.fingerprint != whole.fingerprint and cut.count() == 11

    class Broken:  # what comes after them is not read
        def windows(self, size, *, start=0, part="train"):
            yield from itertools.islice(synthetic_clicks(8).windows(size), 2)
            raise ValueError("row 9 is broken")

    for examples in (7, 8):
        windows = list(FirstExamples(Broken(), examples).windows(4))
        assert sum(w.mask.sum() for w in windows) == examples
