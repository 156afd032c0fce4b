# SPDX-License-Identifier: Apache-2.0
"""The grammar of AI Core error lines, from the slog of 2020 to the wording of 2026: one line in,
events out.

An event is what one line says, as plain fields; nothing here knows other lines. Numbers are
integers, register lists tuples.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from opscope.ascend.records import Record

_NUMBER = r"(?:0x[0-9a-fA-F]{1,16}|\d{1,20})"  # 64 bits; longer ones are no number of a log
_PAIR = re.compile(
    r"([A-Za-z][A-Za-z0-9_/ "
    rf"]{{0,40}}?)\s*[:=]\s*({_NUMBER})((?:\s*,\s*{_NUMBER}(?=\s*(?:[,.;]|$)))*)"
)
_FIELD = re.compile(r"([A-Za-z_][\w ]{0,40}?)\s*=\s*([^,\[]*)")
_MAX_WORDS = 1 << 16
_SHORT = 8192  # characters of a line that are looked at, but for lists of words and attributes


class Event(msgspec.Struct, frozen=True):
    """What one line says: a kind (core, extend, failed, screen, args, …) and its fields."""

    kind: str
    fields: dict[str, Any]


def events(record: Record) -> Iterator[Event]:
    """Events of one record, none for a line that says nothing about an error or about memory."""
    text = record.text
    short = text[:_SHORT]
    for words, read in _READERS:
        if any(word in short for word in words):
            found = list(read(text if read in _LONG else short, record))
            yield from found
            if found:
                return


def number(text: str) -> int:
    """An integer written as 0x… or in decimal."""
    return int(text, 16) if text.lower().startswith("0x") else int(text)


def numbers(text: str) -> tuple[int, ...]:
    """All the integers in a text, at most 65,536."""
    return tuple(number(found) for found in re.findall(_NUMBER, text)[:_MAX_WORDS])


def _find(pattern: str, text: str) -> str | None:
    found = re.search(pattern, text, re.IGNORECASE)
    return None if found is None else found[1]


def _int(pattern: str, text: str) -> int | None:
    found = _find(pattern, text)
    return None if found is None else number(found)


def _pairs(text: str) -> dict[str, Any]:
    pairs: dict[str, Any] = {}
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
    head, found, rest = text.partition("dump info")
    if not found or "error code" not in head:
        return
    body, _, extended = rest.partition("The extend info")
    kind = _KIND.search(head)
    message = _find(r"errorStr\s*:\s*(.*?)\.?\s*(?:\[FUNC:|$)", body)
    fields = _place(head) | {
        "kind": next((group for group in kind.groups() if group), "") if kind else "",
        "code": (
            _find(
                rf"error code\s*(?:=|is)\s*:?\s*\(?\s*({_NUMBER}(?:[\s,]+{_NUMBER})*)(?![\w.])",
                head,
            )
            or ""
        ).strip(" ,()"),
        "registers": _pairs(body.partition("errorStr")[0]),
        "message": message,
        "cut": record.cut and not extended,
    }
    fields["kind"] = re.sub(r"\berror(?: error)+$", "error", fields["kind"])
    yield Event("core", fields)
    if "RAS occurs" in text:
        yield Event(
            "note",
            {
                "topic": "ras",
                "text": text[text.index("Fault RAS") if "Fault RAS" in text else 0 :].strip(),
            },
        )
    if extended:
        yield from _extend(f"The extend info{extended}", record)


def _place(text: str) -> dict[str, Any]:
    """Device, die, serial number and core of the head of a line."""
    return {
        "device": _int(rf"device\s*\(\s*(?:chipId\s*:\s*)?({_NUMBER})", text),
        "die": _int(rf"dieId\s*:\s*({_NUMBER})", text),
        "serial": _int(rf"serial number is ({_NUMBER})", text),
        "core": _int(rf"core id is ({_NUMBER})", text),
    }


def _extend(text: str, _: Record) -> Iterator[Event]:
    message = _find(
        r"errorStr\s*:\s*(.*?)\.?\s*(?:fixp_error0 info|fsmId|subErrType|,?\s*aicore int|$)", text
    )
    codes = _find(r"errcode\s*:\s*\(([^)]*)\)", text)
    body = re.sub(r"errcode\s*:\s*\([^)]*\)", "", text)
    for said in (r"errorStr\s*:.*?(?=fixp_error0 info|fsmId|subErrType|$)", r"^.*?core id is \d+,"):
        body = re.sub(said, "", body, count=1)
    pairs = _pairs(body)
    yield Event(
        "extend",
        _place(text)
        | {"codes": None if codes is None else numbers(codes), "message": message, "values": pairs},
    )


def _failed(text: str, record: Record) -> Iterator[Event]:
    found = re.search(
        r"((?:ai ?core|aivec\w*|fftsplus|vector core)[\w ]{0,40}?) (?:kernel|task) "
        r"execut(?:e|ion) failed,?(.*)",
        text,
        re.IGNORECASE,
    )
    found = found or re.search(
        r"(ai ?core) kernel execut(?:e|ion) failed,?(.*)", text, re.IGNORECASE
    )
    if found is None or _elsewhere_of(text) is not None:
        return
    # A kernel's name has no comma and no blank; what stands behind in brackets is the runtime's own
    # place in the code.
    said = _fields(found[2])
    # `Vector Core kernel execution failed, retCode=0x31` names no task
    if any(key.endswith(("_id", "kernel_name")) for key in said):
        yield Event("failed", {"fields": said, "cut": record.cut})


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
        yield Event("elsewhere", {"code": name, "text": text.strip()})
        yield from _screen_code(text)
        yield from _returned(text, record)


_ASSERT = re.compile(r"\[ASSERT\].*?([^\s/\\:]+):(\d{1,9}): Assertion\s?`(.*)")


def _asserted(text: str, _: Record) -> Iterator[Event]:
    found = _ASSERT.search(text)
    if found is not None:
        yield Event(
            "assert",
            {
                "file": found[1],
                "line": int(found[2]),
                "text": found[3].replace("'", ",", 1).strip(),
            },
        )


def _tracked(text: str, _: Record) -> Iterator[Event]:
    """The graph engine's own word on whose task failed."""
    name, task, stream = (
        _find(r"\bop_name \[([^\]]+)\]", text),
        _int(r"task_id\s*(\d{1,18})", text),
        _int(r"stream_id\s*(\d{1,18})", text),
    )
    if name is not None and task is not None and stream is not None:
        yield Event("tracked", {"node_name": name, "stream": stream, "task": task})


def _screen(text: str, _: Record) -> Iterator[Event]:
    found = re.search(r"device\s*\(\s*(\d{1,18})\s*\),?\s*core list\s*\[([^\]]*)\]", text)
    if found is not None:
        yield Event("screen", {"device": int(found[1]), "cores": found[2]})
    for core, code in re.findall(rf"coreId\s*\(\s*(\d{{1,18}})\s*\)\s*:\s*({_NUMBER})", text):
        yield Event("screen-core", {"core": int(core), "code": code})


_RANGE = r"\s*(?:\((\d{1,18}) to \d{1,18}\))?\s*"
_ARGS = re.compile(rf"args{_RANGE}(before|after) execute{_RANGE}:\s*(.*)", re.DOTALL)


def _args(text: str, record: Record) -> Iterator[Event]:
    found = _ARGS.search(text)
    if found is None:
        return
    body, _, address = found[4].partition("addr:")
    words = numbers(body)
    if record.cut and words and not re.search(r"[,\s]\s*$", body):
        words = words[:-1]  # the last word may have lost digits
    start = int(found[1] or found[3] or 0)
    if words:
        yield Event(
            "args",
            {
                "when": found[2],
                "start": start,
                "words": words,
                "address": _int(rf"({_NUMBER})", address),
                "cut": record.cut,
            },
        )


def _tiling_key(text: str, _: Record) -> Iterator[Event]:
    found = re.search(r"tilingKey\s*=\s*(\d{1,20})(.*)", text)
    if found is not None:
        pairs = _pairs(found[2])
        yield Event(
            "tiling-key",
            {
                "tiling_key": int(found[1]),
                "args_size": pairs.get("argsSize"),
                "block_dim": pairs.get("blockDim"),
            },
        )


def _described(text: str, record: Record) -> Iterator[Event]:
    body = text.partition("AIC_INFO]")[2].strip()
    if "after execute:args print end" in body:
        yield Event("args-end", {})
    elif body.startswith("node_name:"):
        found = re.match(
            r"node_name:(.*?),\s*node_type:(.*?),\s*stream_id:(\d{1,18}),\s*task_id:(\d{1,18})(.*)",
            body[:_SHORT],
        )
        if found is not None:
            more = {
                key: number(value)
                for key, value in re.findall(rf"(\w+)\s*:\s*({_NUMBER})", found[5])
            }
            fields = {
                "node_name": found[1],
                "node_type": found[2],
                "stream": int(found[3]),
                "task": int(found[4]),
                "more": more,
            }
            yield Event("node", fields)
    elif found := re.match(r"(input|output|workspace)\s*:\s*(\d{1,18})\s*;(.*)", body):
        yield Event("tensor", {"io": found[1], "index": int(found[2]), **_tensor_fields(found[3])})
    elif "args" not in body.partition(":")[0] and (
        found := re.match(r"([A-Za-z_][\w ]{0,40}?)\s*:\s*(.*)", body, re.DOTALL)
    ):
        yield Event(
            "described",
            {"key": found[1].replace(" ", "_"), "value": found[2].strip(), "cut": record.cut},
        )


def _tensor_fields(text: str) -> dict[str, Any]:
    pairs = dict(part.split(":", 1) for part in text.split(";") if ":" in part)
    said = {key.strip(): value.strip() for key, value in pairs.items()}
    shape = said.get("shape")
    return {
        "shape": None
        if shape is None
        else tuple(int(dim) for dim in re.findall(r"-?\d{1,18}", shape)[:64]),
        "format": said.get("format"),
        "dtype": said.get("dtype"),
        "address": _int(rf"({_NUMBER})", said.get("addr", "")),
        "size": _int(rf"({_NUMBER})", said.get("size", "")),
    }


_LOADED = re.compile(r"(begin|end) to load ([\w ]+?)\s*,\s*index\s*:\s*(\d{1,18})(.*)")
_FILE = re.compile(
    r"dump ([\w ]+?) to file,? ?(?:file)?\s*:\s*(\S.*)|exception dump file path is (\S.*)"
)


def _dumped(text: str, _: Record) -> Iterator[Event]:
    if found := _LOADED.search(text):
        yield Event(
            "load",
            {"begin": found[1] == "begin", "what": found[2].strip(), "index": int(found[3])}
            | _tensor_type(found[4]),
        )
    elif "tensor type" in text:
        yield Event("load-type", _tensor_type(text))
    elif found := re.search(
        rf"dump args data,?\s*addr\s*:\s*({_NUMBER})\s*;\s*size\s*:\s*(\d{{1,18}})", text
    ):
        yield Event("load-data", {"address": number(found[1]), "size": int(found[2])})
    elif found := _FILE.search(text):
        yield Event(
            "file", {"what": found[1] or "exception", "path": (found[2] or found[3]).strip()}
        )
    elif re.search(r"maybe invalid|D2H failed|check addr|data invalid", text):
        yield Event(
            "unreadable",
            {"text": text.strip(), "address": _int(rf"addr\w*\s*[:=]\s*({_NUMBER})", text)},
        )
    elif found := re.search(r"begin tensor's index of arg\w* is\s*:\s*(\d{1,18})", text):
        yield Event("first-tensor", {"index": int(found[1])})


def _tensor_type(text: str) -> dict[str, Any]:
    return {
        "type": _int(r"tensor type\s*:\s*(\d{1,18})", text),
        "pointer": _int(r"pointer type\s*:\s*(\d{1,18})", text),
    }


def _returned(text: str, _: Record) -> Iterator[Event]:
    task = {
        key: _int(rf"{key}\s*=\s*({_NUMBER})", text)
        for key in ("device_id", "stream_id", "task_id")
    }
    if re.search(r"Task run failed|Task exception!", text):
        error = _find(r"errType=\w+\(([^)]*)\)", text)
        yield Event(
            "task", task | {"error": error, "sqe": _find(r"(?:sqe_type|type)=\d+\(([^)]*)\)", text)}
        )
    if found := re.search(
        r"ErrCode\s*=\s*(\d{1,18})(?:,\s*desc\s*=\s*\[([^\]]*)\])?(?:,"
        r"\s*InnerCode\s*=\s*(0x[0-9a-fA-F]+))?",
        text,
    ):
        yield Event("returned", {"code": found[1], "text": found[2], "inner": found[3]})
    elif found := re.search(r"retCode\s*=\s*(0x[0-9a-fA-F]+)(?:\s*,\s*\[([^\]]*)\])?", text):
        yield Event("returned", {"code": found[1].lower(), "text": found[2], "inner": None})
    elif found := re.search(r"(?:runtime result|error code(?: is)?)\s*[:=]?\s*(\d{6})\b", text):
        yield Event("returned", {"code": found[1], "text": None, "inner": None})


def _memory(text: str, _: Record) -> Iterator[Event]:
    if "DevMalloc" in text or "memory alloc" in text:
        size, pointer = (
            _int(rf"size\s*=\s*({_NUMBER})", text),
            _int(rf"ptr\s*=\s*({_NUMBER})", text),
        )
        if size is not None and pointer:
            yield Event("malloc", {"size": size, "address": pointer})
    elif "ree" in text:
        pointer = _int(rf"(?:mem|ptr|addr)\w*\s*=\s*({_NUMBER})", text)
        if pointer:
            yield Event("free", {"address": pointer})


_KEY_VALUE = re.compile(rf"([A-Z][A-Z0-9_]*(?:\[\d+\])?)\s*=\s*({_NUMBER})")


def _slog(text: str, _: Record) -> Iterator[Event]:
    if "exception_print" in text:
        pairs = _fields(text)
        known = {
            key: _int(rf"({_NUMBER})", pairs.get(key, ""))
            for key in ("device_id", "stream_id", "task_id", "exception_code")
        }
        yield Event("slog", known)
    elif "AICORE_INFO_START" in text:
        registers = {key: number(value) for key, value in _KEY_VALUE.findall(text)}
        yield Event(
            "slog-core", {"core": _int(rf"core_id\s*=\s*({_NUMBER})", text), "registers": registers}
        )
    elif found := re.match(
        rf"\W*(?:\w+:\s*)?([A-Z][A-Z0-9_]*(?:\[\d+\])?)\s*=\s*({_NUMBER})\W*$", text
    ):
        yield Event("slog-register", {"name": found[1], "value": number(found[2])})


def _analysed(text: str, _: Record) -> Iterator[Event]:
    fields = _fields(text.partition(".")[2] if "information." in text else text)
    core = _int(rf"coreId\s*=\s*({_NUMBER})", text)
    if "register info" in text:
        values = {
            key: number(value)
            for key, value in re.findall(rf"\b([A-Z][A-Z0-9_]+)\s*=\s*({_NUMBER})", text)
        }
        yield Event(
            "analysed-registers",
            {"core": core, "type": fields.get("coreType"), "registers": values},
        )
    elif "PC info" in text:
        values = {
            key: number(value)
            for key, value in re.findall(rf"(\w+(?:PC|Offset))\s*=\s*({_NUMBER})", text)
        }
        yield Event("analysed-pc", {"core": core, "values": values})
    elif "symbol info" in text:
        yield Event(
            "analysed-symbol", {"core": core, "symbol": _find(r"symbol\s*=\s*([^\s,]+)", text)}
        )
    elif "[Symbolize]" in text:
        source = _find(r"source\s*=\s*(\S+?)(?:\s+cores=|\s*,|\s*$)", text)
        offset = _int(rf"fixedPCOffset\s*=\s*({_NUMBER})", text)
        yield Event(
            "symbolized",
            {"source": source, "object": _find(r"oFile\s*=\s*([^\s,]+)", text), "offset": offset},
        )


def _noted(text: str, _: Record) -> Iterator[Event]:
    if "AtomicLaunchKernel" in text:
        node = _find(r"AtomicLaunchKernel\w*?WithFlag_([^\s,;\]]+)", text)
        yield Event("atomic", {"node": node})
    elif "dha status" in text:
        yield Event("note", {"topic": "atomic", "text": text.strip()})
    elif "RAS occurs" in text:
        yield Event("note", {"topic": "ras", "text": text.strip()})
    elif "skip refresh addr" in text or "skip log args" in text:
        yield Event("note", {"topic": "host-args", "text": text.strip()})
    elif found := re.search(rf"(?:fault va|page fault)\D{{0,40}}?({_NUMBER})", text):
        yield Event("fault-address", {"address": number(found[1]), "text": text.strip()})
    elif re.search(r"soc ?version", text, re.IGNORECASE) and (
        soc := _find(r"\b(Ascend\d{2,4}[A-Z]?\w*)", text)
    ):
        yield Event("soc", {"name": soc})
    elif (module := _find(r"BuildSingleOp.*?module\[([\w.]+)\]", text)) is not None:
        yield Event("module", {"module": module})
    else:
        yield from _screen_code(text)


def _screen_code(text: str) -> Iterator[Event]:
    found = re.search(r"\b(E[0-9A-Z]\d{4})(?:\)?:|\[PID)", text)
    if found is not None:
        yield Event("screen-code", {"code": found[1], "text": text.strip()})


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
