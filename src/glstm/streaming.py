"""`glstm.stream`: a layer reads a sequence of any length in pieces, with memory for one piece only.

State and time continue from one piece to the next. For a deployed network that takes one sample at a time, see
`glstm/runtime/stream.py`.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor

from glstm.gated import GatedLSTM, State
from glstm.times import as_tensor


def stream(
    layer: GatedLSTM,
    pieces: Iterable[Tensor],
    hx: State | None = None,
    *,
    start: float | None = None,
    times: Iterable[Any] | None = None,
    sequence: bool = True,
) -> Iterator[tuple[Tensor | None, State]]:
    """Feed pieces of one long sequence to the layer, one after the other; state and time continue.

    No gradients are recorded, and only the state is stored.

    Args:
        layer: A layer of one direction.
        pieces: Laid out like the layer's input, such as `x.split(100)`.
        hx: The state before the first piece; None: zeros.
        start: The time of the first step, if steps are counted; 1 if nothing is given.
        times: Those of each piece, as the layer takes them, increasing from piece to piece.
        sequence: False: outputs are None, as in a call of the layer.

    Yields:
        The output and the state, as `layer(piece)` returns them.
    """
    if layer.bidirectional:
        raise ValueError("a bidirectional layer reads a sequence from both ends, so it cannot be fed piece by piece")
    if isinstance(pieces, Tensor):
        raise ValueError("pieces must be several tensors, such as x.split(100), not the whole sequence as one")
    if isinstance(times, Tensor) or hasattr(times, "dtype"):
        raise ValueError("times must be those of each piece, such as times.split(100), not all of them as one")
    if times is not None and start is not None:
        raise ValueError("start is the time of the first step, if steps are counted: give it or times, not both")
    at = _counted(layer, 1 if start is None else start) if times is None else _given(layer, times)
    return _feed(layer, pieces, hx, at, sequence)


def _feed(layer: GatedLSTM, pieces: Iterable[Tensor], hx: State | None, times_of, sequence: bool):
    for piece in pieces:
        times = times_of(piece)
        with torch.no_grad():
            output, state = layer(piece, hx, times, sequence=sequence)
        hx = state
        yield output, state


def _steps_axis(layer: GatedLSTM, piece: Tensor) -> int:
    return 1 if layer.batch_first and piece.dim() == 3 else 0


def _counted(layer: GatedLSTM, start: float):
    before = 0

    def times_of(piece: Tensor) -> Tensor:
        nonlocal before
        steps = piece.shape[_steps_axis(layer, piece)]
        # float64: a float32 stops counting at 16.7 million steps
        times = start + before + torch.arange(steps, dtype=torch.float64, device=piece.device)
        before += steps
        return times

    return times_of


def _given(layer: GatedLSTM, times: Iterable[Any]):
    each, last = iter(times), None

    def times_of(piece: Tensor) -> Tensor:
        nonlocal last
        try:
            own = as_tensor(next(each))
        except StopIteration:
            raise ValueError("times must be those of each piece, but there are more pieces") from None
        axis = _steps_axis(layer, piece) if own.dim() == 2 else 0
        if own.dim() in (1, 2) and own.shape[axis]:
            if last is not None and not bool((own.select(axis, 0) > last).all()):
                raise ValueError("times must increase from piece to piece, but one begins before the last has ended")
            last = own.select(axis, -1)
        return own

    return times_of
