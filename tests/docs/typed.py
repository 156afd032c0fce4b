# SPDX-License-Identifier: Apache-2.0
"""Types the shell examples of a page, in a folder with the examples, and holds what they print against what the page shows.

A block ```console has lines that begin with "$ "; what they print stands in the block ```text that follows. There a line
"…" stands for any number of lines, and any number will do for one with a point or an exponent, which other machines round otherwise,
and for the counts in the line that begins with "opscope  ".

    python -m tests.docs.typed docs/gallery/nan.md            what is typed and printed
    python -m tests.docs.typed --fill docs/gallery/nan.md     put it where the page's block is empty
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(
    r"^```console\n(.*?)^```\n(?:\n?```text\n(.*?)^```\n)?", re.DOTALL | re.MULTILINE
)
SHIMS = {
    "opscope": "-m opscope",
    "python": "",
    "torchrun": "-m torch.distributed.run",
}
NOT_PRINTED = re.compile(r"opscope: recording into |.*UserWarning|.*Overriding a previously")


class Typed(NamedTuple):
    """Commands of one block, what the page shows of them (None: nothing), where that stands."""

    lines: tuple[str, ...]
    shown: str | None
    span: tuple[int, int]


def blocks(text: str) -> list[Typed]:
    """The shell examples of a page in their order."""
    return [
        Typed(
            tuple(line[2:] for line in found[1].splitlines() if line.startswith("$ ")),
            found[2],
            found.span(2),
        )
        for found in BLOCK.finditer(text)
    ]


def workplace(folder: Path) -> dict[str, str]:
    """Puts the examples into a folder; the environment in which a shell there finds our programs."""
    shutil.copytree(ROOT / "examples", folder / "examples")
    programs = folder / ".bin"
    programs.mkdir()
    for name, options in SHIMS.items():
        shim = programs / name
        shim.write_text(f'#!/bin/sh\nexec "{sys.executable}" {options} "$@"\n', encoding="utf-8")
        shim.chmod(0o755)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("OPSCOPE")}
    return kept | {
        "PATH": f"{programs}{os.pathsep}{kept['PATH']}",
        "OMP_NUM_THREADS": "1",
        "COLUMNS": "80",
    }


def typed(lines: tuple[str, ...], folder: Path, environment: dict[str, str]) -> tuple[int, str]:
    """The exit code of the last command, and all that they print, their errors with it."""
    done = subprocess.run(
        ["bash", "-c", "\n".join(lines)],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
    )
    printed = [line for line in done.stdout.splitlines() if not NOT_PRINTED.match(line)]
    return done.returncode, "\n".join(printed) + "\n"


def missing(shown: str, printed: str) -> str | None:
    """The first line of a page that is not printed where it stands; None: all are."""
    rest = [_comparable(line) for line in printed.splitlines()]
    left_out = True
    for line in shown.splitlines():
        if line.strip() == "…":
            left_out = True
            continue
        wanted = _comparable(line)
        if wanted not in rest or (not left_out and rest[0] != wanted):
            return line
        del rest[: rest.index(wanted) + 1]
        left_out = False
    return None


def _comparable(line: str) -> str:
    """A line without what may differ from machine to machine: spaces, and numbers that are rounded or counted."""
    counted = line.startswith("opscope  ")
    number = r"\d+" if counted else r"[-+]?\d+\.\d+(?:e[-+]?\d+)?|[-+]?\d+e[-+]?\d+"
    return re.sub(number, "0", " ".join(line.split()))


def fill(page: Path) -> None:
    """Types a page, and puts what is printed where its blocks for that are empty."""
    text = page.read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder:
        environment = workplace(Path(folder))
        printed = [typed(block.lines, Path(folder), environment)[1] for block in blocks(text)]
    for block, output in reversed(list(zip(blocks(text), printed, strict=True))):
        if block.shown == "":
            text = text[: block.span[0]] + output + text[block.span[1] :]
    page.write_text(text, encoding="utf-8")


def main(arguments: list[str]) -> None:
    """The command line, as above."""
    for name in arguments:
        if name == "--fill":
            continue
        if "--fill" in arguments:
            fill(Path(name))
            continue
        with tempfile.TemporaryDirectory() as folder:
            environment = workplace(Path(folder))
            for block in blocks(Path(name).read_text(encoding="utf-8")):
                code, printed = typed(block.lines, Path(folder), environment)
                print(*(f"$ {line}" for line in block.lines), printed, f"[{code}]", sep="\n")


if __name__ == "__main__":
    main(sys.argv[1:])
