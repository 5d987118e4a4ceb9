"""Pruning by magnitude: the smallest weights are set to 0 and stay 0, more of them from epoch to epoch.

As in Zhu and Gupta, 2017, To prune, or not to prune, arXiv:1710.01878: the share of weights that are 0 rises quickly at
first, while there are many that do not matter, and slowly at the end (`Settings.sparsity_in`); then the network trains
on with what is left. Of a gated layer, weight_ih and weight_hh are pruned together, each layer and direction by itself;
biases, gates and the head stay.
"""

from collections.abc import Container, Sequence

import torch
from torch import Tensor, nn

from glstm.gated import GatedLSTM
from glstm.training.settings import Settings
from glstm.training.stack import Stack


def pruned_together(model: nn.Module) -> list[list[str]]:
    """Names of the weights that are pruned, those that are pruned together in a list."""
    return [
        [f"{prefix}.{name}{suffix}".lstrip(".") for name in ("weight_ih", "weight_hh")]
        for prefix, layer in model.named_modules()
        if isinstance(layer, GatedLSTM)
        for _, suffix in layer.places()
    ]


class Pruning:
    """Which values of networks that train together are left: `kept` (M, P), 1, or 0 for those that are 0 and stay so.

    It changes between epochs only, and in place, so a step can be a CUDA graph.
    """

    def __init__(self, settings: Sequence[Settings], stack: Stack):
        self.settings, self.stack = settings, stack
        self.kept = torch.ones_like(stack.flat.detach())
        values = stack.flat.detach()
        self._kernels = [self._views(row, values) for row in range(len(settings))]

    def _views(self, row: int, values: Tensor) -> list[list[tuple[Tensor, Tensor]]]:
        """Of a network's kernels: the weights, and which are kept."""
        layout, gates_at = self.stack.layouts[row], self.stack.weights
        own, kept = (layout.parts(rows[row], gates_at) for rows in (values, self.kept))
        together = pruned_together(self.stack.models[row]) if self.settings[row].sparsity else []
        return [[(own[name], kept[name]) for name in names] for names in together]

    @torch.no_grad()
    def move(self, epoch: int, done: Container[int]) -> None:
        """Prune as much as this epoch asks for; networks that are done stay as they are."""
        for row, (setting, own) in enumerate(zip(self.settings, self._kernels, strict=True)):
            for kernel in own if row not in done else ():
                prune(kernel, setting.sparsity_in(epoch))

    def of(self, member: int) -> Tensor:
        """Which weights of a member are left, without padding, for its checkpoint. A weight may be 0 by chance, so
        values alone do not say it."""
        return self.stack.own(self.kept, member)[0].bool()

    def restart(self, member: int, kept: Tensor) -> None:
        self.stack.own(self.kept, member)[0].copy_(kept)


def prune(kernel: Sequence[tuple[Tensor, Tensor]], share: float) -> None:
    """Set this share of all weights to 0, the smallest, and those first that already are; of equal ones the first."""
    sizes = torch.cat([torch.where(kept == 0, -1.0, values.abs()) for values, kept in kernel])
    gone = torch.zeros_like(sizes, dtype=torch.bool)
    gone[sizes.argsort(stable=True)[: round(share * len(sizes))]] = True
    for (values, kept), own in zip(kernel, gone.split([len(values) for values, _ in kernel]), strict=True):
        values.masked_fill_(own, 0.0)
        kept.masked_fill_(own, 0.0)
