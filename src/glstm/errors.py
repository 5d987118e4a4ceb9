"""Errors that a user can correct: the command line prints them as one sentence, without a traceback."""


class UserError(ValueError):
    """An argument or a file is wrong; the message says what was wrong and what would be right."""


class DataError(UserError):
    """A data file is missing or not what it should be."""


class ShapeError(ValueError, RuntimeError):
    """A tensor has the wrong shape: a RuntimeError, as in torch, and a ValueError, as elsewhere in Python."""


class GateWarning(UserWarning):
    """A layer's gates do not fit its times; the message says why, and what would.

    A sequence that is fed in pieces can look like that at its first piece: `layer.fit_times` with all times before it
    says that there is more to come.
    """


class StreamWarning(UserWarning):
    """A stream gets samples that cannot change anything: it has passed its last step, or its last gate has closed."""
