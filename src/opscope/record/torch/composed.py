# SPDX-License-Identifier: Apache-2.0
"""Tensors without plain memory of their own: sparse, nested and quantised ones, and those in
oneDNN's format.

Each is read as the tensor of its values, which shares their memory; what else it consists of
(indices, sizes, scales) are parts. Nothing here is seen by a mode, by autograd or by a view's base.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

COMPRESSED = {
    torch.sparse_csr: ("crow_indices", "col_indices"),
    torch.sparse_bsr: ("crow_indices", "col_indices"),
    torch.sparse_csc: ("ccol_indices", "row_indices"),
    torch.sparse_bsc: ("ccol_indices", "row_indices"),
}
STORED = {torch.quint8: torch.uint8, torch.qint8: torch.int8, torch.qint32: torch.int32}
ONEDNN: torch.layout = torch._mkldnn  # type: ignore[attr-defined]


@dataclass(frozen=True, eq=False)
class Composed:
    """The values of a tensor in its own memory, and its parts by name; values is None where that
    memory cannot be had.
    """

    values: torch.Tensor | None
    parts: tuple[tuple[str, torch.Tensor], ...] = ()


def is_composed(tensor: torch.Tensor) -> bool:
    """Whether a tensor is none of plain strided elements."""
    return tensor.layout is not torch.strided or tensor.is_nested or tensor.is_quantized


def composed(tensor: torch.Tensor) -> Composed:
    """What a composed tensor of no subclass consists of. A nested tensor that is a part of
    another's memory has no values.
    """
    with torch._C._AutoDispatchBelowAutograd():
        if tensor.layout is torch.sparse_coo:
            return Composed(tensor._values(), (("indices", tensor._indices()),))
        if tensor.layout in COMPRESSED:
            return Composed(
                tensor.values(),
                tuple((name, getattr(tensor, name)()) for name in COMPRESSED[tensor.layout]),
            )
        if tensor.is_nested and tensor.layout is torch.strided:
            values = tensor.values()
            return Composed(
                values if values.numel() == tensor.numel() else None,
                (("sizes", tensor._nested_tensor_size()),),
            )
        if tensor.is_quantized and tensor.dtype in STORED:
            return Composed(stored(tensor), scales(tensor))
    return Composed(None)


def stored(tensor: torch.Tensor) -> torch.Tensor:
    """The integers of a quantised tensor in their own memory."""
    empty = torch.empty(0, dtype=STORED[tensor.dtype], device=tensor.device)
    return empty.set_(
        tensor.untyped_storage(), tensor.storage_offset(), tensor.shape, tensor.stride()
    )


def scales(tensor: torch.Tensor) -> tuple[tuple[str, torch.Tensor], ...]:
    """Scales and zero points of a tensor that is quantised by channel; those of a whole tensor are
    no tensors.
    """
    if tensor.qscheme() not in {
        torch.per_channel_affine,
        torch.per_channel_symmetric,
        torch.per_channel_affine_float_qparams,
    }:
        return ()
    return ("scales", tensor.q_per_channel_scales()), (
        "zero_points",
        tensor.q_per_channel_zero_points(),
    )


def readable(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor whose elements are read in place of a composed one: its values, a copy of those
    that oneDNN holds.
    """
    if not is_composed(tensor):
        return tensor
    with torch._C._AutoDispatchBelowAutograd():
        values = tensor.to_dense() if tensor.layout is ONEDNN else composed(tensor).values
    return tensor if values is None else values
