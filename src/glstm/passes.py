"""One pass through a stack of gated layers: of one network, or of several side by side.

Several networks of one shape are one network whose tensors have a leading model axis M: weights (M, 4H, D), tables of
openness (M, T, H), states (layers x directions, M, B, H), and the input too unless all read the same.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from torch import Tensor, cat, stack
from torch.nn.functional import dropout

from glstm.gates import Gate, apply_threshold
from glstm.ops import gated_lstm

if TYPE_CHECKING:
    from glstm.gated import GatedLSTM

State = tuple[Tensor, Tensor]


def table(
    gate: Gate, times: Tensor, unit: Mapping[str, Tensor], threshold: float | Tensor, training: bool, w_hh: Tensor
) -> Tensor:
    """k of one layer and direction, thresholded: (T, H), or (T, B, H) with times per sample.

    With a model axis the gate's values are (M, 1, H), the threshold is a number or (M, 1, 1), and k is (M, T, H).
    """
    k = apply_threshold(gate.openness(times, unit, training), threshold)
    return k.expand(*w_hh.shape[:-2], *times.shape, w_hh.shape[-1]).to(w_hh.dtype)


def run_layers(
    layer: "GatedLSTM",
    value: Callable[[str, str], Tensor],
    openness: Callable[[str], Tensor],
    x: Tensor,
    h0: Tensor,
    c0: Tensor,
    sequence: bool,
) -> tuple[Tensor | None, State]:
    """All layers and directions over x (T, B, D).

    `layer` says what there is; `value(name, suffix)` and `openness(suffix)` bring the numbers.
    """
    finals = []
    outputs: list[Tensor] = []
    for row, (depth, suffix) in enumerate(layer.places()):
        if outputs and row % layer.num_directions == 0:
            x = side_by_side(outputs)
            x = dropout(x, layer.dropout, layer.training) if layer.dropout else x
            outputs = []
        k, w_hh = openness(suffix), value("weight_hh", suffix)
        backwards = suffix.endswith("_reverse")
        result = gated_lstm(
            x.flip(-3) if backwards else x,
            value("weight_ih", suffix),
            w_hh,
            value("bias_ih", suffix) + value("bias_hh", suffix) if layer.bias else None,
            k.flip(w_hh.dim() - 2) if backwards else k,  # each step keeps the time of its input
            h0[row],
            c0[row],
            candidate=layer.candidate,
            sequence=sequence or depth < layer.num_layers - 1,
            backend=layer.backend,
            segment=layer.segment,
        )
        finals.append(result)
        if result.h is not None:
            outputs.append(result.h.flip(-3) if backwards else result.h)
    if len(finals) == 1:
        state = finals[0].h_n.unsqueeze(0), finals[0].c_n.unsqueeze(0)
    else:
        state = stack([one.h_n for one in finals]), stack([one.c_n for one in finals])
    return (side_by_side(outputs) if sequence else None), state


def side_by_side(outputs: list[Tensor]) -> Tensor:
    """What the directions of one layer, or their last states, say: (..., directions x H)."""
    return outputs[0] if len(outputs) == 1 else cat(outputs, -1)
