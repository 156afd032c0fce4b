# SPDX-License-Identifier: Apache-2.0
"""Values as MindSpore prints them in .ir files: {kernel_size: (3, 3), group: I64(1), pad_mode:
"same", dst_type: F32, …}.
"""

from __future__ import annotations

import re
from typing import Any

from opscope.run.dtypes import find_dtype

_DEPTH_LIMIT = 32
_TOKEN = re.compile(
    r"""\s*(?:
      (?P<string>"(?:[^"\\]|\\.)*")
    | (?P<number>[-+]?(?:\d+\.?\d*(?:[eE][-+]?\d+)?|\.\d+(?:[eE][-+]?\d+)?|inf|nan)(?![\w.]))
    | (?P<word>[^\s,:(){}\[\]<>="]+)
    | (?P<mark>.)
    )""",
    re.VERBOSE | re.DOTALL,
)
_SCALARS = re.compile(r"(?:U?I(?:8|16|32|64)|F(?:16|32|64)|BF16|Bool|Int\d*|UInt\d*|Float\d*)$")
_CLOSING = {"(": ")", "[": "]", "{": "}", "<": ">"}
_SHORT = {"F": "float", "I": "int", "U": "uint", "BF": "bfloat"}


def short_dtype(word: str) -> str | None:
    """Canonical name of a type printed short ("F32", "I64", "BF16") or long ("Float32"), None when
    it is no type.
    """
    parts = re.fullmatch(r"(BF|F|I|U)(\d+)", word)
    known = find_dtype(_SHORT[parts[1]] + parts[2] if parts else word)
    return known.name if known else None


class ValueText:
    """A cursor over printed values; never fails: what it cannot name stays as text."""

    def __init__(self, text: str, start: int = 0) -> None:
        self.text, self.at = text, start

    def peek(self) -> str:
        """The next character that is not a space, "" at the end."""
        while self.at < len(self.text) and self.text[self.at].isspace():
            self.at += 1
        return self.text[self.at : self.at + 1]

    def value(self, depth: int = 0) -> Any:
        """The next value, up to the next comma or closing mark."""
        first = self.peek()
        if depth > _DEPTH_LIMIT:
            return self.rest()
        if first in {"(", "["}:
            return self.items(depth)
        if first == "{":
            return self.mapping(depth)
        token = _TOKEN.match(self.text, self.at)
        if token is None or token["mark"]:
            return self.rest()
        self.at = token.end()
        if token["string"] is not None:
            return re.sub(r"\\(.)", r"\1", token["string"][1:-1])
        if token["number"] is not None:
            return self.tail(_number(token["number"]), token.start())
        return self.word(token["word"], token.start(), depth)

    def word(self, word: str, start: int, depth: int) -> Any:
        """A bare word: Bool(1), I64(3), true, None, a type, or text to the next comma."""
        if self.peek() == "(" and _SCALARS.match(word):
            inner = self.items(depth)
            if len(inner) == 1:
                return bool(inner[0]) if word == "Bool" else inner[0]
            return inner
        if self.peek() not in {",", ")", "]", "}", ""}:
            self.at = start
            return self.rest()
        if word in {"true", "false", "True", "False"}:
            return word.lower() == "true"
        if word in {"None", "null"}:
            return None
        dtype = short_dtype(word)
        return {"dtype": dtype} if dtype else word

    def tail(self, value: Any, start: int) -> Any:
        """A number stands alone; "3x4" or "1 of 2" is text."""
        if self.peek() in {",", ")", "]", "}", ""}:
            return value
        self.at = start
        return self.rest()

    def items(self, depth: int) -> Any:
        """A tuple or list; the brackets are taken away, a list stays a list."""
        closing = _CLOSING[self.peek()]
        self.at += 1
        items: list[Any] = []
        while self.at < len(self.text):
            if self.peek() == closing:
                self.at += 1
                break
            if self.peek() == ",":
                self.at += 1
                continue
            before = self.at
            items.append(self.value(depth + 1))
            if self.at == before:  # a stray closing mark
                self.at += 1
        return items if closing == "]" else tuple(items)

    def mapping(self, depth: int = 0) -> dict[str, Any]:
        """{name: value, …}; the cursor stands on the opening brace."""
        self.at += 1
        entries: dict[str, Any] = {}
        while self.peek() not in {"}", ""}:
            colon = self.text.find(":", self.at)
            if colon < 0:
                self.at = len(self.text)
                break
            name = self.text[self.at : colon].strip().strip('"')
            self.at = colon + 1
            entries[name] = self.value(depth + 1)
            while self.peek() not in {",", "}", ""}:
                self.at += 1
            if self.peek() == ",":
                self.at += 1
        self.at += 1
        return entries

    def rest(self) -> str:
        """Text up to the next comma or closing mark outside of brackets."""
        start, open_marks = self.at, []
        while self.at < len(self.text):
            mark = self.text[self.at]
            if mark in _CLOSING:
                open_marks.append(_CLOSING[mark])
            elif open_marks and mark == open_marks[-1]:
                open_marks.pop()
            elif not open_marks and mark in ",)]}":
                break
            self.at += 1
        return self.text[start : self.at].strip()


def _number(text: str) -> int | float:
    try:
        return int(text)
    except ValueError:
        return float(text)


def split_top(text: str) -> list[str]:
    """Parts between the commas that stand outside of all brackets and quotes; an arrow's ">" closes
    nothing.
    """
    parts, start, depth, quoted = [], 0, 0, False
    for at, mark in enumerate(text):
        if mark == '"':
            quoted = not quoted
        elif quoted:
            continue
        elif mark in "([{<":
            depth += 1
        elif mark in ")]}" or (mark == ">" and text[at - 1 : at] != "-"):
            depth -= 1
        elif mark == "," and depth == 0:
            parts.append(text[start:at].strip())
            start = at + 1
    last = text[start:].strip()
    return [*parts, last] if last or parts else []
