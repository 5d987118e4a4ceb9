"""Networks of one architecture as one: every value of every network in a single tensor (M, P).

The gradient comes back in one piece, and an optimiser moves all networks at once. The networks themselves stay: their
parameters are views of their row. They run in groups. On CUDA one group holds all, side by side along a leading model
axis M. Elsewhere each network is a group of its own, without that axis: so it computes, to the bit, what it does alone.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import dropout, linear

from glstm.gated import GatedLSTM
from glstm.gates import Gate, apply_threshold
from glstm.layers import gate_parameters, weight_parameters
from glstm.models import DropConnect, SequenceModel
from glstm.ops import gated_lstm
from glstm.times import count_up
from glstm.training import masks

Values = dict[str, Tensor]  # weights by name, with the model axis; and the gates' values
Tables = dict[str, Tensor]  # k (M, T, H) by the suffix of a layer and direction
GATES = "gates"  # among the values: those of all gates (M, G)

ALIGNED = 16  # numbers; a row begins where a vector may, whichever row it is: matrix products round by where they begin


class Stack:
    """`flat` (M, P): a network's weights, `weights` of them, its gates' values, and zeros up to a whole vector.

    Networks may differ in their gates, and in how many values these have; `own_size(row)` is what a network fills.
    """

    def __init__(self, models: Sequence[SequenceModel], seeds: Sequence[int], steps: int, together: bool | None = None):
        self.shapes = _shapes(models[0], weight_parameters(models[0]))
        sizes = [shape.numel() for shape in self.shapes.values()]
        self.weights = sum(sizes)
        self.gate_sizes = [sum(shape.numel() for shape in _gate_shapes(model).values()) for model in models]
        gates = max(self.gate_sizes)
        self.sizes = [*sizes, gates + -(self.weights + gates) % ALIGNED]
        device = next(models[0].parameters()).device
        if len(models) == 1 or (device.type == "cuda" if together is None else together):
            self.groups = [Group(models, seeds, steps)]
        else:
            self.groups = [Group([model], [seed], steps) for model, seed in zip(models, seeds, strict=True)]
        self._gather(models)

    @torch.no_grad()
    def _gather(self, models: Sequence[SequenceModel]) -> None:
        self.flat = next(models[0].parameters()).new_zeros(len(models), sum(self.sizes))
        for row, model in zip(self.flat, models, strict=True):
            own, shapes = dict(model.named_parameters()), self.shapes | _gate_shapes(model)
            for (name, shape), part in zip(shapes.items(), row.split(_filling(shapes, len(row)))):
                part.copy_(own[name].flatten())
                own[name].data = part.view(shape)
        self.flat.requires_grad_()

    def own_size(self, row: int) -> int:
        return self.weights + self.gate_sizes[row]

    def __iter__(self) -> Iterator[tuple["Group", Values]]:
        """Each group with its parameters as they are now, differentiable."""
        rows = [self.flat] if len(self.groups) == 1 else self.flat.unbind()
        for group, row in zip(self.groups, rows, strict=True):
            *parts, gates = row.view(*group.axis, -1).split(self.sizes, -1)
            values = {name: part.view(*group.axis, *shape) for (name, shape), part in zip(self.shapes.items(), parts)}
            yield group, values | {GATES: gates}

    def own(self, data: Tensor, axes: int) -> list[Tensor]:
        """What each group reads of a batch's tensor: it has `axes` axes, and one more where networks read their own."""
        shared = data.dim() == axes
        return [data] * len(self.groups) if shared or len(self.groups) == 1 else list(data)


class Gates:
    """The gates of networks with the same kind of gate; `rows` are theirs among the group's."""

    def __init__(self, models: Sequence[SequenceModel], rows: Sequence[int]):
        own = [models[row] for row in rows]
        self.rows, self.layer, self.shapes = rows, own[0].layer, _gate_shapes(own[0])
        self.frozen = not any(gate.requires_grad for model in own for gate in gate_parameters(model))
        self.threshold = _common_threshold([model.layer.threshold for model in own], next(own[0].parameters()))

    def table(self, suffix: str, values: Tensor, w_hh: Tensor, times: Tensor, training: bool) -> Tensor:
        """k of one layer and direction, from the values of all their gates (M, G), or (G,) of one network; of w_hh only
        the shape matters."""
        parts = values.split(_filling(self.shapes, values.shape[-1]), -1)
        own = dict(zip(self.shapes, parts))
        unit = {name: own[f"layer.{name}{suffix}"] for name in self.layer.gate.names}
        if self.frozen:  # gates that nobody trains are constants
            unit = {name: value.detach() for name, value in unit.items()}
        if values.dim() == 2:
            unit = {name: value.unsqueeze(-2) for name, value in unit.items()}  # (M, 1, H) meets times (T, 1)
        return _table(self.layer.gate, times, unit, self.threshold, training, w_hh)


class Group:
    """Networks that run side by side: how, and with what besides their values."""

    def __init__(self, models: Sequence[SequenceModel], seeds: Sequence[int], steps: int):
        self.layer, self.head = models[0].layer, _parts_of(models[0].head)
        self.axis = (len(models),) if len(models) > 1 else ()
        device = next(models[0].parameters()).device
        self.times = count_up(steps, device)
        kinds: dict[type, list[int]] = {}
        for row, model in enumerate(models):
            kinds.setdefault(type(model.layer.gate), []).append(row)
        self.gates = [Gates(models, rows) for rows in kinds.values()]
        self.seeds = torch.tensor(seeds, device=device).view(self.axis)
        # No two weights of a network share a number, whichever layer they are in.
        dropped = {name: part.weight.numel() for name, part in self.head.items() if isinstance(part, DropConnect)}
        numbers = masks.number_elements(sum(dropped.values()), device).split(list(dropped.values()))
        self.numbers = dict(zip(dropped, numbers, strict=True))

    def tables(self, values: Values, training: bool) -> Tables:
        """How open each unit is, in training or in use."""
        found = {}
        for _, suffix in self.layer.places():
            w_hh, gates = values[f"layer.weight_hh{suffix}"], values[GATES]
            if len(self.gates) == 1:
                found[suffix] = self.gates[0].table(suffix, gates, w_hh, self.times, training)
                continue
            each: dict[int, Tensor] = {}
            for one in self.gates:
                own, shape = torch.stack([gates[row] for row in one.rows]), w_hh[: len(one.rows)]
                each |= zip(one.rows, one.table(suffix, own, shape, self.times, training))
            found[suffix] = torch.stack([each[row] for row in range(len(each))])
        return found

    def predict(self, values: Values, tables: Tables, x: Tensor, step: Tensor | None = None) -> Tensor:
        """x (T, B, D), or one for each network (M, T, B, D) -> (M, B, outputs).

        With the number of a training `step`, Drop-Connect drops.
        """
        rows = self.layer.num_layers * self.layer.num_directions
        hidden = values["layer.weight_hh_l0"]
        zeros = hidden.new_zeros(rows, *self.axis, x.shape[-2], self.layer.hidden_size)
        _, (h_n, _) = _run_layers(
            self.layer,
            lambda name, suffix: values[f"layer.{name}{suffix}"],
            tables.__getitem__,
            x,
            zeros,
            zeros,
            sequence=False,
        )
        y = _side_by_side(list(h_n[-self.layer.num_directions :]))
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


def _shapes(model: SequenceModel, parameters: Iterable[nn.Parameter]) -> dict[str, torch.Size]:
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    return {names[id(parameter)]: parameter.shape for parameter in parameters}


def _gate_shapes(model: SequenceModel) -> dict[str, torch.Size]:
    return _shapes(model, gate_parameters(model))


def _filling(shapes: dict[str, torch.Size], room: int) -> list[int]:
    """Sizes of the parts, and of the room they leave."""
    sizes = [shape.numel() for shape in shapes.values()]
    return [*sizes, room - sum(sizes)]


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


def _table(
    gate: Gate, times: Tensor, unit: Mapping[str, Tensor], threshold: float | Tensor, training: bool, w_hh: Tensor
) -> Tensor:
    """k of one layer and direction, thresholded: (T, H), or (T, B, H) with times per sample.

    With a model axis the gate's values are (M, 1, H), the threshold is a number or (M, 1, 1), and k is (M, T, H).
    """
    k = apply_threshold(gate.openness(times, unit, training), threshold)
    return k.expand(*w_hh.shape[:-2], *times.shape, w_hh.shape[-1]).to(w_hh.dtype)


def _run_layers(
    layer: GatedLSTM,
    value: Callable[[str, str], Tensor],
    openness: Callable[[str], Tensor],
    x: Tensor,
    h0: Tensor,
    c0: Tensor,
    sequence: bool,
) -> tuple[Tensor | None, tuple[Tensor, Tensor]]:
    """All layers and directions over x (T, B, D).

    `layer` says what there is; `value(name, suffix)` and `openness(suffix)` bring the numbers.
    """
    finals = []
    outputs: list[Tensor] = []
    for row, (depth, suffix) in enumerate(layer.places()):
        if outputs and row % layer.num_directions == 0:
            x = _side_by_side(outputs)
            x = dropout(x, layer.dropout, layer.training) if layer.dropout else x
            outputs = []
        k, w_hh = openness(suffix), value("weight_hh", suffix)
        backwards = suffix.endswith("_reverse")
        result = gated_lstm(
            x.flip(-3) if backwards else x,
            value("weight_ih", suffix),
            w_hh,
            value("bias_ih", suffix) + value("bias_hh", suffix) if layer.bias else None,
            k.flip(w_hh.dim() - 2) if backwards else k,  # each step keeps the time of its input
            h0[row],
            c0[row],
            candidate=layer.candidate,
            sequence=sequence or depth < layer.num_layers - 1,
            backend=layer.backend,
            segment=layer.segment,
        )
        finals.append(result)
        if result.h is not None:
            outputs.append(result.h.flip(-3) if backwards else result.h)
    if len(finals) == 1:
        state = finals[0].h_n.unsqueeze(0), finals[0].c_n.unsqueeze(0)
    else:
        state = torch.stack([one.h_n for one in finals]), torch.stack([one.c_n for one in finals])
    return (_side_by_side(outputs) if sequence else None), state


def _side_by_side(outputs: list[Tensor]) -> Tensor:
    """What the directions of one layer, or their last states, say: (..., directions x H)."""
    return outputs[0] if len(outputs) == 1 else torch.cat(outputs, -1)
