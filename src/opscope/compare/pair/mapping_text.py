# SPDX-License-Identifier: Apache-2.0
"""The part of YAML 1.2 that mapping files are written in: nested mappings, lists, plain and quoted
words, flow lists, comments.

No anchors, tags, block scalars or multi-document streams: each is refused with its line. JSON is
read too. Numbers stay words unless they are whole.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec

from opscope.errors import FormatError

MAX_BYTES = 16 << 20
MAX_DEPTH = 32
_REFUSED = re.compile(r"^(?:[&*!|>%@`]|---|\.\.\.$)")
_QUOTED = r'"(?:[^"\\]|\\.)*"|\'(?:[^\']|\'\')*\''
_KEY = re.compile(
    rf"(?P<key>{_QUOTED}|[^\s#\-\[\]{{}},:][^#]*?|-[^\s#][^#]*?)\s*:(?:\s+(?P<value>.*))?$"
)
_COMMENT = re.compile(rf"((?:{_QUOTED}|[^#\"']|(?<=\S)#|(?<=\w)')*?)(?:(?:^|\s)#.*)?$")

Line = tuple[int, int, str]  # number, indent, text


class Word(str):
    """A key of a mapping, with the line it stands on."""

    __slots__ = ("line",)
    line: int


def refused(path: Path, reason: str, *, key: object = None) -> FormatError:
    """The error for what a mapping file says; names the line of a key, where the file was read line
    by line.
    """
    line = getattr(key, "line", None)
    return FormatError(path, reason if line is None else f"line {line}: {reason}")


def read_text(path: Path) -> Any:
    """The value of a file; FormatError names the line that cannot be read."""
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise FormatError(path, f"cannot be read: {error.strerror}") from error
    if len(raw) > MAX_BYTES:
        raise FormatError(path, f"a mapping file of more than {MAX_BYTES >> 20} MiB is refused")
    text = raw.decode("utf-8-sig", "replace")
    if text.lstrip().startswith(("{", "[")):
        try:
            return msgspec.json.decode(text)
        except (msgspec.DecodeError, RecursionError) as error:
            raise FormatError(path, f"neither JSON nor a YAML mapping: {error}") from error
    return _Reader(path, text).value()


class _Reader:
    """Goes through the lines once."""

    def __init__(self, path: Path, text: str) -> None:
        self._path = path
        self._lines = [
            line
            for number, raw in enumerate(text.splitlines(), 1)
            if (line := self._line(number, raw)) is not None
        ]
        self._at = 0

    def _line(self, number: int, raw: str) -> Line | None:
        comment = _COMMENT.match(raw.rstrip())
        text = (comment[1] if comment else raw).rstrip()
        if not text.strip() or text.strip() == "---":
            return None
        bare = text.lstrip(" ")
        if "\t" in text[: len(text) - len(text.lstrip())]:
            raise self._error(number, "a tab in the indentation")
        return number, len(text) - len(bare), bare

    def _error(self, number: int, reason: str) -> FormatError:
        return FormatError(self._path, f"line {number}: {reason}")

    def value(self) -> Any:
        """The whole document."""
        if not self._lines:
            return {}
        document = self._block(self._lines[0][1], 0)
        if self._at < len(self._lines):
            raise self._error(
                self._lines[self._at][0],
                "indented less than what it belongs to, or a word where `key: value` is expected",
            )
        return document

    def _block(self, indent: int, depth: int) -> Any:
        if depth > MAX_DEPTH:
            raise self._error(self._lines[self._at][0], "nested too deeply")
        return (
            self._list(indent, depth)
            if self._lines[self._at][2].startswith(("- ", "-")) and self._is_item()
            else self._mapping(indent, depth)
        )

    def _is_item(self) -> bool:
        text = self._lines[self._at][2]
        return text == "-" or text.startswith("- ")

    def _list(self, indent: int, depth: int) -> list[Any]:
        items: list[Any] = []
        while (
            self._at < len(self._lines) and self._lines[self._at][1] == indent and self._is_item()
        ):
            number, _, text = self._lines[self._at]
            rest = text[1:].lstrip()
            inner = indent + len(text) - len(rest)
            if not rest:
                self._at += 1
                items.append(self._nested(indent, depth))
            elif _KEY.match(rest) and not rest.startswith(("[", "{")):
                self._lines[self._at] = (number, inner, rest)
                items.append(self._block(inner, depth + 1))
            else:
                self._at += 1
                items.append(self._scalar(rest, number))
        return items

    def _mapping(self, indent: int, depth: int) -> dict[str, Any]:
        entries: dict[str, Any] = {}
        while (
            self._at < len(self._lines)
            and self._lines[self._at][1] == indent
            and not self._is_item()
        ):
            number, _, text = self._lines[self._at]
            match = _KEY.match(text)
            if match is None:
                raise self._error(number, f"expected `key: value`, found {text[:40]!r}")
            key = self._key(match["key"], number)
            if key in entries:
                raise self._error(number, f"{key[:60]!r} stands there twice")
            self._at += 1
            entries[key] = (
                self._scalar(match["value"], number)
                if match["value"]
                else self._nested(indent, depth)
            )
        return entries

    def _key(self, text: str, number: int) -> Word:
        key = Word(self._scalar(text, number))
        key.line = number
        return key

    def _nested(self, indent: int, depth: int) -> Any:
        """What is indented further than its key; a list may stand at the key's own indent."""
        if self._at >= len(self._lines):
            return None
        deeper = self._lines[self._at][1]
        if deeper > indent or (
            deeper == indent and self._is_item() and depth >= 0 and not self._inside_list(indent)
        ):
            return self._block(deeper, depth + 1)
        return None

    def _inside_list(self, indent: int) -> bool:
        """Whether the line before belongs to a list at this indent, so that a dash here is its next
        item.
        """
        before = self._lines[self._at - 1]
        return before[2].startswith("-") and before[1] == indent

    def _scalar(self, text: str, number: int) -> Any:
        text = text.strip()
        if _REFUSED.match(text):
            raise self._error(
                number, f"{text[:20]!r} is a form of YAML that mapping files do not need"
            )
        if text.startswith("[") and text.endswith("]"):
            return [self._scalar(part, number) for part in _parts(text[1:-1])]
        if text.startswith("{") and text.endswith("}"):
            pairs = [part.partition(":") for part in _parts(text[1:-1])]
            return {self._key(key, number): self._scalar(value, number) for key, _, value in pairs}
        if len(text) > 1 and text[0] == text[-1] == "'":
            return text[1:-1].replace("''", "'")
        if len(text) > 1 and text[0] == text[-1] == '"':
            try:
                return msgspec.json.decode(text)
            except msgspec.DecodeError as error:
                raise self._error(number, f"a quoted word that cannot be read: {error}") from error
        if text in {"", "~", "null"}:
            return None
        return int(text) if re.fullmatch(r"-?\d{1,18}", text) else text


def _parts(text: str) -> list[str]:
    """The items of a flow list, split at commas outside of brackets and quotes."""
    parts, depth, quote, start = [], 0, "", 0
    for at, letter in enumerate(text):
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "\"'":
            quote = letter
        elif letter in "[{":
            depth += 1
        elif letter in "]}":
            depth -= 1
        elif letter == "," and depth == 0:
            parts.append(text[start:at])
            start = at + 1
    parts.append(text[start:])
    return [part for part in parts if part.strip()]
