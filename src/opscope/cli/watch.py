# SPDX-License-Identifier: Apache-2.0
"""`opscope watch`: a run followed from another shell while it is being recorded."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import msgspec
from cyclopts import Parameter

from opscope.cli.failing import note
from opscope.cli.options import positive
from opscope.cli.printing import completeness
from opscope.cli.serve import state_of
from opscope.errors import FormatError

if TYPE_CHECKING:
    from opscope.run.protocol import Run
    from opscope.view.all_calls import AllCalls

SHARE = 0.1  # of one core that reading may take: a long run is looked at less often
NEAR = 0.01  # a share of a type's limit from which on it is told


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """How far a run is.

    nearest: the call of the last two steps whose result is nearest to the limit of its type, the
    largest magnitude in it, that as a share of the limit, the type. flagged: step and name of the
    first that overflowed. overhead: time of the whole beside that without the recorder's own work.
    """

    calls: int
    step: int | None
    ranks: int
    nearest: tuple[str, float, float, str] | None = None
    flagged: tuple[int, str] | None = None
    overhead: float | None = None

    def line(self) -> str:
        """All of it in one line."""
        if self.step is None:
            return "no call yet"
        words = [f"step {self.step}", f"{self.calls:,} calls"]
        if self.ranks > 1:
            words.append(f"{self.ranks} ranks")
        if self.overhead is not None:
            words.append(f">{self.overhead:.2f}x")
        if self.flagged is not None:
            words.append(f"overflow in step {self.flagged[0]}: {self.flagged[1]}")
        elif self.nearest is not None:
            name, value, share, dtype = self.nearest
            near = f", {share:.0%} of {dtype}'s limit" if share > NEAR else ""
            words.append(f"largest {value:.3g}{near}: {name}")
        return "  ".join(words)


def watch(
    run: str,
    /,
    *,
    every: Annotated[float, Parameter(help="Seconds between two looks, at least.")] = 1.0,
) -> int:
    """Follow a run while it is being recorded: one line on a terminal, elsewhere a line whenever it
    has grown. Ends when the recording does; Ctrl-C ends the watching alone.

    Parameters
    ----------
    run
        A run that is being recorded, or was; a URL that one is shipped to.
    """
    positive(every=every)
    last = follow(run, _teller(), sleep=time.sleep, every=every)
    if sys.stdout.isatty():
        print()
    note(f"the recording is over; next: opscope scan {shlex.quote(run)}")
    return completeness(last)


def follow(
    path: str | os.PathLike[str],
    tell: Callable[[str], None],
    *,
    sleep: Callable[[float], None],
    every: float,
) -> Run:
    """Tell how far a run is whenever it has grown, until it is sealed; the run then.

    Raises what opening it raises at first; what cannot be read later is read again.
    """
    from opscope.formats.registry import open_run

    opened, known, told = open_run(path), "", ""
    while True:
        began = time.process_time()
        state = state_of(path)
        if state != known:
            try:
                opened = open_run(path)
                known, line = state, look(opened).line()
                if line != told:
                    tell(line)
                told = line
            except (FormatError, FileNotFoundError):
                known = ""  # a file in the middle of being written
        if opened.info.sealed and known:
            return opened
        sleep(max(every, (time.process_time() - began) / SHARE))


def look(run: Run) -> Seen:
    """How far a run is now."""
    import numpy as np

    from opscope.view.all_calls import AllCalls

    calls = AllCalls(run)
    if not len(calls):
        return Seen(calls=0, step=None, ranks=0)
    last = int(calls.numbers("step").max())
    return Seen(
        calls=len(calls),
        step=last,
        ranks=len(np.unique(calls.numbers("rank"))),
        nearest=_nearest(calls, last - 1),
        flagged=_flagged(calls),
        overhead=run.info.overhead,
    )


def _flagged(calls: AllCalls) -> tuple[int, str] | None:
    """As in Seen."""
    import numpy as np

    from opscope.run.query import call_at

    rows = np.flatnonzero(calls.numbers("status"))
    process, step, index = (calls.numbers(name)[rows] for name in ("process", "step", "index"))
    for first in np.lexsort((index, step))[:1]:
        call = call_at(calls.run, int(process[first]), int(index[first]))
        return None if call is None else (call.step, call.name)
    return None


def _nearest(calls: AllCalls, step: int) -> tuple[str, float, float, str] | None:
    """As in Seen, of the calls from this step on."""
    import numpy as np

    from opscope.judge.limits import largest_finite
    from opscope.run.query import call_at
    from opscope.view.all_calls import UNKNOWN, magnitudes
    from opscope.view.columns import Groups, read

    found = read(
        calls.run,
        "tensors",
        ("process", "index", "dtype", "min", "max"),
        lambda batch: batch.are("io", "output"),
        np.sort(calls.keys[calls.numbers("step") >= step]),
    )
    largest, dtypes = magnitudes(found.numbers), found.texts["dtype"]
    known = np.flatnonzero(largest != UNKNOWN)
    shares = []
    for members in Groups(dtypes.numbers[known]).members():
        row = known[members[np.argmax(largest[known[members]])]]
        dtype, value = dtypes.words[dtypes.numbers[row]], float(largest[row])
        if (limit := largest_finite(dtype)) is not None:
            shares.append((value / limit, value, dtype, row))
    if not shares:
        return None
    share, value, dtype, row = max(shares, key=lambda each: each[0])
    call = call_at(calls.run, *(int(found.numbers[name][row]) for name in ("process", "index")))
    return None if call is None else (call.name, value, share, dtype)


def _teller() -> Callable[[str], None]:
    """What prints a line: over the one before on a terminal, below it elsewhere."""
    from opscope.run.printable import printable

    def told(text: str) -> None:
        if sys.stdout.isatty():
            width = shutil.get_terminal_size().columns
            print("\r\x1b[2K", end="")
            print(printable(text)[: width - 1], end="", flush=True)
        else:
            print(printable(text), flush=True)

    return told
