"""Who runs beside us: torch's own LSTM, ONNX Runtime's, and the gated LSTM as one would write it in plain torch."""

import torch
from torch import Tensor, nn

from glstm.errors import UserError


def eager_gated_lstm(x: Tensor, w_ih: Tensor, w_hh: Tensor, b: Tensor, k: Tensor) -> Tensor:
    """The final h; a plain loop, written with care: one product for all inputs, one a step, no indexing inside."""
    h = c = x.new_zeros(x.shape[1], w_hh.shape[1])
    recurrent = w_hh.T
    for drive, openness in zip((x @ w_ih.T + b).unbind(0), k.unbind(0)):
        i, f, g, o = torch.addmm(drive, h, recurrent).chunk(4, -1)
        c_new = f.sigmoid() * c + i.sigmoid() * g.tanh()
        h_new = o.sigmoid() * c_new.tanh()
        c, h = torch.lerp(c, c_new, openness), torch.lerp(h, h_new, openness)
    return h


def onnx_lstm(lstm: nn.LSTM) -> bytes:
    """One layer as an ONNX graph of one node: x (T, B, D) to the final h (1, B, H)."""
    try:
        from onnx import TensorProto, helper, numpy_helper
    except ImportError as error:
        raise UserError("ONNX Runtime is a peer in this benchmark: pip install 'glstm[bench]' brings it") from error

    def reordered(tensor: Tensor) -> Tensor:
        i, f, g, o = tensor.detach().chunk(4)
        return torch.cat((i, o, f, g))  # ONNX's order

    weights = {name: reordered(tensor) for name, tensor in lstm.named_parameters()}
    biases = torch.cat((weights["bias_ih_l0"], weights["bias_hh_l0"]))
    values = {"w": weights["weight_ih_l0"], "r": weights["weight_hh_l0"], "b": biases}
    graph = helper.make_graph(
        [helper.make_node("LSTM", ["x", *values], ["", "h"], hidden_size=lstm.hidden_size)],
        "lstm",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["T", "B", lstm.input_size])],
        [helper.make_tensor_value_info("h", TensorProto.FLOAT, [1, "B", lstm.hidden_size])],
        [numpy_helper.from_array(value.unsqueeze(0).numpy(), name) for name, value in values.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    return model.SerializeToString()


def onnx_session(graph: bytes, threads: int):
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
