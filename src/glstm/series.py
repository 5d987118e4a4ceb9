"""Collections of sequences as users hold them, an array or a list of arrays, as the tensors that a network reads."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from glstm.errors import UserError

LAYOUTS = ("channels_first", "channels_last")


@dataclass(frozen=True)
class Series:
    """n sequences: x (T, n, D) float32; how many steps of each count, (n,), None if all do; and the times of the steps,
    (T,) or (T, n), None if they are 1 to T."""

    x: Tensor
    lengths: Tensor | None = None
    times: Tensor | None = None

    def __len__(self) -> int:
        return self.x.shape[1]

    def __getitem__(self, wanted: slice | Tensor) -> "Series":
        own = self.times is not None and self.times.dim() == 2
        return Series(
            self.x[:, wanted],
            None if self.lengths is None else self.lengths[wanted],
            self.times[:, wanted] if own and self.times is not None else self.times,
        )

    def to(self, device: torch.device | str) -> "Series":
        parts = (self.x, self.lengths, self.times)
        return Series(*(None if part is None else part.to(device) for part in parts))  # pyright: ignore[reportArgumentType]

    @property
    def counts(self) -> Tensor:
        """Which steps of which sequence are no padding, (T, n)."""
        steps = torch.arange(len(self.x), device=self.x.device)[:, None]
        lengths = torch.full((len(self),), len(self.x), device=self.x.device) if self.lengths is None else self.lengths
        return steps < lengths

    @property
    def span(self) -> tuple[float, float]:
        """The first and the last moment."""
        if self.times is None:
            return 1.0, float(len(self.x))
        times = self.times if self.times.dim() == 2 else self.times[:, None].expand(-1, len(self))
        own = times[self.counts]
        return float(own.min()), float(own.max())


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
    if any(piece.ndim not in (1, 2) for piece in pieces) or len({piece.shape for piece in pieces}) == 1:
        return None
    return pieces


def from_array(values: np.ndarray, layout: str) -> Series:
    """(n, T) for sequences of one channel, else (n, D, T), or (n, T, D) with the layout channels_last."""
    check_layout(layout)
    if values.ndim not in (2, 3) or 0 in values.shape:
        raise UserError(
            f"sequences are an array (n, time) or (n, {_expected(layout)[1:]}, of which none is 0, not one of shape "
            f"{values.shape}"
        )
    if values.ndim == 2:
        values = values[:, :, None]
    elif layout == "channels_first":
        values = values.transpose(0, 2, 1)
    return Series(torch.from_numpy(_single(values.transpose(1, 0, 2))))


def from_pieces(pieces: Sequence[np.ndarray], layout: str) -> Series:
    """Arrays (T,), or (D, T), or (T, D) with the layout channels_last, of lengths of their own."""
    check_layout(layout)
    flat = [piece[:, None] if piece.ndim == 1 else piece.T if layout == "channels_first" else piece for piece in pieces]
    channels = sorted({piece.shape[1] for piece in flat})
    if len(channels) > 1:
        raise UserError(
            f"every sequence must have the same number of channels, but there are some with {channels[0]} and some "
            f"with {channels[1]}: with the layout {layout!r} a sequence is an array {_expected(layout)}"
        )
    if empty := [number for number, piece in enumerate(flat) if not len(piece)]:
        raise UserError(f"every sequence needs at least one step, and sequence {empty[0]} (counted from 0) has none")
    lengths = [len(piece) for piece in flat]
    padded = np.zeros((max(lengths), len(flat), channels[0]), np.float32)
    for number, piece in enumerate(flat):
        padded[: len(piece), number] = _single(piece)
    return Series(torch.from_numpy(padded), torch.tensor(lengths))


def with_times(series: Series, times: Any) -> Series:
    """The same with the times of its steps: (T,) for all, (n, T), or a list with the times of each sequence."""
    if times is None:
        return series
    pieces = pieces_of(times)
    if pieces is None:
        found = torch.from_numpy(np.array(times, np.float64))
        found = found.T if found.dim() == 2 else found
        if found.shape not in ((len(series.x),), (len(series.x), len(series))):
            raise UserError(
                f"times must be ({len(series.x)},) for all sequences or ({len(series)}, {len(series.x)}) for each, "
                f"but are {tuple(np.shape(times))}"
            )
    else:
        lengths = series.counts.sum(0).tolist()
        if [piece.shape for piece in pieces] != [(length,) for length in lengths]:
            raise UserError("times, as a list, must hold one array for each sequence, with one time for each step")
        # What follows the end is padding, but times must increase everywhere.
        padded = [np.append(piece, piece[-1] + np.arange(1, len(series.x) - len(piece) + 1)) for piece in pieces]
        found = torch.from_numpy(np.stack(padded, 1).astype(np.float64))
    return Series(series.x, series.lengths, found)


def check_layout(layout: str) -> None:
    if layout not in LAYOUTS:
        raise UserError(f"layout must be one of {', '.join(LAYOUTS)}, not {layout!r:.50}")


def _expected(layout: str) -> str:
    return "(channels, time)" if layout == "channels_first" else "(time, channels)"


def _single(values: np.ndarray) -> np.ndarray:
    """As float32, always a copy; a value that is too large becomes infinite, and is seen later."""
    with np.errstate(over="ignore"):
        return np.array(values, np.float32)
