# SPDX-License-Identifier: Apache-2.0
"""MindSpore's format against the shared conformance suite."""

from __future__ import annotations

from pathlib import Path

from ms_dumps import real

from opscope.formats.mindspore import FORMAT
from opscope.testing import FormatTests


class TestMindSpore(FormatTests):
    format = FORMAT

    @staticmethod
    def samples() -> list[Path]:
        return [real(name) for name in ("ms_half", "ms_conv", "ms_kernels")]
