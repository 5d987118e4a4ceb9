"""The independently recurrent network (Li, Li, Cook, Zhu and Gao, 2018, Independently Recurrent Neural Network
(IndRNN): Building A Longer and Deeper RNN, arXiv:1803.04831).

Each unit hears its own past only, with one weight u:

    h_n = relu(W x_n + u * h_{n-1} + b)

Units of different layers hear each other. The paper's network for sequential MNIST has six layers of 128 units, with
batch normalisation after each.

Normalisation: here, as in the authors' code, it comes after the activation (`norm="after"`), so the next layer and the
head read a normalised h, and the unit itself the plain one. The paper allows it before or after the activation, and the
authors say that it converges faster after it; `norm="before"` normalises W x_n + b. For MNIST their code has one mean
and one variance for all steps and samples of a batch, as here; the paper has one for each step in its language models
only ("frame-wise"). In evaluation running averages take their place. Padding counts for nothing.

The bound: the paper keeps |u| below 2^(1/T) for sequences of T steps, so that gradients cannot explode. Its authors say
that 1 does as well; so it is here, unless `bound` says otherwise, and 0 is no bound. The paper does not say how u
starts for MNIST. In the code it is uniform between 0 and the bound; in the last layer between 1 / bound and the bound,
because only its last h is read, and it should remember. The code clips u itself before a step. Here a clipped u is
used, and its gradient is 0 where it would push u further out, so that a call changes nothing in place. W starts uniform
within sqrt(6 / 65 D) and b at 0, as in their PyTorch code (the older Theano code has W within 0.001). That code has
also weight decay and dropout; the paper mentions neither for MNIST. Dropout between layers has one mask for all steps.
"""

from math import sqrt
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from glstm.cells.recurrent import Recurrent, State, after_last
from glstm.errors import UserError
from glstm.masks import Keyed, dropout_factors
from glstm.ops.unit_scan import unit_scan

NORMS = ("after", "before", "none")
MOMENTUM, EPSILON = 0.1, 1e-5  # torch's


class IndRNN(Keyed, Recurrent):
    """Its state has the output h, normalised, and `memory`, the h that recurs."""

    state: ClassVar[tuple[str, ...]] = ("h", "memory")
    way: ClassVar[str] = "scan over time"
    bench: ClassVar[dict[str, Any]] = {"units": 128, "layers": 6}  # depth is its point
    takes_lengths: ClassVar[bool] = True
    # The paper divides the rate by 10 after each 600000 steps, which are 320 epochs of 60000 images; this is the first
    # stage. Batches and clipping, there of each number at 10, are of the code.
    recipe: ClassVar[dict[str, Any]] = {
        "units": 128, "layers": 6, "optimizer": "adam", "lr": 2e-4, "batch": 32, "epochs": 320, "clip": 10.0,
        "options": {"bound": 2 ** (1 / 784)},
    }  # fmt: skip

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        *,
        norm: str = "after",
        bound: float = 1.0,
    ):
        if norm not in NORMS:
            raise UserError(f"norm must be one of {', '.join(NORMS)}, not {norm!r:.50}")
        if isinstance(bound, bool) or not isinstance(bound, int | float) or not 0 <= bound < float("inf"):
            raise UserError(f"bound is the largest |u|, such as 1, or 0 for none, not {bound!r:.50}")
        self.norm, self.bound = norm, float(bound)
        super().__init__(input_size, hidden_size, num_layers, bias, batch_first, dropout)
        high = self.bound or 1.0
        last: Any = self.layers[-1]
        nn.init.uniform_(last.weight_hh, min(high, 1 / high), high)

    def make_layer(self, inputs: int) -> nn.Module:
        layer: Any = nn.Module()
        reach = sqrt(6 / (65 * inputs))
        layer.weight_ih = nn.Parameter(torch.empty(self.hidden_size, inputs).uniform_(-reach, reach))
        layer.weight_hh = nn.Parameter(torch.empty(self.hidden_size).uniform_(0, self.bound or 1.0))
        layer.bias = nn.Parameter(torch.zeros(self.hidden_size)) if self.bias else None
        layer.norm = None if self.norm == "none" else BatchNorm(self.hidden_size)
        return layer

    def run_layer(self, layer: Any, x: Tensor, state: State, valid: Tensor | None) -> tuple[Tensor, State]:
        before, memory = state
        drive = linear(x, layer.weight_ih, layer.bias)
        if self.norm == "before":
            drive = layer.norm(drive, valid)
        u = _Bounded.apply(layer.weight_hh, self.bound) if self.bound else layer.weight_hh
        h = unit_scan(u, drive, memory, "relu")
        output = layer.norm(h, valid) if self.norm == "after" else h
        return output, (after_last(output, before, valid), after_last(h, memory, valid))

    def drop(self, x: Tensor, number: int) -> Tensor:
        if not self.training:
            return x
        return x * dropout_factors(self, x.shape[1], x.shape[2], self.dropout, number, x)

    def count_ops(self, steps: int, updates: float = 1.0) -> float:
        """A sum over inputs, u * h, the relu as a nonlinear function, and a scale and a shift of the normalisation."""
        inputs = sum(self.widths)
        own = 7 + (0 if self.norm == "none" else 2)
        return steps * self.hidden_size * (2 * inputs + own * self.num_layers)


class BatchNorm(nn.Module):
    """Of x (T, B, H), with one mean and variance of a unit for all steps and samples that are not padding."""

    running_mean: Tensor
    running_var: Tensor

    def __init__(self, units: int):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(units)), nn.Parameter(torch.zeros(units))
        self.register_buffer("running_mean", torch.zeros(units))
        self.register_buffer("running_var", torch.ones(units))

    def forward(self, x: Tensor, valid: Tensor | None) -> Tensor:
        mean, var = self.running_mean, self.running_var
        if self.training and len(x):
            if x.shape[0] * x.shape[1] < 2:
                raise UserError("batch normalisation trains on more than one step of one sample, which has no variance")
            var, mean, count = _statistics(x, valid)
            with torch.no_grad():  # torch.vmap would do lerp_ network by network
                unbiased = var * (count / (count - 1).clamp(min=1))
                for running, new in ((self.running_mean, mean), (self.running_var, unbiased)):
                    running.copy_(torch.lerp(running, new.to(running), MOMENTUM))
        return _normalized(x, mean, var, self.weight, self.bias)


def _statistics(x: Tensor, valid: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """Variance and mean of each unit, and of how many numbers they are."""
    if valid is None:
        return *torch.var_mean(x, (0, 1), correction=0), x.new_full((), x.shape[0] * x.shape[1])
    valid = valid.unsqueeze(-1)
    count = valid.sum().clamp(min=1).to(x.dtype)
    mean = torch.where(valid, x, 0).sum((0, 1)) / count
    return torch.where(valid, x - mean, 0).square().sum((0, 1)) / count, mean, count


def _normalized(x: Tensor, mean: Tensor, var: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return (x - mean) * (weight * torch.rsqrt(var + EPSILON)) + bias


class _Bounded(torch.autograd.Function):
    """Values within [-bound, bound]. The gradient is 0 where a value is at the bound or beyond, and would go on."""

    generate_vmap_rule = True

    @staticmethod
    def forward(*arguments: Any) -> Tensor:
        values, bound = arguments
        return values.clamp(-bound, bound)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        values, ctx.bound = inputs
        ctx.save_for_backward(values)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (slopes,), (values,) = gradients, ctx.saved_tensors
        outwards = (values.abs() >= ctx.bound) & (slopes * values < 0)  # an update goes against the gradient
        return torch.where(outwards, 0, slopes), None
