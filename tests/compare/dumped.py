# SPDX-License-Identifier: Apache-2.0
"""Dumps of a chain of calls with given values, in a layout that needs no framework."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

_NAMES = ("Max", "Min", "Mean", "Norm")


def dump(
    folder: Path,
    outputs: dict[str, np.ndarray[Any, Any]],
    feed: np.ndarray[Any, Any],
    *,
    statistics: bool = False,
) -> Path:
    """A chain of calls with values; each reads what the one before wrote."""
    place = folder / "step0" / "rank0"
    data_folder = place / "dump_tensor_data"
    data_folder.mkdir(parents=True)
    data, before = {}, feed
    for op, after in outputs.items():
        entry = {}
        for key, io, values in (("input_args", "input", before), ("output", "output", after)):
            name = f"Functional.{op}.0.forward.{io}.0.npy"
            np.save(data_folder / name, values)
            numbers = values.max(), values.min(), values.mean(), np.linalg.norm(values)
            known = (
                dict(zip(_NAMES, map(float, numbers), strict=True))
                if statistics
                else dict.fromkeys(_NAMES)
            )
            kind = {
                "type": "mindspore.Tensor",
                "dtype": str(values.dtype).capitalize(),
                "shape": list(values.shape),
            }
            entry[key] = [{**kind, **known, "requires_grad": False, "data_name": name}]
        data[f"Functional.{op}.0.forward"] = {**entry, "input_kwargs": {}}
        before = after
    head = {
        "task": "tensor",
        "level": "L1",
        "framework": "mindspore",
        "dump_data_dir": str(data_folder),
    }
    (place / "dump.json").write_text(json.dumps({**head, "data": data}))
    return folder
