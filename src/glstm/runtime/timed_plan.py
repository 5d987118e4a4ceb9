"""A plan in time: instead of a table over known steps, each unit's pulse, once or in every period.

Nothing is known of the samples but that their times increase. So a stream may have no end, and gaps may be of any
length. Arrays are laid out as in `native/stream.h`; `native/timed.h` says what they mean.
"""

from bisect import bisect_left
from dataclasses import dataclass, fields
from functools import cached_property
from itertools import accumulate
from math import ceil, exp, isfinite, ldexp, log, sqrt
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from glstm.analysis import count_cached_ops
from glstm.errors import UserError
from glstm.gates import Pulses
from glstm.models import SequenceModel
from glstm.runtime.plan import LayerPlan, Plan, make_plan, spans_of
from glstm.runtime.raw import Floats
from glstm.runtime.ticks import MODULUS, Clock, Scale, Ticks, signed
from glstm.times import Frame, Span, count_up

SHAPES = ("bell", "triangle", "box")  # numbered as in native/timed.h
OPENNESS_OPS = {"bell": 9, "triangle": 4, "box": 0}  # of computing one k; e^x counts as five
LEAST = 1.01 * exp(-87)  # below it a gate's k is 0, see `gates`: so a bell ends even without a threshold
ALWAYS = 2**60  # ticks: the period of a unit that never closes
LARGEST_TABLE = 2**22  # numbers in a table that costs are counted in


@dataclass(frozen=True)
class TimedLayer(LayerPlan):
    """The constant data of one layer: weights as in any plan, but a table without steps."""

    shape: str
    first: Ticks
    length: Ticks
    period: Ticks  # 0: it opens only once
    peak: Ticks
    shift: NDArray[np.uint8]
    steep: Floats
    never_closes: bool

    @property
    def constants(self) -> list[np.ndarray]:
        """The arrays that the network reads while it runs."""
        pulses = [self.first, self.length, self.period, self.peak, self.shift, self.steep]
        return [*pulses, self.row, self.w_x, self.w_h, self.bias]

    @property
    def ends(self) -> bool:
        """Whether there is a last moment at which one of its units is open."""
        return not self.period.any()

    def openness(self, moments: Ticks) -> Floats:
        """k (T, units) at these moments."""
        period = signed(self.period)
        since = signed(moments)[:, None] - signed(self.first)
        since = np.where(period > 0, np.mod(since, np.where(period > 0, period, 1)), since)
        is_open = (since >= 0) & (since < signed(self.length))
        u = (np.abs(since - signed(self.peak)) >> self.shift) * self.steep.astype(np.float64)
        k = {"bell": lambda: np.exp(-np.minimum(u * u, 87)), "triangle": lambda: 1 - u, "box": lambda: np.ones_like(u)}
        return np.where(is_open, k[self.shape](), 0).clip(0, 1).astype(np.float32)

    def windows_at(self, moment: int) -> Ticks:
        """When each unit opens, or has opened, for the first window that ends after this moment, which is not modulo
        2^64; for the last one, if that has ended, one that ends just then."""
        found = []
        for first, length, period in zip(signed(self.first).tolist(), self.length.tolist(), self.period.tolist()):
            since = moment - first - length
            last = moment - length if since >= 0 else first
            found.append((first + (since // period + 1) * period if period else last) % MODULUS)
        return np.array(found, np.uint64)

    def at(self, moments: Ticks) -> LayerPlan:
        """The same layer with a table over steps at these moments."""
        return LayerPlan(**own_values(self, LayerPlan, **spans_of(self.openness(moments), self.never_closes)))


def own_values(plan: Any, kind: Any, **changed: Any) -> dict[str, Any]:
    """Those of the fields that a plan of this kind has; and these."""
    return {field.name: getattr(plan, field.name) for field in fields(kind)} | changed


@dataclass(frozen=True)
class TimedPlan(Plan):
    """For samples at any times, and so without known ones.

    Its costs are those of one period of the unit with the longest, once all units have been open; of gates that open
    only once, those of all steps from the first to the last at which one is open; of gates that never close, those of
    one step. All count with a sample at every step.
    """

    layers: tuple[TimedLayer, ...]  # pyright: ignore[reportIncompatibleVariableOverride]
    scale: Scale
    trained: Span | None  # the times that the layer was trained at

    @property
    def counts(self) -> bool:
        """Whether samples can be counted instead of given times: steps are at 1, 2, ..."""
        return self.trained is None or self.trained.counted or all(layer.never_closes for layer in self.layers)

    def require_counted(self) -> None:
        if self.trained is not None and not self.counts:
            raise UserError(
                f"without a time a sample is at 1, 2, ..., but this network was trained at times from "
                f"{self.trained.in_words}: give every sample its time"
            )

    def require_window(self, length: int) -> None:
        """The samples of a window are counted."""
        self.require_counted()

    def ops_of(self, steps: int) -> int:
        """Of the first steps of a stream whose samples are counted."""
        known = self.at(np.arange(1, steps + 1, dtype=np.float64))
        pairs = zip(self.layers, known.layers, strict=True)
        return known.ops + sum(OPENNESS_OPS[own.shape] * int(np.count_nonzero(layer.table)) for own, layer in pairs)

    @property
    def clock(self) -> Clock:
        """Of samples that are counted."""
        return self.scale.clock()

    @property
    def ends(self) -> bool:
        """Whether there is a last moment at which a unit is open."""
        return all(layer.ends for layer in self.layers)

    @property
    def last_closing(self) -> float:
        """When the last unit closes, in the user's time, if there is a last one."""
        last = max(int(signed(layer.first + layer.length).max()) for layer in self.layers)
        return ldexp(last, -self.scale.bits) * self.scale.frame.unit + self.scale.frame.origin

    def at(self, times: NDArray[np.float64]) -> Plan:
        """The same network for steps at known times."""
        moments = self.scale.moments(times)
        layers = tuple(layer.at(moments) for layer in self.layers)
        return Plan(**own_values(self, Plan, layers=layers, times=times))

    @property
    def pace(self) -> float:
        """The time between two steps for which costs are counted."""
        return 1.0 if self.counts or self.trained is None else self.trained.step

    @cached_property
    def _costs(self) -> tuple[int, int, int]:
        """Steps, and in them pairs of (step, unit) at which the unit is open, and operations."""
        before, times = self.counted_times
        moments, steps = self.scale.moments(times), len(times) - before
        pairs = operations = 0
        for layer in self.layers:
            table = layer.openness(moments)
            own = int(np.count_nonzero(table[before:]))
            pairs += own
            operations += OPENNESS_OPS[layer.shape] * own
            until, whole = (
                count_cached_ops(torch.from_numpy(part), layer.inputs) if len(part) else 0
                for part in (table[:before], table)
            )
            operations += whole - until
        return steps, pairs, operations

    @property
    def counted_times(self) -> tuple[int, NDArray[np.float64]]:
        """The times of the steps that costs are counted over, and how many of them come before these."""
        before, steps = self._counted
        first = 1.0 if self.counts or self.trained is None else self.trained.first
        return before, first + self.pace * np.arange(before + steps, dtype=np.float64)

    @property
    def _counted(self) -> tuple[int, int]:
        """Steps before those that costs are counted over, in which units open for the first time; and those."""
        units = max(layer.units for layer in self.layers)
        step = self.scale.duration(self.pace / self.scale.frame.unit)
        if self.ends:
            first = 1.0 if self.counts or self.trained is None else self.trained.first
            return 0, min(max(1, ceil((self.last_closing - first) / self.pace)), LARGEST_TABLE // units)
        periods = [int(layer.period.max()) for layer in self.layers if not layer.never_closes]
        steps = min(ceil(max(periods, default=1) / step), max(1, LARGEST_TABLE // (2 * units)))
        return steps, steps

    @property
    def steps(self) -> int:
        """Those that `ops` and `openness` are about: see the class."""
        return self._costs[0]

    @property
    def ops(self) -> int:
        return self._costs[2]

    @property
    def openness(self) -> float:
        """The share of (step, unit) pairs at which the unit is open, of all units the network had."""
        return self._costs[1] / (len(self.layers) * self.steps * self.hidden)

    @property
    def windows(self) -> int:
        """Words of 64 bits in the state: a window for each unit."""
        return sum(layer.units for layer in self.layers)

    @property
    def agenda(self) -> int:
        """Words of 16 bits in the state: which units wait, and which are open."""
        return sum(layer.units + layer.most_open for layer in self.layers)

    @property
    def state_bytes(self) -> int:
        """The size of all data that changes: the time, each layer's place and windows, the numbers, the step, and the
        agenda; a multiple of eight."""
        size = 8 + 16 * len(self.layers) + 8 * self.windows + 4 * self.numbers + 4 + 2 * self.agenda
        return -(-size // 8) * 8


def make_timed_plan(model: SequenceModel, threshold: float, *, every: bool) -> TimedPlan:
    """Units at k <= threshold are closed."""
    layer = model.layer
    if layer.bidirectional:
        raise UserError(
            "a bidirectional layer reads a sequence from both ends, so no sample can be taken as it comes: give deploy "
            "the steps, and the runtime whole windows"
        )
    if layer.unfitted:
        raise UserError(
            "the gates of this network wait for the first times that they see: train it, call layer.fit_times(times), "
            "or give deploy the steps"
        )
    pulses = [_pulses(model, suffix) for _, suffix in layer.places()]
    scale = _scale(pulses, layer._frame, threshold)
    each = [_windows(own, scale, threshold) for own in pulses]
    for depth, windows in enumerate(each):
        if not windows:
            raise UserError(f"no unit of layer {depth + 1} ever opens above the threshold {threshold:g}")
    tables = [_order(windows, layer.hidden_size, scale.moment(1.0)) for windows in each]
    plan = make_plan(model, count_up(0, torch.device("cpu")), threshold, every=every, tables=tables)
    layers = []
    for weights, own, windows in zip(plan.layers, pulses, each, strict=True):
        ordered = [windows[unit] for unit in weights.unit_numbers]
        nothing = spans_of(np.zeros((0, weights.units), np.float32), all_ones=False)
        kind = {"shape": "box" if own.shape == "open" else own.shape, "never_closes": own.shape == "open"}
        more = nothing | kind | {"most_open": _most_open(ordered)} | _arrays(ordered)
        layers.append(TimedLayer(**own_values(weights, LayerPlan, **more)))
    return TimedPlan(**own_values(plan, Plan, layers=tuple(layers)), scale=scale, trained=layer.seen)


def _order(windows: dict[int, "_Window"], hidden: int, start: int) -> Floats:
    """A table (steps, H) in which units open and close one after the other: from it `make_plan` tells their order, and
    which weights they read. Units that open once read those that open before they close; those that come back, all.
    """
    units = sorted(windows, key=lambda unit: windows[unit].order(start))
    ends = [windows[unit].end for unit in units]
    first = [windows[unit].first for unit in units]
    comes_back = any(windows[unit].period for unit in units)
    table = np.zeros((len(units) + 1, hidden), np.float32)
    for place, (unit, end) in enumerate(zip(units, ends, strict=True)):
        reads = len(units) if comes_back else bisect_left(first, end)
        table[place : reads + 1, unit] = 1
    return table


def _pulses(model: SequenceModel, suffix: str) -> Pulses:
    """Of values in float32, as those of the deployed network are."""
    layer = model.layer
    found = layer.gate.pulses({name: value.float() for name, value in layer.gate_values(suffix).items()})
    if found is None:
        raise UserError(
            f"a {type(layer.gate).__name__} gate does not say when its units open, so deploy must know the steps: give "
            "their number, or their times"
        )
    values = (found.at, found.width, found.period, found.start)
    return Pulses(found.shape, *(value.cpu().expand(layer.hidden_size) for value in values))


def _scale(each: list[Pulses], frame: Frame, threshold: float) -> Scale:
    """One for all layers, in which the smallest duration has many ticks, and the largest does not have too many."""
    values = [1.0 / frame.unit]  # a step, if they are counted
    reaches = [1.0]
    for pulses in each:
        if pulses.shape == "open":
            continue
        finite = pulses.period[pulses.period.isfinite()].tolist()
        values += [*pulses.width.tolist(), *finite]
        reach = _reach(pulses.shape, threshold)
        reaches += [*(pulses.at.abs() + reach * pulses.width).tolist(), *(2 * period for period in finite)]
    return Scale.of(frame, min(values), max(*reaches, *values))


def _reach(shape: str, threshold: float) -> float:
    """The largest |u| at which a unit is open."""
    return {"bell": sqrt(-log(max(threshold, LEAST))), "triangle": 1 - threshold}.get(shape, 1.0)


@dataclass(frozen=True)
class _Window:
    """One unit's, in ticks: Python's numbers, which do not overflow."""

    first: int
    length: int
    period: int
    peak: int
    width: float

    @property
    def shift(self) -> int:
        return max(0, max(abs(self.peak), abs(self.length - self.peak)).bit_length() - 32)

    @property
    def steep(self) -> float:
        return ldexp(1 / self.width, self.shift)

    @property
    def end(self) -> int:
        return self.first + self.length

    def order(self, start: int) -> int:
        """Units that open once are in the order of time, which rows of weights rely on; others in the order of their
        first opening in a stream that begins then."""
        if not self.period:
            return self.first
        return max(0, (self.end - start - 1) % self.period + 1 - self.length)


def _windows(pulses: Pulses, scale: Scale, threshold: float) -> dict[int, _Window]:
    """By the unit's number; without units that never open."""
    found = {}
    for unit in range(len(pulses.at)):
        if pulses.shape == "open":
            found[unit] = _Window(0, ALWAYS, ALWAYS, 0, 1.0)
            continue
        at, width, period, start = (float(getattr(pulses, name)[unit]) for name in ("at", "width", "period", "start"))
        peak, wide = scale.duration(at), scale.duration(width)
        if pulses.shape == "box":
            opens, ends = ceil(scale.duration(at - width)), ceil(scale.duration(at + width))
        else:
            reach = _last_open(pulses.shape, wide, threshold)
            opens, ends = round(peak) - reach, round(peak) + reach + 1
        again = 0
        if isfinite(period):
            again = _whole(scale.duration(period), period)
            begin = round(scale.duration(start))
            opens, ends = max(opens, begin), min(ends, begin + again)
        if opens < ends:
            found[unit] = _Window(opens, ends - opens, again, round(peak) - opens, wide)
    return found


def _last_open(shape: str, width: float, threshold: float) -> int:
    """The largest distance from the peak, in ticks, at which k is above the threshold; -1: there is none."""

    def is_open(distance: int) -> bool:
        u = distance / width
        return (exp(-u * u) > max(threshold, LEAST)) if shape == "bell" else 1 - u > threshold

    reach = ceil(_reach(shape, threshold) * width)
    while reach >= 0 and not is_open(reach):
        reach -= 1
    return reach


def _whole(ticks: float, period: float) -> int:
    if not ticks.is_integer():
        raise UserError(
            f"a period of {period:g} is too short to be counted exactly beside gates that are so much longer"
        )
    return int(ticks)


def _most_open(windows: list[_Window]) -> int:
    """The largest number of units that are open at once; if their periods differ, all of them may be."""
    periods = {window.period for window in windows}
    if len(periods) > 1:
        return len(windows)
    period = periods.pop()
    opens = [window.first % period if period else window.first for window in windows]
    each = [(start, start + window.length) for start, window in zip(opens, windows, strict=True)]
    if period:  # in the second one all are there, also those that have been open since the first
        each += [(start + period, end + period) for start, end in each]
    marks = sorted([(end, -1) for _, end in each] + [(start, 1) for start, _ in each])
    return max(accumulate(change for _, change in marks))


def _arrays(windows: list[_Window]) -> dict[str, Any]:
    words = {
        name: np.array([getattr(window, name) % MODULUS for window in windows], np.uint64)
        for name in ("first", "length", "period", "peak")
    }
    shift = np.array([window.shift for window in windows], np.uint8)
    return {**words, "shift": shift, "steep": np.array([window.steep for window in windows], np.float32)}
