# SPDX-License-Identifier: Apache-2.0
"""Finding the call that a CALL of the command line means: `[rN/][sN/]name` or `#index`
(docs/schema.md, Names).
"""

from __future__ import annotations

import re
from itertools import islice
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from opscope.errors import UsageError
from opscope.run.keys import keys_at
from opscope.run.query import records_of, rows_of, rows_where
from opscope.run.selection import near_names

if TYPE_CHECKING:
    from collections.abc import Mapping

    from opscope.arrays import Array, Bools
    from opscope.run.protocol import Run
    from opscope.run.schema import Call

_MAX_NAMES = 50_000  # names compared when one is not found


class CallName(msgspec.Struct, frozen=True):
    """A CALL taken apart; rank and step are None where the text leaves them open."""

    rank: int | None = None
    step: int | None = None
    name: str | None = None
    index: int | None = None


class Resolved(msgspec.Struct, frozen=True):
    """The call that was meant, and one sentence about what the text left open (None when nothing
    was).
    """

    call: Call
    note: str | None = None


class _Place(msgspec.Struct, frozen=True, order=True):
    """Where a call is, in the order in which calls are looked for."""

    step: int
    rank: int
    process: int
    index: int


def parse_call_name(text: str) -> CallName:
    """Take a CALL apart; UsageError when it names nothing."""
    match = re.fullmatch(r"(?:r([0-9]{1,9})/)?(?:s([0-9]{1,9})/)?(.+)", text.strip(), re.DOTALL)
    if match is None:
        raise UsageError(f"call {text!r}: write [rN/][sN/]name or #index")
    rank, step = (None if number is None else int(number) for number in match.group(1, 2))
    numbered = re.fullmatch(r"#([0-9]{1,18})", match[3])
    if numbered is not None:
        return CallName(rank, step, index=int(numbered[1]))
    return CallName(rank, step, name=match[3])


def resolve(run: Run, text: str, *, step: int | None = None) -> Resolved:
    """The call a text means; step is the one to prefer where the text names none (that of the first
    finding).

    UsageError, with near names, when there is no such call.
    """
    wanted = parse_call_name(text)
    rows = _find(run, wanted)
    if not rows and (wanted.rank is not None or wanted.step is not None):
        rows = _find(
            run, CallName(name=text.strip())
        )  # a foreign name that only looks like one with a prefix
    if not rows:
        raise UsageError(_missing(run, text, wanted))
    preferred = [row for row in rows if row.step == step] if wanted.step is None else []
    chosen = (preferred or rows)[0]
    call = next(records_of(run, "calls", keys_at([(chosen.process, chosen.index)])))
    return Resolved(call, _note(wanted, chosen, rows))


def _find(run: Run, wanted: CallName) -> list[_Place]:
    """Matching calls, first occurrence first."""
    given = {
        column: value
        for column, value in msgspec.structs.asdict(wanted).items()
        if value is not None
    }

    def meant(batch: Mapping[str, Array]) -> Bools:
        chosen = np.ones(len(batch["index"]), dtype=np.bool_)
        for column, value in given.items():
            chosen &= batch[column] == value
        return chosen

    places = _Place.__struct_fields__
    rows = rows_where(run, "calls", (*places, *given), meant)
    return sorted(_Place(*row[: len(places)]) for row in rows)


def _note(wanted: CallName, chosen: _Place, rows: list[_Place]) -> str | None:
    steps, ranks = {row.step for row in rows}, {row.rank for row in rows}
    parts = []
    if wanted.step is None and len(steps) > 1:
        parts.append(
            f"step {chosen.step} of the {len(steps)} steps that have it; write "
            f"s{chosen.step}/… to name one"
        )
    if wanted.rank is None and len(ranks) > 1:
        parts.append(
            f"rank {chosen.rank} of the {len(ranks)} ranks that have it; write "
            f"r{chosen.rank}/… to name one"
        )
    return "taken from " + ", ".join(parts) if parts else None


def _missing(run: Run, text: str, wanted: CallName) -> str:
    if wanted.index is not None:
        return f"call {text!r}: this run has no call with that index"
    elsewhere = _find(run, CallName(name=wanted.name))
    if elsewhere:
        return (
            f"call {text!r}: not there, but at "
            f"r{elsewhere[0].rank}/s{elsewhere[0].step}/{wanted.name}"
        )
    names = dict.fromkeys(name for (name,) in rows_of(run, "calls", ("name",)))
    near = near_names(wanted.name or "", islice(names, _MAX_NAMES))
    hint = f"; did you mean {', '.join(near)}?" if near else ""
    return f"call {text!r}: this run has no call of that name{hint}"
