# SPDX-License-Identifier: Apache-2.0
"""Small dump files for tests, as a device would write them."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from opscope.formats.cann import dtypes, dumpfile
from opscope.formats.cann.message import DumpData, Shape, TensorEntry

Piece = tuple[TensorEntry, bytes]


def raw(data: bytes, shape: tuple[int, ...], proto: int, *, layout: int = 2, **more: Any) -> Piece:
    """An entry of these bytes; its original shape is its shape."""
    entry = TensorEntry(
        data_type=proto,
        format=layout,
        shape=Shape(dim=shape),
        original_shape=Shape(dim=more.pop("original", shape)),
        size=len(data),
        **more,
    )
    return entry, data


def dump(
    values: np.ndarray,
    layout: str,
    original: tuple[int, ...],
    *,
    groups: int = 0,
    shape: tuple[int, ...] | None = None,
    **more: Any,
) -> Piece:
    """An entry of these device elements in a layout, the host's shape being original."""
    proto = dtypes.BY_NAME[values.dtype.name].proto
    number = dtypes.FORMAT_NUMBERS[layout]
    return raw(
        values.tobytes(),
        shape or values.shape,
        proto,
        layout=number,
        original=original,
        sub_format=groups,
        **more,
    )


def operator(
    path: Path,
    inputs: Sequence[Piece] = (),
    outputs: Sequence[Piece] = (),
    *,
    form: str = "plain",
    **header: Any,
) -> Path:
    """Write a dump file of these tensors."""
    path.parent.mkdir(parents=True, exist_ok=True)
    header = {"version": "2.0", **header}
    data = DumpData(
        input=tuple(entry for entry, _ in inputs),
        output=tuple(entry for entry, _ in outputs),
        **header,
    )
    dumpfile.write(path, data, [payload for _, payload in (*inputs, *outputs)], form=form)
    return path


def classic_record(
    *, task: int = 57, stream: int = 563, status: int = 32, dha: int = 0, l2: int = 0
) -> bytes:
    """The 2048-byte overflow record; with the defaults, the sample in CANN's documentation."""
    record = bytearray(2048)
    for start, unit_status in ((0, dha), (128, l2)):
        if unit_status:
            struct.pack_into("<4Q", record, start, 514, stream, task, 0)
    struct.pack_into("<6Q", record, 256, 514, stream, task, 0, 0x1008005B0000, 0x100800297000)
    struct.pack_into("<Q", record, 512, dha)
    struct.pack_into("<Q", record, 768, l2)
    struct.pack_into("<3Q", record, 1024, 0x1008005AE000, 1, status)
    return bytes(record)


FIELDS = {
    0: (
        "model_id",
        "stream_id",
        "task_id",
        "task_type",
        "context_id",
        "thread_id",
        "pc_start",
        "para_base",
        "core_id",
        "block_id",
        "status",
    ),
    2: (
        "model_id",
        "stream_id",
        "task_id",
        "task_type",
        "context_id",
        "cpu_id",
        "thread_id",
        "status",
    ),
    3: (
        "model_id",
        "stream_id",
        "task_id",
        "task_type",
        "context_id",
        "thread_id",
        "src_addr",
        "dst_addr",
        "channel_id",
        "status",
    ),
}
FIELDS[1] = FIELDS[0]


def modern_record(
    kind: int, *, version: int = 0, valid: int = 1, size: int = 2048, **fields: int | Sequence[int]
) -> bytes:
    """An overflow record with the magic number; status is one number, or four in version 1."""
    status = fields.pop("status", 0)
    words = [int(fields.get(name, 0)) for name in FIELDS[kind][:-1]]  # type: ignore[arg-type]
    words += list(status) if isinstance(status, Sequence) else [status]
    record = struct.pack("<6I", 0x5A5A5A5A, version, valid, kind, 0, 8 * len(words)) + struct.pack(
        f"<{len(words)}Q", *words
    )
    return record.ljust(size, b"\0")
