"""What the published cells of this folder have in common: `torch.nn.LSTM`'s calling convention around one layer's rule.

A cell says what a layer has (`make_layer`) and what it does with a sequence (`run_layer`); one whose layers cannot run
one after the other gives `run_stack` instead. Here are the layouts, packed sequences, the stack of layers, the dropout
between them, and the state that goes from one piece of a sequence to the next. Shapes: T steps, B samples, D inputs, H
units.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import dropout
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from glstm.analysis.operations import count_ops
from glstm.errors import ShapeError, UserError
from glstm.lengths import checked_lengths, real_steps, without_padding
from glstm.ops.side_by_side import batched, for_all, spread

State = tuple[Tensor, ...]
"""What a cell carries from step to step, in parts; the first is h."""


class Recurrent(nn.Module, ABC):
    """A stack of layers of one direction, called as `torch.nn.LSTM` is: x (T, B, D) in, output (T, B, H) and state out.

    The state is all that is needed to go on with the next piece of a sequence: `state` names its parts, of
    which the first is h. With one part it is a tensor (layers, B, H), as `torch.nn.GRU`'s is, else a tuple.
    """

    state: ClassVar[tuple[str, ...]] = ("h",)
    # Parts of the state that count steps: int64 whatever the type of x, of which bfloat16 stops at 256.
    counters: ClassVar[tuple[str, ...]] = ()
    # What a call leaves behind. It may hold a whole graph, so that a copy or a file of the cell goes without it.
    of_last_call: ClassVar[tuple[str, ...]] = ()
    takes_lengths: ClassVar[bool] = False  # whether padding would change what it computes, as by statistics of a batch

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
    ):
        for name, value in (("input_size", input_size), ("hidden_size", hidden_size), ("num_layers", num_layers)):
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise UserError(f"{name} must be a whole number of at least 1, not {value!r:.50}")
        if isinstance(dropout, bool) or not isinstance(dropout, int | float) or not 0 <= dropout < 1:
            raise UserError(f"dropout is a probability of at least 0 and below 1, not {dropout!r:.50}")
        super().__init__()
        self.input_size, self.hidden_size, self.num_layers = input_size, hidden_size, num_layers
        self.bias, self.batch_first, self.dropout = bias, batch_first, float(dropout)
        self.layers = nn.ModuleList(
            self.make_layer(input_size if number == 0 else hidden_size) for number in range(num_layers)
        )

    @abstractmethod
    def make_layer(self, inputs: int) -> nn.Module:
        """A layer's values, with their published start. Options of a cell are set before `super().__init__`."""

    @abstractmethod
    def count_ops(self, steps: int, updates: float = 1.0) -> float:
        """Operations of one sequence through all layers, counted as in `glstm/analysis/operations.py`: a multiply or an
        add is one, a nonlinear function five. `updates` is the share of steps that a skipping cell does not skip."""

    def run_layer(self, layer: Any, x: Tensor, state: State, valid: Tensor | None) -> tuple[Tensor, State]:
        """Output (T, B, H) and final state of x (T, B, D). `valid` (T, B): where it is False the sample has ended, and
        its state stays as it was; x is 0 there, and the output means nothing."""
        raise NotImplementedError(f"{type(self).__name__} must have its own run_layer, or its own run_stack")

    def run_stack(self, x: Tensor, states: list[Tensor] | None, valid: Tensor | None) -> tuple[Tensor, list[Tensor]]:
        """Output (T, B, H) of all layers and the parts of their final state, as `shape_of` says, from x (T, B, D) and
        the parts before it, None for the first ones. `valid` as in `run_layer`: here, the layers one after the other.
        """
        states = list(map(partial(self._first, x), self.state)) if states is None else states
        befores = zip(*map(self._by_layer, self.state, states), strict=True)
        finals: list[State] = []
        for number, (layer, before) in enumerate(zip(self.layers, befores, strict=True)):
            x, after = self.run_layer(layer, x, before, valid)
            finals.append(after)
            if self.dropout and number + 1 < self.num_layers:
                x = self.drop(x, number)
        return x, list(map(self._of_layers, self.state, zip(*finals, strict=True)))

    @property
    def widths(self) -> tuple[int, ...]:
        """How many inputs each layer has."""
        return (self.input_size, *[self.hidden_size] * (self.num_layers - 1))

    def lstm_ops(self, steps: int) -> float:
        """Operations of an LSTM of this size."""
        return sum(count_ops(steps, self.hidden_size, inputs) for inputs in self.widths)

    def width_of(self, part: str) -> int:
        """Numbers that a sample has of this part of the state in a layer; in all layers, where `widths_of` is given."""
        return self.hidden_size

    def widths_of(self, part: str) -> list[int] | None:
        """Each layer's width of a part that is not as wide in all of them. It is one tensor (1, B, sum of widths)."""
        return None

    def shape_of(self, part: str, batch: int) -> tuple[int, int, int]:
        """Of this part of the state, in all layers."""
        return (self.num_layers if self.widths_of(part) is None else 1, batch, self.width_of(part))

    def first_state(self, part: str, batch: int, like: Tensor) -> Tensor:
        """(B, width) before the first step."""
        return like.new_zeros(batch, self.width_of(part), dtype=torch.int64 if part in self.counters else None)

    def drop(self, x: Tensor, number: int) -> Tensor:
        """Dropout of the output (T, B, H) of a layer that another follows."""
        return dropout(x, self.dropout, self.training)

    def forward(
        self,
        input: Tensor | PackedSequence,
        hx: Tensor | Sequence[Tensor] | None = None,
        *,
        lengths: Any = None,
    ) -> tuple[Tensor | PackedSequence, Tensor | State]:
        """As `torch.nn.LSTM`: (T, B, D), or (B, T, D) with batch_first, or (T, D) of one sequence, or packed.

        `lengths` (B,), a tensor, an array or a list, say the same of a padded tensor as packing does, but without a
        look at them if they are on a GPU. A length may be 0: the state stays as it was.
        """
        if isinstance(input, PackedSequence):
            if lengths is not None:
                raise UserError("a PackedSequence knows its own lengths: give lengths beside a padded tensor only")
            return self._forward_packed(input, hx)
        self._check(input)
        batched = input.dim() == 3
        x = input if batched else input.unsqueeze(1)
        x = x.transpose(0, 1) if batched and self.batch_first else x
        if lengths is not None:
            lengths = checked_lengths(lengths, len(x), x.shape[1], x.device, least=0)
        output, parts = self._run_padded(x, self._given(hx, x, batched), lengths)
        if not batched:
            return output.squeeze(1), self._as_state([part.squeeze(1) for part in parts])
        return output.transpose(0, 1) if self.batch_first else output, self._as_state(parts)

    def _forward_packed(self, packed: PackedSequence, hx) -> tuple[PackedSequence, Tensor | State]:
        order, back = packed.sorted_indices, packed.unsorted_indices
        x, lengths = pad_packed_sequence(PackedSequence(packed.data, packed.batch_sizes))
        self._check(x)
        states = self._given(hx, x, batched=True)
        if states is not None and order is not None:
            states = [part[:, order] for part in states]
        output, parts = self._run_padded(x, states, lengths)
        if back is not None:
            parts = [part[:, back] for part in parts]
        data = pack_padded_sequence(output, lengths).data
        return PackedSequence(data, packed.batch_sizes, order, back), self._as_state(parts)

    def _run_padded(
        self, x: Tensor, states: list[Tensor] | None, lengths: Tensor | None
    ) -> tuple[Tensor, list[Tensor]]:
        if lengths is None:
            return self.run_stack(x, states, None)
        valid = real_steps(len(x), lengths, x.device)
        return self.run_stack(without_padding(x, valid), states, valid)

    def _first(self, x: Tensor, part: str) -> Tensor:
        rows, batch, _ = self.shape_of(part, x.shape[1])
        return torch.stack([self.first_state(part, batch, x) for _ in range(rows)])

    def _by_layer(self, part: str, values: Tensor) -> tuple[Tensor, ...]:
        """Each layer's (B, width)."""
        widths = self.widths_of(part)
        return values.unbind() if widths is None else values[0].split(widths, -1)

    def _of_layers(self, part: str, values: State) -> Tensor:
        return torch.stack(values) if self.widths_of(part) is None else torch.cat(values, -1).unsqueeze(0)

    def _as_state(self, parts: list[Tensor]) -> Tensor | State:
        return parts[0] if len(self.state) == 1 else tuple(parts)

    def _check(self, x: Tensor) -> None:
        if not isinstance(x, Tensor):
            raise TypeError(f"the input must be a tensor or a PackedSequence, not {type(x).__name__}")
        if x.dim() not in (2, 3) or x.shape[-1] != self.input_size:
            layout = "(B, T, D)" if self.batch_first else "(T, B, D)"
            raise ShapeError(
                f"the input must be {layout}, or (T, D) for one sequence, with D = {self.input_size}, "
                f"but has shape {tuple(x.shape)}"
            )

    def _given(self, hx: Tensor | Sequence[Tensor] | None, x: Tensor, batched: bool) -> list[Tensor] | None:
        """The parts of a state (layers, B, width) that a caller gave."""
        if hx is None:
            return None
        names = ", ".join(self.state)
        parts = [hx] if isinstance(hx, Tensor) else list(hx) if isinstance(hx, Sequence) else []
        if not parts or not all(isinstance(part, Tensor) for part in parts):
            raise TypeError(f"the state must be a tensor, or a tuple of its parts ({names}), not {hx!r:.50}")
        if len(parts) != len(self.state):
            count = f"{len(parts)} {'is' if len(parts) == 1 else 'are'} given"
            raise UserError(f"the state has {len(self.state)} part{'s' * (len(self.state) > 1)}, {names}, and {count}")
        parts = parts if batched else [part.unsqueeze(1) for part in parts]
        for name, part in zip(self.state, parts, strict=True):
            expected = self.shape_of(name, x.shape[1])
            if tuple(part.shape) != expected:
                raise ShapeError(f"{name} must have shape {expected} here, but has {tuple(part.shape)}")
        return [part.long() if name in self.counters else part for name, part in zip(self.state, parts, strict=True)]

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name not in self.of_last_call}

    def extra_repr(self) -> str:
        layers = f", num_layers={self.num_layers}" if self.num_layers > 1 else ""
        return f"{self.input_size}, {self.hidden_size}{layers}"


def check_flag(name: str, value: object) -> None:
    """Any text is true, also 'no': an option that is yes or no must be a bool."""
    if not isinstance(value, bool):
        raise UserError(f"{name} must be True or False, not {value!r:.50}")


def step_by_step(
    step: Callable[..., Sequence[Tensor]], x: Tensor, state: State, valid: Tensor | None
) -> tuple[Tensor, State]:
    """A loop over the steps, for rules that nothing faster computes: step(x_n, *state) is the new state, h first."""
    outputs = []
    for n, x_n in enumerate(x.unbind()):
        new = step(x_n, *state)
        state = tuple(new) if valid is None else held(valid[n], new, state)
        outputs.append(state[0])
    return torch.stack(outputs) if outputs else x.new_empty(0, *state[0].shape), state


def with_product(
    step: Callable[..., Sequence[Tensor]],
    drive: Tensor,
    weight: Tensor,
    state: State,
    valid: Tensor | None,
    samples_last: bool = False,
) -> tuple[Tensor, State]:
    """A loop over the steps with a recurrent product: step(sums, *state), where sums (B, N) = drive_n + h_{n-1}
    weight^T.

    The gradient of the weight (N, H) is one product after the loop, not one at each step. `samples_last`: sums are a
    view of (N, B) in memory, for a step that adds over the samples and returns such states, too.
    """
    before: list[Tensor] = []
    constant = weight.detach()

    def one(drive_n: Tensor, h: Tensor, *others: Tensor) -> Sequence[Tensor]:
        return step(add_product(drive_n, h, constant, before, samples_last), h, *others)

    return step_by_step(one, deferred(drive, weight, before), state, valid)


def add_product(
    drive: Tensor, factor: Tensor, constant: Tensor, before: list[Tensor], samples_last: bool = False
) -> Tensor:
    """drive (B, N) + factor (B, H) constant^T, with a detached weight (N, H). The factor goes to `before`: see
    `deferred`. Networks that torch.vmap calls together have one product for all."""
    if batched(drive, factor, constant):

        def run(size: int, shared: list[bool], *tensors: Tensor) -> list[Tensor]:
            drive, factor, constant = spread(size, shared, tensors)
            before.append(factor.detach())
            if samples_last:
                return [torch.baddbmm(drive.mT, constant, factor.mT).mT]
            return [torch.baddbmm(drive, factor, constant.mT)]

        return for_all(run, drive, factor, constant)[0]
    before.append(factor.detach())
    return torch.addmm(drive.T, constant, factor.T).T if samples_last else torch.addmm(drive, factor, constant.T)


def deferred(drive: Tensor, weight: Tensor, before: list[Tensor]) -> Tensor:
    """The drive (T, B, N) as it is, for a loop that adds to drive_n a product with the detached weight (N, H), and
    appends to `before` what it multiplied (B, H): the weight gets its gradient after the loop. Of networks that
    torch.vmap calls together, `before` has all of them: `add_product` and `of_all` see to that."""
    if batched(drive, weight):

        def run(size: int, shared: list[bool], *tensors: Tensor) -> list[Tensor]:
            return [_Deferred.apply(*spread(size, shared, tensors), before)]  # pyright: ignore[reportReturnType]

        return for_all(run, drive, weight)[0]
    return _Deferred.apply(drive, weight, before)  # pyright: ignore[reportReturnType]


class _Deferred(torch.autograd.Function):
    """The drive (T, B, N), or (M, T, B, N) of M networks, as it is; its gradient is also that of all sums, from which
    the weight's follows."""

    @staticmethod
    def forward(ctx: Any, drive: Tensor, weight: Tensor, before: list[Tensor]) -> Tensor:
        ctx.before = before
        ctx.save_for_backward(weight)
        return drive.view_as(drive)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor | None, None]:
        (slopes,), (weight,) = gradients, ctx.saved_tensors
        if not ctx.needs_input_grad[1]:
            return slopes, None, None
        factors = torch.stack(ctx.before, -3).flatten(-3, -2) if ctx.before else weight[..., :0, :]
        return *_Once.apply(slopes, factors.to(slopes.dtype), weight), None


class _Once(torch.autograd.Function):
    """The gradients of the drive and of the weight, which cannot be differentiated again: what was multiplied, and the
    weight, are constants in the loop. torch's `once_differentiable` is not enough: `torch.autograd.grad` goes around
    it, because its result depends on no input. This one has the weight as an input."""

    @staticmethod
    def forward(ctx: Any, slopes: Tensor, before: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        return slopes.view_as(slopes), slopes.flatten(-3, -2).mT @ before

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> None:
        raise RuntimeError("this cell has first derivatives only, and a gradient of its gradients was asked for")


def after_last(h: Tensor, h0: Tensor, valid: Tensor | None) -> Tensor:
    """Of all h (T, B, H), each sample's after its last step; h0 (B, H), if it has none."""
    if not len(h):
        return h0
    if valid is None:
        return h[-1]
    lengths = valid.sum(0)[:, None]
    last = h.gather(0, (lengths - 1).clamp(min=0).expand(-1, h.shape[-1]).unsqueeze(0)).squeeze(0)
    return torch.where(lengths > 0, last, h0)


def held(valid: Tensor, new: Sequence[Tensor], old: Sequence[Tensor]) -> State:
    """The new state (B, width) of samples that have not ended, the old of the others."""
    return tuple(torch.where(valid.unsqueeze(-1), one, before) for one, before in zip(new, old, strict=True))
