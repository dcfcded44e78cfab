"""Rewrites the golden files of all presets; review the difference before committing.

A preset's file has the settings that are not at their defaults; the defaults have a
file of their own, so that a changed one shows in review as well.

python -m tests.golden.refresh
"""

import dataclasses
import json
from pathlib import Path

from churn_jax import methods
from churn_jax.configuration import network, rows, study, training
from churn_jax.configuration.codec import to_json
from churn_jax.data.augment import Augmentation
from churn_jax.methods.base import Method, Ramp
from tests.experiments.presets import STUDIES
from tests.experiments.presets import study as study_of

FOLDER = Path(__file__).parent
FILES = {f"preset_{name}.json": (study_of, name) for name in STUDIES}
MODULES = (network, rows, study, training)


def default_of(field: dataclasses.Field):
    """The default of a field as JSON values; the field itself if it has none."""
    if field.default is not dataclasses.MISSING:
        return to_json(field.default)
    made = field.default_factory is not dataclasses.MISSING
    return to_json(field.default_factory()) if made else field


def settings(value):
    """A configuration as JSON values, without what is at its default."""
    if isinstance(value, tuple | list):
        return [settings(part) for part in value]
    if not dataclasses.is_dataclass(value):
        return to_json(value)
    found = {"class": type(value).__name__} if isinstance(value, Method) else {}
    for field in dataclasses.fields(value):
        own = getattr(value, field.name)
        if to_json(own) != default_of(field):
            found[field.name] = settings(own)
    return found


def defaults():
    """Every default of a configuration and of a method, by class."""
    kinds = [
        kind
        for module in MODULES
        for kind in vars(module).values()
        if getattr(kind, "__module__", "") == module.__name__
    ]
    kinds += [Augmentation, Ramp, *(getattr(methods, n) for n in methods.__all__)]
    found = {}
    for kind in kinds:
        if isinstance(kind, type) and dataclasses.is_dataclass(kind):
            values = {f.name: default_of(f) for f in dataclasses.fields(kind)}
            found[kind.__name__] = {
                k: v for k, v in values.items() if not isinstance(v, dataclasses.Field)
            }
    return dict(sorted(found.items()))


def text_of(file: str) -> str:
    """The preset as JSON, one value per line, so that a difference reads well."""
    if file == "defaults.json":
        value = defaults()
    else:
        find, name = FILES[file]
        value = settings(find(name))
    return json.dumps(value, indent=2) + "\n"


def kept() -> set[str]:
    """Names of the golden files that are there."""
    return {path.name for path in FOLDER.glob("preset_*.json")}


def main() -> None:
    for stale in kept() - set(FILES):
        (FOLDER / stale).unlink()
    for file in (*FILES, "defaults.json"):
        (FOLDER / file).write_text(text_of(file))


if __name__ == "__main__":
    main()
