# SPDX-License-Identifier: Apache-2.0
"""opscope.substitute: chosen operators on a substitute within a with-block."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from opscope.errors import UsageError
from opscope.run.selection import parse_pattern
from opscope.substitute.registry import kind_named
from opscope.substitute.rules import Rule

if TYPE_CHECKING:
    from collections.abc import Callable

    from opscope.record.torch.substitution import SubstituteMode


class Substituting:
    """A with-block in which matching operators of this thread run on a substitute, in backward
    passes too.

    calls says how often each operator did, refused which ones could not and why; both stay readable
    after the block.
    """

    def __init__(self, rules: tuple[Rule, ...]) -> None:
        self.rules = rules
        self.calls: dict[str, int] = {}
        self.refused: dict[str, str] = {}
        self._mode: SubstituteMode | None = None

    def __enter__(self) -> Substituting:
        from opscope.record.torch.substitution import SubstituteMode, Substitution

        substitution = Substitution(self.rules)
        self.calls, self.refused = substitution.calls, substitution.refused
        self._mode = SubstituteMode(substitution)
        self._mode.__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *error: object) -> None:
        if self._mode is not None:
            self._mode.__exit__(*error)  # type: ignore[no-untyped-call]
            self._mode.substitution.close()
            self._mode = None


def substitute(pattern: str, *, to: str | Callable[..., Any] = "cpu") -> Substituting:
    """Run operators that match a PATTERN on a substitute inside a with-block, forward and backward.

    to is cpu, float64, float32, decomposition, or function:package.module:name, or a function
    itself, which is called with the operator's arguments. A gradient counts as its own operator:
    `aten::native_group_norm*` takes in its backward as well, if backward() is called inside the
    block. Raises UsageError for a pattern or kind that cannot be read.
    """
    if callable(to):
        to = f"function:{to.__module__}:{to.__qualname__}"
        if "<" in to:
            raise UsageError(f"{to} cannot be found by its name; give a function of a module")
    kind_named(to)
    return Substituting((Rule(parse_pattern(pattern), to),))
