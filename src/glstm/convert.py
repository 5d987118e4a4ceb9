"""From and to `torch.nn.LSTM`, and the same layer without the units that never open."""

from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from glstm.gated import GatedLSTM
from glstm.gates import Gaussian, Values
from glstm.layers import GLSTM

Layer = TypeVar("Layer", bound=nn.Module)


def to_lstm(layer: GatedLSTM) -> nn.LSTM:
    """The same weights with every gate fully open, as a `torch.nn.LSTM`."""
    _check_layer(layer, "to_lstm")
    if layer.candidate != "tanh":
        raise ValueError(f"torch.nn.LSTM has a tanh candidate, but this layer has candidate={layer.candidate!r}")
    with _own_randomness():
        lstm = nn.LSTM(**_shape(layer))
    lstm.load_state_dict({name: layer.state_dict()[name] for name in lstm.state_dict()})
    return _same_mode(layer, lstm)


def from_lstm(
    lstm: nn.LSTM,
    *,
    mu: Values | None = None,
    sigma: Values | None = None,
    threshold: float = 0.0,
    origin: float = 0.0,
    unit: float = 1.0,
) -> GLSTM:
    """The weights of a `torch.nn.LSTM` behind Gaussian gates; with a wide sigma, nearly the same network.

    The other arguments are those of `GLSTM`: mu and sigma that are left open fit the times of the first call.
    """
    if not isinstance(lstm, nn.LSTM):
        raise TypeError(f"from_lstm takes a torch.nn.LSTM, not a {type(lstm).__name__}")
    gate: dict[str, Any] = {"mu": mu, "sigma": sigma, "threshold": threshold, "origin": origin, "unit": unit}
    layer = GLSTM(**_shape(lstm), proj_size=lstm.proj_size, **gate)
    layer.load_state_dict(lstm.state_dict(), strict=False)
    return _same_mode(lstm, layer)


@torch.no_grad()
def prune(layer: GLSTM, times: Any, threshold: float) -> GLSTM:
    """The same layer without the units that never open. It computes the same outputs for the units that are left.

    A unit that never opens keeps its initial state, which is zero unless `hx` is given, so it has no effect on others.
    `result.kept` says which units are left, one index tensor for each layer and direction: a head that read all units
    now needs `weight[:, kept]`. All layers of a stack have the same size, so the layer with the most open units decides
    it, and the others keep some closed units besides their open ones.

    Args:
        layer: With Gaussian gates.
        times: The times at which units may open; a number T stands for 1..T.
        threshold: Units with k <= threshold are closed.

    Examples:
        ```python
        import torch

        import glstm

        layer = glstm.GLSTM(3, 16, mu=torch.linspace(1, 200, 16), sigma=5.0)
        small = glstm.prune(layer, times=100, threshold=0.01)  # 9 units: the others open after step 100
        ```
    """
    _check_layer(layer, "prune")
    if not isinstance(layer.gate, Gaussian):
        raise ValueError(f"prune takes a layer with Gaussian gates, not with {type(layer.gate).__name__} ones")
    ever_open = _ever_open(layer, times, threshold)
    size = max(int(ever_open.sum(1).max()), 1)
    # A stable sort brings the open units to the front; sorting the first `size` keeps the units' own order.
    kept = [row.int().argsort(descending=True, stable=True)[:size].sort().values for row in ever_open]

    options = {"threshold": threshold, "candidate": layer.candidate, "backend": layer.backend}
    with _own_randomness():
        pruned = GLSTM(**{**_shape(layer), "hidden_size": size}, **options)
    directions = layer.num_directions
    for index, (depth, suffix) in zip(kept, layer.places(), strict=True):
        gates = torch.cat([index + gate * layer.hidden_size for gate in range(4)])
        old, new = layer.weights(suffix), pruned.weights(suffix)
        w_ih = old.w_ih[gates]
        if depth > 0:
            below = kept[(depth - 1) * directions : depth * directions]
            columns = torch.cat([unit + d * layer.hidden_size for d, unit in enumerate(below)])
            w_ih = w_ih[:, columns]
        new.w_ih.copy_(w_ih)
        new.w_hh.copy_(old.w_hh[gates][:, index])
        for ours, theirs in ((new.bias_ih, old.bias_ih), (new.bias_hh, old.bias_hh)):
            if ours is not None and theirs is not None:
                ours.copy_(theirs[gates])
        for name, value in pruned.gate_values(suffix).items():
            value.copy_(layer.gate_values(suffix)[name][index])
    pruned._same_times_as(layer)
    pruned.kept = [index.cpu() for index in kept]
    return _same_mode(layer, pruned)


def _check_layer(layer: Any, function: str) -> None:
    if isinstance(layer, GatedLSTM):
        return
    own = getattr(layer, "layer", None)
    hint = f": {function}(model.layer, ...)" if isinstance(own, GatedLSTM) else ""
    raise TypeError(f"{function} takes a gated layer, such as a GLSTM, not a {type(layer).__name__}{hint}")


def _ever_open(layer: GLSTM, times: Any, threshold: float) -> Tensor:
    """(layers x directions, H)"""
    before, layer.threshold = layer.threshold, threshold
    try:
        return layer.openness(times).gt(0).flatten(1, -2).any(1)
    finally:
        layer.threshold = before


def _shape(layer: GatedLSTM | nn.LSTM) -> dict:
    weight = next(layer.parameters())
    names = ("input_size", "hidden_size", "num_layers", "bias", "batch_first", "dropout", "bidirectional")
    return {name: getattr(layer, name) for name in names} | {"device": weight.device, "dtype": weight.dtype}


def _same_mode(source: nn.Module, result: Layer) -> Layer:
    """Training or evaluation, and which parameters are frozen, carry over."""
    frozen = {name for name, parameter in source.named_parameters() if not parameter.requires_grad}
    for name, parameter in result.named_parameters():
        parameter.requires_grad_(name not in frozen)
    return result.train(source.training)


def _own_randomness():
    """A new layer draws weights. Here they are overwritten, so the caller's random state must not change."""
    return torch.random.fork_rng(devices=[])
