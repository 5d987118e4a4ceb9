"""The operator inside `torch.onnx.export`, of any module that contains it.

The exporter of `torch.export` translates torch's scan, so there the operator is one. The older exporter, which traces,
asks for a function that writes the nodes of ONNX: `_symbolic`. An LSTM without a gate is ONNX's own LSTM in both.
"""

import sys
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import threshold as cut_off
from torch.overrides import TorchFunctionMode

from glstm.errors import UserError
from glstm.ops.reference import GRU

DOMAIN, VERSION = "glstm", 1  # of the functions in an exported file
OLDEST_OPSET = 15  # a file of an older one cannot contain functions


def exporting() -> bool:
    """Whether `torch.onnx.export` calls. It imports no part of torch that was not there."""
    if torch.compiler.is_dynamo_compiling():
        return False
    onnx = sys.modules.get("torch.onnx")
    return onnx is not None and onnx.is_in_onnx_export()


def tracing() -> bool:
    return torch.jit.is_tracing()  # pyright: ignore[reportPrivateImportUsage]


class Translatable(TorchFunctionMode):
    """Inside it, a gate computes with operations that both exporters know, and that are exact in ONNX.

    Of a remainder, they would write x - floor(x / y) y: for x = 1e6 in 32 bits, that is off by 0.06. A number that
    meets a tensor of 64 bits would be rounded to 32 bits, or taken for another that is equal in 32 bits: for seconds
    since 1970, that is off by a minute.
    """

    def __torch_function__(self, func, types, args=(), kwargs=None):
        wide = any(isinstance(one, Tensor) and one.dtype == torch.float64 for one in args)
        if wide and func in ARITHMETIC:
            args = [_in_64_bits(one) if isinstance(one, float) else one for one in args]
        return INSTEAD.get(func, func)(*args, **(kwargs or {}))


def _in_64_bits(number: float) -> Tensor:
    """As a tensor, which each exporter keeps exactly if it is made in this way."""
    return torch.full((), number, dtype=torch.float64) if tracing() else torch.tensor(number, dtype=torch.float64)


def _remainder(value: Any, divisor: Any) -> Tensor:
    """By the exact fmod, whose sign is the dividend's."""
    rest = torch.fmod(value, divisor)
    return torch.where(rest * divisor < 0, rest + divisor, rest)


def _threshold(input: Tensor, threshold: float, value: float, inplace: bool = False) -> Tensor:
    return torch.where(input > threshold, input, torch.full_like(input, value))


ARITHMETIC = {
    torch.add, torch.sub, torch.mul, torch.div, Tensor.add, Tensor.sub, Tensor.mul, Tensor.div, Tensor.__add__,
    Tensor.__radd__, Tensor.__sub__, Tensor.__rsub__, Tensor.__mul__, Tensor.__rmul__, Tensor.__truediv__,
}  # fmt: skip
INSTEAD = {
    torch.remainder: _remainder, Tensor.remainder: _remainder, Tensor.__mod__: _remainder,
    cut_off: _threshold, torch.threshold: _threshold,
}  # fmt: skip


def register() -> None:
    """Tells the exporter that traces how to write the operator; it asks after it has traced."""
    from torch.onnx import register_custom_op_symbolic, symbolic_helper  # pyright: ignore[reportPrivateImportUsage]

    parse = symbolic_helper.parse_args("v", "v", "v", "v", "v", "v", "v", "v", "s", "b", "b", "b", "s", "i")
    register_custom_op_symbolic("glstm::gated_lstm", parse(_symbolic), OLDEST_OPSET)


def open_lstm(
    x: Tensor, w_ih: Tensor, w_hh: Tensor, b: Tensor | None, h0: Tensor, c0: Tensor, candidate: str
) -> tuple[Tensor, Tensor, Tensor]:
    """All h, final h and final c with every unit always open, from ONNX's LSTM."""
    bias = x.new_zeros(w_hh.shape[0]) if b is None else b
    w, r, bias = (_in_order_of_onnx(part).unsqueeze(0) for part in (w_ih, w_hh, bias))
    bias = torch.cat((bias, torch.zeros_like(bias)), -1)  # ONNX has two of them, as torch has
    given = (x, w, r, bias, h0.unsqueeze(0), c0.unsqueeze(0))
    if tracing():
        h, h_n, c_n = _TracedLSTM.apply(*given, candidate)
    else:
        from torch.onnx import ops

        state = given[-1].shape
        h, h_n, c_n = ops.symbolic_multi_out(
            "LSTM", (*given[:4], None, *given[4:]), _attributes(candidate, w_hh.shape[-1]),
            dtypes=[x.dtype] * 3, shapes=[(x.shape[0], *state), state, state],
        )  # fmt: skip
    return h.squeeze(1), h_n.squeeze(0), c_n.squeeze(0)


def _in_order_of_onnx(rows: Tensor) -> Tensor:
    """i o f g, where torch has i f g o."""
    size = rows.shape[0] // 4
    i, f, g, o = (rows[n * size : (n + 1) * size] for n in range(4))
    return torch.cat((i, o, f, g))


def _attributes(candidate: str, hidden: int) -> dict[str, Any]:
    return {"hidden_size": hidden, "activations": ["Sigmoid", candidate.capitalize(), "Tanh"]}


class _TracedLSTM(torch.autograd.Function):
    """x (T, B, D), weights, biases and state in ONNX's layout -> h (T, 1, B, H), h_n and c_n (1, B, H)."""

    @staticmethod
    def forward(ctx, x, w, r, b, h0, c0, candidate):  # pyright: ignore[reportIncompatibleMethodOverride]
        """The exporter wants the type and shape of a result; its values are lost."""
        return x.new_zeros(x.shape[0], *h0.shape), torch.zeros_like(h0), torch.zeros_like(c0)

    @staticmethod
    def symbolic(g, x, w, r, b, h0, c0, candidate):
        hidden = r.type().sizes()[-1]
        return g.op(
            "LSTM", x, w, r, b, _missing(g), h0, c0, outputs=3, hidden_size_i=hidden,
            activations_s=_attributes(candidate, hidden)["activations"],
        )  # fmt: skip


def _missing(g: Any) -> Any:
    """An optional input that is not given."""
    return g.op("prim::Constant").setType(torch._C.NoneType.get())


KINDS = {"Half": "FLOAT16", "BFloat16": "BFLOAT16", "Float": "FLOAT", "Double": "DOUBLE"}


@dataclass(frozen=True)
class _Function:
    """The recurrence as a function that is part of the exported file: the older exporter cannot write a Scan itself.

    It has what that exporter uses of an onnxscript function.
    """

    candidate: str
    hidden: int
    tables: int  # 1, or 2 if the output has its own
    kind: str  # of the numbers, such as FLOAT
    onnx_opset: int

    @property
    def name(self) -> str:
        return f"gated_lstm_{self.candidate}_{self.hidden}_{self.kind.lower()}" + "_k_h" * (self.tables - 1)

    @property
    def opset(self) -> SimpleNamespace:
        return SimpleNamespace(domain=DOMAIN, version=VERSION)

    def to_function_proto(self) -> Any:
        from glstm.ops.onnx_graph import Graph, TensorProto, helper, recurrence

        graph, inputs = Graph(opset=self.onnx_opset), ["sums", "w_hh", "h0", "c0", "k", "k_h"][: 4 + self.tables]
        sums, w_hh, h0, c0, k, *k_h = inputs
        options = {"k_h": k_h[0] if k_h else None, "kind": TensorProto.DataType.Value(self.kind)}
        results = recurrence(graph, sums, k, w_hh, h0, c0, self.candidate, self.hidden, **options)
        outputs = ["h", "h_n", "c_n"]
        for made, name in zip(results, outputs, strict=True):
            graph.named(made, name)
        imports = [helper.make_opsetid("", self.onnx_opset)]
        return helper.make_function(DOMAIN, self.name, inputs, outputs, graph.nodes, imports)


def _symbolic(g, x, w_ih, w_hh, b, k, k_h, h0, c0, candidate, sequence, cells, taped, backend, segment):
    """The six results of the registered operator; what nobody requested is empty."""
    if candidate == GRU:
        raise UserError(
            "torch.onnx.export with dynamo=False knows torch.nn.GRU, not gated_gru: use that, or dynamo=True"
        )
    if cells:
        raise UserError("torch.onnx.export with dynamo=False cannot return all c: use dynamo=True, or cells=False")
    sums = g.op("MatMul", x, g.op("Transpose", w_ih, perm_i=[1, 0]))
    sums = sums if b.node().mustBeNone() else g.op("Add", sums, b)
    tables = [k] if k_h.node().mustBeNone() else [k, k_h]
    hidden = w_hh.type().sizes()[-1]
    function = _Function(candidate, hidden, len(tables), KINDS[x.type().scalarType()], g.opset)
    recurrent = g.op("Transpose", w_hh, perm_i=[1, 0])
    h, h_n, c_n = g.onnxscript_op(function, sums, recurrent, h0, c0, *tables, outputs=3)
    h.setType(x.type().with_sizes([None, None, hidden]))
    for state in (h_n, c_n):
        state.setType(x.type().with_sizes([None, hidden]))
    empty = g.op("Constant", value_t=torch.empty(0))
    return h, h_n, c_n, empty, empty, g.op("Constant", value_t=torch.empty(0, dtype=torch.int64))
