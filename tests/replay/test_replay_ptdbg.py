# SPDX-License-Identifier: Apache-2.0
"""Calls of ptdbg dumps made again: from values, from statistics alone, and without the keyword
arguments that such dumps lack.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import opscope
from opscope.operators.catalogue import sheet
from opscope.replay.api import Line, Plan, replay_calls
from opscope.run.protocol import Run

torch.manual_seed(0)
X, W, B = torch.randn(6, 5), torch.randn(4, 5), torch.randn(4)


def dumped(
    folder: Path,
    call: str,
    inputs: list[torch.Tensor],
    output: torch.Tensor,
    *,
    values: bool = True,
) -> Run:
    """A dump of one call as ptdbg 4 lays it out."""
    (folder / "rank0" / "dump").mkdir(parents=True)
    lines: list[list[Any]] = []
    for name, tensor in [
        *((f"input.{place}", each) for place, each in enumerate(inputs)),
        ("output.0", output),
    ]:
        told = [
            float(number) for number in (tensor.max(), tensor.min(), tensor.mean(), tensor.norm())
        ]
        lines.append([f"{call}_{name}", 1, [], str(tensor.dtype), list(tensor.shape), told])
        if values:
            np.save(folder / "rank0" / "dump" / f"{call}_{name}.npy", tensor.numpy())
    (folder / "rank0" / "dump.pkl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return opscope.open_run(folder)


def replayed(run: Run) -> Line:
    (line,) = replay_calls(run, selection=None, plan=Plan(), output=None)
    return line


@pytest.mark.zoo
def test_recorded_values_agree_and_a_wrong_element_is_found(tmp_path: Path) -> None:
    good, bad = torch.matmul(X, W.T), torch.matmul(X, W.T)
    bad[2, 1] += 0.1
    inputs = [X, W.T.contiguous()]
    line = replayed(dumped(tmp_path / "good", "Torch_matmul_0_forward", inputs, good))
    assert (line.word, line.values, line.against) == ("agree", "recorded", "recorded outputs")
    line = replayed(dumped(tmp_path / "bad", "Torch_matmul_0_forward", inputs, bad))
    assert (line.word, line.verdict["worst"], line.nature) == ("wrong", [2, 1], "transient")


@pytest.mark.zoo
def test_inputs_are_synthesised_from_statistics_and_said_so(tmp_path: Path) -> None:
    run = dumped(
        tmp_path,
        "Functional_linear_0_forward",
        [X, W, B],
        torch.nn.functional.linear(X, W, B),
        values=False,
    )
    line = replayed(run)
    assert (line.word, line.reason, line.values, line.against) == (
        "agree",
        None,
        "synthesised",
        "outputs on cpu",
    )
    assert any("SYNTHESISED" in warning for warning in opscope.replay(run).summary["warnings"])


@pytest.mark.parametrize(
    ("call", "output"),
    [
        ("Functional_linear_0_forward", torch.nn.functional.linear(X, W, B)),
        pytest.param("Torch_add_0_forward", torch.add(X[:4], W, alpha=2), marks=pytest.mark.zoo),
    ],
)
def test_a_keyword_argument_that_was_not_dumped_accuses_nobody(
    call: str, output: torch.Tensor, tmp_path: Path
) -> None:
    inputs = [X, W] if "linear" in call else [X[:4], W]
    line = replayed(dumped(tmp_path, call, inputs, output))
    assert line.word == "not replayed"
    assert "keyword arguments" in str(line.reason)


def test_an_in_place_call_is_judged_by_what_it_gives_now_since_its_input_was_dumped_after_it(
    tmp_path: Path,
) -> None:
    after = X + X
    line = replayed(dumped(tmp_path, "Tensor___iadd___0_forward", [after, X], after))
    assert (line.word, line.against) == ("agree", "outputs on cpu")


@pytest.mark.parametrize(
    "name", [word for word, row in sheet("aten").rows.items() if row.get("keyless")]
)
def test_no_keyword_argument_changes_a_keyless_function(name: str) -> None:
    kinds = {
        str(kind.overload_name): kind
        for kind in torch._C._jit_get_schemas_for_operator(f"aten::{name}")
        if "Tensor" in str(kind)
    }
    plain = [
        kind
        for overload, kind in kinds.items()
        if not overload.endswith(("out", "dtype", "out_mode"))
    ]  # dtype: newer than ptdbg
    assert plain
    assert not [
        argument.name
        for kind in plain
        for argument in kind.arguments
        if argument.kwarg_only or argument.has_default_value()
    ]
