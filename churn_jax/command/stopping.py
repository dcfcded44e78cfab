"""Ctrl-C, SIGTERM or a time limit as a request: the first saves and stops.

A second signal stops at once.
"""

import math
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["NOT_FINISHED", "Stopping", "check_minutes", "stopping"]

# Exit code of a command that `--minutes` ended before its work was done.
NOT_FINISHED = 3


def check_minutes(minutes: float | None) -> None:
    """Refuses a time limit that is not a positive number.

    Raises:
        ValueError: it is not.
    """
    if minutes is not None and not (math.isfinite(minutes) and minutes > 0):
        raise ValueError(f"--minutes must be a positive number; got {minutes:g}")


class Stopping:
    """What was asked for.

    Attributes:
        event: set by the first signal and when the time is over; training looks at it
            and saves.
        signals: numbers of the signals that came.
        minutes: the time limit; None is none.
    """

    def __init__(self, minutes: float | None = None):
        """Nothing was asked for yet."""
        check_minutes(minutes)
        self.event = threading.Event()
        self.signals: list[int] = []
        self.minutes = minutes
        self._opened = time.monotonic()
        self._clock: threading.Timer | None = None

    @property
    def exit_code(self) -> int:
        """128 plus the signal's number, as shells have it; 3 when the time was over.

        Among several processes the first clock stops them all, so a limit and no signal
        are enough.
        """
        if self.minutes is not None and not self.signals:
            return NOT_FINISHED
        return 128 + (self.signals[0] if self.signals else signal.SIGINT)

    def begin(self) -> None:
        """Training begins: the time, counted from the start, may end it from now on.

        Not before, or a limit shorter than the loading would leave nothing done and the
        same command would never finish.
        """
        if self.minutes is None or self._clock is not None:
            return
        left = 60 * self.minutes - (time.monotonic() - self._opened)
        self._clock = threading.Timer(max(left, 0.0), self.event.set)
        self._clock.daemon = True
        self._clock.start()

    def close(self) -> None:
        """Stops the clock."""
        if self._clock is not None:
            self._clock.cancel()

    def _ask(self, number, frame) -> None:
        del frame
        if self.signals:
            raise KeyboardInterrupt
        self.signals.append(number)
        self.event.set()


@contextmanager
def stopping(minutes: float | None = None) -> Iterator[Stopping]:
    """Catches both signals while the body runs; earlier handlers come back after it.

    Args:
        minutes: ask to stop after so many, once `begin` was called; None does not.

    Yields:
        The `Stopping`.

    Raises:
        ValueError: `minutes` is not a positive number.
    """
    asked = Stopping(minutes)
    caught = (signal.SIGINT, signal.SIGTERM)
    previous = {number: signal.signal(number, asked._ask) for number in caught}
    try:
        yield asked
    finally:
        asked.close()
        for number, handler in previous.items():
            signal.signal(number, handler)
