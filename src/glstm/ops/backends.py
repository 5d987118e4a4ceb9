"""All backends by name; `auto` takes the first that is usable."""

from torch import Tensor

from glstm.ops import cpu, gpu, reference_backend
from glstm.ops.contract import Backend

BACKENDS: dict[str, Backend] = {
    "native": cpu,
    "cuda": gpu,
    "reference": reference_backend,
}
NAMES = ("auto", *BACKENDS)


def choose(name: str, x: Tensor, k_h: Tensor | None) -> Backend:
    """The fastest backend for these tensors, or the one named."""
    if name == "auto":
        for backend in BACKENDS.values():
            if backend.usable(x, k_h):
                return backend
    backend = BACKENDS[name]
    if not backend.usable(x, k_h):
        two = " with two tables" if k_h is not None else ""
        raise ValueError(
            f"the {name} backend {backend.limits()}, not {x.dtype} on {x.device} of shape {tuple(x.shape)}{two}"
        )
    return backend
