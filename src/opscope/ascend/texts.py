# SPDX-License-Identifier: Apache-2.0
"""Protobuf text (ge_proto_*.txt, ge_onnx_*.pbtxt) as nested dicts of lists: a reader that needs no
schema.

Every field becomes a list of its values in order, a message a dict, a scalar a str, int, float or
bool, an enumeration its name. Depth is bounded.
"""

from __future__ import annotations

import re
from os import PathLike
from typing import Any

from opscope.errors import FormatError

_DEPTH = 200
_TOKEN = re.compile(
    r"""(?P<skip>[\s,;]+|\#[^\n]*)|(?P<name>[A-Za-z_][\w.]*|\[[\w./]+\])|(?P<sign>[{}<>:\[\]])|(?P<text>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')"""
    r"|(?P<number>[-+]?(?:0[xX][0-9a-fA-F]+|(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?[fF]?|inf|nan))"
)
_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{1,2}|[0-7]{1,3}|.)", re.DOTALL)
_LETTERS = {"n": 10, "t": 9, "r": 13, "a": 7, "b": 8, "f": 12, "v": 11}


def parse(text: str, path: str | PathLike[str]) -> dict[str, list[Any]]:
    """The message a text holds. Raises FormatError with the place where it stops being protobuf
    text.
    """
    root: dict[str, list[Any]] = {}
    stack = [root]
    name: str | None = None
    in_list = False
    at = 0
    while at < len(text):
        token = _TOKEN.match(text, at)
        if token is None:
            raise FormatError(path, "is no protobuf text from here on", offset=at)
        at = token.end()
        kind, word = token.lastgroup, token[0]
        if kind == "skip" or word == ":":
            continue
        if word in ("}", ">"):
            if len(stack) == 1:
                raise FormatError(path, "closes a message that was not opened", offset=at)
            stack.pop()
            name = None
        elif word in ("{", "<"):
            _opened(stack, name, path, at)
            name = None
        elif word in ("[", "]") and kind == "sign":
            in_list = word == "["
            name = name if in_list else None
        elif name is None:
            if kind != "name":
                raise FormatError(path, "has a value without a name", offset=at)
            name = word
        else:
            stack[-1].setdefault(name, []).append(_value(kind, word))
            name = name if in_list else None
    if len(stack) != 1:
        raise FormatError(path, "ends inside a message; it is torn", offset=at)
    return root


def _opened(
    stack: list[dict[str, list[Any]]], name: str | None, path: str | PathLike[str], at: int
) -> None:
    if name is None or len(stack) > _DEPTH:
        raise FormatError(
            path,
            "opens a message without a name" if name is None else f"is nested deeper than {_DEPTH}",
            offset=at,
        )
    message: dict[str, list[Any]] = {}
    stack[-1].setdefault(name, []).append(message)
    stack.append(message)


def _value(kind: str | None, word: str) -> str | int | float | bool:
    if kind == "text":
        return _string(word[1:-1])
    if kind == "name":
        return word == "true" if word in ("true", "false") else word
    if re.fullmatch(r"[-+]?\d+", word):
        return int(word[:40])
    if word.lower().lstrip("+-").startswith("0x"):
        return int(word[:40], 16)
    return float(word.rstrip("fF") if word.lower().lstrip("+-") != "inf" else word)


def _string(body: str) -> str:
    if "\\" not in body:
        return body
    data = bytearray()
    at = 0
    for escape in _ESCAPE.finditer(body):
        data += body[at : escape.start()].encode("utf-8", "surrogateescape")
        code = escape[1]
        if code[0] == "x" and len(code) > 1:
            data.append(int(code[1:], 16))
        elif code[0] in "01234567":
            data.append(int(code, 8) & 0xFF)
        else:
            data += (
                bytes([_LETTERS[code]])
                if code in _LETTERS
                else code.encode("utf-8", "surrogateescape")
            )
        at = escape.end()
    data += body[at:].encode("utf-8", "surrogateescape")
    return data.decode("utf-8", "replace")


def first(message: dict[str, list[Any]], name: str, default: Any = None) -> Any:
    """The first value of a field, or the default."""
    values = message.get(name)
    return values[0] if values else default
