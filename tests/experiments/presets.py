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
_FOUND = [(c, name) for file in FILES for name, c in studies_in(file).items()]
STUDIES = {name: name for name in PRESETS}
STUDIES |= {c.name: name for c, name in _FOUND if isinstance(c, StudyConfig)}
STREAMS = {name: name for name in STREAM_PRESETS}
STREAMS |= {c.name: name for c, name in _FOUND if isinstance(c, StreamStudyConfig)}


def study(name: str) -> StudyConfig:
    """The study whose name is this, or its tiny form."""
    own, _, form = name.partition(":")
    return preset(STUDIES[own] + (form and f":{form}"))


def stream(name: str) -> StreamStudyConfig:
    """The same for a stream, in its forms."""
    own, colon, forms = name.partition(":")
    return stream_preset(STREAMS[own] + colon + forms)
