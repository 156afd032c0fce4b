# SPDX-License-Identifier: Apache-2.0
"""Writes dumps of TensorFlow Debugger V2 for tests, event by event."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from opscope.formats.tfdbg.files import checksum

CODES = {"float32": 1, "float64": 2, "int32": 3, "int64": 9, "bool": 10, "float16": 19}
FULL = 7


def number(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def whole(field: int, value: int) -> bytes:
    return number(field << 3) + number(value)


def part(field: int, data: bytes | str) -> bytes:
    content = data.encode() if isinstance(data, str) else data
    return number(field << 3 | 2) + number(len(content)) + content


def event(time: float, field: int, *parts: bytes) -> bytes:
    return number(1 << 3 | 1) + struct.pack("<d", time) + part(field, b"".join(parts))


def record(data: bytes) -> bytes:
    head = struct.pack("<Q", len(data))
    return head + struct.pack("<I", checksum(head)) + data + bytes(4)


def tensor(values: object, dtype: str = "float32") -> bytes:
    array = np.asarray(values, dtype)
    sizes = b"".join(part(2, whole(1, size)) for size in array.shape)
    return whole(1, CODES[dtype]) + part(2, sizes) + part(4, array.tobytes())


def op(kind: str, name: str, *inputs: str, graph: str = "g", outputs: int = 1) -> bytes:
    named = [part(6, each) for each in inputs]
    frames = part(8, part(2, "user") + part(2, "library"))
    return event(
        0.0, 7, part(1, kind), part(2, name), part(4, graph), *named, whole(7, outputs), frames
    )


def trace(time: float, name: str, proto: bytes, *, mode: int = FULL, graph: str = "g") -> bytes:
    return event(time, 10, part(1, graph), part(2, name), whole(4, mode), part(5, proto))


def execution(
    time: float,
    kind: str,
    inputs: Iterable[int],
    outputs: Iterable[int],
    *protos: bytes,
    graph: str = "",
    mode: int = FULL,
) -> bytes:
    packed = [part(field, b"".join(map(number, ids))) for field, ids in ((4, inputs), (5, outputs))]
    frames = part(8, part(2, "user") + part(2, "library"))
    named = [part(3, graph)] if graph else []
    return event(
        time,
        9,
        part(1, kind),
        *named,
        *packed,
        whole(6, mode),
        *(part(7, p) for p in protos),
        frames,
    )


def write_dump(
    folder: Path,
    *,
    ops: Iterable[bytes] = (),
    traces: Iterable[bytes] = (),
    executions: Iterable[bytes] = (),
    graphs: Iterable[tuple[str, str, str]] = (("root", "", ""), ("g", "step", "root")),
) -> Path:
    """A dump of these events, with graphs as (id, name, id of the graph around)."""
    folder.mkdir(parents=True, exist_ok=True)
    described = [
        event(0.0, 8, part(1, each), part(2, name), part(6, outer)) for each, name, outer in graphs
    ]
    sources = ("/home/me/train.py", "/usr/lib/python3/site-packages/tensorflow/python/ops.py")
    frames = (("user", 0, 7, "step"), ("library", 1, 70, "apply"))
    files = {
        "metadata": [event(0.0, 3, part(1, "2.21.0"), part(2, "debug.Event:1"), part(3, "abc"))],
        "source_files": [event(0.0, 4, part(1, each)) for each in sources],
        "stack_frames": [
            event(
                0.0, 6, part(1, key), part(2, whole(1, file) + whole(2, line) + part(4, function))
            )
            for key, file, line, function in frames
        ],
        "graphs": [*described, *ops],
        "execution": list(executions),
        "graph_execution_traces": list(traces),
    }
    for kind, events in files.items():
        (folder / f"tfdbg_events.1.host.{kind}").write_bytes(b"".join(map(record, events)))
    return folder
