"""How a study's rows were trained: shared seeds, changed settings, and the launch.

Churn between runs is caused by what differs between them, so a report says what this
is: initial weights, mini-batch order, augmentation, or the training set itself.
"""

import dataclasses
import json
from collections.abc import Sequence
from typing import NamedTuple

from churn_compare.documents import Code, Column, Facts, Fold, Section, Table
from churn_jax.configuration.codec import differences, to_json
from churn_jax.configuration.network import network_name, network_words
from churn_jax.configuration.record import DataRecord, RowRecord, StudyRecord
from churn_jax.configuration.rows import MethodSpec
from churn_jax.reports.artefacts import Study

_SEEDS = {
    "init": "initial weights",
    "order": "mini-batch order",
    "augment": "augmentation",
}
_ONE_BOOTSTRAP = "one bootstrap of the training set"
_RESAMPLED = "resampled training set"


class Factors(NamedTuple):
    """What the runs of a row share and what differs between them, in words."""

    shared: tuple[str, ...]
    differing: tuple[str, ...]


def factors_of(study: Study, info: RowRecord) -> Factors:
    """Reads from a row's settings what its runs share and what differs."""
    train = info.spec.config(study.config.train)
    draws = train.sample == "bootstrap" or info.method.member_sample != "shared"
    resampled = draws and train.seeds.sample == "varied"
    fixed, varied = (
        [words for name, words in _SEEDS.items() if getattr(train.seeds, name) == how]
        for how in ("fixed", "varied")
    )
    fixed += ["no augmentation"] * (train.seeds.augment == "off")
    fixed += [_ONE_BOOTSTRAP] * (draws and not resampled)
    varied += [_RESAMPLED] * resampled
    return Factors(tuple(fixed), tuple(varied))


def training_section(study: Study, methods: Sequence[RowRecord]) -> Section:
    """Table of what the runs of each row share, and of settings the row changes."""
    heads = ("Method", "Runs share", "Runs differ in", "The row changes")
    hidden = ("name", "label", "method", "equation", "teacher", "train")
    fields = (f for f in dataclasses.fields(MethodSpec) if f.name not in hidden)
    usual = {f.name: to_json(f.default) for f in fields}
    usual["model"], rows = to_json(study.config.model), []
    for info in methods:
        spec = info.spec
        own = {name: to_json(getattr(spec, name)) for name in usual}
        own["model"] = to_json(spec.model or study.config.model)
        named = [m if isinstance(m, str) else network_words(m) for m, _ in spec.models]
        own["models"] = [f"{n} x {m}" for m, (_, n) in zip(named, spec.models)]
        changes = [  # without seeds and samples, which are in the columns before
            f"{path} = {value}"
            for path, value in spec.train
            if path != "sample" and path.partition(".")[0] != "seeds"
        ]
        changes += differences(usual, own, form="{0} = {2}")
        words = (*factors_of(study, info), changes)
        rows.append((info.label, *(", ".join(w) or "–" for w in words)))
    if not any(info.spec.train or row[-1] != "–" for info, row in zip(methods, rows)):
        return Section("", [])
    table = Table([Column(head, "left") for head in heads], rows, kind="words")
    return Section("What the rows differ in", [table], detail="summary")


_SERVED = {
    "member": "one of them",
    "mean_probs": "the mean of their probabilities",
    "mean_logits": "the mean of their logits",
    "gate": "their mixture, weighed by a gate",
}


def kind_of_churn(study: Study, methods: Sequence[RowRecord]) -> tuple[str, ...]:
    """Sentences on rows that resample, share seeds, repeat one run or are ensembles."""
    # Runs that share their initial weights are independent only given those weights:
    # their spread, and with it every standard error and test, leaves out how much other
    # weights would have moved them all. Runs that share everything are one run.
    found = [(info.label, factors_of(study, info)) for info in methods]
    resampled = [label for label, of in found if _RESAMPLED in of.differing]
    drawn = [label for label, of in found if _ONE_BOOTSTRAP in of.shared]
    equal = [label for label, of in found if not of.differing]
    seeds = {*_SEEDS.values()}
    fixed = [k for k, of in found if of.differing and not seeds.isdisjoint(of.shared)]
    several = [info for info in methods if info.method.members > 1]
    served = {
        what: [info.label for info in several if info.method.deploy == how]
        for how, what in _SERVED.items()
    }
    whose = "all rows" if len(resampled) == len(found) else "; ".join(resampled)
    sentences = [
        (
            resampled,
            f"The runs of {whose} differ in their resampled training set (bootstrap): "
            "this is cross-sample churn, between models of other samples of the data, "
            "and not churn between seeds alone.",
        ),
        (
            drawn,
            f"The runs of {'; '.join(drawn)} share one bootstrap of the training set, "
            "so their churn is not cross-sample churn.",
        ),
        (
            fixed,
            f"The runs of {'; '.join(fixed)} share a seed: their spread, standard "
            "errors and tests hold for that one draw of it, and do not say how another "
            "draw would move all of them.",
        ),
        (
            equal,
            f"The runs of {'; '.join(equal)} differ in nothing: they are one "
            "computation, repeated. Their churn is what the hardware adds within one "
            "launch; churn-jax doctor shows what it adds between launches. Their "
            "accuracy is a single run's, whatever its test says.",
        ),
        *(
            (rows, f"Rows of several networks that serve {what}: {'; '.join(rows)}.")
            for what, rows in served.items()
        ),
    ]
    return tuple(said for rows, said in sentences if rows)


def run_section(study: Study) -> Section:
    """The section "What was run" of a report."""
    record, config = study.record, study.config
    data, launch = record.data, record.launch
    machines = filter(None, dict.fromkeys(row.hardware for row in study.methods))
    shown = {
        "Command": launch.command,
        "Date": launch.date,
        "Hardware": " and ".join(machines) or launch.hardware,
        "Devices": ", ".join(launch.devices),
        "Versions": ", ".join(f"{k} {v}" for k, v in launch.versions.items()),
        "Data": ", ".join(filter(None, (data.name, *_sizes(data)))),
        "Classes": data.num_classes,
        "Data fingerprint": data.fingerprint,
        "Runs per method": config.train.replicas,
        "Rows not asked for": ", ".join(study.unselected.values()),
        "Settings": " ".join(config.notes),
    }
    facts = Facts({name: str(value) for name, value in shown.items() if value})
    text = json.dumps(to_json(config), indent=2, ensure_ascii=False)
    fold = Fold("Configuration", [Code(text)])
    return Section("What was run", [facts, fold], detail="full")


def run_facts(record: StudyRecord) -> tuple[str, ...]:
    """Data, network, length of training and number of runs, in words."""
    data, config = record.data, record.config
    model = dataclasses.replace(config.model, name=network_name(config.model.name))
    length = f"{config.train.epochs} epochs"
    if (one_pass := config.train.one_pass) is not None:
        length = f"one pass in windows of {one_pass.window:,}"
    found = (
        ": ".join(filter(None, (data.title or data.name, ", ".join(_sizes(data))))),
        network_words(model),
        length,
        f"{config.train.replicas} runs per method",
    )
    return tuple(filter(None, found))


def _sizes(data: DataRecord) -> list[str]:
    """How many examples each split has: `1,200 train`."""
    sizes = {k: getattr(data, k) for k in ("train", "validation", "test")}
    return [f"{size:,} {split}" for split, size in sizes.items() if size is not None]
