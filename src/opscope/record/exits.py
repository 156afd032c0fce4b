# SPDX-License-Identifier: Apache-2.0
"""The ways a process ends, so that its last rows are written: return, exception, os._exit; and
fork, which must not write.

These are the only functions of the interpreter that opscope replaces. No signal handler is
installed: what SIGTERM or SIGKILL cut off is at most the rows of the last half second, and the
black box still names the call in flight.
"""

from __future__ import annotations

import atexit
import functools
import os
import sys
import threading
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn

from opscope.run.contain import contain, ignore

if TYPE_CHECKING:
    from opscope.record.session import Session

OWN = "opscope-"  # how the names of opscope's own threads begin


def watch(session: Session) -> None:
    """Close the session however the process ends."""
    watch_return(session)
    watch_exceptions(session)
    watch_hard_exit(session)
    watch_fork(session)


def watch_return(session: Session) -> None:
    # Non-daemon threads still run at atexit's usual time; threading's own callbacks come before,
    # when they have been joined.
    atexit.register(session.close)
    session.cleanup.callback(atexit.unregister, session.close)


def watch_exceptions(session: Session) -> None:
    """Note that an uncaught exception ended the program, before whoever else wants to know."""
    previous = sys.excepthook

    @functools.wraps(previous)
    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> Any:
        contain(session.fail, session.raised, kind, error, trace)
        return previous(kind, error, trace)

    sys.excepthook = hook
    session.cleanup.callback(restore, sys, "excepthook", hook, previous)


def watch_hard_exit(session: Session) -> None:
    """os._exit skips every handler of Python: write before it is called."""
    previous = os._exit

    @functools.wraps(previous)
    def leave(status: int) -> NoReturn:
        if os.getpid() == session.pid:
            contain(ignore, session.close, status)
        previous(status)

    os._exit = leave
    session.cleanup.callback(restore, os, "_exit", leave, previous)


def watch_fork(session: Session) -> None:
    """A forked child has the modes but not the writer's thread: it watches nothing."""
    if hasattr(os, "register_at_fork"):  # Windows knows no fork
        os.register_at_fork(after_in_child=session.drop_after_fork)


def watch_threads(session: Session, enter: Callable[[], None], leave: Callable[[], None]) -> None:
    """Run `enter` and `leave` in every thread that is started through threading while the session
    lasts.
    """
    previous = threading.Thread._bootstrap_inner  # type: ignore[attr-defined]

    @functools.wraps(previous)
    def bootstrap(thread: threading.Thread) -> None:
        if thread.name.startswith(OWN):
            previous(thread)
            return
        contain(session.fail, enter)
        try:
            previous(thread)
        finally:
            contain(session.fail, leave)

    threading.Thread._bootstrap_inner = bootstrap  # type: ignore[attr-defined]
    session.cleanup.callback(restore, threading.Thread, "_bootstrap_inner", bootstrap, previous)


def restore(owner: Any, name: str, ours: Any, previous: Any) -> None:
    """Put a replaced function back, unless somebody replaced it after us."""
    if getattr(owner, name) is ours:
        setattr(owner, name, previous)
