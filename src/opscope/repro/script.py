# SPDX-License-Identifier: Apache-2.0
"""The torch form of a case: scripts/repro.py with the call of this case in the marked place.

Nothing of a run enters the code but the operator's name and argument names (checked against a
strict pattern), names from fixed tables, and literals (arguments.call_code). All other text of a
run stays in case.json, which the script reads as data.
"""

from __future__ import annotations

import re
from importlib.resources import files

from opscope.repro.api import api_code
from opscope.repro.arguments import call_code, parse_operator
from opscope.repro.case import Case

BEGIN = "# --- the call ---\n"
END = "# --- end of the call ---\n"
PARTS = "# --- parts ---\n"
PARTS_END = "# --- end of parts ---\n"


def script_text(case: Case) -> str:
    """Source of repro.py (Python 3.8, torch); UsageError when the case holds what
    cannot be code.
    """
    parse_operator(case.op)
    whole = template("repro.py", "allowing", "verdict", "stored", "judging", "rebuilding")
    before, rest = whole.split(BEGIN)
    _, after = rest.split(END)
    return f"{before}{BEGIN}{call_section(case)}{END}{after}"


def template(name: str, *parts: str) -> str:
    """A script of scripts/ with the text of these modules where it imports them: what stands below
    the mark of each.
    """
    before, rest = _source(name).split(PARTS)
    _, after = rest.split(PARTS_END)
    written = "\n\n\n".join(
        _source(f"{part}.py").split(f"# --- {part} ---\n")[1].strip("\n") for part in parts
    )
    return f"{before}{PARTS}{written}\n\n\n{PARTS_END}{after}"


def call_section(case: Case) -> str:
    """What differs from case to case: the operator's name and the function that makes the call."""
    return (
        f"OPERATOR = {case.op!a}\nBACKWARD = {case.level == 'api'}\n\n\n"
        "def call(t: Any, dtype: Any, device: Any, generator: Any) -> Any:\n"
        '    """The call as it was recorded; t holds its tensors by slot, dtype and device '
        'turn names into what is used here."""\n'
        f"    return {torch_code(case)}\n\n\n"
    )


def torch_code(case: Case) -> str:
    """The expression that makes the call, at the level of the case."""
    return api_code(case.op, case.args) if case.level == "api" else call_code(case.op, case.args)


def _source(name: str) -> str:
    text = files("opscope.repro").joinpath("scripts", name).read_text(encoding="utf-8")
    return re.sub(r"# ruff: [^\n]*\n|  # (noqa|type: ignore)[^\n]*", "", text)
