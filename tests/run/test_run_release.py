# SPDX-License-Identifier: Apache-2.0
"""Memory in which tables lie mapped is given back while they are read; what was read stays as it
was.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

import opscope
from opscope.run.query import arrow_columns, columns, release


def test_views_of_a_table_outlive_its_release(tmp_path: Path) -> None:
    with opscope.record(tmp_path / "run"):
        for _ in range(50):
            torch.ones(3).exp()
    run = opscope.open_run(tmp_path / "run")
    views = [batch["digest"].buffers[0] for batch in arrow_columns(run, "tensors")]
    before = [view.copy() for view in views]
    release(run, "tensors")
    assert all(np.array_equal(view, copy) for view, copy in zip(views, before, strict=True))
    whole = [batch["digest"].copy() for batch in columns(run, "tensors", ("digest",))]
    assert sum(map(len, whole)) == sum(map(len, before))
