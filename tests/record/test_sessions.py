# SPDX-License-Identifier: Apache-2.0
"""Calls of ONNX Runtime are calls of graphs, and data flows through them; a stand-in of its module
is imported here, the real one in tests/interop.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

from opscope.record.torch import sessions
from tests.record.recorded import record


class Session:
    """What runs a model: logarithms of x, and how many there are."""

    def run(self, names: Any, input_feed: dict[str, Any], run_options: Any = None) -> list[Any]:
        if input_feed["x"].shape[-1] != 4:
            raise ValueError("Got invalid dimensions for input: x")
        with np.errstate(all="ignore"):
            return [np.log(input_feed["x"]), np.array(["words"]), np.array(4)]


@pytest.fixture(autouse=True)
def _imported(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType(sessions.MODULE)
    module.Session = type("Session", (Session,), {"run": Session.run})  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, sessions.MODULE, module)
    monkeypatch.setattr(sessions, "COMPILER", "no such module")


def session() -> Any:
    return sys.modules[sessions.MODULE].Session()  # type: ignore[attr-defined]


@pytest.mark.parametrize("plain", [False, True])
def test_data_flows_through_a_session(tmp_path: Any, *, plain: bool) -> None:
    def program() -> None:
        x = torch.ones(3, 4) * 2
        x[0, 0] = -1
        made = session().run(None, {"x": x.numpy()[1:]})
        assert isinstance(made[0], np.ndarray)
        torch.from_numpy(made[0]).exp()
        kept = session()
        made = kept.run(None, input_feed={"x": np.full((1, 4), -1, np.float32)})
        torch.from_numpy(made[0]).sum()

    found = record(tmp_path, program, plain=plain)
    one, taken, two, _ = found.all("compiled::")
    assert [one.op, taken.op, two.op] == [
        "compiled::session_0",
        "compiled::from_session",
        "compiled::session_1",
    ]
    (given,) = found.inputs(one).values()
    (written,) = found.all("aten::fill_") or found.all("aten::copy_")
    assert given.storage == next(iter(found.outputs(written).values())).storage
    assert (given.min, given.max) == (2.0, 2.0)
    (exp,) = found.all("aten::exp")
    made = found.outputs(taken)["0.0"]
    assert found.inputs(taken)["0"].version == found.outputs(one)["0.0"].version
    assert found.inputs(exp)["0"].version == made.version
    assert found.outputs(two)["0.0"].nan == 4


def test_an_error_is_the_programs(tmp_path: Any) -> None:
    def program() -> None:
        with pytest.raises(ValueError, match="invalid dimensions"):
            session().run(None, {"x": np.zeros((2, 5), np.float32)})

    (call,) = record(tmp_path, program).all("compiled::")
    assert "invalid dimensions" in (call.error or "")


def test_nothing_is_left_once_a_recording_is_over(tmp_path: Any) -> None:
    owner, taking = sys.modules[sessions.MODULE].Session, torch.from_numpy  # type: ignore[attr-defined]
    before = owner.run
    record(tmp_path, lambda: None)
    assert owner.run is before
    assert torch.from_numpy is taking
