"""What a layer keeps between calls in evaluation: its tables of openness, and the last call, ready to be made again."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from glstm.ops.prepared import Prepared

if TYPE_CHECKING:
    from glstm.gated import GatedLSTM


@dataclass(frozen=True)
class Table:
    """k, with everything it was made from: options by `key`, times and the gate's values as copies."""

    key: tuple
    inputs: list[Tensor]
    k: Tensor


@dataclass(frozen=True)
class Call:
    """A call of a one-layer stack at times 1..T, and where each of its tensors lives: a dictionary and a name."""

    key: tuple
    homes: list[tuple[dict, str]]
    prepared: Prepared


class Kept:
    """Nothing here outlives what it was made from: values are compared, because no count of versions sees what is
    written through `.data`. A copy of the layer starts with nothing kept."""

    def __init__(self):
        self.tables: dict[str, Table] = {}
        self.call: Call | None = None

    def __reduce__(self):
        return Kept, ()

    def table(self, place: str, key: tuple, inputs: Sequence[Tensor], dtype, make: Callable[[], Tensor]) -> Tensor:
        known = self.tables.get(place)
        holds = known is not None and known.key == key and known.k.dtype == dtype
        if known is None or not holds or not all(map(_same, known.inputs, inputs)):
            known = Table(key, [tensor.detach().clone() for tensor in inputs], make().contiguous())
            self.tables[place] = known
        return known.k

    def prepare(self, layer: "GatedLSTM", place: str, names: Sequence[str], x: Tensor, times: Tensor) -> None:
        """Look up what the next call with the same shape will need; `names` are the tensors it reads."""
        self.call = None
        known, key = self.tables.get(place), layer._options()
        if known is None or known.key != key or not _same(known.inputs[0], times):
            return  # not the table of this call: a piece of a long one, or another thread's
        parameters, buffers = layer._parameters, layer._buffers
        homes = [(parameters if name in parameters else buffers, name) for name in names]
        tensors = [tensor for home, name in homes if (tensor := home.get(name)) is not None]
        gate_then = known.inputs[1:]
        # A reparametrised weight lives in neither dictionary, and may change at any time.
        if len(tensors) == len(names) and Prepared.possible(x, [*tensors, *gate_then, known.k], len(gate_then)):
            self.call = Call(key, homes, Prepared(x.shape, tensors, gate_then, known.k, layer.candidate))

    def again(self, key: tuple, x: Tensor, hx, sequence: bool):
        """All h or None, final h, final c (1, B, H); None where the call is not the one that was prepared."""
        call = self.call
        if call is None or call.key != key:
            return None
        try:
            tensors = [home[name] for home, name in call.homes]
        except KeyError:  # a weight has been reparametrised since
            return None
        return call.prepared.run(x, hx, tensors, sequence)


def _same(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and a.dtype == b.dtype and a.device == b.device and torch.equal(a, b)
