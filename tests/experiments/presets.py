"""Every study of the package and of the papers, by its own name."""

import functools
from pathlib import Path

from churn_jax.command.listing import studies_in
from churn_jax.studies import PRESETS, StudyConfig, preset

FILES = [
    str(path)
    for path in sorted(Path("experiments").glob("*/*.py"))
    if path.stem in ("presets", "small", "clicks")
]
PAPERS = ("reproducibility", "anti_distillation", "diversity", "elodi")
_FOUND = [(make(), name) for file in FILES for name, make in studies_in(file).items()]
STUDIES = {name: name for name in PRESETS}
STUDIES |= {c.name: name for c, name in _FOUND}


@functools.cache
def study(name: str) -> StudyConfig:
    """The study whose name is this, or its tiny form."""
    own, _, form = name.partition(":")
    return preset(STUDIES[own] + (form and f":{form}"))
