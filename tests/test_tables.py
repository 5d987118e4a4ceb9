"""What a layer keeps between calls in evaluation: tables of openness, and which units work when. Never too long."""

import copy
import threading

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.utils import parametrize

from glstm import GLSTM, LSTM, PLSTM, GatedLSTM, Gaussian, Periodic
from glstm.ops import cpu, gated_lstm

needs_engine = pytest.mark.skipif(cpu.engine() is None, reason="the C engine was not built")


def test_the_cache_in_evaluation_follows_every_change():
    """The table of openness is cached between calls, and dropped when anything it depends on changes."""
    layer = GLSTM(2, 6, mu=(1, 20), sigma=2.0, threshold=0.05).eval()
    x = torch.randn(20, 3, 2)
    times = torch.arange(1.0, 21.0)

    def both():
        """Kept, and computed afresh because gradients are on."""
        with torch.no_grad():
            layer(x, times=times)
            kept = layer(x, times=times)[0]
        return kept, layer(x, times=times)[0].detach()

    changes = [
        lambda: layer.set_gate(sigma=5.0),
        lambda: setattr(layer, "threshold", 0.3),
        lambda: layer.load_state_dict(GLSTM(2, 6, mu=(1, 20), sigma=1.0).state_dict()),
        lambda: times.mul_(0.5),
        lambda: layer.mu_l0.data.add_(3.0),
    ]
    seen = [both()[0]]
    for change in changes:
        change()
        kept, fresh = both()
        assert torch.allclose(kept, fresh, atol=1e-6)
        assert not torch.allclose(kept, seen[-1], atol=1e-4)
        seen.append(kept)
    with torch.inference_mode():
        assert torch.equal(layer(x)[0], layer(x)[0])
    with torch.no_grad():
        assert torch.allclose(layer(x[:10])[0], layer(x)[0][:10], atol=1e-6)
    copied = copy.deepcopy(layer)
    layer.train()(x)[0].sum().backward()
    assert torch.equal(copied(x)[0], layer.eval()(x)[0])


class Wider(Gaussian):
    def openness(self, times, unit, training):
        return super().openness(times, unit, training).sqrt()


def fresh(layer, x, hx=None):
    """Computed with gradients on: nothing is kept then."""
    output, (h, c) = layer(x, hx)
    return output.detach(), h.detach(), c.detach()


def again(layer, x, hx=None):
    with torch.no_grad():
        layer(x, hx)
        output, (h, c) = layer(x, hx)
        _, (h_alone, c_alone) = layer(x, hx, sequence=False)
    assert torch.allclose(h, h_alone, atol=1e-6)
    assert torch.allclose(c, c_alone, atol=1e-6)
    return output, h, c


def assert_same(layer, x, hx=None):
    for kept, right in zip(again(layer, x, hx), fresh(layer, x, hx)):
        assert kept.shape == right.shape
        assert torch.allclose(kept, right, atol=1e-6)


LAYERS = {
    "g-LSTM": lambda **options: GLSTM(2, 6, mu=(1, 20), sigma=2.0, threshold=0.05, **options),
    "no bias": lambda **options: GLSTM(2, 6, mu=(1, 20), sigma=2.0, threshold=0.05, bias=False, **options),
    "logistic": lambda **options: GLSTM(2, 6, mu=(1, 20), sigma=2.0, candidate="sigmoid", **options),
    "PLSTM": lambda **options: PLSTM(2, 6, **options),
    "periodic": lambda **options: GatedLSTM(2, 6, gate=Periodic((1, 5), 0.8, (3.0, 7.0)), threshold=0.05, **options),
    "LSTM": lambda **options: LSTM(2, 6, **options),
}


@pytest.fixture
def made(monkeypatch):
    """How often a table, and a schedule of it, were made: the numbers change as calls are made."""
    counts = {"tables": 0, "schedules": 0}
    openness, make = Gaussian.openness, cpu.Schedule.__init__

    def counted_openness(*arguments):
        counts["tables"] += 1
        return openness(*arguments)

    def counted_schedule(*arguments):
        counts["schedules"] += 1
        make(*arguments)

    monkeypatch.setattr(Gaussian, "openness", counted_openness)
    monkeypatch.setattr(cpu.Schedule, "__init__", counted_schedule)
    return counts


WAYS = {
    "one layer": ({}, (200, 3, 2)),
    "batch first": ({"batch_first": True}, (3, 200, 2)),
    "unbatched": ({}, (200, 2)),
    "three layers": ({"num_layers": 3}, (200, 3, 2)),
    "both directions": ({"bidirectional": True}, (200, 3, 2)),
}


@needs_engine
@pytest.mark.parametrize("way", WAYS)
def test_tables_and_schedules_are_made_once(way, made):
    options, shape = WAYS[way]
    layer = GLSTM(2, 60, mu=(1, 200), sigma=3.0, threshold=0.05, **options).eval()
    places = len(list(layer.places()))
    with torch.no_grad():
        for _ in range(3):
            layer(torch.randn(shape))
        assert made == {"tables": places, "schedules": places}
        layer(torch.randn(shape), sequence=False)
        layer.mu_l0.data.add_(1.0)
        layer(torch.randn(shape))
    assert made == {"tables": places + 1, "schedules": places + 1}
    layer(torch.randn(shape))  # with gradients: the engine makes tables, where units are open, and nothing is cached
    assert made == {"tables": places + 1, "schedules": 2 * places + 1}


@needs_engine
def test_what_was_chosen_for_a_table_goes_with_it():
    layer, x = GLSTM(2, 60, mu=(1, 200), sigma=3.0, threshold=0.05).eval(), torch.randn(200, 3, 2)
    before = len(cpu._choices)
    with torch.no_grad():
        for batch in range(1, 40):
            layer(torch.randn(200, batch, 2))
        assert len(cpu._choices) == before + 1
        assert all(len(choices) <= cpu.MOST_CHOICES for choices in cpu._choices.values())
        layer.set_gate(sigma=5.0)
        layer(x)
    assert len(cpu._choices) == before + 1
    del layer
    assert len(cpu._choices) == before


@needs_engine
def test_a_table_of_the_callers_own_may_change():
    """Nobody promised that it does not, and no count of versions sees what numpy writes."""
    layer = GLSTM(2, 60, mu=(1, 200), sigma=3.0, threshold=0.05)
    numbers = layer.openness(200)[0].detach().numpy().copy()
    k, weights = torch.from_numpy(numbers), layer.weights("_l0")
    x, zeros = torch.randn(200, 3, 2), torch.zeros(3, 60)

    def run():
        with torch.no_grad():
            return gated_lstm(x, weights.w_ih, weights.w_hh, weights.bias, k, zeros, zeros).h

    first = run()
    numbers[:] = numbers[::-1].copy()
    second = run()
    assert not torch.allclose(first, second, atol=1e-3)
    with cpu.forcing("dense"):
        assert torch.allclose(second, run(), atol=1e-6)


def test_nothing_is_cached_where_the_call_is_recorded():
    layer, x = LAYERS["g-LSTM"](), torch.randn(20, 3, 2)
    layer(x)
    with torch.no_grad():
        layer(x)  # in training
        layer.eval()
        torch.vmap(lambda one: layer(one)[0])(torch.randn(2, 20, 3, 2))
        with layer.recording_openness():
            layer(x)
        with FakeTensorMode(allow_non_fake_inputs=True):
            layer(torch.randn(20, 3, 2))
        torch.compile(layer, backend="eager")(x)
    layer(x)
    assert layer._tables._tables == {}
    with torch.no_grad():
        layer(x)
    assert set(layer._tables._tables) == {"_l0"}


@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("batch", [1, 3, 17])
def test_a_call_made_again_gives_what_a_fresh_one_gives(kind, batch_first, batch):
    layer = LAYERS[kind](batch_first=batch_first).eval()
    x = torch.randn(batch, 20, 2) if batch_first else torch.randn(20, batch, 2)
    assert_same(layer, x)
    assert_same(layer, torch.randn_like(x))
    assert_same(layer, x, (torch.randn(1, batch, 6), torch.randn(1, batch, 6)))


@needs_engine
def test_a_call_made_again_sees_every_change():
    layer = LAYERS["g-LSTM"]().eval()
    x = torch.randn(20, 3, 2)
    assert_same(layer, x)

    def replace_bias():
        layer.bias_ih_l0 = nn.Parameter(torch.randn(24))

    def move_weights():
        layer.weight_hh_l0.data = torch.randn(24, 6)

    def another_view():
        layer.mu_l0.data = layer.mu_l0.data[:1].expand(6)

    changes = {
        "weights in place": lambda: layer.weight_hh_l0.data.mul_(1.5),
        "weights elsewhere": move_weights,
        "another parameter": replace_bias,
        "gate values": lambda: layer.mu_l0.data.add_(3.0),
        "gate values as another view": another_view,
        "gate": lambda: setattr(layer, "gate", Wider(1.0, 1.0)),
        "threshold": lambda: setattr(layer, "threshold", 0.3),
        "candidate": lambda: setattr(layer, "candidate", "sigmoid"),
        "reparametrised": lambda: parametrize.register_parametrization(layer, "weight_ih_l0", nn.Tanh()),
    }
    for name, change in changes.items():
        before = again(layer, x)[1]
        change()
        assert_same(layer, x)
        assert not torch.allclose(again(layer, x)[1], before, atol=1e-4), name


@needs_engine
def test_a_call_made_again_takes_other_inputs_than_before():
    layer = LAYERS["g-LSTM"]().eval()
    x = torch.randn(20, 3, 2)
    assert_same(layer, x)
    assert_same(layer, x[:, :2])  # another batch, not contiguous
    assert_same(layer, x[:11])
    assert_same(layer, x[:, 0])  # unbatched
    assert_same(layer, x.flip(0))
    assert_same(layer, x, tuple(torch.randn(3, 1, 6).transpose(0, 1) for _ in range(2)))
    assert_same(layer.double(), x.double())
    with torch.no_grad(), pytest.raises(ValueError, match="h_0 must have shape"):
        layer.float()(x, (torch.zeros(1, 4, 6), torch.zeros(1, 4, 6)))


@needs_engine
def test_a_call_made_again_from_many_threads_at_once():
    layer = LAYERS["g-LSTM"]().eval()
    inputs = [torch.randn(20, 3, 2) for _ in range(8)]
    expected = [fresh(layer, x)[1] for x in inputs]
    wrong = []

    def work(x, right):
        with torch.no_grad():
            for _ in range(50):
                h = layer(x, sequence=False)[1][0]
                if not torch.allclose(h, right, atol=1e-6):
                    wrong.append(h)

    threads = [threading.Thread(target=work, args=pair) for pair in zip(inputs, expected)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@needs_engine
def test_what_is_wrong_with_hx_is_said_warm_or_cold():
    layer, x = LSTM(2, 6).eval(), torch.randn(5, 3, 2)
    for hx in (torch.zeros(2, 1, 3, 6), (None, None), (torch.zeros(1, 3, 6),)):
        for _ in range(2):
            with torch.no_grad(), pytest.raises(ValueError, match=r"hx must be a pair|h_0 must be a tensor"):
                layer(x, hx)
            with torch.no_grad():
                layer(x)


@needs_engine
def test_other_defaults_of_torch_change_nothing():
    layer, x = LSTM(2, 6).eval(), torch.randn(5, 3, 2)
    right = fresh(layer, x)
    torch.set_default_dtype(torch.float64)
    try:
        for kept, expected in zip(again(layer, x), right):
            assert kept.dtype == torch.float32
            assert torch.equal(kept, expected)
    finally:
        torch.set_default_dtype(torch.float32)
