# SPDX-License-Identifier: Apache-2.0
"""Whatever opscope's own code raises at any of the ways into it, the program goes on as it would,
and one line says that recording ended.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import opscope
from opscope.kernels import compiled
from opscope.record.active import active
from opscope.record.session import Session
from opscope.record.steps import Steps
from opscope.record.torch import formulas as formulas_module
from opscope.record.torch import mode as mode_module
from opscope.record.torch.binding import TorchBinding
from opscope.record.torch.modules import Modules
from opscope.record.torch.recorder import TorchRecorder
from opscope.run.store.values import ValueStore
from tests.attack.training import losses


def train(mark: Callable[[], None] = lambda: None, *, threads: int = 1) -> list[str]:
    made = []

    def steps() -> None:
        for loss in losses(3):
            made.append(loss)
            mark()

    steps()
    for thread in [threading.Thread(target=steps) for _ in range(threads)]:
        thread.start()
        thread.join()
    return made


DOORS = [
    (TorchBinding, "resolve"), (TorchBinding, "describe"), (TorchBinding, "target"),
    (TorchBinding, "label"), (TorchBinding, "keep"), (TorchBinding, "due"), (Modules, "path"),
    (Modules, "learn"), (TorchRecorder, "_begin_optimizer"), (TorchRecorder, "_end_optimizer"),
    (TorchRecorder, "_leave_module"), (TorchRecorder, "_enter_api"), (TorchRecorder, "batches"),
    (TorchRecorder, "settings"), (TorchRecorder, "step_marked"), (Steps, "optimizer_begins"),
    (Steps, "optimizer_ends"), (Steps, "backward"), (Steps, "mark"), (Session, "step_ended"),
    (Session, "drain"), (Session, "_facts"), (ValueStore, "keep"), (mode_module, "resolve_name"),
    (formulas_module, "named"),
]  # fmt: skip


def planted(
    monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, fault: Callable[[], None], *, at: int
) -> list[int]:
    """The function raises what fault raises when it is called for the at-th time; the answer grows
    by one with every call.
    """
    genuine, calls = owner.__dict__[name], []
    function = genuine.__func__ if isinstance(genuine, staticmethod) else genuine

    def failing(*args: Any, **kwargs: Any) -> Any:
        calls.append(len(calls))
        if len(calls) == at:
            fault()
        return function(*args, **kwargs)

    monkeypatch.setattr(
        owner, name, staticmethod(failing) if isinstance(genuine, staticmethod) else failing
    )
    return calls


def broken() -> None:
    raise LookupError("planted")


@pytest.mark.parametrize("plain", [False, True], ids=["compiled", "reference"])
@pytest.mark.parametrize(
    ("owner", "name"), DOORS, ids=lambda value: getattr(value, "__name__", value)
)
def test_a_fault_behind_a_door(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    owner: Any,
    name: str,
    plain: bool,
) -> None:
    bare = train()
    if plain:
        monkeypatch.setattr(compiled, "load_recorder", lambda: None)
    calls = planted(
        monkeypatch,
        owner,
        name,
        broken,
        at=2 if name not in {"settings", "_facts", "learn", "due"} else 1,
    )
    with opscope.record(tmp_path / "run", levels="operator,module,api", values="full") as recording:
        watched = train(recording.step if name in {"step_marked", "mark"} else lambda: None)
    assert watched == bare
    said = [line for line in capsys.readouterr().err.splitlines() if line]
    if plain and name == "resolve" and not calls:
        return  # the reference reads frames itself
    assert calls
    assert len(said) == 1, said
    assert "recording ended" in said[0] or "recording goes on" in said[0]
    assert "planted" in said[0]
    document = opscope.scan(opscope.open_run(recording.path))
    assert not document.complete
    assert not document.findings
    assert active.session is None


class Alarm(Exception):
    """What a program's handler raises."""


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, TimeoutError, Alarm])
@pytest.mark.parametrize(
    ("owner", "name"),
    [(TorchBinding, "resolve"), (Modules, "path"), (Session, "step_ended"), (ValueStore, "keep")],
)
def test_what_is_the_programs_passes(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    owner: Any,
    name: str,
    kind: type[BaseException],
) -> None:
    """A signal arrives inside opscope's code; what the handler raises comes out as the same object,
    and the run is not called whole.
    """
    raised = kind("the program's own")

    def handler(number: int, frame: object) -> None:
        signal.signal(number, signal.SIG_DFL)  # it may be gone when somebody looks
        raise raised

    planted(monkeypatch, owner, name, lambda: signal.raise_signal(signal.SIGUSR1), at=2)
    before = signal.signal(signal.SIGUSR1, handler)
    try:
        with opscope.record(tmp_path / "run", values="full") as recording:
            with pytest.raises(kind) as found:
                train(threads=0)  # handlers run in the main thread
            rest = train()
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert found.value is raised
    assert rest == train()
    said = [line for line in capsys.readouterr().err.splitlines() if line]
    assert len(said) == 1, said
    assert f"{kind.__name__} came while opscope's own code ran" in said[0]
    assert not opscope.scan(opscope.open_run(recording.path)).complete
