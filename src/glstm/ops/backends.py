"""All backends by name; `auto` takes the first that is usable."""

from torch import Tensor

from glstm.ops import cpu, gpu, reference_backend
from glstm.ops.contract import Backend
from glstm.ops.reference import GRU

BACKENDS: dict[str, Backend] = {
    "native": cpu,
    "cuda": gpu,
    "reference": reference_backend,
}
NAMES = ("auto", *BACKENDS)


def check_backend(name: str) -> None:
    if name not in NAMES:
        raise ValueError(f"backend must be one of {', '.join(NAMES)}, not {name!r}")


def choose(name: str, x: Tensor, k_h: Tensor | None, rule: str, hidden: int) -> Backend:
    """The fastest backend for these tensors and a layer of this rule and so many units, or the one named."""
    if name == "auto":
        for backend in BACKENDS.values():
            if backend.usable(x, k_h) and backend.has_rule(rule, x, hidden):
                return backend
    backend = BACKENDS[name]
    if not (backend.usable(x, k_h) and backend.has_rule(rule, x, hidden)):
        two = " with two tables" if k_h is not None else ""
        gru = f" for a GRU of {hidden} units" if rule == GRU else ""
        raise ValueError(
            f"the {name} backend {backend.limits()}, not {x.dtype} on {x.device} of shape {tuple(x.shape)}{two}{gru}"
        )
    return backend
