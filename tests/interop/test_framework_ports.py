# SPDX-License-Identifier: Apache-2.0
"""Ports to MindSpore, JAX and TensorFlow beside their originals in torch, each in an interpreter of
its own: what was once answered rightly stays so, of some pairs; `make zoo-all` asks all.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.compare_zoo.ports.judge import judged
from tests.compare_zoo.ports.pair import Pair, known
from tests.compare_zoo.ports.runs import checked, recorded

# In PyNative mode, in graph mode, of JAX, in which a recording takes longest, and of TensorFlow.
ASKED = {
    "ms_mlp": ("healthy", "eps", "momentum", "rate", "sum"),
    "ms_gpt": ("healthy", "c_proj", "scale", "tied"),
    "jx_bert": ("healthy", "out_kernel"),
    "tf_resnet": ("healthy", "counted", "nesterov"),
}
pytestmark = pytest.mark.interop


@pytest.mark.parametrize("name", ASKED)
def test_a_port_to_another_framework(name: str, tmp_path: Path) -> None:
    pair, variants = Pair.named(name), [*ASKED[name]]
    if not pair.interpreter:
        pytest.skip(f"OPSCOPE_{pair.framework.upper()}_PYTHON names no interpreter")
    assert {f"{name}/{variant}" for variant in variants} <= set(known())
    recorded(pair, tmp_path / "runs", variants)
    checked(pair, tmp_path / "runs", variants)
    answers = [judged(pair, variant, tmp_path / "runs") for variant in variants]
    assert not [f"{answer}: {answer.said}" for answer in answers if not answer.right]
