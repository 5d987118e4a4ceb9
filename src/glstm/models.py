"""A recurrent layer, a head, and what is between raw numbers and them: the networks of the paper, around any cell."""

import inspect
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, cat, nn, where
from torch.nn.functional import linear
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from glstm import masks
from glstm.gated import GatedLSTM
from glstm.lengths import checked_lengths, real_steps, without_padding
from glstm.ndarrays import like, on_device, unlisted
from glstm.ops.operator import watched
from glstm.times import has_values

READS = ("last", "every", "mean", "max")


def _check_width(layer: nn.Module, head: nn.Module) -> None:
    """That the head takes what the layer gives, as far as both are known; torch would say so at the first call, in
    shapes of matrices."""
    first = head[0] if isinstance(head, nn.Sequential) and len(head) else head
    if not isinstance(layer, GatedLSTM | nn.RNNBase) or type(first) is not nn.Linear:
        return
    width = (layer.proj_size or layer.hidden_size) * (2 if layer.bidirectional else 1)
    if first.in_features != width:
        raise ValueError(
            f"the head reads {first.in_features} numbers, but the layer gives {width}: in_features={width}"
        )


class SequenceModel(nn.Module):
    """A recurrent layer and a head: x (T, B, D) in, the head's output (B, outputs) out.

    Args:
        layer: Any module with `torch.nn.LSTM`'s calling convention: x in, output and state out. A state may also be a
            single tensor, as `torch.nn.GRU`'s is. If the layer has batch_first, x and every other layout is (B, T,
            ...).
        head: A module that reads the top layer's output, of both directions side by side.
        reads: What the head reads: the "last" state; "every" step's output, which gives (T, B, outputs); or the "mean"
            or "max" of all steps' outputs.
        inputs: Applied to x before the layer, such as a `Standardize`, so that the network takes raw numbers.
        outputs: Applied to what the head returns, such as a `Rescale`, so that the network returns raw numbers.
        classes: Names of the outputs.

    Examples:
        ```python
        import torch

        from glstm import GLSTM, SequenceModel

        model = SequenceModel(GLSTM(3, 16), torch.nn.Linear(16, 2), classes=["down", "up"])
        scores = model(torch.randn(100, 8, 3))  # (8, 2)
        model.save_pretrained("model")
        again = SequenceModel.from_pretrained("model")
        ```
    """

    layer: Any  # of any class: only deployment and code that reads gates need to know which

    def __init__(
        self,
        layer: nn.Module,
        head: nn.Module,
        *,
        reads: str = "last",
        inputs: nn.Module | None = None,
        outputs: nn.Module | None = None,
        classes: Sequence[str] | None = None,
    ):
        if not callable(getattr(layer, "forward", None)) or not isinstance(layer, nn.Module):
            raise TypeError(f"the layer must be a module with torch.nn.LSTM's convention, not {type(layer).__name__}")
        for name, part in (("head", head), ("inputs", inputs), ("outputs", outputs)):
            if not isinstance(part, nn.Module) and (name == "head" or part is not None):
                raise TypeError(f"{name} must be a module, not {part!r:.50}")
        if reads not in READS:
            raise ValueError(f"reads must be one of {', '.join(READS)}, not {reads!r:.50}")
        _check_width(layer, head)
        super().__init__()
        self.layer = layer
        self.head = head
        self.reads = reads
        self.inputs = inputs
        self.outputs = outputs
        self.classes = None if classes is None else tuple(map(str, classes))

    def forward(self, x: Any, times: Any = None, lengths: Any = None) -> Tensor:
        """What the head says about these sequences.

        Args:
            x: (T, B, D): a tensor, an array of numpy's, or a list.
            times: As the layer takes them; a layer that takes none does not get them.
            lengths: (B,), how many steps of each sequence count; the others are padding.

        Returns:
            (B, outputs), or (T, B, outputs) if the head reads every step. At padding it means nothing.
        """
        x = like(unlisted(x), next(self.parameters()))
        times = times if times is None else on_device(unlisted(times), x.device)
        lengths = lengths if lengths is None else self._checked(lengths, x)
        if self.inputs is not None:
            x = self.inputs(x, self._steps_axis) if x.dim() == 3 else self.inputs(x)
        y = self.head(self._read(x, times, lengths))
        return y if self.outputs is None else self.outputs(y)

    def _checked(self, lengths: Any, x: Tensor) -> Tensor:
        if not isinstance(x, Tensor):  # a tracer's stand-in: the layer says what is wrong with it
            return lengths
        batch, steps = (x.shape[1 - self._steps_axis], x.shape[self._steps_axis]) if x.dim() == 3 else (1, len(x))
        return checked_lengths(lengths, steps, batch, x.device, least=1)

    @property
    def _steps_axis(self) -> int:
        return 1 if getattr(self.layer, "batch_first", False) else 0

    @property
    def _directions(self) -> int:
        return 2 if getattr(self.layer, "bidirectional", False) else 1

    def _read(self, x: Tensor, times: Tensor | None, lengths: Tensor | None) -> Tensor:
        if self.reads == "last" and lengths is None:
            leaves_out = isinstance(self.layer, GatedLSTM) or getattr(self.layer, "leaves_out_sequence", False)
            last_only = {"sequence": False} if leaves_out else {}
            _, state = self.layer(x, **last_only, **self._at(times))
            h_n = state if isinstance(state, Tensor) else state[0]
            return h_n[-1] if self._directions == 1 else cat((h_n[-2], h_n[-1]), -1)
        output = self._all_steps(x, times, lengths)
        if self.reads == "every":
            return output
        axis = self._steps_axis if x.dim() == 3 else 0
        if self.reads == "last" and lengths is not None:
            return _last(output, lengths, axis, self._directions)
        return _pooled(output, lengths, axis, self.reads)

    def _all_steps(self, x: Tensor, times: Tensor | None, lengths: Tensor | None) -> Tensor:
        """The layer's output. A layer of one direction may read the padding: what it gives before that is the same; one
        that `takes_lengths`, because of statistics of a batch, is told where it begins."""
        if lengths is None:
            return self.layer(x, **self._at(times))[0]
        first, steps = bool(self._steps_axis), x.shape[self._steps_axis]
        if isinstance(x, Tensor) and x.dim() == 3:  # a tracer's stand-in goes on to the layer
            inside = real_steps(steps, lengths, x.device)
            x = without_padding(x, inside.T if first else inside)

        def packed(values: Tensor) -> Any:
            return pack_padded_sequence(values, lengths.cpu(), first, enforce_sorted=False)

        def real() -> Any:
            """The times without those of the padding."""
            return times if times is None else times[: int(lengths.max())] if times.dim() == 1 else packed(times)

        if self._directions == 1:
            if getattr(self.layer, "unfitted", False) and has_values(lengths) and self.layer._holds_values():
                self.layer.fit_times(int(lengths.max()) if times is None else real())
            told = {"lengths": lengths} if getattr(self.layer, "takes_lengths", False) else {}
            return self.layer(x, **self._at(times), **told)[0]
        if isinstance(self.layer, GatedLSTM) and x.dim() == 3 and watched((x,)):
            return self.layer.over_padded(x, lengths, times)
        output, _ = self.layer(packed(x), **self._at(real()))
        return pad_packed_sequence(output, first, total_length=steps)[0]

    def _at(self, times: Any) -> dict[str, Any]:
        return {} if times is None or not _takes_times(self.layer) else {"times": times}

    def save_pretrained(self, folder: Path | str) -> None:
        """Write `model.safetensors` and `config.json` into a folder, from which `from_pretrained` makes it again."""
        from glstm.pretrained import save_pretrained

        save_pretrained(self, folder)

    @classmethod
    def from_pretrained(cls, folder: Path | str) -> "SequenceModel":
        """The network in a folder that `save_pretrained` or `glstm train` wrote, in evaluation mode."""
        from glstm.pretrained import from_pretrained

        return from_pretrained(folder)


def ends_in_softmax(model: nn.Module) -> bool:
    """Whether its outputs are probabilities already."""
    last = getattr(model, "head", None)
    while isinstance(last, nn.Sequential) and len(last):
        last = last[-1]
    return isinstance(last, nn.Softmax)


def _takes_times(layer: nn.Module) -> bool:
    return "times" in inspect.signature(layer.forward).parameters


def _last(output: Tensor, lengths: Tensor, axis: int, directions: int) -> Tensor:
    """The output (T, B, H) or (B, T, H) at each sequence's last step; of the backward direction, at its first."""
    output = output if axis == 0 else output.transpose(0, 1)
    wanted = (lengths - 1).clamp(min=0).view(1, -1, 1).expand(1, -1, output.shape[-1])
    last = output.gather(0, wanted).squeeze(0)
    if directions == 1:
        return last
    units = output.shape[-1] // 2
    return cat((last[..., :units], output[0, ..., units:]), -1)


def _pooled(output: Tensor, lengths: Tensor | None, axis: int, how: str) -> Tensor:
    """The mean or the maximum over the steps that count."""
    if lengths is None:
        return output.mean(axis) if how == "mean" else output.amax(axis)
    steps = torch.arange(output.shape[axis], device=output.device)
    counts = (steps[:, None] < lengths) if axis == 0 else (steps < lengths[:, None])
    if how == "max":
        return output.masked_fill(~counts.unsqueeze(-1), -torch.inf).amax(axis)
    return where(counts.unsqueeze(-1), output, 0).sum(axis) / lengths.unsqueeze(-1)


class DropConnect(masks.Keyed, nn.Linear):
    """A linear layer of which each weight is dropped with probability p in training (Wan et al., 2013)."""

    def __init__(self, in_features: int, out_features: int, p: float = 0.5):
        if not 0 <= p < 1:
            raise ValueError(f"p is the probability that a weight is dropped, at least 0 and below 1, not {p!r}")
        super().__init__(in_features, out_features)
        self.p = p

    def forward(self, input: Tensor) -> Tensor:
        return linear(input, self._thinned() if self.training else self.weight, self.bias)

    def _thinned(self) -> Tensor:
        weight = self.weight
        key = masks.random_key(weight.device) if self.key is None else self.key
        numbers = masks.number_elements(weight.numel(), weight.device)
        return where(masks.keep_mask(key, numbers, self.p).view(weight.shape), weight / (1 - self.p), 0)


def linear_head(inputs: int, outputs: int) -> nn.Module:
    return nn.Linear(inputs, outputs)


def deep_head(inputs: int, outputs: int, width: int = 256) -> nn.Sequential:
    """Two ReLU layers, Drop-Connect on the second: the paper's sCIFAR-10 network, after Trinh et al. (2018)."""
    return nn.Sequential(
        nn.Linear(inputs, width), nn.ReLU(), DropConnect(width, width), nn.ReLU(), nn.Linear(width, outputs)
    )


HEADS = {"linear": linear_head, "deep": deep_head}


def width_of(layer: Any) -> int:
    """How many numbers a head reads: the layer's units, of both directions."""
    return layer.hidden_size * (2 if getattr(layer, "bidirectional", False) else 1)
