# SPDX-License-Identifier: Apache-2.0
"""Where text goes: colour only on a terminal, text of a run never taken for markup or control
codes, pipes that may close.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from opscope.run.printable import printable


class PlainConsole(Console):
    """A console that lets the caller handle a reader that went away."""

    def on_broken_pipe(self) -> None:
        """Raise BrokenPipeError as any other writer does."""
        raise BrokenPipeError


def make_console(*, stderr: bool = False) -> Console:
    """A console for text that is laid out already: nothing is highlighted, wrapped or read as
    markup.
    """
    return PlainConsole(stderr=stderr, highlight=False, markup=False, emoji=False, soft_wrap=True)


def print_lines(console: Console, lines: Iterable[Text]) -> None:
    """Print lines; without colour they need no more of rich, which takes 60 us a line."""
    plain = console.color_system is None
    for text in lines:
        # line() leaves nothing else; what did not come through it loses its colours
        if plain or not text.plain.isprintable():
            console.file.write(f"{printable(text.plain)}\n")
        else:
            console.print(text)


def line(*parts: str | tuple[str, str]) -> Text:
    """One line of plain and (text, style) parts, made printable."""
    return Text.assemble(
        *(
            printable(part) if isinstance(part, str) else (printable(part[0]), part[1])
            for part in parts
        )
    )


def folded(tag: str, text: str, *, width: int, style: str = "") -> Iterator[Text]:
    """A tag and words after it, on lines of this width (a longer word keeps its own line), the
    further ones indented.
    """
    indent = min(cell_len(tag), width // 2)
    lines = [""]
    for word in printable(text).split(" "):
        if lines[-1] and indent + cell_len(lines[-1]) + 1 + cell_len(word) > width:
            lines.append("")
        lines[-1] += f" {word}" if lines[-1] else word
    for number, said in enumerate(lines):
        yield line((tag, style) if number == 0 else " " * indent, said.rstrip())
