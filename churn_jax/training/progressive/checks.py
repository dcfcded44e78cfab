"""Whether what a stream yields suits the model; looked at before it is learned."""

from typing import Any

import numpy as np

from churn_jax.training.progressive.config import StreamRun

__all__ = ["check_schema", "check_window"]


def check_schema(run: StreamRun, stream: Any) -> None:
    """The stream has the model's features, where it says which ones it has.

    Raises:
        ValueError: sizes of tables or the number of numeric features differ.
    """
    schema = getattr(stream, "schema", None)
    if schema is None:
        return
    sizes, numeric = tuple(schema.sizes), len(schema.numeric)
    if sizes != run.model.sizes or numeric != run.model.numeric:
        raise ValueError(
            f"{run.name}: the model has tables of {run.model.sizes} rows and "
            f"{run.model.numeric} numeric features, the stream {sizes} and {numeric}"
        )


def check_window(run: StreamRun, window: Any) -> None:
    """A window has the shapes, ids and labels that the model can take.

    Looked at on the host: an id beyond its table would be learned as another field's.

    Raises:
        ValueError: one of them is not as it should be; says which.
    """
    size, model = run.config.window, run.model
    for name, expected in (
        ("ids", (size, len(model.sizes))),
        ("numeric", (size, model.numeric)),
        ("labels", (size,)),
        ("mask", (size,)),
    ):
        shape = np.shape(getattr(window, name))
        if shape != expected:
            raise ValueError(
                f"{run.name}: a window's {name} must have shape {expected}; got {shape}"
            )
    valid = np.asarray(window.mask) > 0
    ids = np.asarray(window.ids)[valid]
    beyond = ((ids < 0) | (ids >= np.asarray(model.sizes))).any(axis=0)
    if beyond.any():
        field = int(np.flatnonzero(beyond)[0])
        raise ValueError(
            f"{run.name}: an id of field {field} is outside of its table of "
            f"{model.sizes[field]} rows"
        )
    if not np.isin(np.asarray(window.labels)[valid], (0, 1)).all():
        raise ValueError(f"{run.name}: labels must be 0 or 1")
