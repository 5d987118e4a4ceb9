"""What a backend is: a module, or an object, that computes the gated LSTM and its gradients on plain tensors.

The same weighted sums make a gated GRU: `rule` says what a unit computes from its four sums (`reference.RULES`).

T steps, B samples, D inputs, H units; M models where tensors have the leading model axis.
"""

from typing import NamedTuple, Protocol

from torch import Tensor


class Inputs(NamedTuple):
    x: Tensor  # (T, B, D); also if everything else has a model axis but all models read the same x
    w_ih: Tensor  # (4H, D)
    w_hh: Tensor  # (4H, H)
    b: Tensor | None  # (4H)
    k: Tensor  # (T, H), or (T, B, H) with one table per sample
    k_h: Tensor | None  # the output's own table; None: k is used for cell and output
    h0: Tensor  # (B, H)
    c0: Tensor


class Made(NamedTuple):
    """The results of a forward pass."""

    h: Tensor | None  # after every step, if requested
    h_n: Tensor
    c_n: Tensor
    c: Tensor | None  # after every step, if requested
    tape: Tensor | None  # what the backward pass will need
    how: tuple[int, ...] = ()  # `Backend.HOW` numbers that say how the tape was written
    schedule: object = None  # what the backward pass would otherwise have to make again


class Backend(Protocol):
    @property
    def SIDE_BY_SIDE(self) -> bool:
        """Whether tensors may have a model axis; otherwise the operator calls the backend once per model."""
        ...

    @property
    def HOW(self) -> int:
        """How many numbers say how a tape was written."""
        ...

    def usable(self, x: Tensor, k_h: Tensor | None) -> bool:
        """Whether it computes this dtype on this device, with two tables if there are two."""
        ...

    def has_rule(self, rule: str, x: Tensor, hidden: int) -> bool:
        """Whether it computes this rule for so many units, where tensors are such as it uses."""
        ...

    def limits(self) -> str:
        """What `usable` and `has_rule` require, as the rest of a sentence that begins with 'the ... backend'."""
        ...

    def empty_tape(self, x: Tensor, w_hh: Tensor) -> Tensor:
        """A tensor with the shape and dtype of the tape, for tracing."""
        ...

    def forward(self, inputs: Inputs, rule: str, sequence: bool, cells: bool, taped: bool) -> Made: ...

    def backward(
        self,
        gradients: tuple[Tensor | None, Tensor | None, Tensor | None, Tensor | None],
        inputs: Inputs,
        tape: Tensor,
        how: tuple[int, ...],
        schedule: object,
        rule: str,
        need_x: bool,
        need_h0: bool,
    ) -> tuple[Tensor | None, ...]:
        """Gradients of the inputs from those of h, h_n, c_n, c; None if there is none, or it is not needed."""
        ...
