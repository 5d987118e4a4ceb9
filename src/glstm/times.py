"""Timestamps: what the caller gives is checked and becomes one floating tensor (T,) or (T, B).

A layer's gates do not compute with these but with time relative to an origin, in a unit: a `Frame`.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from math import floor, isfinite, log10
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence, pad_packed_sequence
from torch.utils.weak import WeakIdKeyDictionary

from glstm import ndarrays

# Times are plain, and need no frame, if a step is about 1 long and the first is not far from 0.
PLAIN_STEP = (0.1, 10.0)
PLAIN_START = 2.0  # spans
# A moment may be rounded by this share of the gate's width.
ROUNDED = 1e-3


class Frame(NamedTuple):
    """Relative time is (t - origin) / unit.

    A gate's values are parameters of 32 bits, in which seconds since 1970 are rounded to 128 s, and an optimiser's
    small steps are lost. In relative time they are of the size of step numbers.
    """

    origin: float = 0.0
    unit: float = 1.0

    @classmethod
    def of(cls, origin: Any, unit: Any) -> "Frame":
        """Of numbers that a user gave."""
        for name, value in (("origin", origin), ("unit", unit)):
            if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value):
                raise ValueError(f"{name} must be a finite number, in the unit of the times, not {value!r:.50}")
        if not unit > 0:
            raise ValueError(f"unit must be above 0, not {unit!r}: it is a duration, such as that of one step")
        return cls(float(origin), float(unit))

    def relative(self, times: Tensor, dtype: torch.dtype) -> Tensor:
        """Subtracted in 64 bits: the difference of two large times is exact there, and fits 32 bits."""
        if self == PLAIN:
            return times
        return ((times.double() - self.origin) / self.unit).to(torch.promote_types(dtype, torch.float32))

    def inside(self, value: Tensor, moment: bool) -> Tensor:
        """A moment, or a duration, of the user's time in relative time."""
        return value if self == PLAIN else (value - self.origin if moment else value) / self.unit

    def outside(self, value: Tensor, moment: bool) -> Tensor:
        """The reverse of `inside`."""
        return value if self == PLAIN else value * self.unit + (self.origin if moment else 0.0)


PLAIN = Frame()


class Span(NamedTuple):
    """What is remembered of times: from the first to the last, in so many steps."""

    first: float
    last: float
    steps: int

    @property
    def counted(self) -> bool:
        """Whether these are the times 1, 2, ..., which stand for steps where nobody gave any."""
        return self == Span(1.0, float(self.steps), self.steps)

    @property
    def width(self) -> float:
        """Of a single moment, 1: there is no scale to be seen."""
        return self.last - self.first or 1.0

    @property
    def step(self) -> float:
        return self.width / max(self.steps - 1, 1)

    @property
    def frame(self) -> Frame:
        """The one in which 32 bits are enough: none, where times are about like step numbers."""
        plain = PLAIN_STEP[0] <= self.step <= PLAIN_STEP[1] and abs(self.first) <= PLAIN_START * self.width
        return PLAIN if plain else Frame(self.first, self.step)

    @property
    def in_words(self) -> str:
        return f"{plainly(self.first, self.width)} to {plainly(self.last, self.width)}"

    @property
    def times(self) -> Tensor:
        """As many evenly spaced ones."""
        return torch.linspace(self.first, self.last, self.steps, dtype=torch.float64, device="cpu")


def plainly(value: float, scale: float) -> str:
    """A moment or duration for people: as many digits as matter where differences are of this scale."""
    digits = 3 - floor(log10(abs(scale) or abs(value) or 1.0))
    text = f"{round(value, digits):.{max(digits, 0)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def span_of(times: "Tensor | range", valid: Tensor | None = None) -> Span | None:
    """Of times (T,) or (T, B), of which only the valid count; None if there are none."""
    if isinstance(times, range):
        return Span(float(times[0]), float(times[-1]), len(times)) if times else None
    known = times.detach() if valid is None or times.dim() == 1 else times.detach()[valid]
    if known.numel() == 0:
        return None
    return Span(float(known.min()), float(known.max()), len(times))


_known_to_increase = False
# Times on a GPU that were found to increase: their version, as far as torch counts changes, shape and strides.
_checked = WeakIdKeyDictionary()


@contextmanager
def known_to_increase() -> Iterator[None]:
    """Inside it, times are not checked: on a GPU every check waits for the device."""
    global _known_to_increase
    before, _known_to_increase = _known_to_increase, True
    try:
        yield
    finally:
        _known_to_increase = before


def count_up(steps: int | range, device: torch.device) -> Tensor:
    """The paper's times, used if none are given: 1, 2, ..., T; or the part of these in a range."""
    start, stop = (steps.start, steps.stop) if isinstance(steps, range) else (1, steps + 1)
    return torch.arange(start, stop, dtype=torch.float32, device=device)


def as_tensor(times: Any) -> Tensor:
    """Of anything that holds numbers: a tensor, a number, a list, a numpy array."""
    if isinstance(times, Tensor):
        return times
    try:
        if isinstance(times, np.ndarray):
            return ndarrays.as_tensor(times)
        found = torch.tensor(times, device="cpu")
        own_type = hasattr(times, "dtype") or not found.is_floating_point()
        return found if own_type else torch.tensor(times, dtype=torch.float64, device="cpu")  # as Python's numbers are
    except (TypeError, ValueError, RuntimeError):
        of = getattr(times, "dtype", type(times).__name__)
        hint = "; dates become numbers as dates.astype('datetime64[s]').astype('int64')" if "date" in str(of) else ""
        raise ValueError(f"times must be real numbers, as a tensor, an array or a list, not {of}{hint}") from None


def whole_number(steps: Tensor) -> int:
    """T, where a single number was given instead of times."""
    count = steps.item()
    if isinstance(count, bool) or int(count) != count or count < 0:
        raise ValueError(f"a single number in place of times is a number of steps, not {count!r}")
    return int(count)


def unpacked(times: PackedSequence) -> tuple[Tensor, Tensor]:
    """Packed times as (T, B), in the caller's order, and which of them are no padding."""
    padded, lengths = pad_packed_sequence(times)
    valid = torch.arange(len(padded))[:, None] < lengths
    return padded, valid.to(padded.device)


def as_times(
    times: Any,
    steps: int,
    batch: int,
    batch_first: bool,
    device: torch.device,
    valid: Tensor | None = None,
) -> Tensor:
    """The caller's times as (T,) or (T, B), which must be finite and increase; `valid` (T, B) marks real steps.

    Whole numbers become float64 and float64 stays: timestamps in a large unit must not lose their last digits.
    Where values are not known yet only the shape is checked: inside torch.compile, torch.export and torch.vmap, while a
    CUDA graph is captured, and of tensors without values. Whoever looks at values on a GPU waits for it: a tensor there
    is checked once, and one on the host is checked before it is copied.
    """
    if times is None:
        return count_up(steps, device)
    given = times = as_tensor(times)
    if valid is not None:  # which is there, too
        times = times.to(device)
    if times.is_complex() or times.dtype == torch.bool:
        raise ValueError(f"times must be real numbers, not {times.dtype}")
    if not torch.jit.is_tracing():  # pyright: ignore[reportPrivateImportUsage]
        # A tracer would record comparisons of shapes as operations on tensors.
        _check_shape(times, steps, batch, batch_first)
    if not times.is_floating_point():
        times = times.double()
    elif times.element_size() < 4:
        times = times.float()
    if times.dim() == 2 and batch_first:
        times = times.T
    if not _known_to_increase and has_values(times):
        look = (times.shape, times.stride())
        countable = given.is_cuda and valid is None and not given.is_inference()
        if not countable or _checked.get(given) != (given._version, look):
            _check(times, valid)
        if countable:
            _checked[given] = (given._version, look)
    times = times.to(device)
    # Padding may hold anything, even NaN, and must not reach a gradient.
    return times if valid is None or times.dim() == 1 else torch.where(valid, times, 0)


def has_values(times: Tensor) -> bool:
    if torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active() or type(times) is not Tensor:
        return False
    if times.is_cuda and torch.cuda.is_current_stream_capturing():
        return False
    return not times.is_meta and not torch.jit.is_tracing()  # pyright: ignore[reportPrivateImportUsage]


def _check_shape(times: Tensor, steps: int, batch: int, batch_first: bool) -> None:
    per_sample = (batch, steps) if batch_first else (steps, batch)
    # Size by size: torch.compile takes a symbolic size in a tuple for another one.
    shared = times.dim() == 1 and times.shape[0] == steps
    own = times.dim() == 2 and times.shape[0] == per_sample[0] and times.shape[1] == per_sample[1]
    if not (shared or own):
        layout = "(B, T)" if batch_first else "(T, B)"
        raise ValueError(
            f"times must have shape (T,) = ({steps},) shared by all samples or {layout} = {per_sample} per sample, "
            f"but has {tuple(times.shape)}"
        )


def _check(times: Tensor, valid: Tensor | None) -> None:
    if valid is None or times.dim() == 1:
        valid = torch.ones_like(times, dtype=torch.bool)
    broken = ~times.isfinite() & valid
    falls = (times.diff(dim=0) <= 0) & valid[1:]
    if not bool(broken.any() | falls.any()):  # one question: on a GPU, each waits for the device
        return
    if broken.any():
        where = tuple(broken.nonzero()[0].tolist())
        raise ValueError(f"times must be finite, but {_place(where)} (counted from 0) is at {times[where].item()}")
    where = tuple(falls.nonzero()[0].tolist())
    after = (where[0] + 1, *where[1:])
    raise ValueError(
        f"times must increase from step to step, but {_place(after)} (counted from 0) is at "
        f"{times[after].item():g}, after {times[where].item():g}"
    )


def _place(where: tuple[int, ...]) -> str:
    return f"step {where[0]}" + "".join(f" of sample {sample}" for sample in where[1:])
