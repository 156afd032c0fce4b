# SPDX-License-Identifier: Apache-2.0
"""Runs chosen operators of a live program on substitutes, forward and backward, with no change to
its code.

Kinds that need other kernels than this process has run in a process of their own
(substitute/apart.py); a user's function, and wider types on an accelerator, run here. The program
gets tensors of the types, strides and aliases that the operator itself gives; what the operator
writes to is written in place; generators advance as the operator would advance them.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from opscope.errors import UnavailableError
from opscope.record.torch.aside import PLAIN, aside
from opscope.record.torch.capture import Captured, NotCapturedError, capture, generator_of
from opscope.record.torch.mode import WatchingMode
from opscope.record.torch.operators import describe, gives_tensors, unhindered
from opscope.substitute.apart import Apart
from opscope.substitute.arguments import dtype_named
from opscope.substitute.function import imported
from opscope.substitute.layout import Given, Laid
from opscope.substitute.overlay import package, run_substitute
from opscope.substitute.perform import Bound, piece_of, storage_key
from opscope.substitute.registry import kind_named
from opscope.substitute.rules import Rule, rule_for
from opscope.substitute.schema import draws_random, only_views
from opscope.substitute.truth import FAILURES

LIMIT = 8 << 30  # bytes of one call's tensors


@dataclass(eq=False)
class Chosen:
    """What is known of an operator overload: always says that its rule does not depend on the
    module.
    """

    op: str
    writes: frozenset[str]
    never: bool
    rule: Rule | None
    always: bool


class Substitution:
    """Decides by rules which calls run elsewhere, and runs them there. module names the module that
    is executing.
    """

    def __init__(self, rules: Sequence[Rule], *, module: Callable[[], str] = lambda: "") -> None:
        self.rules = rules
        self.module = module
        self.calls: dict[str, int] = {}
        self.refused: dict[str, str] = {}
        self._chosen: dict[Any, Chosen] = {}
        self._apart: Apart | None = None
        self._pid = os.getpid()
        self._alone = threading.Lock()  # one thread of the program at a time talks to the process

    def close(self) -> None:
        """End the process that substitutes run in."""
        if self._apart is not None:
            self._apart.close()
            self._apart = None

    def facts(self) -> dict[str, Any]:
        """Calls that ran on a substitute by operator, and operators that did not with the
        reason.
        """
        return {"calls": dict(self.calls), "refused": dict(self.refused)}

    def call(self, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Make one call, on its substitute when a rule names one."""
        chosen = self._chosen.get(func) or self._choose(func)
        rule = chosen.rule if chosen.always else rule_for(self.rules, chosen.op, self.module())
        if chosen.never or rule is None or os.getpid() != self._pid:
            return unhindered(func)(*args, **kwargs)
        try:
            with aside(), torch.no_grad():
                result = self._run(rule.kind, chosen, func, args, kwargs)
        except (NotCapturedError, UnavailableError) as reason:
            self._refuse(chosen.op, str(reason))
            return unhindered(func)(*args, **kwargs)
        self.calls[chosen.op] = self.calls.get(chosen.op, 0) + 1
        return result

    def _choose(self, func: Any) -> Chosen:
        operator = describe(func)
        gives = gives_tensors(func, operator)
        never = (
            not gives
            or operator.allocator
            or operator.collective
            or operator.hidden
            or only_views(func)
        )
        rule = rule_for(self.rules, operator.op, None)
        always = rule is not None or not any(may_mean_module(each) for each in self.rules)
        chosen = self._chosen[func] = Chosen(
            operator.op, operator.writes, bool(never), rule, always
        )
        return chosen

    def _refuse(self, op: str, reason: str) -> None:
        if op not in self.refused:
            self.refused[op] = reason
            print(f"opscope: {op} is not substituted: {reason}", file=sys.stderr)

    def _run(
        self, kind: str, chosen: Chosen, func: Any, args: Sequence[Any], kwargs: dict[str, Any]
    ) -> Any:
        name, path = kind_named(kind)
        if name == "function":
            return in_place(imported(path)(*args, **kwargs), func, args, kwargs)
        captured = capture(
            chosen.op,
            args,
            kwargs,
            writes=chosen.writes,
            random=draws_random(func, args, kwargs),
            limit=LIMIT,
        )
        if name != "cpu" and any(
            tensor.device.type != "cpu" for tensor in captured.tensors.values()
        ):
            given, pieces = self._here(kind, captured)
        else:
            given, pieces = self._elsewhere(kind, captured, args, kwargs)
        return Delivery(captured, given, pieces).result(func)

    @staticmethod
    def _here(kind: str, captured: Captured) -> tuple[Given, list[torch.Tensor]]:
        bound = Bound(captured.call, captured.pieces)
        try:
            return package(bound, run_substitute(bound, kind))
        except FAILURES as error:
            raise UnavailableError(
                (str(error).splitlines() or [type(error).__name__])[0]
            ) from error

    def _elsewhere(
        self, kind: str, captured: Captured, args: Sequence[Any], kwargs: dict[str, Any]
    ) -> tuple[Given, list[torch.Tensor]]:
        with self._alone:
            if self._apart is None:
                self._apart = Apart()
            try:
                reply, pieces = self._apart.substitute(kind, captured.call, captured.pieces)
            except UnavailableError:
                if self._apart.process.poll() is not None:
                    self.close()
                raise
        if reply.random is not None:
            state = torch.frombuffer(bytearray(reply.random), dtype=torch.uint8)
            generator_of(args, kwargs).set_state(state)
        return reply.given or Given(outputs={}), pieces


class Delivery:
    """Gives the program what a substitute gave: writes to its tensors, makes new ones, returns its
    own where the operator does.
    """

    def __init__(self, captured: Captured, given: Given, pieces: Sequence[torch.Tensor]) -> None:
        self.captured = captured
        self.given = given
        self.pieces = pieces
        self.first = len(captured.call.memories)
        self.owners = {
            captured.call.tensors[slot].memory: tensor for slot, tensor in captured.tensors.items()
        }
        self._made: dict[int, torch.Tensor] = {}

    def result(self, func: Any) -> Any:
        """The operator's result."""
        for memory, number in self.given.replaced.items():
            self._memory(memory).copy_(self.pieces[number - self.first])
        returns = func._schema.returns
        if not returns:
            return None
        listed = any("[]" in str(each.type) or "List" in str(each.type) for each in returns)
        if len(returns) == 1 and not listed:
            return self._tensor("0")
        if len(returns) == 1:
            count = 1 + max(
                (int(slot) for slot in self.given.outputs if slot.isdigit()), default=-1
            )
            return [self._tensor(str(number)) for number in range(count)]
        if listed:
            raise UnavailableError("it returns several lists of tensors")
        return tuple(self._tensor(str(number)) for number in range(len(returns)))

    def _tensor(self, slot: str) -> torch.Tensor | None:
        laid = self.given.outputs.get(slot)
        if laid is None:
            return None
        if laid.memory < self.first:
            for own, tensor in self.captured.tensors.items():
                if same_view(self.captured.call.tensors[own], laid):
                    return tensor
        memory = self._memory(laid.memory)
        dtype = dtype_named(laid.dtype)
        offset = memory.storage_offset() // dtype.itemsize + laid.offset
        return torch.empty(0, dtype=dtype, device=memory.device).set_(
            memory.untyped_storage(), offset, laid.shape, laid.stride
        )

    def _memory(self, number: int) -> torch.Tensor:
        """Bytes of an argument's memory in the program, or a new memory where the call's tensors
        lie.
        """
        if number < self.first:
            owner = self.owners[number]
            base = self.captured.starts[storage_key(owner)][1]
            return piece_of(owner, base, self.captured.call.memories[number].size)
        if number not in self._made:
            self._made[number] = self.pieces[number - self.first].to(self._device())
        return self._made[number]

    def _device(self) -> torch.device:
        devices = [tensor.device for tensor in self.captured.tensors.values()]
        named = self.captured.call.args["kwargs"].get("device")
        if isinstance(named, dict) and "device" in named:
            return torch.device(named["device"])
        return next((device for device in devices if device.type != "cpu"), torch.device("cpu"))


def same_view(one: Laid, other: Laid) -> bool:
    return (one.memory, one.dtype, one.shape, one.stride, one.offset) == (
        other.memory,
        other.dtype,
        other.shape,
        other.stride,
        other.offset,
    )


def in_place(result: Any, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """A user's function may return the result of an operator that writes: it is copied to where the
    operator writes.
    """
    written = [
        (args[position] if position < len(args) else kwargs.get(argument.name))
        for position, argument in enumerate(func._schema.arguments)
        if argument.alias_info is not None and argument.alias_info.is_write
    ]
    if not written:
        return result
    results = result if isinstance(result, (tuple, list)) else (result,)
    for target, value in zip(written, results, strict=False):
        if (
            isinstance(target, torch.Tensor)
            and isinstance(value, torch.Tensor)
            and target is not value
        ):
            target.copy_(value)
    return written[0] if len(written) == 1 else tuple(written)


def may_mean_module(rule: Rule) -> bool:
    """Whether a pattern may match a module's path, which changes from call to call."""
    return "::" not in rule.pattern.text


class SubstituteMode(WatchingMode):
    """Lies below the recorder's mode and runs chosen calls on substitutes."""

    def __init__(self, substitution: Substitution) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.substitution = substitution
        self.handle(self.dispatch)

    def dispatch(
        self,
        func: Any,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """The mode's handler."""
        if any(kind not in PLAIN for kind in types):
            return unhindered(func)(*args, **(kwargs or {}))
        return self.substitution.call(func, args, kwargs or {})
