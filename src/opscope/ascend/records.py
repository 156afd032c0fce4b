# SPDX-License-Identifier: Apache-2.0
"""Log records of one stream, in order, with only those read that may matter: hundreds of megabytes
pass in seconds.

A record is one line, `[LEVEL] MODULE(pid,process):time [file:line]tid text`; lines without a head
belong to the record before them (the text a user pasted has no head at all). The logger cuts
records at about 1,023 characters: such a record is marked, and when the next line of the same place
goes on with it the two are joined.
"""

from __future__ import annotations

import codecs
import errno
import os
import re
from collections.abc import Iterable, Iterator
from itertools import chain, pairwise
from typing import BinaryIO

import msgspec

# characters of a record that may have been cut; the logger's limit is 1,023 with its head
CUT_FROM = 1000
_CHUNK = 4 << 20
_LINE_LIMIT = 1 << 16
_ZEROS = re.compile(rb"\0{64,}")
_FOLLOW = 400  # lines after the head of a register list, whose own lines may have no word of ours
_BACK = 64  # lines to look back for the head of a line that has none

# What a line that matters has in it. No brackets and no underscores: text pasted from a page may
# have them escaped.
WORDS = tuple(
    word.encode()
    for word in (
        "The error from",
        "extend info",
        "error occurs on",
        "there is an",
        "kernel exec",
        "core list",
        "coreId",
        "AIC_INFO",
        "AIC\\_INFO",
        "args after",
        "args before",
        "tilingKey",
        "Dump][Exception",
        "Dump\\]\\[Exception",
        "retCode=0x",
        "ErrCode=",
        "runtime result",
        "DevMalloc: ",
        "DevFree: ",
        "Device memory",
        "Error register info",
        "Error PC info",
        "Error symbol info",
        "[Symbolize]",
        "exception_print",
        "AICORE_INFO_START",
        "_ERR_INFO=",
        "PC_START=",
        "AIC_ERROR",
        "CURRENT_PC=",
        "AI_CORE_INT=",
        "PARA_BASE=",
        "core_list=",
        "Task run failed",
        "Task exception",
        "AtomicLaunchKernel",
        "dha status",
        "maybe invalid",
        "D2H failed",
        "RAS occurs",
        "skip refresh addr",
        "skip log args",
        "dump file path is",
        "dumpScene=",
        "fault va",
        "page fault",
        "BuildSingleOp",
        "task exec",
        "EI00",
        "EZ9999:",
        "EZ2001:",
        "EE9999:",
        "EI9999:",
        "EJ00",
        "EH9999:",
        "E19999:",
        "EL0004:",
        "EE1001:",
        "data invalid",
        "error code",
        "[PID",
        "sdma error",
        "out of memory",
        "[ASSERT]",
        "Error happened",
        "[INIT]Ascend soc",
        "soc version",
        "SocVersion",
    )
)
_FOLLOWED = (b"AICORE_INFO_START", b"exception_print")
_HEAD = re.compile(
    r"\[(?P<level>DEBUG|INFO|WARNING|WARN|ERROR|EVENT|TRACE|CRITICAL|OPLOG|NULL)\]\s*(?P<module>[A-Za-z][\w.]*)\((?P<pid>-?\d+),(?P<process>[^)\n]{0,64})\):"
    r"(?P<time>\d{4}-\d\d-\d\d-\d\d:\d\d:\d\d\.[\d.]{1,8})\s*(?:\[(?P<where>[^\]\n]{0,"
    r"300})\])?\s?(?P<rest>.*)",
    re.DOTALL,
)
# Head of a line as the screen shows it: `EZ9999[PID: 164243] 2026-04-14-06:40:35.033.745 (EZ9999):
# text`, in older ones without a PID.
_SCREEN = re.compile(
    r"\bE[0-9A-Z]\d{4}(?::?\s?\[PID:\s?(?P<pid>\d{1,"
    r"10})\]|:)\s?(?P<time>\d{4}-\d\d-\d\d-\d\d:\d\d:\d\d\.[\d.]{1,8})"
)
# What torchrun and torch put in front of the lines of each rank: `[default3]:`, `[rank3]:`.
_RANK = re.compile(r"\s*\[(?:rank|default)\s?(?P<rank>\d{1,6})\]:?\s?")
_TID = re.compile(r"\[tid:(\d+)\]\s?|(\d{1,10})(?=[ \[A-Za-z])\s?|")
_ESCAPED = re.compile(r"\\([\[\]()_*<>#+.!-])")


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a log: its head taken apart, its text, and where it stands; cut when the logger
    may have cut it.
    """

    text: str
    file: str
    offset: int
    level: str | None = None
    module: str | None = None
    pid: int | None = None
    process: str | None = None
    time: str | None = None
    where: str | None = None
    tid: int | None = None
    cut: bool = False


def records(stream: BinaryIO, name: str) -> Iterator[Record]:
    """Records of a stream that may matter, in order. Garbage and wrong encodings are tolerated,
    UTF-16 is read as such.
    """
    held: Record | None = None
    screen: dict[int | None, Record] = {}
    for line, offset, before in _lines(_utf8(stream)):
        record = _record(line, offset, name, before)
        if record.level is None:
            rank = _rank(record.text)
            record = _on_screen(record, screen.get(rank), rank)
            screen[rank] = record
        if held is not None:
            joined = _joined(held, record)
            if joined is not None:
                held = joined
                continue
            yield held
        held = record
    if held is not None:
        yield held


def _utf8(stream: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """Chunks of the stream with their offsets; text in UTF-16, as Windows writes it, becomes UTF-8,
    what was pasted gets whole lines.
    """
    chunks = _written(stream)
    at, first = next(chunks, (0, b""))
    decoder = None
    if first[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
        decoder = codecs.getincrementaldecoder("utf-16")("replace")
    following = next(chunks, None)
    if following is None and len(first) <= LIMIT:
        yield (
            at,
            whole_lines(
                first if decoder is None else decoder.decode(first).encode("utf-8", "replace")
            ),
        )
        return
    for start, chunk in chain([(at, first)], [following] if following else [], chunks):
        yield start, chunk if decoder is None else decoder.decode(chunk).encode("utf-8", "replace")


def _written(stream: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """Pieces of the stream with their offsets. Runs of zero bytes, which no log has, are left out,
    holes of a sparse file unread.
    """
    at = 0
    while chunk := stream.read(_CHUNK):
        start = 0
        for zeros in _ZEROS.finditer(chunk):
            if zeros.start() > start:
                yield at + start, chunk[start : zeros.start()]
            start = zeros.end()
        if start < len(chunk):
            yield at + start, chunk[start:]
        at += len(chunk)
        if start == len(chunk):
            at = _after_hole(stream, at)


def _after_hole(stream: BinaryIO, at: int) -> int:
    """The offset of the next data of a file whose holes the system knows; the same offset for any
    other stream.
    """
    try:
        at = os.lseek(stream.fileno(), at, os.SEEK_DATA)
    except OSError as error:  # a pipe, or nothing but a hole to the end
        if error.errno != errno.ENXIO:
            return at
        at = os.lseek(stream.fileno(), 0, os.SEEK_END)
    return stream.seek(at)


def _lines(chunks: Iterator[tuple[int, bytes]]) -> Iterator[tuple[bytes, int, bytes]]:
    """Lines with one of WORDS in them and those that belong to them: line, offset, and the last
    line with a head before it.
    """
    rest, base, follow, head = b"", 0, 0, b""
    for offset, chunk in chunks:
        if offset > base + len(rest):
            yield from _hit_lines(rest, base, head, _hits(rest, follow))
            rest, base = b"", offset
        data = rest + chunk
        stop = data.rfind(b"\n") + 1
        if stop == 0:
            # a line may be longer than what was read at once
            if len(data) < max(_CHUNK, _LINE_LIMIT):
                rest = data
                continue
            stop = len(data)
        block, rest = data[:stop], data[stop:]
        hits = list(_hits(block, follow))
        follow = hits[-1][2] if hits else follow
        yield from _hit_lines(block, base, head, hits)
        head = _head_before(block, len(block), head)
        base += stop
    if rest:
        yield from _hit_lines(rest, base, head, _hits(rest, follow))


def _hit_lines(
    block: bytes, base: int, head: bytes, hits: Iterable[tuple[int, int, int]]
) -> Iterator[tuple[bytes, int, bytes]]:
    for start, end, _ in hits:
        yield block[start:end][:_LINE_LIMIT], base + start, _head_before(block, start, head)


def _hits(block: bytes, follow: int) -> Iterator[tuple[int, int, int]]:
    """Start and end of each line to read, and how many more lines after it are to be read whatever
    they hold.
    """
    starts = set()
    for word in WORDS:
        at = block.find(word)
        while at >= 0:
            starts.add(block.rfind(b"\n", 0, at) + 1)
            end = block.find(b"\n", at)
            at = block.find(word, end) if end >= 0 else -1
    at = 0
    for start in [*sorted(starts), len(block)]:
        while follow and at < start:
            end = _end(block, at)
            follow -= 1
            yield at, end, follow
            at = end + 1
        if start >= len(block) or start < at:
            continue
        end = _end(block, start)
        if any(word in block[start:end] for word in _FOLLOWED):
            follow = _FOLLOW
        elif end - start >= CUT_FROM:
            follow = max(follow, 1)
        yield start, end, follow
        at = end + 1


def _end(block: bytes, start: int) -> int:
    end = block.find(b"\n", start)
    return len(block) if end < 0 else end


def _head_before(block: bytes, stop: int, carried: bytes) -> bytes:
    """The last line with a head in front of stop, within a few lines; the one carried from the
    block before, else none.
    """
    end = stop
    for _ in range(_BACK):
        if end <= 0:
            return carried
        start = block.rfind(b"\n", 0, end - 1) + 1
        line = block[start:end]
        if line.startswith(b"[") and b"):2" in line[:160]:
            return line[:400]
        end = start
    return b""


def _text(line: bytes) -> str:
    line = line.rstrip(b"\r\n")
    try:
        return line.decode()
    except UnicodeDecodeError:
        pass
    try:
        return line.decode("gb18030")
    except UnicodeDecodeError:
        return line.decode("utf-8", "replace")


def unescaped(text: str) -> str:
    """Text as it was before somebody put it on a Markdown page: no backslashes before brackets, no
    bold.
    """
    if not _ESCAPED.search(text):
        return text
    return _ESCAPED.sub(r"\1", text.replace("**", ""))


def _record(line: bytes, offset: int, name: str, before: bytes) -> Record:
    text = _text(line)
    parts = _HEAD.search(text[:4096]) if "):2" in text[:400] else None
    if parts is not None:
        tid, rest = _tid(parts["rest"] + text[4096:])
        return Record(
            text=rest,
            file=name,
            offset=offset,
            level=parts["level"],
            module=parts["module"],
            pid=int(parts["pid"][:10]),
            process=parts["process"],
            time=parts["time"],
            where=parts["where"],
            tid=tid,
            cut=len(text) >= CUT_FROM,
        )
    head = _HEAD.search(_text(before)) if before else None
    text = unescaped(text)
    if head is None:
        return Record(text=text, file=name, offset=offset, cut=len(text) >= CUT_FROM)
    return Record(
        text=text,
        file=name,
        offset=offset,
        level=head["level"],
        module=head["module"],
        pid=int(head["pid"][:10]),
        process=head["process"],
        time=head["time"],
        tid=_tid(head["rest"])[0],
        cut=len(text) >= CUT_FROM,
    )


def _rank(text: str) -> int | None:
    line = _RANK.match(text)
    return int(line["rank"]) if line is not None else None


def _on_screen(record: Record, before: Record | None, rank: int | None) -> Record:
    """The record with the process and time of the screen's own head, those of its rank's line
    before where it has none.

    A rank whose process is not known stands for one: below zero, so that it is no other process's
    number.
    """
    if rank is not None:
        record = msgspec.structs.replace(record, pid=-1 - rank, process=f"rank {rank}")
    screen_head = _SCREEN.search(record.text[:400])
    if screen_head is not None:
        return msgspec.structs.replace(
            record,
            pid=int(screen_head["pid"]) if screen_head["pid"] else record.pid,
            time=screen_head["time"].rstrip("."),
        )
    if before is None or record.text.lstrip().startswith(("EZ9999: Inner", "Traceback (most")):
        return record
    return msgspec.structs.replace(record, pid=before.pid, time=before.time)


def _tid(rest: str) -> tuple[int | None, str]:
    thread = _TID.match(rest)
    if thread is None or thread.end() == 0:
        return None, rest
    return int(thread[1] or thread[2]), rest[thread.end() :]


_GOES_ON = re.compile(
    r"(?:\w+:)?\s*(?:\[\w+\])*\s*((?:0x[0-9a-fA-F]|[0-9a-fA-FxX]{1,20}[, ]|[,;:.)\]}_]).*)",
    re.DOTALL,
)


def _joined(first: Record, second: Record) -> Record | None:
    """One record of two when the second is the rest of the first: same place in the code, and it
    begins in the middle.
    """
    if (
        not first.cut
        or first.where != second.where
        or (first.pid, first.tid) != (second.pid, second.tid)
    ):
        return None
    if (
        second.where is None
        and second.pid is not None
        and second.offset - first.offset > len(first.text) * 4 + 4096
    ):
        return None
    rest = _GOES_ON.match(second.text)
    if rest is None:
        return None
    return msgspec.structs.replace(first, text=first.text + rest[1], cut=second.cut)


# Text copied from a terminal or a page, with its lines made whole: wrapped at the terminal's
# width, or after a comma.

LIMIT = 1 << 20  # bytes of text that is looked at; logs are longer, and their lines are not wrapped
_NARROW, _WIDE = 40, 320  # characters of a terminal's line
_ANY_HEAD = re.compile(rb"\[[A-Z]{4,8}\]\s*\w+\(-?\d+,[^)\n]{0,64}\):\d{4}-")
# What the first line of something begins with, so that it does not go on with the line before it.
_STARTS = re.compile(
    rb"\s*$|[>#$|]|\[|\(?[\w.@-]*\)?\s?\w+@\S+[#$]|E[0-9A-Z]\d{4}\b|coreId\s*\(|(?:The|Aicore|AI "
    rb"Core|aicore|An|Stream|rt\w+|Trace[Bb]ack|"
    rb"Rectify|Solution|Possible|Search|Fault|\w+Error:|File)\b(?! (?:of|id)\b)|\s{4,}\S"
)
_OPEN_ASSERTION = re.compile(
    rb"\[ASSERT\][^`]*`[^']*$"
)  # a kernel's assertion whose condition goes on
_OPEN_END = re.compile(rb"[,:=(\[]\s*$")


def whole_lines(text: bytes) -> bytes:
    """The text with wrapped lines joined; as it is where nothing shows that it was wrapped.

    Wrapped is text in which several different lines have the same greatest length, a terminal's.
    Text without any record's head is also joined where a line ends in a comma and the next does not
    begin anything.
    """
    lines = text.replace(b"\r\n", b"\n").split(b"\n")
    width = _width(lines)
    loose = _ANY_HEAD.search(text) is None
    if width is None and not loose and b"[ASSERT]" not in text:
        return text
    joined: list[bytes] = []
    before = b""
    for line in lines:
        if joined and not _STARTS.match(line) and _goes_on(before, width, loose=loose):
            joined[-1] += (
                line
                if before[-1:].isspace() or (width is not None and _length(before) == width)
                else b" " + line.lstrip()
            )
        else:
            joined.append(line)
        before = line
    return b"\n".join(joined)


def _width(lines: list[bytes]) -> int | None:
    """The width the text was wrapped at; None where its longest lines have nothing behind them, or
    are one and the same.
    """
    width = max(map(_length, lines), default=0)
    if not _NARROW <= width <= _WIDE:
        return None
    full = {
        line
        for line, after in pairwise(lines)
        if _length(line) == width and not _STARTS.match(after)
    }
    return width if len(full) > 1 else None


def _goes_on(before: bytes, width: int | None, *, loose: bool) -> bool:
    if (width is not None and _length(before) == width) or _OPEN_ASSERTION.search(before):
        return True
    return _OPEN_END.search(before) is not None and (loose or width is not None)


def _length(line: bytes) -> int:
    return len(line.decode("utf-8", "replace"))
