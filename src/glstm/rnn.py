"""The Gaussian-gated plain RNN of the paper's Appendix A, in which its gradients are easiest to see."""

import torch
from torch import Tensor, nn

from glstm.errors import UserError
from glstm.gates import Gaussian, Values
from glstm.ops import onnx_export
from glstm.ops.reference import mix


class GRNN(nn.Module):
    """h_n = k_n tanh(W_x x_n + W_h h_{n-1}) + (1 - k_n) h_{n-1}: one layer, x (T, B, D), no bias."""

    def __init__(self, input_size: int, hidden_size: int, *, mu: Values = (1, 784), sigma: Values = 250.0, dtype=None):
        super().__init__()
        self.cell = nn.RNNCell(input_size, hidden_size, bias=False, dtype=dtype)
        self.gate = Gaussian(mu, sigma)
        self.mu = nn.Parameter(self.gate.draw("mu", hidden_size).to(dtype))
        self.sigma = nn.Parameter(self.gate.draw("sigma", hidden_size).to(dtype))

    def forward(self, x: Tensor, h: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """All h (T, B, H) and the last one (B, H)."""
        if onnx_export.exporting():
            raise UserError("GRNN is a loop in Python, whose number of steps an export would fix: export a GLSTM")
        times = torch.arange(1, len(x) + 1, dtype=torch.float32, device=x.device)
        k = self.gate.openness(times, {"mu": self.mu, "sigma": self.sigma}, self.training).to(x.dtype)
        h = x.new_zeros(x.shape[1], self.cell.hidden_size) if h is None else h
        outputs = []
        for n in range(len(x)):
            h = mix(k[n], self.cell(x[n], h), h)
            outputs.append(h)
        return torch.stack(outputs) if outputs else h.new_empty(0, *h.shape), h


def recurrent_gradient(x: Tensor, k: Tensor, w_x: Tensor, w_h: Tensor) -> Tensor:
    """dh_N/dW_h of one unit from h_0 = 0; x, k (T,), all else scalar:

    sum_n k_n f'_n h_{n-1} prod_{s>n} (k_s W_h f'_s + 1 - k_s)

    The paper's equation has a further term, prod_n (k_n W_h f'_n + 1 - k_n), from taking dh~_0/dW_h = 1. But
    h_0 = 0 does not depend on W_h, so that derivative is 0.
    """
    h, total = torch.zeros_like(w_h), torch.zeros_like(w_h)
    for x_n, k_n in zip(x, k, strict=True):
        h_new = torch.tanh(w_x * x_n + w_h * h)
        slope = 1 - h_new**2
        total = total * (k_n * w_h * slope + 1 - k_n) + k_n * slope * h
        h = k_n * h_new + (1 - k_n) * h
    return total
