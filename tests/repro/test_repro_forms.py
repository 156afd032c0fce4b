# SPDX-License-Identifier: Apache-2.0
"""Other shapes of one repro: the user's function with its backward pass, values that give nothing
away, an issue, NPU formats.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from tests.repro.single_calls import record, run_of, run_script

import opscope
import opscope.repro
from opscope.errors import UsageError
from opscope.minimize.candidate import load_candidate
from opscope.operators.catalogue import sheet
from opscope.repro.api import api_code
from opscope.repro.case import Failure
from opscope.repro.issue import issue_text
from opscope.repro.privacy import without_data
from opscope.repro.runner import Outcome
from opscope.repro.write import cut, save
from opscope.run.names import resolve


def recorded(folder: Path) -> Any:
    layer = torch.nn.GroupNorm(2, 4)
    x = torch.zeros(2, 4, 3, requires_grad=True)
    with opscope.record(folder / "run", values="full"):
        y = layer(x)
        (y * float("inf")).sum().backward()
    return opscope.open_run(str(folder / "run"))


def test_the_users_function_with_its_backward_pass(tmp_path: Path) -> None:
    run = recorded(tmp_path)
    call = next(resolve(run, name).call for name in ("<root>:native_group_norm_backward~bwd#1",))
    save(cut(run, call, level="api"), tmp_path / "case")
    text = (tmp_path / "case" / "repro.py").read_text()
    assert 'torch.group_norm(t["0"], 2, t["1"], t["2"], 1e-05)' in text
    code, document = run_script(tmp_path / "case", "--no-wide")
    assert code == 1, document
    assert "NaN" in document["reason"]
    assert {"0", "grad.0", "grad.1", "grad.2"} <= set(document["seen"])
    assert ".sum().backward()" in (tmp_path / "case" / "README.md").read_text()
    orphan = msgspec.structs.replace(call, forward_index=None)
    with pytest.raises(UsageError, match="forward call was not recorded"):
        cut(run, orphan, level="api")


def test_a_primitive_of_jax_is_refused_in_words(tmp_path: Path) -> None:
    run = recorded(tmp_path)
    call = resolve(run, "<root>:native_group_norm_backward~bwd#1").call
    primitive = msgspec.structs.replace(call, op="jax::log")
    with pytest.raises(UsageError, match="jax::log is a primitive of JAX"):
        cut(run, primitive)


def test_functions_that_users_know() -> None:
    tree = {"args": [{"tensor": "0"}, 1, False], "kwargs": {}}
    assert api_code("aten::_softmax.default", tree) == 'torch.softmax(t["0"], 1)'
    assert (
        api_code("aten::add.Tensor", {"args": [{"tensor": "0"}, 2], "kwargs": {"alpha": 3}})
        == 'torch.add(t["0"], 2, alpha=3)'
    )
    assert api_code("mine::thing.default", tree) == 'torch.ops.mine.thing.default(t["0"], 1, False)'


def test_a_public_function_takes_what_its_operator_takes() -> None:
    words = [word for word, row in sheet("aten").rows.items() if row.get("public")]
    tree = {"args": [{"tensor": "0"}], "kwargs": {}}
    assert [word for word in words if not callable(getattr(torch, word, None))] == []
    assert api_code("aten::log.default", tree) == 'torch.log(t["0"])'
    assert api_code("aten::log_.default", tree) == 'torch.ops.aten.log_.default(t["0"])'


def test_synthetic_values_have_the_statistics_and_none_of_the_data(tmp_path: Path) -> None:
    secret = torch.rand(200) * 3 - 1
    secret[7] = 0
    run, call = record("aten::log.default", secret)
    save(without_data(cut(run, call)), tmp_path / "case")
    found = load_candidate(tmp_path / "case").parts[0].values
    assert found is not None
    own = secret.numpy()
    assert (found < 0).sum() == (own < 0).sum()
    assert (found.min(), found.max()) == (own.min(), own.max())
    assert abs(found.mean() - own.mean()) < 0.05
    assert len(np.intersect1d(found, own)) <= 3, "the extremes and zero"
    assert not (tmp_path / "case" / "expected.safetensors").exists()
    code, document = run_script(tmp_path / "case")
    assert code == 1, "the failure follows from the signs alone"
    assert any("SYNTHETIC" in line for line in document["lines"])


def test_an_issue_says_what_a_maintainer_asks_and_quotes_safely() -> None:
    run, call = record("aten::log.default", torch.tensor([0.0, -1.0]))
    case = cut(
        run,
        msgspec.structs.replace(call, source="/a`b|c.py:3\n# not a heading"),
        imports=["my`lib.py"],
    ).case
    outcome = Outcome(
        status="flaky",
        exit_code=1,
        shown=2,
        tried=5,
        reason="NaN | <b>x</b>",
        lines=("one", "``` two"),
        device="cpu",
    )
    text = issue_text(case, outcome)
    for wanted in (
        "flaky 2/5",
        "## Expected",
        "## Actual",
        "torch.ops.aten.log.default",
        "f32[2]",
        "`torch`",
        "forward",
    ):
        assert wanted in text
    assert "\n# not a heading" not in text
    assert "<b>" not in text.replace("\\<b\\>", "")
    assert "````text\none\n``` two\n````" in text


def test_an_issue_of_a_call_that_only_executing_it_shows_to_be_wrong_says_so() -> None:
    case = cut(*record("aten::relu.default", torch.ones(3))).case
    outcome = Outcome(
        status="reproduced",
        exit_code=1,
        shown=3,
        tried=3,
        reason="1 of 3 elements are wrong",
        device="cpu",
    )
    title, text = issue_text(case, outcome).split("\n", 1)
    assert title == "# `aten::relu.default`: an output is silently wrong"
    assert "The result of float64 arithmetic" in text


def test_private_formats_are_cast_back_where_torch_npu_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, call = record("aten::relu.default", torch.ones(2, 2))
    opscope.repro.write(run, call, tmp_path / "case")
    spec = importlib.util.spec_from_file_location("case_script", tmp_path / "case" / "repro.py")
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    on_npu: Any = SimpleNamespace(device=SimpleNamespace(type="npu"))
    assert script.formatted(on_npu, "FRACTAL_NZ") is on_npu
    monkeypatch.setitem(
        sys.modules,
        "torch_npu",
        SimpleNamespace(npu_format_cast=lambda tensor, number: ("cast", number)),
    )
    assert script.formatted(on_npu, "FRACTAL_NZ") == ("cast", 29)
    assert script.formatted(on_npu, "strided") is on_npu
    assert script.formatted(torch.ones(1), "FRACTAL_NZ").device.type == "cpu"
    rows = [
        msgspec.structs.replace(row, layout="FRACTAL_NZ") if row.io == "input" else row
        for row in run.rows("tensors")
    ]
    values = {(row.io, row.slot): run.value(row) for row in run.rows("tensors")}
    assert any(
        "conditions differ" in line for line in cut(*run_of(rows, values, call)).case.warnings
    )


@pytest.mark.zoo
def test_a_hang_is_told_from_a_return(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(
        "import time, torch\nlibrary = torch.library.Library('slow_test', "
        "'DEF')\nlibrary.define('wait(Tensor x) -> Tensor')\n"
        "library.impl('wait', lambda x: time.sleep(600), 'CPU')\n"
    )
    run, call = record("aten::relu.default", torch.ones(2))
    material = cut(run, call, imports=[str(tmp_path / "slow.py")])
    case = msgspec.structs.replace(
        material.case, op="slow_test::wait.default", failure=Failure(kind="hang")
    )
    save(msgspec.structs.replace(material, case=case), tmp_path / "case")
    code, document = run_script(tmp_path / "case", "--limit", "6")
    assert (code, document["reason"]) == (1, "the call does not return within 6 s")
