# SPDX-License-Identifier: Apache-2.0
"""Tables of a run: their columns and types, and one frozen record for a row of each.

The contract is docs/schema.md. Column order in a table is the order of the record's fields. Arrow
types are named as nanoarrow names them; a string column is plain utf8 (nanoarrow's IPC writer
cannot encode dictionaries).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

SCHEMA_MAJOR = 1
SCHEMA_MINOR = 2

Level = str  # operator | api | module | graph
Phase = str  # forward | backward | optimizer | recompute | communication

LEVELS = ("operator", "api", "module", "graph")
PHASES = ("forward", "backward", "optimizer", "recompute", "communication")
EXPORTED = "exported"  # in Process.torch: the exported program that was executed, alone


class ValueRef(msgspec.Struct, frozen=True, gc=False):
    """Where a tensor's values lie: the shard's file name inside the process directory, and the key
    in it.
    """

    shard: str
    key: str


class Call(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One execution of an operator, API or module; fields are the columns of table calls."""

    process: int
    rank: int
    step: int
    index: int
    level: str
    parent: int | None = None
    phase: str
    op: str
    module: str | None = None
    name: str
    forward_index: int | None = None
    autograd_thread: int | None = None
    autograd_sequence: int | None = None
    stack: int | None = None
    source: str | None = None
    args: str | None = None
    task: int | None = None
    stream: int | None = None
    context: int | None = None
    thread: int | None = None
    device: str | None = None
    status: int | None = None
    error: str | None = None
    again: int | None = None


class Tensor(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One tensor that a call read or wrote; fields are the columns of table tensors."""

    process: int
    index: int
    io: str
    slot: str
    version: int | None = None
    storage: int | None = None
    offset: int | None = None
    dtype: str
    shape: tuple[int, ...] | None = None
    stride: tuple[int, ...] | None = None
    device: str | None = None
    layout: str | None = None
    tensor_class: str | None = None
    role: str | None = None
    tensor_name: str | None = None
    requires_grad: bool | None = None
    partial: bool | None = None
    size: int | None = None
    nan: int | None = None
    pos_inf: int | None = None
    neg_inf: int | None = None
    zero: int | None = None
    neg: int | None = None
    pos: int | None = None
    near_limit: int | None = None
    min: float | None = None
    max: float | None = None
    mean: float | None = None
    l2norm: float | None = None
    min_int: int | None = None
    max_int: int | None = None
    digest: int | None = None
    sample: tuple[float, ...] | None = None
    value: ValueRef | None = None


class Stack(msgspec.Struct, frozen=True, kw_only=True):
    """One interned Python stack, innermost frame first; each frame is "/full/path/file.py:42 in
    function".
    """

    process: int
    stack: int
    frames: tuple[str, ...]


class Judgement(msgspec.Struct, frozen=True, kw_only=True):
    """A verdict reached while the program ran (opscope run --check)."""

    process: int
    index: int
    kind: str
    substitute: str | None = None
    error: float | None = None
    tolerance: float | None = None
    sample: str | None = None


class Process(msgspec.Struct, frozen=True, kw_only=True):
    """One process of a run, as its process.json says."""

    process: int
    directory: str
    host: str | None = None
    pid: int | None = None
    parent: int | None = None
    argv: tuple[str, ...] = ()
    rank: int = 0
    local_rank: int | None = None
    world: int | None = None
    exit_code: int | None = None
    signal: int | None = None
    # the exception that ended the program since nobody caught it, and the user's own line
    uncaught: str | None = None
    start: float | None = None
    environment: dict[str, str] = {}
    packages: dict[
        str, str
    ] = {}  # version by name of what it could import; in run.json once the run is sealed
    # seconds the program waited for the disk, known when the process closed
    waited: float | None = None
    rows: dict[str, int] = {}  # rows by table that it left on disk, known when the process closed
    # time with recording / time without, as the recorder measured its own share
    overhead: float | None = None
    hidden_calls: int = 0  # operators inside compiled graphs, which nobody could see
    failed: str | None = None  # why recording ended before the process did
    # how many calls could not be recorded, and the first of them with the reason
    missed: str | None = None
    unkept: int = 0  # values that there was no memory for
    steps: int | None = None  # that ended; the last call of an inference loop did
    # seconds without a new call before it was stopped, known where somebody stopped it
    idle: float | None = None
    skipped_steps: tuple[int, ...] = ()  # those whose optimizer GradScaler skipped
    checked: dict[
        str, Any
        # with --check: calls, checked, signatures, what it took, budget, verdicts, unjudged
        # (docs/check.md)
    ] = {}
    substituted: dict[
        str, Any
    ] = {}  # with --substitute: calls by operator, and those that could not be, with the reason
    torch: dict[
        str, Any
    ] = {}  # flags: torch's settings by name, autocast: where it was on (docs/store.md)


Row = Call | Tensor | Stack | Judgement

CALL_TYPES: dict[str, str] = {
    "process": "int32",
    "rank": "int32",
    "step": "int32",
    "index": "int64",
    "level": "string",
    "parent": "int64",
    "phase": "string",
    "op": "string",
    "module": "string",
    "name": "string",
    "forward_index": "int64",
    "autograd_thread": "int64",
    "autograd_sequence": "int64",
    "stack": "int32",
    "source": "string",
    "args": "string",
    "task": "int64",
    "stream": "int64",
    "context": "int64",
    "thread": "int64",
    "device": "string",
    "status": "int64",
    "error": "string",
    "again": "int64",
}
TENSOR_TYPES: dict[str, str] = {
    "process": "int32",
    "index": "int64",
    "io": "string",
    "slot": "string",
    "version": "int64",
    "storage": "int64",
    "offset": "int64",
    "dtype": "string",
    "shape": "list<int64>",
    "stride": "list<int64>",
    "device": "string",
    "layout": "string",
    "tensor_class": "string",
    "role": "string",
    "tensor_name": "string",
    "requires_grad": "bool",
    "partial": "bool",
    "size": "int64",
    "nan": "int64",
    "pos_inf": "int64",
    "neg_inf": "int64",
    "zero": "int64",
    "neg": "int64",
    "pos": "int64",
    "near_limit": "int64",
    "min": "float64",
    "max": "float64",
    "mean": "float64",
    "l2norm": "float64",
    "min_int": "int64",
    "max_int": "int64",
    "digest": "uint64",
    "sample": "list<float32>",
    "value": "struct<shard:string,key:string>",
}
STACK_TYPES: dict[str, str] = {"process": "int32", "stack": "int32", "frames": "list<string>"}
JUDGEMENT_TYPES: dict[str, str] = {
    "process": "int32",
    "index": "int64",
    "kind": "string",
    "substitute": "string",
    "error": "float64",
    "tolerance": "float64",
    "sample": "string",
}
PROCESS_TYPES: dict[str, str] = {
    "process": "int32",
    "directory": "string",
    "host": "string",
    "pid": "int64",
    "parent": "int64",
    "argv": "list<string>",
    "rank": "int32",
    "local_rank": "int32",
    "world": "int32",
    "exit_code": "int32",
    "signal": "int32",
    "uncaught": "string",
    "start": "float64",
    "waited": "float64",
    "overhead": "float64",
    "hidden_calls": "int64",
    "steps": "int64",
    "skipped_steps": "list<int64>",
}

TABLES: dict[str, dict[str, str]] = {
    "calls": CALL_TYPES,
    "tensors": TENSOR_TYPES,
    "stacks": STACK_TYPES,
    "judgements": JUDGEMENT_TYPES,
}
RECORDS: dict[str, type[msgspec.Struct]] = {
    "calls": Call,
    "tensors": Tensor,
    "stacks": Stack,
    "judgements": Judgement,
}


def dense_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Strides, in elements, of a tensor without gaps whose rows follow one another."""
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))
