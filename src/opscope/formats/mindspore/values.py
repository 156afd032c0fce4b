# SPDX-License-Identifier: Apache-2.0
"""Values of one file of a MindSpore dump."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from opscope.arrays import Array
from opscope.errors import FormatError
from opscope.formats.mindspore.names import parse_tensor_name
from opscope.formats.mindspore.raw import raw_value
from opscope.formats.npy import as_true_type, read_npy
from opscope.run.dtypes import DType


def load_value(path: Path, key: str, true: DType | None) -> Array:
    """Elements of an .npy, of a .bin (flat: its shape stands nowhere) or of a tensor of a CANN dump
    file, in their true type.
    """
    if key:
        return raw_value(path, key)
    if path.suffix == ".npy":
        return read_npy(path, true=true)
    return _read_bin(path, true)


def _read_bin(path: Path, true: DType | None) -> Array:
    """Plain elements; bfloat16 is widened to float32 as in the .npy files, which the size alone
    cannot tell.
    """
    if true is None or true.numpy is None:
        named = parse_tensor_name(path.name)
        raise FormatError(
            path, f"element type {named.dtype if named else None} of a .bin is not known"
        )
    stored = np.dtype(np.float32) if true.name == "bfloat16" else true.to_numpy()
    try:
        size = path.stat().st_size
        if size % stored.itemsize:
            raise FormatError(path, f"{size} bytes are no whole number of {true.name}", offset=size)
        values = np.memmap(path, stored, "r") if size else np.empty(0, stored)
    except OSError as error:
        raise FormatError(path, f"cannot be read: {error.strerror or error}") from error
    return as_true_type(values, true, path)
