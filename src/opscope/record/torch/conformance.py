# SPDX-License-Identifier: Apache-2.0
"""Statistics of every element type and layout on a device, held against the host's kernels: what
`opscope doctor --device` runs, in a process of its own.

    python -m opscope.record.torch.conformance npu

prints one JSON object on its last line: facts of the device and a row for each type.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.metadata
import json
import math
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec
import torch

from opscope.kernels import Statistics
from opscope.kernels.compiled import NAMES
from opscope.record.torch.devices import (
    FUSED,
    LEAN,
    WITHOUT_SUMS,
    Capability,
    InOrder,
    current_stream,
    host_memory,
    reason_of,
)
from opscope.record.torch.staging import SMALL, Staging, read

ROWS, COLUMNS = 24, 40  # of a small tensor; a large one has as many columns and so many rows more
LAYOUTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "contiguous": lambda x: x,
    "transposed": lambda x: x.t(),
    "sliced": lambda x: x[::2, 1::3],
    "expanded": lambda x: x[:, None].expand(-1, 2, -1),
    "permuted": lambda x: x.view(-1, 2, 4, COLUMNS // 4).permute(2, 0, 3, 1),
    "from the second element on": lambda x: x.view(-1)[1:],
}
# Relative error of mean and l2norm: of plain operators that of a plain sum in float32.
SUMS = {FUSED.title: 1e-6, LEAN.title: 1e-3, WITHOUT_SUMS.title: 0.0}


def examine(kind: str) -> dict[str, Any]:
    """Facts of a device (`npu`, `cuda:1`, …) and a row for each element type.

    Raises whatever torch raises where there is no such device.
    """
    with contextlib.suppress(ModuleNotFoundError):
        importlib.import_module(f"torch_{kind.partition(':')[0]}")
    device = torch.empty(0, device=kind).device
    names = [name for name in NAMES if hasattr(torch, name)]
    return {"device": facts_of(device), "types": [row_of(device, name) for name in names]}


def facts_of(device: torch.device) -> dict[str, Any]:
    module = getattr(torch, device.type, None)
    named = getattr(module, "get_device_name", None)
    versions = [f"torch {torch.__version__}"]
    for distribution in (f"torch_{device.type}", "triton", "triton-ascend"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions.append(f"{distribution} {importlib.metadata.version(distribution)}")
    return {
        "device": str(device),
        "name": named(device) if callable(named) and device.type != "cpu" else "",
        "versions": versions,
        "pinned memory": bool(host_memory(1).is_pinned()),
        "streams": not isinstance(current_stream(device), InOrder),
        "graph capture": hasattr(module, "is_current_stream_capturing"),
        "fused kernel": Capability(device, fused_on=(device.type,)).without_fused() or "tried",
    }


def row_of(device: torch.device, name: str) -> dict[str, Any]:
    """How small and large tensors of a type are measured, or in which layouts that went wrong."""
    row: dict[str, Any] = {"type": name, "wrong": False}
    dtype = getattr(torch, name)
    capability = Capability(device, fused_on=(device.type,))
    for size, rows in (
        ("small", ROWS),
        ("large", ROWS * (1 + SMALL // (ROWS * dtype.itemsize) // 4)),
    ):
        try:
            host = content(rows, dtype)
            there = host.to(device)
            if there.dtype is not dtype:
                row[size] = f"is {there.dtype} on the device"
                continue
        except (RuntimeError, TypeError, NotImplementedError) as error:
            row[size] = f"cannot be made: {reason_of(error)}"
            continue
        wrong = [
            f"{layout}: {what}"
            for layout, view in LAYOUTS.items()
            if (what := difference(capability, view(there), view(host)))
        ]
        row[size] = "; ".join(wrong) or measured_by(capability, dtype, size)
        row["wrong"] = row["wrong"] or bool(wrong)
    return row


def measured_by(capability: Capability, dtype: torch.dtype, size: str) -> str:
    if size == "small":
        return "as on the host"
    way = capability.ways.get(dtype)
    if way is None:
        return f"not measured: {capability.unmeasured.get(dtype, 'not asked')}"
    if way is FUSED:
        return FUSED.title
    return f"{way.title} ({FUSED.title}: {capability.why_not(FUSED, dtype)})"


def content(rows: int, dtype: torch.dtype) -> torch.Tensor:
    """Numbers, among floats some that are not finite, masks and neighbours of limits."""
    made = torch.Generator().manual_seed(0)
    if not dtype.is_floating_point and not dtype.is_complex:
        bits = torch.randint(0, 256, (rows, COLUMNS * dtype.itemsize), generator=made)
        raw = bits.to(torch.uint8)
        return raw % 2 == 1 if dtype is torch.bool else raw.view(dtype)
    plain = torch.randn(rows, COLUMNS, generator=made, dtype=torch.float64).mul_(3)
    least = torch.finfo(dtype if dtype.is_floating_point else torch.float32).min
    odd = torch.tensor(
        [math.nan, math.inf, -math.inf, 0.0, least, 65504.0, 300.0, 1e-7], dtype=torch.float64
    )
    plain[: len(odd), 0] = odd.clamp(least, -least).where(odd.isfinite(), odd)
    return plain.to(dtype)


def difference(capability: Capability, there: torch.Tensor, here: torch.Tensor) -> str:
    """What the device answers otherwise than the host, empty where nothing."""
    reasons: list[str] = []
    staging = Staging(
        lambda _, error: reasons.append(reason_of(error)),
        lambda _, why: reasons.append(why),
        capability=lambda _: capability,
    )
    staging.stage(there)
    ((_, answered),) = staging.fetch()
    if answered is None:
        known = capability.unmeasured.get(there.dtype)
        return "" if known in reasons else "; ".join(reasons)
    wanted = read(here)
    if wanted is None:
        return "the host has no such type"
    way = capability.ways.get(there.dtype)
    return unequal(answered, wanted, SUMS[way.title] if way is not None else 1e-12)


def unequal(answered: Statistics, wanted: Statistics, most: float) -> str:
    """Fields that differ: sums by more than a relative error, all others at all. Plain operators
    tell no digest, no sum that leaves float32, and of elements near the limit only that there
    are some; no device takes a sample.
    """
    one, other = msgspec.structs.asdict(answered), msgspec.structs.asdict(wanted)
    close = partial(math.isclose, rel_tol=most, abs_tol=most * (wanted.l2norm or 0.0))
    plain = {"digest", "near_limit", "mean", "l2norm"} if answered.digest is None else set()
    untold = plain | {"sample"}
    return ", ".join(
        f"{field} {one[field]} for {other[field]}"
        for field in one
        if one[field] != other[field]
        and not (field in untold and one[field] is None)
        and not (
            field in ("mean", "l2norm")
            and None not in (one[field], other[field])
            and close(one[field], other[field])
        )
    )


if __name__ == "__main__":
    print("\n" + json.dumps(examine(sys.argv[1])))
