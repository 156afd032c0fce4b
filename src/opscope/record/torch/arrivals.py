# SPDX-License-Identifier: Apache-2.0
"""When the program has waited for a collective: only then has what c10d gives arrived.

Some works fill their outputs inside of wait() itself (gloo's reduce_scatter), and never say that
they completed. So wait is watched from the first collective on. Who waits in C++ (DDP's reducer)
passes it by: the bookkeeper asks such works whether they completed.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch


class Arrivals:
    """Finds the Work of a collective's result, and tells a bookkeeper of every wait for one that it
    knows.
    """

    def __init__(self, fail: Callable[[BaseException], None]) -> None:
        self._fail = fail
        self._book: Any = None
        self._replaced: dict[type, tuple[Any, Any]] = {}  # wait of a class as it was, and ours

    def watch(self, book: Any) -> Callable[[], None]:
        """Tell this bookkeeper from now on; returns what ends it."""
        self._book = book
        return self._remove

    def work_of(self, result: Any) -> Any:
        """The Work that a c10d operator returned, the same object that the program gets; None where
        it returned none.
        """
        boxed = (
            result
            if isinstance(result, torch.ScriptObject)
            else result[-1]
            if isinstance(result, tuple) and result
            else None
        )
        if not isinstance(boxed, torch.ScriptObject):
            return None
        try:
            work = torch.distributed.Work.unbox(boxed)
        except (AttributeError, RuntimeError, TypeError):
            return None  # another object, or a torch that does not box works
        self._watch(type(work))
        return work

    def _watch(self, kind: type) -> None:
        owner = next((each for each in kind.__mro__ if "wait" in vars(each)), None)
        if owner is None or owner in self._replaced:
            return
        genuine = vars(owner)["wait"]
        self._replaced[owner] = genuine, self._watched(genuine)
        owner.wait = self._replaced[owner][1]  # type: ignore[attr-defined]

    def _watched(self, genuine: Any) -> Callable[..., Any]:
        @functools.wraps(genuine)
        def wait(work: Any, *args: Any, **kwargs: Any) -> Any:
            if not self._asked("begin_wait", work):
                return genuine(work, *args, **kwargs)
            arrived = False
            try:
                answer = genuine(work, *args, **kwargs)
                arrived = answer is not False
            finally:
                self._asked("end_wait", work, arrived)
            return answer

        return wait

    def _asked(self, method: str, *arguments: Any) -> bool:
        try:
            return bool(getattr(self._book, method)(*arguments))
        except Exception as error:  # noqa: BLE001 - the recording boundary: a debugger must not break the program
            self._fail(error)
            return False

    def _remove(self) -> None:
        for owner, (genuine, ours) in self._replaced.items():
            if vars(owner).get("wait") is ours:
                owner.wait = genuine  # type: ignore[attr-defined]
        self._replaced.clear()
