"""Collections of sequences as users of scikit-learn and its kin hold them, as a list of arrays (time, channels)."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from glstm.errors import UserError

LAYOUTS = ("channels_first", "channels_last")
LOPSIDED = 10  # so many times more channels than steps are more likely a layout that was mistaken


def check_layout(layout: str) -> None:
    if layout not in LAYOUTS:
        raise UserError(f"layout must be one of {', '.join(LAYOUTS)}, not {layout!r:.50}")


def pieces_of(data: Any) -> list[np.ndarray] | None:
    """The arrays of a list whose sequences have lengths of their own; None if the data is one array, or can be."""
    if not (isinstance(data, list | tuple) or (isinstance(data, np.ndarray) and data.dtype == object)):
        return None
    if np.ndim(data) != 1 if isinstance(data, np.ndarray) else not len(data):
        return None
    try:
        pieces = [np.asarray(piece) for piece in data]
    except ValueError:
        return None
    alike = len({piece.shape for piece in pieces}) == 1 and not isinstance(data, np.ndarray)
    return None if alike or any(piece.ndim not in (1, 2) for piece in pieces) else pieces


def from_array(values: np.ndarray, layout: str) -> list[np.ndarray]:
    """(n, time) for sequences of one channel, else (n, channels, time), or (n, time, channels) with channels_last."""
    if values.ndim not in (2, 3) or 0 in values.shape:
        raise UserError(
            f"sequences are an array (n, time) or (n, {_expected(layout)[1:]}, of which none is 0, not one of shape "
            f"{values.shape}"
        )
    return [_steps_first(one, layout) for one in values]


def from_pieces(pieces: Sequence[np.ndarray], layout: str) -> list[np.ndarray]:
    """Arrays (time,), or (channels, time), or (time, channels) with channels_last, of lengths of their own."""
    found = [_steps_first(piece, layout) for piece in pieces]
    channels = sorted({piece.shape[1] for piece in found})
    if len(channels) > 1:
        raise UserError(
            f"every sequence must have the same number of channels, but there are some with {channels[0]} and some "
            f"with {channels[1]}: with the layout {layout!r} a sequence is an array {_expected(layout)}"
        )
    return found


def doubt(each: Sequence[np.ndarray], layout: str) -> str | None:
    """A sentence about sequences (time, channels) that look as if their axes were exchanged."""
    steps, channels = max(map(len, each)), each[0].shape[1]
    if channels < LOPSIDED * steps or steps == 1:
        return None
    other = next(one for one in LAYOUTS if one != layout)
    return (
        f"X was read as sequences of {channels} channels and at most {steps} steps: if these are {channels} steps, "
        f"give layout={other!r}"
    )


def _steps_first(one: np.ndarray, layout: str) -> np.ndarray:
    if one.ndim == 1:
        return one[:, None]
    return one.T if layout == "channels_first" else one


def _expected(layout: str) -> str:
    return "(channels, time)" if layout == "channels_first" else "(time, channels)"
