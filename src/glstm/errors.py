"""Errors a person can act on: the command line prints them as one sentence, without a traceback."""


class UserError(ValueError):
    """What was given does not fit; the message says what was wrong and what would be right."""


class DataError(UserError):
    """A data file is missing or not what it should be."""


class ShapeError(ValueError, RuntimeError):
    """A tensor has the wrong shape: a RuntimeError, as in torch, and a ValueError, as elsewhere in Python."""
