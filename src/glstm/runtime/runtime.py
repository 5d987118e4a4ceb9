"""`deploy`: a trained network, with everything computed that can be computed before the first sample arrives."""

import sys
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from operator import index
from typing import Any, overload

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from glstm.errors import UserError
from glstm.gated import GatedLSTM
from glstm.gates import check_threshold
from glstm.models import SequenceModel
from glstm.ops import gated_lstm
from glstm.runtime.energy import Energy, energy_of
from glstm.runtime.plan import LayerPlan, Plan, constant_bytes, make_plan
from glstm.runtime.prepared import Prepared
from glstm.runtime.stream import KnownStream, Network, Stream
from glstm.runtime.timed_plan import make_timed_plan
from glstm.runtime.windows import Windows
from glstm.times import as_times, count_up

MOST_PREPARED = 16  # shapes of x that are remembered

Reads = str | Sequence[int]  # "last", "every", or the numbers of steps, counted from 1


@dataclass(frozen=True)
class Memory:
    """Bytes: of constant data, which a microcontroller keeps in flash, and of one stream's state."""

    constant: int
    state: int


def deploy(
    model: SequenceModel,
    steps: int | Tensor | np.ndarray | Sequence[float] | None = None,
    threshold: float | None = None,
    *,
    reads: Reads | None = None,
) -> "Runtime":
    """A trained network for use: units that never open are removed, and which unit is open when is fixed.

    Args:
        model: A gated layer of glstm and its head.
        steps: How many there are, at times 1, 2, ...; or the times of the steps themselves, increasing, in the unit of
            the gates' mu and sigma. Of a task, `task.schedule()` is the right one. None: nobody knows them yet. Streams
            then have no end, as far as the gates come back, and take samples at any times: `stream.step(x_t, t)`.
        threshold: Units at k <= threshold are closed; None: the layer's own.
        reads: When the head reads: at the "last" step, at "every" step, or at the steps given, counted from 1. None: as
            the model does, but in a stream without known steps after every sample, for each may be the last. With
            "last" it reads there only where `output()` asks. A model that reads the mean or the maximum of all steps
            reads that of the steps so far.

    Examples:
        ```python
        import torch

        import glstm

        model = glstm.SequenceModel(glstm.GLSTM(3, 16, mu=(1, 50), sigma=4.0), torch.nn.Linear(16, 2)).eval()
        runtime = glstm.deploy(model, steps=50, threshold=0.01)
        stream = runtime.stream()
        for x_t in torch.randn(50, 3).numpy():
            y = stream.step(x_t)  # None until the last step
        ```
    """
    if not isinstance(model, SequenceModel) or type(model).forward is not SequenceModel.forward:
        raise UserError(f"deploy takes a SequenceModel, a layer and its head, not {type(model).__name__}")
    if not isinstance(model.layer, GatedLSTM):
        kind = type(model.layer).__name__
        raise UserError(f"deploy takes a GLSTM, PLSTM, LSTM or GatedLSTM of glstm and its head, not a {kind}")
    threshold = check_threshold(model.layer.threshold if threshold is None else threshold)
    if steps is None:
        return _without_steps(model, threshold, reads)
    times = _times(steps)
    if _is_number(steps):
        _require_counted(model.layer, len(times))
    else:
        model.layer.warn_of_new_times([times])
    if reads is None:
        reads = "every" if model.reads == "every" else "last"
    elif model.layer.bidirectional and (model.reads == "every") == (isinstance(reads, str) and reads == "last"):
        raise UserError(
            "a bidirectional layer has read the whole window before the head reads, so it reads as in the model, "
            f"{model.reads!r}, or, of every step, at steps of your choice, not {_what(reads)}"
        )
    at = None if isinstance(reads, str) and reads == "last" else _steps_read(reads, len(times))
    # Of both directions, what the head reads at a step is known for all steps at once.
    every = (model.layer.bidirectional and model.reads == "every") or (isinstance(reads, str) and reads == "every")
    return Runtime(make_plan(model, times, threshold, every=every), at, model.layer.batch_first)


def _without_steps(model: SequenceModel, threshold: float, reads: Reads | None) -> "Runtime":
    from glstm.runtime.timed_runtime import TimedRuntime  # which is a Runtime

    named = reads is None or isinstance(reads, str)
    at = None if named and reads in (None, "last", "every") else _steps_read(reads, sys.maxsize)
    every = reads == "every" or (reads is None and model.reads == "every")
    plan = make_timed_plan(model, threshold, every=every)
    return TimedRuntime(plan, at, model.layer.batch_first, every=every or reads is None)


def _is_number(steps: Any) -> bool:
    return hasattr(steps, "__index__") and not isinstance(steps, Tensor | np.ndarray | bool | np.bool_)


def _require_counted(layer: GatedLSTM, steps: int) -> None:
    """Gates that have learned other times than 1, 2, ... would open at wrong steps, and nothing else would show it."""
    if layer.gate.names and layer.seen is not None and not layer.seen.counted:
        raise UserError(
            f"{steps} steps stand for the times 1 to {steps}, but the network was trained at times from "
            f"{layer.seen.in_words}: give the times of the steps instead of their number; of a task they are "
            "task.schedule()"
        )


def _times(steps: Any) -> Tensor:
    if _is_number(steps):
        count = index(steps)
        if count < 1:
            raise UserError(f"steps must be at least 1, not {count}")
        return count_up(count, torch.device("cpu"))
    return increasing_times(steps)


def increasing_times(steps: Any) -> Tensor:
    """Of anything that holds the times of steps: float64 (T,)."""
    try:
        times = np.asarray(_as_numpy(steps) if isinstance(steps, Tensor) else steps)
    except (TypeError, ValueError):  # such as rows of different lengths
        times = np.asarray(None)
    if times.dtype.kind not in "iuf" or times.ndim == 0:
        raise UserError(
            "steps must be a number of steps, such as 784, or their times, one increasing row of numbers, not "
            f"{_what(steps)}"
        )
    if times.ndim > 1:
        raise UserError(
            "the times of the steps must be one increasing row of numbers, one a step, the same for all samples, but "
            f"these have shape {times.shape}"
        )
    times = times.astype(np.float64)
    if len(times) == 0 or not (np.diff(times) > 0).all():
        raise UserError("the times of the steps must be one increasing row of numbers, one a step")
    return as_times(torch.from_numpy(times), len(times), 1, False, torch.device("cpu"))


def _as_numpy(tensor: Tensor) -> np.ndarray:
    """Of floats of any width, which numpy may not have."""
    tensor = tensor.detach().cpu()
    return (tensor.double() if tensor.is_floating_point() else tensor).numpy()


def _what(value: Any) -> str:
    """A value that is not what it should be, in few words."""
    short = repr(value)
    return short if len(short) <= 40 and "\n" not in short else f"a {type(value).__name__}"


def _steps_read(reads: Any, steps: int) -> tuple[int, ...]:
    if isinstance(reads, str) and reads == "every":
        return tuple(range(1, steps + 1))
    try:
        chosen = tuple(sorted({index(step) for step in list[Any](reads)}))
    except TypeError:  # it is one number or a word, or holds such
        raise UserError(f'reads must be "last", "every" or steps counted from 1, not {_what(reads)}') from None
    if not chosen or chosen[0] < 1 or chosen[-1] > steps:
        raise UserError(f"the head reads at steps from 1 to {steps}, not at {list(reads)}")
    return chosen


class Runtime:
    """A deployed network; `glstm.deploy` makes it. Call it with whole sequences, or take a `stream()` and give it one
    sample after the other.

    A whole sequence may be shorter than the schedule. A longer one is refused, because the schedule does not cover its
    last steps: deploy with more steps. `ops`, `lstm_ops`, `openness`, `memory` and `energy` say what a sequence costs.
    """

    def __init__(self, plan: Plan, reads: tuple[int, ...] | None = None, batch_first: bool = False):
        self.plan, self.reads, self.batch_first = plan, reads, batch_first
        self._network: Network | None = None
        self._known_shapes: set[torch.Size] = set()  # shapes of x that were checked already
        self.levels = [[DeployedLayer(layer) for layer in level] for level in plan.levels]
        self._standardize = None if plan.standard is None else plan.standard.module()
        self.head = plan.head.runs()

    def __reduce__(self) -> tuple[Any, ...]:
        return Runtime, (self.plan, self.reads, self.batch_first)

    def __repr__(self) -> str:
        units, share = "-".join(map(str, self.units)), f"{100 * self.openness:.2f} % open"
        return f"Runtime({self.plan.steps} steps, {units} units, {share}, {self.ops:,} operations)"

    @property
    def ops(self) -> int:
        """Operations of one sequence through the layers in a stream, sample by sample, as the paper counts operations.
        For whole sequences the engine may do more if that is faster, for example compute closed units."""
        return self.plan.ops

    @property
    def lstm_ops(self) -> float:
        """The operations of a plain LSTM of the size before pruning."""
        return self.plan.lstm_ops

    @property
    def energy(self) -> dict[str, Energy]:
        """Joules of one sequence on a Cortex-M4 and on a server core: on paper, see `glstm.analysis.energy`."""
        return energy_of(self.plan)

    @property
    def openness(self) -> float:
        """The share of all (step, unit) pairs at which the unit is open."""
        return self.plan.openness

    @property
    def units(self) -> tuple[int, ...]:
        """How many units each layer has left."""
        return tuple(layer.units for layer in self.plan.layers)

    @property
    def memory(self) -> Memory:
        """Bytes of constant data (`constant`) and of one stream's state (`state`)."""
        return Memory(constant_bytes(self.plan), self.plan.state_bytes)

    def windows(self, length: int, hop: int) -> Windows:
        """As `stream().windows(length, hop)`."""
        return self.stream().windows(length, hop)

    def stream(self) -> Stream:
        """A new stream at its beginning. Streams of one runtime share its constant data."""
        self.plan.require_one_way()
        if self._network is None:
            self._network = Network(self.plan)
        return KnownStream(self._network, frozenset(self.reads or (self.plan.steps,)))

    @overload
    def __call__(self, x: Tensor) -> Tensor: ...
    @overload
    def __call__(self, x: NDArray[np.floating]) -> NDArray[np.float32]: ...
    def __call__(self, x):
        """Whole sequences x (T, B, D), or one (T, D) -> the head's output (B, outputs), or (outputs).

        A network whose layer has batch_first takes (B, T, D). If the head reads at steps other than the last, the
        output has an axis for these steps where x has its steps; for a shorter sequence, for those within it.
        """
        tensor = _as_tensor(x) if isinstance(x, np.ndarray) else x
        batch = self._checked(tensor)
        with torch.autocast("cpu", enabled=False) if torch.is_autocast_enabled("cpu") else nullcontext():
            batch = self.standardized(batch)
            y = self._head_of(self._to_the_end(batch)) if self.reads is None else self._at_each_reading(batch)
        if tensor.dim() == 2:
            y = y.squeeze(-2)
        elif self.batch_first and self.reads is not None:
            y = y.transpose(0, 1)
        return y.numpy() if isinstance(x, np.ndarray) else y

    def _checked(self, x: Tensor) -> Tensor:
        if isinstance(x, Tensor) and x.shape in self._known_shapes:
            return x if _is_plain(x) else _plain(x)
        inputs, steps = self.plan.inputs, self.plan.steps
        if not isinstance(x, Tensor) or x.dim() not in (2, 3) or x.shape[-1] != inputs:
            shape = tuple(x.shape) if isinstance(x, Tensor) else f"a {type(x).__name__}"
            layout = "(B, T" if self.batch_first else "(T, B"
            raise UserError(f"x must be an array {layout}, {inputs}), or (T, {inputs}) for one, not {shape}")
        turned = self.batch_first and x.dim() == 3
        x = x.transpose(0, 1) if turned else x
        if not 1 <= len(x) <= steps:
            raise UserError(f"this runtime was deployed for sequences of 1 to {steps} steps, but x has {len(x)}")
        if len(self._known_shapes) < MOST_PREPARED and x.dim() == 3 and not turned:
            self._known_shapes.add(x.shape)
        return _plain(x)

    def standardized(self, x: Tensor) -> Tensor:
        """Raw numbers (T, B, D) as the first layer reads them."""
        return x if self._standardize is None else self._standardize(x)

    def _at_each_reading(self, x: Tensor) -> Tensor:
        """(readings, B, outputs)"""
        reads = [step for step in self.reads or () if step <= len(x)]
        x = x if self.plan.two_ways else x[: reads[-1] if reads else 0]
        h = self.pooled_so_far(self._all_h(x))
        chosen = h if len(reads) == len(h) else h[[step - 1 for step in reads]]
        return self._head_of(chosen.flatten(0, 1)).view(len(reads), x.shape[1], self.plan.outputs)

    def _to_the_end(self, x: Tensor) -> Tensor:
        """What the head reads after the last step."""
        if self.plan.pool is None:
            for level in self.levels[:-1]:
                x = side_by_side([layer.run(x)[0] for layer in level])
            return side_by_side([layer.final_h(x) for layer in self.levels[-1]])
        h = self._all_h(x)
        return h.mean(0) if self.plan.pool == "mean" else h.amax(0)

    def _all_h(self, x: Tensor) -> Tensor:
        """Of the top layer at all steps, from the zero state."""
        for level in self.levels:
            x = side_by_side([layer.run(x)[0] for layer in level])
        return x

    def pooled_so_far(self, h: Tensor) -> Tensor:
        """What the head would read after each step."""
        match self.plan.pool:
            case "mean":
                counts = torch.arange(1, len(h) + 1, dtype=torch.float64).view(-1, 1, 1)
                return (h.cumsum(0, dtype=torch.float64) / counts).float()
            case "max":
                return h.cummax(0).values
        return h

    def _head_of(self, h: Tensor) -> Tensor:
        for run in self.head:
            h = run(h)
        return h


class DeployedLayer:
    """One layer and direction on the CPU engine, for whole sequences; its units in the plan's order."""

    def __init__(self, plan: LayerPlan):
        units = plan.units
        self.units, self.candidate = units, "sigmoid" if plan.logistic else "tanh"
        w_hh = np.zeros((units, units, 4), np.float32)
        for unit in range(units):  # weights that are not in the plan are never read
            columns = plan.w_h[plan.row[unit] : plan.row[unit + 1]]
            w_hh[unit, : len(columns)] = columns
        self.w_ih, self.w_hh = (_in_torchs_order(w) for w in (plan.w_x, w_hh))
        self.bias = torch.from_numpy(plan.bias.T.copy()).flatten()
        self.table, self.backwards = torch.from_numpy(plan.table), plan.backwards
        self._prepared: dict[torch.Size, Prepared] = {}

    def run(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """From the zero state: all h, and the last."""
        x = self._in_its_order(x)
        zeros = torch.zeros(x.shape[1], self.units, dtype=torch.float32, device="cpu")
        h, h_n, _, _ = gated_lstm(
            x, self.w_ih, self.w_hh, self.bias, self._table(len(x)), zeros, zeros, candidate=self.candidate
        )
        assert h is not None
        return self._in_its_order(h), h_n

    def _in_its_order(self, steps: Tensor) -> Tensor:
        return steps.flip(0) if self.backwards else steps

    def _table(self, steps: int) -> Tensor:
        """Of so many of the first steps: the backward direction begins at the last of them."""
        return self.table[len(self.table) - steps :] if self.backwards else self.table[:steps]

    def final_h(self, x: Tensor) -> Tensor:
        """From the zero state, h (B, H) after the last step."""
        prepared = self._prepared.get(x.shape)
        if prepared is None and not Prepared.possible(x):
            return self.run(x)[1]
        x = self._in_its_order(x)
        if prepared is None:
            if len(self._prepared) >= MOST_PREPARED:
                self._prepared.clear()
            prepared = Prepared(x.shape, self.w_ih, self.w_hh, self.bias, self._table(len(x)), self.candidate)
            self._prepared[x.shape] = prepared
        return prepared.final_h(x)


def side_by_side(directions: list[Tensor]) -> Tensor:
    return directions[0] if len(directions) == 1 else torch.cat(directions, -1)


def _in_torchs_order(w: np.ndarray) -> Tensor:
    """(units, columns, 4) -> (4 units, columns)"""
    return torch.from_numpy(w.transpose(2, 0, 1).copy()).flatten(0, 1)


def _is_plain(x: Tensor) -> bool:
    return x.dtype is torch.float32 and x.is_cpu and x.is_contiguous() and not x.requires_grad


def _plain(x: Tensor) -> Tensor:
    """As the engine reads it, with a batch axis."""
    x = x.detach().to("cpu", torch.float32)
    return (x if x.dim() == 3 else x.unsqueeze(1)).contiguous()


def _as_tensor(x: np.ndarray) -> Tensor:
    """From an array with any strides, byte order and type of number."""
    plain = np.ascontiguousarray(x, np.float32)
    return torch.from_numpy(plain if plain.flags.writeable else plain.copy())
