"""One version on its way through the pass: its blocks, and what is kept of them."""

import numpy as np

from churn_jax.comparison.scanned import ScannedSide
from churn_jax.comparison.scanning.row_reader import RowReader, sample_rows
from churn_jax.comparison.scanning.score_block import Block, read_scores
from churn_jax.comparison.scanning.score_faults import sum_tolerance
from churn_jax.comparison.side import Side

__all__ = ["SidePass"]

Room = list[tuple[np.ndarray, np.ndarray]]


class SidePass:
    """A side with scores."""

    def __init__(
        self,
        side: Side,
        rows: np.ndarray | None,
        columns: np.ndarray | None,
        labels: np.ndarray | None,
        examples: int,
    ):
        self.side, self.columns = side, columns
        self.reader = RowReader(side.values, rows)
        self._labels = None if labels is None else _own_classes(side, columns, labels)
        self._tolerance = 0.0
        if side.kind == "probabilities":
            sample = sample_rows(side.values)
            self._tolerance = sum_tolerance(sample, side.values.dtype)
        shape = len(side.values), examples

        def of_labels() -> np.ndarray | None:
            return None if labels is None else np.empty(shape, np.float32)

        self.faults = np.zeros(shape, np.uint8)
        self.kept = ScannedSide(
            np.empty(shape, np.int32),
            np.empty(shape, np.float32),
            of_labels(),
            of_labels(),
        )

    @property
    def row_bytes(self) -> int:
        """Memory that one row of every run takes in `room`."""
        number = self.reader.dtype.itemsize + 4
        return len(self.side.values) * self.side.classes * number

    def room(self, rows: int) -> Room:
        """Memory for the scores and the ratios of each run."""
        shape = rows, self.side.classes
        return [
            (np.empty(shape, self.reader.dtype), np.empty(shape, np.float32))
            for _ in range(len(self.side.values))
        ]

    def blocks(self, start: int, stop: int, room: Room) -> list[Block]:
        """Rows `start` to `stop` of each run; keeps what is to be kept of them."""
        return [self._block(run, start, stop, *of) for run, of in enumerate(room)]

    def _block(self, run: int, start: int, stop: int, scores, ratios) -> Block:
        labels, kept = self._labels, self.kept
        block = read_scores(
            self.reader.read(run, start, stop, scores),
            ratios[: stop - start],
            self.side.kind,
            None if labels is None else labels[start:stop],
            self._tolerance,
        )
        place = run, slice(start, stop)
        kept.predicted[place] = (
            block.predicted if self.columns is None else self.columns[block.predicted]
        )
        for into, values in (
            (kept.confidence, 1 / block.total),
            (kept.label_log_prob, block.label_log_prob),
            (kept.brier, block.brier),
        ):
            if into is not None:
                into[place] = values
        self.faults[place] = block.faults
        return block


def _own_classes(side: Side, columns: np.ndarray | None, labels: np.ndarray):
    """Labels as classes of the side; -1 where it does not know the class."""
    own = np.arange(side.classes)
    places = own if columns is None else columns
    size = 1 + max(int(places.max()), int(labels.max(initial=0)))
    known = np.full(size, -1)
    known[places] = own
    return known[labels]
