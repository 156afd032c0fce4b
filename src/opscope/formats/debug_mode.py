# SPDX-License-Identifier: Apache-2.0
"""Text of PyTorch's DebugMode: print(debug_mode.debug_string()) into a file, or a folder of such
files, one for each process.

Calls, types and shapes are in the text; module, stack and API lines where they were asked for.
Values are not, but log_tensor_hashes(hash_inputs=True) writes the L1 norm of each tensor, and that
a norm is NaN or infinite proves one such element at least (an infinite one has no sign: it is
counted as positive). One such norm in a file shows that its hashes see what is not finite; only
then do finite ones prove that all elements are. Edges need record_ids=True. In place of views,
which the text does not tell, any write in place makes the states of all other tensors unknown.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from opscope.formats.debug_mode_text import CallText, TensorText, Word, read_call, read_keyed
from opscope.formats.logs import find_logs, read_logs, take_lines
from opscope.formats.msprobe.leaves import plain_value
from opscope.formats.registry import Format
from opscope.formats.run_builder import RunBuilder
from opscope.run.dtypes import find_dtype
from opscope.run.memory import MemoryRun
from opscope.run.protocol import RunInfo
from opscope.run.schema import Call, Tensor

if TYPE_CHECKING:
    from opscope.run.protocol import Run

_LOOKS = re.compile(
    rb"^ {2,}[\w.:<][^\n(]{0,300}\([^\n]{0,20000}?\b[tfd]?t(?:\$\d+)?: [a-z][a-z0-9]{1,15}\[",
    re.MULTILINE,
)
_STACK = re.compile(r"# File: (.{1,4096}?):(\d{1,9}) in (.{1,300}?)(?:, code: |$)")
_MODULE = re.compile(r"\[nn\.Mod\] ([^\s.]{1,200})(?:\.(\S{1,1000}))?")
_KERNEL = re.compile(r"\[triton\] (\S{1,200}?)\((.*)\)")
_METHOD = re.compile(r"<method '(\w+)' of '[\w.]+' objects>")
_IN_PLACE = re.compile(r"\w+::\w+(?:_|_\.\w+|\.\w*out\w*)")
_BACKWARD = ("torch._tensor.backward", "torch.autograd.backward", "torch.autograd.grad")


class _Open(msgspec.Struct, frozen=True):
    """A call that later lines may lie within."""

    indent: int
    index: int
    module: str | None
    is_module: bool
    backward: bool


def detect(path: Path) -> bool:
    """Whether a file, or one in a folder, holds lines of DebugMode."""
    return bool(find_logs(path, _looks_right))


def _looks_right(head: bytes) -> bool:
    return _LOOKS.search(head) is not None


def open_text(path: Path) -> Run:
    """The texts as a run, one process for each file; FormatError when none can be read."""
    builder = _Builder()
    read_logs(path, _looks_right, builder, what="lines of PyTorch's DebugMode")
    info = RunInfo(path=str(path), format="torch_debug_mode")
    tensors = builder.proved()
    return MemoryRun(
        info,
        builder.processes,
        builder.calls,
        tensors,
        builder.stacks,
        problems=builder.problems,
        norms=builder.norms(),
    )


FORMAT = Format("torch_debug_mode", detect, open_text)


class _Builder(RunBuilder):
    def __init__(self) -> None:
        super().__init__()
        self._rows: list[tuple[Tensor, float | None]] = []

    def add(self, path: Path, rank: int) -> None:
        """One file."""
        self.start_process(str(path), rank)
        self._open: list[_Open] = []
        self._source: tuple[str, int | None] | None = None
        self._counts: dict[str, int] = defaultdict(int)
        self._versions: dict[int, int] = {}
        self._next = 0
        take_lines(path, self._line, self.problems)

    def proved(self) -> list[Tensor]:
        """The rows, with what their hashes prove."""
        sees = any(norm is not None and not math.isfinite(norm) for _, norm in self._rows)
        return [
            msgspec.structs.replace(row, **_proved(row, norm, sees=sees))
            for row, norm in self._rows
        ]

    def norms(self) -> dict[tuple[int, int, str, str], float]:
        """The finite norms among the hashes."""
        return {
            (row.process, row.index, row.io, row.slot): norm
            for row, norm in self._rows
            if norm is not None and math.isfinite(norm)
        }

    def _line(self, line: str) -> None:
        text = line.lstrip(" ")
        if text:
            self._text(len(line) - len(text), text)

    def _text(self, indent: int, text: str) -> None:
        if text.startswith("#"):
            self._comment(text)
        elif (module := _MODULE.fullmatch(text)) is not None:
            self._module(indent, module[1], module[2] or "")
        elif text.startswith("[triton] "):
            kernel = _KERNEL.fullmatch(text)
            call = read_call(f"triton::{kernel[1]}({kernel[2]})") if kernel is not None else None
            if call is not None:
                self._call(indent, call, ("operator", call.name))
        elif not text.startswith(("[", "-> output", "<method-wrapper")):
            call = read_call(text)
            if call is not None and (level := _level(call)) is not None:
                self._call(indent, call, level)

    def _comment(self, text: str) -> None:
        if (frame := _STACK.match(text)) is not None:
            line = f"{frame[1]}:{frame[2]}"
            self._source = line, self.add_stack((f"{line} in {frame[3]}",))
        elif (
            text.startswith("# post-kernel hashes: ")
            and self.calls
            and self.calls[-1].op.startswith("triton::")
        ):
            kernel = (self.process.process, self.index - 1)
            latest = takewhile(
                lambda pair: (pair[0].process, pair[0].index) == kernel, reversed(self._rows)
            )
            read = {row.slot: row for row, _ in latest}
            for name, norm in read_keyed(text.partition(": ")[2]).items():
                if (row := read.get(f"kwargs.{name}")) is not None:
                    self._rows.append(
                        (
                            msgspec.structs.replace(row, io="output", slot=name, version=None),
                            float(norm),
                        )
                    )

    def _close(self, indent: int, *, module: bool) -> None:
        """Leave the calls that a line of this indentation is not within; lines within a module
        stand at its own, and it is in no API.
        """
        while self._open:
            last = self._open[-1]
            within = last.indent < indent or (
                last.indent == indent and last.is_module and not module
            )
            if within and (last.is_module or not module):
                return
            self._open.pop()

    def _module(self, indent: int, root: str, path: str) -> None:
        self._close(indent, module=True)
        self._record(indent, ("module", root if not path else "torch.nn.Module"), path)

    def _call(self, indent: int, text: CallText, level: tuple[str, str]) -> None:
        self._close(indent, module=False)
        self._record(indent, level, self._open[-1].module if self._open else None, text)

    def _record(
        self, indent: int, level: tuple[str, str], module: str | None, text: CallText | None = None
    ) -> None:
        above = self._open[-1] if self._open else None
        kind, op = level
        stem = module or "<root>" if kind == "module" else op
        backward = (above is not None and above.backward) or (
            kind == "operator" and "_backward" in op
        )
        call = self.add_call(
            step=0,
            level=kind,
            op=op,
            module=module,
            parent=above.index if above is not None else None,
            phase="backward" if backward else "forward",
            name=f"{stem}#{self._counts[stem]}",
            stack=self._source[1] if self._source else None,
            source=self._source[0] if self._source else None,
            args=_arguments(text) if text is not None else None,
        )
        self._counts[stem] += 1
        self._open.append(
            _Open(indent, call.index, module, kind == "module", backward or op in _BACKWARD)
        )
        if text is not None:
            self._tensors(call, text, follow=kind == "operator")

    def _tensors(self, call: Call, text: CallText, *, follow: bool) -> None:
        """Rows of a call; APIs stand before what runs in them, so only operators make and read
        versions.
        """
        hashes = text.log.get("input_hash")
        given = hashes if isinstance(hashes, list) and len(hashes) == 2 else [None, None]
        inputs = [*_leaves(text.args, given[0], ""), *_leaves(text.kwargs, given[1], "kwargs")]
        for slot, tensor, norm in inputs:
            version = (
                self._versions.setdefault(tensor.number, self._new())
                if follow and tensor.number is not None
                else None
            )
            self._rows.append((_row(call, "input", slot, tensor, version), norm))
        if follow and _IN_PLACE.fullmatch(text.name):
            self._versions.clear()
        for slot, tensor, norm in _leaves(text.output, text.log.get("hash"), ""):
            version = self._new() if follow and tensor.number is not None else None
            if version is not None and tensor.number is not None:
                self._versions[tensor.number] = version
            self._rows.append((_row(call, "output", slot or "0", tensor, version), norm))

    def _new(self) -> int:
        self._next += 1
        return self._next


def _row(call: Call, io: str, slot: str, tensor: TensorText, version: int | None) -> Tensor:
    size = math.prod(tensor.shape) if tensor.shape is not None and tensor.kind != "dt" else None
    return Tensor(
        process=call.process,
        index=call.index,
        io=io,
        slot=slot,
        version=version,
        dtype=tensor.dtype,
        shape=tensor.shape,
        size=size,
        tensor_class={"ft": "FakeTensor", "dt": "DTensor"}.get(tensor.kind),
    )


def _level(call: CallText) -> tuple[str, str] | None:
    """Level and op of a call; None for what is no operation on tensors."""
    if "::" in call.name:
        return "operator", call.name if "." in call.name else f"{call.name}.default"
    if not any(True for _ in _leaves([call.args, call.kwargs, call.output], None, "")):
        return None
    method = _METHOD.fullmatch(call.name)
    return "api", f"torch.Tensor.{method[1]}" if method is not None else call.name


def _leaves(value: Any, hashes: Any, slot: str) -> Iterator[tuple[str, TensorText, float | None]]:
    """Tensors of a value with their slots and norms; hashes is a tree of the same form."""
    if isinstance(value, TensorText):
        yield slot, value, _norm(hashes)
    elif isinstance(value, (list, dict)):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _leaves(item, _within(hashes, key), f"{slot}.{key}" if slot else str(key))


def _within(hashes: Any, key: str | int) -> Any:
    if isinstance(key, str):
        return hashes.get(key) if isinstance(hashes, dict) else None
    return hashes[key] if isinstance(hashes, list) and key < len(hashes) else None


def _norm(value: Any) -> float | None:
    """The L1 norm among the hashes of a tensor; the other hash there is is an integer."""
    if isinstance(value, list):
        return next((norm for item in value if (norm := _norm(item)) is not None), None)
    return value if isinstance(value, float) else None


def _proved(row: Tensor, norm: float | None, *, sees: bool) -> dict[str, Any]:
    known = find_dtype(row.dtype)
    if norm is None or not sees or known is None or known.kind not in {"float", "complex"}:
        return {}
    if math.isfinite(norm):
        return {"nan": 0, "pos_inf": 0, "neg_inf": 0}
    return {"nan": 1} if math.isnan(norm) else {"pos_inf": 1}


def _arguments(text: CallText) -> str:
    tree = {
        "args": [_argument(value, str(i)) for i, value in enumerate(text.args)],
        "kwargs": {name: _argument(value, f"kwargs.{name}") for name, value in text.kwargs.items()},
    }
    return msgspec.json.encode(tree).decode()


def _argument(value: Any, slot: str) -> Any:
    if isinstance(value, TensorText):
        return {"tensor": slot}
    if isinstance(value, list):
        return [_argument(item, f"{slot}.{i}") for i, item in enumerate(value)]
    if isinstance(value, dict):
        return {"object": {key: _argument(item, f"{slot}.{key}") for key, item in value.items()}}
    if isinstance(value, Word):
        known = find_dtype(value.text) if value.text.startswith("torch.") else None
        return {"dtype": known.name} if known is not None else {"object": value.text[:200]}
    return plain_value(value)
