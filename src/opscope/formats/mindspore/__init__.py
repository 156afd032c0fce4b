# SPDX-License-Identifier: Apache-2.0
"""MindSpore's own dumps, synchronous and asynchronous: iterations become steps, kernels become calls."""

from __future__ import annotations

from opscope.formats.mindspore.reader import FORMAT

__all__ = ["FORMAT"]
