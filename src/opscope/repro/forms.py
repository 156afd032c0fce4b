# SPDX-License-Identifier: Apache-2.0
"""Forms: what turns calls of one framework into folders that stand alone, and back into code that
people read.

A form is one module with a `FORM`, and one line in FORMS. Everything else of this room (writing,
executing, minimising, bisecting) works on the case and on the contract of the script, and knows no
framework:

    python repro.py --json [--device D] [--dtype T] [--repeat N] [--import M]

prints one JSON document as its last line, {"verdict": "reproduced | flaky | not reproduced | cannot
be tried", "shown": n, "tried": m, "reason": text, "lines": [...], "device": name, "seen": {slot:
statistics}}, and exits with 1, 1, 0, 125.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Protocol

import msgspec

from opscope.errors import UsageError

if TYPE_CHECKING:
    from opscope.repro.build import Material
    from opscope.repro.case import Case
    from opscope.run.protocol import Run
    from opscope.run.schema import Call


class Builder(Protocol):
    """Makes the case of one call; UsageError or MissingValueError for one that cannot be made
    again, with the reason.
    """

    def __call__(
        self, run: Run, call: Call, *, device: str | None = None, dtype: str | None = None
    ) -> Material: ...


class Form(msgspec.Struct, frozen=True, kw_only=True):
    """One framework's way to make a call alone.

    name stands in Case.form. takes says whether a call of this run is of this form. script gives
    the source of repro.py, section the part of it that defines `call`, code the call as lines of
    Python for people, needs what the script wants installed, files more files of the folder by
    name. worker is the file in scripts/ that makes many candidates in one process
    (scripts/worker.py says how it is talked to).
    """

    name: str
    takes: Callable[[Run, Call], bool]
    build: Builder
    script: Callable[[Case], str]
    section: Callable[[Case], str]
    code: Callable[[Case], list[str]]
    needs: str
    files: Callable[[Case], dict[str, bytes]] = lambda case: {}  # noqa: ARG005
    worker: str = "worker.py"


# Name of a form -> the module that holds its FORM; the first whose `takes` agrees has a call, torch
# asked last.
FORMS: dict[str, str] = {
    "mindspore": "opscope.repro.form_mindspore",
    "torch": "opscope.repro.form_torch",
}


def form_named(name: str) -> Form:
    """The form of a case; UsageError for one that this opscope does not have."""
    if name not in FORMS:
        raise UsageError(f"form {name!r} is unknown; this opscope has {', '.join(FORMS)}")
    form: Form = importlib.import_module(FORMS[name]).FORM
    return form


def form_of(run: Run, call: Call) -> Form:
    """The form that cuts this call out; torch's when no other claims it, so that its reasons
    against it are heard.
    """
    return next((form for form in _forms() if form.takes(run, call)), form_named("torch"))


def _forms() -> Iterator[Form]:
    yield from (form_named(name) for name in FORMS if name != "torch")
    yield form_named("torch")
