"""A preset with what the command line changes."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = [
    "SHORT_FORMS",
    "SHORT_FORMS_HELP",
    "configured",
    "with_coefficients",
    "written_out",
]

# Short forms of the options that are used most.
SHORT_FORMS = {
    "--data": "--data.name",
    "--data-dir": "--data.data-dir",
    "--manual-dir": "--data.manual-dir",
    "--model": "--model.name",
    "--replicas": "--train.replicas",
    "--epochs": "--train.epochs",
    "--batch-size": "--train.batch-size",
    "--mapping": "--train.mapping",
    "--seed": "--train.seeds.base",
}
SHORT_FORMS_HELP = (
    f"Short forms: {', '.join(SHORT_FORMS)}, --mesh replica=4,member=2,data=1."
)


def written_out(
    argv: Sequence[str], short_forms: Mapping[str, str] = SHORT_FORMS
) -> list[str]:
    """Short options written out, `--mesh replica=4,data=2` as one option per axis.

    Args:
        argv: the words after the preset.
        short_forms: what they stand for.

    Example:
        >>> written_out(["--epochs=3", "--mesh", "replica=2", "--fresh"])
        ['--train.epochs=3', '--train.mesh.replica', '2', '--train.mesh.member', '1', \
'--train.mesh.data', '1', '--fresh']
    """
    words: list[str] = []
    rest = iter(argv)
    for word in rest:
        name, equals, value = word.partition("=")
        if name == "--mesh":
            from churn_jax.training.partition import MeshShape

            shape = MeshShape.parse(value if equals else next(rest, ""))
            for axis, size in dataclasses.asdict(shape).items():
                words += [f"--train.mesh.{axis}", str(size)]
        else:
            words.append(short_forms.get(name, name) + equals + value)
    return words


def configured(config, options: Any):
    """The preset with the options' data, network, training and coefficients.

    Its title names what it is trained on where that is not the preset's.

    Args:
        config: the preset, a `churn_jax.studies.StudyConfig`.
        options: has `data`, `model`, `train` and `set`, texts such as
            `codistill_skl.beta=0.2`.

    Raises:
        ValueError: a text of `set` is not a coefficient and a finite number.
    """
    from churn_jax.studies.provenance import derived

    model = options.model
    if model.name != config.model.name:  # what the other network had is not this one's
        own = {
            field: empty
            for field, empty in (("features", ()), ("init", ""))
            if getattr(model, field) == getattr(config.model, field)
        }
        model = dataclasses.replace(model, **own)
    changed = dataclasses.replace(
        config, data=options.data, model=model, train=options.train
    )
    return with_coefficients(derived(config, changed), options.set)


def with_coefficients(config, assignments: Sequence[str]):
    """The preset with the coefficients that `--set` names.

    Args:
        config: a `StudyConfig` or a `StreamStudyConfig`.
        assignments: texts such as `codistill_ce.beta=0.2`.

    Raises:
        ValueError: a text is not a coefficient and a finite number.
    """
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
