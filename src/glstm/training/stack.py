"""Networks of one architecture as one: every value of every network in a single tensor (M, P).

The gradient comes back in one piece, and an optimiser moves all networks at once. The networks themselves stay: their
parameters are views of their row. They run in groups. On CUDA one group holds all, side by side along a leading model
axis M. Elsewhere each network is a group of its own, without that axis: so it computes, to the bit, what it does alone.
"""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from glstm.layers import gate_parameters, weight_parameters
from glstm.models import DropConnect, SequenceModel
from glstm.passes import run_layers, side_by_side, table
from glstm.times import count_up
from glstm.training import masks

Values = dict[str, Tensor]  # parameters by name, with the model axis
Tables = dict[str, Tensor]  # k (M, T, H) by the suffix of a layer and direction

ALIGNED = 16  # numbers; a row begins where a vector may, whichever row it is: matrix products round by where they begin


class Stack:
    """`flat` (M, P): a network's weights, `weights` of them, its gates' values, and zeros up to a whole vector."""

    def __init__(self, models: Sequence[SequenceModel], seeds: Sequence[int], steps: int, together: bool | None = None):
        first = models[0]
        names = {id(parameter): name for name, parameter in first.named_parameters()}
        weights, gates = list(weight_parameters(first)), list(gate_parameters(first))
        self.shapes = {names[id(parameter)]: parameter.shape for parameter in (*weights, *gates)}
        sizes = [shape.numel() for shape in self.shapes.values()]
        self.weights = sum(sizes[: len(weights)])
        self.sizes = [*sizes, -sum(sizes) % ALIGNED]
        device = weights[0].device
        if len(models) == 1 or (device.type == "cuda" if together is None else together):
            self.groups = [Group(models, seeds, steps)]
        else:
            self.groups = [Group([model], [seed], steps) for model, seed in zip(models, seeds, strict=True)]
        self._gather(models)

    @torch.no_grad()
    def _gather(self, models: Sequence[SequenceModel]) -> None:
        parameters = [dict(model.named_parameters()) for model in models]
        self.flat = next(models[0].parameters()).new_zeros(len(models), sum(self.sizes))
        for row, own in zip(self.flat, parameters, strict=True):
            for (name, shape), part in zip(self.shapes.items(), row.split(self.sizes)):
                part.copy_(own[name].flatten())
                own[name].data = part.view(shape)
        self.flat.requires_grad_()

    def __iter__(self) -> Iterator[tuple["Group", Values]]:
        """Each group with its parameters as they are now, differentiable."""
        rows = [self.flat] if len(self.groups) == 1 else self.flat.unbind()
        for group, row in zip(self.groups, rows, strict=True):
            parts = row.view(*group.axis, -1).split(self.sizes, -1)
            values = {name: part.view(*group.axis, *shape) for (name, shape), part in zip(self.shapes.items(), parts)}
            yield group, values

    def own(self, data: Tensor, axes: int) -> list[Tensor]:
        """What each group reads of a batch's tensor: it has `axes` axes, and one more where networks read their own."""
        shared = data.dim() == axes
        return [data] * len(self.groups) if shared or len(self.groups) == 1 else list(data)


class Group:
    """Networks that run side by side: how, and with what besides their values."""

    def __init__(self, models: Sequence[SequenceModel], seeds: Sequence[int], steps: int):
        self.layer, self.head = models[0].layer, _parts_of(models[0].head)
        self.axis = (len(models),) if len(models) > 1 else ()
        weight = next(models[0].parameters())
        device = weight.device
        self.times = count_up(steps, device)
        self.frozen = not any(gate.requires_grad for model in models for gate in gate_parameters(model))
        self.threshold = _common_threshold([model.layer.threshold for model in models], weight)
        self.seeds = torch.tensor(seeds, device=device).view(self.axis)
        # No two weights of a network share a number, whichever layer they are in.
        dropped = {name: part.weight.numel() for name, part in self.head.items() if isinstance(part, DropConnect)}
        numbers = masks.number_elements(sum(dropped.values()), device).split(list(dropped.values()))
        self.numbers = dict(zip(dropped, numbers, strict=True))

    def tables(self, values: Values, training: bool) -> Tables:
        """How open each unit is, in training or in use. Gates that nobody trains are constants."""
        gate, found = self.layer.gate, {}
        for _, suffix in self.layer.places():
            unit = {name: values[f"layer.{name}{suffix}"] for name in gate.names}
            if self.frozen:
                unit = {name: value.detach() for name, value in unit.items()}
            if self.axis:
                unit = {name: value.unsqueeze(-2) for name, value in unit.items()}  # (M, 1, H) meets times (T, 1)
            w_hh = values[f"layer.weight_hh{suffix}"]
            found[suffix] = table(gate, self.times, unit, self.threshold, training, w_hh)
        return found

    def predict(self, values: Values, tables: Tables, x: Tensor, step: Tensor | None = None) -> Tensor:
        """x (T, B, D), or one for each network (M, T, B, D) -> (M, B, outputs).

        With the number of a training `step`, Drop-Connect drops.
        """
        rows = self.layer.num_layers * self.layer.num_directions
        hidden = values["layer.weight_hh_l0"]
        zeros = hidden.new_zeros(rows, *self.axis, x.shape[-2], self.layer.hidden_size)
        _, (h_n, _) = run_layers(
            self.layer,
            lambda name, suffix: values[f"layer.{name}{suffix}"],
            tables.__getitem__,
            x,
            zeros,
            zeros,
            sequence=False,
        )
        y = side_by_side(list(h_n[-self.layer.num_directions :]))
        key = masks.keys(self.seeds, step) if step is not None and self.numbers else None
        for name, part in self.head.items():
            if isinstance(part, nn.ReLU):
                y = y.relu()
                continue
            weight, bias = values[f"{name}.weight"], values[f"{name}.bias"]
            if isinstance(part, DropConnect) and key is not None:
                kept = masks.kept(key, self.numbers[name], part.p).view(weight.shape)
                weight = torch.where(kept, weight / (1 - part.p), 0)
            y = torch.baddbmm(bias.unsqueeze(-2), y, weight.mT) if self.axis else linear(y, weight, bias)
        return y


def mean_openness(tables: Tables) -> Tensor:
    """Of each network (M,), over layers, steps and units."""
    means = [k.mean((-2, -1)) for k in tables.values()]
    return means[0] if len(means) == 1 else torch.stack(means).mean(0)


def _common_threshold(thresholds: list[float], like: Tensor) -> float | Tensor:
    if len(set(thresholds)) == 1:
        return thresholds[0]
    return like.new_tensor([value or -1.0 for value in thresholds]).view(-1, 1, 1)  # below 0: none


def _parts_of(head: nn.Module) -> dict[str, nn.Module]:
    """The modules of a head in their order, by the names their parameters have in the network."""
    parts = {"head": head}
    if isinstance(head, nn.Sequential):
        parts = {f"head.{name}": part for name, part in head.named_children()}
    for part in parts.values():
        if not isinstance(part, nn.Linear | nn.ReLU):
            raise TypeError(f"a head is made of linear layers and ReLUs, not of {type(part).__name__}")
    return parts
