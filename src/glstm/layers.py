"""GLSTM, PLSTM and LSTM: drop-in for `torch.nn.LSTM`, with a gate that opens each unit only at its moments."""

from collections.abc import Iterator

from torch import Tensor, nn

from glstm.gated import GatedLSTM
from glstm.gates import Gaussian, Open, Phased, Values


class GLSTM(GatedLSTM):
    """The Gaussian-gated LSTM: each unit opens once, around its learned moment mu, for about its learned width sigma.

    Everything else is as in `GatedLSTM`: its other arguments, its call and its methods.

    Args:
        input_size: D, and the arguments after it up to `dtype`: as for `torch.nn.LSTM`.
        mu: A number, a (low, high) range to draw from, or H values, in the unit of the times. None: drawn over all
            times of the first call, as in the paper.
        sigma: As mu. None: 0.32 of the span of the times of the first call. `fit_times` does both by hand.

    Examples:
        ```python
        import torch

        from glstm import GLSTM

        layer = GLSTM(3, 16, num_layers=2, threshold=0.01)
        x = torch.randn(100, 8, 3)  # (T, B, D)
        output, (h_n, c_n) = layer(x, times=torch.linspace(0, 2.5, 100))
        ```
    """

    kept: list[Tensor] | None = None  # of a pruned layer: which units it has, for each layer and direction

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        device=None,
        dtype=None,
        *,
        mu: Values | None = None,
        sigma: Values | None = None,
        threshold: float = 0.0,
        candidate: str = "tanh",
        backend: str = "auto",
        origin: float = 0.0,
        unit: float = 1.0,
    ):
        super().__init__(
            input_size,
            hidden_size,
            num_layers,
            bias,
            batch_first,
            dropout,
            bidirectional,
            proj_size,
            device,
            dtype,
            gate=Gaussian(mu, sigma),
            threshold=threshold,
            candidate=candidate,
            backend=backend,
            origin=origin,
            unit=unit,
        )


class PLSTM(GatedLSTM):
    """The Phased LSTM: each unit opens for the share r of every period tau, shifted by s.

    Everything else is as in `GatedLSTM`: its other arguments, its call and its methods.

    Args:
        input_size: D, and the arguments after it up to `dtype`: as for `torch.nn.LSTM`.
        tau: The period: a number, a (low, high) range to draw from, or H values, in the unit of the times.
        s: Where in time a period begins.
        r: The share of a period in which the unit is open, between 0 and 1.
        alpha: The leak of a closed gate, in training only.
        log_tau: Draw a range of tau evenly in its logarithm.
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        device=None,
        dtype=None,
        *,
        tau: Values = 1000.0,
        s: Values = (250.0, 650.0),
        r: Values = 0.1,
        alpha: float = 1e-3,
        log_tau: bool = False,
        threshold: float = 0.0,
        candidate: str = "tanh",
        backend: str = "auto",
        origin: float = 0.0,
        unit: float = 1.0,
    ):
        super().__init__(
            input_size,
            hidden_size,
            num_layers,
            bias,
            batch_first,
            dropout,
            bidirectional,
            proj_size,
            device,
            dtype,
            gate=Phased(tau, s, r, alpha, log_tau),
            threshold=threshold,
            candidate=candidate,
            backend=backend,
            origin=origin,
            unit=unit,
        )


class LSTM(GatedLSTM):
    """The plain LSTM on the same operator: every unit always open. Equal to `torch.nn.LSTM`.

    Everything else is as in `GatedLSTM`: its other arguments, its call and its methods.
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        device=None,
        dtype=None,
        *,
        candidate: str = "tanh",
        backend: str = "auto",
    ):
        super().__init__(
            input_size,
            hidden_size,
            num_layers,
            bias,
            batch_first,
            dropout,
            bidirectional,
            proj_size,
            device,
            dtype,
            gate=Open(),
            candidate=candidate,
            backend=backend,
        )


def gated_layers(model: nn.Module) -> list[GatedLSTM]:
    """Every gated layer inside the model, in the order of its modules."""
    return [module for module in model.modules() if isinstance(module, GatedLSTM)]


def gate_parameters(model: nn.Module) -> Iterator[nn.Parameter]:
    """The gates' own parameters (mu and sigma, say): usually trained at a rate of their own."""
    for layer in gated_layers(model):
        yield from layer.gate_parameters()


def weight_parameters(model: nn.Module) -> Iterator[nn.Parameter]:
    """Every parameter of the model that is not a gate's."""
    gates = {id(parameter) for parameter in gate_parameters(model)}
    return (parameter for parameter in model.parameters() if id(parameter) not in gates)
