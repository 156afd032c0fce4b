# SPDX-License-Identifier: Apache-2.0
"""Holds functions and files to a size that one can read.

Size is tokens, without comments and texts, so that no layout makes code look smaller or larger: a
function has at most 700 (400 is the aim), a file at most 6,100 (4,000 is the aim). Beyond the first
number this fails; between the two it prints a note with --notes.

    python scripts/check_size.py [--notes] [PATH …]
"""

from __future__ import annotations

import ast
import io
import sys
import tokenize
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from pathlib import Path

FUNCTION = (400, 700)
FILE = (4000, 6100)
PLACES = ("src", "scripts", "benchmarks", "examples", "tests")
COUNTED = {tokenize.NAME, tokenize.NUMBER, tokenize.OP}
Size = tuple[str, int, tuple[int, int]]


def token_lines(text: str) -> list[int]:
    """The line of every token that counts, in order."""
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return [token.start[0] for token in tokens if token.type in COUNTED]


def sizes(path: Path) -> Iterator[Size]:
    """What in this file has a size, how large it is, and its two limits."""
    text = path.read_text(encoding="utf-8")
    lines = token_lines(text)
    yield f"{path}", len(lines), FILE
    for node in ast.walk(ast.parse(text, str(path))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            end = bisect_right(lines, node.end_lineno or node.lineno)
            yield (
                f"{path}:{node.lineno} {node.name}",
                end - bisect_left(lines, node.lineno),
                FUNCTION,
            )


def files(arguments: list[str]) -> Iterator[Path]:
    """The Python files under the paths given, or under the places that the house keeps."""
    for place in map(Path, arguments or PLACES):
        yield from (
            sorted(place.rglob("*.py")) if place.is_dir() else [place] if place.exists() else []
        )


def main(arguments: list[str]) -> int:
    """Print what is too large; 1 when a hard limit is broken."""
    notes = "--notes" in arguments
    paths = files([argument for argument in arguments if argument != "--notes"])
    measured = [size for path in paths for size in sizes(path)]
    broken = [size for size in measured if size[1] > size[2][1]]
    for name, tokens, (_, hard) in broken:
        print(f"{name}: {tokens} tokens, at most {hard}")
    for name, tokens, (soft, hard) in measured if notes else []:
        if soft < tokens <= hard:
            print(f"note: {name}: {tokens} tokens, the aim is {soft}")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
