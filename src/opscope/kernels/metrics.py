# SPDX-License-Identifier: Apache-2.0
"""A user's own metric: one function of two arrays that answers a number, found by its import path.

    from opscope.kernels.metrics import metric

    @metric("SNR")
    def signal_to_noise(target, golden):
        return 10 * np.log10(np.sum(golden**2) / np.sum((target - golden) ** 2))

    opscope compare TARGET GOLDEN -o out.csv --metric mine:signal_to_noise  or --metric mine, for all that are marked in it

target and golden are float64 arrays of one shape (complex128, or integers as they are).
"""  # noqa: E501

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import msgspec
import numpy as np

from opscope.arrays import Array
from opscope.errors import UsageError
from opscope.narrow import widened

Function = TypeVar("Function", bound=Callable[[Any, Any], Any])
_MARK = "opscope_metric"


class Metric(msgspec.Struct, frozen=True):
    """A metric by the name of its column."""

    name: str
    function: Callable[[Array, Array], Any]

    def __call__(self, target: Array, golden: Array) -> float | str:
        """The number of two arrays of one shape; what the function raises is answered as text,
        since other rows are not to blame.
        """
        with np.errstate(all="ignore"):
            try:
                return float(self.function(_plain(target), _plain(golden)))
            except Exception as error:  # noqa: BLE001 - a user's code may raise anything
                return f"{type(error).__name__}: {error}"


def metric(name: str) -> Callable[[Function], Function]:
    """Marks a function as a metric; name is that of its column."""

    def mark(function: Function) -> Function:
        setattr(function, _MARK, name)
        return function

    return mark


def find_metrics(paths: Iterable[str]) -> tuple[Metric, ...]:
    """The metrics of import paths: "package.module:function", or "package.module" for all that are
    marked in it.

    Modules are looked for in the current folder too. Raises UsageError for what cannot be imported
    or is no function.
    """
    return tuple(chosen for path in paths for chosen in _found(path))


def _found(path: str) -> list[Metric]:
    module_name, _, function_name = path.partition(":")
    module = _module(module_name, path)
    if not function_name:
        marked = [
            value for value in vars(module).values() if callable(value) and hasattr(value, _MARK)
        ]
        if not marked:
            raise UsageError(
                f"--metric {path}: no function in it is marked with @metric; name one as "
                f"{path}:FUNCTION"
            )
        return [Metric(str(getattr(value, _MARK)), value) for value in marked]
    function = getattr(module, function_name, None)
    if not callable(function):
        raise UsageError(f"--metric {path}: {module_name} has no function {function_name}")
    return [Metric(str(getattr(function, _MARK, function_name)), function)]


def _module(name: str, path: str) -> Any:
    here = os.getcwd()  # noqa: PTH109 - sys.path holds texts
    added = here not in sys.path
    if added:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(name)
    except Exception as error:
        raise UsageError(
            f"--metric {path}: {name} cannot be imported: {type(error).__name__}: {error}"
        ) from error
    finally:
        if added:
            sys.path.remove(here)


def _plain(array: Array) -> Array:
    if array.dtype.kind in "biu":
        return array
    wide = np.complex128 if array.dtype.kind == "c" else np.float64
    return np.asarray(widened(array).astype(wide))
