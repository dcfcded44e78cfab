"""Rewrites the golden files of the stream presets; review the difference.

python -m tests.golden.refresh_streams
"""

import json
from pathlib import Path

from churn_jax.configuration.codec import to_json
from churn_jax.studies.streams import STREAM_PRESETS, stream_preset

FOLDER = Path(__file__).parent


def path_of(name: str) -> Path:
    return FOLDER / f"stream_{name}.json"


def text_of(name: str) -> str:
    """The resolved preset as JSON, one value per line, so that a diff reads well."""
    return json.dumps(to_json(stream_preset(name)), indent=2) + "\n"


def main() -> None:
    known = {path_of(name) for name in STREAM_PRESETS}
    for stale in set(FOLDER.glob("stream_*.json")) - known:
        stale.unlink()
    for name in STREAM_PRESETS:
        path_of(name).write_text(text_of(name))


if __name__ == "__main__":
    main()
