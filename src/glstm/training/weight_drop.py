"""Weight drop: each update leaves out some of the weights from state to state, drawn at random.

DropConnect (Wan et al., 2013) on the recurrent weights, as in Merity, Keskar and Socher, 2018, Regularizing and
Optimizing LSTM Language Models, arXiv:1708.02182. One draw holds for all samples and all steps of an update, so the
engines compute what they always do, with other numbers. Those that are kept are divided by the share that is kept.
Evaluation, and what is saved, have all weights as they are.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from glstm import masks
from glstm.training.settings import Settings
from glstm.training.stack import Stack

PART = -1  # no part of a network has this number, so nothing else draws the same
Spans = tuple[tuple[int, int], ...]  # from where to where in a network's row its recurrent weights are


def recurrent_weights(model: nn.Module) -> list[str]:
    """Names of the matrices from state to state, which cells name as torch's layers do."""
    own = ((name, parameter.dim()) for name, parameter in model.named_parameters())
    return [name for name, dims in own if name.rpartition(".")[2].startswith("weight_hh") and dims == 2]


class WeightDrop:
    """Of networks that train together."""

    def __init__(self, settings: Sequence[Settings], stack: Stack):
        self.stack = stack
        self.factors = torch.ones_like(stack.flat.detach())
        parts = [round(own.weight_drop * masks.PARTS) for own in settings]  # so many are drawn, so by these is scaled
        self.least = masks.least_kept(parts, self.factors.device)
        self.scales = self.factors.new_tensor([masks.PARTS / (masks.PARTS - left_out) for left_out in parts])
        alike: dict[Spans, list[int]] = {}  # what is drawn for several networks at once
        for row, left_out in enumerate(parts):
            if left_out:
                alike.setdefault(self._spans(row), []).append(row)
        self.groups = [(spans, torch.tensor(rows, device=self.factors.device)) for spans, rows in alike.items()]

    def _spans(self, row: int) -> Spans:
        places = torch.arange(self.factors.shape[1])
        parts = self.stack.layouts[row].parts(places, self.stack.weights)
        names = recurrent_weights(self.stack.models[row])
        return tuple((int(parts[name][0]), int(parts[name][-1]) + 1) for name in names)

    def thinned(self, keys: Tensor) -> Tensor:
        """All values (M, P) as an update uses them, differentiable; `keys` (M,): a random number for each network."""
        keys = masks.key_of_part(keys, PART)
        for spans, rows in self.groups:
            count = sum(stop - start for start, stop in spans)
            kept = masks.keep_rows(keys[rows], count, self.least[rows])
            drawn = (kept * self.scales[rows, None]).split([stop - start for start, stop in spans], 1)
            for (start, stop), part in zip(spans, drawn, strict=True):
                self.factors[rows, start:stop] = part
        return self.stack.flat * self.factors
