# SPDX-License-Identifier: Apache-2.0
"""Values of any file that holds plain arrays: .npy, .npz, .safetensors, .pt, .bin, .txt, .csv."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from opscope.arrays import Array
from opscope.errors import FormatError, MissingValueError
from opscope.formats.archives import read_npz, read_safetensors
from opscope.formats.npy import as_true_type, read_npy
from opscope.formats.pt import PtFile
from opscope.formats.text_arrays import read_csv, read_txt
from opscope.run.dtypes import DType


def load_array(path: Path, key: str, true: DType | None) -> Array:
    """Elements of the array of this key in a file, in their true type; a .bin, .txt or .csv is flat
    where it has no shape of its own.
    """
    if not _is_file(path):
        raise MissingValueError(f"{path}: is not there, or is no file")
    if path.suffix == ".npy":
        return read_npy(path, true=true)
    if path.suffix == ".npz":
        return read_npz(path, key, true=true)
    if path.suffix == ".safetensors":
        return read_safetensors(path, key, true=true)
    if path.suffix in {".pt", ".pth"}:
        return as_true_type(_saved(path, key), true, path)
    if path.suffix == ".txt":
        return read_txt(path, true=true)
    if path.suffix == ".csv":
        return read_csv(path, true=true)
    return _bin(path, true)


def _is_file(path: Path) -> bool:
    """Whether a file of this name is there; of a name that no file system takes it is not."""
    try:
        return path.is_file()
    except OSError:
        return False


def _saved(path: Path, key: str) -> Array:
    file = PtFile(path)
    for name, saved in file.tensors():
        if name == key:
            return file.values(saved)
    raise MissingValueError(f"{path}: has no tensor {key!r}")


def _bin(path: Path, true: DType | None) -> Array:
    if true is None or true.numpy is None:
        raise FormatError(path, "plain bytes, and nothing says their element type")
    return mapped_elements(path, true.to_numpy(), true.name)


def mapped_elements(path: Path, dtype: np.dtype[Any], name: str) -> Array:
    """The elements, of a type of this name, of a file that holds nothing else, mapped; FormatError
    where they are no whole number.
    """
    try:
        size = path.stat().st_size
        if size % dtype.itemsize:
            raise FormatError(path, f"{size} bytes are no whole number of {name}", offset=size)
        return np.memmap(path, dtype, "r") if size else np.empty(0, dtype)
    except OSError as error:
        raise FormatError(path, f"cannot be read: {error.strerror or error}") from error
