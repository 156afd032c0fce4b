# SPDX-License-Identifier: Apache-2.0
"""Faults of software, of a moment and of hardware are told apart by making a call again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from opscope.judge.repetition import nature_of
from opscope.substitute import recorded
from opscope.substitute.layout import Call, Flags, Laid, Memory
from opscope.substitute.recorded import Recorded, Replay, replay_recorded

X = np.linspace(-2, 2, 64, dtype=np.float32)


def replayed(
    monkeypatch: pytest.MonkeyPatch,
    off: Callable[[int], float],
    *,
    outputs: dict[str, Any] | None = None,
) -> Replay:
    """tanh made five times on a device that errs by off(run)."""
    laid = Laid(memory=0, dtype="float32", shape=(64,), stride=(1,))
    call = Call(
        op="aten::tanh.default",
        args={"args": [{"tensor": "0"}], "kwargs": {}},
        tensors={"0": laid},
        memories=(Memory(size=256),),
        flags=Flags(),
    )
    runs = iter(range(100))

    def device(bound: Any, name: str) -> dict[str, torch.Tensor]:
        return {"0": torch.from_numpy(np.tanh(X)) + off(next(runs))}

    monkeypatch.setattr(recorded, "made", device)
    return replay_recorded(
        Recorded(call=call, memories=[X.view(np.uint8)], outputs=outputs or {}), repeat=5
    )


@pytest.mark.parametrize(
    ("off", "wrong", "nature"),
    [
        (lambda run: 0.1, 5, "persistent"),
        (lambda run: 0.1 * (run + 1), 5, "unstable"),
        (lambda run: 0.1 * (run % 3 + 1), 5, "unstable"),
        (lambda run: 0.1 if run == 0 else 0.0, 1, "intermittent"),
        (lambda run: 0.1 if run == 3 else 0.0, 1, "intermittent"),
    ],
)
def test_what_a_device_gives_five_times(
    monkeypatch: pytest.MonkeyPatch, off: Any, wrong: int, nature: str
) -> None:
    found = replayed(monkeypatch, off)
    assert (found.verdict.verdict, found.wrong, found.nature, found.tried) == (
        "wrong",
        wrong,
        nature,
        5,
    )


def test_a_recorded_fault_that_does_not_come_again(monkeypatch: pytest.MonkeyPatch) -> None:
    found = replayed(
        monkeypatch, lambda run: 0.0, outputs={"0": ("float32", np.tanh(X) + np.float32(0.1))}
    )
    assert (found.verdict.verdict, found.nature, found.wrong, found.against) == (
        "wrong",
        "transient",
        0,
        "recorded outputs",
    )


def test_other_bits_within_rounding_are_flaky(monkeypatch: pytest.MonkeyPatch) -> None:
    found = replayed(monkeypatch, lambda run: 6e-8 * (run == 2))
    assert (found.verdict.verdict, found.nature, found.wrong, found.distinct) == (
        "flaky",
        None,
        0,
        2,
    )
    assert replayed(monkeypatch, lambda run: 0.0).verdict.verdict == "agree"


def test_natures() -> None:
    assert [nature_of(0, 5, 1), nature_of(2, 5, 2), nature_of(5, 5, 1), nature_of(5, 5, 3)] == [
        "transient",
        "intermittent",
        "persistent",
        "unstable",
    ]


def test_a_device_that_is_wrong_now_though_the_recorded_result_is_right(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = replayed(monkeypatch, lambda run: 0.1, outputs={"0": ("float32", np.tanh(X))})
    assert (found.verdict.verdict, found.nature, found.wrong, found.against) == (
        "wrong",
        "persistent",
        5,
        "outputs on cpu",
    )
