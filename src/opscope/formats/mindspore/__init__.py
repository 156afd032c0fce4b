# SPDX-License-Identifier: Apache-2.0
"""MindSpore's own dumps, synchronous and asynchronous: iterations become steps, kernels become
calls.
"""

from __future__ import annotations

from opscope.formats.mindspore.layout import looks_like_dump
from opscope.formats.registry import Format, later

FORMAT = Format("mindspore", looks_like_dump, later("opscope.formats.mindspore.reader:open_dump"))
