"""Stopping a run with Ctrl-C."""

import signal

INTERRUPTED = 130  # the shell's code for a program that Ctrl-C ended


class StopOnSignal:
    """The first Ctrl-C (or SIGTERM) asks the loop to stop after its batch; the second one ends the program at once."""

    def __enter__(self):
        self.asked = False
        self.before = {number: signal.signal(number, self._ask) for number in (signal.SIGINT, signal.SIGTERM)}
        return lambda: self.asked

    def _ask(self, number, _) -> None:
        self.asked = True
        signal.signal(number, self.before[number])

    def __exit__(self, *_) -> None:
        for number, handler in self.before.items():
            signal.signal(number, handler)
