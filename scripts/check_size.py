# SPDX-License-Identifier: Apache-2.0
"""Holds functions and files to a size that one can read.

A function has at most 60 lines without its docstring (40 is the aim), a file at most 600 (400 is the aim). Beyond the first
number this fails; between the two it prints a note with --notes.

    python scripts/check_size.py [--notes] [PATH …]
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

FUNCTION = (40, 60)
FILE = (400, 600)
PLACES = ("src", "scripts", "benchmarks", "examples", "tests")
Size = tuple[str, int, tuple[int, int]]


def body_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines from the def to the end, docstring left out."""
    total = (function.end_lineno or function.lineno) - function.lineno + 1
    first = function.body[0]
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
        total -= (first.end_lineno or first.lineno) - first.lineno + 1
    return total


def sizes(path: Path) -> Iterator[Size]:
    """What in this file has a size, how large it is, and its two limits."""
    text = path.read_text(encoding="utf-8")
    yield f"{path}", len(text.splitlines()), FILE
    for node in ast.walk(ast.parse(text, str(path))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield f"{path}:{node.lineno} {node.name}", body_lines(node), FUNCTION


def files(arguments: list[str]) -> Iterator[Path]:
    """The Python files under the paths given, or under the places that the house keeps."""
    for place in map(Path, arguments or PLACES):
        yield from sorted(place.rglob("*.py")) if place.is_dir() else [place] if place.exists() else []


def main(arguments: list[str]) -> int:
    """Print what is too large; 1 when a hard limit is broken."""
    notes = "--notes" in arguments
    measured = [size for path in files([a for a in arguments if a != "--notes"]) for size in sizes(path)]
    broken = [size for size in measured if size[1] > size[2][1]]
    for name, lines, (_, hard) in broken:
        print(f"{name}: {lines} lines, at most {hard}")
    for name, lines, (soft, hard) in measured if notes else []:
        if soft < lines <= hard:
            print(f"note: {name}: {lines} lines, the aim is {soft}")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
