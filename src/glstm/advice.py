"""Advice for own training loops: learning rates that fit the times, and what looks wrong about a network's gates."""

import copy
from typing import Any

from torch import nn
from torch.optim import Optimizer

from glstm.gated import GatedLSTM
from glstm.layers import gate_parameters, gated_layers, weight_parameters
from glstm.times import Span, span_of

FAST = 0.1  # of the span in one update: a gate leaves the times before it has learned anything
SLOW, UPDATES = 0.01, 1000  # of the span in so many updates: a gate stays where it is


def parameter_groups(
    model: nn.Module, lr: float = 1e-3, gate_lr: float | None = None, *, times: Any = None
) -> list[dict[str, Any]]:
    """Groups for a torch optimiser: the weights with `lr`, the gates' moments and durations with a rate of their own.

    Values that reach less far than the span of the times, such as a period, have a lower rate (`Gate.reach`). The rates
    returned are for the stored parameters, so layers with different units have groups of their own. Gate values that
    are no times, such as a ratio, go with the weights. Frozen parameters are left out.

    Args:
        model: A model or a layer.
        lr: The weights' rate.
        gate_lr: In the unit of the times, for one update of an optimiser such as Adam, whose steps are about as large
            as the rate. None: lr x the span of the times that the layer has seen; of a layer with given mu that has
            seen none, the range of mu and two sigma.
        times: The times to take the span of, such as 784 for 784 steps. A layer that has seen none is fitted to them.

    Examples:
        ```python
        import torch

        import glstm

        model = glstm.SequenceModel(glstm.GLSTM(3, 16), torch.nn.Linear(16, 2))
        optimizer = torch.optim.Adam(glstm.parameter_groups(model, lr=1e-3, times=100))
        assert glstm.check(model, 100, optimizer) == []
        ```
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"parameter_groups takes a model or a layer, not {type(model).__name__}")
    in_time = {id(value) for layer in gated_layers(model) for _, value in values_in_time(layer)}
    weights = [*weight_parameters(model), *(gate for gate in gate_parameters(model) if id(gate) not in in_time)]
    weights = [weight for weight in weights if weight.requires_grad]
    by_rate: dict[float, list[nn.Parameter]] = {}
    for layer in gated_layers(model):
        gates = [(name, gate) for name, gate in values_in_time(layer) if gate.requires_grad]
        rates = _rates(layer, lr, gate_lr, times) if gates else {}
        for name, gate in gates:
            by_rate.setdefault(rates[name], []).append(gate)
    groups = [{"params": weights, "lr": lr}] if weights else []
    return groups + [{"params": gates, "lr": rate} for rate, gates in by_rate.items()]


def values_in_time(layer: GatedLSTM) -> list[tuple[str, nn.Parameter]]:
    """The parameters that are moments or durations, each with the gate's name for it."""
    named = [
        (name, layer._parameters.get(name + suffix)) for _, suffix in layer.places() for name in layer.gate.in_time
    ]
    return [(name, value) for name, value in named if isinstance(value, nn.Parameter)]


def shares_of_rate(layer: GatedLSTM, span: float, gate_lr: float | None) -> dict[str, float]:
    """Which part of the gates' rate each value in time has: all of it, unless the gate says that it reaches less far.
    A rate that was given is that of the value that reaches furthest."""
    reach = layer.gate.reach(layer._all_in_time(), span)
    whole = span if gate_lr is None else max(reach.values(), default=span)
    return {name: 1.0 if far == whole else far / whole for name, far in reach.items()}


def _rates(layer: GatedLSTM, lr: float, gate_lr: float | None, times: Any) -> dict[str, float]:
    if layer.unfitted:
        if times is None:
            raise ValueError(
                "a layer that has not seen any times yet has no unit and no span for its gates' rate: give "
                "parameter_groups the times (times=784 for 784 steps), or call layer.fit_times(times) before"
            )
        layer.fit_times(times)
    span = _width(layer, times)
    rate = (lr * span if gate_lr is None else gate_lr) / layer.unit
    return {name: rate * share for name, share in shares_of_rate(layer, span, gate_lr).items()}


def _width(layer: GatedLSTM, times: Any = None) -> float:
    """The span of the times that the gates are for, in the user's time."""
    span = layer.seen if times is None else _span(layer, times)
    if span is not None:
        return span.width
    values = layer._all_in_time()
    moments = [values[name] for name in layer.gate.moments]
    durations = [values[name].abs().mean() for name in layer.gate.in_time if name not in layer.gate.moments]
    spread = max((float(moment.max() - moment.min()) for moment in moments), default=0.0)
    return spread + 2 * max(map(float, durations), default=0.0)


def _span(layer: GatedLSTM, times: Any) -> Span | None:
    return span_of(*layer._given_times(times))


def check(model: nn.Module, times: Any = None, optimizer: Optimizer | None = None) -> list[str]:
    """What looks wrong about the gates of a model or a layer. Nothing is changed.

    Args:
        model: A model or a layer.
        times: As `openness` takes them; None: those of the layer's first call.
        optimizer: With one, the gates' learning rates are looked at, too.

    Returns:
        One sentence for each doubt; an empty list if there is none.
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"check takes a model or a layer, not {type(model).__name__}")
    layers = [(name, layer) for name, layer in model.named_modules() if isinstance(layer, GatedLSTM)]
    found: list[str] = []
    for name, layer in layers:
        sentences = _about_layer(layer, times, optimizer)
        found += [f"{name}: {sentence}" if len(layers) > 1 and name else sentence for sentence in sentences]
    return found


def _about_layer(layer: GatedLSTM, times: Any, optimizer: Optimizer | None) -> list[str]:
    if not layer.gate.names:
        return []
    # As it will be after its first call with these times.
    fitted = copy.deepcopy(layer).fit_times(times) if layer.unfitted and times is not None else layer
    known, valid, counted = None, None, isinstance(times, int)
    if times is not None:
        known, valid = fitted._given_times(times)
    elif (seen := fitted.seen) is not None:
        known, counted = seen.times, seen.counted
    sentences = fitted._doubts(known, valid, counted)
    return sentences + ([] if optimizer is None else _about_rates(layer, _width(fitted, times), fitted.unit, optimizer))


def about_rate(rate: float, span: float, instead: str) -> list[str]:
    """Of a learning rate of gates in the unit of the times."""
    if rate <= FAST * span:
        return []
    return [
        f"the gates' learning rate of {rate:.3g} is more than {FAST:.0%} of the span of the times, {span:.4g}: gates "
        f"leave the times within a few updates; {instead}"
    ]


def _about_rates(layer: GatedLSTM, span: float, unit: float, optimizer: Optimizer) -> list[str]:
    weights = {id(weight) for weights in layer.all_weights for weight in weights}
    gates = {id(gate) for _, gate in values_in_time(layer) if gate.requires_grad}
    found: list[str] = []
    for group in optimizer.param_groups:
        inside = {id(parameter) for parameter in group["params"]}
        if not inside & gates:
            continue
        rate = float(group["lr"]) * unit
        found += about_rate(rate, span, "rates that fit come from glstm.parameter_groups(model, lr)")
        if inside & weights and 0 < rate * UPDATES < SLOW * span:
            found.append(
                f"gates and weights share a learning rate of {rate:.3g}, with which {UPDATES} updates move a gate by "
                f"{rate * UPDATES:.3g} at most, and the times span {span:.4g}: give the optimiser "
                "glstm.parameter_groups(model, lr)"
            )
    return found
