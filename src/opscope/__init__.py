# SPDX-License-Identifier: Apache-2.0
"""Find the operator that broke a model, and prove it.

    import opscope

    with opscope.record("runs/x"):      # or: opscope run -- python train.py
        train()
    document = opscope.scan("runs/x")

Every name is loaded when it is first used: importing opscope costs next to nothing and loads no
framework. In a program whose environment has OPSCOPE="options", importing opscope also starts a
recording as soon as torch has been imported.

pytest leaves the asserts of this package as they are, in a test run that is recorded too
(PYTEST_DONT_REWRITE): it would warn that opscope has been imported before its plugin was.
"""

from __future__ import annotations

import importlib
import os
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from opscope.errors import (
    FormatError,
    MissingValueError,
    NewerFormatError,
    OpscopeError,
    RecordError,
    UnavailableError,
    UsageError,
)
from opscope.version import VERSION

__version__ = VERSION

if TYPE_CHECKING:
    from opscope.compare.api import compare as compare
    from opscope.formats.registry import open_run as open_run
    from opscope.narrow import widened as widened
    from opscope.operators.declare import declare as declare
    from opscope.record.jax.door import watch_jax as watch_jax
    from opscope.record.join import mark_step as mark_step
    from opscope.record.join import record as record
    from opscope.record.join import set_dump as set_dump
    from opscope.record.seed import seed_all as seed_all
    from opscope.record.substituting import substitute as substitute
    from opscope.replay.api import replay as replay
    from opscope.repro.write import write as repro
    from opscope.run.finding import Document as Document
    from opscope.run.finding import Finding as Finding
    from opscope.run.protocol import Run as Run
    from opscope.run.selection import Selection as Selection
    from opscope.scan.api import scan as scan


__all__ = [
    "Document",
    "Finding",
    "FormatError",
    "MissingValueError",
    "NewerFormatError",
    "OpscopeError",
    "RecordError",
    "Run",
    "Selection",
    "UnavailableError",
    "UsageError",
    "__version__",
    "compare",
    "declare",
    "mark_step",
    "open_run",
    "record",
    "replay",
    "repro",
    "scan",
    "seed_all",
    "set_dump",
    "substitute",
    "watch_jax",
    "widened",
]

# Name -> the module it lives in; it has the same name there.
_HOMES = {
    "Document": "opscope.run.finding",
    "Finding": "opscope.run.finding",
    "Run": "opscope.run.protocol",
    "Selection": "opscope.run.selection",
    "declare": "opscope.operators.declare",
    "load_ipython_extension": "opscope.integrations.jupyter",  # not in __all__: for %load_ext
    "mark_step": "opscope.record.join",
    "open_run": "opscope.formats.registry",
    "seed_all": "opscope.record.seed",
    "set_dump": "opscope.record.join",
    "watch_jax": "opscope.record.jax.door",
    "widened": "opscope.narrow",
}
# Rooms that bear the name of a public function -> the module and name of that function.
_ROOMS = {
    "compare": ("opscope.compare.api", "compare"),
    "record": ("opscope.record.join", "record"),
    "replay": ("opscope.replay.api", "replay"),
    "repro": ("opscope.repro.write", "write"),
    "scan": ("opscope.scan.api", "scan"),
    "substitute": ("opscope.record.substituting", "substitute"),
}


class _CallableRoom(ModuleType):
    """A package that is also the function of its name.

    Python binds a package as an attribute of its parent as soon as anything inside it is imported,
    over any function of that name. So the package itself answers the call.
    """

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        function = self._function
        code = function.__code__
        known = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        for name in kwargs:
            if name not in known:
                raise TypeError(_unexpected(function.__name__, name, known))
        return function(*args, **kwargs)

    __doc__ = property(lambda self: self._function.__doc__)

    @property
    def __signature__(self) -> Any:
        import inspect

        return inspect.signature(self._function)

    @property
    def _function(self) -> Any:
        module, function = _ROOMS[self.__name__.rpartition(".")[2]]
        return getattr(importlib.import_module(module), function)


def _unexpected(function: str, name: str, known: tuple[str, ...]) -> str:
    """What Python says of a keyword that a function does not take, with the nearest that it does
    take, as Python says it from 3.13 on.
    """
    from difflib import get_close_matches

    near = get_close_matches(name, known, n=1)
    said = f"{function}() got an unexpected keyword argument {name!r}"
    return f"{said}. Did you mean {near[0]!r}?" if near else said


class _Face(ModuleType):
    """This package; it makes such a room callable in the moment Python binds it."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _ROOMS and type(value) is ModuleType:
            value.__class__ = _CallableRoom
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Face

if os.environ.get("OPSCOPE") or os.environ.get("OPSCOPE_RUN"):
    importlib.import_module("opscope.record.activate").activate()


def __getattr__(name: str) -> Any:
    if name in _ROOMS:
        return importlib.import_module(f"opscope.{name}")
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'opscope' has no attribute {name!r}")
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
