"""The CPU engine compared with its peers: published cases, sizes of other programs, time against openness, T and H."""

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from itertools import product

import torch
from torch import Tensor, nn

from glstm.bench.peers import eager_gated_lstm, onnx_lstm, onnx_session
from glstm.bench.race import Call, Contender, Timing, race
from glstm.gated import GatedLSTM
from glstm.layers import GLSTM, LSTM

THRESHOLD = 0.01
OURS, TORCH, ONNX, EAGER = "glstm", "nn.LSTM", "ONNX Runtime", "eager gated loop"
FLUSHING = ", flushing"  # after the name of a contender for whom subnormal numbers count as 0 everywhere


@dataclass(frozen=True)
class Case:
    """One thing to time: a forward pass in evaluation, or a training step from the final state."""

    kind: str  # 'inference' or 'training'
    batch: int
    openness: float = 1.0
    spread: float = 0.0  # of log-normal sigmas around the same mean; 0: all equal
    outputs: bool = False  # all h are requested, not only the last
    steps: int = 784
    hidden: int = 110
    inputs: int = 1
    asked: float | None = None  # our goal for the ratio to the fastest peer
    asked_flushing: float | None = None  # the same where subnormal numbers count as 0 for all

    def __str__(self) -> str:
        size = "" if self.shape == USUAL else "T = {}, D = {}, H = {}, ".format(*self.shape)
        details = ["fully open" if self.openness == 1 else f"{100 * self.openness:g} % open"]
        details += ["unequal sigmas"] * (self.spread > 0) + ["all outputs"] * self.outputs
        return f"{self.kind}, {size}B = {self.batch}, {', '.join(details)}"

    @property
    def shape(self) -> tuple[int, int, int]:
        return self.steps, self.inputs, self.hidden


USUAL = Case("training", 1).shape
PROMISES = (
    Case("inference", 1, 1.0, asked=1.3),
    Case("inference", 1, 0.082, asked=25),
    Case("inference", 1, 0.082, spread=0.5),
    Case("inference", 1, 0.021, asked=50),
    Case("inference", 1, 0.021, spread=0.5),
    Case("inference", 100, 1.0, asked=1.5),
    Case("inference", 100, 0.082, asked=25),
    Case("inference", 100, 0.082, spread=0.5),
    Case("training", 100, 1.0, asked=3, asked_flushing=2.5),
    Case("training", 100, 0.082, asked=40),
    Case("training", 100, 0.082, spread=0.5),
    Case("training", 100, 0.082, outputs=True, asked_flushing=15),
)
# T, B, D, H of programs that use an LSTM
SIZES = (
    (100, 32, 8, 64),
    (50, 64, 16, 128),
    (1000, 1, 3, 110),
    (784, 100, 1, 110),
    (24, 256, 7, 32),
    (5000, 4, 1, 256),
    (200, 64, 128, 512),
)
KINDS = (Case("inference", 1, 0.082), Case("inference", 100, 0.082), Case("training", 100, 0.082))
CURVES = {
    "openness": (0.01, 0.02, 0.05, 0.08, 0.2, 0.5, 1.0),
    "steps": (98, 196, 392, 784, 1568, 3136),
    "hidden": (28, 55, 110, 220, 440),
}


def sigma_for(openness: float, mu: Tensor, steps: int) -> float:
    """The sigma, equal for all units, at which this share of the table is open at THRESHOLD."""
    times = torch.arange(1.0, steps + 1)[:, None]

    def share(sigma: float) -> float:
        return float((torch.exp(-(((times - mu) / sigma) ** 2)) > THRESHOLD).float().mean())

    low, high = 1e-3, 1e3 * steps
    for _ in range(60):
        middle = (low * high) ** 0.5
        low, high = (middle, high) if share(middle) < openness else (low, middle)
    return high


def build_layer(case: Case) -> GatedLSTM:
    """A layer that is as open as the case says: mu ~ U(1, T)."""
    generator = torch.Generator().manual_seed(0)
    if case.openness == 1:
        return LSTM(case.inputs, case.hidden)
    mu = 1 + (case.steps - 1) * torch.rand(case.hidden, generator=generator)
    normal = torch.randn(case.hidden, generator=generator)
    sigma = sigma_for(case.openness, mu, case.steps) * torch.exp(case.spread * normal - case.spread**2 / 2)
    return GLSTM(case.inputs, case.hidden, mu=mu, sigma=sigma, threshold=THRESHOLD)


def size_cases() -> Iterator[Case]:
    """Each size in training and inference, fully and 10 % open, with all outputs."""
    for steps, batch, inputs, hidden in SIZES:
        for kind, openness in product(("training", "inference"), (1.0, 0.1)):
            asked = 5 if (kind, batch, openness) == ("training", 1, 0.1) else 1.2
            size = {"steps": steps, "inputs": inputs, "hidden": hidden}
            yield Case(kind, batch, openness, outputs=True, asked_flushing=asked, **size)


def contenders(case: Case) -> dict[str, Callable[[int], Call]]:
    torch.manual_seed(0)
    layer, peer = build_layer(case), nn.LSTM(case.inputs, case.hidden)
    x = torch.randn(case.steps, case.batch, case.inputs)
    if case.kind == "training":
        return {
            OURS: lambda _: training_step(layer, lambda: _loss(layer, x, case.outputs)),
            TORCH: lambda _: training_step(peer, lambda: _loss_of_torch(peer, x, case.outputs)),
            EAGER: lambda _: training_step(layer, lambda: run_eagerly(layer, x, case.outputs).sum()),
        }
    layer.eval()
    peer.eval()
    graph = onnx_lstm(peer, case.outputs)

    def onnx(threads: int) -> Call:
        session = onnx_session(graph, threads)
        return lambda: session.run(None, {"x": x.numpy()})

    return {
        OURS: lambda _: lambda: layer(x, sequence=case.outputs),
        TORCH: lambda _: lambda: peer(x),
        ONNX: onnx,
        EAGER: lambda _: lambda: run_eagerly(layer, x, case.outputs),
    }


def _loss(layer: GatedLSTM, x: Tensor, outputs: bool) -> Tensor:
    output, (h, _) = layer(x, sequence=outputs)
    return h.sum() if output is None else output.sum()  # pyright: ignore[reportAttributeAccessIssue]


def _loss_of_torch(layer: nn.LSTM, x: Tensor, outputs: bool) -> Tensor:
    output, (h, _) = layer(x)
    return output.sum() if outputs else h.sum()


def run_eagerly(layer: GatedLSTM, x: Tensor, outputs: bool) -> Tensor:
    bias = layer.bias_ih_l0 + layer.bias_hh_l0
    return eager_gated_lstm(x, layer.weight_ih_l0, layer.weight_hh_l0, bias, layer.openness(len(x))[0], outputs)


def training_step(layer: nn.Module, loss: Callable[[], Tensor]) -> Call:
    def run() -> None:
        layer.zero_grad()
        loss().backward()

    return run


@dataclass(frozen=True)
class Result:
    case: Case
    timings: dict[str, Timing]

    def ratio(self, peer: str) -> float:
        """How many times as long as ours, under the same conditions."""
        ours = OURS + FLUSHING if peer.endswith(FLUSHING) else OURS
        return self.timings[peer].seconds / self.timings[ours].seconds

    def best_ratio(self, flushing: bool = False) -> float | None:
        """To the fastest peer; None where none was timed."""
        peers = [name for name in self.timings if name not in (OURS, OURS + FLUSHING)]
        return min((self.ratio(name) for name in peers if name.endswith(FLUSHING) == flushing), default=None)

    def as_json(self) -> dict:
        return {
            "name": str(self.case),
            **asdict(self.case),
            "timings": {name: asdict(timing) for name, timing in self.timings.items()},
            "ratios": {name: self.ratio(name) for name in self.timings if name not in (OURS, OURS + FLUSHING)},
        }


def thread_counts() -> list[int]:
    return sorted({1, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1})


def measure(
    case: Case, seconds: float, without: tuple[str, ...] = (), beside: Mapping[str, Contender] | None = None
) -> Result:
    """`beside`: contenders of another process, which take their turns with those of this one."""
    runners: dict[str, Contender] = {name: make for name, make in contenders(case).items() if name not in without}
    runners.update(beside or {})
    with torch.set_grad_enabled(case.kind == "training"):
        return Result(case, race(runners, thread_counts(), seconds))


def curve_cases() -> Iterator[tuple[str, float, Case]]:
    """(what varies, its value, the case)"""
    for name, values in CURVES.items():
        for kind in KINDS:
            for value in values:
                yield name, value, replace(kind, **{name: value})
