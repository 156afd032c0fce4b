# SPDX-License-Identifier: Apache-2.0
"""The grammar of AI Core error lines, from the slog of 2020 to the wording of 2026: one line in,
events out.

An event is what one line says; nothing here knows other lines.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from opscope.ascend import registers
from opscope.ascend.events import (
    Allocated,
    AnalysedCore,
    Asserted,
    Chip,
    Cleaned,
    Coded,
    Described,
    DescribedNode,
    Event,
    Extended,
    Failed,
    FailedTask,
    FaultAddress,
    Freed,
    Launched,
    Loaded,
    LoadedData,
    LoadedType,
    Loading,
    Module,
    Passed,
    Program,
    Screen,
    ScreenCore,
    SlogCore,
    SlogError,
    SlogRegister,
    Tracked,
    Unreadable,
    Words,
)
from opscope.ascend.fault import Argument, Core, DumpFile, Noted, Returned
from opscope.ascend.records import Record
from opscope.ascend.registers import ASCEND950, CLASSIC

_NUMBER = r"(?:0x[0-9a-fA-F]{1,16}|\d{1,20})"  # 64 bits; longer ones are no number of a log
_PAIR = re.compile(
    r"([A-Za-z][A-Za-z0-9_/ "
    rf"]{{0,40}}?)\s*[:=]\s*({_NUMBER})((?:\s*,\s*{_NUMBER}(?=\s*(?:[,.;]|$)))*)"
)
_FIELD = re.compile(r"([A-Za-z_][\w ]{0,40}?)\s*=\s*([^,\[]*)")
Values = dict[str, int | tuple[int, ...]]
_MAX_WORDS = 1 << 16
_SHORT = 8192  # characters of a line that are looked at, but for lists of words and attributes


def events(record: Record) -> Iterator[Event]:
    """Events of one record, none for a line that says nothing about an error or about memory."""
    text = record.text
    short = text[:_SHORT]
    for words, read in _READERS:
        if any(word in short for word in words):
            told = list(read(text if read in _LONG else short, record))
            yield from told
            if told:
                return


def number(text: str) -> int:
    """An integer written as 0x… or in decimal."""
    return int(text, 16) if text.lower().startswith("0x") else int(text)


def numbers(text: str) -> tuple[int, ...]:
    """All the integers in a text, at most 65,536."""
    return tuple(number(digits) for digits in re.findall(_NUMBER, text)[:_MAX_WORDS])


def _find(pattern: str, text: str) -> str | None:
    match = re.search(pattern, text, re.IGNORECASE)
    return None if match is None else match[1]


def _int(pattern: str, text: str) -> int | None:
    digits = _find(pattern, text)
    return None if digits is None else number(digits)


def _pairs(text: str) -> Values:
    pairs: Values = {}
    for key, first, more in _PAIR.findall(text):
        pairs.setdefault(
            " ".join(key.split()), (number(first), *numbers(more)) if more else number(first)
        )
    return pairs


def _fields(text: str) -> dict[str, str]:
    return {
        " ".join(key.split()): value.strip().rstrip(".").strip()
        for key, value in _FIELD.findall(text)
    }


# What the head of a core line calls the core, in any wording.
_KIND = re.compile(
    r"there is an exception of ([\w ]{1,60}?)(?:,|$)|there is an? error of ([\w ]{1,60}?)(?:,|$)"
    r"|the error is ([\w ]{1,60}?)(?: exception)?(?:,|$)|there is an? ([\w ]{1,60}?)(?: "
    r"exception)?(?:,|$)",
    re.IGNORECASE,
)


def _core(text: str, record: Record) -> Iterator[Event]:
    head, separator, rest = text.partition("dump info")
    if not separator or "error code" not in head:
        return
    body, _, extended = rest.partition("The extend info")
    kind = _KIND.search(head)
    said = next((group for group in kind.groups() if group), "") if kind else ""
    yield _core_of(
        head,
        kind=re.sub(r"\berror(?: error)+$", "error", said),
        code=(
            _find(
                rf"error code\s*(?:=|is)\s*:?\s*\(?\s*({_NUMBER}(?:[\s,]+{_NUMBER})*)(?![\w.])",
                head,
            )
            or ""
        ).strip(" ,()"),
        values=_pairs(body.partition("errorStr")[0]),
        message=_find(r"errorStr\s*:\s*(.*?)\.?\s*(?:\[FUNC:|$)", body),
        time=record.time,
        cut=record.cut and not extended,
    )
    if "RAS occurs" in text:
        start = text.index("Fault RAS") if "Fault RAS" in text else 0
        yield Noted("ras", text[start:].strip())
    if extended:
        yield from _extend(f"The extend info{extended}", record)


def _core_of(head: str, *, code: str, values: Values, message: str | None, **more: Any) -> Core:
    """A core from its line; the code is read in the numbering of its registers."""
    classic = not {"sc error info", "su error info"} & values.keys()
    codes = numbers(code)
    return Core(
        core=_core_id(head),
        device=_int(rf"device\s*\(\s*(?:chipId\s*:\s*)?({_NUMBER})", head),
        die=_int(rf"dieId\s*:\s*({_NUMBER})", head),
        serial=_int(rf"serial number is ({_NUMBER})", head),
        code=code,
        codes=codes if classic else (),
        bits=registers.bits_of(codes) if classic else bits950(codes, message),
        numbering=CLASSIC if classic else ASCEND950,
        registers=values,
        message=message,
        **more,
    )


def bits950(codes: tuple[int, ...], message: str | None) -> tuple[int, ...]:
    """Numbers of the set bits of Ascend 950; a lone 0 is none, a time-out or trap, unless the
    runtime's words say that it is bit 0 of L0A.
    """
    return () if codes == (0,) and "l0a" not in (message or "").lower() else codes


def _core_id(text: str) -> int | None:
    return _int(rf"core id is ({_NUMBER})", text)


def _extend(text: str, _: Record) -> Iterator[Event]:
    message = _find(
        r"errorStr\s*:\s*(.*?)\.?\s*(?:fixp_error0 info|fsmId|subErrType|,?\s*aicore int|$)", text
    )
    codes = _find(r"errcode\s*:\s*\(([^)]*)\)", text)
    body = re.sub(r"errcode\s*:\s*\([^)]*\)", "", text)
    for said in (r"errorStr\s*:.*?(?=fixp_error0 info|fsmId|subErrType|$)", r"^.*?core id is \d+,"):
        body = re.sub(said, "", body, count=1)
    yield Extended(
        core=_core_id(text),
        codes=None if codes is None else numbers(codes),
        message=message,
        values=_pairs(body),
    )


def _failed(text: str, _: Record) -> Iterator[Event]:
    failure = re.search(
        r"((?:ai ?core|aivec\w*|fftsplus|vector core)[\w ]{0,40}?) (?:kernel|task) "
        r"execut(?:e|ion) failed,?(.*)",
        text,
        re.IGNORECASE,
    )
    failure = failure or re.search(
        r"(ai ?core) kernel execut(?:e|ion) failed,?(.*)", text, re.IGNORECASE
    )
    if failure is None or _elsewhere_of(text) is not None:
        return
    # A kernel's name has no comma and no blank; what stands behind in brackets is the runtime's own
    # place in the code.
    said = _fields(failure[2])
    # `Vector Core kernel execution failed, retCode=0x31` names no task
    if any(key.endswith(("_id", "kernel_name")) for key in said):
        yield Failed(said)


# Failures of other engines, which share words with those of an AI Core: a name of codes.ELSEWHERE
# and what its lines say.
_ELSEWHERE = (
    ("SDMA", re.compile(r"sdma error|SDMA memory copy", re.IGNORECASE)),
    (
        "AICPU",
        re.compile(
            r"during AICPU execution|ai ?cpu kernel (?:task happen|execut)|\[aicpu "
            r"(?:exception|timeout)\]",
            re.IGNORECASE,
        ),
    ),
    ("HCCL timeout", re.compile(r"hccl fftsplus (?:task )?timeout", re.IGNORECASE)),
    ("out of memory", re.compile(r"\bNPU out of memory", re.IGNORECASE)),
)


def _elsewhere_of(text: str) -> str | None:
    return next((name for name, pattern in _ELSEWHERE if pattern.search(text)), None)


def _elsewhere(text: str, record: Record) -> Iterator[Event]:
    """A failure that is not an AI Core's, and what else the line says."""
    name = _elsewhere_of(text)
    if name is not None:
        yield Coded(name, text.strip())
        yield from _screen_code(text)
        yield from _returned(text, record)


_ASSERT = re.compile(r"\[ASSERT\].*?([^\s/\\:]+):(\d{1,9}): Assertion\s?`(.*)")


def _asserted(text: str, _: Record) -> Iterator[Event]:
    parts = _ASSERT.search(text)
    if parts is not None:
        condition = parts[3].replace("'", ",", 1).strip()
        yield Asserted(f"{parts[1]}:{int(parts[2])}: {condition}")


def _tracked(text: str, _: Record) -> Iterator[Event]:
    """The graph engine's own word on whose task failed."""
    name, task, stream = (
        _find(r"\bop_name \[([^\]]+)\]", text),
        _int(r"task_id\s*(\d{1,18})", text),
        _int(r"stream_id\s*(\d{1,18})", text),
    )
    if name is not None and task is not None and stream is not None:
        yield Tracked(node_name=name, stream=stream, task=task)


def _screen(text: str, _: Record) -> Iterator[Event]:
    device = re.search(r"device\s*\(\s*(\d{1,18})\s*\),?\s*core list\s*\[[^\]]*\]", text)
    if device is not None:
        yield Screen(int(device[1]))
    for core, code in re.findall(rf"coreId\s*\(\s*(\d{{1,18}})\s*\)\s*:\s*({_NUMBER})", text):
        yield ScreenCore(int(core), code)


_RANGE = r"\s*(?:\((\d{1,18}) to \d{1,18}\))?\s*"
_ARGS = re.compile(rf"args{_RANGE}(before|after) execute{_RANGE}:\s*(.*)", re.DOTALL)


def _args(text: str, record: Record) -> Iterator[Event]:
    parts = _ARGS.search(text)
    if parts is None:
        return
    body = parts[4].partition("addr:")[0]
    words = numbers(body)
    if record.cut and words and not re.search(r"[,\s]\s*$", body):
        words = words[:-1]  # the last word may have lost digits
    if words:
        start = int(parts[1] or parts[3] or 0)
        yield Words(when=parts[2], start=start, words=words, cut=record.cut)


def _tiling_key(text: str, _: Record) -> Iterator[Event]:
    parts = re.search(r"tilingKey\s*=\s*(\d{1,20})(.*)", text)
    if parts is not None:
        yield Launched(
            tiling_key=int(parts[1]),
            args_size=_int(rf"\bargsSize\s*[:=]\s*({_NUMBER})", parts[2]),
            block_dim=_int(rf"\bblockDim\s*[:=]\s*({_NUMBER})", parts[2]),
        )


def _described(text: str, record: Record) -> Iterator[Event]:
    body = text.partition("AIC_INFO]")[2].strip()
    if "after execute:args print end" in body:
        yield Passed()
    elif body.startswith("node_name:"):
        parts = re.match(
            r"node_name:(.*?),\s*node_type:(.*?),\s*stream_id:(\d{1,18}),\s*task_id:(\d{1,18})(.*)",
            body[:_SHORT],
        )
        if parts is not None:
            more = {
                key: number(value)
                for key, value in re.findall(rf"(\w+)\s*:\s*({_NUMBER})", parts[5])
            }
            yield DescribedNode(
                node_name=parts[1],
                node_type=parts[2],
                stream=int(parts[3]),
                task=int(parts[4]),
                context=more.get("context_id"),
                thread=more.get("thread_id"),
            )
    elif parts := re.match(r"(input|output|workspace)\s*:\s*(\d{1,18})\s*;(.*)", body):
        yield _argument(parts[1], int(parts[2]), parts[3])
    elif "args" not in body.partition(":")[0] and (
        parts := re.match(r"([A-Za-z_][\w ]{0,40}?)\s*:\s*(.*)", body, re.DOTALL)
    ):
        key = parts[1].replace(" ", "_")
        yield Described(key=key, value=parts[2].strip(), cut=record.cut)


def _argument(io: str, index: int, text: str) -> Argument:
    pairs = dict(part.split(":", 1) for part in text.split(";") if ":" in part)
    said = {key.strip(): value.strip() for key, value in pairs.items()}
    shape = said.get("shape")
    return Argument(
        io=io,
        index=index,
        shape=None
        if shape is None
        else tuple(int(dim) for dim in re.findall(r"-?\d{1,18}", shape)[:64]),
        format=said.get("format"),
        dtype=said.get("dtype"),
        address=_int(rf"({_NUMBER})", said.get("addr", "")),
        size=_int(rf"({_NUMBER})", said.get("size", "")),
    )


_LOADED = re.compile(r"(begin|end) to load ([\w ]+?)\s*,\s*index\s*:\s*(\d{1,18})(.*)")
_FILE = re.compile(
    r"dump ([\w ]+?) to file,? ?(?:file)?\s*:\s*(\S.*)|exception dump file path is (\S.*)"
)


def _dumped(text: str, _: Record) -> Iterator[Event]:
    if parts := _LOADED.search(text):
        what, index, kind = parts[2].strip(), int(parts[3]), _tensor_type(parts[4])
        yield Loading(what=what, index=index, type=kind) if parts[1] == "begin" else Loaded()
    elif "tensor type" in text:
        yield LoadedType(_tensor_type(text))
    elif parts := re.search(
        rf"dump args data,?\s*addr\s*:\s*({_NUMBER})\s*;\s*size\s*:\s*(\d{{1,18}})", text
    ):
        yield LoadedData(address=number(parts[1]), size=int(parts[2]))
    elif parts := _FILE.search(text):
        yield DumpFile(parts[1] or "exception", (parts[2] or parts[3]).strip())
    elif re.search(r"maybe invalid|D2H failed|check addr|data invalid", text):
        yield Unreadable(text.strip(), _int(rf"addr\w*\s*[:=]\s*({_NUMBER})", text))
    elif re.search(r"begin tensor's index of arg\w* is\s*:\s*(\d{1,18})", text):
        yield Passed()


def _tensor_type(text: str) -> int | None:
    return _int(r"tensor type\s*:\s*(\d{1,18})", text)


def _returned(text: str, _: Record) -> Iterator[Event]:
    if re.search(r"Task run failed|Task exception!", text):
        device, stream, task = (
            _int(rf"{key}\s*=\s*({_NUMBER})", text) for key in ("device_id", "stream_id", "task_id")
        )
        error = _find(r"errType=\w+\(([^)]*)\)", text)
        yield FailedTask(device=device, stream=stream, task=task, error=error)
    if parts := re.search(
        r"ErrCode\s*=\s*(\d{1,18})(?:,\s*desc\s*=\s*\[([^\]]*)\])?(?:,"
        r"\s*InnerCode\s*=\s*(0x[0-9a-fA-F]+))?",
        text,
    ):
        yield Returned(parts[1], parts[2], parts[3])
    elif parts := re.search(r"retCode\s*=\s*(0x[0-9a-fA-F]+)(?:\s*,\s*\[([^\]]*)\])?", text):
        yield Returned(parts[1].lower(), parts[2])
    elif parts := re.search(r"(?:runtime result|error code(?: is)?)\s*[:=]?\s*(\d{6})\b", text):
        yield Returned(parts[1])


def _memory(text: str, _: Record) -> Iterator[Event]:
    if "DevMalloc" in text or "memory alloc" in text:
        size, pointer = (
            _int(rf"size\s*=\s*({_NUMBER})", text),
            _int(rf"ptr\s*=\s*({_NUMBER})", text),
        )
        if size is not None and pointer:
            yield Allocated(pointer, size)
    elif "ree" in text:
        pointer = _int(rf"(?:mem|ptr|addr)\w*\s*=\s*({_NUMBER})", text)
        if pointer:
            yield Freed(pointer)


_KEY_VALUE = re.compile(rf"([A-Z][A-Z0-9_]*(?:\[\d+\])?)\s*=\s*({_NUMBER})")


def _slog(text: str, _: Record) -> Iterator[Event]:
    if "exception_print" in text:
        pairs = _fields(text)
        device, stream, task, code = (
            _int(rf"({_NUMBER})", pairs.get(key, ""))
            for key in ("device_id", "stream_id", "task_id", "exception_code")
        )
        yield SlogError(device=device, stream=stream, task=task, code=code)
    elif "AICORE_INFO_START" in text:
        values = {key: number(value) for key, value in _KEY_VALUE.findall(text)}
        yield SlogCore(_int(rf"core_id\s*=\s*({_NUMBER})", text), values)
    elif parts := re.match(
        rf"\W*(?:\w+:\s*)?([A-Z][A-Z0-9_]*(?:\[\d+\])?)\s*=\s*({_NUMBER})\W*$", text
    ):
        yield SlogRegister(parts[1], number(parts[2]))


def _analysed(text: str, _: Record) -> Iterator[Event]:
    fields = _fields(text.partition(".")[2] if "information." in text else text)
    if "register info" in text:
        yield AnalysedCore(
            core=_int(rf"coreId\s*=\s*({_NUMBER})", text),
            kind=fields.get("coreType", "").lower(),
            registers=_numbered(r"\b[A-Z][A-Z0-9_]+", text),
        )
    elif "PC info" in text:
        yield Program(_numbered(r"\w+(?:PC|Offset)", text))
    elif "symbol info" in text:
        yield _program(symbol=_find(r"symbol\s*=\s*([^\s,]+)", text))
    elif "[Symbolize]" in text:
        yield _program(
            source=_find(r"source\s*=\s*(\S+?)(?:\s+cores=|\s*,|\s*$)", text),
            object=_find(r"oFile\s*=\s*([^\s,]+)", text),
            offset=_int(rf"fixedPCOffset\s*=\s*({_NUMBER})", text),
        )


def _numbered(names: str, text: str) -> dict[str, Any]:
    """Numbers behind such names and a sign of equality."""
    pairs = re.findall(rf"({names})\s*=\s*({_NUMBER})", text)
    return {key: number(value) for key, value in pairs}


def _program(**said: int | str | None) -> Program:
    return Program({name: value for name, value in said.items() if value is not None})


def _noted(text: str, _: Record) -> Iterator[Event]:
    if "AtomicLaunchKernel" in text:
        yield Cleaned(_find(r"AtomicLaunchKernel\w*?WithFlag_([^\s,;\]]+)", text) or "")
    elif "dha status" in text:
        yield Noted("atomic", text.strip())
    elif "RAS occurs" in text:
        yield Noted("ras", text.strip())
    elif "skip refresh addr" in text or "skip log args" in text:
        yield Noted("host-args", text.strip())
    elif address := re.search(rf"(?:fault va|page fault)\D{{0,40}}?({_NUMBER})", text):
        yield FaultAddress(number(address[1]))
    elif re.search(r"soc ?version", text, re.IGNORECASE) and (
        soc := _find(r"\b(Ascend\d{2,4}[A-Z]?\w*)", text)
    ):
        yield Chip(soc)
    elif (module := _find(r"BuildSingleOp.*?module\[([\w.]+)\]", text)) is not None:
        yield Module(module)
    else:
        yield from _screen_code(text)


def _screen_code(text: str) -> Iterator[Event]:
    coded = re.search(r"\b(E[0-9A-Z]\d{4})(?:\)?:|\[PID)", text)
    if coded is not None:
        yield Coded(coded[1], text.strip())


_Reader = Callable[[str, Record], Iterator[Event]]
# Words of which a line has one, and what reads it; the first reader that finds something is the
# only one.
_READERS: tuple[tuple[tuple[str, ...], _Reader], ...] = (
    (("DevMalloc: ", "DevFree: ", "Device memory"), _memory),
    (("dump info",), _core),
    (("[ASSERT]",), _asserted),
    (("Error happened",), _tracked),
    (("sdma", "SDMA", "cpu", "CPU", "hccl", "out of memory"), _elsewhere),
    (("extend info",), _extend),
    (("kernel execut", "task execut"), _failed),
    (("core list", "coreId("), _screen),
    (("Error register info", "Error PC info", "Error symbol info", "[Symbolize]"), _analysed),
    (("args after", "args before", "after execute", "before execute"), _args),
    (("tilingKey",), _tiling_key),
    (("AIC_INFO]",), _described),
    (("Dump][Exception", "dump file path is"), _dumped),
    (("exception_print", "AICORE_INFO_START", "="), _slog),
    (("maybe invalid", "D2H failed", "data invalid"), _dumped),
    (
        ("Task run failed", "Task exception", "retCode", "ErrCode", "runtime result", "error code"),
        _returned,
    ),
    (("",), _noted),
)
_LONG = (_args, _described)
