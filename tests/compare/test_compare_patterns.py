# SPDX-License-Identifier: Apache-2.0
"""What a difference looks like, said by the command line where both sides keep their values."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.compare.dumped import dump

from opscope.cli import main

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(0)
X = RNG.standard_normal((32, 32)).astype(np.float32)
GOLDEN = (X @ RNG.standard_normal((32, 32)).astype(np.float32)).astype(np.float32)
NOISE = RNG.standard_normal(GOLDEN.shape).astype(np.float32) + 3


def where(place: Any, values: Array = NOISE) -> Callable[[Array], Array]:
    """Values added at a place."""

    def change(golden: Array) -> Array:
        found = golden.copy()
        found[place] += values[place]
        return found

    return change


def nan(golden: Array) -> Array:
    return np.where(NOISE > 4.5, np.float32(np.nan), golden)


CHANGES: dict[str, tuple[Callable[[Array], Array], str]] = {
    "rows": (where(np.s_[3:9]), "3 to 8 of 32 of the rows"),
    "column": (where(np.s_[:, 7]), "index 7 of 32 of the columns"),
    "tiles": (where(np.s_[:, np.arange(32) % 16 // 4 == 2]), "8 to 11 of every 16"),
    "tail": (where(np.s_[-3:]), "the last 3 of 32 of the rows"),
    "NaN": (nan, "are NaN in target alone"),
    "shift": (lambda golden: np.roll(golden, 1, axis=1), "rolled by 1"),
    "transposition": (
        lambda golden: np.ascontiguousarray(golden.T),
        "its dimensions in the order [1, 0]",
    ),
    "scale": (lambda golden: golden / np.float32(np.sqrt(8)), "golden times 1/sqrt(8)"),
    "sign": (lambda golden: -golden, "the sign turned"),
    "dropped addend": (lambda golden: golden - X, "golden without input 0"),
    "heads": (
        lambda golden: golden.reshape(32, 4, 8)[:, [1, 0, 2, 3]].reshape(32, 32),
        "blocks of 8 slices along dimension 1: 0 and 1 exchanged",
    ),
    "rounding": (lambda golden: golden.astype(np.float16).astype(np.float32), "rounded to float16"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_the_pattern_is_said(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    change, words = CHANGES[name]
    target = dump(tmp_path / "target", {"matmul": change(GOLDEN)}, X)
    golden = dump(tmp_path / "golden", {"matmul": GOLDEN}, X)
    assert main(["compare", str(target), str(golden), "--json"]) == 1
    first = json.loads(capsys.readouterr().out)["findings"][0]
    assert (first["kind"], first["op"]) == ("divergence-origin", "Functional.matmul")
    assert any(words in reason for reason in first["reasons"]), first["reasons"]
    main(["compare", str(target), str(golden)])
    assert words in " ".join(capsys.readouterr().out.split())
