# SPDX-License-Identifier: Apache-2.0
"""Dumps for the tests of msprobe's format and its ancestors: the real ones of data/, and small ones
made by hand.
"""

from __future__ import annotations

import json
import tempfile
import zipfile
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from opscope.formats.writing.array_files import write_pt
from opscope.run.protocol import Run
from opscope.run.schema import Call, Tensor

DATA = Path(__file__).parent / "data"
_HOME = tempfile.TemporaryDirectory(prefix="opscope-mp-")


@lru_cache(maxsize=8)
def real(name: str) -> Path:
    """A dump of data/, unpacked once."""
    with zipfile.ZipFile(DATA / f"{name}.zip") as archive:
        archive.extractall(_HOME.name)
    return Path(_HOME.name) / name


def tensor(shape: tuple[int, ...] = (2, 3), **fields: Any) -> dict[str, Any]:
    """A tensor as dump.json has it."""
    return {
        "type": "torch.Tensor",
        "dtype": "torch.float32",
        "shape": list(shape),
        "Max": 2.0,
        "Min": -1.0,
        "Mean": 0.5,
        "Norm": 3.0,
        "requires_grad": True,
        **fields,
    }


def entry(*inputs: Any, output: Any = None, **fields: Any) -> dict[str, Any]:
    """A forward entry."""
    return {
        "input_args": list(inputs),
        "input_kwargs": {},
        "output": [output if output is not None else tensor()],
        **fields,
    }


def write(
    folder: Path,
    data: dict[str, Any],
    *,
    name: str = "dump.json",
    stack: Any = None,
    construct: Any = None,
    **head: Any,
) -> Path:
    """The jsons of one folder."""
    folder.mkdir(parents=True, exist_ok=True)
    value = {
        "task": "statistics",
        "level": "L1",
        "framework": "pytorch",
        "dump_data_dir": None,
        **head,
        "data": data,
    }
    (folder / name).write_text(json.dumps(value, indent=1))
    for other, content in (("stack", stack), ("construct", construct)):
        if content is not None:
            (folder / f"{other}.json").write_text(json.dumps(content))
    return folder


def save(folder: Path, name: str, values: Any) -> None:
    """One file of dump_tensor_data."""
    (folder / "dump_tensor_data").mkdir(parents=True, exist_ok=True)
    if name.endswith(".pt"):
        write_pt(folder / "dump_tensor_data" / name, np.asarray(values))
    else:
        np.save(folder / "dump_tensor_data" / name, values)


def calls(run: Run) -> list[Call]:
    """Records of table calls."""
    return list(run.rows("calls"))  # type: ignore[attr-defined]


def named(run: Run, name: str) -> Call:
    """The one call of this name."""
    (found,) = (call for call in calls(run) if call.name == name)
    return found


def rows(run: Run, call: Call) -> dict[tuple[str, str], Tensor]:
    """Tensor rows of a call by side and slot."""
    return {(row.io, row.slot): row for row in run.tensors_of(call.process, call.index)}  # type: ignore[attr-defined]
