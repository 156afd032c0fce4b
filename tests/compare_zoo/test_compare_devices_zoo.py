# SPDX-License-Identifier: Apache-2.0
"""Programs of the ports beside themselves on a device that rounds otherwise."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tests.compare.test_compare_devices import Device
from tests.compare_zoo.ports.pair import Pair
from tests.compare_zoo.ports.record import record

import opscope


# what was accused at first: masks of the least number, gradients of norms and of attention that
# cancel, sums that come to nothing, buckets, a loss's own memory, numbers read with item()
@pytest.mark.zoo
@pytest.mark.parametrize(
    "name", ["deberta", "efficientnet", "detr", "gat", "t5", "conformer", "sac"]
)
def test_the_same_program_on_another_device_is_silent(name: str, tmp_path: Path) -> None:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        program = Pair.named(name).original
        record(program, tmp_path / "here.pt", tmp_path / "here")
        with Device():
            record(program, tmp_path / "there.pt", tmp_path / "there")
    finally:
        torch.set_num_threads(threads)
    document = opscope.compare(tmp_path / "there", tmp_path / "here").document
    assert document.findings == ()
