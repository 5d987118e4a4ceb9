"""Modules of every kind in training: what they keep, share and switch off is theirs."""

import csv

import pytest
import torch
from own_things import LeakyCell, Normed, Parity
from torch import Tensor, nn

from glstm import GatedLSTM, Gaussian, SequenceModel
from glstm.errors import UserError
from glstm.pretrained import load_model
from glstm.training import Population, Settings, Trainer
from small_runs import StopAfter, results

SETTINGS = Settings(optimizer="adam", lr=0.01, batch=16, epochs=2)


class Tied(nn.Module):
    """A head that uses one weight twice."""

    def __init__(self, width: int, outputs: int):
        super().__init__()
        self.width, self.outputs = width, outputs
        self.first, self.second, self.last = nn.Linear(width, width), nn.Linear(width, width), nn.Linear(width, outputs)
        self.second.weight = self.first.weight

    def forward(self, h: Tensor) -> Tensor:
        return self.last(self.second(self.first(h).tanh()))


class Scaled(GatedLSTM):
    """What it computes depends on an attribute that is neither a value nor an option of ours."""

    scale = 1.0

    def forward(self, input, hx=None, times=None, *, sequence=True):
        assert isinstance(input, Tensor)
        return super().forward(self.scale * input, hx, times, sequence=sequence)


def normed() -> SequenceModel:
    return SequenceModel(Normed(1, 5), nn.Linear(5, 2))


MODELS = {
    "running statistics": normed,
    "tied weights": lambda: SequenceModel(nn.GRU(1, 5), Tied(5, 2)),
}


@pytest.mark.parametrize("name", MODELS)
def test_it_stops_goes_on_is_saved_and_loaded(name, tmp_path):
    def trainer(path) -> Trainer:
        return Trainer(Parity(), MODELS[name], [SETTINGS, SETTINGS.changed(seed=1)], [path / "a", path / "b"])

    whole, cut = trainer(tmp_path / "whole"), trainer(tmp_path / "cut")
    whole.begin()
    assert whole.fit()
    cut.begin()
    assert not cut.fit(should_stop=StopAfter(4))
    cut = trainer(tmp_path / "cut")
    cut.resume()
    assert cut.fit()
    x = torch.randn(16, 3, 1)
    for run, member in zip("ab", whole.runs, strict=True):
        assert results(tmp_path / "whole" / run) == results(tmp_path / "cut" / run)
        with torch.no_grad():
            assert torch.equal(load_model(tmp_path / "whole" / run)(x), member.model.eval()(x))


def test_statistics_are_each_networks_own_also_where_vmap_calls_all():
    alone = [Population(Parity(), normed, SETTINGS.changed(seed=seed)) for seed in (0, 1)]
    together = Population(Parity(), normed, [SETTINGS, SETTINGS.changed(seed=1)], together=True)
    for population in (*alone, together):
        population.train(1)
    for one, model in zip(alone, together.models, strict=True):
        expected = one.models[0].layer.norm
        assert torch.allclose(model.layer.norm.running_mean, expected.running_mean, atol=1e-6)
        assert int(model.layer.norm.num_batches_tracked) == int(expected.num_batches_tracked) == 5


class AsksForANumber(Normed):
    def forward(self, x, hx=None):
        output = super().forward(x, hx)
        assert self.norm.running_mean.sum().item() < 1e9  # which vmap cannot
        return output


def test_a_first_call_that_fails_half_way_leaves_no_trace():
    model = lambda: SequenceModel(AsksForANumber(1, 5), nn.Linear(5, 2))  # noqa: E731
    together = Population(Parity(), model, [SETTINGS, SETTINGS.changed(seed=1)], together=True)
    together.train(1)
    assert [group.rows for group in together.stack.groups] == [[0], [1]]
    assert int(together.models[0].layer.norm.num_batches_tracked) == 5


def test_networks_that_differ_in_what_we_do_not_know_are_not_called_as_one():
    def scaled(scale: float) -> SequenceModel:
        torch.manual_seed(0)
        layer = Scaled(1, 5, gate=Gaussian((1, 16), 4.0))
        layer.scale = scale
        return SequenceModel(layer, nn.Linear(5, 2))

    settings = [SETTINGS, SETTINGS]
    losses = Population(Parity(), [scaled(1.0), scaled(3.0)], settings, together=True).train(1)
    assert losses == pytest.approx(Population(Parity(), [scaled(1.0), scaled(3.0)], settings).train(1), rel=1e-5)
    assert losses[0] != losses[1]


def five_times(module: nn.Module, inputs: object, output: Tensor) -> Tensor:
    return 5 * output


def test_networks_with_hooks_are_not_called_as_one():
    plain, hooked = normed(), normed()
    hooked.load_state_dict(plain.state_dict())
    hooked.head.register_forward_hook(five_times)
    losses = Population(Parity(), [plain, hooked], [SETTINGS, SETTINGS], together=True).train(1)
    assert losses[0] != losses[1]


def test_a_part_that_was_put_into_evaluation_stays_there():
    model = normed()
    model.layer.norm.eval()
    population = Population(Parity(), model, SETTINGS)
    population.train(1)
    population.test()
    population.train(2)
    assert int(model.layer.norm.num_batches_tracked) == 0
    assert model.training
    assert not model.layer.norm.training
    loaded = Population(Parity(), normed().eval(), SETTINGS)  # as from_pretrained gives it
    loaded.train(1)
    assert int(loaded.models[0].layer.norm.num_batches_tracked) == 5


def test_members_share_nothing():
    head = nn.Linear(5, 2)
    models = [SequenceModel(nn.GRU(1, 5), head), SequenceModel(nn.GRU(1, 5), head)]
    with pytest.raises(UserError, match="two members cannot share a network or a part of one"):
        Population(Parity(), models, [SETTINGS, SETTINGS.changed(seed=1)])


def test_arithmetic_is_one_of_three():
    with pytest.raises(UserError, match="precision must be one of 32-true, 64-true, bf16-mixed, not '16-mixed'"):
        Population(Parity(), normed, SETTINGS, precision="16-mixed")


class Unlike(LeakyCell):
    """Keeps another thing under the name of what it was made with, as many modules do."""

    def __init__(self, input_size: int, hidden_size: int, num_layers: int = 1, rate: float = 0.5):
        super().__init__(input_size, hidden_size, num_layers)
        self.rate = nn.Parameter(torch.tensor(rate))


@pytest.mark.parametrize(
    "layer",
    [nn.RNN(1, 5, nonlinearity="relu"), nn.LSTM(1, 5, 2, dropout=0.1), nn.GRU(1, 5, bidirectional=True), nn.RNN(1, 5)],
    ids=lambda layer: type(layer).__name__,
)
def test_torchs_layers_come_back_as_they_were(layer, tmp_path):
    model = SequenceModel(layer, nn.Linear(10 if layer.bidirectional else 5, 2)).eval()
    model.save_pretrained(tmp_path / "model")
    x = torch.randn(7, 3, 1)
    with torch.no_grad():
        assert torch.equal(SequenceModel.from_pretrained(tmp_path / "model")(x), model(x))


def test_what_would_not_come_back_is_refused_before_anything_is_written(tmp_path):
    model = SequenceModel(Unlike(1, 3), nn.Linear(3, 2))
    with pytest.raises(UserError, match="rate cannot be saved: it is a Parameter"):
        model.save_pretrained(tmp_path / "model")
    normed_head = SequenceModel(nn.GRU(1, 3), nn.utils.parametrizations.weight_norm(nn.Linear(3, 2)))
    with pytest.raises(UserError, match="cannot be"):
        normed_head.save_pretrained(tmp_path / "model")
    assert not (tmp_path / "model" / "config.json").exists()


def test_a_resumed_run_with_another_optimiser_is_told_so(tmp_path):
    Trainer(Parity(), normed, SETTINGS, tmp_path / "run").begin()
    with pytest.raises(UserError, match="was trained with optimizer adam, and goes on with it, not with sgd"):
        Trainer(Parity(), normed, SETTINGS.changed(optimizer="sgd"), tmp_path / "run").resume()


def test_a_run_without_gates_has_empty_columns_for_them(tmp_path):
    run = Trainer(Parity(), normed, SETTINGS, tmp_path / "run")
    run.begin()
    run.fit()
    with (tmp_path / "run" / "metrics.csv").open() as file:
        assert {row["mean_k"] for row in csv.DictReader(file)} == {""}
