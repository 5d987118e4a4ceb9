"""To and from torch.nn.LSTM, and pruning."""

import pytest
import torch

import glstm
from glstm import GLSTM, PLSTM, from_lstm, prune, to_lstm


@pytest.mark.parametrize(
    "options", [{}, {"num_layers": 2, "bidirectional": True, "batch_first": True}, {"bias": False}]
)
def test_there_and_back(options):
    lstm = torch.nn.LSTM(3, 5, **options).eval()
    layer = from_lstm(lstm, mu=(1, 9), sigma=3.0, threshold=0.1)
    assert isinstance(layer, GLSTM)
    assert not layer.training
    assert layer.threshold == 0.1
    back = to_lstm(layer)
    assert type(back) is torch.nn.LSTM
    assert back.batch_first == lstm.batch_first
    assert all(torch.equal(a, b) for a, b in zip(back.state_dict().values(), lstm.state_dict().values(), strict=True))
    layer.set_gate(sigma=1e9)
    x = torch.randn(6, 4, 3)
    assert torch.allclose(layer(x)[0], back(x)[0], atol=1e-6)


def test_what_torch_cannot_express_is_refused():
    with pytest.raises(ValueError, match="candidate='sigmoid'"):
        to_lstm(GLSTM(3, 5, candidate="sigmoid"))
    with pytest.raises(ValueError, match="proj_size must be 0, not 2"):
        from_lstm(torch.nn.LSTM(3, 5, proj_size=2))
    assert type(to_lstm(PLSTM(3, 5))) is torch.nn.LSTM


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("bias", [False, True])
def test_pruning_keeps_every_output_that_is_read(layers, bidirectional, bias):
    full = GLSTM(3, 12, layers, bidirectional=bidirectional, bias=bias, sigma=2.0, dtype=torch.float64).eval()
    full.set_gate(mu=(-20, 40))  # about a third of the units is near 1..20
    x = torch.randn(20, 4, 3, dtype=torch.float64)
    full.threshold = 0.05
    pruned = prune(full, 20, 0.05)
    assert pruned.hidden_size < 12
    ever_open = full.openness(20).gt(0).any(1)
    assert pruned.hidden_size == ever_open.sum(1).max()
    output, (h_n, _) = full(x)
    small, (h_small, _) = pruned(x)
    for row, kept in enumerate(pruned.kept):
        assert ever_open[row][kept].sum() == ever_open[row].sum()
        assert torch.allclose(h_n[row][:, kept], h_small[row], atol=1e-12)
    tops = pruned.kept[-(2 if bidirectional else 1) :]
    columns = torch.cat([kept + 12 * d for d, kept in enumerate(tops)])
    assert torch.allclose(output[..., columns], small, atol=1e-12)
    dropped = [unit for unit in range(output.shape[-1]) if unit not in columns.tolist()]
    assert (output[..., dropped] == 0).all()


def test_frozen_stays_frozen_and_the_random_stream_stays_where_it_was():
    layer = GLSTM(3, 6, mu=(1, 10), sigma=2.0)
    layer.freeze_gate()
    layer.weight_hh_l0.requires_grad_(False)
    torch.manual_seed(3)
    expected = torch.rand(1)
    torch.manual_seed(3)
    pruned, lstm = prune(layer, 10, 0.01), to_lstm(layer)
    assert torch.equal(torch.rand(1), expected)
    assert not pruned.mu_l0.requires_grad
    assert not pruned.weight_hh_l0.requires_grad
    assert not lstm.weight_hh_l0.requires_grad
    assert lstm.weight_ih_l0.requires_grad
    assert layer.threshold == 0
    with pytest.raises(ValueError, match="prune takes a layer with Gaussian gates, not with Phased ones"):
        prune(PLSTM(3, 6), 10, 0.01)


def test_a_model_in_place_of_its_layer_is_named():
    model = glstm.SequenceModel(GLSTM(3, 6), torch.nn.Linear(6, 1))
    with pytest.raises(TypeError, match=r"prune takes a gated layer, .* not a SequenceModel: prune\(model.layer"):
        prune(model, 10, 0.01)
    with pytest.raises(TypeError, match=r"to_lstm takes a gated layer, such as a GLSTM, not a LSTM"):
        to_lstm(torch.nn.LSTM(3, 6))
    with pytest.raises(TypeError, match=r"from_lstm takes a torch.nn.LSTM, not a GLSTM"):
        from_lstm(model.layer)


def test_pruning_everything_leaves_one_closed_unit():
    layer = GLSTM(3, 6, mu=500.0, sigma=1.0).eval()
    pruned = prune(layer, torch.arange(1.0, 11.0), 0.01)
    assert pruned.hidden_size == 1
    assert (pruned(torch.randn(10, 2, 3))[0] == 0).all()


def test_the_names_of_the_contents_page():
    names = """GLSTM PLSTM LSTM gate_parameters weight_parameters budget TemporalCurriculum to_lstm from_lstm prune
               gradient_flow count_ops ops"""
    for name in names.split():
        assert hasattr(glstm, name), name
