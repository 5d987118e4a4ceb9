"""A deployed network that takes one sample at a time and keeps its own state (`Runtime.stream()`).

It runs the same C code as exported models. `Stream` is what all streams have in common; here is that for steps at known
times, `timed_stream.py` has the one for any times. For a layer in PyTorch that reads a long input in parts, see
`glstm/streaming.py`.
"""

import ctypes
import hashlib
import re
import warnings
from abc import ABC, abstractmethod
from ctypes import POINTER, byref, c_float, c_uint32, c_void_p
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save
from torch import Tensor

from glstm.errors import StreamWarning, UserError
from glstm.ops import cpu
from glstm.runtime.head import ACTIVATIONS, HeadPlan, Stage
from glstm.runtime.plan import POOLS, LayerPlan, Plan
from glstm.runtime.windows import Windows
from glstm.scaling import MISSING
from glstm.storage import write_atomically

if TYPE_CHECKING:
    from numpy.typing import ArrayLike


class _Layer(ctypes.Structure):
    _fields_ = [
        *((name, c_uint32) for name in ("inputs", "units", "most_open", "spans", "logistic")),
        *((name, c_void_p) for name in ("start", "change", "opens", "k", "row", "w_x", "w_h")),
        *((name, c_void_p) for name in ("scale_x", "scale_h", "bias")),
        ("pool", c_uint32),
    ]


class _Dense(ctypes.Structure):
    _fields_ = [
        *((name, c_uint32) for name in ("inputs", "outputs", "then")),
        *((name, c_void_p) for name in ("w", "scale", "bias")),
        ("number", c_float),
        *((name, c_void_p) for name in ("gain", "shift", "places")),
    ]


class _Model(ctypes.Structure):
    _fields_ = [
        *((name, c_uint32) for name in ("steps", "layers", "dense", "widest")),
        ("layer", POINTER(_Layer)),
        ("head", POINTER(_Dense)),
        *((name, c_uint32) for name in ("raw", "missing")),
        *((name, c_void_p) for name in ("mean", "scale")),
    ]


class _Stream(ctypes.Structure):
    _fields_ = [
        ("model", POINTER(_Model)),
        *((name, c_void_p) for name in ("step", "place", "number", "x", "y", "space", "standard")),
    ]


class Network:
    """A plan as the structures that the C code reads. Many streams may share one."""

    def __init__(self, plan: Plan):
        library = cpu.engine()
        if library is None:
            raise UserError(
                "streams run on the C engine, and no compiler that can build it was there when glstm was installed: "
                "with GCC or clang there, install it again"
            )
        self.plan, self.library = plan, library
        layers = (_Layer * len(plan.layers))(*map(_layer, plan.layers))
        stages = [_stage(plan.head, stage) for stage in plan.head.stages(plan.read)]
        head = (_Dense * len(stages))(*stages)
        mean = scale = None
        if plan.standard is not None:
            mean, scale = plan.standard.mean.ctypes.data, plan.standard.scale.ctypes.data
        self.structure = _Model(
            plan.steps, len(plan.layers), len(stages), plan.widest, layers, head,
            plan.inputs, MISSING.index(plan.missing), mean, scale,
        )  # fmt: skip
        self.fingerprint = _fingerprint(plan)


def _layer(plan: LayerPlan) -> _Layer:
    at = {name: getattr(plan, name) for name in ("start", "change", "opens", "k", "row", "w_x", "w_h", "bias")}
    places = {name: None if array is None else array.ctypes.data for name, array in at.items()}
    return _Layer(
        plan.inputs, plan.units, plan.most_open, plan.spans, plan.logistic, pool=POOLS.index(plan.pool), **places
    )


def _stage(head: HeadPlan, stage: Stage) -> _Dense:
    weights = {} if stage.dense is None else {"w": head.dense[stage.dense].weight, "bias": head.dense[stage.dense].bias}
    arrays = weights | {"gain": stage.then.gain, "shift": stage.then.shift, "places": stage.places}
    places = {name: None if array is None else array.ctypes.data for name, array in arrays.items()}
    then = ACTIVATIONS.index(stage.then.kind)
    return _Dense(stage.inputs, stage.outputs, then, number=stage.then.number, **places)


def _fingerprint(plan: Plan) -> str:
    """Identifies a network, because a state can only be used with the network that made it."""
    digest = hashlib.sha256()
    if plan.standard is not None:
        digest.update(plan.standard.mean.tobytes() + plan.standard.scale.tobytes())
        digest.update(plan.missing.encode())
    for layer in plan.layers:
        digest.update(repr((layer.inputs, layer.units, layer.logistic)).encode())
        digest.update((layer.pool or "").encode())
        for array in layer.constants:
            digest.update(array.tobytes())
    return digest.hexdigest()[:16]


class Stream(ABC):
    """Reads a sequence sample by sample; `Runtime.stream()` makes it. A copy made with `copy.copy` has a state of its
    own.
    """

    _structure: Any  # what the C code gets, by its only argument `_pointer`
    _prefix: str  # of the C functions
    _words: np.ndarray

    def __init__(self, network: Network):
        self.network = network
        plan, library = network.plan, network.library
        self._numbers = np.zeros(plan.numbers, np.float32)
        self._x_view = np.zeros(plan.inputs, np.float32)
        # The same memory as `_x_view`: setting one number is faster this way.
        self._x = (c_float * plan.inputs).from_address(self._x_view.ctypes.data)
        self._y = np.zeros(plan.outputs, np.float32)
        self._space = np.zeros(plan.space, np.float32)
        self._standard = np.zeros(plan.layers[0].inputs, np.float32)
        self._scalar = plan.inputs == 1
        names = ("step", "step_output", "output", "reset")
        calls = (getattr(library, f"{self._prefix}_{name}") for name in names)
        self._take, self._take_and_read, self._read, self._begin = calls
        self._step = 0  # samples taken
        self._told = False  # that nothing will change any more

    def _buffers(self) -> dict[str, int]:
        """Addresses for the C code."""
        buffers = {"number": self._numbers, "y": self._y, "space": self._space, "standard": self._standard}
        return {"x": ctypes.addressof(self._x), **{name: array.ctypes.data for name, array in buffers.items()}}

    def _point_to(self, structure: Any) -> None:
        self._structure, self._pointer = structure, byref(structure)

    @property
    @abstractmethod
    def position(self) -> int:
        """Samples taken so far."""

    @property
    @abstractmethod
    def finished(self) -> bool:
        """Whether the state will not change any more, whatever samples come."""

    @abstractmethod
    def step(self, x_t: "float | ArrayLike | Tensor", t: float | None = None) -> np.ndarray | None:
        """Take the next sample.

        Args:
            x_t: A number, or D of them.
            t: Its time, if the stream is one in time; None: samples are counted.

        Returns:
            The head's output (outputs,), a new array; None at a step at which it does not read.
        """

    @abstractmethod
    def take(self, samples: "ArrayLike | Tensor", times: "ArrayLike | Tensor | None" = None) -> None:
        """As `step` for each of samples (N, inputs), in one call, without the head: `output()` says what it reads."""

    def _rows(self, samples) -> np.ndarray:
        rows = samples.detach().cpu().numpy() if isinstance(samples, Tensor) else np.asarray(samples)
        rows = np.ascontiguousarray(rows, np.float32)
        rows = rows[:, None] if rows.ndim == 1 and self._scalar else rows
        inputs = len(self._x)
        if rows.ndim != 2 or rows.shape[1] != inputs:
            raise UserError(f"samples must be (N, {inputs}), but have shape {rows.shape}")
        return rows

    @abstractmethod
    def _fresh(self) -> Self:
        """A stream of the same network at its beginning."""

    def _sample(self, x_t) -> np.ndarray:
        if isinstance(x_t, Tensor):
            x_t = x_t.numpy(force=True)
        sample = np.asarray(x_t, np.float32)
        inputs = len(self._x)
        if sample.shape != (inputs,) and not (self._scalar and sample.shape == ()):
            raise UserError(f"a sample has {inputs} numbers, shape ({inputs},), but this one has shape {sample.shape}")
        return sample

    def take_checked(self, sample: np.ndarray) -> None:
        """Take a sample that is known to fit, as the next that is counted, without reading."""
        self._x_view[:] = sample
        self._step += 1
        self._take(self._pointer)

    def output(self) -> np.ndarray:
        """The head's output for the state now, at any step."""
        self._read(self._pointer)
        return self._y.copy()

    def reset(self) -> None:
        """Back to the state before the first sample."""
        self._begin(self._pointer)
        self._step, self._told = 0, False

    def windows(self, length: int, hop: int) -> Windows:
        """Overlapping windows of `length` samples on a stream without an end, one beginning every `hop` samples: each
        has a state of its own, which begins as this stream did."""
        return Windows(self, length, hop)

    def _tell(self, sentence: str) -> None:
        """Once: nothing else shows that later samples do not matter. Called by a method that a public one calls."""
        if not self._told:
            self._told = True
            warnings.warn(sentence, StreamWarning, stacklevel=4)

    def __copy__(self) -> Self:
        other = self._fresh()
        other._numbers[:], other._y[:] = self._numbers, self._y
        other._step, other._told = self._step, self._told
        self._copy_place(other)
        return other

    @abstractmethod
    def _copy_place(self, other: Any) -> None:
        """Also the position in time."""

    def __deepcopy__(self, memo: dict) -> Self:
        return self.__copy__()

    def save(self, path: Path | str) -> None:
        """Write the state to a file that `load` reads."""
        about = {"network": self.network.fingerprint, "position": str(self.position), **self._about()}
        write_atomically(Path(path), save({"numbers": self._numbers}, about))

    def load(self, path: Path | str) -> None:
        """Take over a state that `save` wrote. The file must come from a stream of the same network."""
        path = Path(path)
        try:
            with safe_open(path, "np") as file:
                about, tensors = file.metadata() or {}, {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        except FileNotFoundError:
            raise UserError(f"there is no file {path}") from None
        except (OSError, SafetensorError) as error:
            raise UserError(f"{path} cannot be read as the state of a stream: {error}") from None
        numbers, position = tensors.get("numbers"), about.get("position", "")
        fits = numbers is not None and numbers.shape == self._numbers.shape and numbers.dtype == np.float32
        if about.get("network") not in (None, self.network.fingerprint):
            raise UserError(f"{path} is the state of a stream of another network")
        fits = fits and "network" in about and re.fullmatch("[0-9]{1,18}", position) is not None
        if not fits or not self._resume(int(position), about):
            raise UserError(f"{path} is not the state of a stream of this network")
        self._numbers[:], self._step, self._told = numbers, int(position), False

    def _about(self) -> dict[str, str]:
        """What a saved state says besides its position."""
        return {}

    @abstractmethod
    def _resume(self, position: int, about: dict[str, str]) -> bool:
        """Go to this position, if there can be one."""


def address(array: np.ndarray | None) -> c_void_p:
    return c_void_p(None if array is None else array.ctypes.data)


class KnownStream(Stream):
    """For steps at known times. The state knows its place in the schedule."""

    _prefix = "glstm_stream"

    def __init__(self, network: Network, reads: frozenset[int]):
        super().__init__(network)
        self.plan, self._reads = network.plan, reads
        self._words = np.zeros(1 + 3 * len(self.plan.layers), np.uint32)  # the step; and each layer's place
        step = self._words.ctypes.data
        model = ctypes.pointer(network.structure)
        self._point_to(_Stream(model, step, step + self._words.itemsize, **self._buffers()))

    @property
    def position(self) -> int:
        """Samples taken so far; those past the last step are not taken."""
        return min(self._step, self.plan.steps)

    @property
    def finished(self) -> bool:
        """Whether the last step is over: later samples are ignored."""
        return self._step >= self.plan.steps

    def step(self, x_t: "float | ArrayLike | Tensor", t: float | None = None) -> np.ndarray | None:
        """Take one sample: a number, or `inputs` of them. Returns the head's output where it is read, else None.

        After the last step of the schedule samples are ignored, and the state does not change.
        """
        if t is not None:
            self._refuse_times()
        if self._scalar and type(x_t) is float:
            self._x[0] = x_t
        else:
            self._x_view[:] = self._sample(x_t)
        self._step += 1
        if self._step in self._reads:
            self._take_and_read(self._pointer)
            return self._y.copy()
        if self._step > self.plan.steps:
            self._say_that_it_ended()
        self._take(self._pointer)
        return None

    def take(self, samples: "ArrayLike | Tensor", times: "ArrayLike | Tensor | None" = None) -> None:
        if times is not None:
            self._refuse_times()
        rows = self._rows(samples)
        self._step += len(rows)
        if self._step > self.plan.steps:
            self._say_that_it_ended()
        self.network.library.glstm_stream_run(self._pointer, address(rows), c_uint32(len(rows)))

    def _refuse_times(self) -> None:
        raise UserError(
            "the times of this stream's steps are known already, so it takes none: glstm.deploy(model) without steps "
            "gives a stream in which every sample has its own time"
        )

    def _say_that_it_ended(self) -> None:
        self._tell(
            f"this network was deployed for {self.plan.steps} steps: later samples are ignored, and its output stays "
            "as it is; call reset() for another sequence, or use windows() on a stream without an end"
        )

    def _fresh(self) -> Self:
        return type(self)(self.network, self._reads)

    def _copy_place(self, other: Any) -> None:
        other._words[:] = self._words

    def _resume(self, position: int, about: dict[str, str]) -> bool:
        if position > self.plan.steps:
            return False
        self._words[:] = [position, *(word for layer in self.plan.layers for word in layer.place(position))]
        return True
