# SPDX-License-Identifier: Apache-2.0
"""A program and its port, the faults that the port may be given, and the lines of both that are
right answers.

A line that a right answer names carries the fault's name behind `# <-` in both programs; what the
fault changed in the port is right, too. Where an operator is missing, so is the line that reads
what it should have made.
"""

from __future__ import annotations

import ast
import os
import re
import runpy
import sys
from dataclasses import dataclass
from pathlib import Path

PROGRAMS = Path(__file__).parent / "programs"
KNOWN = Path(__file__).parent / "known.txt"
MARK = re.compile(r"# <- ([\w ]+)$")
HEALTHY = "healthy"
Edits = list[tuple[str, str]]


@dataclass(frozen=True)
class Pair:
    """A folder of programs: port.py, faults.py and original.py, or the pair whose original it is;
    framework is that of the port where it is not torch's, "mindspore", "jax" or
    "tensorflow".
    """

    name: str
    faults: dict[str, Edits]
    of: str
    needs: tuple[str, ...] = ()
    framework: str = ""

    @classmethod
    def named(cls, name: str) -> Pair:
        """The pair in the folder of this name."""
        table = runpy.run_path(str(PROGRAMS / name / "faults.py"))
        return cls(
            name,
            table["FAULTS"],
            table.get("OF", name),
            tuple(table.get("NEEDS", ())),
            table.get("FRAMEWORK", ""),
        )

    @classmethod
    def all(cls) -> list[Pair]:
        """Every pair there is."""
        return [cls.named(path.parent.name) for path in sorted(PROGRAMS.glob("*/faults.py"))]

    @property
    def original(self) -> Path:
        return PROGRAMS / self.of / "original.py"

    @property
    def interpreter(self) -> str:
        """The Python that runs the port; "" for one that has another framework and is not there."""
        if not self.framework:
            return sys.executable
        return os.environ.get(f"OPSCOPE_{self.framework.upper()}_PYTHON", "")

    @property
    def variants(self) -> list[str]:
        return [HEALTHY, *self.faults]

    @property
    def port(self) -> Path:
        return PROGRAMS / self.name / "port.py"

    def written(self, variant: str, folder: Path) -> Path:
        """The port as it is, or a copy with this fault in the folder."""
        if variant == HEALTHY:
            return self.port
        text = self.port.read_text(encoding="utf-8")
        for was, instead in self.faults[variant]:
            if text.count(was) != 1:
                raise ValueError(f"{self.name} {variant}: {was!r} is there {text.count(was)} times")
            text = text.replace(was, instead)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "port.py").write_text(text, encoding="utf-8")
        return folder / "port.py"


def known() -> list[str]:
    """What was answered rightly when this was last written: PAIR/VARIANT."""
    return KNOWN.read_text(encoding="utf-8").split()


def marked(program: Path, fault: str, unlike: Path | None = None) -> set[int]:
    """The lines of the program that a right answer may name: statements that bear its mark, and
    what is not in the healthy program.
    """
    text = program.read_text(encoding="utf-8")
    healthy = set((unlike or program).read_text(encoding="utf-8").splitlines())
    found, changed = set(), set()
    for number, line in enumerate(text.splitlines(), 1):
        mark = MARK.search(line)
        if mark and fault in mark.group(1).split():
            found.add(number)
        if line not in healthy:
            changed.add(number)
    if not found:
        raise ValueError(f"{program} has no line marked {fault}")
    found |= changed
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.stmt) and not hasattr(node, "body"):
            span = range(node.lineno, (node.end_lineno or node.lineno) + 1)
            if found.intersection(span):
                found.update(span)
    return found
