"""Rewrites the golden files of all presets; review the difference before committing.

python -m tests.golden.refresh
"""

import json
from pathlib import Path

from churn_jax.configuration.codec import to_json
from churn_jax.studies.presets import PRESETS, preset
from churn_jax.studies.streams import STREAM_PRESETS, stream_preset

FOLDER = Path(__file__).parent
FILES = {f"preset_{name}.json": (preset, name) for name in PRESETS}
FILES |= {f"stream_{name}.json": (stream_preset, name) for name in STREAM_PRESETS}


def text_of(file: str) -> str:
    """The resolved preset as JSON, one value per line, so that a diff reads well."""
    find, name = FILES[file]
    return json.dumps(to_json(find(name)), indent=2) + "\n"


def kept() -> set[str]:
    """Names of the golden files that are there."""
    kinds = ("preset", "stream")
    return {path.name for kind in kinds for path in FOLDER.glob(f"{kind}_*.json")}


def main() -> None:
    for stale in kept() - set(FILES):
        (FOLDER / stale).unlink()
    for file in FILES:
        (FOLDER / file).write_text(text_of(file))


if __name__ == "__main__":
    main()
