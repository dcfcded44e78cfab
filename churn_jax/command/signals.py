"""How a command answers Ctrl-C, SIGTERM and the end of `--minutes`.

Where there are updates to save, the first signal asks for a checkpoint and the second
one ends the process. Elsewhere the first one ends it.
"""

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator

from churn_compare.command_line import SIGNALS, name_of_signal

# Exit code of a command that `--minutes` ended before its work was done.
NOT_FINISHED = 3


class Stopping:
    """Requests to stop that arrive during training."""

    def __init__(self, minutes: float | None, go_on: str):
        """Nothing requested yet; `go_on` is the command that continues."""
        self.event = threading.Event()  # training looks at it, and saves
        self.signals: list[int] = []
        self.minutes = minutes
        # Whether stopping at once would lose work; always true of several processes,
        # which must stop together.
        self.unsaved = False
        self.say: Callable[[str], None] = print
        self._go_on = go_on
        self._opened = time.monotonic()
        self._clock: threading.Timer | None = None

    @property
    def exit_code(self) -> int:
        """128 plus the signal's number, as shells have it; 3 if the time was over."""
        # Among several processes the first clock stops them all, so a limit and no
        # signal are enough.
        if self.minutes is not None and not self.signals:
            return NOT_FINISHED
        return 128 + (self.signals[0] if self.signals else signal.SIGINT)

    def begin(self) -> None:
        """Training begins: the time, counted from the start, may end it from now on."""
        # Not before, or a limit shorter than the loading would leave nothing done and
        # the same command would never finish.
        if self.minutes is None or self._clock is not None:
            return
        left = 60 * self.minutes - (time.monotonic() - self._opened)
        self._clock = threading.Timer(left, self.event.set)
        if left <= 0:  # a thread might be later than the end of a small study
            self.event.set()
            return
        self._clock.daemon = True
        self._clock.start()

    def close(self) -> None:
        """Stops the clock."""
        if self._clock is not None:
            self._clock.cancel()

    def answer(self, number: int) -> None:
        """Says at once what a signal does, and does it."""
        if self.signals or not self.unsaved:
            said = "stopped at once; the last checkpoint is kept"
            if not self.signals:
                said = f"{name_of_signal(number)}; there was nothing new to save"
            cursor = "\x1b[?25h" if os.isatty(1) else ""  # which bars have hidden
            _write(1, f"{cursor}\n{said}. To go on: {self._go_on}\n")
            os._exit(128 + number)
        self.signals.append(number)
        self.event.set()
        self.say(
            f"{signal.Signals(number).name}: stopping after this update, saving (a "
            "second one, or Ctrl-C, stops at once without saving)"
        )


@contextlib.contextmanager
def stopping(minutes: float | None, go_on: str) -> Iterator[Stopping]:
    """Catches both signals while the body runs; earlier handlers come back after it."""
    asked = Stopping(minutes, go_on)
    # Python's handlers run in the main thread, which runs no handler while XLA compiles
    # or a device is waited for. The number of a signal comes through a pipe at once.
    heard, told = os.pipe()
    os.set_blocking(told, False)

    def listen() -> None:
        while number := os.read(heard, 1):
            if number[0] in SIGNALS:
                asked.answer(number[0])

    listener = threading.Thread(target=listen, daemon=True)
    previous = {n: signal.signal(n, lambda number, frame: None) for n in SIGNALS}
    before = signal.set_wakeup_fd(told)
    listener.start()
    try:
        yield asked
    finally:
        asked.close()
        for number, handler in previous.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(before)
        os.close(told)
        listener.join()
        os.close(heard)


def _write(descriptor: int, text: str) -> None:
    """Writes without Python's files, whose locks another thread may hold."""
    with contextlib.suppress(OSError):
        os.write(descriptor, text.encode())
