"""`gated_gru`: torch's GRU as another rule of the operator behind `gated_lstm`.

An LSTM has four weighted sums for each unit, a GRU three, of which the candidate's is in two parts: r is between what
it sums over x and over h. So a GRU has four sums, too, with zeros for the weights of h in the one and of x in the
other, and all that is not within a unit is the LSTM's: products, layouts, tapes, models side by side.
"""

import torch
from torch import Tensor

from glstm.errors import ShapeError
from glstm.ops import reference_backend
from glstm.ops.backends import check_backend, choose
from glstm.ops.contract import Inputs
from glstm.ops.onnx_export import tracing
from glstm.ops.operator import autocasting, compute
from glstm.ops.reference import GRU


def gated_gru(
    x: Tensor,
    w_ih: Tensor,
    w_hh: Tensor,
    b_ih: Tensor | None,
    b_hh: Tensor | None,
    h0: Tensor,
    *,
    k: Tensor | None = None,
    sequence: bool = True,
    backend: str = "auto",
) -> tuple[Tensor | None, Tensor]:
    """Run a GRU; without k, or with k = 1 everywhere, it is `torch.nn.GRU`.

    Several models: as for `gated_lstm`, all but x may have a leading model axis, and x, too.

    Args:
        x: (T, B, D).
        w_ih: (3H, D), in torch's order r z n.
        w_hh: (3H, H).
        b_ih: (3H), or None.
        b_hh: (3H), or None, if the other is None.
        h0: (B, H).
        k: How open each unit is at each step, (T, H), or (T, B, H) for each sample its own; a zero copies the old h bit
            for bit. None: all are open.
        sequence: False: h after each step is left out.
        backend: "auto" takes the fastest that can run these tensors; or one of `BACKENDS`.

    Returns:
        h after every step (T, B, H), or None, and h after the last step (B, H).
    """
    check_backend(backend)
    hidden = w_hh.shape[-1]
    for name, part, axis in (("w_ih", w_ih, -2), ("w_hh", w_hh, -2), ("b_ih", b_ih, -1), ("b_hh", b_hh, -1)):
        if part is not None and not tracing() and part.shape[axis] != 3 * hidden:
            raise ShapeError(f"{name} must have 3H = {3 * hidden} rows, but has shape {tuple(part.shape)}")
    if (b_ih is None) != (b_hh is None):
        raise ValueError("a GRU has both biases, or none")
    if k is None:
        k = w_hh.new_ones(*w_hh.shape[:-2], x.shape[-3], hidden)
    # There is no cell. The operator hands its c through, so any tensor of the right form serves.
    inputs = Inputs(x, *as_four_sums(w_ih, w_hh, b_ih, b_hh), k, None, h0, h0.detach())
    h, h_n, _, _ = compute(inputs, GRU, sequence, False, backend)
    return h, h_n


def as_four_sums(
    w_ih: Tensor, w_hh: Tensor, b_ih: Tensor | None, b_hh: Tensor | None
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Weights (4H, D) and (4H, H) and one bias (4H): r, z, the candidate's sum over x, and that over h."""
    *gates, n = w_hh.chunk(3, -2)
    w_hh = torch.cat((*gates, torch.zeros_like(n), n), -2)
    w_ih = torch.cat((w_ih, w_ih.new_zeros(*n.shape[:-1], w_ih.shape[-1])), -2)
    if b_ih is None or b_hh is None:
        return w_ih, w_hh, None
    size = n.shape[-2]
    both = b_ih[..., : 2 * size] + b_hh[..., : 2 * size]
    return w_ih, w_hh, torch.cat((both, b_ih[..., 2 * size :], b_hh[..., 2 * size :]), -1)


def has_engine(x: Tensor, w_hh: Tensor) -> bool:
    """Whether an engine computes a GRU of this size on such tensors, and not the reference."""
    x = x.to(w_hh.dtype) if autocasting(x.device) else x
    return choose("auto", x, None, GRU, w_hh.shape[-1]) is not reference_backend
