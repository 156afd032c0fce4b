# SPDX-License-Identifier: Apache-2.0
"""The torch form: operators of PyTorch's dispatcher, by a script that needs torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from opscope.repro.arguments import OPERATOR
from opscope.repro.build import build
from opscope.repro.forms import Form
from opscope.repro.script import call_section, script_text, torch_code

if TYPE_CHECKING:
    from opscope.repro.case import Case
    from opscope.run.protocol import Run
    from opscope.run.schema import Call


def takes(run: Run, call: Call) -> bool:  # noqa: ARG001 - the signature of Form.takes
    """Whether the operator's name is one that torch.ops can hold."""
    return OPERATOR.fullmatch(call.op) is not None


def code(case: Case) -> list[str]:
    """The call as it stands in the script."""
    lines = torch_code(case).splitlines()
    return [*lines[:-1], lines[-1] + ".sum().backward()"] if case.level == "api" else lines


FORM = Form(
    name="torch",
    takes=takes,
    build=build,
    script=script_text,
    section=call_section,
    code=code,
    needs="torch",
)
