"""Networks that train together: every value of every network in a single tensor (M, P).

The gradient comes back in one piece, and an optimiser moves all networks at once. The networks themselves stay: their
parameters are views of their row. They are called in groups. On CUDA a group holds networks that are alike but for
their values and gates: `torch.vmap` calls them as one, and a gated layer's operator then runs them side by side.
Elsewhere, and where vmap cannot go through a network, each is a group of its own: so it computes, to the bit, what it
does alone.
"""

import warnings
from collections.abc import Callable, Container, Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from glstm.gated import GatedLSTM
from glstm.gates import Gate
from glstm.layers import GLSTM, LSTM, PLSTM, gate_parameters, gated_layers, weight_parameters
from glstm.models import SequenceModel

Values = dict[str, Tensor]  # parameters and buffers by name; of several networks with a leading axis

ALIGNED = 16  # numbers: every row begins at a multiple of this, because matrix products round depending on alignment
OWN_TO_TORCH = frozenset(vars(nn.Module())) - {"training"}  # attributes that every module has
# Of a gated layer, what it was given, met and keeps; of torch's recurrent layers, further lists of their weights.
NO_OPTIONS = frozenset({"_draws", "_own", "_tables", "seen", "_flat_weights", "_flat_weight_refs"})


class Stack:
    """`flat` (M, P): each network's weights, padded with zeros to `weights` numbers, then its gates' values, padded.

    `values` (1 + states, M, P) is `flat`, and room for as many further tensors like it: an optimiser's state.
    """

    def __init__(
        self, models: Sequence[nn.Module], times: Tensor | None, together: bool | None = None, states: int = 0
    ):
        """`times` (T,) are those of every sequence; None: each has its own, or another number of steps."""
        self.models, self.times = list(models), times
        self.layouts = [Layout(model) for model in models]
        self.weights = max(layout.weights for layout in self.layouts)
        gates = max(layout.gates for layout in self.layouts)
        size = self.weights + gates
        device = next(models[0].parameters()).device
        self.values = next(models[0].parameters()).new_zeros(
            1 + states, len(models), size + -size % ALIGNED, device=device
        )
        self.flat = self.values[0]
        for row, model, layout in zip(self.flat, models, self.layouts, strict=True):
            layout.move_in(model, row, self.weights)
        self.flat.requires_grad_()
        side_by_side = device.type == "cuda" if together is None else together
        alike: dict[Any, list[int]] = {}
        for row, model in enumerate(models):
            kind = (structure(model), None if times is not None else gate_structure(model)) if side_by_side else row
            alike.setdefault(kind, []).append(row)
        self.groups = [self._group(rows) for rows in alike.values()]

    def _group(self, rows: list[int]) -> "Group":
        layouts = [self.layouts[row] for row in rows]
        return Group([self.models[row] for row in rows], rows, layouts, self.weights, self.times)

    def own(self, rows: Tensor, row: int) -> list[Tensor]:
        """One network's part of a tensor like `flat`, without padding: weights, and gates."""
        layout = self.layouts[row]
        return [rows[row, : layout.weights], rows[row, self.weights : self.weights + layout.gates]]

    def each(
        self, run: Callable[["Group", Tensor], Any], left_out: Container[int] = (), values: Tensor | None = None
    ) -> list[tuple["Group", Any]]:
        """`run` of every group with its rows (m, P), or (P,) of one network, of `values`, by default of `flat` as it is
        now, differentiable; except of single networks that are left out.

        A group that vmap cannot call is split into single networks, permanently.
        """
        flat = self.flat if values is None else values
        rows = flat.unbind()
        found: list[tuple[Group, Any]] = []
        skipped = [group for group in self.groups if not group.several and group.rows[0] in left_out]
        for group in self.groups:
            if group in skipped:
                continue
            before, mode = group.buffers_now(), group.models[0].training
            try:
                found.append((group, run(group, _rows(group, rows, flat))))
                group.works_in.add(mode)
            except torch.OutOfMemoryError:
                raise
            except RuntimeError:
                if not group.several or mode in group.works_in:
                    raise
                group.set_buffers(before)
                singles = [self._group([row]) for row in group.rows]
                found += [(one, run(one, rows[one.rows[0]])) for one in singles]
        self.groups = sorted((*(group for group, _ in found), *skipped), key=lambda group: group.rows[0])
        return found

    def in_order(self, parts: list[tuple["Group", Tensor]]) -> Tensor:
        """The groups' results, one for each network, in the order of the networks; 0 for those left out."""
        if len(parts) == 1 and len(parts[0][0].rows) == len(self.models):
            return parts[0][1] if parts[0][0].several else parts[0][1].unsqueeze(0)
        each: dict[int, Tensor] = {}
        for group, found in parts:
            each |= zip(group.rows, found if group.several else [found])
        nothing = torch.zeros_like(next(iter(each.values())))
        return torch.stack([each.get(row, nothing) for row in range(len(self.models))])


def _rows(group: "Group", rows: tuple[Tensor, ...], flat: Tensor) -> Tensor:
    """A group's part of all rows, which are those of `flat`."""
    if not group.several:
        return rows[group.rows[0]]
    return flat if len(group.rows) == len(rows) else torch.stack([rows[row] for row in group.rows])


class Layout:
    """The positions of a network's values in its row."""

    def __init__(self, model: nn.Module):
        names = {id(parameter): name for name, parameter in model.named_parameters()}
        gates = list(gate_parameters(model))
        self.shapes = {names[id(parameter)]: parameter.shape for parameter in (*weight_parameters(model), *gates)}
        sizes = [shape.numel() for shape in self.shapes.values()]
        self.gates = sum(gate.numel() for gate in gates)
        self.weights = sum(sizes) - self.gates
        self.of_weights, self.of_gates = sizes[: len(sizes) - len(gates)], sizes[len(sizes) - len(gates) :]
        self.frozen = {name for name, parameter in model.named_parameters() if not parameter.requires_grad}

    def parts(self, rows: Tensor, gates_at: int) -> Values:
        """Views of rows (..., P), by name, flat."""
        sizes = [*self.of_weights, gates_at - self.weights, *self.of_gates, rows.shape[-1] - gates_at - self.gates]
        parts = list(rows.split(sizes, -1))
        del parts[len(self.of_weights)], parts[-1]
        return dict(zip(self.shapes, parts, strict=True))

    def values(self, rows: Tensor, gates_at: int, *, weights: bool = True, gates: bool = True) -> Values:
        """Weights, gates' values, or both, from rows (m, P), or (P,) of one; those that nobody trains are constants."""
        found = list(self.parts(rows, gates_at).items())
        count = len(self.of_weights)
        found = (found[:count] if weights else []) + (found[count:] if gates else [])
        views = {name: part.view(*rows.shape[:-1], *self.shapes[name]) for name, part in found}
        return {name: view.detach() if name in self.frozen else view for name, view in views.items()}

    @torch.no_grad()
    def move_in(self, model: nn.Module, row: Tensor, gates_at: int) -> None:
        """Copy the model's values into the row, and make the model's parameters views of it."""
        own = dict(model.named_parameters())
        for name, part in self.parts(row, gates_at).items():
            part.copy_(own[name].flatten())
            own[name].data = part.view(self.shapes[name])


class Group:
    """Networks that are called together: one, or several that are alike but for their values and, maybe, their gates.

    Where gates differ, tables of openness are made first, for each kind of gate by itself, and the call is given them.
    """

    def __init__(
        self,
        models: Sequence[nn.Module],
        rows: list[int],
        layouts: Sequence["Layout"],
        gates_at: int,
        times: Tensor | None,
    ):
        self.models, self.rows, self.layout, self.gates_at = models, rows, layouts[0], gates_at
        self.several = len(models) > 1
        self.works_in: set[bool] = set()  # modes, training or evaluation, in which a call has succeeded
        self.buffers = _stacked_buffers(models) if self.several else {}
        kinds: dict[Any, list[int]] = {}
        for place, model in enumerate(models):
            kinds.setdefault(gate_structure(model), []).append(place)
        self.gates = [
            Gates([models[place] for place in places], places, layouts[places[0]], gates_at, times)
            for places in (kinds.values() if len(kinds) > 1 else ())
            if times is not None
        ]

    def call(self, module: Any, rows: Tensor, own: tuple[Any, ...], shared: tuple[Any, ...]) -> Any:
        """`module`, which has the first network as its `model`, for all of them.

        Each has its values from its row and its own arguments, which have a leading axis if there are several; the
        others are shared.
        """

        def one(values: Values, own: tuple[Any, ...], tables: Values) -> Any:
            given = module.model.layer.using_openness(tables) if tables else nullcontext()
            named = {f"model.{name}": value for name, value in values.items()}
            with given:
                return functional_call(module, named, (*own, *shared))

        values = self.layout.values(rows, self.gates_at, gates=not self.gates)
        if not self.several:
            return one(values, own, {})
        tables = self._tables(rows) if self.gates else {}
        with warnings.catch_warnings():  # about operations that vmap has to repeat for each network
            warnings.filterwarnings("ignore", message=".*not yet implemented the batching rule")
            return torch.vmap(one, in_dims=(0, 0, 0), randomness="different")(values | self.buffers, own, tables)

    def buffers_now(self) -> Values:
        """Copies, for the case that the first call of several networks fails half way."""
        if not self.several or self.models[0].training in self.works_in:
            return {}
        return {name: buffer.clone() for name, buffer in self.buffers.items()}

    def set_buffers(self, values: Values) -> None:
        for name, value in values.items():
            self.buffers[name].copy_(value)

    def _tables(self, rows: Tensor) -> Values:
        """k (m, T, H) by the suffix of a layer and direction."""
        each: dict[int, Values] = {}
        for gates in self.gates:
            each |= gates.tables(torch.stack([rows[place] for place in gates.places]))
        return {suffix: torch.stack([each[place][suffix] for place in range(len(each))]) for suffix in each[0]}


class Gates:
    """Networks of a group with the same kind of gate; `places` are theirs in the group."""

    def __init__(self, models: Sequence[nn.Module], places: list[int], layout: "Layout", gates_at: int, times: Tensor):
        self.places, self.layout, self.gates_at = places, layout, gates_at
        self.openness = _Openness(models[0], times)
        fixed = _gate_names(models[0]) or set()
        each = [{name: buffer for name, buffer in model.named_buffers() if name in fixed} for model in models]
        self.buffers = {name: [own[name] for own in each] for name in each[0]}  # values that are not learned

    def tables(self, rows: Tensor) -> dict[int, Values]:
        """Of each of them, k (T, H) by the suffix of a layer and direction; differentiable."""
        values = self.layout.values(rows, self.gates_at, weights=False)
        values |= {name: torch.stack(each) for name, each in self.buffers.items()}
        if not values:  # always open
            open_tables: Values = self.openness()
            return {place: open_tables for place in self.places}

        def one(values: Values) -> Values:
            return functional_call(self.openness, {f"model.{name}": value for name, value in values.items()}, ())

        found = torch.vmap(one)(values)
        return {place: {suffix: k[n] for suffix, k in found.items()} for n, place in enumerate(self.places)}


class _Openness(nn.Module):
    """The tables of openness of a model's layer at times (T,)."""

    def __init__(self, model: nn.Module, times: Tensor):
        super().__init__()
        self.model, self.times = model, times

    def forward(self) -> Values:
        layer: Any = self.model.layer
        return {suffix: layer.openness_at(suffix, self.times) for _, suffix in layer.places()}


def _stacked_buffers(models: Sequence[nn.Module]) -> Values:
    """The buffers that all networks have, along a leading axis; the networks' own become views of them."""
    each = [dict(model.named_buffers()) for model in models]
    common = [name for name in each[0] if all(name in own for own in each)]
    stacked = {name: torch.stack([own[name] for own in each]) for name in common}
    for row, own in enumerate(each):
        for name in common:
            own[name].data = stacked[name][row]
    return stacked


def structure(model: nn.Module) -> Any:
    """What networks have in common if one call can serve them all: modules, shapes, options, what is frozen."""
    hooked = any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
    if hooked or any(layer.segment for layer in gated_layers(model)):
        return id(model)  # hooks may do anything; segments are for one network at a time
    gates, any_gate = _gate_names(model), {"layer": GatedLSTM}  # gates may differ, and with them the layer's class
    kinds = [(name, type(module), (module.training, *_options(module))) for name, module in model.named_modules()]
    if gates is not None:
        kinds = [(name, any_gate.get(name, kind), options) for name, kind, options in kinds]
    ours = gates or set()
    weights = [(name, one.shape, one.requires_grad) for name, one in model.named_parameters() if name not in ours]
    buffers = [(name, one.shape, one.dtype) for name, one in model.named_buffers() if name not in ours]
    return tuple(kinds), tuple(weights), tuple(buffers)


def gate_structure(model: nn.Module) -> Any:
    """What networks further have in common if one call makes the tables of openness of all."""
    if _gate_names(model) is None:
        return None
    layer: Any = model.layer
    return _known(layer.gate), layer.threshold, [gate.requires_grad for gate in gate_parameters(model)].count(True)


def knows_tables(model: nn.Module) -> bool:
    """Whether a model's tables of openness can be made without calling it."""
    return _gate_names(model) is not None


def _gate_names(model: nn.Module) -> set[str] | None:
    """Names of the gates' values, of a model that calls its gated layer at the times 1, 2, ...; None: of another."""
    if type(model) is not SequenceModel or type(model.layer) not in (GatedLSTM, GLSTM, PLSTM, LSTM):
        return None
    return {f"layer.{name}{suffix}" for name in model.layer.gate.names for _, suffix in model.layer.places()}


def _options(module: nn.Module) -> tuple:
    """Attributes that are neither values nor modules. What cannot be compared is taken to differ."""
    if type(module) in (GatedLSTM, GLSTM, PLSTM, LSTM):
        return tuple(
            getattr(module, name, None)
            for name in ("batch_first", "dropout", "bidirectional", "candidate", "backend", "origin", "unit")
        )
    own = {name: value for name, value in vars(module).items() if name not in OWN_TO_TORCH | NO_OPTIONS}
    return tuple((name, _known(value)) for name, value in sorted(own.items()))


def _known(value: Any) -> Any:
    match value:
        case None | bool() | int() | float() | str() | torch.dtype():
            return value
        case list() | tuple():
            return tuple(map(_known, value))
        case Gate():
            return type(value), tuple((name, _known(one)) for name, one in sorted(value.options().items()))
        case _:
            return id(value)
