"""The temporal curriculum: start with narrow gates and open them, epoch by epoch, until an LSTM is left."""

import torch
from torch import nn

from glstm.gates import Gaussian, Periodic
from glstm.layers import gated_layers


class TemporalCurriculum:
    """Each `step()`, once an epoch, multiplies the lowest share rho of every layer's sigma by (1 + alpha).

    The gate's values are frozen: the curriculum changes them, not the optimiser. Moments and periods stay as they are,
    since a Periodic gate whose sigma is far above its period is always open, too. `open()` ends the curriculum;
    `glstm.to_lstm(layer)` then gives the LSTM.

    Args:
        model: A model with Gaussian or periodic gates, or such a layer.
        alpha: By which share a sigma grows.
        rho: The share of units whose sigma grows in a step: those with the smallest.
    """

    def __init__(self, model: nn.Module, alpha: float = 1 / 6, rho: float = 0.15):
        if not alpha > 0:
            raise ValueError(f"alpha must be above 0, not {alpha!r}")
        if not 0 < rho <= 1:
            raise ValueError(f"rho is a share of the units, above 0 and at most 1, not {rho!r}")
        self.alpha, self.rho = alpha, rho
        self.layers = [layer for layer in gated_layers(model) if isinstance(layer.gate, Gaussian | Periodic)]
        if not self.layers:
            raise ValueError("a temporal curriculum widens Gaussian gates, but the model has none")
        for layer in self.layers:
            layer.freeze_gate()

    @torch.no_grad()
    def step(self) -> None:
        """Widen the narrowest gates; call it once an epoch."""
        for sigma in self._sigmas():
            count = round(self.rho * sigma.numel())
            lowest = sigma.abs().argsort(stable=True)[:count]  # ties in index order
            sigma[lowest] *= 1 + self.alpha

    def open(self, sigma: float = 5000.0) -> None:
        """Open every gate wide."""
        for layer in self.layers:
            layer.set_gate(sigma=sigma)

    def _sigmas(self):
        for layer in self.layers:
            for name, parameter in layer.named_parameters():
                if name.startswith("sigma_l"):
                    yield parameter
