"""The operator in torch's own operators: one scan over the steps, of any length.

For programs that will run where glstm is not: a Python loop over the steps would fix their number.
"""

import torch
from torch import Tensor

from glstm.errors import UserError
from glstm.ops import registered
from glstm.ops.contract import Inputs, Made
from glstm.ops.reference import open_step


def portable(program: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    """A program of `torch.export` in which torch's own operators stand for glstm's: it runs without this package.

    Other programs take it then, such as ExecuTorch. It computes the same, but slowly: a step of the scan is a few small
    operations.
    """
    if not isinstance(program, torch.export.ExportedProgram):
        raise UserError(
            f"portable takes what torch.export.export returns, not {type(program).__name__}: export the model first"
        )
    return program.run_decompositions({registered.forward._opoverload: _decomposed})


def scan(inputs: Inputs, rule: str, sequence: bool, cells: bool) -> Made:
    """The forward pass; what was not requested is None."""
    x, w_ih, w_hh, b, k, k_h, h0, c0 = inputs
    drive = x @ w_ih.T if b is None else x @ w_ih.T + b
    tables = [k] if k_h is None else [k, k_h]
    tables = [one if one.dim() == 3 else one.unsqueeze(1) for one in tables]

    def step(h: Tensor, c: Tensor, drive_n: Tensor, *rest: Tensor) -> list[Tensor]:
        *opened, w = rest
        h_new, c_new, _ = open_step(drive_n + h @ w, h, c, rule)
        h, c = _mixed(opened[-1], h_new, h), _mixed(opened[0], c_new, c)
        return [h, c, h.clone(), *([c.clone()] if cells else [])]  # something for every step, or ONNX's exporter warns

    # Copies, because a scan takes no tensor twice, and returns none.
    state = [h0.clone(), c0.clone()]
    h_n, c_n, *made = torch.ops.higher_order.scan(step, state, [drive, *tables], (w_hh.T.contiguous(),))
    return Made(made[0] if sequence else None, h_n, c_n, made[-1] if cells else None, None)


def _mixed(k: Tensor, new: Tensor, old: Tensor) -> Tensor:
    """Exactly old where k is 0. Fewer operations than `reference.mix`, of which each costs time at every step."""
    return old + k * (new - old)


def _decomposed(*arguments) -> tuple[Tensor, ...]:
    """The registered operator, with its signature: no tape, because an exported program is for inference."""
    *tensors, rule, sequence, cells, taped = arguments[:12]
    if taped:
        raise UserError("portable takes a program for inference: export the model in evaluation, without gradients")
    x: Tensor = tensors[0]
    made = scan(Inputs(*tensors), rule, sequence, cells)
    h, c = (x.new_empty(0) if part is None else part for part in (made.h, made.c))
    return h, made.h_n, made.c_n, c, x.new_empty(0), x.new_empty(0, dtype=torch.int64)
