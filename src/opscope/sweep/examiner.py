# SPDX-License-Identifier: Apache-2.0
"""Runs programs under a dispatch mode that holds each new call of the wanted operators against all
witnesses.
"""

from __future__ import annotations

import contextlib
import fnmatch
import warnings
from collections.abc import Callable, Hashable, Iterable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from opscope.errors import OpscopeError
from opscope.operators.catalogue import traits_of
from opscope.record.torch.budget import key_of
from opscope.record.torch.capture import NotCapturedError, capture
from opscope.substitute.examine import examine
from opscope.substitute.perform import Bound, outputs_of
from opscope.substitute.schema import written_arguments
from opscope.substitute.truth import FAILURES
from opscope.sweep.samples import Program
from opscope.sweep.tasks import Counts, Swept

LIMIT = 1 << 26  # bytes of a call's tensors
REPEATS = 4  # calls of one signature: their values differ
MOST_WRONG = 3  # calls of one operator and type that are accused
MAY_ALIAS = getattr(torch.Tag, "maybe_aliasing_or_mutating", None)  # torch 2.4 marks nothing so


class Examiner(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Examines the first calls of every signature whose operator is wanted."""

    def __init__(self, pattern: str | None, accuse: Callable[[Swept], None]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.pattern = pattern
        self.accuse = accuse
        self.sample = ""
        self.counts: dict[tuple[str, str], Counts] = {}
        self.others: dict[str, None] = {}
        self._seen: dict[Hashable, int] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if not self._wanted(func, args, kwargs):
            return func(*args, **kwargs)
        writes = written_arguments(func._schema)
        random = torch.Tag.nondeterministic_seeded in func.tags
        try:
            captured = capture(
                func.name() if "." in func.name() else f"{func.name()}.default",
                args,
                kwargs,
                writes=writes,
                random=random,
                limit=LIMIT,
            )
        except (NotCapturedError, *FAILURES) as error:
            self._miss(func, args, str(error))
            return func(*args, **kwargs)
        result = func(*args, **kwargs)
        self._examine(func, captured, result, writes)
        return result

    def _wanted(self, func: Any, args: Any, kwargs: Any) -> bool:
        name = func._schema.name
        if func.is_view or MAY_ALIAS in func.tags or traits_of(name).allocates:
            return False
        if self.pattern and not fnmatch.fnmatchcase(name, self.pattern):
            if torch.Tag.nondeterministic_seeded not in func.tags:  # draws are the sample's own
                self.others.setdefault(name)
            return False
        try:
            key = (func, key_of(args), key_of(tuple(kwargs.items())))
            self._seen[key] = count = self._seen.get(key, 0) + 1
        except TypeError:
            return True
        return count <= REPEATS

    def _examine(self, func: Any, captured: Any, result: Any, writes: frozenset[str]) -> None:
        given, _ = captured.given(result)
        outputs = {
            slot: tensor.detach().cpu()
            for slot, tensor in outputs_of(result, captured.tensors, writes).items()
            if slot in given.outputs and not tensor._is_zerotensor()  # which has no memory
        }
        try:
            with torch.no_grad(), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                bound = Bound(captured.call, captured.pieces, func, writes)
                verdict = examine(bound, outputs).verdict
        except (OpscopeError, *FAILURES) as error:
            self._miss(func, tuple(captured.tensors.values()), f"{type(error).__name__}: {error}")
            return
        counts = self._counts(func, tuple(captured.tensors.values()))
        counts.examined += 1
        if verdict.verdict != "wrong":
            return
        counts.wrong += 1
        if counts.wrong <= MOST_WRONG:
            tensors = {
                slot: f"{laid.dtype}{list(laid.shape)} strides {list(laid.stride)}"
                for slot, laid in captured.call.tensors.items()
            }
            self.accuse(
                Swept(
                    op=counts.op,
                    sample=self.sample,
                    dtype=counts.dtype,
                    tensors=tensors,
                    verdict=verdict,
                )
            )

    def _counts(self, func: Any, args: Any) -> Counts:
        dtype = next(
            (
                str(each.dtype).removeprefix("torch.")
                for each in args
                if isinstance(each, torch.Tensor)
            ),
            "",
        )
        return self.counts.setdefault(
            (func.name(), dtype), Counts(op=func.name(), dtype=dtype, unjudged={})
        )

    def _miss(self, func: Any, args: Any, reason: str) -> None:
        unjudged = self._counts(func, args).unjudged
        word = (reason.strip().splitlines() or [""])[0][:120]
        unjudged[word] = unjudged.get(word, 0) + 1


def sweep(
    programs: Iterable[Program], pattern: str | None, accuse: Callable[[Swept], None]
) -> Examiner:
    """Run programs, accuse what is wrong in them; those that raise are left where they did."""
    examiner = Examiner(pattern, accuse)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for number, program in enumerate(programs):
            examiner.sample = f"{program.name} sample {number}"
            # a sample that raises, by intent or not, has been examined up to there
            with contextlib.suppress(Exception), examiner:
                program.run()
    return examiner
