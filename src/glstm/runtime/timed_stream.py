"""A stream in time: it has no end, or its samples come at times that nobody knows beforehand."""

import ctypes
import hashlib
from ctypes import c_int32, c_uint32, c_uint64, c_void_p
from math import isfinite
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from torch import Tensor

from glstm.errors import UserError
from glstm.runtime.plan import POOLS
from glstm.runtime.stream import Network, Stream, address
from glstm.runtime.ticks import MODULUS
from glstm.runtime.timed_plan import SHAPES, TimedLayer, TimedPlan
from glstm.times import plainly

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

ARRAYS = ("first", "length", "period", "peak", "shift", "steep", "row", "w_x", "w_h", "bias")


class _Layer(ctypes.Structure):
    """As `stream.h` has it where GLSTM_TIMED is defined."""

    _fields_ = [
        *((name, c_uint32) for name in ("inputs", "units", "most_open", "shape", "logistic")),
        *((name, c_void_p) for name in (*ARRAYS[:-1], "scale_x", "scale_h", "bias")),
        ("pool", c_uint32),
    ]


class _Clock(ctypes.Structure):
    _fields_ = [(name, c_uint64) for name in ("begin", "ticks", "fine", "longest")]


class _Timed(ctypes.Structure):
    _fields_ = [
        *((name, c_void_p) for name in ("model", "clock", "step", "place", "number", "opens", "agenda")),
        *((name, c_void_p) for name in ("x", "y", "space", "standard")),
        *((name, c_uint64) for name in ("now", "count")),
        *((name, c_int32) for name in ("counted", "finished")),
    ]


class TimedNetwork(Network):
    plan: TimedPlan  # pyright: ignore[reportIncompatibleVariableOverride]

    def __init__(self, plan: TimedPlan):
        super().__init__(plan)
        self.layers = (_Layer * len(plan.layers))(*map(_layer, plan.layers))
        self.structure.layer = ctypes.cast(self.layers, type(self.structure.layer))
        clock = plan.clock
        self.clock = _Clock(clock.begin, clock.ticks, clock.fine, clock.longest)
        self.fingerprint = hashlib.sha256((self.fingerprint + repr(plan.scale)).encode()).hexdigest()[:16]


def _layer(plan: TimedLayer) -> _Layer:
    places = {name: getattr(plan, name).ctypes.data for name in ARRAYS}
    sizes = (plan.inputs, plan.units, plan.most_open, SHAPES.index(plan.shape), plan.logistic)
    return _Layer(*sizes, pool=POOLS.index(plan.pool), **places)


class TimedStream(Stream):
    """Samples are counted, at the times 1, 2, ..., or every one has its time: the first sample decides.

    Time is kept in whole ticks, so nothing drifts, and a stream of gates that come back may run for ever.
    """

    _prefix = "glstm_timed"

    network: TimedNetwork  # pyright: ignore[reportIncompatibleVariableOverride]

    def __init__(self, network: TimedNetwork, reads: frozenset[int] | None):
        """`reads`: steps after which the head reads; None: all of them."""
        super().__init__(network)
        plan = self.plan = network.plan
        self._reads, self._may_end = reads, plan.ends
        self._words = np.zeros(1, np.uint32)
        self._windows = np.zeros(2 * len(plan.layers) + plan.windows, np.uint64)
        self._agenda = np.zeros(plan.agenda, np.uint16)
        places = self._windows.ctypes.data
        self._point_to(
            _Timed(
                ctypes.addressof(network.structure), ctypes.addressof(network.clock), self._words.ctypes.data, places,
                opens=places + 16 * len(plan.layers), agenda=self._agenda.ctypes.data, counted=1, **self._buffers(),
            )
        )  # fmt: skip
        self._time: float | None = None  # of the last sample, where samples have times

    @property
    def position(self) -> int:
        return self._step

    @property
    def time(self) -> float | None:
        """Of the last sample, if there was one."""
        return self._time if self._time is not None or not self._step else float(self._step)

    @property
    def finished(self) -> bool:
        """Whether the last gate has closed, so that no sample will change anything. Gates that come back never do."""
        return bool(self._structure.finished)

    def step(self, x_t: "float | ArrayLike | Tensor", t: float | None = None) -> np.ndarray | None:
        """Take one sample: a number, or `inputs` of them. Returns the head's output, a new array; or None at steps
        after which it does not read.

        t: the sample's time, later than that of the one before, in the unit of the times of training. Either all
        samples of a stream have one, or none: then they are at 1, 2, ...
        """
        if self._scalar and type(x_t) is float:
            self._x[0] = x_t
        else:
            self._x_view[:] = self._sample(x_t)
        if t is not None:
            moment = self._moment(t)
            self._time, self._structure.now = float(t), moment
        elif not self._step or self._time is not None:
            self._require_counted()
        if self._may_end and self._structure.finished:
            self._warn()
        self._step += 1
        if self._reads is None or self._step in self._reads:
            self._take_and_read(self._pointer)
            return self._y.copy()
        self._take(self._pointer)
        return None

    def take(self, samples: "ArrayLike | Tensor", times: "ArrayLike | Tensor | None" = None) -> None:
        rows = self._rows(samples)
        if not len(rows):
            return
        moments = last = None
        if times is not None:
            given = self._increasing(times, len(rows))
            self._moment(float(given[0]))
            moments, last = self.plan.scale.moments(given), float(given[-1])
        elif not self._step or self._time is not None:
            self._require_counted()
        if self._may_end and self._structure.finished:
            self._warn()
        self._time = last
        self._step += len(rows)
        self.network.library.glstm_timed_run(self._pointer, address(rows), address(moments), c_uint64(len(rows)))

    def _increasing(self, times: Any, count: int) -> np.ndarray:
        given = np.asarray(times.detach().cpu() if isinstance(times, Tensor) else times, np.float64)
        gaps = np.diff(given)
        if given.shape != (count,) or not np.isfinite(given).all() or not (gaps > 0).all():
            raise UserError(f"times must be {count} increasing numbers, one for each sample")
        if len(gaps) and gaps.max() >= self.plan.scale.longest:
            raise UserError(self._too_long(float(gaps.max())))
        return given

    def _moment(self, t: float) -> int:
        """In ticks, if it can be the next sample's time."""
        t = t.item() if isinstance(t, Tensor) and t.numel() == 1 else t
        if isinstance(t, bool) or not isinstance(t, int | float | np.integer | np.floating) or not isfinite(t):
            raise UserError(f"the time of a sample must be a finite number, not {t!r:.50}")
        before = self._time
        if before is None:
            if self._step:
                raise UserError(
                    "the samples of this stream are counted: give all of them a time, or none, or reset() it"
                )
            if abs(t - self.plan.scale.frame.origin) >= self.plan.scale.longest:
                raise UserError(self._too_long(abs(t - self.plan.scale.frame.origin)))
            self._structure.counted = 0
        elif not t > before:
            raise UserError(f"times must increase, but this sample is at {t:.17g}, after one at {before:.17g}")
        elif t - before >= self.plan.scale.longest:
            raise UserError(self._too_long(t - before))
        return self.plan.scale.moment(float(t)) % MODULUS

    def _too_long(self, gap: float) -> str:
        longest = self.plan.scale.longest
        return f"two samples may lie up to {longest:.3g} apart, not {gap:.3g}: reset() the stream after so long a gap"

    def _require_counted(self) -> None:
        if self._time is not None:
            raise UserError("the samples of this stream have times: give all of them one, or none, or reset() it")
        self.plan.require_counted()
        self._structure.counted = 1

    def _warn(self) -> None:
        end = self.plan.last_closing
        self._tell(
            f"the last gate of this network closed at time {plainly(end, self.plan.scale.frame.unit)}: later samples "
            "change nothing, and its output stays as it is; call reset() for another sequence, or use windows() on a "
            "stream without an end"
        )

    def reset(self) -> None:
        """Back to the state before the first sample."""
        super().reset()
        self._time = None

    def _fresh(self) -> Self:
        return type(self)(self.network, self._reads)

    def _copy_place(self, other: Any) -> None:
        other._words[:], other._windows[:], other._agenda[:] = self._words, self._windows, self._agenda
        for name in ("now", "count", "counted", "finished"):
            setattr(other._structure, name, getattr(self._structure, name))
        other._time = self._time

    def _about(self) -> dict[str, str]:
        return {} if self._time is None else {"time": float(self._time).hex()}

    def _resume(self, position: int, about: dict[str, str]) -> bool:
        try:
            time = float.fromhex(about["time"]) if "time" in about else None
            moment = self.plan.clock.moment(position) if time is None else self.plan.scale.moment(time)
        except (ValueError, OverflowError):
            return False
        if time is not None and not position:
            return False
        windows = [layer.windows_at(moment) for layer in self.plan.layers]
        self._windows[2 * len(windows) :] = np.concatenate(windows)
        self._time, self._structure.counted = time, time is None
        self.network.library.glstm_timed_resume(self._pointer, c_uint64(moment % MODULUS), c_uint64(position % MODULUS))
        return True
