"""How much room the engine needs to compute only the open units of networks that train together.

A training step on CUDA is a graph, whose memory is fixed, but gates move. So what they need is counted before every
step: tables of openness are made from the values as they are now, and the host waits for a few numbers.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from glstm.gates import Open
from glstm.ops import gpu
from glstm.ops.gpu import choice, sparse
from glstm.training.graph import captured
from glstm.training.stack import Gates, Stack, gate_structure, knows_tables, structure

FEWEST = 256  # samples of all networks: with fewer, what is not computed does not pay for counting


class OpenUnits:
    """Counts for all networks of a stack, which call their layers at the same times."""

    def __init__(self, stack: Stack, batch: int):
        self.stack, self.batch = stack, batch
        assert stack.times is not None
        alike: dict[Any, list[int]] = {}
        for row, model in enumerate(stack.models):
            alike.setdefault((structure(model), gate_structure(model)), []).append(row)
        self.gates = [
            Gates([stack.models[row] for row in rows], rows, stack.layouts[rows[0]], stack.weights, stack.times)
            for rows in alike.values()
        ]
        layer: Any = stack.models[0].layer
        self.suffixes = [suffix for _, suffix in layer.places()]
        size = (len(self.suffixes), len(stack.models), sparse.COUNTS)
        self.found = torch.zeros(size, dtype=torch.int32, device=stack.flat.device)
        self._count = captured(self._fill, [self.found])
        self.room: sparse.Room | None = None

    @staticmethod
    def known(models: Sequence[nn.Module], times: Tensor | None, dtype: torch.dtype) -> bool:
        """Whether tables can be made beforehand, some gates close, and the engine can compute the layers."""
        if times is None or not all(map(knows_tables, models)):
            return False
        layers: list[Any] = [model.layer for model in models]  # pyright: ignore[reportAttributeAccessIssue]
        alike = len({(layer.hidden_size, layer.num_layers, layer.bidirectional) for layer in layers}) == 1
        closing = any(layer.threshold > 0 and not isinstance(layer.gate, Open) for layer in layers)
        return alike and closing and dtype == torch.float32 and all(layer.backend != "reference" for layer in layers)

    @torch.no_grad()
    def _fill(self) -> None:
        rows = self.stack.flat.detach()
        each: dict[int, dict[str, Tensor]] = {}
        for gates in self.gates:
            each |= gates.tables(torch.stack([rows[place] for place in gates.places]))
        for found, suffix in zip(self.found, self.suffixes):
            k = torch.stack([each[place][suffix] for place in range(len(each))])
            k = k.flip(1) if suffix.endswith("_reverse") else k  # the layer reads backwards
            found.copy_(sparse.schedule_of(k.contiguous()).counts)

    def needed(self) -> sparse.Room | None:
        """Room that suffices for every table now; None: the dense path is faster, or there is no room that suffices."""
        self._count()
        tables = self.found.tolist()
        if not self._worthwhile(tables):
            self.room = None
            return None
        rooms = [choice.room_to_grow(counts, self.room) for counts in tables]
        found = [room for room in rooms if room is not None]
        if len(found) < len(rooms):
            self.room = None
        else:
            self.room = sparse.Room(max(room.blocks for room in found), max(room.pairs for room in found))
        return self.room

    def _worthwhile(self, tables: list[choice.Counts]) -> bool:
        """By estimated time, unless there are few samples. A population counts from fewer samples on than a call
        without a graph (`choice.WORTH_COUNTING`), which would wait for the device at every step: so the two may take
        different paths, and differ by rounding."""
        if len(self.stack.models) * self.batch < FEWEST:
            return False
        layer: Any = self.stack.models[0].layer
        assert self.stack.times is not None
        shape = gpu.shape_of(
            len(self.stack.models), len(self.stack.times), self.batch, layer.hidden_size,
            gpu.exact_for(torch.float32), self.found.device,
        )  # fmt: skip
        if shape is None:
            return False
        processors = gpu.properties(self.found.device).multi_processor_count
        times = [choice.sparse_time(shape, True, processors, counts) for counts in tables]
        return sum(times) < len(tables) * choice.dense(shape, True, processors)
