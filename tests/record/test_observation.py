# SPDX-License-Identifier: Apache-2.0
"""Watching changes nothing, and the compiled bookkeeper says what its reference says."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from tests.record import programs, programs_composed
from tests.record.recorded import Recorded, record

pytestmark = pytest.mark.filterwarnings(
    "ignore:The PyTorch API of nested tensors", "ignore:Sparse", "ignore:torch.quantize_per"
)
PROGRAMS = (*programs.PROGRAMS, *programs_composed.PROGRAMS)
ROUNDED = ("mean", "l2norm")


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
@pytest.mark.parametrize(
    "options",
    [{}, {"values": "full"}, {"values": "sample", "sample": 3, "levels": "operator"}],
    ids=["default", "full", "sample"],
)
def test_results_are_bit_identical(
    tmp_path: Path, program: Callable[[], list[str]], options: dict[str, str]
) -> None:
    plain = program()
    watched: list[str] = []
    recorded = record(tmp_path, lambda: watched.extend(program()), **options)
    assert watched == plain
    assert recorded.calls


def comparable(recorded: Recorded) -> tuple[list[dict[str, object]], list[dict[str, object]]]:
    """Rows without what differs between two runs of one program: lines of this file, threads, sums
    in another order.
    """
    calls = []
    for call in recorded.calls:
        row = msgspec.structs.asdict(call)
        row.update(
            stack=None,
            source=(call.source or "").rpartition("/")[2],
            thread=call.thread == threading.get_ident(),
            autograd_sequence=None,
        )
        row["autograd_thread"] = call.autograd_thread is not None
        calls.append(row)
    # A tensor may get its name only after its first rows were written; that depends on the clock.
    dropped = dict.fromkeys((*ROUNDED, "role", "tensor_name"))
    # The workspace of oneDNN's recurrent layers is a byte tensor with whatever the memory held.
    tensors = [
        msgspec.structs.asdict(tensor) | dropped
        for tensor in recorded.tensors
        if tensor.dtype != "uint8"
    ]
    return calls, tensors


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_reference_agrees(tmp_path: Path, program: Callable[[], list[str]]) -> None:
    program()  # some things are made once, by whoever needs them first
    native, reference = (
        record(tmp_path / name, program, plain=name == "plain") for name in ("native", "plain")
    )
    for ours, theirs in zip(comparable(native), comparable(reference), strict=True):
        assert len(ours) == len(theirs)
        for mine, other in zip(ours, theirs, strict=True):
            assert mine == other
    floats = [
        [tensor for tensor in each.tensors if tensor.dtype != "uint8"]
        for each in (native, reference)
    ]
    for mine, other in zip(*floats, strict=True):
        for name in ROUNDED:
            ours_, theirs_ = getattr(mine, name), getattr(other, name)
            assert (ours_ is None) == (theirs_ is None)
            assert ours_ is None or ours_ == pytest.approx(
                theirs_, rel=1e-12, abs=1e-12 * max(abs(other.min or 0), abs(other.max or 0))
            )
