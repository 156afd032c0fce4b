# SPDX-License-Identifier: Apache-2.0
"""An exported program (torch.export, ONNX) executed on what the eager model of a run was given, and
recorded.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from opscope.errors import UsageError
from opscope.questions.rows import whole_calls
from opscope.repro.rows import rows_of_versions
from opscope.repro.tensorfile import NATIVE, Entry, write_tensors
from opscope.run.dtypes import dtype_of
from opscope.run.hashes import hash_of
from opscope.run.keys import NONE, key, keys_at, keys_of, place_of
from opscope.run.query import records_of, rows_of
from opscope.run.whole_tables import read_tables

if TYPE_CHECKING:
    from opscope.arrays import Ints
    from opscope.run.protocol import Run
    from opscope.run.schema import Call, Tensor, ValueRef

ONNX = ".onnx"
# What executes a file, and what has to be installed for it.
CHILD, NEEDED = "opscope.record.exported_program", ("torch",)
CHILD_OF_ONNX, NEEDED_OF_ONNX = "opscope.record.onnx_model", ("onnx", "onnxruntime")
TRAINING = frozenset({"backward", "optimizer"})


def record_exported(model: Path, golden: Run, output: Path) -> Path:
    """Execute an exported program once for each call of the eager run's model, and give the path of
    the recording. Loading one of torch.export executes what the file says.

    Raises UsageError where the run does not hold what its model was given, or the program cannot be
    executed on it.
    """
    if not model.is_file():
        raise UsageError(
            f"{model}: no such file; give what torch.export.save or torch.onnx.export wrote"
        )
    child, needed = (CHILD_OF_ONNX, NEEDED_OF_ONNX) if is_onnx(model) else (CHILD, NEEDED)
    lacking = [name for name in needed if importlib.util.find_spec(name) is None]
    if lacking:
        raise UsageError(f"{model}: {' and '.join(lacking)} to execute it with: not installed here")
    with tempfile.TemporaryDirectory() as folder:
        for number, (call, inputs) in enumerate(_given(golden)):
            entries = [_entry(golden, slot, each, call) for slot, each in enumerate(inputs)]
            write_tensors(Path(folder) / f"{number:06d}.safetensors", entries)
        words = [sys.executable, "-m", child, str(model), folder, str(output)]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        why = done.stderr.strip().rpartition("\n")[2]
        raise UsageError(f"{model}: not executed on what {golden.info.path} holds: {why}")
    return Path(done.stdout.strip().rpartition("\n")[2])


def is_onnx(model: Path) -> bool:
    """Whether a file is taken for an ONNX model, which holds no code."""
    return model.suffix.lower() == ONNX


def _given(run: Run) -> Iterator[tuple[Call, list[Tensor]]]:
    """The calls of the model of a run, and the tensors that each was given, with their values."""
    path = run.info.path
    if any(phase in TRAINING for (phase,) in rows_of(run, "calls", ("phase",))):
        raise UsageError(
            f"{path}: it trains its model, whose weights are not those of the exported program "
            "for long; record an inference"
        )
    models = _model_calls(run)
    if not models:
        raise UsageError(f"{path}: no call of a model is recorded; record --levels operator,module")
    whole = whole_calls(run, keys_at((call.process, call.index) for call in models))
    values = _values(run, [row for _, rows in whole.values() for row in rows if row.io == "input"])
    for model in models:
        call, rows = whole[key(model.process, model.index)]
        given = sorted((row for row in rows if row.io == "input"), key=_place)
        yield (
            call,
            [
                msgspec.structs.replace(row, value=values.get((row.process, row.version)))
                for row in given
            ],
        )


def _model_calls(run: Run) -> list[Call]:
    """The outermost calls of the class of modules in which most calls lie, of the first rank."""
    tops, counts = _outermost(run)
    inside = dict(zip(tops.tolist(), counts.tolist(), strict=True))
    calls = sorted(
        records_of(run, "calls", tops),
        key=lambda call: (call.rank, call.step, call.process, call.index),
    )
    most = Counter[str]()
    for call in calls:
        most[call.op] += inside[key(call.process, call.index)]
    model = max(most, key=most.__getitem__, default=None)
    return [call for call in calls if (call.rank, call.op) == (calls[0].rank, model)]


def _outermost(run: Run) -> tuple[Ints, Ints]:
    """The outermost calls of modules, sorted, and how many calls lie inside of each, itself
    counted.
    """
    table, _ = read_tables(run)
    process, index, parent, again = (
        table.numbers(name, np.int64, NONE) for name in ("process", "index", "parent", "again")
    )
    calls = keys_of(process, index)
    around = np.where(parent != NONE, place_of(keys_of(process, parent), calls), NONE)
    top = np.where(around != NONE, around, np.arange(len(calls)))
    for _ in range(len(calls).bit_length()):  # each time twice as far out
        top = top[top]
    module = table.hashes("level") == hash_of("module")
    outermost = np.flatnonzero(module & (parent == NONE) & (again == NONE))
    outermost = outermost[np.argsort(calls[outermost])]
    return calls[outermost], np.bincount(top, minlength=len(calls))[outermost]


def _values(run: Run, rows: Sequence[Tensor]) -> dict[tuple[int, int | None], ValueRef]:
    """Where the first call that keeps what these rows hold keeps it, by process and version."""
    versions = defaultdict[int, list[int]](list)
    for row in rows:
        if row.version is not None:
            versions[row.process].append(row.version)
    holding = dict[tuple[int, int], int]()
    for process, wanted in versions.items():
        kept = rows_of_versions(run, process, wanted, ("version", "index", "value"))
        for version, index, value in kept:
            if value is not None:
                place = process, version
                holding[place] = min(index, holding.get(place, index))
    holders = keys_at((process, index) for (process, _), index in holding.items())
    return {
        (row.process, row.version): row.value
        for _, tensors in whole_calls(run, holders).values()
        for row in tensors
        if row.value is not None
    }


def _place(row: Tensor) -> list[tuple[int, str]]:
    """By the places of arguments, 10 behind 9."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in row.slot.split(".")]


def _entry(run: Run, number: int, row: Tensor, call: Call) -> Entry:
    dtype = dtype_of(row.dtype)
    if row.value is None or row.shape is None or dtype is None or dtype.name not in NATIVE:
        raise UsageError(
            f"{run.info.path}: what {call.name} was given (input {row.slot}) is not kept; record "
            "the eager model with --values full"
        )
    return Entry(key=f"{number:06d}", dtype=dtype, shape=row.shape, load=partial(run.value, row))
