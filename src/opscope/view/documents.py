# SPDX-License-Identifier: Apache-2.0
"""The documents of a run by name, each made when it is first asked for: all that a page shows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from opscope.questions.told_operators import knowing_of
from opscope.report.terminal import verdict_lines
from opscope.view.all_calls import AllCalls
from opscope.view.calls import FEW_POINTS, call_documents
from opscope.view.comparison import (
    MOST_ROWS,
    Compared,
    calls_that_part,
    comparison_document,
    paint_distance,
)
from opscope.view.grid import Grid, grid_of
from opscope.view.modules import model_document
from opscope.view.ranks import ranks_document
from opscope.view.redaction import redacted
from opscope.view.references import Place, calls_named, calls_near, place_of, reference
from opscope.view.sources import Sources
from opscope.view.timeline import Pyramid, pyramid_of, tile, tiles, timeline_document
from opscope.view.training import training_document
from opscope.view.verdict import MOST_FINDINGS, path_of, verdict_document
from opscope.view.verdict import Path as CallPath

if TYPE_CHECKING:
    from opscope.run.finding import Document
    from opscope.run.protocol import Run

MOST_CALLS = 1500  # in full, in a page that stands alone
FULL = 24  # calls at either end of a path whose history has all its points
MOST_FOUND = 20  # calls that a search tells
LIVE_CELLS = 16_000_000  # of a timeline that is asked for by tiles


class Documents:
    """What a page shows of one run, by name and key; nothing in it that redact names.

    colour is one more SQL expression to colour the timeline by. alone: for a page without a
    server, which holds all that it will ever show. compared are comparisons of the run, the target,
    with others; the first is that of the document.
    """

    def __init__(
        self,
        run: Run,
        document: Document,
        *,
        redact: frozenset[str] = frozenset(),
        colour: str | None = None,
        alone: bool = True,
        compared: Sequence[Compared] = (),
    ) -> None:
        self.run, self.document = run, document
        self._redact, self._colour, self._alone = redact, colour, alone
        self._sources = Sources()
        self._pyramids: dict[str, Pyramid] = {}
        self._compared = compared
        self._columns = AllCalls(run)

    def whole(self) -> dict[str, Any]:
        """Everything that a page which stands alone holds."""
        documents = {name: self._made[name]() for name in self._views}
        documents["tiles"] = dict(tiles(self._pyramid(self._colour or "")))
        return {name: redacted(one, self._redact) for name, one in documents.items()}

    def get(self, name: str, key: str | None = None) -> Any:
        """One document, or the part of it that a key names; None where there is none."""
        keyed: dict[str, Callable[[str], Any]] = {
            "calls": self._call,
            "tiles": self._tile,
            "timeline": self._timeline,
            "search": self._search,
        }
        made = keyed[name](key) if key is not None and name in keyed else None
        if key is None and name in self._made:
            made = self._made[name]()
        return redacted(made, self._redact)

    @cached_property
    def _made(self) -> dict[str, Callable[[], Any]]:
        findings = self.document.findings
        return {
            "run": lambda: {**run_document(self.run), "views": self._views},
            "verdict": self._verdict,
            "calls": lambda: self._calls["calls"],
            "names": lambda: self._calls["names"],
            "timeline": lambda: self._timeline(self._colour or ""),
            "model": lambda: model_document(self._columns, findings),
            "ranks": lambda: self._judged(lambda calls: ranks_document(calls, findings)),
            "training": lambda: self._judged(training_document),
            "compare": lambda: self._comparisons,
        }

    @cached_property
    def _views(self) -> list[str]:
        """Documents that say something of this run."""
        told = {
            name: len(np.unique(self._columns.numbers(column))) > 1
            for name, column in (("ranks", "rank"), ("training", "step"))
        }
        told["compare"] = bool(self._compared)
        return [name for name in self._made if told.get(name, True)]

    @cached_property
    def _comparisons(self) -> list[dict[str, Any]]:
        most = MOST_ROWS // max(1, len(self._compared))
        return [comparison_document(each, most=most) for each in self._compared]

    def _judged(self, question: Callable[[AllCalls], Any]) -> Any:
        """The answer to a question that asks what operators are."""
        with knowing_of(self.run):
            return question(self._columns)

    # -- the verdict and its calls -----------------------------------------------------------------

    def _verdict(self) -> dict[str, Any]:
        calls = self._calls["calls"]
        return verdict_document(self.document, self._paths, calls, self._sources)

    @cached_property
    def _paths(self) -> list[CallPath]:
        findings = self.document.findings[:MOST_FINDINGS]
        return [path_of(self._columns, finding) for finding in findings]

    @cached_property
    def _calls(self) -> dict[str, Any]:
        """Calls of all paths, in a page that stands alone those around them too, and who made what
        they read.
        """
        chosen = list(dict.fromkeys(call_id for path in self._paths for call_id in path.calls))
        if self._alone:
            parting = (
                place_of(call) for each in self._comparisons for call in calls_that_part(each)
            )
            chosen = list(dict.fromkeys([*chosen, *(call_id for call_id in parting if call_id)]))
        drawn = {
            call_id for path in self._paths for call_id in path.calls[:FULL] + path.calls[-FULL:]
        }
        full = [call_id for call_id in chosen if call_id in drawn][:MOST_CALLS]
        calls = call_documents(self._columns, full, self._sources)
        beside = [call_id for call_id in chosen if call_id not in drawn]
        if self._alone or not chosen:
            beside += [call_id for call_id in self._near() if call_id not in drawn]
        makers = sorted(_makers(calls["calls"]))
        others = list(dict.fromkeys([*makers, *beside]))[:MOST_CALLS]
        more = call_documents(self._columns, others, self._sources, points=FEW_POINTS)
        return {name: {**more[name], **calls[name]} for name in ("calls", "names")}

    def _near(self) -> list[Place]:
        """The calls around the first finding, of a clean run those of the last step."""
        first = next((one for one in self.document.findings if one.index is not None), None)
        if first is not None and first.index is not None:
            return calls_near(self._columns, first.rank, first.step, first.index, MOST_CALLS)
        ranks, steps = self._columns.numbers("rank"), self._columns.numbers("step")
        if not len(ranks):
            return []
        rank = int(ranks.min())
        last = int(steps[ranks == rank].max())
        return calls_near(self._columns, rank, last, 0, MOST_CALLS)

    def _call(self, key: str) -> dict[str, Any] | None:
        call_id = place_of(key)
        if call_id is None:
            return None
        documents = call_documents(self._columns, [call_id], self._sources)
        call = documents["calls"].get(reference(*call_id))
        return None if call is None else {**call, "names": documents["names"]}

    def _search(self, key: str) -> dict[str, Any]:
        words = key.lower().split()[:8]
        return calls_named(self._columns, words, MOST_FOUND) if words else {}

    # -- the timeline ------------------------------------------------------------------------------

    def _pyramid(self, expression: str) -> Pyramid:
        if expression not in self._pyramids:
            if len(self._pyramids) > 3:  # each is as large as the run has calls
                self._pyramids.pop(next(reversed(self._pyramids)))
            self._pyramids[expression] = pyramid_of(self._grid(expression))
        return self._pyramids[expression]

    def _grid(self, expression: str) -> Grid:
        limits: dict[str, int] = {} if self._alone else {"most_cells": LIVE_CELLS}
        findings = self.document.findings
        grid = grid_of(self._columns, findings, expression=expression or None, **limits)
        if self._compared:
            paint_distance(grid, self._compared[0].comparison)
        return grid

    def _timeline(self, expression: str) -> dict[str, Any]:
        return timeline_document(self._columns, self._pyramid(expression))

    def _tile(self, key: str) -> dict[str, Any] | None:
        level, x, y, *expression = key.split("/", 3)
        if not all(part.isascii() and part.isdigit() and len(part) < 9 for part in (level, x, y)):
            return None
        pyramid = self._pyramid(expression[0] if expression else self._colour or "")
        return tile(pyramid, int(level), int(x), int(y))


def run_document(run: Run) -> dict[str, Any]:
    """Facts about a run as a whole."""
    info = run.info
    return {
        "path": info.path,
        "format": info.format,
        "command": info.command,
        "packages": info.packages,
        "problems": run.problems,
        "sealed": info.sealed,
    }


def plain_text(document: Document) -> str:
    """What is read where no script runs: the verdict of the terminal."""
    lines = verdict_lines(document, width=100, here=Path.cwd())
    return "\n".join(each.plain for each in lines)


def _makers(calls: dict[str, Any]) -> set[Place]:
    """Calls that made what these read and are none of them."""
    makers = {
        (call["process"], tensor["maker"])
        for call in calls.values()
        for tensor in call["tensors"]
        if tensor.get("maker") is not None
    }
    return {maker for maker in makers if reference(*maker) not in calls}
