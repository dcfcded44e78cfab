"""Studies as data: typed settings, their JSON values, and what two of them differ in.

Everything here is a frozen dataclass or a function of dataclasses, so that reports read
what the trainer has left without loading the trainer.
"""

from typing import TYPE_CHECKING

from churn_compare.lazy import load_on_use

if TYPE_CHECKING:
    from churn_jax.configuration.codec import differences, from_json, replaced, to_json
    from churn_jax.configuration.network import Towers
    from churn_jax.configuration.record import StudyRecord, read_record

__getattr__, __dir__, __all__ = load_on_use(__name__)
