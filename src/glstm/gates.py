"""Gates map time to openness: how far each unit takes part at each moment, from 0 (frozen) to 1 (a plain LSTM).

A gate is a frozen description. It says which values each unit owns and how to draw them; the layer holds
those values as its parameters and hands them back to `openness`. To add a gate, write one class: here, and it has a
short name everywhere, or in any module of your own that can be imported.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from math import ceil, exp, inf, isfinite, log
from typing import Any, ClassVar, Literal, Protocol

import torch
from torch import Tensor
from torch.nn.functional import threshold as cut_off


class Array(Protocol):
    """What numpy's arrays have; gates do not import numpy."""

    def __array__(self) -> Any: ...


Values = float | Sequence[float] | Tensor | Array
"""What a gate value may be given as: one number for every unit, a (low, high) range to draw from, or a value a unit."""

# A Gaussian gate whose values are not given fits the times of the layer's first call: moments over all of them, and
# this share of their span as the width, which is about the paper's 250 of 784 steps.
WIDE = 0.32
# A Periodic one gets so many periods in that span. A unit must open more than once, or no gradient can tell its period
# from its moment; but a change of the period moves the last pulse by as many changes as there are periods, so with many
# of them it is hard to learn.
PERIODS = 4
# Until then they have values for MNIST's 784 steps.
UNSEEN_ONCE: dict[str, Any] = {"mu": (1, 784), "sigma": 250.0}
UNSEEN_PERIODIC: dict[str, Any] = {"mu": (1, 197), "sigma": 62.5, "tau": 196.0}

# A width or period may not reach 0. This is far below any useful time step, so it only protects the division.
SMALLEST = 1e-6

# So much early a clock opens, in its unit of time. Times and periods in relative time are rounded, such as 4 / 3 in 32
# bits: without it a sample at the very moment of a tick could come just before it, and find the clock closed. A power
# of two, which is exact, and no decimal fraction, at which samples may well come.
EARLY = 2**-10


@dataclass(frozen=True, eq=False)
class Pulses:
    """When each unit opens, for an engine that must know it beforehand: one pulse, or one in every period.

    k(t) = shape(u), u = (t - at - n period) / width, with n = floor((t - start) / period). A shape is
    "bell", exp(-u^2); "triangle", max(0, 1 - |u|); "box", 1 where -1 <= u < 1; or "open", always 1.
    A gate that opens once has period inf and start -inf, and n = 0. Elsewhere one period lies from start up to, but
    without, start + period; what a pulse has beyond these ends is cut off. With start = at - period / 2, n is that of
    the nearest pulse. This is k in evaluation, without a threshold, in the layer's relative time.

    All are float64 (H), or (1) where units do not differ.
    """

    shape: Literal["bell", "triangle", "box", "open"]
    at: Tensor
    width: Tensor
    period: Tensor
    start: Tensor

    def openness(self, times: Tensor) -> Tensor:
        """times (...) -> k (..., H), float64."""
        times = times.double().unsqueeze(-1)
        comes_back = self.period.isfinite()
        start, period = (torch.where(comes_back, value, 1) for value in (self.start, self.period))
        begun = torch.where(comes_back, torch.floor((times - start) / period) * period, 0)
        u = (times - begun - self.at) / self.width
        if self.shape == "bell":
            return torch.exp(-(u**2))
        if self.shape == "triangle":
            return (1 - u.abs()).clamp(min=0)
        if self.shape == "box":
            return ((u >= -1) & (u < 1)).double()
        return torch.ones_like(u)


class Gate(ABC):
    """Maps time to openness. `names` are the values that each unit has; with `learned` they are parameters, else
    buffers. `in_time` are those that are moments or durations: they are scaled with the length of the sequence, and
    with the unit of time. `moments` are those of them that move with the origin of time, too; the others are durations.

    Times and values that `openness` gets are in the layer's relative time, (t - origin) / unit.
    """

    names: ClassVar[tuple[str, ...]] = ()
    in_time: ClassVar[tuple[str, ...]] = ()
    moments: ClassVar[tuple[str, ...]] = ()
    learned: ClassVar[bool] = True

    def __init_subclass__(cls) -> None:
        """A class that has its own `openness` but inherits `pulses` would say when another gate opens."""
        super().__init_subclass__()
        if "openness" in vars(cls) and "pulses" not in vars(cls):
            cls.pulses = Gate.pulses

    @abstractmethod
    def openness(self, times: Tensor, unit: Mapping[str, Tensor], training: bool) -> Tensor:
        """times (...), each unit's values (H) -> k in [0, 1] (..., H), or (..., 1) where units do not differ."""

    def pulses(self, unit: Mapping[str, Tensor]) -> Pulses | None:
        """When units with these values open, in evaluation; None if this gate cannot be said that way."""
        return None

    def draw(self, name: str, hidden_size: int, values: Values | None = None) -> Tensor:
        """Fresh values (H), float64, for the unit value called `name`; from `values`, else as the gate was given."""
        return draw(getattr(self, name) if values is None else values, hidden_size, name)

    def readable(self, unit: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Values to show: where only the magnitude matters, that."""
        return dict(unit)

    def left_open(self) -> tuple[str, ...]:
        """Names of the values that it was not given: the layer fits them to the first times that it sees."""
        return ()

    def fitted(self, name: str, drawn: Tensor, first: float, last: float, given: Mapping[str, Tensor]) -> Tensor:
        """A value that was left open, from what `draw` gave for it, for times from `first` to `last`.

        `given`: the values that were not left open, (H) each, in the same time.
        """
        raise NotImplementedError(f"{type(self).__name__} leaves {name} open, and does not say how to fit it")

    def unseen(self, values: Mapping[str, Tensor]) -> bool:
        """Whether values from a file or a state dict, by name, are those of a layer that has not seen any times yet."""
        return False

    def reach(self, values: Mapping[str, Tensor], span: float) -> dict[str, float]:
        """How far each of the values `in_time` may move to some use, if the times span so much: learning rates are in
        proportion to it. `values` (H) are in the same time."""
        return dict.fromkeys(self.in_time, span)

    def options(self) -> dict[str, Any]:
        """What it was made with besides the units' values, such as a leak. A gate that is not a dataclass and has such
        options overrides this."""
        own = fields(self) if is_dataclass(self) else ()
        return {field.name: getattr(self, field.name) for field in own if field.name not in self.names}


def draw(values: Values, hidden_size: int, name: str) -> Tensor:
    many = isinstance(values, tuple | list) and len(values) == hidden_size != 2
    if many or (hasattr(values, "__array__") and not isinstance(values, Tensor)):
        values = _numbers(values, name)
    if isinstance(values, Tensor) and values.dim() > 0:
        if values.shape != (hidden_size,):
            raise ValueError(f"{name} as a tensor must have shape ({hidden_size},), but has {tuple(values.shape)}")
        drawn = values.detach().cpu().double().clone()
    elif isinstance(values, tuple | list):
        if len(values) != 2 or not values[0] <= values[1]:
            raise ValueError(
                f"{name} as a range must be (low, high) with low <= high, not {values!r}; a list of single values has "
                f"one for each of the {hidden_size} units"
            )
        if not all(map(isfinite, values)):
            raise ValueError(f"{name} must be finite, not {values!r}")
        drawn = torch.empty(hidden_size, dtype=torch.float64, device="cpu").uniform_(float(values[0]), float(values[1]))
    else:
        drawn = torch.full((hidden_size,), _number(values, name), dtype=torch.float64, device="cpu")
    if type(drawn) is Tensor and not drawn.isfinite().all():  # a fake tensor has no values to check
        raise ValueError(f"{name} must be finite, not {values!r}")
    return drawn


def _number(value: Any, name: str) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be a number, a (low, high) range or a value a unit, not {value!r:.50}") from None


def _numbers(values: Any, name: str) -> Tensor:
    """Of a numpy array or a list; gates do not import numpy."""
    try:
        return torch.tensor(values, dtype=torch.float64, device="cpu")
    except (TypeError, ValueError, RuntimeError):
        raise ValueError(f"{name} must be numbers, not {values!r:.80}") from None


def _draw_bells(given: Values, hidden_size: int, name: str) -> Tensor:
    """Values of gates with a mu. Moments from a range are sorted: neighbours open together, and an engine can skip them
    together. Widths and periods are above 0."""
    drawn = draw(given, hidden_size, name)
    is_range = isinstance(given, tuple | list) and (len(given) != hidden_size or hidden_size == 2)
    if name == "mu":
        return drawn.sort().values if is_range else drawn
    if type(drawn) is Tensor:
        low = float(given[0] if isinstance(given, tuple | list) and is_range else drawn.min())
        if low <= 0:
            what = {"sigma": "width", "tau": "period"}[name]
            raise ValueError(f"{name} must be above 0, not {low:g}: it is a {what}, in the unit of the times")
    return drawn


def _place(mu: Tensor, unseen: Mapping[str, Any]) -> Tensor:
    """From 0 to 1: where in the range it was drawn."""
    low, high = unseen["mu"]
    return (mu - low) / (high - low)


def _is_drawn(values: Mapping[str, Tensor], unseen: Mapping[str, Any]) -> bool:
    """Told by durations that are the same number in all units, and mu in order: training would have changed them."""
    mu, (low, high) = values["mu"], unseen["mu"]
    same = [values[name] == unseen[name] for name in unseen if name != "mu"]
    return bool(torch.cat((mu[:1] >= low, mu[-1:] <= high, mu.diff() >= 0, *same)).all())


def check_threshold(value: float) -> float:
    """v_T as a number, if it can be one."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1:
        raise ValueError(f"threshold must be a number, at least 0 and below 1, not {value!r}")
    return float(value)


def apply_threshold(k: Tensor, threshold: float | Tensor) -> Tensor:
    """k, but exactly 0 where k <= threshold: a unit that is nearly closed is closed, and needs no computation.

    As a tensor, the threshold may differ between networks; values below 0 do not change k. As a number, 0 does not.
    """
    alone = not isinstance(threshold, Tensor) and threshold <= 0
    return k if alone else torch.where(k <= threshold, 0, k)


def _magnitudes_but(moments: tuple[str, ...], unit: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: value if name in moments else value.abs() for name, value in unit.items()}


def _positive(value: Tensor) -> Tensor:
    """|value|, never below SMALLEST. The gradient is that of |value| even there, so a value at 0 can still change."""
    magnitude = torch.where(value < 0, -value, value)
    return magnitude + (SMALLEST - magnitude).clamp(min=0).detach()


def _share(value: Tensor) -> Tensor:
    """A value as a share in (0, 1]: itself there, and elsewhere reflected at 0 and at 1. So an optimiser may move it
    anywhere, and its gradient never vanishes. It keeps away from 0 as `_positive` does."""
    return _positive(value - 2 * torch.round(value / 2))


def _fixed(value: Tensor) -> Tensor:
    """For `Pulses`: float64, and without a gradient."""
    return value.detach().double()


def _wide(value: Tensor, times: Tensor) -> Tensor:
    """Gates compare times that lie thousands of steps apart: never in 16 bits, whatever the layer's dtype is."""
    return value.to(torch.promote_types(value.dtype, times.dtype))


def _exp(x: Tensor) -> Tensor:
    """e^x, and 0 where that is not a normal number: torch takes up to twenty times as long for those, also for 0."""
    least = ceil(log(torch.finfo(x.dtype).tiny))
    return cut_off(torch.exp(x.clamp(min=least)), 1.01 * exp(least), 0.0)


@dataclass(frozen=True, eq=False)
class Open(Gate):
    """Always open: the plain LSTM."""

    def openness(self, times: Tensor, unit: Mapping[str, Tensor], training: bool) -> Tensor:
        return torch.ones_like(times).unsqueeze(-1)

    def pulses(self, unit: Mapping[str, Tensor]) -> Pulses:
        always = torch.full((1,), inf, dtype=torch.float64)
        return Pulses("open", at=torch.zeros_like(always), width=always, period=always, start=-always)


@dataclass(frozen=True, eq=False)
class Gaussian(Gate):
    """k = exp(-(t - mu)^2 / sigma^2): open once, around mu (Thornton, Anumula and Liu, 2019).

    There is no factor 2 in the exponent. Only the magnitude of sigma matters: an optimiser may move it through 0, but
    it is given above 0. A layer fits values that are None to the first times that it sees.
    """

    names: ClassVar[tuple[str, ...]] = ("mu", "sigma")
    in_time: ClassVar[tuple[str, ...]] = ("mu", "sigma")
    moments: ClassVar[tuple[str, ...]] = ("mu",)
    mu: Values | None = None
    sigma: Values | None = None

    def draw(self, name: str, hidden_size: int, values: Values | None = None) -> Tensor:
        own = getattr(self, name) if values is None else values
        return _draw_bells(UNSEEN_ONCE[name] if own is None else own, hidden_size, name)

    def left_open(self) -> tuple[str, ...]:
        return tuple(name for name in self.names if getattr(self, name) is None)

    def fitted(self, name: str, drawn: Tensor, first: float, last: float, given: Mapping[str, Tensor]) -> Tensor:
        """Moments keep their places between first and last: the random draw is still that of the seed."""
        if name == "sigma":
            return torch.full_like(drawn, WIDE * (last - first))
        return first + _place(drawn, UNSEEN_ONCE) * (last - first)

    def unseen(self, values: Mapping[str, Tensor]) -> bool:
        return self.left_open() == self.names and _is_drawn(values, UNSEEN_ONCE)

    def openness(self, times: Tensor, unit: Mapping[str, Tensor], training: bool) -> Tensor:
        distance = times.unsqueeze(-1) - _wide(unit["mu"], times)
        return _exp(-((distance / _positive(_wide(unit["sigma"], times))) ** 2))

    def readable(self, unit: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return _magnitudes_but(self.moments, unit)

    def pulses(self, unit: Mapping[str, Tensor]) -> Pulses:
        mu, width = _fixed(unit["mu"]), _positive(_fixed(unit["sigma"]))
        once = torch.full_like(mu, inf)
        return Pulses("bell", at=mu, width=width, period=once, start=-once)


@dataclass(frozen=True, eq=False)
class Periodic(Gate):
    """k = exp(-d^2 / sigma^2), with d the distance to the nearest of the moments mu + n tau: open again and again.

    n is any whole number, so mu says where in a period a unit opens. Only the magnitudes of sigma and tau matter, but
    they are given above 0. Values that are None fit the first times that a layer sees: tau a quarter of their span,
    mu drawn over one period, sigma as wide in it as a Gaussian's in the whole span.
    """

    names: ClassVar[tuple[str, ...]] = ("mu", "sigma", "tau")
    in_time: ClassVar[tuple[str, ...]] = ("mu", "sigma", "tau")
    moments: ClassVar[tuple[str, ...]] = ("mu",)
    mu: Values | None = None
    sigma: Values | None = None
    tau: Values | None = None

    def draw(self, name: str, hidden_size: int, values: Values | None = None) -> Tensor:
        own = getattr(self, name) if values is None else values
        return _draw_bells(UNSEEN_PERIODIC[name] if own is None else own, hidden_size, name)

    def left_open(self) -> tuple[str, ...]:
        return tuple(name for name in self.names if getattr(self, name) is None)

    def fitted(self, name: str, drawn: Tensor, first: float, last: float, given: Mapping[str, Tensor]) -> Tensor:
        """Within the period that was given, if one was, but not beyond the times: a unit shall open in them."""
        span = last - first
        period = given["tau"].abs().clamp(max=span) if "tau" in given else torch.full_like(drawn, span / PERIODS)
        if name == "mu":
            return first + _place(drawn, UNSEEN_PERIODIC) * period
        return WIDE * period if name == "sigma" else period

    def unseen(self, values: Mapping[str, Tensor]) -> bool:
        return self.left_open() == self.names and _is_drawn(values, UNSEEN_PERIODIC)

    def reach(self, values: Mapping[str, Tensor], span: float) -> dict[str, float]:
        """A moment that moves by a whole period is where it was. A change of tau moves the last pulse by as many
        changes as there are periods."""
        period = min(float(values["tau"].abs().mean()), span)
        return {"mu": period, "sigma": period, "tau": period * (period / span)}

    def openness(self, times: Tensor, unit: Mapping[str, Tensor], training: bool) -> Tensor:
        period = _positive(_wide(unit["tau"], times))
        # Exact, however many periods have gone by, unlike t - mu - n tau.
        since = torch.remainder(times.unsqueeze(-1) - _wide(unit["mu"], times), period)
        distance = torch.where(since > period / 2, since - period, since)
        return _exp(-((distance / _positive(_wide(unit["sigma"], times))) ** 2))

    def readable(self, unit: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return _magnitudes_but(self.moments, unit)

    def pulses(self, unit: Mapping[str, Tensor]) -> Pulses:
        mu, width, period = _fixed(unit["mu"]), _positive(_fixed(unit["sigma"])), _positive(_fixed(unit["tau"]))
        return Pulses("bell", at=mu, width=width, period=period, start=mu - period / 2)


@dataclass(frozen=True, eq=False)
class Phased(Gate):
    """A triangle that rises and falls in the first share r of every period tau, shifted by s (Neil et al., 2016).

    phi = ((t - s) mod tau) / tau;  k = 2 phi / r, then 2 - 2 phi / r, then the leak alpha phi.
    The leak lets gradients through a closed gate in training; in evaluation it is 0.

    r is used reflected at 0 and at 1, |r - 2 round(r / 2)|: an optimiser may move it beyond, where it would be no
    share, and the gate would always be open.

    With `log_tau` a range of tau is drawn evenly in its logarithm, as in Neil et al.: short periods are as frequent as
    long ones.
    """

    names: ClassVar[tuple[str, ...]] = ("tau", "s", "r")
    in_time: ClassVar[tuple[str, ...]] = ("tau", "s")
    moments: ClassVar[tuple[str, ...]] = ("s",)
    tau: Values = 1000.0
    s: Values = (250.0, 650.0)
    r: Values = 0.1
    alpha: float = 1e-3
    log_tau: bool = False

    def draw(self, name: str, hidden_size: int, values: Values | None = None) -> Tensor:
        given = getattr(self, name) if values is None else values
        if name != "tau" or not self.log_tau or not isinstance(given, tuple | list) or len(given) != 2:
            return super().draw(name, hidden_size, values)
        if not given[0] > 0:
            raise ValueError(f"tau must be above 0 to be drawn evenly in its logarithm, not {given!r}")
        return draw([log(value) for value in given], hidden_size, name).exp()

    def openness(self, times: Tensor, unit: Mapping[str, Tensor], training: bool) -> Tensor:
        period, ratio = _positive(_wide(unit["tau"], times)), _share(_wide(unit["r"], times))
        phase = torch.remainder(times.unsqueeze(-1) - _wide(unit["s"], times), period) / period
        rise = 2 * phase / ratio
        leak = self.alpha * phase if training else torch.zeros_like(phase)
        return torch.where(phase < ratio / 2, rise, torch.where(phase < ratio, 2 - rise, leak)).clamp(0, 1)

    def pulses(self, unit: Mapping[str, Tensor]) -> Pulses:
        """Periods start at s, where the triangle does, and not halfway between two pulses."""
        period, start = _positive(_fixed(unit["tau"])), _fixed(unit["s"])
        half = period * _share(_fixed(unit["r"])) / 2
        return Pulses("triangle", at=start + half, width=half, period=period, start=start)


@dataclass(frozen=True, eq=False)
class Clockwork(Gate):
    """Open for one unit of time at the start of every period, else closed (Koutnik et al., 2014).

    At whole-numbered times this is the paper's 't mod period = 0'. Periods are not learned. `period` is one
    number, a sequence of module periods given to equal groups of units in turn, or a tensor of H.

    In a layer with an origin and a unit, all clocks start at the origin, and are open for one such unit: with the
    duration of a step as the unit, that is the paper's one step again. A time that is a thousandth of a unit before a
    tick counts as the tick: for the first 8,000 units rounding to 32 bits is less than that.
    """

    names: ClassVar[tuple[str, ...]] = ("period",)
    in_time: ClassVar[tuple[str, ...]] = ("period",)
    learned: ClassVar[bool] = False
    period: Values = (1, 2, 4, 8, 16, 32, 64, 128)

    def draw(self, name: str, hidden_size: int, values: Values | None = None) -> Tensor:
        period = self.period if values is None else values
        if isinstance(period, tuple | list):
            modules = torch.arange(hidden_size, device="cpu") * len(period) // hidden_size
            period = torch.tensor(period, dtype=torch.float64, device="cpu")[modules]
        drawn = draw(period, hidden_size, name)
        if type(drawn) is Tensor and not (drawn > 0).all():
            raise ValueError(f"every clock period must be above 0, but got {drawn.min().item():g}")
        return drawn

    def openness(self, times: Tensor, unit: Mapping[str, Tensor], training: bool) -> Tensor:
        since_tick = torch.remainder(times.unsqueeze(-1) + EARLY, _wide(unit["period"], times))
        return (since_tick < 1).to(since_tick.dtype)

    def pulses(self, unit: Mapping[str, Tensor]) -> Pulses:
        period = _fixed(unit["period"])
        half = torch.full_like(period, 0.5)
        return Pulses("box", at=half - EARLY, width=half, period=period, start=torch.full_like(period, -EARLY))


# Every gate of this file by its name in small letters, as recipes and the command line say it.
GATES: dict[str, type[Gate]] = {
    name.lower(): one for name, one in list(globals().items()) if isinstance(one, type) and issubclass(one, Gate)
}
del GATES["gate"]  # which is abstract
