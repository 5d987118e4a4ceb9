"""The CUDA engine beside cuDNN's LSTM, which has no gates: through the layer, as a user calls it, with all gradients.

Beside that stand the operator alone, from a table k, and the same as a CUDA graph, without the host's time. Populations
have no layer: the operator takes all networks at once.
"""

import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from statistics import median

import torch
from torch import nn

from glstm.bench.cpu import run_eagerly, training_step
from glstm.layers import GLSTM
from glstm.ops import gated_lstm, gpu
from glstm.ops.gpu import choice, sparse

# Training steps: all outputs asked for, or the final state only. Inference: all outputs.
LAYER, FINAL, INFERENCE = "GLSTM", "GLSTM, final state", "GLSTM, inference"
CUDNN, CUDNN_INFERENCE, EAGER = "cuDNN nn.LSTM", "cuDNN, inference", "eager gated loop"
OPERATOR, GRAPH = "operator, final state", "operator as a CUDA graph"
NAMES = (LAYER, FINAL, CUDNN, INFERENCE, CUDNN_INFERENCE, OPERATOR, GRAPH)

# For an H100 or H200: cycles of a product of 16 x 16 x 8 on one of four schedulers, special functions per cycle of a
# multiprocessor, cycles of a barrier of warps, cycles of an exchange between the blocks of a cluster, and cycles per
# microsecond.
PRODUCT, SPECIAL, BARRIER, EXCHANGE, CYCLES = 8, 16, 100, 200, 1.8e3


@dataclass(frozen=True)
class Case:
    hidden: int
    batch: int
    steps: int = 784
    inputs: int = 1
    models: int = 0  # 0: one network, without a model axis
    precision: str = "high"
    open_share: float = 1.0  # how open the units are, in the order of their moments
    asked: float | None = None
    eager: bool = False  # also compared with the eager loop, which takes long

    def __str__(self) -> str:
        parts = [f"{self.models} models"] if self.models else []
        parts += [f"H = {self.hidden}, B = {self.batch}, T = {self.steps}, D = {self.inputs}, '{self.precision}'"]
        parts += [f"{100 * self.open_share:.1f} % open"] if self.open_share < 1 else []
        return ", ".join(parts)


CASES = (
    Case(110, 128, asked=4.5, eager=True),
    Case(110, 1024, asked=20),
    Case(220, 128, asked=15, eager=True),
    Case(64, 32, asked=1.3),
    Case(110, 1, asked=2.5),
    Case(110, 128, steps=1),
    Case(64, 32, steps=1),
    Case(128, 128, steps=1024, inputs=3),
    Case(110, 128, inputs=16),
    Case(110, 1024, inputs=16),
    Case(220, 1024),
    Case(384, 128),
    Case(512, 16, steps=1024, inputs=64, asked=3),
    Case(768, 16, steps=512, inputs=64, asked=3),
    Case(1024, 16, steps=512, inputs=64, asked=3),
    Case(110, 128, open_share=0.082),
    Case(110, 128, precision="highest"),
    Case(110, 1024, precision="highest"),
    Case(220, 128, precision="highest"),
    Case(110, 100, models=10),
    Case(110, 100, models=10, open_share=0.082),
    Case(110, 100, models=100),
    Case(110, 100, models=100, open_share=0.082),
    Case(110, 100, models=100, open_share=0.02),
)


def device_median(call: Callable[[], object], runs: int) -> float:
    """Seconds, by the device's own clock."""
    for _ in range(3):
        call()
    times = []
    for _ in range(runs):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        call()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) / 1e3)
    return median(times)


def as_graph(call: Callable[[], object]) -> Callable[[], object]:
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return graph.replay


def measure(case: Case, runs: int = 15, eager: bool = True) -> dict:
    """Times in seconds, ratios of the peers' to ours, gigabytes, and microseconds a step of the forward kernel."""
    before = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    torch.set_float32_matmul_precision(case.precision)
    torch.backends.cudnn.allow_tf32 = case.precision == "high"
    try:
        return _measure(case, runs, eager)
    finally:
        torch.set_float32_matmul_precision(before[0])
        torch.backends.cudnn.allow_tf32 = before[1]


def _measure(case: Case, runs: int, eager: bool) -> dict:
    torch.manual_seed(0)
    x = torch.randn(case.steps, case.batch, case.inputs, device="cuda")
    layer = GLSTM(case.inputs, case.hidden, mu=(1, case.steps), sigma=250.0).cuda()
    if case.open_share < 1:
        layer.threshold, width = 0.01, 2 * math.sqrt(math.log(100))  # sigmas for which a unit is open
        layer.set_gate(mu=torch.linspace(1, case.steps, case.hidden), sigma=case.open_share * case.steps / width)
    peer = nn.LSTM(case.inputs, case.hidden).cuda()
    w_ih, w_hh, b, k, state = _operands(layer, case)

    def taped() -> torch.Tensor:
        return gated_lstm(x, w_ih, w_hh, b, k, state, state, sequence=False).h_n

    def step() -> object:
        return torch.autograd.grad(taped().sum(), (w_ih, w_hh, b, k))

    def forward() -> object:
        with torch.no_grad():
            return taped()

    def without_gradients(layer: nn.Module) -> Callable[[], object]:
        def run() -> object:
            with torch.no_grad():
                return layer(x)

        return run

    seconds = {}
    if not case.models:
        seconds[LAYER] = device_median(training_step(layer, lambda: layer(x)[0].sum()), runs)
        seconds[FINAL] = device_median(training_step(layer, lambda: layer(x, sequence=False)[1][0].sum()), runs)
        seconds[CUDNN] = device_median(training_step(peer, lambda: peer(x)[0].sum()), runs)
        seconds[INFERENCE] = device_median(without_gradients(layer), runs)
        seconds[CUDNN_INFERENCE] = device_median(without_gradients(peer), runs)
        if eager and case.eager:
            seconds[EAGER] = device_median(training_step(layer, lambda: run_eagerly(layer, x, outputs=False).sum()), 3)
    torch.cuda.reset_peak_memory_stats()
    seconds[OPERATOR] = device_median(step, runs)
    with _room_for(case, k):
        seconds[GRAPH] = device_median(as_graph(step), runs)
        step_us = {
            "forward": 1e6 * device_median(as_graph(forward), runs) / case.steps,
            "forward with tape": 1e6 * device_median(as_graph(taped), runs) / case.steps,
        }
    floor = counted_floor(x, w_hh) if case.open_share == 1 else None
    return {
        "name": str(case),
        **asdict(case),
        "seconds": seconds,
        "ratios": _ratios(seconds),
        "gigabytes": torch.cuda.max_memory_allocated() / 1e9,
        "microseconds_a_step": step_us,
        "counted_floor_us": floor,
        "share_of_the_limit": None if floor is None else floor / step_us["forward"],
    }


def _room_for(case: Case, k: torch.Tensor) -> AbstractContextManager:
    """A graph computes open units only if it is told before how much room they need, as a population does."""
    if case.open_share == 1 or case.models * case.batch < choice.WORTH_COUNTING:
        return nullcontext()
    return choice.planned(choice.room_to_grow(sparse.schedule_of(k.detach()).counts.tolist(), None))


def _ratios(seconds: dict[str, float]) -> dict[str, float]:
    """How many times as long as the layer the peers take."""
    pairs = ((CUDNN, LAYER), (CUDNN_INFERENCE, INFERENCE), (EAGER, FINAL))
    return {peer: seconds[peer] / seconds[ours] for peer, ours in pairs if peer in seconds}


def counted_floor(x: torch.Tensor, w_hh: torch.Tensor) -> float | None:
    """A lower bound for a forward step in 'high' precision, in microseconds: products and special functions at the same
    time, and then the warps, or blocks, wait for each other."""
    shape = gpu.shape_for(x, w_hh, exact=False)
    if shape is None or gpu.exact_for(x.dtype):
        return None
    own = shape.padded // shape.ranks  # units of a multiprocessor
    products = own / 16 * (shape.padded // 16)  # of four gates, on four schedulers
    specials = 5 * own * 4 * shape.samples
    together = BARRIER if shape.ranks == 1 else BARRIER + EXCHANGE
    return (max(PRODUCT * products, specials / SPECIAL) + together) / CYCLES


def _operands(layer: GLSTM, case: Case) -> list[torch.Tensor]:
    """w_ih, w_hh, b, k, which want gradients, and a state of zeros."""
    bias, k = layer.bias_ih_l0 + layer.bias_hh_l0, layer.openness(case.steps)[0]
    state = torch.zeros(case.batch, case.hidden, device="cuda")
    tensors = [tensor.detach() for tensor in (layer.weight_ih_l0, layer.weight_hh_l0, bias, k, state)]
    if case.models:
        tensors = [tensor.expand(case.models, *tensor.shape).contiguous() for tensor in tensors]
    return [*(tensor.requires_grad_() for tensor in tensors[:-1]), tensors[-1]]
