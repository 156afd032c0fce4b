# SPDX-License-Identifier: Apache-2.0
"""The third of repro.py that rebuilds tensors: their strides, offsets, element types and shared
memory.

script.py writes what stands below the mark into the generated script, which has no second file.
"""

from __future__ import annotations

import sys
from typing import Any

import torch

from opscope.repro.scripts.judging import printable
from opscope.repro.scripts.verdict import CannotTry

# --- rebuilding ---
# Numbers of CANN's formats, aclFormat in acl_base.h.
FORMATS = {"NC1HWC0": 3, "FRACTAL_Z": 4, "FRACTAL_NZ": 29, "NDC1HWC0": 32, "FRACTAL_Z_3D": 33}


def element_type(name: str) -> Any:
    dtype = getattr(torch, name, None)
    if not isinstance(dtype, torch.dtype):
        raise CannotTry(f"torch {torch.__version__} has no element type {printable(name)}")
    return dtype


def self_overlapping(shape: list[int], stride: list[int]) -> bool:
    """Whether two elements may lie at one address (a safe answer: yes when in doubt)."""
    reach = 0
    for step, size in sorted((step, size) for size, step in zip(shape, stride) if size > 1):
        if step <= reach:
            return True
        reach += step * (size - 1)
    return False


def fill(memory: Any, row: dict[str, Any], value: Any) -> None:
    """Write the kept elements where the tensor's strides put them; dimensions of stride 0 were kept
    once.
    """
    value = value.to(memory.dtype).to(memory.device)
    if value.numel() == 0:
        return
    if not self_overlapping(row["kept"], row["stride"]):
        memory.as_strided(row["kept"], row["stride"], row["offset"]).copy_(value)
        return
    places = torch.full(row["kept"], row["offset"], dtype=torch.int64, device=memory.device)
    for axis, (size, step) in enumerate(zip(row["kept"], row["stride"])):
        along = [size if i == axis else 1 for i in range(len(row["kept"]))]
        places += (torch.arange(size, device=memory.device) * step).reshape(along)
    memory[places.flatten()] = value.flatten()


def restore(value: Any, name: str, shape: list[int]) -> Any:
    """Elements as they were kept; types that not all torch have were kept as bytes, which may lie
    unaligned in the file.
    """
    dtype = element_type(name)
    return (value if value.dtype is dtype else value.clone().view(dtype)).reshape(shape)


def build_tensors(case: dict[str, Any], kept: dict[str, Any], where: Any) -> dict[str, Any]:
    """The tensors of the call by slot, with their strides, offsets and shared memory."""
    memories: dict[Any, Any] = {}
    seen = {}
    # Recorded elements are written last, over invented ones of the same memory.
    for row in sorted(case["tensors"], key=lambda row: row["values"] == "recorded"):
        dtype, buffer = where.dtype(row["dtype"]), case["buffers"][row["buffer"]]
        # Bytes that several types look at cannot be shared once one of these is widened.
        shared = buffer["dtype"] is None and dtype is element_type(row["dtype"])
        key = (row["buffer"], "bytes" if shared else dtype)
        if key not in memories:
            of = torch.uint8 if shared else dtype
            memories[key] = torch.zeros(
                buffer["size"], dtype=of, device=where.device(row["device"])
            )
        memory = memories[key].view(dtype) if shared else memories[key]
        if row["key"] is not None:
            fill(memory, row, restore(kept[row["key"]], row["dtype"], row["kept"]))
        seen[row["slot"]] = formatted(
            memory.as_strided(row["shape"], row["stride"], row["offset"]), row.get("layout")
        )
    return {row["slot"]: seen[row["slot"]] for row in case["tensors"]}


def formatted(tensor: Any, layout: Any) -> Any:
    """The tensor in the private format of an NPU that it was recorded in, where torch_npu can cast
    it.
    """
    cast = getattr(sys.modules.get("torch_npu"), "npu_format_cast", None)
    number = FORMATS.get(str(layout).upper())
    return (
        tensor
        if cast is None or number is None or tensor.device.type != "npu"
        else cast(tensor, number)
    )
