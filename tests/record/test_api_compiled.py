# SPDX-License-Identifier: Apache-2.0
"""Functions of torch are recorded in a program that is compiled: the handler that sees them is not
compiled itself, once for every function, until one is given what was compiled for another.
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn
from torch._dynamo.testing import CompileCounter

import opscope
from opscope.record.torch.mode import ApiMode


class Masked(nn.Module):
    """Many functions of many types, and a loop in which the graph breaks, so that this runs as it
    is written, and what it calls is compiled.
    """

    def __init__(self) -> None:
        super().__init__()
        self.into = nn.Linear(6, 6)

    def forward(self, ids: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        for _ in range(2):
            torch._dynamo.graph_break()
        where = torch.where(ids < 2, 1, ids)
        mask = torch.ones(4, 4, dtype=torch.bool).tril() & (where[:, None] >= 1)
        mask = mask | torch.eye(4, dtype=torch.bool)
        scores = self.into(x) @ x.movedim(0, 1)
        return scores.masked_fill(~mask, -9.0).log_softmax(-1), mask


@torch.no_grad()
def test_what_a_compiled_program_computes_is_the_same(tmp_path: Path) -> None:
    torch.compiler.reset()
    torch.manual_seed(0)
    model, ids, x = Masked(), torch.arange(4), torch.randn(4, 6)
    wanted = model(ids, x)
    compiled = torch.compile(model, backend=CompileCounter())
    with opscope.record(tmp_path / "run", levels="api"):
        for _ in range(3):
            for one, other in zip(compiled(ids, x), wanted, strict=True):
                torch.testing.assert_close(one, other)
    code = ApiMode.__torch_function__.__code__
    entries = torch._C._dynamo.eval_frame._debug_get_cache_entry_list(code)
    assert not entries
