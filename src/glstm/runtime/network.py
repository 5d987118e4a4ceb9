"""A plan as the structures that the C code reads: those of `native/stream.h`."""

import ctypes
import hashlib
from ctypes import POINTER, c_int32, c_uint32, c_uint64, c_void_p
from typing import Any

import numpy as np

from glstm.errors import UserError
from glstm.ops import cpu
from glstm.runtime.head import DensePlan
from glstm.runtime.plan import POOLS, LayerPlan, NetworkPlan, Plan
from glstm.runtime.timed_plan import SHAPES, TimedLayer, TimedPlan
from glstm.scaling import MISSING

WEIGHTS = ("row", "w_x", "w_h", "scale_x", "scale_h", "bias")


class _Layer(ctypes.Structure):
    _fields_ = [
        *((name, c_uint32) for name in ("inputs", "units", "most_open", "spans", "logistic")),
        *((name, c_void_p) for name in ("start", "change", "opens", "k", *WEIGHTS)),
        ("pool", c_uint32),
    ]


class _TimedLayer(ctypes.Structure):
    _fields_ = [
        *((name, c_uint32) for name in ("inputs", "units", "most_open", "shape", "logistic")),
        *((name, c_void_p) for name in ("first", "length", "period", "peak", "steep", *WEIGHTS)),
        ("pool", c_uint32),
    ]


class _Dense(ctypes.Structure):
    _fields_ = [
        *((name, c_uint32) for name in ("inputs", "outputs", "relu")),
        *((name, c_void_p) for name in ("w", "scale", "bias")),
    ]


class _Model(ctypes.Structure):
    _fields_ = [
        *((name, c_uint32) for name in ("steps", "layers", "dense", "widest")),
        ("layer", c_void_p),
        ("head", POINTER(_Dense)),
        *((name, c_uint32) for name in ("raw", "missing")),
        *((name, c_void_p) for name in ("mean", "scale")),
    ]


class _Clock(ctypes.Structure):
    _fields_ = [(name, c_uint64) for name in ("begin", "ticks", "fine", "longest")]


BUFFERS = ("x", "y", "space", "standard")


class StreamStructure(ctypes.Structure):
    """Of `native/stream.c`."""

    _fields_ = [
        ("model", POINTER(_Model)),
        *((name, c_void_p) for name in ("step", "place", "number", *BUFFERS)),
    ]


class TimedStructure(ctypes.Structure):
    """Of `native/timed.c`."""

    _fields_ = [
        ("model", POINTER(_Model)),
        ("clock", POINTER(_Clock)),
        *((name, c_void_p) for name in ("step", "place", "number", "opens", "agenda", *BUFFERS)),
        *((name, c_uint64) for name in ("now", "count")),
        *((name, c_int32) for name in ("counted", "finished")),
    ]


class Network:
    """Of one plan. Many streams may share one."""

    def __init__(self, plan: Plan | TimedPlan):
        library = cpu.engine()
        if library is None:
            raise UserError(
                "streams run on the C engine, and no compiler that can build it was there when glstm was installed: "
                "with GCC or clang there, install it again"
            )
        self.plan, self.library = plan, library
        rows = [_layer(layer) for layer in plan.layers]
        self.layers = (type(rows[0]) * len(rows))(*rows)
        self.head = (_Dense * len(plan.head))(*map(_dense, plan.head))
        mean = scale = None
        if plan.standard is not None:
            mean, scale = plan.standard.mean.ctypes.data, plan.standard.scale.ctypes.data
        steps = plan.steps if isinstance(plan, Plan) else 0
        self.structure = _Model(
            steps, len(rows), len(plan.head), plan.widest, ctypes.addressof(self.layers), self.head,
            plan.inputs, MISSING.index(plan.missing), mean, scale,
        )  # fmt: skip
        self.clock = None
        if isinstance(plan, TimedPlan):
            clock = plan.clock
            self.clock = _Clock(clock.begin, clock.ticks, clock.fine, clock.longest)
        self.fingerprint = _fingerprint(plan)


def _layer(plan: LayerPlan | TimedLayer) -> Any:
    own = {"logistic": plan.logistic, "pool": POOLS.index(plan.pool)}
    own |= {name: getattr(plan, name) for name in ("inputs", "units", "most_open")}
    if isinstance(plan, LayerPlan):
        kind, more = _Layer, {"spans": plan.spans}
    else:
        kind, more = _TimedLayer, {"shape": SHAPES.index(plan.shape)}
    arrays = {name: getattr(plan, name, None) for name, type_ in kind._fields_ if type_ is c_void_p}
    places = {name: array.ctypes.data for name, array in arrays.items() if isinstance(array, np.ndarray)}
    return kind(**own, **more, **places)


def _dense(plan: DensePlan) -> _Dense:
    outputs, inputs = plan.weight.shape
    return _Dense(inputs, outputs, plan.relu, w=plan.weight.ctypes.data, bias=plan.bias.ctypes.data)


def _fingerprint(plan: NetworkPlan) -> str:
    """Identifies a network, because a state can only be used with the network that made it."""
    digest = hashlib.sha256()
    if plan.standard is not None:
        digest.update(plan.standard.mean.tobytes() + plan.standard.scale.tobytes())
        digest.update(plan.missing.encode())
    if isinstance(plan, TimedPlan):
        digest.update(repr(plan.scale).encode())
    for layer in plan.layers:
        digest.update(repr((layer.inputs, layer.units, layer.logistic)).encode())
        digest.update((layer.pool or "").encode())
        for array in layer.constants:
            digest.update(array.tobytes())
    return digest.hexdigest()[:16]
