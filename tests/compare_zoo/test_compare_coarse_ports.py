# SPDX-License-Identifier: Apache-2.0
"""Ports that are right, beside their originals, both under autocast to bfloat16: what roundings of
that type come to in real models accuses nobody.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.compare_zoo.ports.pair import Pair
from tests.compare_zoo.ports.runs import recorded_alone

COARSELY = 'import torch as _torch; _torch.autocast("cpu", dtype=_torch.bfloat16).__enter__()\n'
pytestmark = pytest.mark.zoo


def recorded(program: Path, folder: Path, held: Path) -> Path:
    """The run of a program under autocast, in the place of its first line."""
    coarse = folder / program.name
    _, rest = program.read_text(encoding="utf-8").split("\n", 1)
    coarse.write_text(COARSELY + rest, encoding="utf-8")
    return recorded_alone(coarse, held, folder / program.stem)


# Each was accused while limits were those of float32 in another unit.
@pytest.mark.parametrize("name", ["mixer", "t5", "unet", "perceiver", "own_tagger"])
def test_a_healthy_port_in_bfloat16_is_accused_of_nothing(tmp_path: Path, name: str) -> None:
    pair = Pair.named(name)
    golden = recorded(pair.original, tmp_path, tmp_path / "weights.pt")
    target = recorded(pair.port, tmp_path, tmp_path / "weights.pt")
    command = [sys.executable, "-m", "opscope", "compare", str(target), str(golden)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    assert "record both in float32" in done.stdout + done.stderr
