"""The same on a CUDA device, where there is one."""

import numpy as np
import pytest
import torch
from own_things import LeakyCell, Parity
from torch import nn

from glstm import GLSTM, LSTM, PLSTM, SequenceModel
from glstm.data import Adding, ArrayTask
from glstm.data.images import PixelTask
from glstm.gated import GatedLSTM
from glstm.gates import Gaussian
from glstm.recipes import Recipe, make_task, model_maker
from glstm.training import Population
from glstm.training.loop import Trainer
from glstm.training.run import RunFolder
from glstm.training.settings import Settings
from helpers import relative_error
from small_runs import PHASES, RECIPES, SMALL, StopAfter, population, results

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


class Wider(Gaussian):
    """A gate that the engine does not know: its table is made by torch."""

    def openness(self, times, unit, training):
        return super().openness(times, unit, training).sqrt()


def own_gate(inputs, hidden, **options):
    return GatedLSTM(inputs, hidden, gate=Wider((1, 20), 6.0), **options)


def narrow(inputs, hidden, **options):
    return GLSTM(inputs, hidden, mu=(1, 20), sigma=6.0, threshold=0.05, **options)


def wheel(inputs, hidden, **options):
    return PLSTM(inputs, hidden, tau=9.0, s=(0.0, 9.0), r=0.4, **options)


@pytest.mark.parametrize("make", [narrow, wheel, LSTM, own_gate])
@pytest.mark.parametrize(("hidden", "options"), [(33, {}), (110, {"num_layers": 2, "bidirectional": True}), (400, {})])
@pytest.mark.parametrize("timed", [False, True])
@pytest.mark.filterwarnings("ignore:The AccumulateGrad node's stream")  # the test warms up on a stream of its own
def test_a_layer_is_captured_in_training_and_in_evaluation(make, hidden, options, timed):
    torch.manual_seed(0)
    layer = make(2, hidden, device="cuda", **options)
    x = torch.randn(20, 9, 2, device="cuda", requires_grad=True)
    times = torch.rand(20, 9, device="cuda").cumsum(0) * 2 if timed else None

    def train():
        output, (h_n, c_n) = layer(x, times=times)
        return output, *torch.autograd.grad(output.square().sum() + h_n.sum() + c_n.sum(), [x, *layer.parameters()])

    def evaluate():
        with torch.no_grad():
            output, (h_n, c_n) = layer(x, times=times)
        return output, h_n, c_n

    for training, call in ((True, train), (False, evaluate)):
        layer.train(training)
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                call()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            captured = call()
        with torch.no_grad():  # the graph reads what is there when it is replayed
            x.normal_()
            for parameter in layer.parameters():
                parameter.mul_(1.01)
        graph.replay()
        assert all(torch.equal(one, other) for one, other in zip(captured, call(), strict=True))


@pytest.mark.parametrize("make", [narrow, own_gate])
@pytest.mark.parametrize("inputs", [2, 9])
def test_a_layer_under_autocast_computes_in_its_own_precision(make, inputs):
    torch.manual_seed(0)
    layer, x = make(inputs, 33, device="cuda"), torch.randn(20, 9, inputs, device="cuda").bfloat16()
    results = []
    for autocast in (False, True):
        with torch.autocast("cuda", dtype=torch.bfloat16, enabled=autocast):
            output = layer(x if autocast else x.float())[0]
            results.append([output, *torch.autograd.grad(output.square().sum(), list(layer.parameters()))])
    assert all(torch.equal(one, other) for one, other in zip(*results, strict=True))


@pytest.mark.filterwarnings("ignore:Synchronization debug mode")
@pytest.mark.parametrize("make", [narrow, wheel, LSTM, own_gate])
@pytest.mark.parametrize("timed", [False, True])
def test_a_layer_asks_the_device_for_nothing(make, timed):
    """After its first call, and of times that were checked before, it never waits."""
    layer, x = make(1, 20, device="cuda"), torch.randn(20, 3, 1, device="cuda")
    times = torch.arange(1, 21, device="cuda") if timed else None
    for training in (True, False):
        layer.train(training)
        layer(x, times=times)[0].sum().backward()
        torch.cuda.set_sync_debug_mode("error")
        try:
            layer(x, times=times)[0].sum().backward()
            with torch.no_grad():
                layer(x, times=times)
        finally:
            torch.cuda.set_sync_debug_mode("default")
    if timed:
        with pytest.raises(ValueError, match="must increase"):
            layer(x, times=times.flip(0))
        times[3] = 100
        with pytest.raises(ValueError, match="must increase"):
            layer(x, times=times)
        with pytest.raises(ValueError, match="must increase"):
            layer(x, times=times)


def test_the_adding_task_is_made_where_it_is_trained_on(tmp_path):
    task = Adding(30, device="cuda")
    x, y = task.batch("train", 10, 0, 1, 0)
    assert x.is_cuda
    assert torch.allclose((x[..., 0] * x[..., 1]).sum(0), y)
    folder, trainer = RunFolder(tmp_path / "run"), on_the_device([SMALL], [tmp_path / "run"])
    trainer.begin(device="cuda")
    assert trainer.fit()
    assert next(trainer.runs[0].model.parameters()).is_cuda
    assert not next(folder.load_model().parameters()).is_cuda


# float32 on the device goes through the CUDA engine and graphs; 64-true through the reference operator and graphs.
MIX = [
    SMALL,
    SMALL.changed(seed=1, budget=0.5, options={"threshold": 0.05}, clip=0.0),
    SMALL.changed(seed=5, gate_lr=0.0, clip=0.1),
]
ALIKE = [SMALL, SMALL.changed(seed=1, budget=0.5, clip=0.0), SMALL.changed(seed=5, gate={"sigma": 2.0}, clip=0.1)]
DEEP = [RECIPES["RMSProp, Drop-Connect"], RECIPES["RMSProp, Drop-Connect"].changed(seed=1, decay=0.9)]
CELLS = [*MIX, SMALL.changed(seed=2, cell="lstm"), SMALL.changed(seed=3, cell="plstm", gate=PHASES)]
GRUS = [RECIPES["GRU"], RECIPES["GRU"].changed(seed=3, clip=0.1)]
DROPPED = [RECIPES["weight drop"], RECIPES["weight drop"].changed(seed=1, weight_drop=0.7), SMALL.changed(seed=2)]
mixes = pytest.mark.parametrize(
    "recipes",
    [ALIKE, MIX, DEEP, MIX[:1], CELLS, [RECIPES["clocks"], RECIPES["clocks"].changed(seed=1)], DROPPED],
    ids=["three alike", "three", "Drop-Connect", "one", "three cells", "clocks", "weight drop"],
)


def trained(recipes: list[Recipe], precision: str = "32-true", device: str = "cuda", **more) -> Population:
    found = population(recipes, device, precision=precision, **more)
    for epoch in (1, 2, 3):
        found.train(epoch)
    return found


def on_the_device(recipes: list[Recipe], paths) -> Trainer:
    task = make_task(recipes[0], device="cuda")
    return Trainer(task, [model_maker(recipe, task) for recipe in recipes], recipes, paths)


def test_networks_that_are_alike_run_side_by_side():
    assert [len(group.rows) for group in trained(ALIKE).stack.groups] == [3]
    assert [len(group.rows) for group in trained(DEEP).stack.groups] == [2]
    assert [len(group.rows) for group in trained(CELLS).stack.groups] == [5]
    assert [len(group.rows) for group in trained(GRUS).stack.groups] == [2]
    torchs = [recipe.changed(cell="torch.nn:GRU") for recipe in GRUS]
    assert [len(group.rows) for group in trained(torchs).stack.groups] == [1, 1]


def test_grus_train_in_a_graph_as_without():
    graph, kernels = trained(GRUS), trained(GRUS, graph=False)
    assert graph.one_graph
    assert not kernels.one_graph
    assert torch.equal(graph.stack.flat, kernels.stack.flat)
    assert graph.test() == kernels.test()


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
    settings = [Settings(batch=16, epochs=3, seed=seed) for seed in (0, 1)]
    flat = []
    for graph in (True, False):
        task = PixelTask("noise", (images, labels), (images, labels), shift=2, device="cuda")
        found = Population(task, model_maker(Recipe("noise", units=6), task), settings, graph=graph)
        for epoch in (1, 2, 3):
            found.train(epoch)
        flat.append(found.stack.flat.detach())
    assert torch.equal(*flat)


@mixes
def test_a_population_on_the_device_trains_the_same_way_twice(recipes):
    assert torch.equal(trained(recipes).stack.flat, trained(recipes).stack.flat)


@mixes
@pytest.mark.parametrize(("precision", "tolerance"), [("64-true", 1e-9), ("32-true", 1e-3)])
def test_a_member_on_the_device_becomes_what_it_would_alone(recipes, precision, tolerance):
    def member(found, number):
        return torch.cat(found.stack.own(found.stack.flat, number))

    together = trained(recipes, precision)
    for number, recipe in enumerate(recipes):
        alone = trained([recipe], precision)
        assert relative_error(member(together, number), member(alone, 0)) < tolerance


@mixes
def test_the_device_and_the_cpu_make_the_same_network(recipes):
    """The adding task draws on the device; but from the CPU's sequences the device makes the CPU's network."""
    there, here = (population(recipes, device, precision="64-true", graph=False) for device in ("cuda", "cpu"))
    there.start(1)
    here.start(1)
    for rows, stage in there.stages.items():
        for number, row in enumerate(rows or (0,)):
            own = here.stages[(row,) if rows else ()]
            for held, part in zip(stage, own, strict=True):
                held[number].copy_(part[0])
    for _ in range(here.batches):
        there.step()
        here.step()
    assert relative_error(there.stack.flat.cpu(), here.stack.flat) < 1e-9


def test_runs_on_the_device_stop_and_go_on_to_the_same_bits(tmp_path):
    whole = on_the_device(MIX, [tmp_path / f"whole{row}" for row in range(3)])
    whole.begin(device="cuda")
    assert whole.fit()
    folders = [tmp_path / f"cut{row}" for row in range(3)]
    cut = on_the_device(MIX, folders)
    cut.begin(device="cuda")
    for batches in (2, 4):
        assert not cut.fit(should_stop=StopAfter(batches))
        cut = on_the_device(MIX, folders)
        cut.resume()
    assert cut.fit()
    for row in range(3):
        assert results(tmp_path / f"cut{row}") == results(tmp_path / f"whole{row}")


def test_other_layouts_for_more_networks_differ_by_rounding_only():
    """One network of 110 units lies on four blocks a tile, ten on one each."""
    recipes = [SMALL.changed(units=110, batch=100, data={"train_size": 200}, seed=seed) for seed in range(10)]
    together, alone = trained(recipes), trained(recipes[:1])
    for name, value in together.models[0].state_dict().items():
        assert relative_error(value, alone.models[0].state_dict()[name]) < 1e-4, name


@pytest.mark.filterwarnings("ignore:Synchronization debug mode")
def test_a_step_asks_the_device_for_nothing():
    found = population(MIX, "cuda", graph=False)
    found.start(1)
    found.step()  # kernels are compiled
    torch.cuda.set_sync_debug_mode("error")
    try:
        found.step()
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_networks_with_segments_train_one_by_one():
    found = trained([recipe.changed(segment=5) for recipe in ALIKE])
    assert [len(group.rows) for group in found.stack.groups] == [1, 1, 1]
    assert found.stack.flat.isfinite().all()


def test_torchs_gru_becomes_on_the_device_what_it_does_on_the_cpu():
    """cuDNN moves its weights about; the values in the stack are those that learn."""
    recipes = [recipe.changed(cell="torch.nn:GRU") for recipe in GRUS]
    there, here = (population(recipes, device, precision="64-true") for device in ("cuda", "cpu"))
    there.start(1)
    here.start(1)
    for rows, stage in there.stages.items():
        for number, row in enumerate(rows):
            for held, part in zip(stage, here.stages[(row,)], strict=True):
                held[number].copy_(part[0])
    for _ in range(here.batches):
        there.step()
        here.step()
    assert not there.one_graph
    assert relative_error(there.stack.flat.cpu(), here.stack.flat) < 1e-9


def own_cells(count: int, dropout: float, **more) -> Population:
    """A loop in Python; its dropout is from torch's own generator."""
    settings = [Settings(batch=16, epochs=2, seed=seed) for seed in range(count)]
    model = lambda: SequenceModel(LeakyCell(1, 6, dropout=dropout), nn.Linear(6, 2))  # noqa: E731
    return Population(Parity(device="cuda"), model, settings, **more)


@pytest.mark.parametrize("count", [1, 4])
def test_a_cell_of_ones_own_is_captured(count):
    graph, kernels = own_cells(count, 0.0), own_cells(count, 0.0, graph=False)
    for epoch in (1, 2):
        graph.train(epoch)
        kernels.train(epoch)
    assert graph.one_graph
    assert [len(group.rows) for group in graph.stack.groups] == [count]
    assert torch.equal(graph.stack.flat, kernels.stack.flat)


@pytest.mark.parametrize("name", ["bn-lstm", "r-lstm"])
def test_a_published_cell_is_captured(name):
    recipe = SMALL.changed(cell=name)
    graph, kernels = trained([recipe]), trained([recipe], graph=False)
    assert graph.one_graph
    assert torch.equal(graph.stack.flat, kernels.stack.flat)
    for one, other in zip(graph.models[0].buffers(), kernels.models[0].buffers(), strict=True):
        assert torch.equal(one, other)  # averages, and numbers of updates
    assert graph.test() == kernels.test()


@pytest.mark.parametrize("count", [1, 4])
def test_dropout_in_a_graph_depends_on_the_step_and_not_on_when_it_was_captured(count):
    whole, begun, taken_up = (own_cells(count, 0.3) for _ in range(3))
    whole.train(1)
    begun.start(1)
    for _ in range(2):
        begun.step()
    with torch.no_grad():
        for now, then in zip(taken_up.changing(), begun.changing(), strict=True):
            now.copy_(then)
    taken_up.start(1, batch=2)
    while taken_up.batch < taken_up.batches:
        taken_up.step()
    assert taken_up.one_graph
    assert torch.equal(taken_up.stack.flat, whole.stack.flat)


class AsksTheDevice(LeakyCell):
    def forward(self, x, hx=None):
        return super().forward(x * (1.0 if x.sum().item() > -1e9 else 0.0), hx)


def test_a_cell_that_cannot_be_captured_trains_kernel_by_kernel():
    settings = [Settings(batch=16, epochs=1, seed=seed) for seed in (0, 1)]
    model = lambda: SequenceModel(AsksTheDevice(1, 6), nn.Linear(6, 2))  # noqa: E731
    found = Population(Parity(device="cuda"), model, settings)
    assert all(loss > 0 for loss in found.train(1))
    assert not found.one_graph
    assert [group.rows for group in found.stack.groups] == [[0], [1]]


@pytest.mark.parametrize("timed", [False, True])
def test_own_data_is_trained_in_one_graph_as_without(timed):
    """Lengths, times and a budget need no value from the device."""
    draws = np.random.default_rng(0)
    x = [draws.normal(3, 2, (int(length), 2)) for length in draws.integers(5, 30, 40)]
    times = [np.cumsum(draws.uniform(10, 90, len(one))) for one in x] if timed else None
    recipe = Recipe(
        "own",
        units=8,
        optimizer="adam",
        lr=0.01,
        gate_lr=None,
        batch=8,
        epochs=3,
        budget=0.1,
        gate={},
        init="orthogonal",
    )
    scores = []
    for graph, device in ((True, "cuda"), (False, "cuda"), (False, "cpu")):
        task = ArrayTask(x, np.arange(40) % 2, times=times, device=device)
        settings = [recipe.changed(seed=seed) for seed in (0, 1)]
        together = Population(task, model_maker(recipe, task), settings, graph=graph)
        assert together.one_graph == graph
        for epoch in (1, 2, 3):
            together.train(epoch)
        assert together.one_graph == graph, "the step could not be captured"
        scores.append([score.loss for score in together.test("validation")])
    assert scores[0] == pytest.approx(scores[1], rel=1e-4)
    assert scores[0] == pytest.approx(scores[2], rel=1e-2)
