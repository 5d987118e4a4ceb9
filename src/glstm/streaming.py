"""A sequence of any length, piece by piece: memory for one piece, and the time goes on from one to the next."""

from collections.abc import Iterable, Iterator

import torch
from torch import Tensor

from glstm.gated import GatedLSTM, State


def stream(
    layer: GatedLSTM, pieces: Iterable[Tensor], hx: State | None = None, *, start: float = 1, sequence: bool = True
) -> Iterator[tuple[Tensor | None, State]]:
    """Feed `pieces` of one long sequence, laid out like the layer's input, to the layer, one after the other.

    Yields for each piece what `layer(piece)` would return, with state and time carried on: the first step of the first
    piece is at time `start`, and time grows by 1 a step. No gradients are recorded, and nothing but the state is kept.
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
