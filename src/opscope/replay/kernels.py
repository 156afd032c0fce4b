# SPDX-License-Identifier: Apache-2.0
"""Makes recorded calls by the kernels of the user's libraries, in a process apart from the one that
judges them.

One line of JSON in, one out; results go through a file. A library that replaced a kernel through
torch.library cannot vouch for itself.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from opscope.errors import OpscopeError, UnavailableError
from opscope.replay.calls import again, call_at
from opscope.repro.answering import AnsweringProcess, ending

if TYPE_CHECKING:
    import torch

    from opscope.run.schema import Call

BOOTSTRAP = (
    "import sys; sys.path[:] = {path!r}; from opscope.replay.kernels import main; "
    "main(*{arguments!r})"
)
RESULTS = "results.pt"


class Asked(msgspec.Struct, frozen=True):
    """One request: the call, whether a gradient is read the other way (replayed_call.gradient),
    where and how often it is made.
    """

    process: int
    index: int
    other: bool
    device: str
    repeat: int


class Kernels:
    """A process that has loaded the libraries; started when first asked, and again when a kernel
    ended it. Used as a with-block.
    """

    def __init__(self, path: str, imports: Sequence[str]) -> None:
        self._folder = tempfile.mkdtemp(prefix="opscope-replay-")
        search = [*dict.fromkeys((*sys.path, str(Path.cwd())))]
        code = BOOTSTRAP.format(path=search, arguments=(path, list(imports), self._folder))
        self._process = AnsweringProcess([sys.executable, "-I", "-c", code], os.environ)

    def __enter__(self) -> Kernels:
        return self

    def __exit__(self, *error: object) -> None:
        self._process.end(1.0)
        shutil.rmtree(self._folder, ignore_errors=True)

    def trials(
        self, call: Call, *, other: bool, device: str, repeat: int
    ) -> list[dict[str, torch.Tensor]]:
        """Outputs by slot, each time the call was made; UnavailableError when it cannot be, or ends
        its process.
        """
        import torch

        request = Asked(
            process=call.process, index=call.index, other=other, device=device, repeat=repeat
        )
        answer = self._process.ask(msgspec.json.encode(request))
        if not answer:
            raise UnavailableError(f"the process died in it ({ending(self._process.end(1.0))})")
        reason = msgspec.json.decode(answer, type=str)
        if reason:
            raise UnavailableError(reason)
        outputs: list[dict[str, torch.Tensor]] = torch.load(
            Path(self._folder) / RESULTS, weights_only=True
        )
        return outputs


def load_libraries(imports: Sequence[str]) -> None:
    """Import what registers operators or kernels; UnavailableError names the one that cannot be."""
    from opscope.repro.scripts.repro import load_library

    name = ""
    try:
        for name in imports:
            load_library(name)
    except Exception as error:  # the user's code may raise anything
        raise UnavailableError(f"--import {name}: {type(error).__name__}: {error}") from error


def main(path: str, imports: Sequence[str], folder: str) -> None:
    """Answer requests until there are no more: the reason why a call cannot be made, or nothing
    once its results are in the file.
    """
    from opscope.formats.registry import open_run
    from opscope.substitute.recorded import one_thread

    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever a kernel prints is not an answer
    one_thread()
    run, broken = open_run(path), ""
    try:
        load_libraries(imports)
    except UnavailableError as error:
        broken = str(error)
    while line := sys.stdin.readline():
        request = msgspec.json.decode(line, type=Asked)
        out.write(msgspec.json.encode(broken or made(run, request, Path(folder) / RESULTS)) + b"\n")
        out.flush()


def made(run: Any, request: Asked, target: Path) -> str:
    """Make a call as often as asked and write its results; the reason where it cannot be made."""
    import torch

    from opscope.substitute.recorded import Recorded, bind, trials_of
    from opscope.substitute.truth import FAILURES

    try:
        recorded = again(run, call_at(run, request.process, request.index))
        chosen = recorded.other if request.other and recorded.other is not None else recorded
        bound = bind(Recorded(call=chosen.call, memories=chosen.memories, outputs={}))
        trials = trials_of(bound, request.device, request.repeat)
    except (OpscopeError, MemoryError, *FAILURES) as error:
        return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]
    torch.save(
        [
            {slot: tensor.detach().cpu().clone() for slot, tensor in outputs.items()}
            for outputs in trials
        ],
        target,
    )
    return ""
