# SPDX-License-Identifier: Apache-2.0
"""A run in memory made from one real operator call: the rows of docs/schema.md, written by plain
NumPy.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import json
import math
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import torch

from opscope.errors import MissingValueError
from opscope.run.memory import MemoryRun
from opscope.run.protocol import RunInfo
from opscope.run.schema import Call, Tensor, ValueRef
from opscope.run.store.reader import RECORDED

RAW = {
    torch.bfloat16: (torch.int16, ml_dtypes.bfloat16),
    torch.float8_e4m3fn: (torch.uint8, ml_dtypes.float8_e4m3fn),
    torch.float8_e5m2: (torch.uint8, ml_dtypes.float8_e5m2),
}


def to_numpy(tensor: torch.Tensor) -> np.ndarray[Any, Any]:
    """A copy of a tensor's elements in their true dtype."""
    dense = (
        tensor.detach().clone(memory_format=torch.contiguous_format).resolve_conj().resolve_neg()
    )
    if dense.dtype in RAW:
        bits, true = RAW[dense.dtype]
        return dense.view(bits).numpy().view(true)
    return dense.numpy()


def statistics(array: np.ndarray[Any, Any]) -> dict[str, Any]:
    """The statistics columns of schema.md."""
    found: dict[str, Any] = {"size": array.size}
    if array.dtype.kind in "iu":
        x: np.ndarray[Any, Any] = array
        found |= {"min_int": int(x.min()), "max_int": int(x.max())} if x.size else {}
    elif array.dtype.kind == "c":
        x = np.abs(array)
    else:
        x = array.astype(np.float64)
    wide = x.astype(np.float64)
    finite = wide[np.isfinite(wide)]
    found |= {
        "nan": int(np.isnan(wide).sum()),
        "pos_inf": int((wide == math.inf).sum()),
        "neg_inf": int((wide == -math.inf).sum()),
    }
    found |= {
        "zero": int((wide == 0).sum()),
        "neg": int((finite < 0).sum()),
        "pos": int((finite > 0).sum()),
    }
    if finite.size:
        found |= {
            "min": finite.min().item(),
            "max": finite.max().item(),
            "mean": finite.mean().item(),
        }
        with np.errstate(over="ignore"):
            found |= {"l2norm": float(np.sqrt((finite**2).sum()))}
    return found


def encode(value: Any) -> Any:
    """One leaf of an argument tree."""
    if value is None or isinstance(value, (bool, str, int)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {"float": str(value)}
    if isinstance(value, complex):
        return {"complex": [encode(value.real), encode(value.imag)]}
    tags = {
        torch.dtype: "dtype",
        torch.layout: "layout",
        torch.memory_format: "memory_format",
        torch.device: "device",
    }
    if type(value) in tags:
        return {tags[type(value)]: str(value).removeprefix("torch.")}
    if isinstance(value, torch.Generator):
        return {"generator": str(value.device)}
    return {"object": repr(value)}


class Recorder:
    """Records one call: rows of the tensors before and after it, and their values."""

    def __init__(self) -> None:
        self.rows: list[Tensor] = []
        self.values: dict[tuple[str, str], np.ndarray[Any, Any]] = {}
        self.storages: dict[int, int] = {}

    def tree(self, value: Any, slot: str) -> Any:
        if isinstance(value, torch.Tensor):
            self.see("input", slot, value)
            return {"tensor": slot}
        if isinstance(value, (list, tuple)):
            return [self.tree(item, f"{slot}.{i}") for i, item in enumerate(value)]
        return encode(value)

    def see(self, io: str, slot: str, tensor: torch.Tensor) -> None:
        array = to_numpy(tensor)
        storage = self.storages.setdefault(
            tensor.untyped_storage().data_ptr() if tensor.numel() else -1 - len(self.rows),
            len(self.storages),
        )
        self.values[io, slot] = array
        self.rows.append(
            Tensor(
                process=0,
                index=7,
                io=io,
                slot=slot,
                version=len(self.rows),
                storage=storage,
                offset=tensor.storage_offset(),
                dtype=str(tensor.dtype).removeprefix("torch."),
                shape=tuple(tensor.shape),
                stride=tuple(tensor.stride()),
                device=str(tensor.device),
                layout="strided",
                requires_grad=False,
                value=ValueRef("shard", f"{io}{slot}"),
                **statistics(array),
            )
        )

    def outputs(self, result: Any, path: str = "") -> None:
        for i, item in enumerate(result if isinstance(result, (tuple, list)) else (result,)):
            if isinstance(item, torch.Tensor):
                self.see("output", f"{path}{i}", item)
            elif isinstance(item, (tuple, list)):
                self.outputs(item, f"{path}{i}.")


def record(op: str, *args: Any, **kwargs: Any) -> tuple[MemoryRun, Call]:
    """Make the call `aten::bmm.default` with these arguments, and return it as a run of one
    call.
    """
    namespace, _, rest = op.partition("::")
    name, _, overload = rest.partition(".")
    func = getattr(getattr(getattr(torch.ops, namespace), name), overload or "default")
    recorder = Recorder()
    tree = {
        "args": [recorder.tree(value, str(i)) for i, value in enumerate(args)],
        "kwargs": {key: recorder.tree(value, f"kwargs.{key}") for key, value in kwargs.items()},
    }
    error = None
    try:
        with torch.no_grad():
            result = func(*args, **kwargs)
        recorder.outputs(result)
        if result is None:
            recorder.outputs(args[0], "0.")
    except Exception as raised:  # noqa: BLE001 - the call's own failure is what is recorded
        error = f"{type(raised).__name__}: {raised}"
    return run_of(recorder.rows, recorder.values, call_row(op, tree, error=error))


def call_row(op: str, tree: Any, **more: Any) -> Call:
    """A call row around an argument tree."""
    short = op.partition("::")[2].partition(".")[0]
    facts = {
        "process": 0,
        "rank": 0,
        "step": 3,
        "index": 7,
        "level": "operator",
        "phase": "forward",
        "op": op,
        "module": "blocks.2.attn",
        "name": f"blocks.2.attn:{short}#1",
        "source": "/home/someone/train.py:41",
        "args": json.dumps(tree),
    }
    return Call(**{**facts, **more})


def run_of(rows: Any, values: Any, call: Call, **info: Any) -> tuple[MemoryRun, Call]:
    """A run of this one call whose kept values are given by (io, slot)."""

    def value(row: Tensor) -> np.ndarray[Any, Any]:
        if row.value is None:
            raise MissingValueError("not kept")
        found: np.ndarray[Any, Any] = values[row.io, row.slot]
        return found

    packages = {"torch": str(torch.__version__)}
    known = {"path": "memory", "format": "opscope", "coverage": RECORDED, "packages": packages}
    facts = RunInfo(**{**known, **info})
    return MemoryRun(facts, (), [call], rows, value=value), call


def run_script(directory: Path, *options: str) -> tuple[int, dict[str, Any]]:
    """Exit code and JSON document of a folder's repro.py, imported from there and run in this
    process.
    """
    spec = importlib.util.spec_from_file_location("generated_repro", directory / "repro.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        code = module.main([*options, "--json"])
    document: dict[str, Any] = json.loads(printed.getvalue())
    return code, document
