# SPDX-License-Identifier: Apache-2.0
"""Stacks by what their frames tell."""

from __future__ import annotations

import sys
from types import CodeType, FrameType

from opscope.record.torch.stacks import Stacks


def climbed(levels: int) -> tuple[list[CodeType], list[int]]:
    """Codes and instructions of a recursion of so many levels."""
    if levels:
        return climbed(levels - 1)
    frame: FrameType | None = sys._getframe()
    codes, instructions = [], []
    while frame is not None:
        codes.append(frame.f_code)
        instructions.append(frame.f_lasti)
        frame = frame.f_back
    return codes, instructions


def test_a_recursion_asks_each_of_its_frames_once() -> None:
    """Stacks of a thousand frames, one for each height, hold the same few texts."""
    stacks = Stacks()
    sites = [stacks.resolve(*climbed(levels)) for levels in range(100, 200)]
    assert [site.stack for site in sites] == list(range(100))
    texts = [text for _, frames in stacks.take() for text in frames if " in climbed" in text]
    assert len(texts) > 100 * 100
    assert len({id(text) for text in texts}) == 2  # the call of itself, and the innermost
    assert all(str(site.source).startswith(__file__) for site in sites)
