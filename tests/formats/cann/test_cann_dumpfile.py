# SPDX-License-Identifier: Apache-2.0
"""The three forms of dump files: real bytes, bytes by hand, and anything hypothesis can think of,
there and back.
"""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opscope.errors import FormatError
from opscope.formats.cann import dumpfile, nano
from opscope.formats.cann.message import (
    Attribute,
    BufferEntry,
    DimRange,
    DumpData,
    OriginalOp,
    Shape,
    SpaceEntry,
    TensorEntry,
)
from opscope.formats.cann.wire import Span

DATA = Path(__file__).parent / "data"
ADD = DATA / "Add.Default_Add-op0.1.2.1634155934514051"
CONCAT = DATA / "ConcatV2D.concatv2.0.0.550288648"


def tensor(nbytes: int, **more: object) -> TensorEntry:
    return TensorEntry(
        data_type=4,
        format=2,
        shape=Shape(dim=(nbytes,)),
        original_shape=Shape(dim=(nbytes,)),
        size=nbytes,
        **more,
    )  # type: ignore[arg-type]


def stored(
    tmp_path: Path, header: DumpData, payloads: list[bytes], **more: object
) -> dumpfile.DumpFile:
    path = tmp_path / "Op.op.1.2.3"
    dumpfile.write(path, header, payloads, **more)  # type: ignore[arg-type]
    return dumpfile.read(path)


def test_a_real_plain_file() -> None:
    file = dumpfile.read(ADD)
    assert (file.form, file.header.version, file.header.op_name) == (
        "plain",
        "2.0",
        "Default/Add-op0",
    )
    assert file.header.dump_time == 1634155934514051
    (output,) = file.header.output
    assert (output.data_type, output.format, output.size) == (2, 2, 4)
    assert output.shape == output.original_shape == Shape(dim=(2,))
    assert output.original_op is None
    np.testing.assert_array_equal(
        file.payload(0).view(np.float16), np.array([65504, 65504], np.float16)
    )


def test_a_real_nano_file_is_a_concatenation() -> None:
    file = dumpfile.read(CONCAT)
    assert file.form == "nano"
    first, second, output = (file.payload(index) for index in range(3))
    assert bytes(output) == bytes(first) + bytes(second)
    assert [entry.data_type for entry in file.header.entries()] == [2, 2, 2]  # GE's 1 is proto's 2
    assert file.header.output[0].original_op == OriginalOp(name="concatv2", data_type=2, format=1)


@pytest.mark.parametrize("path", [ADD, CONCAT], ids=lambda path: path.name)
def test_a_real_file_read_and_written_again_is_the_same_bytes(path: Path, tmp_path: Path) -> None:
    dumpfile.copy(dumpfile.read(path), tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == path.read_bytes()


def test_the_header_of_an_overflow_record_has_the_65_bytes_the_debugger_expects() -> None:
    output = TensorEntry(
        data_type=4,
        format=2,
        shape=Shape(dim=(2048,)),
        size=2048,
        original_shape=Shape(),
        original_op=OriginalOp(name="Node_OpDebug", data_type=4, format=2),
    )
    header = DumpData(
        version="2.0", dump_time=1634155934514051, output=(output,), op_name="Node_OpDebug"
    )
    (length,) = struct.unpack("<Q", dumpfile.parts(header, [bytes(2048)])[0])
    assert length == 65


@pytest.mark.parametrize("path", [ADD, CONCAT], ids=lambda path: path.name)
def test_sniffing_needs_no_name(path: Path, tmp_path: Path) -> None:
    copied = tmp_path / "x"
    copied.write_bytes(path.read_bytes())
    assert dumpfile.sniff(copied) == dumpfile.read(path).form


@pytest.mark.parametrize(
    "content",
    [b"", b"\x93NUMPY\x01\x00v\x00{'descr'", b"PK\x03\x04" + bytes(40), b"{}" * 20, bytes(64)],
)
def test_other_files_are_not_taken_for_dumps(content: bytes, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_bytes(content)
    assert dumpfile.sniff(other) is None
    with pytest.raises(FormatError):
        dumpfile.read(other)


def test_every_field_of_every_message_survives(tmp_path: Path) -> None:
    header = DumpData(
        version="2.0",
        dump_time=2**63 + 5,
        input=(tensor(3, address=2**64 - 1, offset=9, arg_index=4, input_type=7, sub_format=3),),
        output=(
            tensor(
                2,
                address=7,
                dim_range=(DimRange(dim_start=1, dim_end=2), DimRange()),
                original_op=OriginalOp(name="a/b"),
            ),
        ),
        buffer=(BufferEntry(buffer_type=0, size=1),),
        op_name="算子/op",
        attr=(Attribute(name="user_tag", value="x"), Attribute()),
        space=(SpaceEntry(type=0, size=2, arg_index=1),),
        dfx_message="[Dump][Exception] one\n",
    )
    file = stored(tmp_path, header, [b"abc", b"de", b"f", b"gh"])
    assert file.header == header
    assert [bytes(file.payload(index)) for index in range(4)] == [b"abc", b"de", b"f", b"gh"]


def test_inputs_lie_before_outputs_though_their_field_number_is_larger(tmp_path: Path) -> None:
    path = tmp_path / "Op.op.1.2.3"
    dumpfile.write(
        path, DumpData(version="2.0", output=(tensor(1),), input=(tensor(1),)), [b"i", b"o"]
    )
    assert path.read_bytes().endswith(b"io")


def test_negative_numbers_and_unknown_fields_are_kept_bit_for_bit(tmp_path: Path) -> None:
    unknown = b"\xa0\x06\x07" + b"\xaa\x06\x02hi" + b"\xad\x06abcd" + b"\xb1\x06abcdefgh"
    header = DumpData(
        version="2.0", output=(tensor(1, sub_format=-1, unknown=b"\xf8\x01\x01"),), unknown=unknown
    )
    file = stored(tmp_path, header, [b"x"])
    assert file.header == header
    dumpfile.copy(file, tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == Path(file.path).read_bytes()


def test_unpacked_dimensions_are_read(tmp_path: Path) -> None:
    shape = b"\x08\x02\x08\x03"  # dim twice, not packed
    output = b"\x08\x04\x1a" + bytes((len(shape),)) + shape + b"\x30\x06"
    head = b"\x0a\x032.0\x1a" + bytes((len(output),)) + output
    path = tmp_path / "Op.op.1.2.3"
    path.write_bytes(struct.pack("<Q", len(head)) + head + b"abcdef")
    assert dumpfile.read(path).header.output[0].shape == Shape(dim=(2, 3))


def test_a_null_address_has_a_size_but_no_bytes(tmp_path: Path) -> None:
    header = DumpData(
        version="2.0",
        input=(tensor(4, address=0), tensor(3, address=64)),
        output=(tensor(2, address=128),),
    )
    file = stored(tmp_path, header, [b"", b"abc", b"de"])
    assert [file.whole(index) for index in range(3)] == [False, True, True]
    assert [bytes(file.payload(index)) for index in range(3)] == [b"", b"abc", b"de"]


def test_without_addresses_a_short_file_is_a_torn_one(tmp_path: Path) -> None:
    file = stored(tmp_path, DumpData(version="2.0", input=(tensor(4), tensor(4))), [b"abcd", b"ef"])
    assert [bytes(file.payload(index)) for index in range(2)] == [b"abcd", b"ef"]
    assert [file.whole(index) for index in range(2)] == [True, False]


def test_a_torn_file_keeps_what_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "torn"
    path.write_bytes(CONCAT.read_bytes()[:40000])
    file = dumpfile.read(path)
    assert [file.whole(index) for index in range(3)] == [True, True, False]
    assert file.payload(2).size == 40000 - 29696


def test_bytes_behind_the_last_payload_are_counted_and_ignored(tmp_path: Path) -> None:
    path = tmp_path / "long"
    path.write_bytes(ADD.read_bytes() + b"tail")
    assert dumpfile.read(path).trailing == 4


# Anything a header can hold.
TEXT = st.text(max_size=20)
NUMBER = st.integers(0, 2**64 - 1)
SMALL = st.integers(-(2**31), 2**31 - 1)
SHAPES = st.none() | st.builds(Shape, dim=st.lists(NUMBER, max_size=6).map(tuple))
ORIGINALS = st.none() | st.builds(
    OriginalOp, name=TEXT, output_index=st.integers(0, 2**32 - 1), data_type=SMALL, format=SMALL
)
COMMON = {
    "data_type": SMALL,
    "format": SMALL,
    "shape": SHAPES,
    "original_shape": SHAPES,
    "sub_format": SMALL,
    "address": NUMBER,
    "offset": NUMBER,
}
RANGES = st.lists(st.builds(DimRange, dim_start=SMALL, dim_end=SMALL), max_size=3).map(tuple)
INPUTS = st.builds(TensorEntry, **COMMON, arg_index=NUMBER, input_type=NUMBER)
OUTPUTS = st.builds(
    TensorEntry, **COMMON, arg_index=NUMBER, original_op=ORIGINALS, dim_range=RANGES
)
HEADERS = st.builds(
    DumpData,
    version=st.just("2.0"),
    dump_time=NUMBER,
    op_name=TEXT,
    dfx_message=TEXT,
    input=st.lists(INPUTS, max_size=4).map(tuple),
    output=st.lists(OUTPUTS, max_size=4).map(tuple),
    buffer=st.lists(st.builds(BufferEntry, buffer_type=SMALL), max_size=2).map(tuple),
    space=st.lists(st.builds(SpaceEntry, type=SMALL, arg_index=NUMBER), max_size=2).map(tuple),
    attr=st.lists(st.builds(Attribute, name=TEXT, value=TEXT), max_size=2).map(tuple),
)


def sized(header: DumpData, payloads: list[bytes]) -> DumpData:
    """The header with the sizes of these payloads."""
    entries = [{"size": len(payload)} for payload in payloads]
    grouped = {}
    for name in ("input", "output", "buffer", "space"):
        group = getattr(header, name)
        grouped[name] = tuple(
            type(entry)(**{f: getattr(entry, f) for f in entry.__struct_fields__} | entries.pop(0))
            for entry in group
        )
    return DumpData(**{f: getattr(header, f) for f in header.__struct_fields__} | grouped)


@given(HEADERS, st.data(), st.sampled_from(["plain", "inline"]))
@settings(max_examples=200, deadline=None)
def test_whatever_is_written_is_read_again(
    tmp_path_factory: pytest.TempPathFactory, header: DumpData, data: st.DataObject, form: str
) -> None:
    payloads = [data.draw(st.binary(max_size=30)) for _ in header.entries()]
    header = sized(header, payloads)
    path = tmp_path_factory.mktemp("dump") / "Op.op.1.2.3"
    dumpfile.write(path, header, payloads, form=form)
    file = dumpfile.read(path)
    assert (file.form, file.header) == (form, header)
    assert [bytes(file.payload(index)) for index in range(len(payloads))] == payloads
    dumpfile.copy(file, path.with_name("again"))
    assert path.with_name("again").read_bytes() == path.read_bytes()


NANO_TYPES = st.sampled_from([1, 2, 3, 27, 28, 33])
NANO_COMMON = {
    "data_type": NANO_TYPES,
    "format": SMALL,
    "address_type": SMALL,
    "shape": SHAPES,
    "original_shape": SHAPES,
    "address": NUMBER,
    "offset": NUMBER,
}
NANO_ORIGINALS = st.builds(
    OriginalOp, name=TEXT, output_index=SMALL, data_type=NANO_TYPES, format=SMALL
)


@given(
    st.lists(st.builds(TensorEntry, **NANO_COMMON), max_size=3),
    st.lists(st.builds(TensorEntry, **NANO_COMMON, original_op=NANO_ORIGINALS), max_size=3),
    st.data(),
)
@settings(max_examples=100, deadline=None)
def test_nano_files_too(
    tmp_path_factory: pytest.TempPathFactory,
    inputs: list[TensorEntry],
    outputs: list[TensorEntry],
    data: st.DataObject,
) -> None:
    header = DumpData(input=tuple(inputs), output=tuple(outputs))
    payloads = [data.draw(st.binary(max_size=30)) for _ in header.entries()]
    header = sized(header, payloads)
    path = tmp_path_factory.mktemp("nano") / "Op.op.1.2.3"
    dumpfile.write(path, header, payloads, form="nano", nano_version=3)
    file = dumpfile.read(path)
    assert (file.form, file.header, file.nano_version) == ("nano", header, 3)
    assert [bytes(file.payload(index)) for index in range(len(payloads))] == payloads
    dumpfile.copy(file, path.with_name("again"))
    assert path.with_name("again").read_bytes() == path.read_bytes()


def test_nano_sections_and_names_that_are_absent_stay_absent(tmp_path: Path) -> None:
    entry = struct.pack("<iiiiiiQQQI", 1, 2, 3, 0, 1, 2, 0, 0, 0, 8) + struct.pack("<II", 2, 0)
    head = struct.pack("<II", nano.MAGIC, 0) + struct.pack("<III", 5, len(entry) + 4, 1) + entry
    path = tmp_path / "Op.op.1.2.3"
    path.write_bytes(struct.pack("<Q", len(head)) + head)
    file = dumpfile.read(path)
    assert file.header.input == ()
    dumpfile.copy(file, tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == path.read_bytes()


def test_an_inline_span_points_at_the_bytes(tmp_path: Path) -> None:
    path = tmp_path / "Op.op.1.2.3"
    dumpfile.write(path, DumpData(version="1.0", output=(tensor(5),)), [b"hello"], form="inline")
    file = dumpfile.read(path)
    (span,) = file.spans
    assert span == Span(path.read_bytes().index(b"hello"), 5)


@settings(max_examples=100, deadline=None)
@given(
    version=st.sampled_from(["2.0", "1", "", "x"]),
    time=st.integers(0, 2**64 - 1),
    name=st.text(max_size=200),
    outputs=st.integers(0, 3),
    user_tag=st.text(max_size=3),
    cut=st.integers(0, 40),
)
def test_the_quick_summary_says_what_the_decoder_says(
    version: str, time: int, name: str, outputs: int, user_tag: str, cut: int
) -> None:
    """A listing reads headers by a shorter way; where that answers, the answer is the decoder's."""
    attr = (Attribute(name=user_tag),) if user_tag else ()
    header = DumpData(
        version=version, dump_time=time, output=(tensor(2),) * outputs, op_name=name, attr=attr
    )
    start = b"".join(bytes(part) for part in dumpfile.parts(header, [b"ab"] * outputs))
    quick = dumpfile._quick_summary(start[: len(start) - cut])
    told = version[:1].isdigit() and not attr and cut <= 2 * outputs and len(start) >= 16
    assert quick == (DumpData(version=version, dump_time=time, op_name=name) if told else None)
