# SPDX-License-Identifier: Apache-2.0
"""Operators that may touch more than their tensors are called again at nobody's word but the
user's.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.repro.single_calls import call_row, record, run_of

import opscope.repro
from opscope.errors import UsageError
from opscope.minimize.api import minimize
from opscope.replay.worker import Replayer
from opscope.repro import execute
from opscope.repro.scripts.allowing import why_refused
from opscope.run.memory import MemoryRun
from opscope.run.schema import Call, Tensor


@pytest.fixture
def library() -> Iterator[None]:
    """Operators of somebody's own."""
    made = torch.library.Library("somebody", "DEF")
    made.define("twice(Tensor x, float by=2.0) -> Tensor")
    made.define("write(Tensor x, str path) -> Tensor")
    yield
    made._destroy()


def refused(op: str, *, libraries: tuple[str, ...] = (), allowed: tuple[str, ...] = ()) -> str:
    operator: Any = torch.ops
    for part in op.replace("::", ".").split("."):
        operator = getattr(operator, part)
    return why_refused(op, operator, libraries, allowed)


@pytest.mark.parametrize(
    "op",
    [
        "aten::mm.default",
        "aten::div.Tensor_mode",
        "aten::div_.Scalar_mode",
        "aten::einsum.default",
        "aten::gelu_.default",
        "aten::zeros.default",
        "aten::index_put_.default",
        "aten::add.out",
        "aten::_foreach_mul_.Scalar",
        "aten::normal.Tensor_float",
        "aten::conv2d.padding",
        "aten::fft_fft.default",
        "aten::native_dropout.default",
        "aten::cat.default",
        "prims::mul.default",
        "aten::scatter_reduce.two",
        "aten::_scaled_dot_product_flash_attention_for_cpu.default",
        "aten::to.dtype",
        "aten::empty_strided.default",
        "aten::item.default",
    ],
)
def test_what_touches_only_its_tensors_is_called(op: str) -> None:
    assert refused(op) == ""


@pytest.mark.parametrize(
    "op",
    [
        "aten::from_file.default",
        "aten::from_file.out",
        "aten::save.default",
        "aten::warn.default",
        "aten::_print.default",
    ],
)
def test_what_touches_files_and_more_is_not(op: str) -> None:
    assert f"--allow {op}" in refused(op)
    assert refused(op, allowed=("aten::[fsw_]*",)) == ""


@pytest.mark.usefixtures("library")
def test_operators_of_a_library_are_called_where_the_user_named_it_and_no_text_is_given_to_them() -> (
    None
):
    assert "--allow" in refused("somebody::twice.default")
    assert refused("somebody::twice.default", libraries=("library.py",)) == ""
    assert "--allow" in refused("somebody::write.default", libraries=("library.py",))
    assert refused("somebody::write.default", allowed=("somebody::*",)) == ""


def hostile(target: Path) -> tuple[MemoryRun, Call]:
    """A run whose one call writes a file."""
    call = call_row(
        "aten::from_file.default",
        {"args": [str(target), True, 8], "kwargs": {"dtype": {"dtype": "float32"}}},
    )
    row = Tensor(
        process=call.process,
        index=call.index,
        io="output",
        slot="0",
        dtype="float32",
        shape=(8,),
        stride=(1,),
        offset=0,
    )
    return run_of([row], {}, call)


@pytest.mark.zoo
def test_repro_and_replay_of_a_hostile_run_write_nothing(tmp_path: Path) -> None:
    run, call = hostile(tmp_path / "victim")
    opscope.repro.write(run, call, tmp_path / "case")
    outcome = execute(tmp_path / "case")
    assert (outcome.status, (tmp_path / "victim").exists()) == ("cannot-try", False)
    assert "--allow aten::from_file.default" in outcome.reason
    found = Replayer(run, device=None, repeat=1, synthesise=True).replay(call)
    assert "--allow" in found["reason"]
    assert not (tmp_path / "victim").exists()
    assert execute(tmp_path / "case", allowed=["aten::from_file"]).status != "cannot-try"
    assert (tmp_path / "victim").exists()


def test_minimize_runs_no_code_of_a_folder(tmp_path: Path) -> None:
    run, call = hostile(tmp_path / "victim")
    opscope.repro.write(run, call, tmp_path / "case")
    script = tmp_path / "case" / "repro.py"
    script.write_text(f"open({str(tmp_path / 'ran')!r}, 'w').close()\n" + script.read_text())
    with pytest.raises(opscope.errors.UnavailableError, match="--allow"):
        minimize(tmp_path / "case", tmp_path / "small")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["case"]


def test_minimize_loads_no_library_that_only_the_folder_names(tmp_path: Path) -> None:
    (tmp_path / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w').close()\n")
    run, call = record("aten::log.default", torch.tensor([0.0]))
    opscope.repro.write(run, call, tmp_path / "case", imports=[str(tmp_path / "evil.py")])
    with pytest.raises(UsageError, match="--import"):
        minimize(tmp_path / "case", tmp_path / "small")
    assert not (tmp_path / "ran").exists()
