# SPDX-License-Identifier: Apache-2.0
"""The boundary between opscope and the program it watches: what opscope's own code raises stays on
this side.

Every way from the program into opscope goes through `contain`. What is the program's own passes
unchanged, even when it was raised while opscope's code ran: the exceptions that end programs, and
what the program's signal handlers raise, which Python calls between any two instructions of
whatever runs. Both end the recording, since a row may be lost either way.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterator
from types import FrameType, SimpleNamespace
from typing import Any, NoReturn, TypeVar

Result = TypeVar("Result")
NO_ROOM = SimpleNamespace(enter_room=tuple, leave_room=tuple)


def contain(
    end: Callable[[BaseException], object], action: Callable[..., Result], *arguments: Any
) -> Result | None:
    """Do something of opscope's own for the program; None where that raised, after `end` has been
    told.
    """
    room, handled = _find_room(), sys.exc_info()[1]
    try:
        room.enter_room()
        return action(*arguments)
    except BaseException as error:
        raised = _hidden(error, handled)
        end(raised or error)
        if raised is error:
            raise
    finally:
        room.leave_room()
    if raised is not None:
        raise raised
    return None


def _hidden(error: BaseException, handled: BaseException | None) -> BaseException | None:
    """The program's own exception in what came through opscope's code: itself, or what it was
    raised in place of.

    A handler that raises between two instructions may make the clean-up of ours fail in turn.
    handled is what the program was handling before: that it knows.
    """
    raised: BaseException | None = error
    while raised is not None and raised is not handled:
        if is_the_programs(raised):
            return raised
        raised = raised.__context__
    return None


def ignore(error: BaseException) -> None:
    """For what fails after a failure: that has been told."""


def reason(error: BaseException) -> str:
    """Why recording ends."""
    if is_surfaced(error):
        return "an operator of the program had failed on its device, and a row may be lost"
    if is_the_programs(error):
        return f"{type(error).__name__} came while opscope's own code ran, and a row may be lost"
    return f"{type(error).__name__}: {error}"


def surface(error: BaseException) -> NoReturn:
    """Raise in the program what a device told opscope first: that an earlier operator of the
    program had failed there.
    """
    raise error


def is_the_programs(error: BaseException) -> bool:
    """Whether an exception that came through opscope's code is not of opscope's making."""
    return (
        not isinstance(error, Exception)
        or is_surfaced(error)
        or any(map(_handles_a_signal, _frames(error)))
    )


def is_surfaced(error: BaseException) -> bool:
    """Whether an exception went through `surface`."""
    return any(frame.f_code is surface.__code__ for frame in _frames(error))


def _frames(error: BaseException) -> Iterator[FrameType]:
    trace = error.__traceback__
    while trace is not None:
        yield trace.tb_frame
        trace = trace.tb_next


def _handles_a_signal(frame: FrameType) -> bool:
    """Whether a frame was called as Python calls signal handlers, which may have been replaced
    since: with a number and a frame.
    """
    code, local = frame.f_code, frame.f_locals
    given = [local.get(name) for name in code.co_varnames[: code.co_argcount]]
    rest = (
        local.get(code.co_varnames[code.co_argcount + code.co_kwonlyargcount])
        if code.co_flags & 0x04
        else ()
    )  # CO_VARARGS
    given += rest if isinstance(rest, tuple) else ()
    return any(
        isinstance(number, int) and isinstance(at, FrameType)
        for number, at in itertools.pairwise(given)
    )


def tell(line: str) -> None:
    """One line on stderr, where the program has left one that takes it."""
    try:
        if sys.stderr is not None:
            sys.stderr.write(f"opscope: {line}\n")
            sys.stderr.flush()
    except Exception as error:
        if is_the_programs(error):
            raise


def _find_room() -> Any:
    """What makes room for opscope's own code in a thread of the program: frames where it is near
    its limit of recursion, and no tracer that follows. It has enter_room() and leave_room(), which
    do nothing without the compiled recorder.

    Both are functions in C: no signal handler of the program can run, and raise, between one of
    them and the code that it begins or ends.
    """
    return sys.modules.get("opscope.kernels._recorder", NO_ROOM)
