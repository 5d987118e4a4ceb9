"""The CUDA engine compared with cuDNN's ungated LSTM and the eager gated loop: forward and backward, all gradients."""

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from statistics import median

import torch
from torch import nn

from glstm.bench.cpu import run_eagerly, training_step
from glstm.layers import GLSTM
from glstm.ops import gated_lstm, gpu

OURS, GRAPH, CUDNN, EAGER = "glstm", "glstm, as a CUDA graph", "cuDNN nn.LSTM", "eager gated loop"
LAYER = "glstm, through the layer"  # with the gate and its gradients, as a user calls it

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
    Case(110, 128, asked=2.5, eager=True),
    Case(110, 1024, asked=14),
    Case(128, 128, steps=1024, inputs=3, asked=2.5),
    Case(220, 128, asked=4, eager=True),
    Case(220, 1024),
    Case(384, 128),
    Case(512, 128, eager=True),
    Case(512, 16, steps=1024, inputs=64, asked=3),
    Case(768, 16, steps=512, inputs=64, asked=3),
    Case(1024, 16, steps=512, inputs=64, asked=3),
    Case(110, 100),
    Case(110, 100, open_share=0.082),
    Case(110, 100, models=10),
    Case(110, 100, models=10, open_share=0.082),
    Case(110, 128, precision="highest", asked=1),
    Case(110, 1024, precision="highest", asked=1),
    Case(220, 128, precision="highest", asked=1),
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
    """Times in seconds, ratios of cuDNN's to ours, and microseconds a step of the forward kernel."""
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

    seconds = {OURS: device_median(step, runs), GRAPH: device_median(as_graph(step), runs)}
    if not case.models:
        seconds[LAYER] = device_median(training_step(layer, lambda: layer(x, sequence=False)[1][0].sum()), runs)
        seconds[CUDNN] = device_median(training_step(peer, lambda: peer(x)[1][0].sum()), runs)
        if eager and case.eager:
            seconds[EAGER] = device_median(training_step(layer, lambda: run_eagerly(layer, x, outputs=False).sum()), 3)
    step_us = {
        "forward": 1e6 * device_median(as_graph(forward), runs) / case.steps,
        "forward with tape": 1e6 * device_median(as_graph(taped), runs) / case.steps,
    }
    floor = counted_floor(x, w_hh) if case.open_share == 1 else None
    return {
        "name": str(case),
        **asdict(case),
        "seconds": seconds,
        "ratios": {name: value / seconds[OURS] for name, value in seconds.items() if name in (CUDNN, EAGER)},
        "microseconds_a_step": step_us,
        "counted_floor_us": floor,
        "share_of_the_limit": None if floor is None else floor / step_us["forward"],
    }


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
