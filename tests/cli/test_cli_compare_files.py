# SPDX-License-Identifier: Apache-2.0
"""`opscope compare` on plain folders of arrays, which have names and no order of calls."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from opscope.cli import main

RANDOM = np.random.default_rng(0)
VALUES = [RANDOM.standard_normal((4, 5)).astype(np.float32) for _ in range(13)]


def folder(path: Path, arrays: dict[str, np.ndarray[Any, Any]]) -> Path:
    path.mkdir()
    for name, array in arrays.items():
        np.save(path / f"{name}.npy", array)
    return path


def document(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, dict[str, Any]]:
    code = main(["compare", *map(str, words), "--json"])
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return code, found


def test_numbers_in_names_order_them_and_the_first_is_suspected(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    golden = folder(tmp_path / "g", {f"layer{i}": VALUES[i] for i in range(12)})
    target = folder(
        tmp_path / "t",
        {f"layer{i}": VALUES[i] * np.float32(1 if i < 2 else 1.5) for i in range(12)},
    )
    code, found = document(capsys, target, golden)
    first = found["findings"][0]
    assert code == 1
    assert (first["call"], first["confidence"]) == ("layer2", "suspected")
    assert first["reasons"][0] == "its output differs; what it reads was not recorded on both sides"
    assert any("names were taken in order" in line for line in found["summary"]["warnings"])


def test_files_are_partners_by_name_and_not_by_place(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    golden = folder(tmp_path / "g", {f"layer{i}": VALUES[i] for i in range(12)})
    target = folder(
        tmp_path / "t", {f"layer{i}": VALUES[i] + np.float32(1e-7) for i in (1, 2, 4, 5, 9, 11)}
    )
    _, found = document(capsys, target, golden)
    tensors = found["summary"]["tensors"]
    assert found["summary"]["calls"]["matched"] == 6
    assert tensors["differ"] == 0
    assert tensors["only_golden"] == 6


def test_equal_folders_agree_and_need_no_order(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arrays = {f"sub_{i}": VALUES[i] for i in range(3)}
    code, found = document(capsys, folder(tmp_path / "t", arrays), folder(tmp_path / "g", arrays))
    assert code == 0
    assert found["summary"]["warnings"] == []


def test_names_with_times_are_ordered_by_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    times = {"b": 1650000000000001, "a": 1650000000000002}
    golden = folder(
        tmp_path / "g",
        {f"{name}.0.{time}": VALUES[place] for place, (name, time) in enumerate(times.items())},
    )
    target = folder(
        tmp_path / "t",
        {
            f"{name}.0.{time + 7}": VALUES[place] * 2
            for place, (name, time) in enumerate(times.items())
        },
    )
    _, found = document(capsys, target, golden)
    assert found["findings"][0]["call"] == "b"
    assert not any("names were taken in order" in line for line in found["summary"]["warnings"])
