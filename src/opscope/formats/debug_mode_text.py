# SPDX-License-Identifier: Apache-2.0
"""Reads one line of the text of torch.utils._debug_mode.DebugMode.

    aten::addmm(t$2: f32[3], t$0: f32[5, 4], t$3: f32[4, 3])  ->  t$4: f32[5, 3]  # {'input_hash': ((…), {}), 'hash': 7.5}
    torch.cat(['t$0: f32[5, 4]', 't$0: f32[5, 4]'], dim=0)  ->  t$35: f32[10, 4]

Values are what Python prints of them, not all of it literals; nothing is evaluated. Checked with
PyTorch 2.13.
"""  # noqa: E501

from __future__ import annotations

import math
import re
from typing import Any

import msgspec

from opscope.run.dtypes import find_dtype

_DEPTH = 40
_TENSOR = re.compile(
    r"(t|ft|dt)(?:\$(\d{1,15}))?: ([a-z][a-z0-9]{1,15})\[([^\[\]]{0,2000})\](?:\{[^{}]{0,2000}\})?"
)
_NUMBER = re.compile(r"-?(?:\d+(?:\.\d*)?(?:e[+-]?\d+)?|inf|nan)")
_KEYWORD = re.compile(r"([A-Za-z_]\w{0,200})=")
_HEAD = re.compile(r"(<[^<>(]{1,300}>|[^\s(\[<]{1,300}(?: \[(?:implicit|explicit)\] )?)\(")
_CLOSING = {"[": "]", "(": ")", "{": "}"}
_BITS = {
    "b8": "bool",
    "i": "int",
    "u": "uint",
    "f": "float",
    "bf": "bfloat",
    "c": "complex",
    "f4e2m1fnx2": "float4_e2m1fn_x2",
}
_ABBREVIATED = re.compile(r"(bf|[iufc])(\d{1,3})")


class TensorText(msgspec.Struct, frozen=True):
    """A tensor in the text; number is that of the tensor object, where ids were recorded; shape
    None where it is symbolic.
    """

    kind: str
    number: int | None
    dtype: str
    shape: tuple[int, ...] | None


class Word(msgspec.Struct, frozen=True):
    """What is no literal: torch.float32, cpu, an object's repr."""

    text: str


class CallText(msgspec.Struct, frozen=True):
    """A call: its name, arguments and result as values; log is the dict behind #."""

    name: str
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    output: Any = None
    log: dict[str, Any] = {}


def read_call(text: str) -> CallText | None:
    """A line without its indentation; None for what is no call."""
    head = _HEAD.match(text)
    if head is None:
        return None
    reader = _Reader(text, head.end())
    try:
        args, kwargs = reader.arguments()
        output = reader.value() if reader.take("  ->  ") else None
        log = reader.value() if reader.take("  # ") else None
    except _NoValueError:
        return None
    if reader.at != len(text):
        return None
    return CallText(head[1].strip(), args, kwargs, output, log if isinstance(log, dict) else {})


def read_keyed(text: str) -> dict[str, Any]:
    """{name: number, …} with bare names, as the hashes of Triton kernels are printed; empty for
    anything else.
    """
    numbers = {}
    for part in text.strip().removeprefix("{").removesuffix("}").split(", "):
        name, _, value = part.partition(": ")
        if _NUMBER.fullmatch(value):
            numbers[name] = _number(value)
    return numbers


class _NoValueError(ValueError):
    """The text is not what was expected."""


class _Reader:
    def __init__(self, text: str, at: int) -> None:
        self.text, self.at = text, at

    def take(self, words: str) -> bool:
        if not self.text.startswith(words, self.at):
            return False
        self.at += len(words)
        return True

    def arguments(self) -> tuple[list[Any], dict[str, Any]]:
        """What stands between the parentheses of a call, the opening one read."""
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        while not self.take(")"):
            if (args or kwargs) and not self.take(", "):
                raise _NoValueError
            named = _KEYWORD.match(self.text, self.at)
            if named is None:
                args.append(self.value())
            else:
                self.at = named.end()
                kwargs[named[1]] = self.value()
        return args, kwargs

    def value(self, depth: int = 0) -> Any:
        """One value; containers nested deeper than 40 are no value."""
        if self.at >= len(self.text) or depth > _DEPTH:
            raise _NoValueError
        first = self.text[self.at]
        if (tensor := _TENSOR.match(self.text, self.at)) is not None:
            self.at = tensor.end()
            if self.take("| "):
                self._word()
            return _tensor(tensor)
        if first in "'\"":
            return self._quoted(first)
        if first in "[(":
            return self._items(_CLOSING[first], depth)
        if first == "{":
            return self._pairs(depth)
        return _plain(self._word())

    def _items(self, closing: str, depth: int) -> list[Any]:
        self.at += 1
        items: list[Any] = []
        while not self.take(closing):
            if items and not self.take(", "):
                if self.take("," + closing):
                    break
                raise _NoValueError
            items.append(self.value(depth + 1))
        return items

    def _pairs(self, depth: int) -> dict[str, Any]:
        self.at += 1
        pairs: dict[str, Any] = {}
        while not self.take("}"):
            if pairs and not self.take(", "):
                raise _NoValueError
            key = self.value(depth + 1)
            if not self.take(": "):
                raise _NoValueError
            pairs[str(key)] = self.value(depth + 1)
        return pairs

    def _quoted(self, quote: str) -> Any:
        end = self.at + 1
        while end < len(self.text) and self.text[end] != quote:
            end += 2 if self.text[end] == "\\" else 1
        if end >= len(self.text):
            raise _NoValueError
        inside, self.at = self.text[self.at + 1 : end], end + 1
        tensor = _TENSOR.match(inside)
        return _tensor(tensor) if tensor is not None else inside

    def _word(self) -> str:
        """Text up to the comma or bracket that ends it, brackets inside balanced."""
        start, open_brackets = self.at, []
        while self.at < len(self.text):
            char = self.text[self.at]
            if char in _CLOSING:
                open_brackets.append(_CLOSING[char])
            elif char in ")]}":
                if not open_brackets or open_brackets.pop() != char:
                    break
            elif not open_brackets and (
                char == "," or self.text.startswith(("  ->  ", "  # "), self.at)
            ):
                break
            self.at += 1
        if open_brackets or start == self.at:
            raise _NoValueError
        return self.text[start : self.at]


def _plain(word: str) -> Any:
    constants = {"True": True, "False": False, "None": None}
    if word in constants:
        return constants[word]
    return _number(word) if _NUMBER.fullmatch(word) else Word(word)


def _number(word: str) -> int | float:
    value = float(word)
    return (
        int(word)
        if math.isfinite(value) and len(word) < 100 and word.lstrip("-").isdigit()
        else value
    )


def _tensor(text: re.Match[str]) -> TensorText:
    sizes = [part for part in text[4].split(", ") if part]
    shape = (
        tuple(int(size) for size in sizes)
        if all(size.isdigit() and len(size) < 19 for size in sizes)
        else None
    )
    return TensorText(text[1], int(text[2]) if text[2] else None, dtype_name(text[3]), shape)


def dtype_name(short: str) -> str:
    """Our name of an abbreviated type: f32, bf16, b8, c64, f8e4m3fn."""
    if short in _BITS:
        return _BITS[short]
    plain = _ABBREVIATED.fullmatch(short)
    if plain is not None:
        return _BITS[plain[1]] + plain[2]
    known = find_dtype(f"float8_{short[2:]}" if short.startswith("f8") else short)
    return known.name if known is not None else short
