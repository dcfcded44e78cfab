"""Options of the commands that take a study, and the study that they make of a preset.

A command has a class of the options that are used most, which `-h` shows, and one of
all that it takes, which `--help-all` shows. Every other setting of a study is set by
its path in the record (`--print-config`): `--set train.optimizer.momentum=0`.
"""

import dataclasses
import inspect
import itertools
import json
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeVar

import tyro

from churn_compare import option_list
from churn_jax.command.launch import Launch
from churn_jax.configuration.codec import replaced, to_json, with_texts
from churn_jax.configuration.training import MeshShape, check_read

OWN = "own"  # the study without a preset
T = TypeVar("T")
Words = tyro.conf.UseAppendAction[tuple[tuple[str, ...], ...]]
_PRESET = tyro.conf.arg(metavar="PRESET", help_behavior_hint="")
Preset = Annotated[tyro.conf.Positional[str], _PRESET]

# Options that are settings of a study, by their path in its record.
SETTINGS = {
    "data": "data.name",
    "data_dir": "data.data_dir",
    "manual_dir": "data.manual_dir",
    "train_size": "data.train_size",
    "validation": "data.validation",
    "model": "model.name",
    "optimizer": "train.optimizer.name",
    "learning_rate": "train.optimizer.learning_rate",
    "replicas": "train.replicas",
    "epochs": "train.epochs",
    "batch_size": "train.batch_size",
    "mapping": "train.mapping",
    "seed": "train.seeds.base",
    "mesh": "train.mesh",
    "predictions": "evaluation.predictions",
}
# Parts of a record of which `--set` names a setting; other words are rows.
_PARTS = ("data", "model", "train", "evaluation")


@dataclasses.dataclass(frozen=True)
class Study:
    """The study: a preset, and changes of it.

    Attributes:
        preset: a built-in study, FILE.py:NAME, a study.json, or `own` for your own
            data; `NAME:tiny` trains a small form of it.
        data: the data set: `digits`, a TFDS name, an .npz, a folder of texts, or
            `package.module:function` of your own.
        model: the network: a name of `--list`, or your own as `package.module:name`.
        optimizer: `sgd`, `adam`, `adagrad`, or your own such as `optax:lion`.
        epochs: passes over the training set.
        batch_size: examples per update and replica.
        seed: seed of the study.
        method: add rows of these methods with their default coefficients: names as in
            `churn_jax.methods`, or your own as `package.module:Class`.
        set: change coefficients and settings, for example `codistill_skl.beta=0.2`,
            `train.optimizer.momentum=0` or `data.image_size=128`.
    """

    preset: Preset = ""
    data: str = ""
    model: str = ""
    optimizer: str = ""
    epochs: int | None = None
    batch_size: int | None = None
    seed: int | None = None
    method: Words = ()
    set: Words = ()


@dataclasses.dataclass(frozen=True)
class AllOfStudy(Study):
    """Options that are used less.

    Attributes:
        list: list all names, or the rows of a preset, and stop.
        print_config: print the study's record and stop; a preset may be such a file.
        learning_rate: peak learning rate.
        train_size: number of training examples; the others are left out.
        validation: examples held out of training, a count or a share.
        data_dir: where TFDS keeps prepared sets.
        manual_dir: where TFDS looks for files downloaded by hand.
        mesh: devices along the axes, such as `replica=4,member=2,data=1`.
        mapping: how the replicas of one device are computed: `vmap`, `unroll`, `loop`
            or `auto`.
    """

    list: bool = False
    print_config: bool = False
    learning_rate: float | None = None
    train_size: int | None = None
    validation: int | float | None = None
    data_dir: str | None = None
    manual_dir: str | None = None
    mesh: str = ""
    mapping: str = ""


@dataclasses.dataclass(frozen=True)
class Folder:
    """Where a command leaves what it trains.

    Attributes:
        out: folder of the results, by default `runs/NAME`. A study that was stopped
            continues in its folder.
        minutes: save and stop after this many minutes, with exit code 3 if something is
            left to do; the same command continues.
    """

    out: Path | None = None
    minutes: float | None = None


@dataclasses.dataclass(frozen=True)
class AllOfFolder(Folder):
    """How it is trained.

    Attributes:
        fresh: move what is in the folder aside and start again.
        quiet: show no progress, only warnings and the report.
        log: where metrics go in addition to metrics.jsonl: tensorboard, csv, wandb,
            mlflow, or your own as `package.module:Class`; without a word, nowhere.
        launch: how several processes find each other.
    """

    fresh: bool = False
    quiet: bool = False
    log: tuple[str, ...] = ("tensorboard",)
    launch: Launch = Launch()


def read_options(
    cls: type[T], argv: Sequence[str], *, command: str, used: type | None = None
) -> T:
    """An instance of `cls`, whose fields are options; `-h` shows those of `used`."""
    if "--out=" in argv or ("--out", "") in itertools.pairwise(argv):
        raise ValueError("--out needs the name of a folder; . is this one")
    words = ["-h" if word == "--help-all" else word for word in argv]
    if used is not None and {"-h", "--help"} & {*argv}:
        about = inspect.cleandoc(used.__doc__ or "").partition("Attributes:")[0].strip()
        every = len(option_list.options_of(cls))
        about += f"\n\n`--help-all` shows all {every} options."
        option_list.read_options(used, ["-h"], prog=command, description=about)
    return option_list.read_options(cls, words, prog=command)


def flat(words: Iterable[Sequence[str]]) -> tuple[str, ...]:
    """The values of an option that may be repeated."""
    return tuple(word for several in words for word in several)


def study_of(options: AllOfStudy, command: str) -> Any:
    """The `StudyConfig` of the options; `--print-config` prints it and exits as -h."""
    config = _study_of(options, command)
    if options.print_config:
        for row in getattr(options, "only", ()):
            config.spec(row)
        print(json.dumps(to_json(config), indent=2))
        raise SystemExit(0)
    return config


def _study_of(options: AllOfStudy, command: str) -> Any:
    """A preset, or a recipe for the data, with the options."""
    from churn_jax.studies.presets import PRESETS, preset

    if not (name := options.preset):
        names = ", ".join([*PRESETS][:3])
        known = f"such as {names} ({command} --list)"
        raise ValueError(f"{command} needs the name of a preset, {known}")
    given = settings_of(options)
    if command == "sweep" and options.mesh:  # shards seeds x values, not replicas
        given.append(("train.replicas", MeshShape.parse(options.mesh).replica))
    if name != OWN:
        return configured(preset(name), given, options)
    from churn_jax.studies.own_data import data_facts, described, own_study, unknown

    def early(pair: tuple[str, Any]) -> bool:
        sizes = ("train.epochs", "train.batch_size")
        return pair[0].startswith(("data.", "model.", *sizes))

    texts = [*filter(early, assignments(options)[0])]
    asked = with_texts(replaced(unknown(), filter(early, given)), texts)
    facts, named = data_facts(asked.data), dict([*given, *texts])
    lengths = {
        name: getattr(asked.train, name)
        for name in ("epochs", "batch_size")
        if f"train.{name}" in named
    }
    recipe = own_study(asked.data, facts, model=asked.model, **lengths)
    return described(recipe, configured(recipe, given, options), facts)


def settings_of(options: Any) -> list[tuple[str, Any]]:
    """The settings that options give, as path and value."""
    given = [(p, getattr(options, o, None)) for o, p in SETTINGS.items()]
    return [
        (path, MeshShape.parse(value) if path == "train.mesh" else value)
        for path, value in given
        if value not in (None, "")
    ]


def assignments(options: Any) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """`--set` as pairs of path and text: of settings, and of coefficients of rows."""
    pairs = []
    for word in flat(options.set):
        path, equals, text = word.partition("=")
        if not equals or not ("." in path or path in _PARTS):
            raise ValueError(
                "--set takes method.coefficient=value or a setting such as "
                f"train.epochs=3; got {word!r}"
            )
        pairs.append((path.strip(), text.strip()))
    paths = [path for path, _ in (*settings_of(options), *pairs)]
    if twice := {path for path in paths if paths.count(path) > 1}:
        once = "give it once, as an option or in --set"
        raise ValueError(f"{min(twice)} is given twice; {once}")
    settings = [pair for pair in pairs if pair[0].partition(".")[0] in _PARTS]
    return settings, [pair for pair in pairs if pair not in settings]


def configured(before: Any, given: Sequence[tuple[str, Any]], options: Any) -> Any:
    """A study with the settings and rows that options give."""
    texts, numbers = assignments(options)
    changes = [*given]
    if dict(given).get("model.name", "") not in ("", before.model.name):
        changes = [("model.features", ()), ("model.init", ""), *changes]
    changed: Any = with_texts(replaced(before, changes), texts)
    if further := changed.train.seeds.base - before.train.seeds.base:
        rows = tuple(_reseeded(spec, further) for spec in changed.methods)
        changed = dataclasses.replace(changed, methods=rows)
    from churn_jax.studies.presets import as_row, derived

    changed = derived(before, changed)
    used = [spec.config(changed.train).optimizer for spec in changed.methods]
    check_read([path for path, _ in (*given, *texts)], *used)
    rows = (*changed.methods, *map(as_row, flat(options.method)))
    changed = dataclasses.replace(changed, methods=rows)
    for path, text in numbers:
        try:
            number = float(text)
        except ValueError:
            number = math.nan
        if not math.isfinite(number):
            raise ValueError(f"--set {path} takes a finite number; got {text!r}")
        changed = changed.with_coefficient(path, number)
    return changed


def _reseeded(spec: Any, further: int) -> Any:
    """The row with its own seed at the same distance from the study's as before."""
    moved = tuple(
        (path, value + further if path == "seeds.base" else value)
        for path, value in spec.train
    )
    return dataclasses.replace(spec, train=moved)
