"""Stopping a run: by Ctrl-C, by SIGTERM, or because its terminal was closed."""

import os
import select
import signal

INTERRUPTED = 130  # the shell's code for a program that Ctrl-C ended
ASKING = ("SIGINT", "SIGTERM", "SIGHUP")  # by name: not every system has the last one
PATIENCE = 1.0  # seconds that a reader of what is printed has to make room
OUTPUTS = (1, 2)


def _takes_more(output: int) -> bool:
    """Whether it can be written to: not into a pipe that is full, because nobody reads it. A write that waits there
    begins again after the signal, and goes where its number leads then."""
    try:
        return bool(select.select((), (output,), (), PATIENCE)[1])
    except (OSError, ValueError):  # it is closed; or Windows, which can ask this of sockets only
        return True


class StopOnSignal:
    """The first Ctrl-C, SIGTERM or SIGHUP asks the loop to stop after its batch; the same once more ends the program at
    once. A signal that was ignored before, as under nohup, stays ignored."""

    def __enter__(self):
        self.asked = False
        numbers = [getattr(signal, name) for name in ASKING if hasattr(signal, name)]
        heard = [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]
        self.terminals = [number for number in OUTPUTS if os.isatty(number)]
        self.before = {number: signal.signal(number, self._ask) for number in heard}
        return lambda: self.asked

    def _ask(self, number, _) -> None:
        self.asked = True
        signal.signal(number, self.before[number])
        for output in OUTPUTS:
            closed = output in self.terminals and not os.isatty(output)
            if closed or not _takes_more(output):  # printing must not keep the run from saving, by an error or a wait
                os.dup2(os.open(os.devnull, os.O_WRONLY), output)

    def __exit__(self, *_) -> None:
        for number, handler in self.before.items():
            signal.signal(number, handler)
