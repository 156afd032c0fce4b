# SPDX-License-Identifier: Apache-2.0
"""Dumps of TensorFlow Debugger V2 (tf.debugging.experimental.enable_dump_debug_info): eager
executions and traced operators of graphs become calls.
"""

from __future__ import annotations

from opscope.formats.registry import Format, later
from opscope.formats.tfdbg.files import looks_like_dump

FORMAT = Format("tfdbg", looks_like_dump, later("opscope.formats.tfdbg.reader:open_dump"))
