# SPDX-License-Identifier: Apache-2.0
"""Which composite operator the program called, where only the operators inside it reach the
dispatch mode.
"""

from __future__ import annotations

import dis
import sys
from types import CodeType, FrameType
from typing import Any

import torch

from opscope.record.own_code import OPSCOPE, inside, is_user
from opscope.record.torch.stacks import TORCH

# torch.linalg.slogdet is aten::linalg_slogdet.
SPACES = ("", "linalg_", "special_", "fft_")


def calling_frame() -> FrameType | None:
    """The innermost frame of the program itself."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and inside(frame.f_code.co_filename, OPSCOPE):
        frame = frame.f_back
    return frame


def called_composite(frame: FrameType | None) -> tuple[str, str] | None:
    """(`aten::logdet`, the user's line) of the composite operator that a frame is calling; None for
    any other.
    """
    if frame is None:
        return None
    op, source = _operator_of(frame), _user_line(frame)
    return None if op is None or source is None else (op, source)


def _operator_of(frame: FrameType) -> str | None:
    if frame.f_code.co_filename == f"{TORCH}/_ops.py":  # torch.ops.aten.logdet
        packet = frame.f_locals.get("self", frame.f_locals.get("self_"))  # the latter in torch 2.4
        schema = getattr(packet, "_qualified_op_name", None)
        return _composite(str(schema).rpartition("::")[2]) if schema else None
    name = callee(frame)
    return None if name is None else _composite(name)


def _user_line(frame: FrameType | None) -> str | None:
    while frame is not None and not is_user(frame.f_code.co_filename):
        frame = frame.f_back
    return None if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno or 0}"


def callee(frame: FrameType) -> str | None:
    """Name of the function or method that a frame is calling, read from its bytecode."""
    if sys.version_info < (3, 11):
        return callee_below(frame.f_code, frame.f_lasti)
    name, start = None, None
    for instruction in reversed(list(dis.get_instructions(frame.f_code))):
        span: Any = getattr(instruction, "positions", None)
        if instruction.offset > frame.f_lasti or span is None:
            continue
        if start is None:
            start = (span.lineno, span.col_offset)
            continue
        if (
            (span.lineno, span.col_offset) == start
            and instruction.opname.startswith("LOAD")
            and isinstance(instruction.argval, str)
        ):
            name = instruction.argval
            break
    return name


def callee_below(code: CodeType, call: int) -> str | None:
    """The same before Python 3.11, which keeps no columns: what was put on the stack last before
    the arguments of the call.

    None where these branch or are unpacked. The height of the stack is reckoned back from the call.
    """
    before = [each for each in dis.get_instructions(code) if each.offset <= call]
    last = before.pop()
    if not last.opname.startswith("CALL_") or last.opname == "CALL_FUNCTION_EX" or last.arg is None:
        return None
    above = last.arg + (last.opname == "CALL_FUNCTION_KW")
    for each in reversed(before):
        if not above:
            return each.argval if isinstance(each.argval, str) else None
        above -= dis.stack_effect(each.opcode, each.arg, jump=False)
    return None


def _composite(name: str) -> str | None:
    """`aten::name` when torch makes the operator of others, whose rows are all there is of it."""
    for space in SPACES:
        packet = getattr(torch.ops.aten, f"{space}{name}", None)
        if packet is not None:
            return (
                f"aten::{space}{name}"
                if any(_is_composite(packet, each) for each in packet.overloads())
                else None
            )
    return None


def _is_composite(packet: Any, overload: str) -> bool:
    """Whether an overload is made of other operators; those of TorchScript alone are not the
    dispatcher's.
    """
    try:
        operator = getattr(packet, overload)
        key = torch._C.DispatchKey.CompositeImplicitAutograd
        return key in operator.py_kernels or bool(
            torch._C._dispatch_has_kernel_for_dispatch_key(operator.name(), key)
        )
    except RuntimeError:
        return False
