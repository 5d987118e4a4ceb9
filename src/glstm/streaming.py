"""`glstm.stream`: a layer reads a sequence of any length in pieces, with memory for one piece only.

State and time continue from one piece to the next. For a deployed network that takes one sample at a time, see
`glstm/runtime/stream.py`.
"""

from collections.abc import Iterable, Iterator

import torch
from torch import Tensor

from glstm.gated import GatedLSTM, State


def stream(
    layer: GatedLSTM, pieces: Iterable[Tensor], hx: State | None = None, *, start: float = 1, sequence: bool = True
) -> Iterator[tuple[Tensor | None, State]]:
    """Feed `pieces` of one long sequence, laid out like the layer's input, to the layer, one after the other.

    Yields for each piece what `layer(piece)` would return, with state and time continued: the first step of the first
    piece is at time `start`, and each step adds 1. No gradients are recorded, and only the state is stored.
    """
    if layer.bidirectional:
        raise ValueError("a bidirectional layer reads a sequence from both ends, so it cannot be fed piece by piece")
    if isinstance(pieces, Tensor):
        raise ValueError("pieces must be several tensors, such as x.split(100), not the whole sequence as one")
    return _feed(layer, pieces, hx, start, sequence)


def _feed(layer: GatedLSTM, pieces: Iterable[Tensor], hx: State | None, start: float, sequence: bool):
    steps_before = 0
    for piece in pieces:
        axis = 1 if layer.batch_first and piece.dim() == 3 else 0
        # float64: a float32 stops counting at 16.7 million steps
        times = start + steps_before + torch.arange(piece.shape[axis], dtype=torch.float64, device=piece.device)
        with torch.no_grad():
            output, state = layer(piece, hx, times, sequence=sequence)
        steps_before += piece.shape[axis]
        hx = state
        yield output, state
