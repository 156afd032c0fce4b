# SPDX-License-Identifier: Apache-2.0
"""Ports beside their originals, both dumped by msprobe, or one of them recorded by opscope."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from tests.compare_zoo.ports.judge import document, judged
from tests.compare_zoo.ports.pair import HEALTHY, Pair
from tests.compare_zoo.ports.runs import recorded

PYTHON = os.environ.get("OPSCOPE_MSPROBE_PYTHON")
ROOT = Path(__file__).parents[2]
pytestmark = [
    pytest.mark.interop,
    pytest.mark.skipif(PYTHON is None, reason="OPSCOPE_MSPROBE_PYTHON names no interpreter"),
]
# A fused projection beside three, patches by a product beside a convolution, packed texts and a
# scaled loss, an average of the weights.
ASKED = {
    "gpt_split": ("mask", "axis", "gelu", "eps", "rate"),
    "vit_unfold": ("patches", "scale", "layer_scale", "smoothing"),
    "npu_llama_varlen": (),
    "ema": (),
}


def dumped(name: str, folder: Path, variants: tuple[str, ...]) -> Path:
    words = [str(PYTHON), str(ROOT / "tests/interop/msprobe_ports.py"), name, str(folder)]
    settings = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*words, *variants], capture_output=True, text=True, env=settings, check=False
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-2000:]
    return folder


@pytest.mark.parametrize("name", ASKED)
def test_a_port_and_its_original_in_dumps_of_statistics(name: str, tmp_path: Path) -> None:
    pair, variants = Pair.named(name), (HEALTHY, *ASKED[name])
    dumped(name, tmp_path, variants)
    answers = [judged(pair, variant, tmp_path) for variant in variants]
    assert not [f"{answer}: {answer.said}" for answer in answers if not answer.right]


def test_a_port_that_opscope_recorded_beside_a_dump_of_its_original(tmp_path: Path) -> None:
    pair = Pair.named("gpt_split")
    recorded(pair, tmp_path / "runs", [HEALTHY, "gelu"])
    dumps = dumped("gpt_split", tmp_path / "dumps", (HEALTHY, "gelu"))
    for target, golden in (("runs", dumps), ("dumps", tmp_path / "runs")):
        _, healthy = document(tmp_path / target / HEALTHY, golden / "original")
        assert healthy["findings"] == []
        code, faulty = document(tmp_path / target / "gelu", golden / "original")
        assert code == 1
        assert "gelu" in faulty["findings"][0]["op"] + "".join(faulty["findings"][0]["reasons"])
