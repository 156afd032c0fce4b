# SPDX-License-Identifier: Apache-2.0
"""What part of a run is meant: steps, ranks, operators, phases, inputs or outputs, levels.

The texts are those of the command line: steps "0|5-8|100-120", ranks "0,7" or "tp=2,dp=4",
operators a PATTERN (docs/schema.md).
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable
from functools import lru_cache

import msgspec

from opscope.errors import UsageError
from opscope.run.schema import LEVELS, PHASES, Call

IOS = ("input", "output", "both")
_MAX_STEP = 2**31 - 1
_MAX_ROLES = 1 << 16


class Pattern(msgspec.Struct, frozen=True):
    """A compiled PATTERN: a comma list of globs over op, name and module, and name-regex(RE) over
    the name.

    A glob is compared without regard to case with op as it stands, op without its namespace
    ("aten::"), without its overload (".Tensor"), without both, the last part of an API name, the
    call's name and its module. parts keeps the user's texts, so that one that matches nothing can
    be named.
    """

    text: str
    parts: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.parts)

    def matches(self, op: str, name: str | None = None, module: str | None = None) -> bool:
        """Whether any part matches."""
        return any(part_matches(part, op, name, module) for part in self.parts)

    def matching_parts(
        self, op: str, name: str | None = None, module: str | None = None
    ) -> tuple[str, ...]:
        """The parts that match, for reporting those that never did."""
        return tuple(part for part in self.parts if part_matches(part, op, name, module))


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    """Which calls and tensors are meant; the default means all of them.

    steps and ranks are inclusive ranges. None means every one.
    """

    steps: tuple[tuple[int, int], ...] | None = None
    ranks: tuple[tuple[int, int], ...] | None = None
    ops: Pattern | None = None
    skip: Pattern | None = None
    phases: tuple[str, ...] | None = None
    io: str = "both"
    levels: tuple[str, ...] | None = None

    def wants_step(self, step: int) -> bool:
        """Whether this step is meant."""
        return self.steps is None or any(first <= step <= last for first, last in self.steps)

    def wants_rank(self, rank: int) -> bool:
        """Whether this rank is meant."""
        return self.ranks is None or any(first <= rank <= last for first, last in self.ranks)

    def wants_io(self, io: str) -> bool:
        """Whether tensors of this side ("input" or "output") are meant."""
        return self.io in ("both", io)

    def wants_op(self, op: str, name: str | None = None, module: str | None = None) -> bool:
        """Whether --ops and --skip let this operator through."""
        if self.skip is not None and self.skip.matches(op, name, module):
            return False
        return self.ops is None or self.ops.matches(op, name, module)

    def wants_call(self, call: Call) -> bool:
        """Whether this call is meant, by every criterion but io."""
        return (
            self.wants_step(call.step)
            and self.wants_rank(call.rank)
            and (self.phases is None or call.phase in self.phases)
            and (self.levels is None or call.level in self.levels)
            and self.wants_op(call.op, call.name, call.module)
        )

    @property
    def last_step(self) -> int | None:
        """The last step that is meant; None when there is no end."""
        if self.steps is None:
            return None
        return max((last for _, last in self.steps), default=-1)

    @property
    def everything(self) -> bool:
        """Whether nothing is left out."""
        return self == Selection()


def parse_selection(  # noqa: PLR0913 - the options of the command line, each by its name
    *,
    steps: str | None = None,
    ranks: str | None = None,
    ops: str | None = None,
    skip: str | None = None,
    phases: str | None = None,
    io: str = "both",
    levels: str | None = None,
) -> Selection:
    """Read the texts of the command line; UsageError names the one that cannot be read."""
    return Selection(
        steps=None if steps is None else parse_ranges(steps, what="steps"),
        ranks=None if ranks is None else parse_ranks(ranks),
        ops=None if ops is None else parse_pattern(ops),
        skip=None if skip is None else parse_pattern(skip),
        phases=None if phases is None else _parse_words(phases, PHASES, what="phases"),
        io=_parse_words(io, IOS, what="io")[0],
        levels=None if levels is None else _parse_words(levels, LEVELS, what="levels"),
    )


def parse_ranks(text: str) -> tuple[tuple[int, int], ...]:
    """Ranges of ranks, or one rank of each role of a job whose dimensions are given from the one
    that changes fastest: "tp=2,dp=4,pp=2" is 0, 1, 8 and 9. Ranks that differ along dp alone, or
    another dimension whose name begins so, play the same role.
    """
    if "=" not in text:
        return parse_ranges(text, what="ranks")
    dimensions = [_parse_dimension(part, text) for part in text.split(",")]
    if not any(name.startswith("dp") for name, _ in dimensions):
        raise UsageError(
            f"ranks {text!r}: no dimension is called dp, along which ranks play the same role"
        )
    ranges, size = [(0, 0)], 1
    for name, extent in dimensions:
        if not name.startswith("dp"):
            if len(ranges) * extent > _MAX_ROLES:
                raise UsageError(f"ranks {text!r}: more than {_MAX_ROLES} roles")
            shifts = [size * number for number in range(extent)]
            whole = ranges == [(0, size - 1)]
            ranges = (
                [(0, size * extent - 1)]
                if whole
                else [(first + shift, last + shift) for shift in shifts for first, last in ranges]
            )
        size *= extent
    if size - 1 > _MAX_STEP:
        raise UsageError(f"ranks {text!r}: more than {_MAX_STEP} ranks")
    return tuple(ranges)


def _parse_dimension(part: str, text: str) -> tuple[str, int]:
    match = re.fullmatch(r"\s*([a-z][a-z_0-9]*)=([1-9][0-9]{0,9})\s*", part, re.IGNORECASE)
    if match is None:
        raise UsageError(
            f"ranks {text!r}: {part.strip()!r} is no dimension such as dp=4; write tp=2,dp=4,pp=2"
        )
    return match[1].lower(), int(match[2])


def parse_ranges(text: str, *, what: str) -> tuple[tuple[int, int], ...]:
    """Ranges such as "0|5-8|100-120" or "0,7", ends included; UsageError for anything else."""
    ranges = []
    for part in re.split(r"[|,]", text):
        match = re.fullmatch(r"\s*([0-9]{1,10})\s*(?:-\s*([0-9]{1,10})\s*)?", part)
        if match is None:
            raise UsageError(
                f"{what} {text!r}: {part.strip()!r} is neither a number nor a range like 5-8; "
                "write 0|5-8|100-120"
            )
        first = int(match[1])
        last = first if match[2] is None else int(match[2])
        if last < first or last > _MAX_STEP:
            raise UsageError(
                f"{what} {text!r}: the range {part.strip()!r} runs backwards or is too large"
            )
        ranges.append((first, last))
    return tuple(ranges)


def parse_pattern(text: str) -> Pattern:
    """A PATTERN; UsageError for an empty one and for a regular expression that does not compile."""
    parts = tuple(part for part in (part.strip() for part in _split(text)) if part)
    if not parts:
        raise UsageError(f"pattern {text!r} is empty")
    for part in parts:
        expression = _regex_of(part)
        if expression is None:
            continue
        try:
            re.compile(expression)
        except re.error as error:
            raise UsageError(f"pattern {part!r}: {error}") from error
    return Pattern(text, parts)


def _split(text: str) -> list[str]:
    """Parts between commas; commas inside name-regex(...), [...] and {...} belong to their part."""
    parts = [""]
    depth = 0
    escaped = False
    for character in text:
        if character == "," and depth == 0:
            parts.append("")
            continue
        if not escaped and (depth > 0 or parts[-1].lstrip().startswith("name-regex")):
            depth += (character in "([{") - (character in ")]}")
        escaped = character == "\\" and not escaped
        parts[-1] += character
    if depth != 0:
        raise UsageError(f"pattern {text!r}: a bracket of name-regex(...) is not closed")
    return parts


def _regex_of(part: str) -> str | None:
    match = re.fullmatch(r"name-regex\((.*)\)", part, re.DOTALL)
    if match is None and part.startswith("name-regex"):
        raise UsageError(f"pattern {part!r}: write name-regex(RE)")
    return None if match is None else match[1]


@lru_cache(maxsize=65536)
def part_matches(part: str, op: str, name: str | None, module: str | None) -> bool:
    """Whether one part of a PATTERN matches; pure, and cached because a run repeats its names every
    step.
    """
    expression = _regex_of(part)
    if expression is not None:
        return re.search(expression, name if name is not None else op) is not None
    glob = _glob(part)
    return any(
        glob.fullmatch(text.lower()) is not None
        for text in (*op_spellings(op), name, module)
        if text
    )


@lru_cache(maxsize=256)
def _glob(part: str) -> re.Pattern[str]:
    return re.compile(fnmatch.translate(part.lower()))


def op_spellings(op: str) -> tuple[str, ...]:
    """What a user may call an operator: "aten::mul.Tensor" is also "mul.Tensor", "aten::mul" and
    "mul".
    """
    namespace, colons, rest = op.rpartition("::")
    if colons:
        bare = rest.partition(".")[0]
        return (op, rest, f"{namespace}::{bare}", bare)
    return (op, op.rpartition(".")[2], op.rpartition("/")[2])


def near_names(text: str, names: Iterable[str]) -> tuple[str, ...]:
    """Names that look like this text, best first; for the warning about a pattern or name that
    matches nothing.
    """
    from difflib import get_close_matches

    wanted = text.strip("*?").lower()
    count = len(re.findall(r"\w+", wanted)) or 1
    spelt: dict[str, list[str]] = {}
    for name in filter(None, names):
        for stretch in _stretches(name.lower(), count):
            spelt.setdefault(stretch, []).append(name)
    near = [name for stretch in get_close_matches(wanted, spelt) for name in spelt[stretch]]
    whole = {name: None for each in spelt.values() for name in each}
    holding = [name for name in whole if len(wanted) > 2 and wanted in name.lower()]
    return tuple(dict.fromkeys([*near, *sorted(holding, key=len)]))[:3]


def _stretches(name: str, count: int) -> set[str]:
    """A name, and each stretch of so many words of it: "h.0.atn" is near to "model.h.0.attn"."""
    words = list(re.finditer(r"\w+", name))
    ends = zip(words, words[count - 1 :], strict=False)
    return {name, *(name[first.start() : last.end()] for first, last in ends)}


def _parse_words(text: str, known: tuple[str, ...], *, what: str) -> tuple[str, ...]:
    words = tuple(word.strip().lower() for word in text.split(","))
    for word in words:
        if word not in known:
            raise UsageError(f"{what} {text!r}: {word!r} is not one of {', '.join(known)}")
    return words
