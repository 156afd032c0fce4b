# SPDX-License-Identifier: Apache-2.0
"""Names of the files in a MindSpore dump.

    {op_type}.{op_name}.{task}.{stream}.{timestamp}.{input|output}.{i}[.{slot}].{format}[.{dtype}].npy|bin
    {op_type}.{op_name}.json                                     kernel arguments (save_kernel_args)
    Opdebug.Node_OpDebug.{task}.{stream}.{timestamp}[.output.0.json]  overflow status, all spellings
    {op_type}.{op_name}.{task}.{stream}.{timestamp}  a CANN dump file (asynchronous dump,
                                                     file_format bin)

The document's template has two numbers after input/output, its sample and every file seen one; both
are read. Since 2.4 the element type stands at the end. In op_name "/", ".", "\\" and spaces are
"_".
"""

from __future__ import annotations

import re
from functools import lru_cache

import msgspec

from opscope.formats.cann import names
from opscope.formats.mindspore.attributes import short_dtype

_EARLIEST = 100_000  # a smaller number is no time
UNKNOWN_NUMBER = 65535  # "could not be had", for task and stream

_TENSOR = re.compile(
    r"(?P<type>[^.]+)\.(?P<name>.+)\.(?P<task>\d{1,18})\.(?P<stream>\d{1,18})\.(?P<time>\d{1,"
    r"18})\.(?P<io>input|output)\.(?P<index>\d{1,9})"
    r"(?:\.(?P<slot>\d{1,5}))?(?P<rest>(?:\.[A-Za-z_][\w-]*|\.\d+(?:x\d+)*)*)\.(?P<suffix>npy|bin)"
)
_OPDEBUG = re.compile(
    r"op_?debug\.node_op_?debug(?:\.\w+)*?\.(?P<task>\d{1,18})(?:\.(?P<stream>\d{1,"
    r"18}))?\.(?P<time>\d{6,18})(?:\.output\.\d+)?(?P<suffix>\.json)?",
    re.IGNORECASE,
)
_ARGUMENTS = re.compile(r"(?P<type>[^.]+)\.(?P<name>.+)\.json")
_FLAT = re.compile(r"[./\\ ]")


class TensorFile(msgspec.Struct, frozen=True):
    """One tensor's file: whose it is, which operand, when; dtype is the one in the name, which can
    be wrong (CPU back end).
    """

    file: str
    type: str
    name: str
    task: int
    stream: int
    time: int
    io: str
    index: int
    slot: int | None
    layout: str | None
    dtype: str | None
    suffix: str


class RawFile(msgspec.Struct, frozen=True):
    """A CANN dump file of a kernel, or an overflow file; its first two fields are type and name, or
    name and type for aclnn.
    """

    file: str
    type: str
    name: str
    task: int
    stream: int
    time: int


def parse_tensor_name(name: str, *, file: str | None = None) -> TensorFile | None:
    """What the name of an .npy or .bin says, None for another file; file is the real name where
    mapping.csv renamed it.
    """
    parts = _TENSOR.fullmatch(name)
    if parts is None:
        return None
    kind, op, task, stream, time, io, index, slot, rest, suffix = parts.groups()
    kind, op = type_first(kind, op)
    layout, dtype = _format_and_type(rest)
    return TensorFile(
        file or name,
        kind,
        op,
        int(task),
        int(stream),
        int(time),
        io,
        int(index),
        None if slot is None else int(slot),
        layout,
        dtype,
        suffix,
    )


def type_first(kind: str, name: str) -> tuple[str, str]:
    """Operator type and name; of aclnn kernels the name of the call comes first."""
    return (
        (name, kind) if kind.startswith("aclnn") and not name.startswith("aclnn") else (kind, name)
    )


@lru_cache(maxsize=1024)
def _format_and_type(rest: str) -> tuple[str | None, str | None]:
    """Format and element type out of ".DefaultFormat.Float32"; a shape, which msaccucmp writes
    there, is left out.
    """
    layout = dtype = None
    for part in rest.split(".")[1:]:
        if part[0].isdigit():
            continue
        known = short_dtype(part)
        if known is not None:
            dtype = known
        else:
            layout = part
    return layout, dtype


def parse_raw_name(name: str, *, file: str | None = None) -> RawFile | None:
    """What the name of a CANN dump file says (aclnn kernels have the call's name first), None for
    another file.
    """
    dumped = names.parse(name)
    if (
        dumped is None
        or dumped.opdebug
        or dumped.exception
        or not _EARLIEST <= dumped.timestamp < 1 << 63
    ):
        return None
    task, stream = (
        UNKNOWN_NUMBER if number is None else number for number in (dumped.task, dumped.stream)
    )
    return RawFile(file or name, dumped.op_type, dumped.op_name, task, stream, dumped.timestamp)


def parse_overflow_name(name: str) -> RawFile | None:
    """An overflow file, in any spelling (Opdebug.Node_OpDebug, OpDebug.Node_Opdebug, with and
    without stream).
    """
    parts = _OPDEBUG.fullmatch(name)
    if parts is None:
        return None
    return RawFile(
        name,
        "Opdebug",
        "Node_OpDebug",
        int(parts["task"]),
        int(parts["stream"] or UNKNOWN_NUMBER),
        int(parts["time"]),
    )


def parse_arguments_name(name: str) -> tuple[str, str] | None:
    """(op_type, op_name) of a kernel-arguments json."""
    parts = _ARGUMENTS.fullmatch(name)
    return (parts["type"], parts["name"]) if parts and parse_overflow_name(name) is None else None


def flat(name: str) -> str:
    """A full name as it stands in file names."""
    return _FLAT.sub("_", name)


def known_number(number: int) -> int | None:
    """A task or stream number, None for the 65535 that stands for unknown."""
    return None if number == UNKNOWN_NUMBER else number


def split_number(name: str) -> tuple[str, int | None]:
    """A name without its -opN, and N: "…/Conv2D-op12" gives ("…/Conv2D", 12); a count of ours
    behind it is left out.
    """
    scope, _, number = name.partition("#")[0].rpartition("-op")
    return (scope, int(number)) if scope and number.isdigit() and len(number) < 12 else (name, None)
