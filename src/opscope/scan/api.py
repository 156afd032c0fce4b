# SPDX-License-Identifier: Apache-2.0
"""The question of `opscope scan`: where did the first overflow, NaN or infinity come from, what
spread it, what hid it.

The rules are docs/soundness.md; what is assumed of the rows is docs/scan.md.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from opscope.engine.executors import InThisProcess
from opscope.formats.registry import open_run
from opscope.operators.catalogue import declared_rows
from opscope.questions.told_operators import knowing_of
from opscope.run.finding import Document
from opscope.run.progress import Progress, nobody, percent
from opscope.run.store.reader import NativeRun
from opscope.scan.part import Asked, Part, scan_part
from opscope.scan.summary import (
    ended_steps,
    first_line,
    middle,
    raised_elsewhere,
    slow_disk,
    unmeasured,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from concurrent.futures import Executor

    from opscope.run.protocol import Run
    from opscope.run.selection import Selection

MANY = 64  # processes, beyond which one pass over all would take memory without bound


def scan(
    run: Run | str | os.PathLike[str],
    *,
    selection: Selection | None = None,
    show_hidden: bool = False,
    executor: Executor | None = None,
    progress: Progress = nobody,
) -> Document:
    """Findings of a run, most likely culprit first; the document's verdict is "clean" when there
    are none. run may be the path of one, or of any known dump.

    selection chooses among the findings. The whole run is followed all the same, since the cause of
    what happens in step 5 may lie in step 3; findings outside of the selection are counted in
    summary.warnings, and patterns of it that match nothing named there. Origins that a guard of the
    program removed are counted in summary.hidden, findings only with show_hidden. complete is false
    when the run has problems, or holds no call since all were hidden by compilation. executor: who
    reads the ranks of one of opscope's own runs, some of them each (scan.distributed); those of a
    job of many are read that way in any case, so that memory is bounded. Raises FormatError for a
    table that cannot be read.
    """
    opened = open_run(run)
    asked = Asked(selection, show_hidden, declared=declared_rows())
    if executor is None and isinstance(opened, NativeRun) and len(opened.processes) > MANY:
        executor = InThisProcess()
    if executor is not None:
        from opscope.scan.distributed import scan_by

        part = scan_by(executor, opened, asked, progress)
        with knowing_of(opened) as remarks:
            return _document(opened, part, remarks)
    with knowing_of(opened) as remarks:
        part = scan_part(opened, asked, apart=True, told=percent(progress, "scan"))
        return _document(opened, part, remarks)


def _document(run: Run, part: Part, remarks: Sequence[str]) -> Document:
    """What was found as the document of the verb."""
    chosen = tuple(finding for _, finding in part.found)
    warnings = [
        *part.warnings,
        *raised_elsewhere(run, chosen),
        *unmeasured(run),
        *slow_disk(run),
        *remarks,
        *part.problems,
        *part.unmatched,
    ]
    if part.left_out:
        warnings.append(f"{part.left_out} more findings were left out")
    if part.outside:
        warnings.append(
            f"{part.outside} findings lie outside of the selection, the first at "
            f"{part.first_outside}"
        )
    steps = ended_steps(run, set(part.steps))
    summary: dict[str, Any] = {
        "steps": steps,
        "steps_seen": max(
            (process.steps for process in run.processes if process.steps is not None),
            default=steps,
        ),
        "calls_per_step": middle(part.sizes),
        "ranks": list(part.ranks),
        "tensors": part.tensors,
        "warnings": warnings,
        "skipped_steps": list(part.skipped),
        "hidden": part.hidden,
        "first": first_line(chosen[0]) if chosen else None,
        "training": part.notes,
        "hidden_calls": run.info.hidden_calls,
        "overhead": run.info.overhead,
    }
    summary.update(beside_the_program(run))
    return Document(
        verb="scan",
        runs=(run.info.path,),
        verdict="found" if chosen else "clean",
        complete=not part.problems and not (run.info.hidden_calls and not part.steps),
        findings=chosen,
        summary=summary,
    )


def beside_the_program(run: Run) -> dict[str, Any]:
    """What --check and --substitute did, and what a trainer calls the steps that overflowed, by
    rank; nothing where there was none of it, or the process could not tell any more.
    """
    told = [each for each in run.processes if each.rows]
    switched = {
        name: {str(each.rank): getattr(each, name) for each in told if getattr(each, name)}
        for name in ("checked", "substituted")
    }
    named = {
        str(each.rank): each.torch["trainer"] for each in run.processes if each.torch.get("trainer")
    }
    return {name: facts for name, facts in {**switched, "trainer": named}.items() if facts}
