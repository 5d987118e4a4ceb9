"""The batch-normalised LSTM (Cooijmans, Ballas, Laurent, Gulcehre and Courville, 2017, Recurrent Batch Normalization,
arXiv:1603.09025).

An LSTM in which three values are normalised over the samples of a batch, at every step by the statistics of that step:

    i, f, g, o = BN(W x_n; gamma_x) + BN(R h_{n-1}; gamma_h) + b
    c_n = sigmoid(f) c_{n-1} + sigmoid(i) tanh(g)
    h_n = sigmoid(o) tanh(BN(c_n; gamma_c) + beta_c)

    BN(v; gamma) = gamma (v - mean) / sqrt(variance + 1e-5)

In training the mean and the variance are those of the batch, and gradients go through them. In evaluation they are
averages over training, for each step up to t_max; later steps, and steps that training never reached, use the last ones
there are. A gamma starts at 0.1: the paper shows that larger ones saturate tanh, and gradients vanish.

On sequential MNIST all images begin with the same black pixels, so the variance is 0 and gradients would explode. The
paper adds noise to the first h; `noise` is its standard deviation (0.1 in the authors' code; none for permuted MNIST).
Here it is added in training only, in the authors' code in evaluation, too.

Start, as in the authors' code: W orthogonal, R the identity for g and orthogonal for the three others together, b 1 for
f and 0 else. The paper says that R is the identity, which it cannot be as a whole, and nothing about b. The recipe is
the paper's; batch and epochs are those of the authors' scripts. Their last code differs from the paper in RMSProp's
decay: 0.5, not 0.9. Two differences here: the paper also learns the first h and c, which are zeros here as in every
other cell; and the authors' averages begin at mean 0 and variance 1, these with the first batch.
"""

from collections.abc import Iterator
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from glstm.cells.fusing import fused
from glstm.cells.recurrent import Recurrent, State, with_product
from glstm.errors import UserError
from glstm.masks import Keyed, number_elements, random_key, uniform
from glstm.ops.gpu import bn_step

EPSILON = 1e-5
FIRST_GAMMA = 0.1
ENOUGH = 2  # samples of a batch: the variance of fewer means nothing and is not kept


class BNLSTM(Keyed, Recurrent):
    """Its state has the number of steps that each sample has seen, so that a sequence may come in pieces.

    `momentum` is the weight of a new batch in the averages, after the first batches, which all count the same. In
    training all samples of a batch are taken to be at the same step.
    """

    state: ClassVar[tuple[str, ...]] = ("h", "c", "steps")
    way: ClassVar[str] = "a kernel of its own for each step, in a captured graph"
    takes_lengths: ClassVar[bool] = True  # it must not enter the statistics
    recipe: ClassVar[dict[str, Any]] = {
        "units": 100, "optimizer": "rmsprop", "lr": 1e-3, "decay": 0.9, "clip": 1.0, "batch": 100, "epochs": 200,
        "options": {"t_max": 784, "noise": 0.1},
    }  # fmt: skip
    counters: ClassVar[tuple[str, ...]] = ("steps",)

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        *,
        t_max: int = 1000,
        momentum: float = 0.01,
        noise: float = 0.0,
    ):
        if not isinstance(t_max, int) or isinstance(t_max, bool) or t_max < 1:
            raise UserError(f"t_max is a number of steps, at least 1, not {t_max!r:.50}")
        if not isinstance(momentum, int | float) or not 0 < momentum <= 1:
            raise UserError(f"momentum is the weight of a new batch, above 0 and at most 1, not {momentum!r:.50}")
        if not isinstance(noise, int | float) or not 0 <= noise < float("inf"):
            raise UserError(f"noise is a standard deviation, 0 or more, not {noise!r:.50}")
        self.t_max, self.momentum, self.noise = t_max, float(momentum), float(noise)
        super().__init__(input_size, hidden_size, num_layers, bias, batch_first, dropout)

    def make_layer(self, inputs: int) -> nn.Module:
        units = self.hidden_size
        layer: Any = nn.Module()
        layer.weight_ih = nn.Parameter(nn.init.orthogonal_(torch.empty(inputs, 4 * units)).T.contiguous())
        i, f, o = nn.init.orthogonal_(torch.empty(units, 3 * units)).T.chunk(3)
        layer.weight_hh = nn.Parameter(torch.cat((i, f, torch.eye(units), o)))
        layer.gamma_ih = nn.Parameter(torch.full((4 * units,), FIRST_GAMMA))
        layer.gamma_hh = nn.Parameter(torch.full((4 * units,), FIRST_GAMMA))
        layer.gamma_c = nn.Parameter(torch.full((units,), FIRST_GAMMA))
        layer.beta_c = nn.Parameter(torch.zeros(units))
        forget = torch.zeros(4, units)
        forget[1] = 1.0
        layer.bias = nn.Parameter(forget.flatten()) if self.bias else None
        # Of W x, R h and c, side by side; and what share of how many batches they come from.
        layer.register_buffer("mean", torch.zeros(self.t_max, 9 * units))
        layer.register_buffer("variance", torch.ones(self.t_max, 9 * units))
        layer.register_buffer("batches", torch.zeros(self.t_max))
        return layer

    def width_of(self, part: str) -> int:
        return 1 if part == "steps" else self.hidden_size

    def first_state(self, part: str, batch: int, like: Tensor) -> Tensor:
        """Zeros; in training with noise on h, the same in all layers."""
        zeros = super().first_state(part, batch, like)
        if part != "h" or not (self.training and self.noise):
            return zeros
        key = random_key(like.device) if self.key is None else self.key
        drawn = uniform(key, number_elements(zeros.numel(), like.device))
        return self.noise * torch.special.ndtri(drawn).to(like.dtype).view(zeros.shape)

    def run_layer(self, layer: Any, x: Tensor, state: State, valid: Tensor | None) -> tuple[Tensor, State]:
        h, c, steps = state
        if not len(x):
            return x.new_empty(0, *h.shape), state
        if self.training and x.shape[1] < ENOUGH:
            raise UserError(
                "BN-LSTM trains on at least 2 samples at a time, and this batch has 1, which has no variance; if it is "
                "the last batch of an epoch, choose another batch size"
            )
        run = self._by_batch if self.training else self._by_averages
        output, (h, c) = run(layer, x, (h, c), steps, valid)
        return output, (h, c, steps + (len(x) if valid is None else valid.sum(0).unsqueeze(-1)))

    def _by_batch(
        self, layer: Any, x: Tensor, state: State, steps: Tensor, valid: Tensor | None
    ) -> tuple[Tensor, State]:
        if valid is None:
            counted, counts = x.new_ones(()), x.new_full((len(x),), x.shape[1])
        else:
            counted, counts = valid.to(x.dtype), valid.sum(1).to(x.dtype)
            x = torch.where(valid.unsqueeze(-1), x, 0)  # whatever the padding is, 0 times it is 0
        share = (counted / counts.clamp(min=1).unsqueeze(1)).expand(x.shape[:2])  # of a sample in its step's mean
        drive = linear(x, layer.weight_ih).to(x.dtype).mT.contiguous()
        drive, *of_inputs = _inputs(drive, share, layer.gamma_ih, _bias(layer))
        scales = torch.stack((*layer.gamma_hh.chunk(4), layer.gamma_c, layer.beta_c))
        given = drive, layer.weight_hh, scales, state
        if valid is None and bn_step.usable(x, *given[:3], *state):
            made, found = _by_kernels(*given)
        else:
            made, found = _by_steps(*given, share, valid)
        of_steps = found.flatten(2).unbind(1)  # means and variances, (T, 5H) each
        mean, variance = (torch.cat(pair, 1) for pair in zip(of_inputs, of_steps, strict=True))
        self._keep(layer, mean, variance, steps, counts / x.shape[1], counts >= ENOUGH)
        return made

    @torch.no_grad()
    def _keep(self, layer: Any, mean: Tensor, variance: Tensor, steps: Tensor, share: Tensor, enough: Tensor) -> None:
        """Add the statistics (T, 9H) of a batch to the averages. `share` (T,): of the samples that are still there.

        Without a look at numbers on the device, and without adding in any order: each row asks what it gets.
        """
        number = torch.arange(len(mean), device=mean.device)
        rows, last = torch.arange(self.t_max, device=mean.device), self.t_max - 1
        share, first = torch.where(enough, share, 0), steps.detach().max().long()
        place = rows - first  # in this batch, of the step that a row is of
        here = (place >= 0) & (place < len(mean)) & (rows < last)
        place = place.clamp(0, len(mean) - 1)
        late = torch.where(number + first >= last, share, 0)  # all of these steps go into the last row
        weight = torch.where(rows == last, late.amax(), torch.where(here, share[place], 0))
        layer.batches.add_(weight)
        part = torch.maximum(self.momentum * weight, weight / layer.batches.clamp(min=1e-6)).unsqueeze(1)
        for average, now in ((layer.mean, mean.detach()), (layer.variance, variance.detach())):
            of_late = (late.unsqueeze(1) * now).sum(0) / late.sum().clamp(min=1e-6)
            fresh = torch.where((rows == last).unsqueeze(1), of_late, now[place])
            average.copy_(torch.lerp(average, fresh, part))  # not in place: torch.vmap does that network by network

    def _by_averages(
        self, layer: Any, x: Tensor, state: State, steps: Tensor, valid: Tensor | None
    ) -> tuple[Tensor, State]:
        last = ((layer.batches > 0).sum() - 1).clamp(min=0)
        rows = (steps.detach().T.long() + torch.arange(len(x), device=x.device).unsqueeze(1)).minimum(last)  # (T, B)
        gammas = torch.cat((layer.gamma_ih, layer.gamma_hh, layer.gamma_c))
        drive, bias = linear(x, layer.weight_ih).to(x.dtype), _bias(layer)
        each: Iterator = zip(drive.unbind(), rows.unbind(), strict=True)

        def step(sums: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
            drive_n, row = next(each)
            return _known_step(sums, c, drive_n, layer.mean[row], layer.variance[row], gammas, bias, layer.beta_c)

        return with_product(step, _nothing(drive), layer.weight_hh, state, valid)

    def count_ops(self, steps: int, updates: float = 1.0) -> float:
        """In evaluation: an LSTM's, and in each unit a product for both parts of four gates, and BN of c."""
        return self.lstm_ops(steps) + steps * self.num_layers * self.hidden_size * (8 + 2)


def _bias(layer: Any) -> Tensor:
    return torch.zeros_like(layer.gamma_ih) if layer.bias is None else layer.bias


def _nothing(like: Tensor) -> Tensor:
    """Zeros of that shape that take no memory: R h is normalised alone, before W x is added."""
    return like.new_zeros(()).expand(like.shape)


def _standard(values: Tensor, share: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Values (..., B) with mean 0 and variance 1 over the samples, which count by their share; and both of before."""
    mean = (values * share).sum(-1, keepdim=True)
    centred = values - mean
    variance = (centred * centred * share).sum(-1, keepdim=True)
    return centred * torch.rsqrt(variance + EPSILON), mean.squeeze(-1), variance.squeeze(-1)


@fused
def _inputs(drive: Tensor, share: Tensor, gamma: Tensor, bias: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """BN(W x) + b of all steps (T, 4H, B), and the means and variances (T, 4H)."""
    values, mean, variance = _standard(drive, share.unsqueeze(1))
    return gamma.unsqueeze(-1) * values + bias.unsqueeze(-1), mean.detach(), variance.detach()


def _by_kernels(drive: Tensor, weight: Tensor, scales: Tensor, state: State) -> tuple[tuple[Tensor, State], Tensor]:
    """Output and final state, and the means and variances (T, 2, 5, H) of R h and c; of a batch without padding."""
    h, c = state
    h, c, found = bn_step.bn_steps(drive, weight, scales, h.T, c.T, EPSILON)
    output = h.mT.contiguous()
    return (output, (output[-1], c.T)), found


def _by_steps(
    drive: Tensor, weight: Tensor, scales: Tensor, state: State, share: Tensor, valid: Tensor | None
) -> tuple[tuple[Tensor, State], Tensor]:
    """The same in torch's operators, for every batch."""
    # A row for each step: their gradients are then added once after the loop, not at every step.
    each = zip(drive.unbind(), share.unbind(), scales.expand(len(drive), -1, -1).unbind(), strict=True)
    found: list[Tensor] = []

    def step(sums: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        h, c, statistics = _step(sums, c, *next(each))
        found.append(statistics)
        return h, c

    state = tuple(part.T.contiguous().T for part in state)
    made = with_product(step, _nothing(drive.mT), weight, state, valid, samples_last=True)
    return made, torch.stack(found)


@fused
def _step(sums: Tensor, c: Tensor, drive: Tensor, share: Tensor, scales: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """h, c, and the means and variances (2, 5, H) of R h and c. Drive (4H, B), share (B,), scales (6, H).

    Gate by gate, with the samples next to each other in memory: so every sum over them has the same shape, and torch's
    compiler needs one kernel for all, as for a layer norm.
    """
    *gammas, gamma_c, beta_c = scales.unsqueeze(-1).unbind()
    parts = [_standard(part.to(c.dtype), share) for part in sums.T.chunk(4)]
    i, f, g, o = (
        gamma * values + given for gamma, (values, _, _), given in zip(gammas, parts, drive.chunk(4), strict=True)
    )
    c = torch.sigmoid(f) * c.T + torch.sigmoid(i) * torch.tanh(g)
    of_c = _standard(c, share)
    h = torch.sigmoid(o) * torch.tanh(gamma_c * of_c[0] + beta_c)
    means, variances = zip(*((mean.detach(), variance.detach()) for _, mean, variance in (*parts, of_c)), strict=True)
    return h.T, c.T, torch.stack((torch.stack(means), torch.stack(variances)))


@fused
def _known_step(
    sums: Tensor, c: Tensor, drive: Tensor, mean: Tensor, variance: Tensor, gammas: Tensor, bias: Tensor, beta: Tensor
) -> tuple[Tensor, Tensor]:
    """h and c, with statistics (B, 9H) that are known before."""
    units = c.shape[-1]
    scale = gammas * torch.rsqrt(variance + EPSILON)
    sizes = [4 * units, 4 * units, units]
    (of_x, of_h, of_c), (x_mean, h_mean, c_mean) = scale.split(sizes, -1), mean.split(sizes, -1)
    i, f, g, o = ((drive - x_mean) * of_x + (sums - h_mean) * of_h + bias).chunk(4, -1)
    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh((c - c_mean) * of_c + beta), c
