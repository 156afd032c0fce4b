# SPDX-License-Identifier: Apache-2.0
"""msprobe's format and its ancestors against the shared conformance suite."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import numpy as np
from msprobe_dumps import real, tensor

from opscope.formats import accuracy_checker, msprobe, ptdbg
from opscope.testing import FormatTests

_HOME = tempfile.TemporaryDirectory(prefix="opscope-mp-made-")
VALUES = np.arange(6, dtype=np.float32).reshape(2, 3)


class TestMsprobe(FormatTests):
    format = msprobe.FORMAT

    @staticmethod
    def samples() -> list[Path]:
        return [
            real(name) for name in ("mp_stats_L1", "mp_stats_mix", "mp_md5_L1", "mp_tensor_mix")
        ]


class TestPtdbg(FormatTests):
    format = ptdbg.FORMAT

    @staticmethod
    def samples() -> list[Path]:
        folder = Path(_HOME.name) / "ptdbg" / "ptdbg_dump_v4.0" / "rank0"
        data = folder / "api_stack_dump"
        data.mkdir(parents=True, exist_ok=True)
        lines = [
            [
                "Functional_relu_0_forward_input.0",
                1,
                [],
                "torch.float32",
                [2, 3],
                [5.0, 0.0, 2.5, 7.4],
            ],
            [
                "Functional_relu_0_forward_input.1",
                1,
                [],
                "<class 'bool'>",
                "[]",
                [False, False, False, False],
            ],
            [
                "Functional_relu_0_forward_output.0",
                1,
                [],
                "torch.float32",
                [2, 3],
                [5.0, 0.0, 2.5, 7.4],
            ],
            [
                "Functional_relu_0_forward_stack_info",
                [["/home/me/net.py", 12, "forward", "x = F.relu(x)"]],
            ],
            [
                "Functional_relu_0_backward_input.0",
                1,
                [],
                "torch.float32",
                [2, 3],
                [1.0, 1.0, 1.0, 2.4],
            ],
        ]
        (folder / "api_stack_dump.pkl").write_text("\n".join(map(json.dumps, lines)) + "\n")
        np.save(data / "Functional_relu_0_forward_output.0.npy", VALUES)
        return [Path(_HOME.name) / "ptdbg"]


class TestAccuracyChecker(FormatTests):
    format = accuracy_checker.FORMAT

    @staticmethod
    def samples() -> list[Path]:
        folder = Path(_HOME.name) / "checker" / "step0"
        folder.mkdir(parents=True, exist_ok=True)
        forward = {
            "Functional*silu*0": {
                "args": [tensor()],
                "kwargs": {"inplace": {"type": "bool", "value": False}},
            }
        }
        (folder / "forward_info_0.json").write_text(json.dumps(forward))
        (folder / "backward_info_0.json").write_text(
            json.dumps({"Functional*silu*0": [tensor(), None]})
        )
        (folder / "stack_info_0.json").write_text(
            json.dumps(
                {"Functional*silu*0": ["File /home/me/net.py, line 3, in forward, \n F.silu(x)"]}
            )
        )
        return [Path(_HOME.name) / "checker"]
