"""torch.vmap, torch.func.grad and functional_call through the layers, against a plain loop over models."""

import itertools

import pytest
import torch
from torch import nn
from torch.func import functional_call, grad, jacrev, stack_module_state, vmap

from glstm import GLSTM, LSTM, PLSTM, GatedLSTM, Periodic, SequenceModel
from glstm.ops import gated_lstm, gpu
from helpers import operator_inputs, relative_error

MODELS, STEPS, BATCH = 3, 7, 4

KINDS = {
    "GLSTM": lambda: GLSTM(2, 5, mu=(1, STEPS), sigma=2.0, threshold=0.05),
    "PLSTM": lambda: PLSTM(2, 5, tau=7.3, s=(0.2, 0.4), r=0.8),
    "periodic": lambda: GatedLSTM(2, 5, gate=Periodic(mu=(0.0, 3.0), sigma=0.9, tau=3.3), threshold=0.05),
    "LSTM": lambda: LSTM(2, 5),
    "two layers": lambda: GLSTM(2, 5, 2, mu=(1, STEPS), sigma=2.0),
    "both directions": lambda: GLSTM(2, 5, bidirectional=True, mu=(1, STEPS), sigma=2.0, bias=False),
    "batch first": lambda: GLSTM(2, 5, batch_first=True, mu=(1, STEPS), sigma=2.0),
    "with a head": lambda: SequenceModel(GLSTM(2, 5, mu=(1, STEPS), sigma=2.0, threshold=0.05), nn.Linear(5, 3)),
    "in segments": lambda: in_segments(),
}
TOLERANCES = {torch.float64: 1e-12, torch.float32: 1e-5}

every_kind = pytest.mark.parametrize("kind", KINDS)
both_dtypes = pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
shared_or_own = pytest.mark.parametrize("shared", [True, False], ids=["one x for all", "x for each"])


def in_segments() -> GLSTM:
    layer = GLSTM(2, 5, mu=(1, STEPS), sigma=2.0)
    layer.segment = 3
    return layer


def population(kind: str, dtype: torch.dtype):
    """Models, their stacked parameters, and a function from one model's parameters and x to its outputs."""
    models = [KINDS[kind]().to(dtype) for _ in range(MODELS)]
    parameters, _ = stack_module_state(models)  # pyright: ignore[reportArgumentType]

    def run(values, x):
        return outputs_of(functional_call(models[0], values, (x,)))

    return models, parameters, run


def outputs_of(result) -> tuple:
    return (result,) if isinstance(result, torch.Tensor) else (result[0], *result[1])


def inputs(kind: str, dtype: torch.dtype, shared: bool) -> torch.Tensor:
    shape = (BATCH, STEPS, 2) if kind == "batch first" else (STEPS, BATCH, 2)
    return torch.randn(shape if shared else (MODELS, *shape), dtype=dtype)


def loss_of(outputs) -> torch.Tensor:
    return torch.stack([part.sin().sum() for part in outputs]).sum()


@every_kind
@both_dtypes
@shared_or_own
def test_gradients_outside_vmap(kind, dtype, shared):
    """How many networks are trained at once: a loss over all of them, differentiated as usual."""
    models, parameters, run = population(kind, dtype)
    x = inputs(kind, dtype, shared).requires_grad_()
    outputs = vmap(run, in_dims=(0, None if shared else 0))(parameters, x)
    found = torch.autograd.grad(loss_of(outputs), [*parameters.values(), x])

    each = [outputs_of(model(x if shared else x[number])) for number, model in enumerate(models)]
    expected = [torch.stack(parts) for parts in zip(*each, strict=True)]
    own = [list(model.parameters()) for model in models]
    *gradients, dx = torch.autograd.grad(loss_of(expected), [*itertools.chain(*own), x])
    by_name = [torch.stack(gradients[position :: len(parameters)]) for position in range(len(parameters))]
    for mine, right in zip((*outputs, *found), (*expected, *by_name, dx), strict=True):
        assert relative_error(mine, right) < TOLERANCES[dtype]


@every_kind
@both_dtypes
@shared_or_own
def test_gradients_inside_vmap(kind, dtype, shared):
    models, parameters, run = population(kind, dtype)
    x = inputs(kind, dtype, shared)
    values = {name: value.detach() for name, value in parameters.items()}
    gradient = grad(lambda values, x: loss_of(run(values, x)), argnums=(0, 1))
    found, dx = vmap(gradient, in_dims=(0, None if shared else 0))(values, x)
    for number, model in enumerate(models):
        own = (x if shared else x[number]).clone().requires_grad_()
        expected = torch.autograd.grad(loss_of(outputs_of(model(own))), [*model.parameters(), own])
        for mine, right in zip((*found.values(), dx), expected, strict=True):
            assert relative_error(mine[number], right) < TOLERANCES[dtype]


@every_kind
@both_dtypes
def test_one_network_on_several_batches(kind, dtype):
    """The outputs of each, the gradient of each, and the gradient of their sum."""
    _, parameters, run = population(kind, dtype)
    values = {name: value[0].detach() for name, value in parameters.items()}
    x = inputs(kind, dtype, shared=False)

    def loss(values, x):
        return loss_of(run(values, x))

    outputs = vmap(run, in_dims=(None, 0))(values, x)
    each = vmap(grad(loss), in_dims=(None, 0))(values, x)
    total = grad(lambda values: loss_of(vmap(run, in_dims=(None, 0))(values, x)))(values)
    for number in range(MODELS):
        for mine, right in zip(outputs, run(values, x[number]), strict=True):
            assert relative_error(mine[number], right) < TOLERANCES[dtype]
        for name, right in grad(loss)(values, x[number]).items():
            assert relative_error(each[name][number], right) < TOLERANCES[dtype]
    for name, right in total.items():
        assert relative_error(each[name].sum(0), right) < TOLERANCES[dtype]


@both_dtypes
@pytest.mark.parametrize("batched", list(itertools.product((False, True), repeat=3))[1:], ids=str)
@pytest.mark.parametrize("per_sample", [False, True])
def test_the_operator_with_any_of_its_inputs_batched(dtype, batched, per_sample):
    """x, tables and states, under shared weights: more samples. Along axes that are not the first, too."""
    x, w_ih, w_hh, b, k, h0, c0 = operator_inputs(STEPS, BATCH, 2, 5, per_sample=per_sample, dtype=dtype)
    copies = [torch.stack([tensor, tensor / 2], 1) for tensor in (x, k, h0)]
    given = [copy if chosen else one for copy, chosen, one in zip(copies, batched, (x, k, h0), strict=True)]
    dims = tuple(1 if chosen else None for chosen in batched)

    def run(x, k, h0):
        return tuple(gated_lstm(x, w_ih, w_hh, b, k, h0, c0, cells=True))

    outputs = vmap(run, in_dims=dims)(*given)
    for number in range(2):
        own = [part.select(1, number) if chosen else part for part, chosen in zip(given, batched, strict=True)]
        for mine, right in zip(outputs, run(*own), strict=True):
            assert relative_error(mine[number], right) < TOLERANCES[dtype]
    leaves = [x, w_ih, w_hh, b, k, h0, c0]
    mine = torch.autograd.grad(loss_of(outputs), leaves, retain_graph=True)
    loop = [run(*(p.select(1, n) if c else p for p, c in zip(given, batched, strict=True))) for n in range(2)]
    right = torch.autograd.grad(torch.stack([loss_of(one) for one in loop]).sum(), leaves)
    assert all(relative_error(one, other) < TOLERANCES[dtype] for one, other in zip(mine, right, strict=True))


@shared_or_own
def test_models_run_side_by_side_where_the_backend_can(shared, emulated, monkeypatch):
    """On the CUDA engine, emulated: one pass forward and one backward for all of them."""
    emulated(1)
    calls = []
    for name in ("forward", "backward"):
        run = getattr(gpu, name)
        monkeypatch.setattr(gpu, name, lambda *given, run=run, name=name: calls.append(name) or run(*given))
    models = [GLSTM(2, 5, mu=(1, STEPS), sigma=2.0, backend="cuda") for _ in range(MODELS)]
    parameters, _ = stack_module_state(models)  # pyright: ignore[reportArgumentType]
    x = inputs("GLSTM", torch.float32, shared)

    def final(values, x):
        return functional_call(models[0], values, (x,))[1][0]

    found = vmap(final, in_dims=(0, None if shared else 0))(parameters, x)
    gradients = torch.autograd.grad(found.sin().sum(), list(parameters.values()))
    assert calls == ["forward", "backward"]
    for number, model in enumerate(models):
        model.backend = "reference"
        right = model(x if shared else x[number])[1][0]
        assert relative_error(found[number], right) < 1e-3
        expected = torch.autograd.grad(right.sin().sum(), list(model.parameters()))
        for mine, wanted in zip(gradients, expected, strict=True):
            assert relative_error(mine[number], wanted) < 1e-2


@shared_or_own
def test_vmap_inside_vmap(shared):
    """Models of models, and each on several batches."""
    layer = GLSTM(2, 3, mu=(1, STEPS), sigma=2.0, dtype=torch.float64)
    values = {
        name: torch.randn(2, MODELS, *value.shape, dtype=torch.float64) for name, value in layer.named_parameters()
    }
    x = torch.randn((STEPS, BATCH, 2) if shared else (2, STEPS, BATCH, 2), dtype=torch.float64)

    def run(values, x):
        return functional_call(layer, values, (x,))[0]

    def loss(values, x):
        return run(values, x).sin().sum()

    inner = vmap(run, in_dims=(0, None))
    outputs = vmap(inner, in_dims=(0, None if shared else 0))(values, x)
    gradients = vmap(vmap(grad(loss), in_dims=(0, None)), in_dims=(0, None if shared else 0))(values, x)
    for outer, number in itertools.product(range(2), range(MODELS)):
        own = {name: value[outer, number] for name, value in values.items()}
        read = x if shared else x[outer]
        assert relative_error(outputs[outer, number], run(own, read)) < 1e-12
        for name, right in grad(loss)(own, read).items():
            assert relative_error(gradients[name][outer, number], right) < 1e-12


def test_several_gradients_at_once():
    for dtype, tolerance in TOLERANCES.items():
        layer = GLSTM(2, 4, 2, mu=(1, STEPS), sigma=2.0, dtype=dtype)
        x = torch.randn(STEPS, BATCH, 2, dtype=dtype, requires_grad=True)
        for layer.segment in (None, 3):
            output, _ = layer(x)
            arriving = torch.randn(5, *output.shape, dtype=dtype)
            wanted = [x, *layer.parameters()]
            found = torch.autograd.grad(output, wanted, arriving, is_grads_batched=True, retain_graph=True)
            each = [torch.autograd.grad(output, wanted, one, retain_graph=True) for one in arriving]
            for mine, right in zip(found, zip(*each, strict=True), strict=True):
                assert relative_error(mine, torch.stack(right)) < tolerance


def test_several_gradients_of_several_models():
    layer = LSTM(2, 3)
    values = {name: torch.randn(2, *value.shape, requires_grad=True) for name, value in layer.named_parameters()}
    x = torch.randn(STEPS, BATCH, 2, requires_grad=True)
    output = vmap(lambda values: functional_call(layer, values, (x,))[1][0])(values)
    arriving = torch.randn(4, *output.shape)
    wanted = [x, *values.values()]
    found = torch.autograd.grad(output, wanted, arriving, is_grads_batched=True, retain_graph=True)
    each = [torch.autograd.grad(output, wanted, one, retain_graph=True) for one in arriving]
    for mine, right in zip(found, zip(*each, strict=True), strict=True):
        assert relative_error(mine, torch.stack(right)) < 1e-5


def test_jacobians_and_second_derivatives():
    layer = GLSTM(2, 3, mu=(1, 5), sigma=2.0, threshold=0.05, dtype=torch.float64)
    x = torch.randn(5, 2, 2, dtype=torch.float64)

    def final(x):
        return layer(x)[1][0]

    def loss(x):
        return final(x).sin().sum()

    row_by_row = torch.autograd.functional.jacobian(final, x)
    assert relative_error(torch.autograd.functional.jacobian(final, x, vectorize=True), row_by_row) < 1e-12
    assert relative_error(jacrev(final)(x), row_by_row) < 1e-12
    twice = torch.autograd.functional.hessian(loss, x)
    assert relative_error(jacrev(jacrev(loss))(x), twice) < 1e-12
    each = vmap(grad(lambda x: grad(loss)(x).square().sum()))(torch.stack([x, x / 2]))
    alone = [grad(lambda x: grad(loss)(x).square().sum())(one) for one in (x, x / 2)]
    assert relative_error(each, torch.stack(alone)) < 1e-12


def test_second_derivatives_along_the_model_axis():
    tensors = [torch.stack([tensor, tensor / 2]).detach().requires_grad_() for tensor in operator_inputs(4, 2, 2, 2)]

    def penalty(*tensors):
        out = gated_lstm(*tensors)
        first = torch.autograd.grad(out.h.sin().sum() + out.c_n.sum(), tensors, create_graph=True)
        return torch.stack([part.square().sum() for part in first]).sum()

    found = torch.autograd.grad(penalty(*tensors), tensors)
    for number in range(2):
        own = [tensor[number].detach().requires_grad_() for tensor in tensors]
        for mine, right in zip(found, torch.autograd.grad(penalty(*own), own), strict=True):
            assert relative_error(mine[number], right) < 1e-12


def test_times_may_be_batched():
    layer = GLSTM(2, 3, mu=(1, STEPS), sigma=2.0, dtype=torch.float64)
    x, times = torch.randn(STEPS, BATCH, 2, dtype=torch.float64), torch.rand(3, STEPS, dtype=torch.float64).cumsum(1)
    outputs = vmap(lambda t: layer(x, times=t)[0])(times)
    for mine, own in zip(outputs, times, strict=True):
        assert relative_error(mine, layer(x, times=own)[0]) < 1e-12


@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")
@pytest.mark.parametrize("frozen", [False, True])
def test_forward_mode_is_refused_and_not_lost(frozen):
    layer, x = GLSTM(2, 3).requires_grad_(not frozen), torch.randn(STEPS, BATCH, 2)
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(x, torch.ones_like(x))
        for mode in (layer.train(), layer.eval()):
            with torch.set_grad_enabled(not frozen), pytest.raises(NotImplementedError, match="jvp"):
                mode(dual)


def test_recorded_openness():
    layer = GLSTM(2, 3, 2, bidirectional=True, mu=(1, STEPS), sigma=2.0, threshold=0.1)
    x = torch.randn(STEPS, BATCH, 2)
    with layer.recording_openness() as tables:
        output, _ = layer(x)
    assert torch.equal(torch.stack(tables), layer.openness(STEPS))
    gradients = torch.autograd.grad(output.sum() + torch.stack(tables).mean(), [*tables, layer.mu_l0])
    assert all((gradient != 0).any() for gradient in gradients)
    layer(x)
    assert len(tables) == 4

    with torch.no_grad(), layer.eval().recording_openness() as tables:
        layer(nn.utils.rnn.pack_padded_sequence(x, torch.tensor([7, 5, 2, 1])))
        layer(x)
    assert len(tables) == 8
    assert tables[0].shape == (STEPS, BATCH, 3)
    assert (tables[0][5:, 1] == 0).all()
    assert (tables[0][:2, 2] != 0).any()

    values = {name: torch.stack([value.detach(), value.detach() / 2]) for name, value in layer.named_parameters()}

    def mean_openness(values):
        with layer.recording_openness() as own:
            functional_call(layer, values, (x,))
        return torch.stack(own).mean()

    found = vmap(mean_openness)(values)
    assert found[0] == pytest.approx(layer.openness(STEPS).mean().item(), abs=1e-6)
    assert found[0] != found[1]
    assert all(
        (gradient != 0).any()
        for name, gradient in grad(lambda v: vmap(mean_openness)(v).sum())(values).items()
        if "mu" in name
    )
