# SPDX-License-Identifier: Apache-2.0
"""Writes the pages of the reference that are made of code: verbs with their options, words.

    python scripts/reference.py FOLDER

Sphinx does so before it builds (docs/conf.py), so that no such page is kept and none is ever old.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from itertools import groupby
from pathlib import Path

from cyclopts import App

from opscope.cli.app import ABOUT, VERBS, make_app
from opscope.cli.examples import EXAMPLES
from opscope.cli.explain import EXITS, words
from opscope.run.schema import TABLES


def verbs() -> str:
    """Every verb with what it takes, examples, and the exit codes."""
    app = make_app()
    lines = ["# Verbs and options", "", ABOUT.splitlines()[0], ""]
    for verb, about in VERBS:
        lines += [f"## opscope {verb}", "", about, "", *_options(app, verb)]
        lines += ["```console"]
        for typed, does in EXAMPLES[verb]:
            lines += [f"$ opscope {typed}    # {does}"]
        lines += ["```", ""]
    lines += ["## Exit codes", "", "| code | |", "|---|---|"]
    lines += [f"| {code} | {_cell(text)} |" for code, text in EXITS.items()]
    return "\n".join(lines) + "\n"


def vocabulary() -> str:
    """Every word that `opscope explain` knows, by its family."""
    lines = ["# Words", "", "What `opscope explain WORD` says of each.", ""]
    for family, found in groupby(words(), key=lambda word: word.family.partition(",")[0]):
        lines += [f"## {family[:1].upper()}{family[1:]}", "", "| word | meaning |", "|---|---|"]
        lines += [f"| `{_cell(word.code)}` | {_cell(word.text)} |" for word in found]
        lines += [""]
    return "\n".join(lines)


def columns() -> str:
    """The tables of a run, their columns and the types that they have in Arrow and in SQL."""
    lines = ["# Columns of the tables", ""]
    for table, fields in TABLES.items():
        lines += [f"## {table}", "", "| column | type |", "|---|---|"]
        lines += [f"| `{name}` | {_cell(str(kind))} |" for name, kind in fields.items()]
        lines += [""]
    return "\n".join(lines)


PAGES: dict[str, Callable[[], str]] = {
    "verbs": verbs,
    "words": vocabulary,
    "columns": columns,
}


def write(folder: Path) -> None:
    """Writes each page where it is not yet there in the same words."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, made in PAGES.items():
        page, text = folder / f"{name}.md", made()
        if not page.exists() or page.read_text(encoding="utf-8") != text:
            page.write_text(text, encoding="utf-8")


def _options(app: App, verb: str) -> list[str]:
    rows = [
        f"| {', '.join(f'`{name}`' for name in argument.names)} "
        f"| {_cell(argument.parameter.help or '')} |"
        for argument in app[verb].assemble_argument_collection(parse_docstring=True)
        if argument.show and argument.names
    ]
    return ["| argument | |", "|---|---|", *rows, ""] if rows else []


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", r"\|").replace("<", r"\<")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
