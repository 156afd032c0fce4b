# SPDX-License-Identifier: Apache-2.0
"""Which lines of the program stand behind the code that torch.fx generates: an exported model
that is loaded, a traced one.
"""

from __future__ import annotations

from types import CodeType

import torch

from opscope.record.torch.interpreted import frames_of
from opscope.record.torch.modules import tree
from opscope.record.torch.stacks import Places


def traced_lines(root: torch.nn.Module) -> dict[CodeType, dict[int, Places]]:
    """The code of every graph that a model holds and calls, and by line of it those of the program
    from which the operators there were traced; a torch that does not say how it counts them (2.4)
    gives none.
    """
    lines = {}
    for _, module in tree(root):
        if isinstance(module, torch.fx.GraphModule):
            code = getattr(type(module).forward, "__code__", None)
            if isinstance(code, CodeType):
                lines[code] = _lines(module, code.co_firstlineno)
    return lines


def _lines(module: torch.fx.GraphModule, first: int) -> dict[int, Places]:
    """torch counts the lines of its nodes from the first of the code (GraphModule._lineno_map);
    older ones counted from elsewhere, and did not say from where.
    """
    if not hasattr(module, "_prologue_start"):
        return {}
    nodes = list(module.graph.nodes)
    places = {
        first + line: frames_of(nodes[index])
        for line, index in (getattr(module, "_lineno_map", None) or {}).items()
        if index is not None and index < len(nodes)
    }
    return {line: frames for line, frames in places.items() if frames}
