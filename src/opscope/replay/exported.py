# SPDX-License-Identifier: Apache-2.0
"""An exported program (torch.export, ONNX) executed on what the eager model of a run was given, and
recorded.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from opscope.errors import UsageError
from opscope.questions.rows import whole_calls
from opscope.questions.tables import Tables, open_tables
from opscope.repro.tensorfile import NATIVE, Entry, write_tensors
from opscope.run.dtypes import dtype_of
from opscope.run.keys import key

if TYPE_CHECKING:
    from opscope.run.protocol import Run
    from opscope.run.schema import Call, Tensor

ONNX = ".onnx"
# What executes a file, and what has to be installed for it.
CHILD, NEEDED = "opscope.record.exported_program", ("torch",)
CHILD_OF_ONNX, NEEDED_OF_ONNX = "opscope.record.onnx_model", ("onnx", "onnxruntime")
# Outermost calls of modules, and how many calls lie inside of each.
_MODELS = """
    WITH RECURSIVE inside AS (
        SELECT process, "index", "index" AS model FROM calls
        WHERE level = 'module' AND parent IS NULL AND again IS NULL
        UNION ALL
        SELECT c.process, c."index", inside.model FROM calls c
        JOIN inside ON c.process = inside.process AND c.parent = inside."index")
    SELECT m.rank, m.step, m.process, m."index", m.op, count(*) FROM inside
    JOIN calls m ON m.process = inside.process AND m."index" = inside.model
    GROUP BY ALL ORDER BY ALL
"""
_TRAINED = "SELECT count(*) FROM calls WHERE phase IN ('backward', 'optimizer')"
# Calls with a row that keeps what these calls read.
_KEPT = """
    SELECT t.process, t.version, min(kept."index") FROM tensors t
    SEMI JOIN wanted USING (process, "index")
    JOIN tensors kept ON kept.process = t.process AND kept.version = t.version
    WHERE t.io = 'input' AND kept.value IS NOT NULL GROUP BY ALL
"""


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
    with open_tables(golden) as tables, tempfile.TemporaryDirectory() as folder:
        for number, (call, inputs) in enumerate(_given(tables)):
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


def _given(tables: Tables) -> Iterator[tuple[Call, list[Tensor]]]:
    """The calls of the model of a run, and the tensors that each was given, with their values."""
    path = tables.run.info.path
    if tables.rows(_TRAINED)[0][0]:
        raise UsageError(
            f"{path}: it trains its model, whose weights are not those of the exported program "
            "for long; record an inference"
        )
    keys = _model_calls(tables)
    if not keys:
        raise UsageError(f"{path}: no call of a model is recorded; record --levels operator,module")
    wanted = np.array(sorted(keys), dtype=np.int64)
    kept = {
        (process, version): key(process, index)
        for process, version, index in tables.rows(_KEPT, wanted=wanted)
    }
    holding = whole_calls(tables, np.unique(np.array([*kept.values()], dtype=np.int64)))
    values = {
        (row.process, row.version): row.value
        for _, rows in holding.values()
        for row in rows
        if row.value is not None
    }
    calls = whole_calls(tables, wanted)
    for number in keys:
        call, rows = calls[number]
        given = sorted((row for row in rows if row.io == "input"), key=_place)
        yield (
            call,
            [
                msgspec.structs.replace(row, value=values.get((row.process, row.version)))
                for row in given
            ],
        )


def _model_calls(tables: Tables) -> list[int]:
    """The outermost calls of the class of modules in which most calls lie, of the first rank."""
    rows = tables.rows(_MODELS)
    inside: defaultdict[str, int] = defaultdict(int)
    for *_, op, count in rows:
        inside[op] += count
    if not inside:
        return []
    model, rank = max(inside, key=lambda op: inside[op]), rows[0][0]
    return [
        key(process, index) for of, _, process, index, op, _ in rows if (of, op) == (rank, model)
    ]


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
