# SPDX-License-Identifier: Apache-2.0
"""Models that were compiled before and loaded from a package are calls of graphs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils import _pytree as pytree

from tests.record.recorded import record

package = pytest.importorskip("torch.export.pt2_archive._package")  # torch 2.4 has none


class Loader:
    """What loads a package, in Python: a model of x and scale= that gives a dictionary."""

    def get_call_spec(self) -> list[str]:
        given = pytree.tree_flatten(((0,), {"scale": 0}))[1]
        made = pytree.tree_flatten({"p": 0, "more": [0, 0]})[1]
        return [pytree.treespec_dumps(given), pytree.treespec_dumps(made)]

    def boxed_run(self, given: list[torch.Tensor]) -> list[torch.Tensor]:
        x, scale = given
        if x.shape[-1] != 4:
            raise RuntimeError("it was compiled for 4 columns")
        made = torch.zeros_like(x).copy_(x)
        made.data.numpy()[:] = 7.0  # as a fused kernel does, of which torch hears nothing
        return [torch.log(x * scale), made, scale - 1]


def loaded() -> Any:
    return package.AOTICompiledModel(Loader())


def test_each_call_is_that_of_a_graph(tmp_path: Path) -> None:
    def program() -> None:
        one, other = loaded(), loaded()
        for model in (one, other, one):
            made = model(torch.ones(2, 4), scale=torch.tensor(-1.0))
            assert sorted(made) == ["more", "p"]
            made["p"].sum()

    found = record(tmp_path, program)
    calls = found.all("compiled::")
    assert [call.op for call in calls] == [f"compiled::package_{i}" for i in (0, 1, 0)]
    assert all(call.level == "graph" for call in calls)
    assert [call.step for call in calls] == [0, 0, 1]
    assert (found.outputs(calls[0])["0.1"].min, found.outputs(calls[0])["0.1"].max) == (7.0, 7.0)
    assert not found.all("aten::copy_")
    (total,) = found.all("aten::sum", step=1)
    assert found.inputs(total)["0"].version == found.outputs(calls[2])["0.0"].version
    unsound = [slot for slot, row in found.outputs(calls[0]).items() if row.nan]
    assert unsound == ["0.0"]


def test_an_error_is_the_programs(tmp_path: Path) -> None:
    def program() -> None:
        with pytest.raises(RuntimeError, match="4 columns"):
            loaded()(torch.ones(2, 5), scale=torch.tensor(1.0))

    (call,) = record(tmp_path, program).all("compiled::")
    assert "4 columns" in (call.error or "")


def test_nothing_is_left_once_a_recording_is_over(tmp_path: Path) -> None:
    before = package.AOTICompiledModel.__call__
    record(tmp_path, lambda: None)
    assert package.AOTICompiledModel.__call__ is before
