# SPDX-License-Identifier: Apache-2.0
"""Which files the tensors of one call of a MindSpore dump come from."""

from __future__ import annotations

import msgspec

from opscope.formats.mindspore.edges import Wiring
from opscope.formats.mindspore.graph import Node
from opscope.formats.mindspore.kernels import Execution
from opscope.formats.mindspore.layout import Place


class CallFiles(msgspec.Struct, frozen=True):
    """Where the tensors of one call come from; parameters of a graph call are executions of type
    Parameter.
    """

    place: Place
    run: Execution | None
    node: Node | None = None
    wiring: Wiring | None = None
    parameters: tuple[tuple[Execution, str, str], ...] = ()  # execution, name, role
