# SPDX-License-Identifier: Apache-2.0
"""Runs one command in the foreground as a shell would: its streams and its signals are its own."""

from __future__ import annotations

import contextlib
import signal
import subprocess
from collections.abc import Mapping, Sequence

import msgspec


def _named(*names: str) -> frozenset[signal.Signals]:
    """Those of these signals that the system has."""
    return frozenset(number for number in signal.Signals if number.name in names)


FROM_TERMINALS = _named("SIGINT", "SIGQUIT")
# What a user or a scheduler sends to the process it knows, the launcher, and means for the command.
FORWARDED = FROM_TERMINALS | _named("SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2")

LOOK_SECONDS = 0.5


class Ending(msgspec.Struct, frozen=True, kw_only=True):
    """How a command ended; code is 128 + signal when a signal ended it."""

    pid: int
    code: int
    signal: int | None = None


def supervise(command: Sequence[str], environment: Mapping[str, str]) -> Ending:
    """Run a command to its end; OSError when it cannot be started. Only the main thread can do
    this.

    Signals that were sent to this process alone are passed on. One that the terminal sends (Ctrl-C)
    reaches the command without our help, since both are in the foreground, and would arrive twice
    if it were passed on.
    """
    early: list[int] = []
    # Caught signals are the default again in the command, ignored ones (nohup) stay ignored: both
    # as the shell had it.
    caught = [number for number in FORWARDED if signal.getsignal(number) is not signal.SIG_IGN]
    handlers = {
        number: signal.signal(number, lambda received, _: early.append(received))
        for number in caught
    }
    try:
        # A shell's <(…) hands over descriptors, so they stay open.
        process = subprocess.Popen(command, env=dict(environment), close_fds=False)
        if hasattr(signal, "sigtimedwait"):
            _wait(process, early)
        else:
            _wait_unasked(process, early)
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    died_of = -process.returncode if process.returncode < 0 else None
    return Ending(
        pid=process.pid,
        code=process.returncode if died_of is None else 128 + died_of,
        signal=died_of,
    )


def _wait(process: subprocess.Popen[bytes], early: list[int]) -> None:
    """Wait for the command's end, passing signals on; early are those that came while it was being
    started.

    The signals are blocked only now: a command would inherit the mask.
    """
    waited = {*FORWARDED, signal.SIGCHLD}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, waited)
    try:
        for number in early:
            process.send_signal(number)
        while process.poll() is None:
            # SIGCHLD that comes while this thread is not waiting may go to one that does not block
            # it (a library's), and is lost.
            received = signal.sigtimedwait(waited, LOOK_SECONDS)
            if received is not None and _was_sent_to_us(received, process.pid):
                process.send_signal(received.si_signo)
        _forget_pending(FORWARDED)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _wait_unasked(process: subprocess.Popen[bytes], received: list[int]) -> None:
    """The same where the system does not say who sent a signal (macOS, Windows): one that comes
    from terminals is taken to have reached the command. received grows as signals come.
    """
    while process.poll() is None:
        while received:
            number = received.pop(0)
            if number not in FROM_TERMINALS:
                process.send_signal(number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(LOOK_SECONDS)


def _was_sent_to_us(received: signal.struct_siginfo, child: int) -> bool:
    """Whether a process sent it (si_code <= 0, as SI_FROMUSER of siginfo.h says), and not the
    command itself.
    """
    return received.si_signo in FORWARDED and received.si_code <= 0 and received.si_pid != child


def _forget_pending(signals: frozenset[signal.Signals]) -> None:
    """The command is over: what still arrives for it must not end the sealing of the run.

    A second Ctrl-C of an impatient user is pending here more often than not.
    """
    while signal.sigtimedwait(signals, 0) is not None:
        continue
