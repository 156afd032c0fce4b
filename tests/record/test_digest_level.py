# SPDX-License-Identifier: Apache-2.0
"""`--levels digest`: what ranks share, and of ranks that are selected everything."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from opscope.errors import UsageError
from opscope.record.config import parse_options
from opscope.run.schema import Tensor
from tests.record.recorded import record


def training() -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        optimizer.zero_grad()
        model(torch.randn(3, 4)).square().mean().backward()
        optimizer.step()


@pytest.mark.parametrize("plain", [False, True])
def test_updates_and_gradients_with_their_digests_and_nothing_else(
    plain: bool, tmp_path: Path
) -> None:
    found = record(tmp_path, training, plain=plain, levels="digest")
    assert {call.level for call in found.calls} == {"operator"}
    assert {call.phase for call in found.calls} == {"backward", "optimizer"}
    assert len(found.all("aten::add_", phase="optimizer")) == 8  # four parameters, two steps
    assert {call.op for call in found.calls if call.phase == "backward"} == {"aten::detach.default"}
    assert all(tensor.digest is not None for tensor in found.tensors)

    def names(role: str) -> set[str | None]:
        return {tensor.tensor_name for tensor in found.tensors if tensor.role == role}

    assert names("parameter") == names("gradient") == {"0.weight", "0.bias", "2.weight", "2.bias"}


def test_states_are_those_of_a_whole_recording(tmp_path: Path) -> None:
    def updated(levels: str) -> list[tuple[str | None, int | None]]:
        found = record(tmp_path / levels.replace(",", "_"), training, levels=levels)
        updates = {call.index for call in found.all("aten::add_", phase="optimizer")}
        rows: list[Tensor] = [row for row in found.tensors if row.index in updates]
        return [(row.tensor_name, row.digest) for row in rows if row.io == "output"]

    assert updated("digest") == updated("operator,module")


def test_a_selected_rank_is_recorded_whole(tmp_path: Path) -> None:
    whole = record(tmp_path / "whole", training, levels="digest", ranks="0")
    alone = record(tmp_path / "alone", training, levels="digest", ranks="1")
    assert {"forward", "backward", "optimizer"} == {call.phase for call in whole.calls}
    assert {"module", "operator"} == {call.level for call in whole.calls}
    assert {"backward", "optimizer"} == {call.phase for call in alone.calls}


def test_the_option_is_read_back() -> None:
    config = parse_options("--levels digest")
    assert (config.levels, config.digest) == (("operator", "module", "digest"), True)
    assert parse_options(config.to_options()) == config
    assert parse_options("--levels operator,digest").levels == ("operator", "digest")
    with pytest.raises(UsageError, match="digests"):
        parse_options("--levels digests")
