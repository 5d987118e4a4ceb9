"""A deployed network compared with LSTMs of its original size in torch and ONNX Runtime, one sequence at a time."""

import ctypes
from typing import Any

import torch
from torch import Tensor, nn

from glstm.bench.peers import onnx_lstm, onnx_session
from glstm.bench.race import Call, race
from glstm.errors import UserError
from glstm.models import SequenceModel
from glstm.runtime import Runtime


def times(model: SequenceModel, runtime: Runtime, x: Tensor, seconds: float, threads=(1, 2)) -> dict[str, float]:
    """The seconds that each takes for one sequence x (T, 1, D); ours first. ONNX Runtime only if it is installed."""
    layer = model.layer
    two_ways = runtime.plan.two_ways
    lstm = nn.LSTM(runtime.plan.inputs, layer.hidden_size, layer.num_layers, bidirectional=two_ways).eval()
    x = x.contiguous()
    given = x.transpose(0, 1) if runtime.batch_first else x
    stream: Any = None if two_ways else runtime.stream()
    samples = [sample.tolist() if runtime.plan.inputs > 1 else float(sample) for sample in x[:, 0]]
    place, steps = ctypes.c_void_p(x.data_ptr()), len(x)

    def whole(threads: int) -> Call:
        return lambda: runtime(given)

    def streamed(threads: int) -> Call:
        def call() -> None:
            stream.reset()
            for sample in samples:
                stream.step(sample)

        return call

    def in_c(threads: int) -> Call:
        def call() -> None:
            stream.reset()
            stream.network.library.glstm_stream_run(stream._pointer, place, steps)

        return call

    def torchs(threads: int) -> Call:
        def call() -> None:
            with torch.no_grad():
                lstm(x)

        return call

    contenders = {"glstm, whole": whole}
    if not two_ways:
        contenders |= {"glstm, stream in C": in_c, "glstm, stream from Python": streamed}
    contenders["torch.nn.LSTM"] = torchs
    try:
        graph = None if two_ways else onnx_lstm(lstm)  # its graph is of one direction
    except UserError:
        graph = None
    if graph is not None:

        def onnx(threads: int) -> Call:
            session, array = onnx_session(graph, threads), x.numpy()
            return lambda: session.run(None, {"x": array})

        contenders["ONNX Runtime's LSTM"] = onnx
    return {name: timing.seconds for name, timing in race(contenders, threads, seconds).items()}
