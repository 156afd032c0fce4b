# SPDX-License-Identifier: Apache-2.0
"""What a repro script said of a trial, for a terminal: folded to its width, long lists of tensors
cut short.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from opscope.report.console import folded, line

if TYPE_CHECKING:
    from rich.text import Text

LISTED = 8  # tensors of one kind: an optimizer's call has hundreds
# `  out   0.12     f32[4]`, `  note  words`: a kind, with the slot of a tensor after it.
LINE = re.compile(r"(  (?:(in|was|out|same|near|wide) +[\w.]+ +|\w+ +))(.*)", re.ASCII | re.DOTALL)


def trial_lines(lines: Sequence[str], *, width: int) -> Iterator[Text]:
    """The lines of a script's report without its verdict."""
    for kind, members in itertools.groupby(lines, key=_kind):
        group = list(members)
        told = group[:LISTED] if kind and len(group) > LISTED + 1 else group
        for text in told:
            parts = LINE.fullmatch(text)
            yield from (
                folded("", text, width=width)
                if parts is None
                else folded(parts[1], parts[3], width=width)
            )
        if len(told) < len(group):
            yield from folded(
                f"  {kind:<6}",
                f"and {len(group) - len(told)} more, which the script prints",
                width=width,
            )


def verdict_lines(word: str, told: str, *, style: str, width: int) -> Iterator[Text]:
    """The verdict in its style, and what it means."""
    for number, text in enumerate(folded("", f"{word}: {told}", width=width)):
        if number == 0:
            text.stylize(style, 0, len(word))
        yield text


def next_lines(command: str, hint: str = "", *, width: int) -> Iterator[Text]:
    """The command that goes on from here, in one piece so that it can be copied, and the hint where
    there is room for it.
    """
    whole = line(("next  ", "bold"), f"{command}   ({hint})" if hint else command)
    if whole.cell_len <= width or not hint:
        yield whole
    else:
        yield line(("next  ", "bold"), command)
        yield from folded("      ", f"({hint})", width=width)


def _kind(text: str) -> str:
    parts = LINE.fullmatch(text)
    return "" if parts is None else parts[2] or ""
