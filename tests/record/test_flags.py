# SPDX-License-Identifier: Apache-2.0
"""A run tells torch's settings, and where autocast was on."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

import opscope
from opscope.errors import UsageError
from opscope.record.config import parse_options
from opscope.record.torch.flags import hold_flags, parse_flags, read_flags, set_flag


def trained(place: Path, *, autocast: bool) -> dict[str, object]:
    model = nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with opscope.record(place):
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            loss = model(torch.ones(2, 4)).float().sum()
        loss.backward()
        optimizer.step()
    return opscope.open_run(place).processes[0].torch


def test_flags_are_those_of_the_first_step(tmp_path: Path) -> None:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    try:
        found = trained(tmp_path / "run", autocast=False)
    finally:
        torch.set_float32_matmul_precision(before)
    assert found["flags"]["get_float32_matmul_precision"] == "medium"
    assert found["flags"]["get_default_dtype"] == "float32"
    assert found["autocast"] == []


def test_autocast_is_told(tmp_path: Path) -> None:
    assert trained(tmp_path / "run", autocast=True)["autocast"] == ["cpu:bfloat16"]


def test_a_program_without_steps_tells_its_flags(tmp_path: Path) -> None:
    with opscope.record(tmp_path / "run"):
        torch.ones(2).add(1)
    assert opscope.open_run(tmp_path / "run").processes[0].torch["flags"] == read_flags()


def test_every_flag_can_be_set() -> None:
    flags = read_flags()
    for name, value in flags.items():
        set_flag(name, value)
    assert read_flags() == flags
    set_flag("get_default_dtype", "float64")
    try:
        assert read_flags()["get_default_dtype"] == "float64"
    finally:
        set_flag("get_default_dtype", "float32")
    with pytest.raises(KeyError):
        set_flag("os.environ", "x")


def test_settings_are_held_against_the_programs_own(tmp_path: Path) -> None:
    before = torch.get_float32_matmul_precision()
    try:
        with opscope.record(
            tmp_path / "run", torch_flags="get_float32_matmul_precision=medium,no.such.setting=1"
        ):
            torch.set_float32_matmul_precision("high")
            nn.Linear(2, 2)(torch.ones(1, 2))
            assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision(before)
    assert parse_flags("a=True,b=3,c=high") == {"a": True, "b": 3, "c": "high"}
    with pytest.raises(UsageError, match="NAME=VALUE"):
        parse_options(["--torch-flags", "import os"])
    hold_flags({})
