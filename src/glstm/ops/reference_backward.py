"""The backward loop of `reference.forward`, as derived in README.md: all gradients in one pass."""

from collections.abc import Sequence

import torch
from torch import Tensor

from glstm.ops.contract import Inputs
from glstm.ops.reference import forward

# The local derivatives ('slopes') do not depend on the incoming gradient, so they are computed for many steps at once,
# but only for so many that they stay in the cache.
BLOCK = 16


def make_tape(h: Tensor, c: Tensor, gates: Tensor, h0: Tensor, c0: Tensor) -> Tensor:
    """What `backward` needs of a forward pass: i, f, g, o, previous c, previous h (T, B, 6H)."""
    steps = len(gates)
    previous_c, previous_h = torch.cat((c0[None], c))[:steps], torch.cat((h0[None], h))[:steps]
    return torch.cat((gates, previous_c, previous_h), -1)


def backward(dh_all, dh, dc, dc_all, x, w_ih, w_hh, k_c, k_h, tape, candidate):
    """Gradients of x, w_ih, w_hh, b, k_c, k_h, h0, c0 from those of h, h_n, c_n, c; dh_all, dc_all may be None."""
    steps, batch, hidden = *x.shape[:2], w_hh.shape[1]
    da = x.new_empty(steps, batch, 4, hidden)
    dk_c, dk_h = torch.empty_like(k_c), torch.empty_like(k_h)
    for start in reversed(range(0, steps, BLOCK)):
        block = slice(start, start + BLOCK)
        # A table for the whole batch broadcasts over it.
        open_c, open_h = (k[block] if k.dim() == 3 else k[block].unsqueeze(1) for k in (k_c, k_h))
        keep_c, keep_h = 1 - open_c, 1 - open_h
        # A closed unit's gates are not used, and may be NaN if its input was NaN: they must have no effect.
        closed = (open_c == 0) & (open_h == 0)
        i, f, g, o = (torch.where(closed, 0, gate) for gate in tape[block].chunk(6, -1)[:4])
        c, h = tape[block].chunk(6, -1)[4:]
        c_new = f * c + i * g
        squashed = c_new.tanh()
        slope_c = open_h * o * (1 - squashed * squashed)  # dc~ / dh
        slope_g = 1 - g * g if candidate == "tanh" else g * (1 - g)
        slope_ifg = torch.stack((g * i * (1 - i), c * f * (1 - f), i * slope_g), -2)  # da / dc~
        slope_o = open_h * squashed * o * (1 - o)  # da_o / dh

        dc_at, dh_at = torch.empty_like(c), torch.empty_like(h)
        for n in reversed(range(len(f))):
            dh = dh if dh_all is None else dh + dh_all[start + n]
            dc = dc if dc_all is None else dc + dc_all[start + n]
            dh_at[n], dc_at[n] = dh, dc
            dc_new = open_c[n] * dc + slope_c[n] * dh
            torch.mul(slope_ifg[n], dc_new.unsqueeze(-2), out=da[start + n, :, :3])
            torch.mul(slope_o[n], dh, out=da[start + n, :, 3])
            dh = torch.addmm(keep_h[n] * dh, da[start + n].flatten(1), w_hh)
            dc = keep_c[n] * dc + f[n] * dc_new

        dk_c[block] = _gate_gradient(k_c[block], dc_at * (c_new - c))
        dk_h[block] = _gate_gradient(k_h[block], dh_at * (o * squashed - h))
    da = da.flatten(2)
    any_open = _any_unit_open(k_c) | _any_unit_open(k_h)
    x = torch.where(any_open, x, 0)
    flat, previous_h = da.flatten(0, 1), tape[..., 5 * hidden :].flatten(0, 1)
    return da @ w_ih, flat.T @ x.flatten(0, 1), flat.T @ previous_h, flat.sum(0), dk_c, dk_h, dh, dc


def _any_unit_open(k: Tensor) -> Tensor:
    """(T, 1, 1), or (T, B, 1) with one table per sample."""
    k = k if k.dim() == 3 else k.unsqueeze(1)
    return (k != 0).any(-1, keepdim=True)


def _gate_gradient(k: Tensor, dk: Tensor) -> Tensor:
    """Summed over the batch if one table is used for all samples; zero where the unit is closed."""
    return torch.where(k == 0, 0, dk.sum(1) if k.dim() == 2 else dk)


def gradients_by_equations(gradients: Sequence[Tensor | None], inputs: Inputs, candidate: str) -> tuple:
    """The gradients of the inputs, themselves differentiable: torch differentiates the equations."""
    present = [position for position, part in enumerate(inputs) if part is not None]

    def equations(*values):
        one = dict(zip(present, values, strict=True))
        x, w_ih, w_hh, b, k, k_h, h0, c0 = Inputs(*(one.get(position) for position in range(8)))  # pyright: ignore
        with torch.autocast(x.device.type, enabled=False):
            h, c, _ = forward(x, w_ih, w_hh, b, k, k if k_h is None else k_h, h0, c0, candidate)
        h_n, c_n = (h[-1], c[-1]) if x.shape[0] else (h0, c0)
        return tuple(out for out, grad in zip((h, h_n, c_n, c), gradients, strict=True) if grad is not None)

    run = equations
    if inputs.w_hh.dim() == 3:
        axes = tuple(None if position == 0 and inputs.x.dim() == 3 else 0 for position in present)
        run = torch.vmap(equations, in_dims=axes)
    pull_back = torch.func.vjp(run, *(inputs[position] for position in present))[1]
    found = dict(zip(present, pull_back(tuple(grad for grad in gradients if grad is not None)), strict=True))
    return tuple(found.get(position) for position in range(8))


def second_derivatives(
    second: Sequence[Tensor | None], gradients: Sequence[Tensor | None], inputs: Inputs, candidate: str
) -> tuple:
    """The gradients of a loss that depends on the inputs' gradients, for the outputs' gradients and for the inputs.

    `second`: the gradients of that loss with respect to the inputs' gradients.
    """
    everything = (*gradients, *inputs)
    present = [position for position, part in enumerate(everything) if part is not None]

    def first(*values):
        one = dict(zip(present, values, strict=True))
        full = [one.get(position) for position in range(12)]
        found = gradients_by_equations(full[:4], Inputs(*full[4:]), candidate)  # pyright: ignore[reportArgumentType]
        return tuple(part for part, reached in zip(found, second, strict=True) if reached is not None)

    pull_back = torch.func.vjp(first, *(everything[position] for position in present))[1]
    found = dict(zip(present, pull_back(tuple(part for part in second if part is not None)), strict=True))
    return tuple(found.get(position) for position in range(12))
