# SPDX-License-Identifier: Apache-2.0
"""Which operators an operator's own kernel calls: no dispatch mode sees these, torch's profiler
does.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import torch
from torch.autograd import profiler

from opscope.operators.catalogue import traits_of
from opscope.substitute.arguments import Conditions
from opscope.substitute.perform import perform
from opscope.substitute.truth import FAILURES

if TYPE_CHECKING:
    from opscope.substitute.perform import Bound


def called_inside(bound: Bound) -> tuple[str, ...]:
    """Operators without overload that the call's kernel calls, each once; empty where the call
    cannot be made.
    """
    with (
        profiler.profile(use_kineto=False) as made,
        contextlib.suppress(*FAILURES),
        torch.no_grad(),
    ):
        perform(bound, Conditions())
    own = f"aten::{bound.name}"
    names = dict.fromkeys(
        event.name for event in made.function_events or () if event.name.startswith("aten::")
    )
    return tuple(name for name in names if name not in {own, "aten::to"} and not makes_memory(name))


def makes_memory(op: str) -> bool:
    """Whether an operator only makes or views memory; nothing is computed there."""
    known = traits_of(op)
    return known.allocates or known.view
