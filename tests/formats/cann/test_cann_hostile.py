# SPDX-License-Identifier: Apache-2.0
"""Files made to hurt: each ends in a record or in FormatError with the file's name, soon and in
little memory.
"""

from __future__ import annotations

import struct
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from opscope.errors import FormatError
from opscope.formats.cann import dumpfile, names
from opscope.formats.cann.wire import MAX_ITEMS

DATA = Path(__file__).parent / "data"
CORPUS = sorted((DATA / "corpus").iterdir())
SEEDS = [
    path.read_bytes()[:1200]
    for path in sorted(DATA.iterdir())
    if path.is_file() and path.suffix != ".md"
]


def survives(path: Path) -> dumpfile.DumpFile | None:
    """Read it and all its payloads; None when it was refused in the one way it may be."""
    refusal = ""
    try:
        file = dumpfile.read(path)
    except FormatError as error:
        refusal = str(error)
    if refusal:
        assert refusal.startswith(str(path))
        assert "\n" not in refusal
        return None
    size = path.stat().st_size
    for index, span in enumerate(file.spans):
        assert span.offset + span.length <= size
        assert file.payload(index).size == span.length
    return file


@pytest.mark.parametrize("path", CORPUS, ids=lambda path: path.name)
def test_the_corpus(path: Path) -> None:
    file = survives(path)
    refused = {
        "endless_varint", "group_wire_type", "header_length_cuts_the_header",
        "header_length_one_too_long", "huge_header_length", "length_past_the_header",
        "many_dimensions", "nano_huge_head", "nano_many_inputs", "nano_section_too_long",
        "nano_torn", "nested_length_past_its_message", "torn_in_the_header", "torn_in_the_length",
    }  # fmt: skip
    assert (file is None) == (path.name in refused)


def test_errors_name_the_byte() -> None:
    with pytest.raises(
        FormatError,
        match=r"length_past_the_header at byte 13: a field of the header runs past its end",
    ):
        dumpfile.read(DATA / "corpus" / "length_past_the_header")


@given(
    st.sampled_from(SEEDS),
    st.lists(st.tuples(st.integers(0, 1200), st.integers(0, 255)), max_size=8),
    st.integers(0, 1200),
)
@settings(max_examples=500, deadline=None)
def test_mutated_real_files(
    tmp_path_factory: pytest.TempPathFactory, seed: bytes, edits: list[tuple[int, int]], cut: int
) -> None:
    content = bytearray(seed)
    for at, byte in edits:
        content[at % len(content)] = byte
    path = tmp_path_factory.mktemp("mutated") / "Op.op.1.2.3"
    path.write_bytes(bytes(content[: max(1, cut)]) if cut % 2 else bytes(content))
    file = survives(path)
    if file is not None and file.form != "plain":
        return
    if file is not None and not file.trailing and all(map(file.whole, range(len(file.spans)))):
        dumpfile.copy(file, path.with_name("again"))
        assert dumpfile.read(path.with_name("again")).header == file.header


@given(st.binary(max_size=300))
@example(b"\x0a\x032.0\x1a\x02\x2a\x7f")
@settings(max_examples=500, deadline=None)
def test_any_bytes_behind_a_plausible_start(
    tmp_path_factory: pytest.TempPathFactory, tail: bytes
) -> None:
    directory = tmp_path_factory.mktemp("any")
    head = b"\x0a\x032.0" + tail
    (directory / "plain").write_bytes(struct.pack("<Q", len(head)) + head)
    (directory / "inline").write_bytes(head)
    nano_head = struct.pack("<II", 0x5A5A5A5A, 0) + tail
    (directory / "nano").write_bytes(struct.pack("<Q", len(nano_head)) + nano_head)
    for path in directory.iterdir():
        survives(path)


def test_a_header_of_nothing_but_entries_is_bounded(tmp_path: Path) -> None:
    path = tmp_path / "many"
    head = b"\x0a\x032.0" + b"\x1a\x00" * (4 * MAX_ITEMS)
    path.write_bytes(struct.pack("<Q", len(head)) + head)
    tracemalloc.start()
    with pytest.raises(FormatError, match="entries in the header"):
        dumpfile.read(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100 << 20


def test_a_file_of_one_giant_text_is_bounded(tmp_path: Path) -> None:
    path = tmp_path / "giant"
    with path.open("wb") as file:
        file.write(b"\x0a\x032.0\x32\x80\x80\x80\x80\x04")  # op_name of 1 GiB
        file.truncate(1 << 30)
        file.seek((1 << 30) + 20)
        file.write(b"\0")
    tracemalloc.start()
    with pytest.raises(FormatError, match="texts and unknown fields"):
        dumpfile.read(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 32 << 20


def test_a_directory_and_a_missing_file_are_format_errors(tmp_path: Path) -> None:
    assert dumpfile.sniff(tmp_path) is None
    for path in (tmp_path, tmp_path / "nothing"):
        with pytest.raises(FormatError, match="cannot be read"):
            dumpfile.read(path)


@given(st.text(max_size=60))
@example("a.b." + "9" * 400)
@example("a.b.1.2.3.4.5.6.7.8.9")
@example("a.b.١.٢")
def test_any_file_name_is_parsed_or_not(name: str) -> None:
    parsed = names.parse(name)
    if parsed is not None:
        for value in (parsed.task, parsed.stream, parsed.context, parsed.thread):
            assert value is None or 0 <= value < 2**63


def test_a_mapping_cannot_point_out_of_its_directory(tmp_path: Path) -> None:
    lines = [
        "1,../../etc/passwd",
        "../2,Op.op.1.2.3",
        "3,Op.op.1.2.3",
        "4,..",
        "5",
        "",
        "6,a/b",
        "7,a\\b",
        "8,Op.op.4.5.6,more",
    ]
    (tmp_path / "mapping.csv").write_text("\n".join(lines))
    assert names.read_mapping(tmp_path) == {"3": "Op.op.1.2.3", "8": "Op.op.4.5.6"}
