"""A deployed network that takes one sample at a time and keeps its own state (`Runtime.stream()`).

It runs the same C code as exported models. For a layer in PyTorch that reads a long input in parts, see
`glstm/streaming.py`.
"""

import ctypes
import hashlib
from ctypes import POINTER, byref, c_float, c_uint32, c_void_p
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save
from torch import Tensor

from glstm.errors import UserError
from glstm.ops import cpu
from glstm.runtime.head import ACTIVATIONS, HeadPlan, Stage
from glstm.runtime.plan import POOLS, LayerPlan, Plan
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


class Stream:
    """`step(x_t)` takes the next sample. A copy made with `copy.copy` has a state of its own."""

    def __init__(self, network: Network, reads: frozenset[int]):
        self.network, self._reads = network, reads
        plan = network.plan
        self._words = np.zeros(1 + 3 * len(plan.layers), np.uint32)  # the step; and each layer's place
        self._numbers = np.zeros(plan.numbers, np.float32)
        self._x_view = np.zeros(plan.inputs, np.float32)
        # The same memory as `_x_view`: setting one number is faster this way.
        self._x = (c_float * plan.inputs).from_address(self._x_view.ctypes.data)
        self._y = np.zeros(plan.outputs, np.float32)
        self._space = np.zeros(plan.space, np.float32)
        self._standard = np.zeros(plan.layers[0].inputs, np.float32)
        step, numbers = self._words.ctypes.data, self._numbers.ctypes.data
        self._structure = _Stream(
            ctypes.pointer(network.structure), step, step + self._words.itemsize, numbers,
            ctypes.addressof(self._x), self._y.ctypes.data, self._space.ctypes.data, self._standard.ctypes.data,
        )  # fmt: skip
        self._pointer = byref(self._structure)
        self._scalar = plan.inputs == 1
        library = network.library
        self._take, self._take_and_read = library.glstm_stream_step, library.glstm_stream_step_output
        self._step = 0  # the same as the first word, as a Python number

    @property
    def position(self) -> int:
        """Samples taken so far; those past the last step are not taken."""
        return min(self._step, self.network.plan.steps)

    def step(self, x_t: "float | ArrayLike | Tensor") -> np.ndarray | None:
        """Take one sample: a number, or `inputs` of them. Returns the head's output where it is read, else None.

        After the last step of the schedule samples are ignored, and the state does not change.
        """
        if self._scalar and type(x_t) is float:
            self._x[0] = x_t
        else:
            self._x_view[:] = self._sample(x_t)
        self._step += 1
        if self._step in self._reads:
            self._take_and_read(self._pointer)
            return self._y.copy()
        self._take(self._pointer)
        return None

    def _sample(self, x_t) -> np.ndarray:
        if isinstance(x_t, Tensor):
            x_t = x_t.detach().cpu().numpy()
        sample = np.asarray(x_t, np.float32)
        inputs = len(self._x)
        if sample.shape != (inputs,) and not (self._scalar and sample.shape == ()):
            raise ValueError(f"a sample has {inputs} numbers, shape ({inputs},), but this one has shape {sample.shape}")
        return sample

    def output(self) -> np.ndarray:
        """The head's output for the state now, at any step."""
        self.network.library.glstm_stream_output(self._pointer)
        return self._y.copy()

    def reset(self) -> None:
        """Back to the state before the first sample."""
        self.network.library.glstm_stream_reset(self._pointer)
        self._step = 0

    def __copy__(self) -> "Stream":
        other = Stream(self.network, self._reads)
        other._words[:], other._numbers[:], other._y[:] = self._words, self._numbers, self._y
        other._step = self._step
        return other

    def __deepcopy__(self, memo: dict) -> "Stream":
        return self.__copy__()

    def save(self, path: Path | str) -> None:
        """Write the state to a file that `load` reads."""
        about = {"network": self.network.fingerprint, "position": str(self.position)}
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
        if not fits or not position.isdecimal() or int(position) > self.network.plan.steps or "network" not in about:
            raise UserError(f"{path} is not the state of a stream of this network")
        self._numbers[:], self._step = numbers, int(position)
        self._words[:] = [self._step, *(word for layer in self.network.plan.layers for word in layer.place(self._step))]
