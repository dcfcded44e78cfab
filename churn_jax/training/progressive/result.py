"""What progressive validation measured, and the file it lives in."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np

from churn_jax.configuration.record import Stopped
from churn_jax.predictions import replace_file

__all__ = [
    "StreamResult",
    "curve_entry",
    "load_result",
    "save_result",
    "without_stopped",
]


@dataclasses.dataclass(frozen=True)
class StreamResult:
    """What progressive validation measured.

    Attributes:
        examples: of the stream, all of them learned.
        counted: of them, scored into the totals: those after the warm start.
        seconds: over all launches.
        parameters: trained numbers per replica.
        stopped: replicas frozen because something was not finite; they are left out
            of the prediction differences from that window on, and their own numbers
            are nan.
        totals: after the warm start. Per replica `log_loss`, `auc`, `auc_error` (how
            far the AUC's bins can be off at most) and `calibration`, all `[R]`; over
            replicas `relative_pd`, `pd_1`, `pd_2`, `hamming`, `label_pd`, each with
            `<name>_loo [R]`, the value without replica r.
        curve: the same for each segment of the stream, with `examples` learned by
            its end and `counted`, those scored in it; terms of the loss under
            `term/<name>`.
        holdout: the same on the part of the stream that is held out; `{}` without.
        identity: what it was trained as.
    """

    examples: int
    counted: int
    seconds: float
    parameters: int
    stopped: tuple[Stopped, ...]
    totals: dict[str, np.ndarray]
    curve: list[dict[str, Any]]
    holdout: dict[str, np.ndarray]
    identity: str = ""


def without_stopped(figures: dict[str, Any], alive: np.ndarray) -> dict[str, Any]:
    """Figures by replica with nan for those that stopped."""
    kept: dict[str, Any] = {}
    for name, value in figures.items():
        value = np.asarray(value, np.float64)
        kept[name] = np.where(alive, value, np.nan) if value.ndim else float(value)
    return kept


def curve_entry(record: dict[str, Any]) -> dict[str, Any]:
    """A line of metrics as an entry of `StreamResult.curve`."""
    entry: dict[str, Any] = {
        "examples": int(record["examples"]),
        "counted": int(record["counted"]),
    }
    for part in ("train", "validation"):
        for name, value in record[part].items():
            array = np.asarray(value, np.float64)  # null is nan
            entry[name] = array if array.ndim else float(array)
    return entry


def save_result(path: Path, result: StreamResult) -> None:
    """Writes a result as JSON, whole or not at all; nan is null.

    Raises:
        OSError: the file could not be written.
    """
    fields = {f.name: getattr(result, f.name) for f in dataclasses.fields(result)}
    fields["stopped"] = [dataclasses.asdict(s) for s in result.stopped]
    with replace_file(path) as file:
        file.write((json.dumps(_plain(fields), indent=1) + "\n").encode())


def load_result(path: Path) -> StreamResult:
    """Reads what `save_result` wrote.

    Raises:
        ValueError: the file is missing or no such result.
    """
    try:
        fields = json.loads(Path(path).read_text())
        fields["stopped"] = tuple(Stopped(**s) for s in fields["stopped"])
        for name in ("totals", "holdout"):
            fields[name] = _arrays(fields[name])
        fields["curve"] = [_arrays(entry) for entry in fields["curve"]]
        return StreamResult(**fields)
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path}: not the result of a stream ({error})") from error


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(v) for name, v in value.items()}
    if isinstance(value, (list, tuple, np.ndarray)):
        return [_plain(v) for v in value]
    if isinstance(value, (float, np.floating)):
        return float(value) if np.isfinite(value) else None
    return int(value) if isinstance(value, np.integer) else value


def _arrays(entry: dict[str, Any]) -> dict[str, Any]:
    """Lists as float64 arrays, null as nan, counts as they are."""

    def restored(value):
        if isinstance(value, list):
            return np.asarray(value, np.float64)
        return np.nan if value is None else value

    return {name: restored(value) for name, value in entry.items()}
