# SPDX-License-Identifier: Apache-2.0
"""Writes what scan and compare say of runs that lie in folders, to be held against what another
commit says of the same runs.

    python scripts/verdicts.py OUT FOLDER …

Every run below a FOLDER is scanned, and compared with that of the runs before it which has about as
many calls; of each document verdict, findings and warnings are written, without versions, paths and
times. Runs are made by the zoos: make zoo leaves them where pytest keeps its folders.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

import opscope

LEFT_OUT = ("opscope", "runs")
SAID = (
    "warnings",
    "first",
    "hidden",
    "skipped_steps",
)  # of a summary; the rest is counts, times and paths


def runs_below(folders: Iterable[Path]) -> list[Path]:
    """Folders that hold a native run."""
    return sorted({file.parent for folder in folders for file in folder.rglob("run.json")})


def size_of(run: Path) -> int:
    """Bytes of a run's tables of calls."""
    return sum(file.stat().st_size for file in run.rglob("calls*.arrow"))


def said(ask: Callable[[], opscope.Document], home: Path) -> Any:
    """What an answer says, as plain data, or the error in its place."""
    try:
        document = msgspec.to_builtins(ask())
    except Exception as error:  # noqa: BLE001 - an error is an answer as well
        return f"{type(error).__name__}: {error}".replace(str(home), "")
    summary = document.pop("summary")
    kept = {key: value for key, value in document.items() if key not in LEFT_OUT}
    return kept | {key: summary[key] for key in SAID if key in summary}


def answers(folders: list[Path]) -> Iterator[tuple[str, Any]]:
    """Question and answer, one for each run and for each pair."""
    before: dict[Path, int] = {}
    for run in runs_below(folders):
        size = size_of(run)
        yield f"scan {run}", said(lambda run=run: opscope.scan(opscope.open_run(run)), run)  # type: ignore[misc]
        if before:
            golden = min(before, key=lambda other: (abs(before[other] - size), other))
            ask = lambda run=run, golden=golden: opscope.compare(run, golden).document  # noqa: E731
            yield f"compare {run} {golden}", said(ask, run)
        before[run] = size


def main(out: str, *folders: str) -> None:
    """Writes a line of JSON for each question, in the order of the paths."""
    with Path(out).open("w", encoding="utf-8") as file:
        for question, answer in answers([Path(folder) for folder in folders]):
            file.write(json.dumps([question, answer], sort_keys=True, default=str) + "\n")
            file.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
