"""The networks of a population: made, each from its seed, and checked against its settings."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from glstm.errors import UserError
from glstm.gates import Gaussian, Periodic
from glstm.layers import gated_layers
from glstm.training.objective import skips
from glstm.training.settings import Settings
from glstm.training.weight_drop import recurrent_weights

# A network, or something that makes one. It draws from torch's generator, which is set to the member's seed before.
Model = nn.Module | Callable[[], nn.Module]


def make_models(
    makers: Sequence[Model], settings: Sequence[Settings], device: torch.device, dtype: torch.dtype
) -> list[nn.Module]:
    if len(makers) != len(settings):
        raise UserError(f"each network needs settings of its own, but there are {len(makers)} and {len(settings)}")
    found: list[nn.Module] = []
    taken: set[int] = set()
    for maker, setting in zip(makers, settings, strict=True):
        if not isinstance(maker, nn.Module):
            torch.manual_seed(setting.seed)
        model = maker if isinstance(maker, nn.Module) else maker()
        if not isinstance(model, nn.Module) or not any(True for _ in model.parameters()):
            raise UserError(f"a model to train is a torch module with parameters, not {type(model).__name__}")
        if any(id(part) in taken for part in (*model.parameters(), *model.buffers())):
            raise UserError("two members cannot share a network or a part of one: give a function that makes new ones")
        found.append(model.to(device, dtype))
        taken |= {id(part) for part in (*found[-1].parameters(), *found[-1].buffers())}
    return found


def check_fits(model: nn.Module, settings: Settings) -> None:
    """Settings that are about gates, gated layers or recurrent weights need a network with them."""
    layers = gated_layers(model)
    if settings.curriculum and not any(isinstance(layer.gate, Gaussian | Periodic) for layer in layers):
        raise UserError("a temporal curriculum widens Gaussian gates, and this network has none: leave it out")
    if settings.budget and not skips(model) and not any(layer.gate.names for layer in layers):
        raise UserError(
            "a budget charges for openness, and this network has no gates that could close, nor does it skip steps: "
            "leave the budget out"
        )
    if settings.sparsity and not layers:
        raise UserError(
            "sparsity is of the weights of gated layers, such as the cells glstm and lstm, and this network has none: "
            "leave it out"
        )
    if settings.weight_drop and not recurrent_weights(model):
        raise UserError(
            "weight_drop is of weights from state to state, matrices named weight_hh, and this network has none: leave "
            "it out"
        )
    if not settings.trains_gates:
        for layer in layers:
            layer.freeze_gate()


def is_cudnns(module: nn.Module, like: Tensor) -> bool:
    """Whether cuDNN computes it on a GPU. It rearranges its weights at every call, which a capture does not allow.
    Layers derived from torch's that an engine computes have `on_engine`, which says so for such values."""
    on_engine = getattr(module, "on_engine", None)
    return isinstance(module, nn.RNNBase) and not (on_engine and on_engine(like))
