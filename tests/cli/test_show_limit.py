# SPDX-License-Identifier: Apache-2.0
"""`opscope show` of many calls: all by default, the first with --limit, which is said."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

import opscope
from opscope.cli import main


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> str:
    path: Path = tmp_path_factory.mktemp("show") / "run"
    with opscope.record(path):
        for _ in range(5):
            torch.ones(3).exp()
    return str(path)


def shown(
    capsys: pytest.CaptureFixture[str], *words: str
) -> tuple[dict[str, list[dict[str, int]]], str]:
    assert main(["show", *words, "--json"]) == 0
    said = capsys.readouterr()
    return json.loads(said.out), said.err


def test_all_calls_with_their_tensors_without_a_limit(
    run: str, capsys: pytest.CaptureFixture[str]
) -> None:
    document, said = shown(capsys, run)
    assert {row["index"] for row in document["tensors"]} == {
        call["index"] for call in document["calls"]
    }
    assert len(document["calls"]) >= 10
    assert "more" not in document
    assert said == ""


def test_a_limit_is_said_where_it_leaves_calls_out(
    run: str, capsys: pytest.CaptureFixture[str]
) -> None:
    every, _ = shown(capsys, run)
    document, said = shown(capsys, run, "--limit", "3")
    assert document["calls"] == every["calls"][:3]
    assert document["more"] is True
    assert "--limit 3" in said
    document, said = shown(capsys, run, "--limit", "1000")
    assert (document["calls"], document["more"], said) == (every["calls"], False, "")
