# SPDX-License-Identifier: Apache-2.0
"""What `opscope compare` says of a port, and whether that is a right answer.

Of a healthy port nothing may be said (exit 0, no finding). Of a faulty one the first finding names
lines, as FILE:LINE or FILE:FIRST-LAST in any of its texts: at most REGION of each program, of which
one is marked. A side that is named wrongly makes the answer wrong; an answer is whole when both are
named.
"""

from __future__ import annotations

import contextlib
import io
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tests.compare_zoo.ports.pair import HEALTHY, Pair, marked
from tests.compare_zoo.ports.runs import checked, recorded

import opscope
from opscope.cli import main
from opscope.run.query import rows_of

REGION = 12
PLACE = re.compile(r"([\w./-]+\.py):(\d+)(?:\s*[-\u2013]\s*(\d+))?")
Places = dict[str, set[int]]


@dataclass(frozen=True)
class Answer:
    """What was said of one variant, in short, and how much of it is right."""

    pair: str
    variant: str
    target: bool | None  # whether its lines are right; None: none are named
    golden: bool | None
    said: str

    @property
    def right(self) -> bool:
        return False not in (self.target, self.golden) and True in (self.target, self.golden)

    @property
    def whole(self) -> bool:
        return bool(self.target and self.golden)

    def __str__(self) -> str:
        return f"{self.pair}/{self.variant}"


def document(target: Path, golden: Path) -> tuple[int, dict[str, Any]]:
    """Exit code and document of the command line."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
        code = main(["compare", str(target), str(golden), "--json"])
    answer: dict[str, Any] = json.loads(out.getvalue())
    return int(code or 0), answer


def texts(node: Any) -> Iterator[str]:
    """Every text in a finding."""
    if isinstance(node, str):
        yield node
    elif isinstance(node, dict):
        for value in node.values():
            yield from texts(value)
    elif isinstance(node, list):
        for value in node:
            yield from texts(value)


def source_of(golden: Path, finding: dict[str, Any]) -> Iterator[str]:
    """Where golden makes the call that is the partner of the finding's."""
    indices = [one["golden_index"] for one in finding["evidence"] if one.get("golden_index")]
    if indices:
        rows = rows_of(opscope.open_run(golden), "calls", ("index", "source"))
        yield from (str(source) for index, source in rows if index == indices[0])


def places(found: Iterator[str], program: Path) -> set[int]:
    """The lines of the program that texts name."""
    lines: set[int] = set()
    for text in found:
        for path, first, last in PLACE.findall(text):
            if Path(path).parts[-2:] == program.parts[-2:]:
                lines.update(range(int(first), int(last or first) + 1))
    return lines


def judged(pair: Pair, variant: str, folder: Path) -> Answer:
    """The answer to a recorded variant beside the recorded original."""
    code, found = document(folder / variant, folder / "original")
    answer = partial(Answer, pair.name, variant)
    if variant == HEALTHY:
        silent = code == 0 and not found["findings"]
        return answer(target=silent, golden=silent, said=in_words(code, found))
    if code != 1 or not found["findings"]:
        return answer(target=False, golden=False, said=in_words(code, found))
    first = found["findings"][0]
    said = [*texts(first), *source_of(folder / "original", first)]
    port = pair.written(variant, folder / "programs" / variant)
    sides = []
    for program, healthy in ((port, pair.port), (pair.original, pair.original)):
        lines = places(iter(said), program)
        right = len(lines) <= REGION and bool(lines & marked(program, variant, healthy))
        sides.append(right if lines else None)
    return answer(target=sides[0], golden=sides[1], said=in_words(code, found))


def in_words(code: int, found: dict[str, Any]) -> str:
    """Exit code and first finding, short enough for a table."""
    if not found["findings"]:
        return f"exit {code}: {'; '.join(found['summary'].get('warnings', ['nothing']))[:150]}"
    first = found["findings"][0]
    where = Path(first["source"] or "nowhere").name
    why = "; ".join(first["reasons"])[:110]
    return (
        f"exit {code}: {first['confidence']} {first['op']} step {first['step']} "
        f"{first['phase']} {where}: {why} (+{len(found['findings']) - 1})"
    )


def answered(
    name: str, variants: list[str], folder: Path, *, kept: bool, again: bool
) -> list[Answer]:
    """The answers for these variants of a pair, recorded where they are not in the folder; all of
    the pair's where the folder is kept.
    """
    pair = Pair.named(name)
    if again or not (folder / "losses.json").exists():
        recorded(pair, folder, pair.variants if kept else variants)
    checked(pair, folder, variants)
    return [judged(pair, variant, folder) for variant in variants]
