"""Stopping a run: by Ctrl-C, by SIGTERM, or because its terminal was closed."""

import os
import signal

INTERRUPTED = 130  # the shell's code for a program that Ctrl-C ended
ASKING = ("SIGINT", "SIGTERM", "SIGHUP")  # by name: not every system has the last one


class StopOnSignal:
    """The first Ctrl-C, SIGTERM or SIGHUP asks the loop to stop after its batch; the same once more ends the program at
    once. A signal that was ignored before, as under nohup, stays ignored."""

    def __enter__(self):
        self.asked = False
        numbers = [getattr(signal, name) for name in ASKING if hasattr(signal, name)]
        heard = [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]
        self.terminals = [number for number in (1, 2) if os.isatty(number)]
        self.before = {number: signal.signal(number, self._ask) for number in heard}
        return lambda: self.asked

    def _ask(self, number, _) -> None:
        self.asked = True
        signal.signal(number, self.before[number])
        for terminal in self.terminals:
            if not os.isatty(terminal):  # it was closed, and an error of printing must not keep the run from saving
                os.dup2(os.open(os.devnull, os.O_WRONLY), terminal)

    def __exit__(self, *_) -> None:
        for number, handler in self.before.items():
            signal.signal(number, handler)
