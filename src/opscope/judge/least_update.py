# SPDX-License-Identifier: Apache-2.0
"""How far an optimizer's operator moves a parameter's elements at least at one place, told from its
scalars and from extremes of what it reads and leaves.

The largest quotient of two tensors is at least the largest dividend by the largest divisor, and the
largest of a sum is at least the difference of the largest of its terms. The formulas are those of
torch.optim's documentation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import msgspec

from opscope.judge.arguments import given_arguments
from opscope.judge.reading import Reading, is_finite
from opscope.judge.tolerance import PRECISIONS


class Step(msgspec.Struct, frozen=True):
    """One position of an operator's lists: its scalars, and its tensors by the first part of their
    slots.
    """

    scalars: dict[str, float]
    given: Mapping[str, Reading]
    left: Mapping[str, Reading]

    def number(self, *names: str) -> float | None:
        """The first of these scalars, or single elements of tensors, that is known."""
        for name in names:
            if name in self.scalars:
                return self.scalars[name]
            row = self.given.get(name)
            if row is not None and row.size == 1 and row.max is not None:
                return float(row.max)
        return None

    def largest(self, slot: str, *, after: bool = False) -> float | None:
        """The largest magnitude in a tensor; None unless all of it is known to be finite."""
        row = (self.left if after else self.given).get(slot)
        if row is None or not is_finite(row) or row.min is None or row.max is None:
            return None
        return float(max(-row.min, row.max))


def least_update(
    word: str,
    slot: str,
    args: str | None,
    given: Mapping[str, Reading],
    left: Mapping[str, Reading],
) -> float | None:
    """What at least one element of the tensor in this slot is moved by; None where that is unknown.

    word is the operator's bare word, args column args of its call, given and left its tensors by
    slot.
    """
    rule = _RULES.get(word.removeprefix("_foreach_"))
    head, _, position = slot.partition(".")
    if rule is None or head != "0":
        return None
    step = Step(_scalars(args, position), _at(given, position), _at(left, position))
    if step.number("kwargs.found_inf"):
        return None  # the step is skipped on purpose
    try:
        least = rule(step)
    except (ArithmeticError, ValueError):
        return None
    return least if least is not None and math.isfinite(least) else None


def ulp_of(reading: Reading) -> float | None:
    """The distance of neighbouring numbers of its type at its largest element; None of a type or a
    tensor that is not known.
    """
    precision = PRECISIONS.get(reading.dtype)
    if precision is None or not is_finite(reading) or reading.min is None or reading.max is None:
        return None
    largest = max(-reading.min, reading.max, precision.least)
    return float(2.0 ** math.floor(math.log2(largest)) * 2 * precision.unit)


def _at(rows: Mapping[str, Reading], position: str) -> dict[str, Reading]:
    """Tensors of one position by the head of their slots, and those that all positions share."""
    rows_here = {}
    for slot, row in rows.items():
        head, dot, last = slot.rpartition(".")
        if not dot or head == "kwargs":
            rows_here[slot] = row
        elif last == position:
            rows_here[head] = row
    return rows_here


def _scalars(args: str | None, position: str) -> dict[str, float]:
    """Numbers and truth values of a call; of a list of numbers that of the position."""
    positional, named = given_arguments(args)
    by_slot = {str(i): each for i, each in enumerate(positional)}
    by_slot |= {f"kwargs.{name}": each for name, each in named.items()}
    numbers = {}
    for name, given in by_slot.items():
        listed = isinstance(given, list) and position.isdigit() and int(position) < len(given)
        value = given[int(position)] if listed else given
        if isinstance(value, (bool, int, float)):
            numbers[name] = float(value)
    return numbers


def _factor(step: Step, *names: str) -> float | None:
    """A factor that is 1 where it is left out; None where it is a tensor of several elements."""
    if any(name in step.given and step.number(name) is None for name in names):
        return None
    factor = step.number(*names)
    return 1.0 if factor is None else abs(factor)


def _add(step: Step) -> float | None:
    """p + alpha other"""
    alpha, other = _factor(step, "kwargs.alpha", "2"), step.largest("1")
    return None if alpha is None or other is None else alpha * other


def _addcdiv(step: Step) -> float | None:
    """p + value a / b"""
    value, above, below = _factor(step, "kwargs.value", "3"), step.largest("1"), step.largest("2")
    return None if value is None or above is None or not below else value * above / below


def _mul(step: Step) -> float | None:
    """p f: the largest element moves by (1 - f) of itself"""
    factor, largest = step.number("1"), step.largest("0")
    return None if factor is None or largest is None else abs(1.0 - factor) * largest


def _gradient(step: Step) -> float | None:
    """g / scale + decay p"""
    gradient, largest = step.largest("1"), step.largest("0")
    if gradient is None or largest is None:
        return None
    scaled = gradient / (step.number("kwargs.grad_scale") or 1.0)
    return max(0.0, scaled - abs(step.number("kwargs.weight_decay") or 0.0) * largest)


def _sgd(step: Step) -> float | None:
    """p - lr (g + decay p), with momentum p - lr buffer, and Nesterov's p - lr (g + momentum
    buffer)
    """
    rate, momentum = step.number("kwargs.lr"), step.number("kwargs.momentum") or 0.0
    if rate is None or step.number("kwargs.nesterov"):
        return None
    moved = step.largest("2", after=True) if momentum else _gradient(step)
    return None if moved is None else rate * moved


def _adam(step: Step) -> float | None:
    """p - lr / (1 - beta1^t) m / (sqrt(v / (1 - beta2^t)) + eps), v the largest so far of
    AMSGrad
    """
    names = ("kwargs.lr", "kwargs.beta1", "kwargs.beta2", "kwargs.eps", "5")
    rate, first, second, small, time = (step.number(name) for name in names)
    root = step.largest("4" if step.number("kwargs.amsgrad") else "3", after=True)
    mean = step.largest("2", after=True)
    if None in (rate, first, second, small, time, root, mean) or not time:
        return None
    below = math.sqrt(root / (1 - second**time)) + small  # type: ignore[operator]
    moved: float = rate / (1 - first**time) * mean / below  # type: ignore[operator]
    return moved


def _adamw(step: Step) -> float | None:
    """Adam's, from p (1 - lr decay)"""
    moved, rate, largest = _adam(step), step.number("kwargs.lr"), step.largest("0")
    if moved is None or rate is None or largest is None:
        return None
    return moved - rate * abs(step.number("kwargs.weight_decay") or 0.0) * largest


def _adagrad(step: Step) -> float | None:
    """p - lr / (1 + (t - 1) lr_decay) (g + decay p) / (sqrt(sum) + eps)"""
    rate, small, time = (step.number(name) for name in ("kwargs.lr", "kwargs.eps", "3"))
    gradient, total = _gradient(step), step.largest("2", after=True)
    if rate is None or small is None or gradient is None or total is None or not time:
        return None
    slowed = rate / (1 + (time - 1) * (step.number("kwargs.lr_decay") or 0.0))
    return slowed * gradient / (math.sqrt(total) + small)


_RULES: dict[str, Callable[[Step], float | None]] = {
    "add": _add,
    "sub": _add,
    "addcdiv": _addcdiv,
    "mul": _mul,
    "_fused_sgd": _sgd,
    "_fused_adam": _adam,
    "_fused_adamw": _adamw,
    "_fused_adagrad": _adagrad,
}
