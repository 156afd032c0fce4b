# SPDX-License-Identifier: Apache-2.0
"""case.json of a repro folder: one call, the tensors it reads, what it gave, and how it failed.

This record is what every tool of this room works on: `build` makes it from a run, a form (torch
here) turns it into a script, the runner executes that script, a minimiser loads it, changes it and
saves it again. The script reads the same file, so a field is added only with a value that older
scripts may ignore; a change of meaning raises VERSION.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import msgspec

from opscope.errors import FormatError, NewerFormatError

VERSION = 1
FILE = "case.json"
LIMIT = 64 << 20
FAILURES = (
    "nonfinite",
    "integer-overflow",
    "saturation",
    "mismatch",
    "memory",
    "exception",
    "crash",
    "hang",
    "none",
)


class Buffer(msgspec.Struct, frozen=True, kw_only=True):
    """A piece of memory that tensors look at: size elements of dtype, or size bytes where they
    differ in type.
    """

    size: int
    dtype: str | None = None


class CaseTensor(msgspec.Struct, frozen=True, kw_only=True):
    """One tensor the call reads: shape, stride and offset in elements, offset counted from the
    start of its buffer.

    key names its elements in inputs.safetensors, stored densely with shape kept: dimensions of
    stride 0 appear once. Several tensors may share a key. values says where the elements are from:
    "recorded", "exact" (implied by the statistics), "synthesised" (invented to fit them),
    "uninitialised" (zeros stand for memory nobody had written).
    """

    slot: str
    dtype: str
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int
    buffer: str
    device: str
    key: str | None
    kept: tuple[int, ...]
    values: str = "recorded"
    requires_grad: bool = False
    layout: str | None = None
    role: str | None = None
    tensor_name: str | None = None
    stats: dict[str, Any] = {}


class CaseOutput(msgspec.Struct, frozen=True, kw_only=True):
    """One tensor the call wrote, as it was recorded; key names its elements in
    expected.safetensors.
    """

    slot: str
    dtype: str
    shape: tuple[int, ...]
    device: str
    key: str | None = None
    stats: dict[str, Any] = {}


class RaisedError(msgspec.Struct, frozen=True):
    """Class and text of the exception that ended the call."""

    type: str
    text: str


class Witness(msgspec.Struct, frozen=True, kw_only=True):
    """One element that a check found wrong, for these very inputs: what it was, what it is in
    truth, and how far from that it may be; numbers as Python writes them.
    """

    slot: str
    element: tuple[int, ...]
    recorded: str
    true: str
    tolerance: float | None = None


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """What was wrong with the call. kind is one of FAILURES; outputs: classes of non-finite values
    by output slot.

    A mismatch is an output that is wrong and says nothing: outputs names the slots that are judged,
    all when it is empty, and witnesses what a check knows that no kernel of this machine may give.
    Memory: an argument was changed that is only read, or a result lies
    elsewhere than the schema says.
    """

    kind: str
    outputs: dict[str, tuple[str, ...]] = {}
    error: RaisedError | None = None
    status: str | None = None
    witnesses: tuple[Witness, ...] = ()


class Allowed(msgspec.Struct, frozen=True, kw_only=True):
    """How far a right result may be from the true one: judge.tolerance's of this call, for one side
    that errs.
    """

    absolute: float
    relative: float
    scaled: float
    own: str


class Randomness(msgspec.Struct, frozen=True, kw_only=True):
    """State of generators before the call: name -> key of a uint8 tensor in inputs.safetensors.

    Names are "cpu", "cuda", "npu" and "xpu" for the default generators, "generator:cpu" for one
    that was handed over. A run keeps them for calls whose values it keeps; without one the script
    counts seeds from 0 and says so.
    """

    states: dict[str, str] = {}


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """One call, complete enough to be made again. args is the argument tree of docs/schema.md,
    column args.

    level is "kernel", or "api" for the user's function with its backward pass. autocast is the
    element type of one that was on. device is the recorded one; run_on and run_as are device and
    element type the writer was asked to use instead. limit is how many seconds the call may take
    before it counts as hanging, where a search has found that out. allowed is by element type of an
    output.
    """

    version: int = VERSION
    form: str = "torch"
    level: str = "kernel"
    op: str
    call: str
    rank: int = 0
    step: int = 0
    index: int = 0
    phase: str = "forward"
    module: str | None = None
    source: str | None = None
    forward: str | None = None
    device: str = "cpu"
    run_on: str | None = None
    run_as: str | None = None
    args: dict[str, Any]
    buffers: dict[str, Buffer]
    tensors: tuple[CaseTensor, ...]
    outputs: tuple[CaseOutput, ...]
    failure: Failure
    random: Randomness = Randomness()
    imports: tuple[str, ...] = ()
    flags: dict[str, bool] = {}
    autocast: str | None = None
    limit: float | None = None
    allowed: dict[str, Allowed] = {}
    environment: dict[str, Any] = {}
    warnings: tuple[str, ...] = ()


def encode_case(case: Case) -> bytes:
    """case.json: indented, numbers that are not finite as the strings "nan", "inf", "-inf"."""
    return (
        msgspec.json.format(msgspec.json.encode(plain(msgspec.to_builtins(case))), indent=1) + b"\n"
    )


def plain(value: Any) -> Any:
    """The same tree with every float that JSON lacks as a string, and text that UTF-8 lacks (lone
    surrogates) escaped.
    """
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value


def read_case(directory: Path) -> Case:
    """The case of a repro folder; FormatError when it is not one, NewerFormatError for one of a
    later opscope.
    """
    path = directory / FILE
    try:
        if path.stat().st_size > LIMIT:
            raise FormatError(
                path, f"is larger than {LIMIT >> 20} MiB; not a case that opscope wrote"
            )
        content = path.read_bytes()
    except OSError as error:
        raise FormatError(
            path, f"cannot be read ({error.strerror}); give a folder that opscope repro wrote"
        ) from error
    try:
        head = msgspec.json.decode(content)
        version = head.get("version") if isinstance(head, dict) else None
        if isinstance(version, int) and version > VERSION:
            raise NewerFormatError(
                path, f"has version {version}, this opscope reads up to {VERSION}; update opscope"
            )
        return msgspec.convert(head, Case)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise FormatError(
            path, f"is not a case: {error}; write the folder anew with opscope repro"
        ) from error
