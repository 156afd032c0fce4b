# SPDX-License-Identifier: Apache-2.0
"""Where values were not kept, one call of each signature is made."""

from __future__ import annotations

from pathlib import Path

import torch

import opscope
from opscope.replay.api import LIKE, Plan, replay_calls, spoken_for
from opscope.run.query import calls


def recorded(path: Path, values: str) -> opscope.Run:
    with opscope.record(path, values=values):
        for scale in (0.5, 0.25, 1.0):
            for size in (3, 3, 4):
                torch.mul(torch.arange(1.0, 1.0 + size), scale)
    return opscope.open_run(path)


def test_one_call_of_each_signature_is_made(tmp_path: Path) -> None:
    run = recorded(tmp_path / "run", "none")
    lines = [
        line
        for line in replay_calls(run, selection=None, plan=Plan(), output=None)
        if line.op == "aten::mul.Tensor"
    ]
    assert [line.word for line in lines] == [
        "agree",
        LIKE,
        "agree",
        LIKE,
        LIKE,
        LIKE,
        "agree",
        LIKE,
        "agree",
    ]
    assert {line.like for line in lines if line.word == LIKE} == {
        lines[0].index,
        lines[2].index,
        lines[6].index,
    }


def test_calls_whose_values_were_kept_are_all_made(tmp_path: Path) -> None:
    run = recorded(tmp_path / "run", "full")
    assert spoken_for(run, list(calls(run))) == {}
