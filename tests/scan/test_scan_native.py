# SPDX-License-Identifier: Apache-2.0
"""The same rows from the native store give the same answer as from memory."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
import torch
from tests.scan import faulty
from tests.scan.recorder import record

from opscope.run.access import Access
from opscope.run.arrow import encode_rows
from opscope.run.memory import MemoryRun
from opscope.run.protocol import ArrowStream
from opscope.run.store.layout import create_run, process_facts, seal_run
from opscope.run.store.reader import NativeRun
from opscope.run.store.writer import ProcessWriter
from opscope.scan.api import scan

PROGRAMS = (
    "log_of_zero_then_nll_loss",
    "half_attention",
    "sqrt_of_zero_backward_hidden_by_where",
    "nan_in_checkpoint",
    "exp_hidden",
)


def stored(run: MemoryRun, place: Path) -> NativeRun:
    directory = create_run(place / "run", command=["test"])
    writer = ProcessWriter(directory, process_facts(), keep=None)
    for table in ("calls", "tensors"):
        writer.append(table, encode_rows(table, run.rows(table)), step=0)
    writer.end_step(0)
    writer.close(0)
    seal_run(directory)
    return NativeRun(directory)


@pytest.mark.parametrize("name", PROGRAMS)
def test_same_answer(name: str, tmp_path: Path) -> None:
    memory = record(faulty.PROGRAMS[name].program)
    expected, found = (
        scan(memory, show_hidden=True),
        scan(stored(memory, tmp_path), show_hidden=True),
    )
    assert msgspec.to_builtins(found.findings) == msgspec.to_builtins(expected.findings)
    assert found.summary["tensors"] == expected.summary["tensors"]
    assert found.complete


def test_a_clean_run_is_screened_by_numbers_alone(tmp_path: Path) -> None:
    run = Watched(stored(record(lambda: torch.ones(3) + 1), tmp_path))
    assert scan(run).verdict == "clean"
    assert run.tables == ["judgements"]


class Watched:
    """A run that remembers which tables were read as a whole."""

    def __init__(self, run: NativeRun) -> None:
        self.info, self.processes, self.problems = run.info, run.processes, run.problems
        self.access = Access(columns=run.columns)
        self.value, self._table = run.value, run.table
        self.tables: list[str] = []

    def table(self, name: str) -> ArrowStream:
        self.tables.append(name)
        return self._table(name)
