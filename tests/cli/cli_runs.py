# SPDX-License-Identifier: Apache-2.0
"""A small native run, and the environment of a user's shell."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import opscope
from opscope.kernels import reference
from opscope.narrow import FORMATS, name_of, narrowed
from opscope.run.arrow import encode_rows
from opscope.run.schema import Call, Stack, Tensor, ValueRef
from opscope.run.store.layout import create_run, process_facts, seal_run
from opscope.run.store.writer import ProcessWriter

Command = Callable[..., subprocess.CompletedProcess[str]]
SOURCE = str(Path(opscope.__file__).parents[1])
PROGRAM = (
    "import torch\n\n\ndef forward(q, k):\n    scores = q @ k.T\n    return "
    "scores.softmax(-1)\n\n\nforward(a, b).sum().backward()\n"
)


def environment(**more: str) -> dict[str, str]:
    """What a user's shell has: nothing of a recording, 80 columns, no colour asked for."""
    hidden = ("OPSCOPE", "COLUMNS", "LINES", "FORCE_COLOR", "NO_COLOR", "PYTHONPATH")
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith(hidden)},
        "PYTHONPATH": SOURCE,
        **more,
    }


def ended(
    line: Sequence[object], place: Path, *, timeout: float = 600, **more: str
) -> subprocess.CompletedProcess[str]:
    """A command that was run in a directory to its end; stdin is empty."""
    return subprocess.run(
        [str(word) for word in line],
        env=environment(**more),
        cwd=place,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


def tensor(
    index: int,
    io: str,
    slot: str,
    array: np.ndarray[Any, Any],
    *,
    version: int,
    value: ValueRef | None = None,
) -> Tensor:
    found = reference.statistics(array)
    names = (
        "size",
        "nan",
        "pos_inf",
        "neg_inf",
        "zero",
        "neg",
        "pos",
        "near_limit",
        "min",
        "max",
        "mean",
        "l2norm",
        "digest",
    )
    return Tensor(
        process=0,
        index=index,
        io=io,
        slot=slot,
        version=version,
        storage=version,
        offset=0,
        dtype=name_of(array.dtype),
        shape=array.shape,
        stride=tuple(stride // array.itemsize for stride in array.strides),
        device="cpu",
        value=value,
        **{name: getattr(found, name) for name in names},
    )


def write_run(directory: Path, program: Path) -> Path:
    """Two steps of a product and a softmax; in the second one the product leaves float16."""
    path = create_run(directory, command=["python", str(program)], version=opscope.__version__)
    writer = ProcessWriter(path, process_facts())
    stacks = [
        Stack(process=0, stack=0, frames=(f"{program}:5 in forward", f"{program}:9 in <module>")),
        Stack(process=0, stack=1, frames=(f"{program}:6 in forward", f"{program}:9 in <module>")),
    ]
    writer.append("stacks", encode_rows("stacks", stacks), step=0)
    for step, scale in enumerate((1.0, 300.0)):
        q = np.full((2, 4), scale, dtype=np.float16)
        k = q + np.float16(1)
        with np.errstate(over="ignore", invalid="ignore"):
            scores = q @ k.T
            soft = np.exp(scores - scores.max()) / 2
        first = step * 2
        facts: dict[str, Any] = {
            "process": 0,
            "rank": 0,
            "step": step,
            "level": "operator",
            "phase": "forward",
            "module": "blocks.0",
        }
        args = '{"args": [{"tensor": "0"}, {"tensor": "1"}], "kwargs": {}}'
        calls = [
            Call(
                index=first,
                op="aten::mm.default",
                name="blocks.0:mm#1",
                source=f"{program}:5",
                stack=0,
                args=args,
                **facts,
            ),
            Call(
                index=first + 1,
                op="aten::_softmax.default",
                name="blocks.0:_softmax#1",
                source=f"{program}:6",
                stack=1,
                args='{"args": [{"tensor": "0"}, -1, false], "kwargs": {}}',
                **facts,
            ),
        ]
        kept = [
            writer.keep_value(np.ascontiguousarray(array), dtype="float16", shape=array.shape)
            for array in (q, k)
        ]
        tensors = [
            tensor(first, "input", "0", q, version=first * 4, value=kept[0]),
            tensor(first, "input", "1", k, version=first * 4 + 1, value=kept[1]),
            tensor(first, "output", "0", scores, version=first * 4 + 2),
            tensor(first + 1, "input", "0", scores, version=first * 4 + 2),
            tensor(first + 1, "output", "0", soft, version=first * 4 + 3),
        ]
        writer.append("calls", encode_rows("calls", calls), step=step)
        writer.append("tensors", encode_rows("tensors", tensors), step=step)
        writer.end_step(step, finding=step == 1)
    writer.close(0)
    seal_run(path)
    return path


def write_narrow_run(directory: Path, program: Path, *, factor: float = 1.0) -> Path:
    """A step in which a number of each format that NumPy lacks is doubled, the largest beyond what
    the format holds; factor is what results are wrong by.
    """
    path = create_run(directory, command=["python", str(program)], version=opscope.__version__)
    writer = ProcessWriter(path, process_facts())
    calls, tensors = [], []
    for index, name in enumerate(sorted(FORMATS)):
        values = np.array([0.5, 1, 2, 4, FORMATS[name].limits().largest])
        read, made = narrowed(values, name), narrowed(values * 2 * factor, name)
        kept = [
            writer.keep_value(array.view(np.uint8), dtype=name, shape=array.shape)
            for array in (read, made)
        ]
        calls.append(
            Call(
                process=0,
                rank=0,
                step=0,
                index=index,
                level="operator",
                phase="forward",
                module=name,
                op="aten::mul.Tensor",
                name=f"{name}:mul#1",
                source=f"{program}:{index + 1}",
                args='{"args": [{"tensor": "0"}, 2], "kwargs": {}}',
            )
        )
        tensors += [
            tensor(index, "input", "0", read, version=2 * index, value=kept[0]),
            tensor(index, "output", "0", made, version=2 * index + 1, value=kept[1]),
        ]
    writer.append("calls", encode_rows("calls", calls), step=0)
    writer.append("tensors", encode_rows("tensors", tensors), step=0)
    writer.end_step(0, finding=True)
    writer.close(0)
    seal_run(path)
    return path
