"""Options of the commands, applied to presets."""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from churn_compare import option_list

if TYPE_CHECKING:
    from churn_jax.command.study_file import StudyFile


# Short forms of the options that are used most.
SHORT_FORMS = {
    "--data": "--data.name",
    "--data-dir": "--data.data-dir",
    "--manual-dir": "--data.manual-dir",
    "--model": "--model.name",
    "--optimizer": "--train.optimizer.name",
    "--replicas": "--train.replicas",
    "--epochs": "--train.epochs",
    "--batch-size": "--train.batch-size",
    "--mapping": "--train.mapping",
    "--seed": "--train.seeds.base",
}

LISTS = ("--set", "--only", "--method", "--log")  # options of several texts
OWN = "own"  # the study without a preset
SHORT_FORMS_HELP = (
    f"Short forms: {', '.join(SHORT_FORMS)}, --mesh replica=4,member=2,data=1."
)


T = TypeVar("T")


def read_options(
    cls: type[T],
    argv: Sequence[str],
    *,
    prog: str,
    description: str | None = None,
    file: "StudyFile | None" = None,
) -> T:
    """An instance of `cls`, whose fields are options.

    The words of a `file` are in `argv`; their names and types are checked first.
    """
    if file is not None and option_list.ASK not in argv:
        file.check(cls)
    return option_list.read_options(
        cls, argv, prog=prog, description=description, short_forms=SHORT_FORMS
    )


def preset_first(
    command: str, argv: Sequence[str], names: Sequence[str], hint: str = ""
) -> tuple[str, list[str]]:
    """The preset that is named first, and the other words; help is of the first one."""
    words = list(argv)
    if words[:1] in (["-h"], ["--help"]):
        words = [names[0], *words]
    if not words or words[0].startswith("-"):
        raise ValueError(
            f"{command} needs the name of a preset{hint}: {', '.join(names)}"
        )
    return words[0], words[1:]


def written_out(
    argv: Sequence[str], short_forms: Mapping[str, str] = SHORT_FORMS
) -> list[str]:
    """Short options written out, `--mesh replica=4,data=2` as an option per axis."""
    words: list[str] = []
    rest = iter(argv)
    for word in rest:
        name, equals, value = word.partition("=")
        if name == "--mesh":
            from churn_jax.configuration.training import MeshShape

            shape = MeshShape.parse(value if equals else next(rest, ""))
            for axis, size in dataclasses.asdict(shape).items():
                words += [f"--train.mesh.{axis}", str(size)]
        else:
            words.append(short_forms.get(name, name) + equals + value)
    return _joined(words)


def _joined(words: Sequence[str]) -> list[str]:
    """An option that is given several times as one, of which tyro takes the last."""
    rest: list[str] = []
    values: dict[str, list[str]] = {}
    at = rest
    for word in words:
        name, equals, value = word.partition("=")
        if name in LISTS:
            at = values.setdefault(name, [])
            at += [value] * bool(equals)
        elif word.startswith("--"):
            at = rest
            at.append(word)
        else:
            at.append(word)
    return [*rest, *(w for name, found in values.items() for w in (name, *found))]


def chosen(name: str, words: Sequence[str], read: Callable[[Any, Sequence[str]], Any]):
    """`(StudyConfig, options)` of a preset, or of a recipe for the data in `words`."""
    if name != OWN:
        from churn_jax.studies import preset

        config = preset(name)
        options = read(config, words)
        return configured(config, options), options
    from churn_jax.studies.own_data import (
        ANY,
        data_facts,
        described,
        own_study,
        unknown,
    )

    plain = [word for word in words if word not in ("-h", "--help")]
    asked = read(unknown(ANY), plain)
    if not asked.data.name and len(words) != len(plain):
        read(unknown(), words)
    given = {
        length: getattr(asked.train, length) % ANY
        for length in ("epochs", "batch_size")
    }
    facts = data_facts(asked.data)
    config = own_study(asked.data, facts, model=asked.model, **given)
    options = read(config, words)
    return described(config, configured(config, options), facts), options


def configured(config, options: Any):
    """The preset with the options' data, network, training, methods and numbers."""
    from churn_jax.studies.provenance import derived

    model = options.model
    if (
        model.name != config.model.name
    ):  # settings of the other network do not carry over
        own = {
            field: empty
            for field, empty in (("features", ()), ("init", ""))
            if getattr(model, field) == getattr(config.model, field)
        }
        model = dataclasses.replace(model, **own)
    further = options.train.seeds.base - config.train.seeds.base
    changed = dataclasses.replace(
        config,
        data=options.data,
        model=model,
        train=options.train,
        methods=tuple(_reseeded(spec, further) for spec in config.methods),
    )
    changed = derived(config, changed)
    rows = (*changed.methods, *method_rows(options.method))
    return with_coefficients(dataclasses.replace(changed, methods=rows), options.set)


def _reseeded(spec, further: int):
    """The row with its own seed, if it has one, as far from the study's as before."""
    moved = tuple(
        (path, value + further if path == "seeds.base" else value)
        for path, value in spec.train
    )
    return dataclasses.replace(spec, train=moved)


def method_rows(names: Sequence[str]):
    """A row for each method of `--method`, with default coefficients."""
    from churn_jax.configuration.rows import MethodSpec, row_name
    from churn_jax.methods.base import METHODS

    rows = []
    for name in names:
        found = METHODS.find(name)
        rows.append(MethodSpec(row_name(found.__name__), found.__name__, found()))
    return tuple(rows)


def with_coefficients(config, assignments: Sequence[str]):
    """The preset with the coefficients of `--set`, such as `codistill_ce.beta=0.2`."""
    for assignment in assignments:
        path, equals, value = assignment.partition("=")
        if not equals:
            raise ValueError(
                f"--set takes method.coefficient=value; got {assignment!r}"
            )
        try:
            number = float(value)
        except ValueError:
            number = math.nan
        if not math.isfinite(number):
            raise ValueError(f"--set {path} takes a finite number; got {value!r}")
        config = config.with_coefficient(path.strip(), number)
    return config
