"""Rules for torch.vmap: the batched axis becomes the operator's model axis, or more samples.

In both cases the batched axis of every tensor is first moved to the front, or the tensor is expanded along it; `size`
is the length of that axis.
"""

from collections.abc import Sequence

from torch import Tensor

from glstm.ops.contract import Inputs

Dims = Sequence[int | None]  # where the batched axis of each tensor is; None: it has none


def models_of(inputs: Inputs, dims: Dims) -> int:
    """How many models there are besides the batched axis; 0 where there is no model axis."""
    w_hh = inputs.w_hh if dims[2] is None else inputs.w_hh.movedim(dims[2], 0)[0]
    return w_hh.shape[0] if w_hh.dim() == 3 else 0


def into_models(inputs: Inputs, dims: Dims, size: int, own_x: bool) -> Inputs:
    """Every tensor with a model axis; x only where models read different ones, or each needs its own gradient of x."""
    models = models_of(inputs, dims)
    x, *others = inputs
    without_axis = x.dim() - (dims[0] is not None) == 3
    if dims[0] is not None or own_x or not without_axis:
        x = in_front(x, dims[0], size)
        if models:
            x = x.unsqueeze(1).expand(size, models, *x.shape[1:]) if without_axis else x
            x = x.flatten(0, 1)
    lifted = (lift(part, dim, size, models) for part, dim in zip(others, dims[1:], strict=True))
    return Inputs(x, *lifted)  # pyright: ignore[reportArgumentType]


def lift(part: Tensor | None, dim: int | None, size: int, models: int) -> Tensor | None:
    """With the batched axis as the model axis, or merged into the model axis if there is one."""
    if part is None:
        return None
    part = in_front(part, dim, size)
    return part.flatten(0, 1) if models else part


def lower(part: Tensor | None, size: int, models: int) -> Tensor | None:
    """The inverse of `lift`: the batched axis is in front."""
    return part.unflatten(0, (size, models)) if part is not None and models else part


def into_samples(inputs: Inputs, dims: Dims, size: int) -> Inputs:
    """If all share their weights: (..., B, H) becomes (..., size x B, H)."""
    x, _, _, _, k, k_h, h0, c0 = inputs
    k, k_h = _table(k, dims[4], inputs, dims, size), _table(k_h, dims[5], inputs, dims, size)
    x, h0, c0 = (_join(in_front(part, dims[at], size)) for part, at in ((x, 0), (h0, 6), (c0, 7)))
    assert k is not None
    return inputs._replace(x=x, k=k, k_h=k_h, h0=h0, c0=c0)


def out_of_samples(part: Tensor | None, size: int) -> Tensor | None:
    """(..., size x B, H) with the batched axis in front."""
    return None if part is None else part.unflatten(-2, (size, part.shape[-2] // size)).movedim(-3, 0)


def _table(table: Tensor | None, dim: int | None, inputs: Inputs, dims: Dims, size: int) -> Tensor | None:
    """One table for all samples stays one table; otherwise every sample of every element has its own."""
    if table is None:
        return None
    for_all = table.dim() - (dim is not None) == inputs.w_hh.dim()
    if for_all and dim is None:
        return table
    table = in_front(table, dim, size)
    if for_all:
        batch = inputs.x.shape[-2] if dims[0] is None else inputs.x.movedim(dims[0], 0).shape[-2]
        table = table.unsqueeze(-2).expand(*table.shape[:-1], batch, table.shape[-1])
    return _join(table)


def _join(part: Tensor) -> Tensor:
    """(size, ..., B, H) as (..., size x B, H)."""
    return part.movedim(0, -3).flatten(-3, -2)


def in_front(part: Tensor, dim: int | None, size: int) -> Tensor:
    return part.expand(size, *part.shape) if dim is None else part.movedim(dim, 0)
