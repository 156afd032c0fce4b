# SPDX-License-Identifier: Apache-2.0
"""The rank that ended first: by itself, while the others ended in exchanges with it.

A rank that waits for another one ends by what the other one did: its connection is closed, or its
launcher stops it. Which rank began is said by how each ended: by an exception that nobody caught,
by an exit code of its own, or, where nothing says how, outside of any exchange.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from opscope.questions.findings import Accusation
from opscope.run.keys import keys_at
from opscope.run.query import rows_of
from opscope.run.vectors import vectors

if TYPE_CHECKING:
    from opscope.arrays import Ints
    from opscope.run.protocol import Run
    from opscope.run.schema import Process

# What gloo, NCCL, HCCL and torch say where another rank is gone.
_GONE = re.compile(
    r"DistBackendError|DistNetworkError|DistStoreError|gloo|NCCL|HCCL"
    r"|[Cc]onnection (was )?(closed|reset)|[Tt]ime(d )?out|Broken pipe"
)

_STOPS = frozenset({int(signal.SIGINT), int(signal.SIGTERM)})
_DONE_OR_STOPPED = frozenset({0, *(128 + number for number in _STOPS)})


class _End(msgspec.Struct, frozen=True):
    """The last operator of a process: whether it exchanges with other ranks, and whether it failed
    or was under way.
    """

    process: Process
    last: int
    exchange: bool
    failed: bool

    @property
    def left_alone(self) -> bool:
        """Whether it ended in an exchange, or by what one raised."""
        gone = _GONE.search(self.process.uncaught or "") is not None
        return self.exchange and (gone or (self.failed and self.process.uncaught is None))

    @property
    def by_itself(self) -> bool:
        """Whether it ended before its work was done, and nobody stopped it."""
        return self.process.exit_code not in _DONE_OR_STOPPED and self.process.signal not in _STOPS

    @property
    def spoke(self) -> str | None:
        """How it ended by itself, as far as it said."""
        if self.process.uncaught is not None:
            return self.process.uncaught
        code = self.process.exit_code
        return f"exit code {code}" if code else None


def is_exchange(phase: str, op: str) -> bool:
    """Whether a call exchanges something with other ranks."""
    return phase == "communication" or "c10d" in op


def ended_first(run: Run) -> Iterator[Accusation]:
    """The last call of a rank that ended by itself, and not in it, while others ended in exchanges
    with it.
    """
    processes = {process.process: process for process in run.processes}
    if all(process.exit_code == 0 for process in processes.values()):
        return
    names = ("process", "index", "phase", "op", "error")
    ends = [
        _End(processes[process], index, is_exchange(phase, op), error is not None)
        for process, index, phase, op, error in rows_of(run, "calls", names, _last_operators(run))
        if process in processes
    ]
    left = sorted({end.process.rank for end in ends if end.left_alone})
    others = [end for end in ends if not end.left_alone and end.by_itself]
    first = [end for end in others if end.spoke] or others
    if not left or len({end.process.rank for end in first}) != 1 or first[0].failed:
        return  # nobody waited, nobody knows, or the call is told of itself
    process = first[0].process
    how = f"with {first[0].spoke}" if first[0].spoke else "without saying why: killed, or left"
    yield Accusation(
        process=process.process,
        index=first[0].last,
        kind="crash",
        reasons=(
            f"after this call rank {process.rank} ended {how}",
            f"{_listed(left)} ended in exchanges, where it was missing",
        ),
        confidence="likely",
        evidence={"exit_code": process.exit_code, "signal": process.signal},
        order=0,
        judged=False,
    )


def _last_operators(run: Run) -> Ints:
    """The last operator of each process."""
    last: dict[int, int] = {}
    for batch in vectors(run, "calls"):
        rows = batch.are("level", "operator")
        of, index = batch.numbers("process")[rows], batch.numbers("index")[rows]
        for process in np.unique(of).tolist():
            last[process] = max(last.get(process, -1), int(index[of == process].max()))
    return keys_at(last.items())


def _listed(ranks: list[int]) -> str:
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}"
