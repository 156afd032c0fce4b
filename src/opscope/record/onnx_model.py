# SPDX-License-Identifier: Apache-2.0
"""Executes an ONNX model on given inputs, node by node, and records that, as a process of its own:

python -m opscope.record.onnx_model MODEL FOLDER RUN

FOLDER holds a file of tensors for each execution, in the order of names; the path of the recording
comes on stdout, what went wrong in one line on stderr. Every value of the graph is asked of ONNX
Runtime as an output, so nothing is fused: a kernel that only its optimizer makes is not seen. The
body of If, Loop and Scan is not looked into.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from opscope.formats.archives import keys_of, read_safetensors
from opscope.narrow import is_narrow, name_of
from opscope.operators.spelling import ONNX
from opscope.record.arrays import bytes_of, measured
from opscope.record.as_child import answer, check_count
from opscope.record.own_code import frames_in, is_user
from opscope.run.dtypes import dtype_of_numpy
from opscope.run.schema import Call, Row, Stack, Tensor
from opscope.run.store.layout import create_run, process_facts, seal_run
from opscope.run.store.writer import ProcessWriter
from opscope.version import VERSION

# What torch.onnx.export leaves with a node: the stack and the modules that it comes from.
STACK, SCOPES = "pkg.torch.onnx.stack_trace", "pkg.torch.onnx.name_scopes"
CHOICES = ("FLOAT", "INT", "STRING", "FLOATS", "INTS", "STRINGS")
SHOWN = 4096  # characters of a node's attributes


class Node(msgspec.Struct, frozen=True, kw_only=True):
    """A node of the graph: what it reads and makes by name, "" for what it was not given."""

    op: str
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    args: str
    module: str | None
    frames: tuple[str, ...]


class _Rows:
    """The rows of one process."""

    def __init__(self, writer: ProcessWriter, weights: Mapping[str, Any]) -> None:
        self._writer, self._process = writer, writer.process.process
        self._index = self._version = 0
        self._stacks: dict[tuple[str, ...], int] = {}
        self._weights = {
            name: self._row(array, role="parameter", tensor_name=name)
            for name, array in weights.items()
        }

    def _row(self, array: Any, **columns: Any) -> Tensor:
        """The state that an array is, of no call yet; its value is kept."""
        self._version += 1
        values, shape = np.ascontiguousarray(array), np.shape(array)
        dtype = dtype_of_numpy(values.dtype)
        row = Tensor(
            process=self._process,
            index=0,
            io="input",
            slot="0",
            version=self._version,
            dtype=dtype.name,
            shape=shape,
            device="cpu",
            **columns,
        )
        kept = self._writer.keep_value(bytes_of(values), dtype=dtype.name, shape=shape)
        return msgspec.structs.replace(measured(row, values), value=kept)

    def add(self, step: int, nodes: Sequence[Node], values: Mapping[str, Any]) -> None:
        """The rows of one execution, which gave these values."""
        states = dict(self._weights)
        states |= {name: self._row(array) for name, array in values.items()}
        calls: list[Row] = []
        tensors: list[Row] = []
        stacks: list[Row] = []
        whole = self._index
        for node in nodes:
            stack = self._stacks.get(node.frames)
            if stack is None and node.frames:
                stack = self._stacks[node.frames] = len(self._stacks)
                stacks.append(Stack(process=self._process, stack=stack, frames=node.frames))
            parent = whole if self._index > whole else None
            calls.append(self._call(node, step, stack, parent))
            for io, names in (("input", node.inputs), ("output", node.outputs)):
                tensors += [
                    msgspec.structs.replace(states[name], index=self._index, io=io, slot=str(slot))
                    for slot, name in enumerate(names)
                    if name in states
                ]
            self._index += 1
        rows: dict[str, list[Row]] = {"stacks": stacks, "calls": calls, "tensors": tensors}
        self._writer.append_rows(rows, step=step)
        self._writer.end_step(step)

    def _call(self, node: Node, step: int, stack: int | None, parent: int | None) -> Call:
        return Call(
            process=self._process,
            rank=0,
            step=step,
            index=self._index,
            level="operator" if parent is not None else "module",
            parent=parent,
            phase="forward",
            op=node.op,
            module=node.module,
            name=node.name,
            stack=stack,
            source=next(filter(_is_users, map(_place, node.frames)), None),
            args=node.args,
            device="cpu",
        )


def _place(frame: str) -> str:
    return frame.rpartition(" in ")[0]


def _is_users(line: str) -> bool:
    return is_user(line.rpartition(":")[0])


def nodes_of(graph: Any, given: Sequence[str]) -> Iterator[Node]:
    """A graph as the model it is, which reads what it is given, then its nodes, in its order, which
    is one of execution.
    """
    name = graph.name or "graph"
    args = [{"tensor": str(slot)} for slot in range(len(given))]
    yield Node(
        op=name,
        name=name,
        inputs=tuple(given),
        outputs=tuple(each.name for each in graph.output),
        args=msgspec.json.encode({"args": args, "kwargs": {}}).decode(),
        module="",
        frames=(),
    )
    for number, node in enumerate(graph.node):
        told = {each.key: each.value for each in node.metadata_props}
        frames = tuple(
            f"{file}:{line} in {function}"
            for file, line, function in reversed(frames_in(told.get(STACK, "")))
        )
        yield Node(
            op=f"{node.domain or ONNX}::{node.op_type}",
            name=node.name or f"{node.op_type}#{number}",
            inputs=tuple(node.input),
            outputs=tuple(node.output),
            args=_arguments(node),
            module=_module(told.get(SCOPES, "")),
            frames=frames,
        )


def _module(scopes: str) -> str | None:
    """The innermost module of the names of scopes, the last of which is the operator's own."""
    try:
        names = ast.literal_eval(scopes)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return None
    return str(names[-2]) if isinstance(names, list) and len(names) > 1 else None


def _arguments(node: Any) -> str:
    """Column args: inputs by their slots, attributes by their names; no tensor or graph of them."""
    from onnx import AttributeProto, helper

    plain = {AttributeProto.AttributeType.Value(kind) for kind in CHOICES}
    named = {
        each.name: _plain(helper.get_attribute_value(each))
        for each in node.attribute
        if each.type in plain
    }
    args = [{"tensor": str(slot)} if name else None for slot, name in enumerate(node.input)]
    text = msgspec.json.encode({"args": args, "kwargs": named}).decode()
    return (
        text if len(text) <= SHOWN else msgspec.json.encode({"args": args, "kwargs": {}}).decode()
    )


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, float):
        return float(str(np.float32(value)))  # which is what the file holds
    return [_plain(each) for each in value] if isinstance(value, (list, tuple)) else value


def execute(model: str, folder: str, run: str) -> Path:
    """Execute the model once for each file; the path of the recording."""
    import onnx
    import onnxruntime

    read = onnx.load(model)
    graph = read.graph
    weights = {each.name: onnx.numpy_helper.to_array(each) for each in graph.initializer}
    given = [each.name for each in graph.input if each.name not in weights]
    nodes = tuple(nodes_of(graph, given))
    known = {each.name for each in graph.output}
    graph.output.extend(
        onnx.ValueInfoProto(name=name)
        for name in dict.fromkeys(name for node in nodes for name in node.outputs)
        if name and name not in known
    )
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(
        read.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    made = [each.name for each in session.get_outputs()]
    path = create_run(Path(run), command=["onnxruntime", model], version=VERSION)
    writer = ProcessWriter(path, process_facts(), keep=None)
    rows = _Rows(writer, _numbers(weights))
    files = sorted(Path(folder).glob("*.safetensors"))
    for step, file in enumerate(files):
        feeds = arranged(given, _arrays(file))
        results = session.run(made, feeds)
        rows.add(step, nodes, feeds | _numbers(dict(zip(made, results, strict=True))))
    writer.update(steps=len(files))
    writer.close(0)
    seal_run(path)
    return path


def _arrays(path: Path) -> list[Any]:
    """The arrays of a file, in the order of their keys, as ONNX has them: with ml_dtypes' types,
    which come with it.
    """
    arrays = [np.array(read_safetensors(path, key)) for key in sorted(keys_of(path))]
    return [
        array.view(name_of(array.dtype)) if is_narrow(array.dtype) else array for array in arrays
    ]


def _numbers(values: Mapping[str, Any]) -> dict[str, Any]:
    """Those that are arrays of numbers: no text, and no list of arrays."""
    return {
        name: array
        for name, array in values.items()
        if isinstance(array, np.ndarray) and array.dtype.kind != "O"
    }


def arranged(names: Sequence[str], arrays: Sequence[Any]) -> dict[str, Any]:
    """What a graph takes, by name, of these arrays, which come in its order. ValueError where it
    takes others.
    """
    check_count(names, arrays)
    return dict(zip(names, arrays, strict=True))


if __name__ == "__main__":
    answer(execute)
