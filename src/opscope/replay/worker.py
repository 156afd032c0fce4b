# SPDX-License-Identifier: Apache-2.0
"""The process that replays calls of a run: one line `process index` in, one line of JSON out.

A kernel that takes the process down with it costs one call; the one who asks starts another
process.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import msgspec

from opscope.errors import OpscopeError, UnavailableError
from opscope.operators.catalogue import traits_of
from opscope.questions.told_operators import knowing_of
from opscope.replay.calls import again, call_at
from opscope.replay.kernels import Kernels
from opscope.replay.mindspore import NEEDED, MindSporeReplayer
from opscope.repro.form_mindspore import made_again
from opscope.repro.forms import form_of
from opscope.repro.rows import rows_of_versions
from opscope.run.keys import keys_at
from opscope.run.query import rows_of, tensors_at

if TYPE_CHECKING:
    from opscope.run.protocol import Run
    from opscope.run.schema import Call

LINE = 256
NO_TORCH = f"torch is not installed in {sys.executable}; opscope replay runs where it is"
LAZY = ("aten::_conj.default", "aten::_neg_view.default")
FAILURES = (OpscopeError, MemoryError, ValueError, TypeError, RuntimeError, IndexError, KeyError)
OF_CALL = re.compile(
    r"^\S+: (?=argument|input|its )"
)  # a call's name, its own or that of the function whose gradient it is


class Replayer:
    """Replays calls of one run on one device: those of MindSpore by mindspore, all others by
    kernels, where there are such.
    """

    def __init__(  # noqa: PLR0913 - options of a replay, each by its name
        self,
        run: Run,
        *,
        device: str | None,
        repeat: int,
        synthesise: bool,
        mindspore: MindSporeReplayer | None = None,
        kernels: Kernels | None = None,
        allowed: Sequence[str] = (),
    ) -> None:
        self.run = run
        self.device = device
        self.repeat = repeat
        self.synthesise = synthesise
        self.mindspore = mindspore
        self.kernels = kernels
        self.allowed = allowed

    def replay(self, call: Call) -> dict[str, Any]:
        """What came of one call, as plain data; a reason instead when it cannot be made again."""
        form = form_of(self.run, call)
        if form.name != "mindspore":
            return self._by_torch(call)
        try:
            if self.mindspore is not None:
                return self.mindspore.replay(call, synthesise=self.synthesise)
            made_again(self.run, call)
        except FAILURES as error:
            return {"reason": told(error)}
        by_torch = self._by_torch(call)
        return {"reason": NEEDED} if "reason" in by_torch else by_torch

    def _by_torch(self, call: Call) -> dict[str, Any]:
        if find_spec("torch") is None:
            return {"reason": NO_TORCH}
        from opscope.substitute.recorded import Recorded, replay_recorded, usable

        if self._lacks(call):
            return {
                "reason": "its operator is a library's own: nothing independent of that library "
                "can judge it"
            }
        try:
            check_allowed(call.op, self.allowed)
            remade = again(self.run, call)
            if remade.values == "synthesised" and not self.synthesise:
                return {
                    "reason": "values of its inputs were not kept; --synthesise invents some from "
                    "the statistics"
                }
            exact = remade.values == "recorded" and not overwritten(self.run, call)
            recorded = Recorded(
                call=remade.call, memories=remade.memories, outputs=remade.outputs, exact=exact
            )
            device = self.device or usable(remade.device)
            result = replay_recorded(
                recorded, device=device, repeat=self.repeat, trials=self._trials(call, device)
            )
            if remade.other is not None and result.verdict.verdict in ("wrong", "unknown"):
                recorded = msgspec.structs.replace(
                    recorded, call=remade.other.call, outputs=remade.other.outputs
                )
                second = replay_recorded(
                    recorded,
                    device=device,
                    repeat=self.repeat,
                    trials=self._trials(call, device, other=True),
                )
                result = second if second.verdict.verdict not in ("wrong", "unknown") else result
        except FAILURES as error:
            return {"reason": told(error)}
        if (
            result.verdict.verdict == "wrong"
            and result.against == "recorded outputs"
            and not complete(self.run, call)
        ):
            reason = (
                "it gives another result; a ptdbg dump holds no keyword arguments, which it "
                "may have been called with"
            )
            return {"reason": reason}
        if (
            result.verdict.verdict == "wrong"
            and result.against == "recorded outputs"
            and conjugated(self.run, call)
        ):
            return {
                "reason": "it reads a conjugate or negated view, whose values a run tells as "
                "those of the tensor beneath"
            }
        return {"values": remade.values, "device": device, **msgspec.to_builtins(result)}

    def _lacks(self, call: Call) -> bool:
        """Whether the operator is that of a library which is loaded where calls are made alone."""
        from opscope.substitute.references import reference_of
        from opscope.substitute.schema import find_operator

        if self.kernels is None or "::" not in call.op or reference_of(call.op) is not None:
            return False
        try:
            find_operator(call.op)
        except OpscopeError:
            return True
        return False

    def _trials(self, call: Call, device: str, *, other: bool = False) -> Any:
        """What the user's kernels give; None where this process is to make the call."""
        return (
            None
            if self.kernels is None
            else self.kernels.trials(call, other=other, device=device, repeat=self.repeat)
        )


def check_allowed(op: str, allowed: Sequence[str]) -> None:
    """UnavailableError for an operator that may touch more than its tensors, unless it is
    allowed.
    """
    from opscope.repro.scripts.allowing import why_refused
    from opscope.substitute.references import reference_of
    from opscope.substitute.schema import find_operator

    known = "::" in op and reference_of(op) is None
    refused = why_refused(op, find_operator(op), (), allowed) if known else ""
    if refused:
        raise UnavailableError(refused)


def complete(run: Run, call: Call) -> bool:
    """Whether the recorded arguments are all that the call had: ptdbg never wrote keyword
    arguments.
    """
    return run.info.coverage.keywords or traits_of(call.op).keyless


def overwritten(run: Run, call: Call) -> bool:
    """Whether the recorded inputs are what the call made of them: ptdbg dumps both when a function
    has returned.
    """
    from opscope.substitute.perform import writes_first

    return not run.info.coverage.before and call.phase == "forward" and writes_first(call.op)


def conjugated(run: Run, call: Call) -> bool:
    """Whether an input is a lazy view by conjugation or negation, or the tensor beneath one: both
    are one version of one memory.
    """
    rows = tensors_at(run, call.process, call.index)
    read = [row.version for row in rows if row.io == "input" and row.version is not None]
    same = rows_of_versions(run, call.process, read, ("index", "io"))
    makers = keys_at((call.process, index) for index, io in same if io == "output")
    return any(op in LAZY for (op,) in rows_of(run, "calls", ("op",), makers))


def told(error: BaseException) -> str:
    """Why a call cannot be made again, in one line without the call's name."""
    return OF_CALL.sub("", (str(error).strip().splitlines() or [type(error).__name__])[0])[:300]


def main(path: str, options: dict[str, Any]) -> None:
    """Answer lines of stdin until it ends; options are those of Plan."""
    from opscope.formats.registry import open_run

    signal.signal(
        signal.SIGTERM, signal.default_int_handler
    )  # so that a process of MindSpore ends with this one
    if find_spec("torch") is not None:
        from opscope.substitute.recorded import one_thread

        one_thread()
    run = open_run(path)
    common = {"device": options["device"], "repeat": options["repeat"]}
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever a kernel prints is not an answer
    with contextlib.ExitStack() as opened:
        opened.enter_context(knowing_of(run, declared=options["declared"]))
        other = None
        if options["python"] is not None:
            other = opened.enter_context(
                MindSporeReplayer(
                    run,
                    python=options["python"],
                    timeout=options["timeout"],
                    allowed=options["allowed"],
                    **common,
                )
            )
        kernels = (
            opened.enter_context(Kernels(path, options["imports"])) if options["imports"] else None
        )
        replayer = Replayer(
            run,
            synthesise=options["synthesise"],
            mindspore=other,
            kernels=kernels,
            allowed=options["allowed"],
            **common,
        )
        while line := sys.stdin.readline(LINE):
            process, index = map(int, line.split())
            answer = replayer.replay(call_at(run, process, index))
            out.write(msgspec.json.encode(plain(answer)) + b"\n")
            out.flush()


def plain(value: Any) -> Any:
    """The same with floats that JSON lacks as text."""
    from opscope.repro.case import plain as text

    return text(value)
