# SPDX-License-Identifier: Apache-2.0
"""Memory that one program fills as it was given, and the other after it wrote to it."""

from __future__ import annotations

from pathlib import Path

import torch

import opscope


def filled(to: Path, *, drawn: bool) -> Path:
    with opscope.record(to, values="full"):
        held = torch.empty(16)
        if drawn:
            held.normal_()
        held.fill_(0.5)
        (held * torch.arange(16.0)).sum().item()
    return to


def test_what_unwritten_memory_holds_is_no_value_that_was_lost(tmp_path: Path) -> None:
    runs = [filled(tmp_path / str(drawn), drawn=drawn) for drawn in (False, True)]
    for target, golden in (runs, runs[::-1]):
        warnings = opscope.compare(target, golden).document.summary["warnings"]
        assert not any("the values of" in warning for warning in warnings)
