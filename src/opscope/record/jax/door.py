# SPDX-License-Identifier: Apache-2.0
"""The way in for programs: `step = opscope.watch_jax(step)`. JAX is imported when it is used."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opscope.errors import UnavailableError, UsageError
from opscope.run.place import with_own_name

if TYPE_CHECKING:
    from opscope.record.jax.watch import Watched

_VALUES = ("none", "full")


def watch_jax(
    function: Callable[..., Any],
    run: str | os.PathLike[str] | Watched = "runs/jax",
    *,
    parameters: str | Sequence[str] = (),
    values: str = "none",
) -> Watched:
    """A jitted function of JAX that computes the same and records each of its calls, primitive by
    primitive, into a run.

    run is a directory, an existing one gets a sibling; or a function that is watched already, whose
    run this one joins. parameters names the arguments that hold what is trained, where they are not
    the first of several arrays or stand under `params`. values: none or full. Raises UsageError for
    what cannot be used, UnavailableError without JAX.
    """
    if not callable(function):
        raise UsageError(f"{type(function).__name__} is no function that can be watched")
    if values not in _VALUES:
        raise UsageError(f"values {values!r}: one of {', '.join(_VALUES)}")
    if find_spec("jax") is None:
        raise UnavailableError("no function of JAX can be watched: jax is not installed")
    from opscope.record.jax.watch import JaxRecording, Watched, is_jitted

    if not is_jitted(function):
        raise UsageError(
            f"{getattr(function, '__name__', type(function).__name__)} is no function of jax.jit; "
            "what another does to Python's own objects cannot be traced without changing them"
        )
    recording = (
        run.recording
        if isinstance(run, Watched)
        else JaxRecording(with_own_name(Path(run)), values=values == "full")
    )
    chosen = [parameters] if isinstance(parameters, str) else parameters
    return Watched(function, recording, frozenset(chosen))
