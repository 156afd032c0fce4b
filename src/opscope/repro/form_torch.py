# SPDX-License-Identifier: Apache-2.0
"""The torch form: operators of PyTorch's dispatcher, by a script that needs torch:
scripts/repro.py with the call of a case in the marked place.

Nothing of a run enters the code but the operator's name and argument names (checked against a
strict pattern), names from fixed tables, and literals (arguments.call_code). All other text of a
run stays in case.json, which the script reads as data.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from opscope.repro.api import api_code
from opscope.repro.arguments import OPERATOR, call_code, parse_operator
from opscope.repro.build import build
from opscope.repro.forms import Form
from opscope.repro.script import template

if TYPE_CHECKING:
    from opscope.repro.case import Case
    from opscope.run.protocol import Run
    from opscope.run.schema import Call

BEGIN = "# --- the call ---\n"
END = "# --- end of the call ---\n"


def takes(run: Run, call: Call) -> bool:  # noqa: ARG001 - the signature of Form.takes
    """Whether the operator's name is one that torch.ops can hold."""
    return OPERATOR.fullmatch(call.op) is not None


def script(case: Case) -> str:
    """Source of repro.py (Python 3.8, torch).

    UsageError when the case holds what cannot be code.
    """
    parse_operator(case.op)
    whole = template("repro.py", "allowing", "verdict", "stored", "judging", "rebuilding")
    before, rest = whole.split(BEGIN)
    _, after = rest.split(END)
    return f"{before}{BEGIN}{section(case)}{END}{after}"


def section(case: Case) -> str:
    """What differs from case to case: the operator's name and the function that makes the call."""
    return (
        f"OPERATOR = {case.op!a}\nBACKWARD = {case.level == 'api'}\n\n\n"
        "def call(t: Any, dtype: Any, device: Any, generator: Any) -> Any:\n"
        '    """The call as it was recorded; t holds its tensors by slot, dtype and device '
        'turn names into what is used here."""\n'
        f"    return {_call_code(case)}\n\n\n"
    )


def code(case: Case) -> list[str]:
    """The call as it stands in the script."""
    lines = _call_code(case).splitlines()
    return [*lines[:-1], lines[-1] + ".sum().backward()"] if case.level == "api" else lines


def _call_code(case: Case) -> str:
    """The expression that makes the call, at the level of the case."""
    return api_code(case.op, case.args) if case.level == "api" else call_code(case.op, case.args)


FORM = Form(
    name="torch",
    takes=takes,
    build=build,
    script=script,
    section=section,
    code=code,
    needs="torch",
)
