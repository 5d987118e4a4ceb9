"""Every cell on the shape of sequential MNIST: how long training and inference take, and by which way.

Training goes through the project's own trainer: one network, on CUDA a captured graph, with its optimiser, as `glstm
train` does it. Images are random bytes, so that no data is needed; the time of a step does not depend on them. Units
and layers are the same for all cells, where a cell's paper does not make depth its point.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn

from glstm.analysis.operations import knows_operations, operations_of
from glstm.cells import CELLS
from glstm.data.images import PixelTask
from glstm.forms import anything, entries, items, maybe, number, text
from glstm.gated import GatedLSTM
from glstm.recipes import PRESETS, Recipe, make_model, model_maker
from glstm.training import Population

STEPS, BATCH, UNITS = 784, 100, 110
EPOCH = 600  # batches of 100: sequential MNIST
WARM_UP = 3  # batches before those that are timed: on CUDA, the first one compiles and captures
LEFT_OUT = ("gated",)  # the general form of those that are there
FIGURES = ("parameters", "operations", "cuda_step", "cuda_epoch", "cpu_inference", "cpu_training")
# A file of figures, of which those that are not measured here are taken.
EARLIER = entries(
    {
        "results": items(
            entries(
                {"name": text},
                dict.fromkeys(FIGURES, maybe(number(0, 1e300))) | {"failed": entries({}, others=text), "way": text},
                others=anything,
            )
        )
    },
    others=anything,
)
OPERATOR, CUDNN, BY_STEPS = "shared operator", "cuDNN", "one fused kernel a step in a captured graph"


@dataclass(frozen=True)
class Case:
    """A cell by its name, with the values of its recipe."""

    name: str
    units: int
    layers: int
    options: dict[str, Any] = field(hash=False)
    way: str

    @property
    def size(self) -> str:
        return f"{self.units}" if self.layers == 1 else f"{self.layers} x {self.units}"


@dataclass(frozen=True)
class Result:
    """Seconds; None where it was not measured, and `failed` says why where it was tried."""

    case: Case
    parameters: int | None = None  # of the layer, without the head
    operations: float | None = None  # of one sequence, in evaluation
    cuda_step: float | None = None  # a training step, of BATCH sequences
    captured: bool | None = None  # whether that step is one CUDA graph
    cpu_inference: float | None = None  # one sequence alone
    cpu_training: float | None = None  # a training step, of BATCH sequences
    failed: dict[str, str] = field(default_factory=dict)  # by what was tried

    def as_json(self) -> dict[str, Any]:
        epoch = None if self.cuda_step is None else EPOCH * self.cuda_step
        sequence = None if self.cpu_training is None else self.cpu_training / BATCH
        alone = self.captured is False and self.case.way != CUDNN  # whose layers no graph holds
        figures = {name: value for name, value in asdict(self).items() if name not in ("case", "cpu_training")}
        return {
            **asdict(self.case),
            "size": self.case.size,
            "way": f"{self.case.way}, not captured" if alone else self.case.way,
            **figures,
            "cuda_epoch": epoch,
            "cpu_training": sequence,
        }


def cases(names: tuple[str, ...] = ()) -> Iterator[Case]:
    """All cells, or those named."""
    for name in names or [name for name in CELLS if name not in LEFT_OUT]:
        recipe = recipe_for(name)
        yield Case(name, recipe.units, recipe.layers, recipe.options, way_of(CELLS[name]))


def recipe_for(name: str) -> Recipe:
    """Its recipe for sequential MNIST, with the size that all have here; a cell's `bench` has the last word."""
    recipe = PRESETS.get(f"smnist-{name}") or PRESETS["smnist"].changed(cell=name)
    shared = {"batch": BATCH, "epochs": 2, "head": "linear", "patience": 0, "budget": 0.0, "budget_epochs": 0}
    return recipe.changed(**shared, units=UNITS, layers=1).changed(**getattr(CELLS[name], "bench", {}))


def way_of(cell: Callable[..., nn.Module]) -> str:
    """How it is computed on CUDA; a cell's `way` says it, where it is not the usual one."""
    if isinstance(cell, type) and issubclass(cell, GatedLSTM):
        return OPERATOR
    usual = CUDNN if isinstance(cell, type) and issubclass(cell, nn.RNNBase) else BY_STEPS
    return getattr(cell, "way", usual)


def random_images(batches: int, device: str) -> PixelTask:
    draws = torch.Generator().manual_seed(0)

    def part(count: int) -> tuple[Tensor, Tensor]:
        pixels = torch.randint(256, (count, STEPS, 1), dtype=torch.uint8, generator=draws)
        return pixels, torch.randint(10, (count,), generator=draws)

    return PixelTask("random images", part(batches * BATCH), part(1), device=device)


def measure(case: Case, batches: int = 20, runs: int = 3, cuda: bool = True, cpu: bool = True) -> Result:
    """On the CPU and on CUDA, where asked for. What cannot run does not stop the rest: `failed` has its reason."""
    found: dict[str, Any] = {}
    failed: dict[str, str] = {}

    def attempt(what: str, measured: Callable[[Recipe], dict[str, Any]]) -> None:
        try:
            found.update(measured(recipe_for(case.name)))
        except Exception as error:  # whatever it is, the other cells are measured
            first, *_ = (str(error).strip() or "it does not say why").splitlines()
            failed[what] = f"{type(error).__name__}: {first}"

    attempt("counting", _count)
    if cuda:
        attempt("training on CUDA", lambda recipe: _train_on_cuda(recipe, batches))
    if cpu:
        attempt("inference on the CPU", lambda recipe: {"cpu_inference": _inference(recipe, runs)})
        attempt("training on the CPU", lambda recipe: {"cpu_training": _train(recipe, "cpu", runs, 1)[0]})
    return Result(case, **found, failed=failed)


def joined(here: list[dict[str, Any]], there: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Figures of this machine; those that were not measured, from another one."""
    others = {figures["name"]: figures for figures in there}

    def one(own: dict[str, Any]) -> dict[str, Any]:
        other = others.get(own["name"], {})
        missing = {name: other.get(name) for name, value in own.items() if value is None}
        return own | missing | {"failed": other.get("failed", {}) | own["failed"]}

    return [one(own) for own in here]


def _count(recipe: Recipe) -> dict[str, Any]:
    layer = make_model(recipe, random_images(1, "cpu")).layer
    return {
        "parameters": sum(parameter.numel() for parameter in layer.parameters()),
        "operations": operations_of(layer, STEPS) if knows_operations(layer) else None,
    }


def _train_on_cuda(recipe: Recipe, batches: int) -> dict[str, Any]:
    with _as_trained():
        seconds, captured = _train(recipe, "cuda", batches, WARM_UP)
    return {"cuda_step": seconds, "captured": captured}


@contextmanager
def _as_trained() -> Iterator[None]:
    """The precision of `glstm train` on CUDA."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def _train(recipe: Recipe, device: str, batches: int, warm_up: int) -> tuple[float, bool]:
    """Seconds of a training step, and whether it is one CUDA graph."""
    task = random_images(max(batches, warm_up), device)
    population = Population(task, model_maker(recipe, task), recipe)
    population.start(1)
    for _ in range(warm_up):
        population.step()
    population.start(2)
    population.wait()
    if device == "cpu":
        return median(_seconds(population.step) for _ in range(batches)), False

    def all_of_them() -> None:
        for _ in range(batches):
            population.step()  # while the device works, the host goes on to the next
        population.wait()

    return _seconds(all_of_them) / batches, population.one_graph


@torch.inference_mode()
def _inference(recipe: Recipe, runs: int) -> float:
    """Median seconds of a sequence alone, on the CPU."""
    task = random_images(1, "cpu")
    model = make_model(recipe, task).eval()
    x, _ = task.test_samples(slice(0, 1))
    model(x)
    return median(_seconds(lambda: model(x)) for _ in range(runs))


def _seconds(call: Callable[[], object]) -> float:
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin
