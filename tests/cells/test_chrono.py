"""The LSTM with chrono biases: its start, and that no recipe changes it."""

import pytest
import torch

from glstm import LSTM, SequenceModel
from glstm.cells.chrono import ChronoLSTM
from glstm.data import TASKS
from glstm.errors import UserError
from glstm.recipes import Recipe, make_model, preset
from helpers import relative_error


def test_its_start():
    torch.manual_seed(0)
    cell = ChronoLSTM(2, 4000, t_max=50)
    i, f, g, o = (cell.bias_ih_l0 + cell.bias_hh_l0).detach().chunk(4)
    u = f.exp()
    assert torch.equal(i, -f)
    assert 1 <= u.min() < 1.2
    assert 48.8 < u.max() <= 49 + 1e-4
    for share in (0.25, 0.5, 0.75):  # uniform from 1 to t_max - 1
        assert abs(u.quantile(share).item() - (1 + 48 * share)) < 1.5
    torch.manual_seed(0)
    plain = LSTM(2, 4000)
    assert torch.equal(cell.weight_hh_l0, plain.weight_hh_l0)
    assert torch.equal(torch.cat((g, o)), (plain.bias_ih_l0 + plain.bias_hh_l0).detach()[8000:])


def test_all_layers_and_directions():
    cell = ChronoLSTM(2, 6, 2, bidirectional=True, t_max=20)
    for suffix in ("_l0", "_l1", "_l0_reverse", "_l1_reverse"):
        i, f, *_ = (getattr(cell, f"bias_ih{suffix}") + getattr(cell, f"bias_hh{suffix}")).detach().chunk(4)
        assert torch.equal(i, -f)
        assert (f >= 0).all()


def test_it_is_the_lstm_otherwise():
    cell = ChronoLSTM(3, 5, 2, t_max=9).double()
    lstm = torch.nn.LSTM(3, 5, 2).double()
    lstm.load_state_dict(cell.state_dict())
    x = torch.randn(7, 4, 3, dtype=torch.float64)
    assert relative_error(cell(x)[0], lstm(x)[0]) < 1e-12


def test_a_folder_keeps_it(tmp_path):
    model = SequenceModel(ChronoLSTM(1, 4, t_max=30), torch.nn.Linear(4, 2)).eval()
    model.save_pretrained(tmp_path / "model")
    again = SequenceModel.from_pretrained(tmp_path / "model")
    assert isinstance(again.layer, ChronoLSTM)
    assert again.layer.t_max == 30
    x = torch.randn(5, 2, 1)
    assert torch.equal(again(x), model(x))


def test_a_recipe_sets_t_max_and_nothing_else_of_the_start():
    recipe = preset("adding").changed(cell="chrono-lstm", data={"steps": 40, "train_size": 10, "test_size": 10})
    assert (recipe.init, recipe.forget_bias, recipe.chrono) == (None, None, None)
    task = TASKS["adding"](**recipe.data)
    layer = make_model(recipe, task).layer
    assert isinstance(layer, ChronoLSTM)
    assert layer.t_max == 40
    assert torch.equal(layer.bias_ih_l0[:110], -layer.bias_ih_l0[110:220])
    assert layer.bias_ih_l0[110:220].exp().max() <= 39.01
    chosen = make_model(recipe.changed(options={"t_max": 12.0}), task).layer
    assert isinstance(chosen, ChronoLSTM)
    assert chosen.t_max == 12
    with pytest.raises(UserError, match="starts of an LSTM or a GRU, and chrono-lstm has its own"):
        make_model(recipe.changed(forget_bias=1.0), task)
    assert preset("adding").changed(cell="lstm").forget_bias == 1  # other LSTMs start as the recipe says


def test_segments_are_kept():
    assert Recipe("adding", cell="lstm", segment=7).changed(cell="chrono-lstm").segment == 7


@pytest.mark.parametrize(("options", "message"), [({"t_max": 2}, "above 2"), ({"bias": False}, "no bias")])
def test_what_is_no_option(options, message):
    with pytest.raises(ValueError, match=message):
        ChronoLSTM(2, 3, **options)
