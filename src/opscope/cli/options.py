# SPDX-License-Identifier: Apache-2.0
"""Options that mean the same on every verb that has them."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Annotated

from cyclopts import Parameter

from opscope.run.selection import Selection, parse_selection

Json = Annotated[bool, Parameter(help="One JSON document on stdout, and nothing else there.")]


@dataclass(frozen=True, kw_only=True)
class SelectionOptions:
    """Which part of a run is meant."""

    steps: Annotated[str | None, Parameter(help="Steps, 0|5-8.")] = None
    ranks: Annotated[str | None, Parameter(help="Ranks, 0,7.")] = None
    ops: Annotated[str | None, Parameter(help="Operators: globs over operator, name and module, name-regex(RE).")] = None
    skip: Annotated[str | None, Parameter(help="Operators left out.")] = None
    phases: Annotated[str | None, Parameter(help="forward, backward, optimizer, recompute, communication.")] = None
    io: Annotated[str, Parameter(help="Tensors: input, output or both.")] = "both"
    levels: Annotated[str | None, Parameter(help="operator, module, api.")] = None

    def selection(self) -> Selection:
        """What is selected; UsageError for a text that cannot be read."""
        return parse_selection(**asdict(self))


Selected = Annotated[SelectionOptions, Parameter(name="*")]
EVERYTHING = SelectionOptions()
