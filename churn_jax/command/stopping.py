"""Ctrl-C and SIGTERM as a request: the first saves and stops, the second stops."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["Stopping", "stopping"]


class Stopping:
    """What was asked for.

    Attributes:
        event: set by the first signal; training looks at it and saves.
        signals: numbers of the signals that came.
    """

    def __init__(self):
        """Nothing was asked for yet."""
        self.event = threading.Event()
        self.signals: list[int] = []

    @property
    def exit_code(self) -> int:
        """128 plus the signal's number, as shells have it."""
        return 128 + (self.signals[0] if self.signals else signal.SIGINT)

    def _ask(self, number, frame) -> None:
        del frame
        if self.signals:
            raise KeyboardInterrupt
        self.signals.append(number)
        self.event.set()


@contextmanager
def stopping() -> Iterator[Stopping]:
    """Catches both signals while the body runs; earlier handlers come back after it.

    Yields:
        The `Stopping`.
    """
    asked = Stopping()
    caught = (signal.SIGINT, signal.SIGTERM)
    previous = {number: signal.signal(number, asked._ask) for number in caught}
    try:
        yield asked
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
