# SPDX-License-Identifier: Apache-2.0
"""Overflow records of Ascend devices: the payload of an Opdebug dump file -> units, status words,
and the documented JSON.

    2048 bytes  u64s; at 0 DHA Atomic Add, at 128 L2 Atomic Add, at 256 AI Core: model_id,
                stream_id, task_id, task_type,
                 pc_start, para_base; at 512 and 768 the status of the first two; at 1024
                 kernel_code, block_idx, status of AI Core
    0x5A5A5A5A  u32 magic, version, valid, acc_type, rsv, data_len; from byte 24 the u64 fields of
                the unit that acc_type names;
                 in version 1 the status of AIC and AIV is four u64

All little-endian. Task and stream in the payload are the culprit's; those in the file's name are
the debug task's. Meaning of the
AI Core status: CANN's documentation. Atomic codes: the published precision tool. What other units'
status bits mean is not published; more than zero means overflow.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import msgspec

from opscope.errors import FormatError

if TYPE_CHECKING:
    from os import PathLike

MAGIC = 0x5A5A5A5A
CLASSIC_SIZE = 2048
UNKNOWN_ID = 65535
FLOAT_OVERFLOW = 0x20
_CLASSIC = ("model_id", "stream_id", "task_id", "task_type", "pc_start", "para_base")
CLASSIC_UNITS = ("DHA Atomic Add", "L2 Atomic Add", "AI Core")
_PLACE = ("model_id", "stream_id", "task_id", "task_type", "context_id")
_FIELDS = {
    "AIC": (*_PLACE, "thread_id", "pc_start", "para_base", "core_id", "block_id", "status"),
    "AICPU": (*_PLACE, "cpu_id", "thread_id", "status"),
    "SDMA": (*_PLACE, "thread_id", "src_addr", "dst_addr", "channel_id", "status"),
}
_FIELDS["AIV"] = _FIELDS["AIC"]
_UNITS = ("AIC", "AIV", "AICPU", "SDMA")
_HEX = frozenset(("pc_start", "para_base", "kernel_code", "src_addr", "dst_addr"))
_HEAD = struct.Struct("<6I")
_STATUS_WORDS = 4

CORE_WORDS = {
    0x8: "negation of the most negative signed integer",
    0x10: "integer add, sub, mul or mac overflow",
    0x20: "floating-point overflow",
    0x80: "negative floating-point value converted to unsigned",
    0x100: "overflow in a conversion of float32 or int32 to float16",
    0x400: "overflow in the accumulation of a matrix product",
}
_CORE_UNITS = frozenset(("AI Core", "AIC", "AIV"))
# Code in the status of each atomic unit -> what happened, and its bit in the vocabulary of the AI
# Core's status.
_ATOMIC = {
    "DHA Atomic Add": (
        8,
        0xFF,
        {
            0x9: ("overflow", FLOAT_OVERFLOW),
            0xA: ("underflow", 0),
            0xB: ("the source is NaN", 0),
            0xC: ("the destination is NaN", 0),
            0xD: ("source and destination are NaN", 0),
        },
    ),
    "L2 Atomic Add": (
        16,
        0x7,
        {
            1: ("overflow", FLOAT_OVERFLOW),
            2: ("underflow", 0),
            3: ("the source is NaN", 0),
            4: ("the destination is NaN", 0),
            5: ("source and destination are NaN", 0),
        },
    ),
}


class UnknownUnitError(FormatError):
    """A record of a unit no documentation names."""


class Unit(msgspec.Struct, frozen=True, kw_only=True):
    """What one unit reported; None where an identifier is 65535 or the unit has none. status is one
    word or four.
    """

    name: str
    task: int | None
    stream: int | None
    context: int | None = None
    thread: int | None = None
    status: tuple[int, ...] = ()

    @property
    def overflowed(self) -> bool:
        return any(self.status)

    @property
    def bits(self) -> int:
        """Overflow bits in the vocabulary of the AI Core's status; 0 for what is no overflow
        (underflow, NaN that came in).
        """
        return _bits(self.name, self.status)

    @property
    def words(self) -> tuple[str, ...]:
        """What the status says, one text for each thing."""
        return _words(self.name, self.status)


class OverflowRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One Opdebug payload: the units that have something to report, and the whole as the documented
    JSON object.
    """

    units: tuple[Unit, ...]
    document: dict[str, Any]
    valid: bool = True


def decode(payload: bytes, path: str | PathLike[str], *, offset: int = 0) -> OverflowRecord:
    """The record in an Opdebug payload. Raises FormatError (UnknownUnitError for a unit nobody
    documented).
    """
    if len(payload) >= 8 and struct.unpack_from("<I", payload)[0] == MAGIC:
        return _modern(payload, path, offset)
    if len(payload) != CLASSIC_SIZE:
        raise FormatError(
            path,
            f"an overflow record has 2048 bytes or a magic number; these {len(payload)} have "
            "neither",
            offset=offset,
        )
    return _classic(payload)


def _classic(payload: bytes) -> OverflowRecord:
    document: dict[str, Any] = {}
    for name, start in zip(CLASSIC_UNITS, (0, 128, 256), strict=True):
        document[name] = _hexed(
            dict(zip(_CLASSIC, struct.unpack_from("<6Q", payload, start), strict=True))
        )
    document["DHA Atomic Add"]["status"] = struct.unpack_from("<Q", payload, 512)[0]
    document["L2 Atomic Add"]["status"] = struct.unpack_from("<Q", payload, 768)[0]
    code, block, status = struct.unpack_from("<3Q", payload, 1024)
    document["AI Core"] |= {"kernel_code": hex(code), "block_idx": block, "status": status}
    return OverflowRecord(
        units=tuple(_unit(name, fields) for name, fields in document.items()), document=document
    )


def _modern(payload: bytes, path: str | PathLike[str], offset: int) -> OverflowRecord:
    if len(payload) < _HEAD.size:
        raise FormatError(
            path, "the overflow record ends inside its head", offset=offset + len(payload)
        )
    magic, version, valid, kind, rsv, length = _HEAD.unpack_from(payload)
    if kind >= len(_UNITS):
        raise UnknownUnitError(
            path,
            f"an overflow record of unit {kind}; known are 0 to {len(_UNITS) - 1}",
            offset=offset + 12,
        )
    name = _UNITS[kind]
    four = version == 1 and name in ("AIC", "AIV")
    fields = _FIELDS[name]
    count = len(fields) + (_STATUS_WORDS - 1 if four else 0)
    if len(payload) < _HEAD.size + 8 * count:
        raise FormatError(
            path,
            f"the overflow record of {name} ends inside its data",
            offset=offset + len(payload),
        )
    values = struct.unpack_from(f"<{count}Q", payload, _HEAD.size)
    data: dict[str, Any] = dict(zip(fields, values[: len(fields)], strict=True))
    if four:
        data["status"] = list(values[len(fields) - 1 :])
    data = _hexed(data)
    body = {"valid": valid, "acc_type": name, "rsv": rsv, "data_len": length, "data": data}
    document = {"magic": hex(magic), "version": version, "acc_list": body}
    return OverflowRecord(units=(_unit(name, data),), document=document, valid=valid == 1)


def encode(*, task: int, stream: int, status: int, model: int = 0) -> bytes:
    """A 2048-byte record of an AI Core that overflowed in this task; decode gives the same back."""
    record = bytearray(CLASSIC_SIZE)
    struct.pack_into("<4Q", record, 256, model, stream, task, 0)
    struct.pack_into("<3Q", record, 1024, 0, 0, status)
    return bytes(record)


def _hexed(fields: dict[str, Any]) -> dict[str, Any]:
    return {key: hex(value) if key in _HEX else value for key, value in fields.items()}


def _unit(name: str, fields: dict[str, Any]) -> Unit:
    status = fields["status"]
    if not all(
        isinstance(word, int) for word in (status if isinstance(status, list) else (status,))
    ):
        raise TypeError("status")
    return Unit(
        name=str(name),
        task=_id(fields["task_id"]),
        stream=_id(fields["stream_id"]),
        context=_id(fields.get("context_id")),
        thread=_id(fields.get("thread_id")),
        status=tuple(status) if isinstance(status, list) else (status,),
    )


def _id(value: int | None) -> int | None:
    if value is not None and not isinstance(value, int):
        raise TypeError("an identifier")
    return None if value is None or value == UNKNOWN_ID or value >= 1 << 63 else value


def _bits(name: str, status: tuple[int, ...]) -> int:
    if not any(status):
        return 0
    if name in _CORE_UNITS:
        known = status[0] & sum(CORE_WORDS)
        return known or FLOAT_OVERFLOW
    if name in _ATOMIC:
        shift, mask, codes = _ATOMIC[name]
        return codes.get(status[0] >> shift & mask, ("", FLOAT_OVERFLOW))[1]
    return FLOAT_OVERFLOW


def _words(name: str, status: tuple[int, ...]) -> tuple[str, ...]:
    if not any(status):
        return ()
    words: list[str] = []
    if name in _CORE_UNITS:
        words = [word for bit, word in CORE_WORDS.items() if status[0] & bit]
    elif name in _ATOMIC:
        shift, mask, codes = _ATOMIC[name]
        code = status[0] >> shift & mask
        words = [codes[code][0]] if code in codes else []
    return tuple(words) or (
        f"overflow; the meaning of status {', '.join(map(hex, status))} is not published",
    )


def same_task(
    unit: Unit, task: int | None, stream: int | None, context: int | None, thread: int | None
) -> bool:
    """Whether a dump of this task, stream, context and thread is of the operator a unit reports.

    Context and thread are compared where the record has them; a stream, where the dump's name has
    one.
    """
    if task is None or unit.task != task or (stream is not None and unit.stream != stream):
        return False
    return all(
        own is None or own == other
        for own, other in ((unit.context, context), (unit.thread, thread))
    )
