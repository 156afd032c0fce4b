# SPDX-License-Identifier: Apache-2.0
"""Writes logs of AI Core errors in the wording of each generation, with the numbers a test
wants.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

SHARED = Path(__file__).parents[3] / "shared"
REAL = SHARED / "fixtures" / "aicore"
MANUAL = SHARED / "seeds" / "000_ca5cfa6e67e9e18d.txt"

DAY = "2024-05-06-07:08"


def head(
    second: float,
    *,
    pid: int = 4711,
    level: str = "ERROR",
    module: str = "RUNTIME",
    place: str = "proc.cc:1",
    tid: int | None = None,
) -> str:
    """Head of a record; second may be fractional."""
    milli = round(second * 1000)
    return (
        f"[{level}] {module}({pid},python3):{DAY}:{milli // 1000:02d}.{milli % 1000:03d}.000 "
        f"[{place}]{pid if tid is None else tid} "
    )


def classic(
    second: float,
    *,
    core: int = 0,
    code: str = "0x800000",
    serial: int = 7,
    pid: int = 4711,
    device: int = 0,
    **registers: str,
) -> str:
    """A core line of 910A."""
    said = {
        "pc start": "0x124080060000",
        "current": "0x124080060100",
        "vec error info": "0",
        "mte error info": "0",
        **_named(registers),
    }
    body = ", ".join(f"{name}: {value}" for name, value in said.items())
    return (
        f"{head(second, pid=pid)}PrintCoreErrorInfo:[EXEC][EXEC]The error from "
        f"device({device}), serial number is {serial}, there is an aicore error,"
        f" core id is {core}, error code = {code}, dump info: {body}, errorStr: something is "
        "wrong.\n"
    )


def stars(
    second: float,
    *,
    core: int = 0,
    code: str = "0x800000",
    kind: str = "aivec error",
    serial: int = 7,
    pid: int = 4711,
    **registers: str,
) -> str:
    """A core line of 910B and the line that extends it."""
    said = {
        "pc start": "0x12c0c0020000",
        "current": "0x12c0c0020200",
        "mte error info": "0",
        "para base": "0x12c100010000",
        **_named(registers),
    }
    body = ", ".join(f"{name}: {value}" for name, value in said.items())
    start = head(second, pid=pid)
    return (
        f"{start}ProcessStarsCoreErrorInfo:The error from device(chipId:0, dieId:1), serial "
        f"number is {serial}, there is an {kind} exception,"
        f" core id is {core}, error code = {code}, dump info: {body}.\n"
        f"{start}ProcessStarsCoreErrorInfo:The extend info: errcode:({code}, 0, 0) errorStr: "
        "words of the runtime."
        " fixp_error0 info: 0x6a, fixp_error1 info: 0xb9, fsmId:0, tslot:1, thread:0, "
        "ctxid:0, blk:2, sublk:0, subErrType:4.\n"
    )


def _named(registers: dict[str, str]) -> dict[str, str]:
    return {name.replace("_", " "): value for name, value in registers.items()}


def failed(
    second: float,
    kernel: str,
    *,
    stream: int = 2,
    task: int = 6,
    pid: int = 4711,
    device: int = 0,
    function: str = "",
) -> str:
    """The line that names the kernel."""
    func = f"func_name={function}, " if function else ""
    return (
        f"{head(second, pid=pid)}PrintErrorInfo:Aicore kernel execute failed, "
        f"device_id={device}, stream_id={stream}, report_stream_id={stream},"
        f" task_id={task}, flip_num=0, fault kernel_name={kernel}, fault kernel info "
        f"ext=none, {func}program id=1, hash=15656883929986130445.\n"
    )


def info(second: float, text: str, *, pid: int = 4711, module: str = "RUNTIME") -> str:
    """A line of level INFO."""
    return f"{head(second, pid=pid, level='INFO', module=module)}{text}\n"


def described(
    second: float,
    lines: Iterable[str],
    *,
    node: str,
    op: str,
    stream: int = 2,
    task: int = 6,
    pid: int = 4711,
) -> str:
    """The graph engine's description of the operator (L1)."""
    first = f"node_name:{node}, node_type:{op}, stream_id:{stream}, task_id:{task}"
    return "".join(
        info(second, f"LogExceptionTvmOpInfo:[AIC_INFO] {line}", pid=pid, module="GE")
        for line in (first, *lines)
    )


def arguments(second: float, words: Sequence[int], *, pid: int = 4711, when: str = "after") -> str:
    """Argument words in blocks of twenty."""
    rows = []
    for at in range(0, len(words), 20):
        block = words[at : at + 20]
        said = ", ".join(f"{word:#x}" if word else "0" for word in block)
        rows.append(
            f"{head(second, pid=pid)}GetArgsInfo:[AIC_INFO] args({at} to {at + len(block)}) "
            f"{when} execute:{said},  \n"
        )
    return "".join(rows)


def manual_text() -> str:
    """The error of the manual's own example as a user pastes it, without the page's escapes."""
    text = MANUAL.read_text(encoding="utf-8")
    start = text.index("EZ9999")
    return re.sub(r"\\(.)", r"\1", text[start : text.index("## ", start)]).replace("**", "")
