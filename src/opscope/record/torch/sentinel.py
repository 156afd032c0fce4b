# SPDX-License-Identifier: Apache-2.0
"""Decides at once, while the inputs are still in memory, what a suspicious call is and which of its
values to keep.
"""

from __future__ import annotations

import dis
import json
import sys
from collections.abc import Mapping
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from opscope.arrays import Array
from opscope.judge.arguments import Arguments
from opscope.judge.integer_values import integer_overflow
from opscope.judge.integers import needs_values
from opscope.judge.overflow import status_of
from opscope.judge.soundness import NEGATIVE, POSITIVE, Condition, Held, judge
from opscope.kernels import digest
from opscope.narrow import widened
from opscope.record.own_code import OPSCOPE, inside, is_user
from opscope.record.torch.memory import block_bytes, compact, view
from opscope.record.torch.stacks import TORCH
from opscope.record.torch.suspects import SeenTensor, Suspect

if TYPE_CHECKING:
    from opscope.record.session import Session

MOST_RAISED = 16
MOST_PLACED = 64  # tensors of which it is told where they are not finite
LARGEST_PLACED = 1 << 24  # elements
MOST_RANGES = 64


class Sentinel:
    """Works out overflow bits of suspicious calls, and keeps the inputs of those that may be
    origins.
    """

    def __init__(self, session: Session) -> None:
        self.session = session
        self._raised = 0
        self._asked: set[object] = set()
        self._placed: set[str] = set()

    def judge(self, suspect: Suspect) -> int | None:
        """Overflow bits of a call, None where there are none; its inputs are kept when it may be an
        origin, or raised.

        A program may raise and catch without end: of such calls the first few are kept.
        """
        if not suspect.outputs:
            self._raised += 1
            if self._raised <= MOST_RAISED:
                self._keep_inputs(suspect)
            return None
        arguments = suspect.arguments
        self._note_places(suspect)
        if arrived(suspect):
            self._keep_inputs(suspect)
            return None
        if may_be_origin(suspect, arguments):
            self._note_caller(suspect, arguments)
            status = status_of(suspect.op, arguments, suspect.inputs, suspect.outputs)
            self._keep_inputs(suspect)
            return status.bits or None
        bits = wrapped(suspect, arguments)
        if bits:
            self._keep_inputs(suspect)
        return bits or None

    def _note_caller(self, suspect: Suspect, arguments: Arguments) -> None:
        """Of a NaN that is a constant: the composite operator inside of which it was made, since
        its own name says nothing.
        """
        if not arguments.places_nan:
            return
        frame = calling_frame()
        instruction = (suspect.op, frame.f_code, frame.f_lasti) if frame is not None else None
        if instruction in self._asked:
            return
        self._asked.add(instruction)
        composite = called_composite(frame)
        if composite is not None:
            self.session.note("composites", f"{suspect.op} {composite[1]}", composite[0])

    def _note_places(self, suspect: Suspect) -> None:
        """Tell which elements are not finite, of tensors in which that is new: by their digest, so
        that it holds of whatever has these elements, in any shape.
        """
        for seen in (*suspect.inputs, *suspect.outputs):
            if len(self._placed) >= MOST_PLACED:
                return
            if not (seen.nan or seen.pos_inf or seen.neg_inf):
                continue
            array = view(seen.tensor) if seen.tensor.device.type == "cpu" else None
            told = None if array is None else places_of(array)
            if array is None or told is None:
                continue
            name = f"{digest(array)} {seen.dtype}"
            self._placed.add(name)
            self.session.note("unsound_places", name, told)

    def _keep_inputs(self, suspect: Suspect) -> None:
        if self.session.config.values == "none":
            return
        suspect.kept = True
        for seen in suspect.inputs:
            tensor = suspect.before_call(seen)
            if tensor is not None:
                seen.value = self.keep(tensor, seal=True)
        for seen in suspect.outputs if self.session.config.values == "overflow" else ():
            if seen.size is not None:
                seen.value = self.keep(seen.tensor, seal=True)

    def keep_random(self, states: Mapping[str, torch.Tensor], *, seal: bool) -> str | None:
        """Store generator states; where they lie as JSON (docs/store.md, Generator states), None
        when recording has ended.
        """
        kept = {
            name: (self.keep(state, seal=seal), state.numel()) for name, state in states.items()
        }
        told = {
            name: {"shard": reference[0], "key": reference[1], "size": size}
            for name, (reference, size) in kept.items()
            if reference is not None
        }
        return json.dumps(told) if told else None

    def keep(self, tensor: torch.Tensor, *, seal: bool = False) -> tuple[str, str] | None:
        """Store the elements a tensor covers, each once, in the order of memory; None when they
        cannot be read.
        """
        block = compact(tensor)
        if block is None or block.numel() == 0:
            return None
        dtype = str(block.dtype).removeprefix("torch.")
        return self.session.keep_value(
            block_bytes(block), dtype=dtype, shape=(block.numel(),), seal=seal
        )


def places_of(array: Array) -> str | None:
    """Elements that are not finite, in C order, as "3,7-9"; None of a single number, of large
    arrays, and where they lie far apart.
    """
    if array.ndim < 1 or array.size > LARGEST_PLACED:
        return None
    wrong = np.zeros(array.size + 2, dtype=np.bool_)  # one before and one after, both finite
    wrong[1:-1] = ~np.isfinite(widened(array)).reshape(-1)
    edges = np.flatnonzero(wrong[1:] != wrong[:-1])
    if len(edges) > 2 * MOST_RANGES:
        return None
    return ",".join(
        str(first) if first + 1 == end else f"{first}-{end - 1}"
        for first, end in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True)
    )


def arrived(suspect: Suspect) -> bool:
    """Whether NaN or +Inf came in: only calls that read what nobody recorded made are asked about
    then, or inf - inf.
    """
    return any(seen.nan for seen in suspect.inputs)


def may_be_origin(suspect: Suspect, arguments: Arguments) -> bool:
    """Whether the call made NaN or infinities that are no mask, as far as the call alone can
    tell.
    """
    if not any(out.nan or out.pos_inf or out.neg_inf for out in suspect.outputs):
        return False
    held = [Held(seen, as_mask(seen)) for seen in suspect.inputs]
    return judge(suspect.op, arguments, held, suspect.outputs, mark=1).kind in {"origin", "pending"}


def as_mask(seen: SeenTensor) -> Condition:
    """Infinities among the inputs count as masks here; scan knows where they come from."""
    return Condition(mask=(POSITIVE if seen.pos_inf else 0) | (NEGATIVE if seen.neg_inf else 0))


def wrapped(suspect: Suspect, arguments: Arguments) -> int:
    """Bits of integer overflow: from the extremes where they prove it, else from the values."""
    dtype = next((out.dtype for out in suspect.outputs), "")
    if needs_values(suspect.op, arguments, suspect.inputs, suspect.outputs):
        return integer_overflow(suspect.op, arguments, suspect.arrays(), dtype=dtype)
    return status_of(suspect.op, arguments, suspect.inputs, suspect.outputs).bits


# Which composite operator the program called, where only the operators inside it reach the
# dispatch mode.

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
