"""The backward loop of `reference.forward`, as derived in README.md: all gradients in one pass."""

from collections.abc import Sequence

import torch
from torch import Tensor

from glstm.ops.contract import Inputs
from glstm.ops.reference import GRU, forward

# The local derivatives ('slopes') do not depend on the incoming gradient, so they are computed for many steps at once,
# but only for so many that they stay in the cache.
BLOCK = 16


def make_tape(h: Tensor, c: Tensor, gates: Tensor, h0: Tensor, c0: Tensor) -> Tensor:
    """What `backward` needs of a forward pass: i, f, g, o, previous c, previous h (T, B, 6H).

    Of a GRU r, z, n and the candidate's sum over h are in the places of i, f, g, o.
    """
    steps = len(gates)
    previous_c, previous_h = torch.cat((c0[None], c))[:steps], torch.cat((h0[None], h))[:steps]
    return torch.cat((gates, previous_c, previous_h), -1)


class LSTMSlopes:
    """Of the steps of a block, all that does not depend on the gradients that arrive."""

    def __init__(self, tape: Tensor, open_c: Tensor, open_h: Tensor, candidate: str):
        self.open_c, self.keep_c, self.keep_h = open_c, 1 - open_c, 1 - open_h
        (i, self.f, g, o), self.c, self.h = _taken(tape, open_c, open_h)
        c_new = self.f * self.c + i * g
        squashed = c_new.tanh()
        self.of_c = open_h * o * (1 - squashed * squashed)  # dc~ / dh
        slope_g = 1 - g * g if candidate == "tanh" else g * (1 - g)
        self.of_ifg = torch.stack((g * i * (1 - i), self.c * self.f * (1 - self.f), i * slope_g), -2)  # da / dc~
        self.of_o = open_h * squashed * o * (1 - o)  # da_o / dh
        self.into_c, self.into_h = c_new - self.c, o * squashed - self.h

    def step(self, n: int, dh: Tensor, dc: Tensor, da: Tensor) -> tuple[Tensor, Tensor]:
        """Fills da, of the sums; dh and dc before the step, less what comes through the sums."""
        dc_new = self.open_c[n] * dc + self.of_c[n] * dh
        torch.mul(self.of_ifg[n], dc_new.unsqueeze(-2), out=da[:, :3])
        torch.mul(self.of_o[n], dh, out=da[:, 3])
        return self.keep_h[n] * dh, self.keep_c[n] * dc + self.f[n] * dc_new


class GRUSlopes:
    """The same of a GRU."""

    def __init__(self, tape: Tensor, open_c: Tensor, open_h: Tensor, rule: str):
        (r, z, n, of_h), self.c, self.h = _taken(tape, open_c, open_h)
        dn = open_h * (1 - z) * (1 - n * n)
        dz = open_h * (self.h - n) * z * (1 - z)
        self.of_sums = torch.stack((dn * of_h * r * (1 - r), dz, dn, dn * r), -2)
        self.keep = 1 - open_h + open_h * z
        self.into_c, self.into_h = torch.zeros_like(self.c), (1 - z) * (n - self.h)

    def step(self, n: int, dh: Tensor, dc: Tensor, da: Tensor) -> tuple[Tensor, Tensor]:
        torch.mul(self.of_sums[n], dh.unsqueeze(-2), out=da)
        return self.keep[n] * dh, dc


def _taken(tape: Tensor, open_c: Tensor, open_h: Tensor) -> tuple[list[Tensor], Tensor, Tensor]:
    """The gates, and the state before each step."""
    # A closed unit's gates are not used, and may be NaN if its input was NaN: they must have no effect.
    closed = (open_c == 0) & (open_h == 0)
    *gates, c, h = tape.chunk(6, -1)
    return [torch.where(closed, 0, gate) for gate in gates], c, h


def backward(dh_all, dh, dc, dc_all, x, w_ih, w_hh, k_c, k_h, tape, rule):
    """Gradients of x, w_ih, w_hh, b, k_c, k_h, h0, c0 from those of h, h_n, c_n, c; dh_all, dc_all may be None."""
    steps, batch, hidden = *x.shape[:2], w_hh.shape[1]
    da = x.new_empty(steps, batch, 4, hidden)
    dk_c, dk_h = torch.empty_like(k_c), torch.empty_like(k_h)
    for start in reversed(range(0, steps, BLOCK)):
        block = slice(start, start + BLOCK)
        # A table for the whole batch broadcasts over it.
        open_c, open_h = (k[block] if k.dim() == 3 else k[block].unsqueeze(1) for k in (k_c, k_h))
        slopes = (GRUSlopes if rule == GRU else LSTMSlopes)(tape[block], open_c, open_h, rule)
        dc_at, dh_at = torch.empty_like(slopes.c), torch.empty_like(slopes.h)
        for n in reversed(range(len(dh_at))):
            dh = dh if dh_all is None else dh + dh_all[start + n]
            dc = dc if dc_all is None else dc + dc_all[start + n]
            dh_at[n], dc_at[n] = dh, dc
            dh, dc = slopes.step(n, dh, dc, da[start + n])
            dh = torch.addmm(dh, da[start + n].flatten(1), w_hh)

        dk_c[block] = _gate_gradient(k_c[block], dc_at * slopes.into_c)
        dk_h[block] = _gate_gradient(k_h[block], dh_at * slopes.into_h)
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


def gradients_by_equations(gradients: Sequence[Tensor | None], inputs: Inputs, rule: str) -> tuple:
    """The gradients of the inputs, themselves differentiable: torch differentiates the equations."""
    present = [position for position, part in enumerate(inputs) if part is not None]

    def equations(*values):
        one = dict(zip(present, values, strict=True))
        x, w_ih, w_hh, b, k, k_h, h0, c0 = Inputs(*(one.get(position) for position in range(8)))  # pyright: ignore
        with torch.autocast(x.device.type, enabled=False):
            h, c, _ = forward(x, w_ih, w_hh, b, k, k if k_h is None else k_h, h0, c0, rule)
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
    second: Sequence[Tensor | None], gradients: Sequence[Tensor | None], inputs: Inputs, rule: str
) -> tuple:
    """The gradients of a loss that depends on the inputs' gradients, for the outputs' gradients and for the inputs.

    `second`: the gradients of that loss with respect to the inputs' gradients.
    """
    everything = (*gradients, *inputs)
    present = [position for position, part in enumerate(everything) if part is not None]

    def first(*values):
        one = dict(zip(present, values, strict=True))
        full = [one.get(position) for position in range(12)]
        found = gradients_by_equations(full[:4], Inputs(*full[4:]), rule)  # pyright: ignore[reportArgumentType]
        return tuple(part for part, reached in zip(found, second, strict=True) if reached is not None)

    pull_back = torch.func.vjp(first, *(everything[position] for position in present))[1]
    found = dict(zip(present, pull_back(tuple(part for part in second if part is not None)), strict=True))
    return tuple(found.get(position) for position in range(12))
