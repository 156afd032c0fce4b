# SPDX-License-Identifier: Apache-2.0
"""The .ir text of one step of a run: nodes, edges, attributes, types, full names and source lines,
as MindSpore 2.10 prints them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import msgspec

from opscope.formats.writing.call_arguments import argument_tree
from opscope.run.dtypes import find_dtype
from opscope.run.schema import Call, Stack, Tensor

_FRAME = re.compile(r"(?P<path>.+):(?P<line>\d+)(?: in (?P<function>.*))?$", re.DOTALL)
_SHORT = {"float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16"}


class GraphText(msgspec.Struct, frozen=True):
    """An .ir file and the full names of its kernels in execution order."""

    text: str
    names: tuple[str, ...]


def graph_text(
    calls: list[tuple[Call, list[Tensor]]],
    stacks: dict[tuple[int, int], Stack],
    op_of: Callable[[Call], str],
) -> GraphText:
    """The graph of the kernels of one step."""
    builder = _Builder(stacks, op_of)
    for call, rows in sorted(calls, key=lambda pair: (pair[0].process, pair[0].index)):
        builder.add(call, rows)
    return GraphText(builder.text(), tuple(builder.names))


class _Builder:
    """Numbers nodes and parameters, and joins operands by version."""

    def __init__(self, stacks: dict[tuple[int, int], Stack], op_of: Callable[[Call], str]) -> None:
        self._stacks, self._op_of = stacks, op_of
        self._nodes: list[str] = []
        self._count = 0
        self._parameters: dict[str, str] = {}
        self._made: dict[tuple[int, int], str] = {}
        self.names: list[str] = []

    def add(self, call: Call, rows: list[Tensor]) -> None:
        """One kernel, with a TupleGetItem for each output of several."""
        inputs = [row for row in rows if row.io == "input"]
        outputs = [row for row in rows if row.io == "output" and row.slot.isdigit()]
        operands = self._operands(call, inputs)
        number = self._next()
        head = (
            f"  %{number}(CNode_{number}) = "
            f"{self._op_of(call)}({', '.join(text for text, _ in operands)})"
        )
        head += (
            f" primitive_attrs: {{{_attributes(call.args)}}} cnode_attrs: {{is_dynamic_len: "
            f"Bool(0)}}"
        )
        host = [row for _, row in operands]
        lines = [head, f"      : ({_hosts(host)}) -> ({_outputs(outputs)})"]
        if all(row is None or _device(row) for row in (*host, *outputs)):
            lines.append(
                "      : "
                f"({', '.join(_device(row) if row else '<Int64xDefaultFormat[const vector]{}>' for row in host)})"  # noqa: E501
                f" -> ({', '.join(map(_device, outputs))})"
            )
        lines.append(f"      # Fullname with scope: ({_one_line(call.name)})")
        lines += self._trace(call)
        self._nodes += lines
        self.names.append(_one_line(call.name))
        self._number_outputs(call.process, number, outputs)

    def _next(self) -> int:
        self._count += 1
        return self._count - 1

    def _number_outputs(self, process: int, number: int, outputs: list[Tensor]) -> None:
        for row in outputs:
            if row.version is None:
                continue
            reference = f"%{number}"
            if len(outputs) > 1:
                item = self._next()
                self._nodes += [
                    (
                        f"  %{item}(CNode_{item}) = TupleGetItem(%{number}, I64({row.slot})) "
                        f"cnode_attrs: {{is_dynamic_len: Bool(0)}}"
                    ),
                    f"      : (<Tuple, NoShape>, <Int64, NoShape>) -> ({_host(row)})",
                ]
                reference = f"%{item}"
            self._made[process, row.version] = reference

    def _operands(self, call: Call, inputs: list[Tensor]) -> list[tuple[str, Tensor | None]]:
        """Operands in the order of their slots: edges, parameters and constants."""
        by_slot = {row.slot: row for row in inputs}
        operands: list[tuple[str, Tensor | None]] = []
        positional = argument_tree(call.args).get("args")
        for i, value in enumerate(positional if isinstance(positional, list) else []):
            row = by_slot.pop(str(i), None)
            operands.append(
                (self._reference(call, row), row) if row is not None else (_value(value), None)
            )
        rest = sorted(
            by_slot.items(),
            key=lambda item: (
                not item[0].isdigit(),
                int(item[0]) if item[0].isdigit() else 0,
                item[0],
            ),
        )
        return operands + [(self._reference(call, row), row) for _, row in rest]

    def _reference(self, call: Call, row: Tensor) -> str:
        made = self._made.get((call.process, row.version)) if row.version is not None else None
        if made is not None:
            return made
        if row.role == "constant" and row.version is None:
            sizes = ", ".join(map(str, row.shape or ()))
            return f"Tensor(shape=[{sizes}], dtype={_mindspore(row.dtype)}, value=...)"
        name = row.tensor_name or f"{call.name}.{row.io}.{row.slot}"
        key = (
            name if row.tensor_name is not None or row.version is None else f"version {row.version}"
        )
        if key not in self._parameters:
            plain = re.sub(r"[^\w.]", "_", name)
            self._parameters[key] = f"%para{len(self._parameters) + 1}_{plain}: {_parameter(row)}"
        return self._parameters[key].partition(":")[0]

    def _trace(self, call: Call) -> list[str]:
        """The source lines, outermost first; a def line before each frame whose function is
        known.
        """
        stack = self._stacks.get((call.process, call.stack)) if call.stack is not None else None
        frames = (
            list(reversed(stack.frames))
            if stack is not None
            else [call.source]
            if call.source
            else []
        )
        lines = (
            ["      # Corresponding forward node candidate:"]
            if call.phase == "backward" and frames
            else []
        )
        for frame in frames:
            parts = _FRAME.match(_one_line(frame))
            if parts is None:
                continue
            path, line, function = parts["path"], parts["line"], parts["function"]
            if function and function.isidentifier():
                lines.append(f"      # In file {path}:{line}~{line}, 0~0/    def {function}():/")
            lines.append(f"      # In file {path}:{line}, 0~0/        in {function or '?'}/")
        return lines

    def text(self) -> str:
        """The whole file."""
        head = [
            "# IR entry: @kernel_graph0",
            "# Total subgraphs: 1",
            "",
            f"# Total params: {len(self._parameters)}",
            "# Params:",
        ]
        return "\n".join(
            (
                *head,
                *self._parameters.values(),
                "",
                "subgraph @kernel_graph0() {",
                *self._nodes,
                "}",
                "",
            )
        )


def _parameter(row: Tensor) -> str:
    weight = row.role in {"parameter", "buffer"}
    inner = (
        f"<Ref[Tensor[{_mindspore(row.dtype)}]], ({_sizes(row)}), ref_key={row.tensor_name}>"
        if weight
        else _host(row)
    )
    return (
        f"{inner}  :  <{_mindspore(row.dtype)}xDefaultFormat[const vector]{{{_sizes(row)}}}>  :  "
        f"IsWeight: {'true' if weight else 'false'}"
    )


def _mindspore(dtype: str) -> str:
    known = find_dtype(dtype)
    return (
        known.mindspore
        if known is not None and known.mindspore
        else re.sub(r"\W", "", dtype.capitalize()) or "Unknown"
    )


def _sizes(row: Tensor) -> str:
    return ", ".join(map(str, row.shape or ()))


def _host(row: Tensor) -> str:
    return f"<Tensor[{_mindspore(row.dtype)}], ({_sizes(row)})>"


def _hosts(rows: list[Tensor | None]) -> str:
    return ", ".join(_host(row) if row is not None else "<Int64, NoShape>" for row in rows)


def _outputs(rows: list[Tensor]) -> str:
    if len(rows) < 2:
        return ", ".join(map(_host, rows))
    kinds = ", ".join(f"Tensor[{_mindspore(row.dtype)}]" for row in rows)
    return f"<Tuple[{kinds}], TupleShape({', '.join(f'({_sizes(row)})' for row in rows)})>"


def _device(row: Tensor) -> str:
    if row.shape is None:
        return ""
    layout = row.layout if row.layout and re.fullmatch(r"\w+", row.layout) else "DefaultFormat"
    return f"<{_mindspore(row.dtype)}x{layout}[const vector]{{{_sizes(row)}}}>"


def _attributes(args: str | None) -> str:
    named = argument_tree(args).get("kwargs")
    pairs = named.items() if isinstance(named, dict) else ()
    return ", ".join(
        f"{re.sub(r'[^ -9;-z|~]', '_', str(key))}: {_value(value)}" for key, value in pairs
    )


def _value(value: Any) -> str:
    """A value as MindSpore prints it."""
    if isinstance(value, bool):
        return f"Bool({int(value)})"
    if isinstance(value, int):
        return f"I64({value})"
    if isinstance(value, float):
        return f"F32({value!r})"
    if isinstance(value, str):
        return '"' + _one_line(value).replace("\\", "\\\\").replace('"', '\\"') + '"'
    if isinstance(value, list):
        return f"({', '.join(map(_value, value))}{',' if len(value) == 1 else ''})"
    return (
        _tagged(*next(iter(value.items())))
        if isinstance(value, dict) and len(value) == 1
        else "None"
    )


def _tagged(tag: str, inner: Any) -> str:
    if tag == "float":
        return f"F32({inner})"
    if tag == "dtype":
        return _SHORT.get(str(inner), _mindspore(str(inner)))
    return '"a tensor"' if tag == "tensor" else _value(str(inner))


def _one_line(text: str) -> str:
    return " ".join(text.split()) if "\n" in text or "\r" in text else text
