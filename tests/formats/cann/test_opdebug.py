# SPDX-License-Identifier: Apache-2.0
"""Overflow records: both forms, every unit, the documented JSON, status bits in words, hostile
bytes.
"""

from __future__ import annotations

import json
import struct

import pytest
from cann_dumps import classic_record, modern_record
from hypothesis import given, settings
from hypothesis import strategies as st

from opscope.errors import FormatError
from opscope.formats import opdebug

# The sample of CANN's documentation, key by key.
SAMPLE = {
    "DHA Atomic Add": {"model_id": 0, "stream_id": 0, "task_id": 0, "task_type": 0,
        "pc_start": "0x0", "para_base": "0x0", "status": 0}, "L2 Atomic Add": {"model_id": 0,
        "stream_id": 0, "task_id": 0, "task_type": 0, "pc_start": "0x0", "para_base": "0x0",
        "status": 0},
    "AI Core": {
        "model_id": 514, "stream_id": 563, "task_id": 57, "task_type": 0,
        "pc_start": "0x1008005b0000",
        "para_base": "0x100800297000", "kernel_code": "0x1008005ae000", "block_idx": 1,
        "status": 32,
    },
}  # fmt: skip


def test_the_documented_sample() -> None:
    record = opdebug.decode(classic_record(), "f")
    assert record.document == SAMPLE
    assert json.dumps(record.document) == json.dumps(SAMPLE)  # the order of keys too
    (unit,) = [unit for unit in record.units if unit.overflowed]
    assert (unit.name, unit.task, unit.stream, unit.context, unit.bits) == (
        "AI Core",
        57,
        563,
        None,
        0x20,
    )
    assert unit.words == ("floating-point overflow",)


def test_272_is_an_integer_overflow_and_one_of_a_conversion() -> None:
    unit = opdebug.decode(classic_record(status=272), "f").units[2]
    assert unit.bits == 0x110
    assert unit.words == (
        "integer add, sub, mul or mac overflow",
        "overflow in a conversion of float32 or int32 to float16",
    )


@pytest.mark.parametrize(
    ("kind", "version", "length", "status"),
    [
        (0, 0, 88, 32),
        (1, 0, 88, 0x400),
        (2, 0, 64, 1),
        (3, 0, 80, 7),
        (0, 1, 112, [32, 0, 0, 1]),
        (1, 1, 112, [0, 5, 0, 0]),
    ],
)
def test_records_with_a_magic_number(
    kind: int, version: int, length: int, status: int | list[int]
) -> None:
    fields = {
        "model_id": 1,
        "stream_id": 2,
        "task_id": 3,
        "task_type": 4,
        "context_id": 5,
        "thread_id": 6,
    }
    names = {
        0: ("pc_start", "para_base", "core_id", "block_id"),
        2: ("cpu_id",),
        3: ("src_addr", "dst_addr", "channel_id"),
    }
    more = dict.fromkeys(names[0 if kind == 1 else kind], 0x1F)
    record = opdebug.decode(
        modern_record(kind, version=version, status=status, **fields, **more), "f"
    )
    document = record.document
    assert (document["magic"], document["version"]) == ("0x5a5a5a5a", version)
    body = document["acc_list"]
    unit = ("AIC", "AIV", "AICPU", "SDMA")[kind]
    assert list(body) == ["valid", "acc_type", "rsv", "data_len", "data"]
    assert (body["valid"], body["acc_type"], body["data_len"]) == (1, unit, length)
    hexed = {
        name: hex(value) if name in ("pc_start", "para_base", "src_addr", "dst_addr") else value
        for name, value in more.items()
    }
    assert body["data"] == fields | hexed | {"status": status}
    assert list(body["data"])[-1] == "status"
    (said,) = record.units
    assert (said.name, said.task, said.stream, said.context, said.thread) == (unit, 3, 2, 5, 6)
    assert said.status == (tuple(status) if isinstance(status, list) else (status,))


@pytest.mark.parametrize(
    ("dha", "l2", "bits", "words"),
    [
        (0x900, 0, 0x20, ("overflow",)),
        (0xA00, 0, 0, ("underflow",)),
        (0xB00, 0, 0, ("the source is NaN",)),
        (0xD00, 0, 0, ("source and destination are NaN",)),
        (0x100, 0, 0x20, ("overflow; the meaning of status 0x100 is not published",)),
        (0, 0x10000, 0x20, ("overflow",)),
        (0, 0x20000, 0, ("underflow",)),
        (0, 0x40000, 0, ("the destination is NaN",)),
    ],
)
def test_atomic_codes(dha: int, l2: int, bits: int, words: tuple[str, ...]) -> None:
    units = opdebug.decode(classic_record(status=0, dha=dha, l2=l2), "f").units
    (unit,) = [unit for unit in units if unit.overflowed]
    assert unit.name == ("DHA Atomic Add" if dha else "L2 Atomic Add")
    assert (unit.bits, unit.words) == (bits, words)
    assert (unit.task, unit.stream) == (57, 563)


def test_status_of_other_units_is_an_overflow_of_unknown_kind() -> None:
    unit = opdebug.decode(modern_record(3, status=5), "f").units[0]
    assert unit.bits == 0x20
    assert unit.words == ("overflow; the meaning of status 0x5 is not published",)


def test_undocumented_core_bits_are_still_an_overflow() -> None:
    assert opdebug.decode(classic_record(status=0x2000), "f").units[2].bits == 0x20
    assert opdebug.decode(classic_record(status=0x2020), "f").units[2].bits == 0x20


def test_no_status_is_no_overflow() -> None:
    assert not any(unit.overflowed for unit in opdebug.decode(bytes(2048), "f").units)
    assert opdebug.decode(modern_record(0, status=0), "f").units[0].bits == 0


def test_a_record_that_says_it_is_not_valid() -> None:
    assert not opdebug.decode(modern_record(0, valid=0, status=32), "f").valid


def test_a_unit_nobody_documented() -> None:
    record = bytearray(modern_record(0))
    struct.pack_into("<I", record, 12, 4)
    with pytest.raises(
        opdebug.UnknownUnitError, match="f at byte 112: an overflow record of unit 4"
    ):
        opdebug.decode(bytes(record), "f", offset=100)


@pytest.mark.parametrize("size", [0, 7, 8, 23, 24, 100, 2047, 2049])
def test_other_sizes_are_refused(size: int) -> None:
    with pytest.raises(FormatError):
        opdebug.decode(bytes(size), "f")
    if 8 <= size <= 100:
        with pytest.raises(FormatError, match="ends inside"):
            opdebug.decode(modern_record(0, size=0)[:size], "f")


@given(st.binary(max_size=200), st.sampled_from([b"", struct.pack("<I", opdebug.MAGIC)]))
@settings(max_examples=300)
def test_any_bytes(tail: bytes, head: bytes) -> None:
    try:
        record = opdebug.decode(head + tail, "f")
    except FormatError:
        return
    json.dumps(record.document)
    assert all(unit.bits >= 0 and isinstance(unit.words, tuple) for unit in record.units)


@given(st.binary(min_size=2048, max_size=2048))
@settings(max_examples=50)
def test_any_classic_record(content: bytes) -> None:
    document = opdebug.decode(content, "f").document
    assert list(document) in (
        ["DHA Atomic Add", "L2 Atomic Add", "AI Core"],
        ["magic", "version", "acc_list"],
    )


@pytest.mark.parametrize(
    ("task", "stream", "context", "thread", "same"),
    [
        (5, 6, 7, 1, True),
        (5, 6, 7, 0, False),
        (5, 6, 8, 1, False),
        (5, 7, 7, 1, False),
        (4, 6, 7, 1, False),
        (5, None, 7, 1, True),  # names without a stream say less
        (None, 6, 7, 1, False),
        (5, 6, None, None, False),
    ],
)
def test_whose_record_it_is(
    task: int | None, stream: int | None, context: int | None, thread: int | None, same: bool
) -> None:
    unit = opdebug.Unit(name="AIC", task=5, stream=6, context=7, thread=1)
    assert opdebug.same_task(unit, task, stream, context, thread) is same
    assert opdebug.same_task(opdebug.Unit(name="AIC", task=5, stream=6), 5, 6, context, thread)


def test_65535_is_not_a_number() -> None:
    record = modern_record(0, task_id=5, stream_id=6, context_id=65535, thread_id=65535, status=32)
    unit = opdebug.decode(record, "f").units[0]
    assert (unit.context, unit.thread) == (None, None)


def test_a_record_can_be_written() -> None:
    record = opdebug.encode(task=7, stream=8, status=0x120, model=9)
    unit = opdebug.decode(record, "f").units[2]
    assert (unit.task, unit.stream, unit.bits) == (7, 8, 0x120)
    assert opdebug.decode(record, "f").document["AI Core"]["model_id"] == 9
