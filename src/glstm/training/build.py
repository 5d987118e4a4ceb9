"""From a recipe to the things it names: task and network."""

from pathlib import Path

import torch

from glstm import init
from glstm.data import Task, load_task
from glstm.errors import UserError
from glstm.gated import GatedLSTM
from glstm.layers import GLSTM, LSTM, PLSTM
from glstm.models import SequenceModel, deep_head, linear_head
from glstm.training.recipe import Recipe


def available_device(name: str) -> str:
    """The device called `name`, if it is there; 'auto' is CUDA where there is one."""
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cuda" and not torch.cuda.is_available():
        raise UserError("device cuda was asked for, but torch sees no CUDA device here; use --device cpu")
    if name == "mps" and not torch.backends.mps.is_available():
        raise UserError("device mps was asked for, but torch sees no Apple GPU here; use --device cpu")
    return name


def build_task(recipe: Recipe, folder: Path | str | None = None, device: torch.device | str = "cpu") -> Task:
    sizes = {"train_size": recipe.train_size, "test_size": recipe.test_size}
    return load_task(recipe.task, steps=recipe.steps, folder=folder, shift=recipe.shift, device=device, **sizes)


def build_model(recipe: Recipe, inputs: int, outputs: int) -> SequenceModel:
    """The network with fresh weights from torch's current random state."""
    layer = _layer(recipe, inputs)
    match recipe.init:
        case "orthogonal":
            init.orthogonal_(layer)
        case "xavier":
            init.xavier_(layer)
    if recipe.chrono is not None:
        init.chrono_(layer, recipe.chrono)
    else:
        init.forget_bias_(layer, recipe.forget_bias)
    head = deep_head if recipe.head == "deep" else linear_head
    layer.segment = recipe.segment
    model = SequenceModel(layer, head(recipe.units, outputs))
    if recipe.gate_lr == 0 or recipe.curriculum:
        layer.freeze_gate()
    return model


def _layer(recipe: Recipe, inputs: int) -> GatedLSTM:
    shape = (inputs, recipe.units, recipe.layers)
    match recipe.cell:
        case "glstm":
            return GLSTM(
                *shape, mu=recipe.mu, sigma=recipe.sigma, threshold=recipe.threshold, candidate=recipe.candidate
            )
        case "plstm":
            return PLSTM(
                *shape, tau=recipe.tau, s=recipe.s, r=recipe.r, threshold=recipe.threshold, candidate=recipe.candidate
            )
        case _:
            return LSTM(*shape, candidate=recipe.candidate)
