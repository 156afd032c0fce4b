# SPDX-License-Identifier: Apache-2.0
"""The compiled kernels, where they were built and can be loaded."""

from __future__ import annotations

import functools
import importlib
import warnings
from types import ModuleType

import numpy as np
from numpy.typing import NDArray

from opscope.kernels.reference import Statistics

# The numbers of enum DType in native/statistics.hpp.
NAMES = (
    "bool",
    "int8",
    "uint8",
    "int16",
    "uint16",
    "int32",
    "uint32",
    "int64",
    "uint64",
    "float16",
    "bfloat16",
    "float32",
    "float64",
    "float8_e4m3fn",
    "float8_e5m2",
    "complex64",
    "complex128",
)
NUMBERS = {name: number for number, name in enumerate(NAMES)}


@functools.cache
def load() -> ModuleType | None:
    """Answers the compiled module, or None after one warning that says why it cannot be loaded."""
    try:
        return importlib.import_module("opscope.kernels._native")
    except ImportError as error:
        message = (
            f"opscope's compiled kernels cannot be loaded ({error}); statistics are taken "
            "by NumPy, much slower"
        )
        warnings.warn(message, RuntimeWarning, stacklevel=3)
        return None


@functools.cache
def load_recorder() -> ModuleType | None:
    """Answers the compiled bookkeeping, or None where the compiled kernels are missing too (load()
    has warned then).
    """
    if load() is None:
        return None
    try:
        return importlib.import_module("opscope.kernels._recorder")
    except ImportError:
        return None


def statistics(
    native: ModuleType,
    array: NDArray[np.generic],
    number: int,
    *,
    digest: bool = True,
    threads: int = 1,
    isa: str = "auto",
) -> Statistics:
    """Answers the statistics of an array whose type has this number; raises ValueError when this
    processor has no such `isa`.
    """
    item = array.itemsize
    if not array.dtype.isnative or any(stride % item for stride in array.strides):
        array = np.ascontiguousarray(array.astype(array.dtype.newbyteorder("=")))
    strides = [stride // item for stride in array.strides]
    return Statistics(
        *native.statistics(
            array.ctypes.data, number, list(array.shape), strides, digest, threads, isa
        )
    )
