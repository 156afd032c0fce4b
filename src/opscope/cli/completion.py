# SPDX-License-Identifier: Apache-2.0
"""`opscope completion`: the script with which a shell completes verbs and options, and the manual
page, made of what the help of every verb is made of.
"""

from __future__ import annotations

from typing import Annotated, Literal

from cyclopts import App, Parameter

from opscope.cli.app import ABOUT, VERBS, make_app
from opscope.cli.examples import EXAMPLES
from opscope.cli.explain import EXITS
from opscope.version import VERSION

FOR = "The shell; each reads the script from a place of its own. man: the manual page instead."
ENVIRONMENT = (
    ("OPSCOPE", "Options of opscope run as one string, for a program that imports opscope."),
    ("COLUMNS", "The width of what is printed where the terminal does not say it."),
)


def completion(
    shell: Annotated[Literal["bash", "zsh", "fish", "man"], Parameter(help=FOR)], /
) -> int:
    """Print the script that completes verbs and options in a shell, or the manual page."""
    app = make_app()
    print(man_page(app) if shell == "man" else app.generate_completion(shell=shell))
    return 0


def man_page(app: App) -> str:
    """The page opscope(1) in roff."""
    lines = [f'.TH OPSCOPE 1 "" "opscope {VERSION}" "User commands"', ".SH NAME"]
    lines += [_plain(f"opscope - {ABOUT.splitlines()[0].rstrip('.').lower()}")]
    lines += [".SH SYNOPSIS", ".B opscope", "VERB [options]", ".SH VERBS"]
    for verb, about in VERBS:
        lines += [f".SS opscope {_plain(verb)}", _plain(about)]
        for names, text in _options(app, verb):
            lines += [".TP", rf"\fB{_plain(names)}\fR", _plain(text)]
        for typed, does in EXAMPLES[verb]:
            lines += [".PP", _plain(f"{does[:1].upper()}{does[1:]}:"), ".br"]
            lines += [rf"\fBopscope {_plain(typed)}\fR"]
    lines += [".SH EXIT STATUS", _plain("opscope run exits with the code of its command.")]
    for code, text in EXITS.items():
        lines += [".TP", rf"\fB{code}\fR", _plain(text)]
    lines += [".SH ENVIRONMENT"]
    for name, text in ENVIRONMENT:
        lines += [".TP", rf"\fB{name}\fR", _plain(text)]
    return "\n".join(lines)


def _options(app: App, verb: str) -> list[tuple[str, str]]:
    """Names and help of each argument and option of a verb."""
    arguments = app[verb].assemble_argument_collection(parse_docstring=True)
    return [
        (", ".join(argument.names), argument.parameter.help or "")
        for argument in arguments
        if argument.show and argument.names
    ]


def _plain(text: str) -> str:
    """Text as roff prints it letter by letter: no control line, no escape, hyphens to be typed."""
    line = " ".join(text.split()).replace("\\", r"\e").replace("-", r"\-")
    return rf"\&{line}" if line.startswith((".", "'")) else line
