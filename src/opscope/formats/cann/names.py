# SPDX-License-Identifier: Apache-2.0
"""What the names of CANN dump files and of the directories around them say.

    {op_type}.{op_name}.{task}[.{stream}].{timestamp}             an operator
    … .{task_type}.{context}.{thread}.{device}             appended for FFTS+ sub-tasks
    aclnn{Api}….{op_type}.…                                single operators: the call's name comes
                                                           first
    exception_info.{stream}.{task}.{timestamp}             arguments of a failed kernel, nothing
                                                           else known
    {name}.custom.{timestamp}                              saved by acldumpSaveExceptionInfo
    Opdebug.Node_OpDebug.{task}[.{stream}].{timestamp}[…]  overflow record; any capitals, one or
                                                           both halves

    {time}/{device}/{model}/{model_id}/{step}/…              directories; {time} is YYYYmmddHHMMSS
    {step}/{time}/{device}/…  and  {time}/{device}/…         the user's step above; single operators
    rank_{rank}/…                                            MindSpore's

Names too long for the file system are stored under a number, which mapping.csv beside them gives
back.
"""

from __future__ import annotations

import csv
import re
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable

UNKNOWN_ID = 65535
MAPPING = "mapping.csv"
MAX_MAPPING = 64 << 20
# Files that lie beside dump files and are none.
COMPANIONS = frozenset(
    (
        ".csv",
        ".json",
        ".o",
        ".cce",
        ".txt",
        ".log",
        ".npy",
        ".npz",
        ".pt",
        ".bin",
        ".core",
        ".ir",
        ".pb",
        ".pbtxt",
        ".html",
    )
)
_MAX_DIGITS = 255
_UNUSUAL = ("aclnn", "O", "o", *"0123456789")  # what begins like this may need another reading
_OPDEBUG = re.compile(r"(?i:opdebug\.node_opdebug)\.")
_TIME = re.compile(r"\d{14}")
_USUAL = re.compile(r"([^.]+)\.([^.]+)\.(\d{1,18})\.(\d{1,18})\.(\d{1,18})", re.ASCII)
_SLICE = re.compile(r"_lxslice(\d+)$")
_SGT = re.compile(r".*?sgt_graph_\d+_")


class DumpName(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The parts of a dump file's name; None where the name does not say or says 65535.

    timestamp is the number in the name: microseconds since the epoch, or local YYYYmmddHHMMSSmmm.
    """

    op_type: str
    op_name: str
    task: int | None = None
    stream: int | None = None
    timestamp: int = 0
    task_type: int | None = None
    context: int | None = None
    thread: int | None = None
    device: int | None = None
    opdebug: bool = False
    exception: bool = False
    aclnn: bool = False


class Place(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What the directories above a dump file say; None where they do not."""

    time: str | None = None
    device: int | None = None
    rank: int | None = None
    model: str | None = None
    model_id: int | None = None
    step: int | None = None


def is_opdebug(name: str) -> bool:
    """Whether a base name is one of the spellings of an overflow record's."""
    return _OPDEBUG.match(name) is not None


def parse(name: str) -> DumpName | None:
    """Parts of a base name, or None when it is not the name of a dump file."""
    usual = _USUAL.fullmatch(name)
    if usual is not None:  # by far the most, and so by the quickest way
        op_type, op_name, task, stream, time = usual.groups()
        if not op_type.startswith(_UNUSUAL):
            return DumpName(
                op_type=op_type,
                op_name=op_name,
                task=_id(int(task)),
                stream=_id(int(stream)),
                timestamp=int(time),
            )
    fields = name.split(".")
    if f".{fields[-1].lower()}" in COMPANIONS:
        return None
    numbers = 0
    while numbers < len(fields) and _is_number(fields[-1 - numbers]):
        numbers += 1
    tail = [int(field) for field in fields[len(fields) - numbers :]]
    if fields[0] == "exception_info" and len(fields) == 4 and numbers == 3:
        return DumpName(
            op_type="exception_info",
            op_name="",
            stream=_id(tail[0]),
            task=_id(tail[1]),
            timestamp=tail[2],
            exception=True,
        )
    if numbers == 1 and len(fields) >= 3 and fields[-2] == "custom":
        return DumpName(
            op_type="custom", op_name=".".join(fields[:-2]), timestamp=tail[0], exception=True
        )
    if (
        not 4 <= len(fields) <= 9
        or numbers < len(fields) - 2
        or not all(fields[:2])
        or _is_number(fields[0])
    ):
        return None
    return _operator(fields[:2], tail[-(len(fields) - 2) :], opdebug=is_opdebug(name))


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS


def _operator(words: list[str], tail: list[int], *, opdebug: bool) -> DumpName:
    """Name of an operator or overflow record: task, perhaps stream, timestamp, perhaps the four
    numbers of a sub-task.
    """
    ids, more = (tail[:3], tail[3:]) if len(tail) not in (2, 6) else (tail[:2], tail[2:])
    aclnn = words[0].startswith("aclnn") and not words[1].startswith("aclnn")
    op_type, op_name = (words[1], words[0]) if aclnn else (words[0], words[1])
    extra = (
        dict(zip(("task_type", "context", "thread", "device"), more, strict=False))
        if len(more) == 4
        else {}
    )
    return DumpName(
        op_type=op_type,
        op_name=op_name,
        task=_id(ids[0]),
        stream=_id(ids[1]) if len(ids) == 3 else None,
        timestamp=ids[-1],
        task_type=extra.get("task_type"),
        context=_id(extra.get("context")),
        thread=_id(extra.get("thread")),
        device=extra.get("device"),
        opdebug=opdebug,
        aclnn=aclnn,
    )


def _id(value: int | None) -> int | None:
    return None if value is None or value == UNKNOWN_ID or value >= 1 << 63 else value


def slice_number(op_name: str) -> int | None:
    """Number of the slice when the name is one of a manually cut FFTS+ operator."""
    match = _SLICE.search(op_name)
    return int(match[1][:9]) if match else None


def slice_base(op_name: str) -> str:
    """Name of the operator that a manually cut slice belongs to."""
    return _SGT.sub("", _SLICE.sub("", op_name), count=1)


def place(parents: Iterable[str]) -> Place:
    """Reads the directory names above a file, outermost first."""
    names = list(parents)
    rank = next(
        (
            int(name[5:])
            for name in reversed(names)
            if name.startswith("rank_") and _is_small(name[5:])
        ),
        None,
    )
    at = next((i for i in reversed(range(len(names))) if _TIME.fullmatch(names[i])), None)
    if at is None:
        step = int(names[-1]) if names and _is_small(names[-1]) else None
        return Place(rank=rank, step=step)
    below = names[at + 1 :]
    device = int(below[0]) if below and _is_small(below[0]) else None
    user_step = int(names[at - 1]) if at > 0 and _is_small(names[at - 1]) else None
    own_step = int(below[-1]) if len(below) >= 4 and _is_small(below[-1]) else None
    return Place(
        time=names[at],
        device=device,
        rank=rank,
        model=below[1] if len(below) > 1 else None,
        model_id=int(below[2]) if len(below) > 2 and _is_small(below[2]) else None,
        step=user_step if user_step is not None else own_step,
    )


def _is_small(text: str) -> bool:
    return _is_number(text) and len(text) <= 9


def read_mapping(directory: Path) -> dict[str, str]:
    """Stored name -> original name from a directory's mapping.csv, {} without one.

    Lines that are no pair of base names (a path in either, say) are left out.
    """
    path = directory / MAPPING
    try:
        if not path.is_file() or path.stat().st_size > MAX_MAPPING:
            return {}
        with path.open(encoding="utf-8", errors="surrogateescape", newline="") as file:
            rows = list(csv.reader(line.replace("\0", "") for line in file))
    except (OSError, csv.Error):
        return {}
    return {
        row[0].strip(): row[1].strip()
        for row in rows
        if len(row) >= 2 and _is_base(row[0]) and _is_base(row[1])
    }


def _is_base(name: str) -> bool:
    name = name.strip()
    return bool(name) and name not in (".", "..") and not set("/\\") & set(name)


def sanitised(name: str) -> str:
    """An operator's name as it stands in file names."""
    return re.sub(r"[ ./\\]", "_", name)


def stored_name(path: str) -> str:
    """Number under which the device writer stores a file whose name is too long: std::hash of
    libstdc++, in decimal.

    path is what the writer hashes: the whole path, or the base name, depending on the writer. The
    function is MurmurHash64A with seed 0xc70f6907, its tail read little-endian.
    """
    data = path.encode("utf-8", "surrogateescape")
    multiplier, mask = 0xC6A4A7935BD1E995, (1 << 64) - 1
    value = 0xC70F6907 ^ (len(data) * multiplier & mask)
    whole = len(data) & ~7
    for at in range(0, whole, 8):
        word = int.from_bytes(data[at : at + 8], "little") * multiplier & mask
        word = (word ^ word >> 47) * multiplier & mask
        value = (value ^ word) * multiplier & mask
    if len(data) > whole:
        value = (value ^ int.from_bytes(data[whole:], "little")) * multiplier & mask
    value = (value ^ value >> 47) * multiplier & mask
    return str(value ^ value >> 47)
