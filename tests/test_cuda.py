"""The same on a CUDA device, where there is one."""

import pytest
import torch

from glstm import GLSTM
from glstm.data import Adding
from glstm.data.images import PixelTask
from glstm.errors import UserError
from glstm.training import Population
from glstm.training.build import build_task
from glstm.training.fabric import make_fabric
from glstm.training.loop import Trainer
from glstm.training.recipe import Recipe
from glstm.training.run import RunFolder
from helpers import relative_error
from small_runs import RECIPES, SMALL, StopAfter, results

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")


def test_a_layer_on_the_device_equals_one_on_the_cpu():
    layer = GLSTM(3, 5, 2, bidirectional=True, mu=(1, 9), sigma=3.0, threshold=0.05, dtype=torch.float64)
    x = torch.randn(9, 4, 3, dtype=torch.float64)
    results = []
    for device in ("cpu", "cuda"):
        there = GLSTM(3, 5, 2, bidirectional=True, threshold=0.05, dtype=torch.float64, device=device)
        there.load_state_dict(layer.state_dict())
        output, (h_n, c_n) = there(x.to(device))
        (output.sin().sum() + h_n.sum() + c_n.sum()).backward()
        results.append([output, h_n, c_n, *(parameter.grad for parameter in there.parameters())])
    for mine, expected in zip(results[1], results[0], strict=True):
        assert mine.is_cuda
        assert relative_error(mine.cpu(), expected) < 1e-11


def test_the_adding_task_is_made_where_it_is_trained_on(tmp_path):
    task = Adding(30, device="cuda")
    x, y = task.batch("train", 10, 0, 1, 0)
    assert x.is_cuda
    assert torch.allclose((x[..., 0] * x[..., 1]).sum(0), y)
    recipe = Recipe("adding", steps=30, units=8, train_size=50, test_size=20, batch=10, epochs=2)
    folder = RunFolder(tmp_path / "run")
    trainer = Trainer(recipe, folder, make_fabric("cuda"))
    trainer.begin(device="cuda")
    assert trainer.fit()
    assert next(trainer.runs[0].model.parameters()).is_cuda
    assert not next(folder.load_model().parameters()).is_cuda


# float32 on the device goes through the CUDA engine and graphs; 64-true through the reference operator and graphs.
MIX = [SMALL, SMALL.changed(seed=1, budget=0.5, threshold=0.05, clip=0.0), SMALL.changed(seed=5, gate_lr=0.0, clip=0.1)]
DEEP = [RECIPES["RMSProp, Drop-Connect"], RECIPES["RMSProp, Drop-Connect"].changed(seed=1, decay=0.9)]
CELLS = [*MIX, SMALL.changed(seed=2, cell="lstm"), SMALL.changed(seed=3, cell="plstm", tau=12.0, s=(0.0, 6.0), r=0.5)]
mixes = pytest.mark.parametrize(
    "recipes", [MIX, DEEP, MIX[:1], CELLS], ids=["three", "Drop-Connect", "one", "three cells"]
)


def trained(recipes: list[Recipe], precision: str = "32-true", device: str = "cuda", **more) -> Population:
    population = Population(recipes, build_task(recipes[0], device=device), precision=precision, **more)
    for epoch in (1, 2, 3):
        population.train(epoch)
    return population


@mixes
@pytest.mark.parametrize("precision", ["32-true", "64-true", "bf16-mixed"])
def test_a_graph_makes_the_same_bits_as_its_kernels_one_by_one(recipes, precision):
    graph, kernels = trained(recipes, precision), trained(recipes, precision, graph=False)
    assert graph.one_graph
    assert set(graph._graphs) == {16, 6}  # the last batch is smaller
    assert not kernels.one_graph
    assert torch.equal(graph.stack.flat, kernels.stack.flat)
    assert graph.test() == kernels.test()


def test_images_that_move_train_in_a_graph_as_without():
    images = torch.randint(256, (50, 25, 1), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    labels = torch.arange(50) % 10
    recipes = [
        Recipe("smnist", units=6, mu=(1.0, 25.0), sigma=9.0, batch=16, epochs=3, shift=2, seed=s) for s in (0, 1)
    ]
    flat = []
    for graph in (True, False):
        task = PixelTask("smnist", (images, labels), (images, labels), shift=2, device="cuda")
        population = Population(recipes, task, graph=graph)
        for epoch in (1, 2, 3):
            population.train(epoch)
        flat.append(population.stack.flat.detach())
    assert torch.equal(*flat)


@mixes
def test_a_population_on_the_device_trains_the_same_way_twice(recipes):
    assert torch.equal(trained(recipes).stack.flat, trained(recipes).stack.flat)


@mixes
@pytest.mark.parametrize(("precision", "tolerance"), [("64-true", 1e-9), ("32-true", 1e-3)])
def test_a_member_on_the_device_becomes_what_it_would_alone(recipes, precision, tolerance):
    def member(population, number):
        return population.stack.flat[number, : population.stack.own_size(number)]  # the rest of a row only fills it up

    together = trained(recipes, precision)
    for number, recipe in enumerate(recipes):
        alone = trained([recipe], precision)
        assert relative_error(member(together, number), member(alone, 0)) < tolerance


@mixes
def test_the_device_and_the_cpu_make_the_same_network(recipes):
    """The adding task draws on the device; but from the CPU's sequences the device makes the CPU's network."""
    there, here = (
        Population(recipes, build_task(recipes[0], device=device), precision="64-true", graph=False)
        for device in ("cuda", "cpu")
    )
    there.start(1)
    here.start(1)
    there.stage = tuple(part.cuda() for part in here.stage)
    for _ in range(here.batches):
        there.step()
        here.step()
    assert relative_error(there.stack.flat.cpu(), here.stack.flat) < 1e-9


def test_runs_on_the_device_stop_and_go_on_to_the_same_bits(tmp_path):
    fabric = make_fabric("cuda")
    whole = Trainer(MIX, [RunFolder(tmp_path / f"whole{row}") for row in range(3)], fabric)
    whole.begin(device="cuda")
    assert whole.fit()
    folders = [RunFolder(tmp_path / f"cut{row}") for row in range(3)]
    cut = Trainer(MIX, folders, fabric)
    cut.begin(device="cuda")
    for batches in (2, 4):
        assert not cut.fit(should_stop=StopAfter(batches))
        cut = Trainer(MIX, folders, fabric)
        cut.resume()
    assert cut.fit()
    for row in range(3):
        assert results(tmp_path / f"cut{row}") == results(tmp_path / f"whole{row}")


def test_other_layouts_for_more_networks_differ_by_rounding_only():
    """One network of 110 units lies on four blocks a tile, ten on one each."""
    recipes = [SMALL.changed(units=110, batch=100, train_size=200, seed=seed) for seed in range(10)]
    together, alone = trained(recipes), trained(recipes[:1])
    for name, value in together.models[0].state_dict().items():
        assert relative_error(value, alone.models[0].state_dict()[name]) < 1e-4, name


@pytest.mark.filterwarnings("ignore:Synchronization debug mode")
def test_a_step_asks_the_device_for_nothing():
    population = Population(MIX, build_task(SMALL, device="cuda"), graph=False)
    population.start(1)
    population.step()  # kernels are compiled
    torch.cuda.set_sync_debug_mode("error")
    try:
        population.step()
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_segments_are_for_one_network_at_a_time():
    with pytest.raises(UserError, match="segment is for one network at a time on CUDA"):
        Population([recipe.changed(segment=5) for recipe in MIX], build_task(SMALL, device="cuda"))
    assert trained([SMALL.changed(segment=5)]).stack.flat.isfinite().all()
