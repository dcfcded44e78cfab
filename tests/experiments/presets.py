"""Every study and stream of the package and of the papers, by its own name."""

from pathlib import Path

from churn_jax.command.listing import studies_in
from churn_jax.configuration.streams import StreamStudyConfig
from churn_jax.configuration.study import StudyConfig
from churn_jax.studies import PRESETS, preset
from churn_jax.studies.streams import STREAM_PRESETS, stream_preset

FILES = [
    str(path)
    for path in sorted(Path("experiments").glob("*/*.py"))
    if path.stem in ("presets", "small", "clicks")
]
PAPERS = ("reproducibility", "anti_distillation", "diversity", "elodi")
_FOUND = {
    config.name: (name, type(config))
    for file in FILES
    for name, config in studies_in(file).items()
}


def _names(built_in, kind: type) -> dict[str, str]:
    found = {own: name for own, (name, of) in _FOUND.items() if of is kind}
    return {name: name for name in built_in} | found


STUDIES = _names(PRESETS, StudyConfig)
STREAMS = _names(STREAM_PRESETS, StreamStudyConfig)


def study(name: str) -> StudyConfig:
    """The study whose name is this, or its tiny form."""
    own, _, form = name.partition(":")
    return preset(STUDIES[own] + (form and f":{form}"))


def stream(name: str) -> StreamStudyConfig:
    """The same for a stream, in its forms."""
    own, colon, forms = name.partition(":")
    return stream_preset(STREAMS[own] + colon + forms)
