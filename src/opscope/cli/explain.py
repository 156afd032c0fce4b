# SPDX-License-Identifier: Apache-2.0
"""`opscope explain`: what a word or number that opscope, or a device, has said means."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator

import msgspec

from opscope import errors
from opscope.ascend.codes import Meaning
from opscope.cli.options import Json
from opscope.cli.printing import print_json
from opscope.errors import OpscopeError, UsageError
from opscope.judge.overflow import (
    ACCUMULATION,
    FLOAT,
    INTEGER,
    NARROWING,
    NEGATION,
    UNSIGNED,
    WORDS,
)
from opscope.judge.reasons import REASONS, reason_in
from opscope.run.finding import CONFIDENCES, KINDS, WARNINGS, Document

# The contract of every verb; docs/cli.md has the same table, a test holds the two equal.
EXITS: dict[int, str] = {
    0: "nothing wrong found",
    1: "something found",
    2: "usage, or input that cannot be read",
    3: "nothing found, but the input was incomplete: a torn file, a missing rank, a recording that "
    "ended early, no call but those that compilation hid",
    101: "a bug in opscope",
    125: "cannot be tried here: a device or back end is missing",
}

# What a bit of an overflow status says has happened, for whoever meets the number first.
BITS: dict[int, str] = {
    NEGATION: "the most negative integer was negated, and its type has no such positive number",
    INTEGER: "an integer sum, difference or product left its type and wrapped or was clipped",
    FLOAT: "an operator made infinity or NaN of finite inputs: a result beyond the largest number "
    "of its type, a division by zero, or an operation without an answer (0/0, inf - inf)",
    UNSIGNED: "a negative floating-point number was converted to an unsigned integer",
    NARROWING: "a conversion to a narrower type met a number beyond the largest of that type",
    ACCUMULATION: "the sums that a matrix product or a convolution makes left their type: "
    "smaller inputs (scale them first), bfloat16 or float32 make them fit",
}
# Words for values that a run counts.
VALUES: dict[str, str] = {
    "nan": "not a number: what 0/0, inf - inf, 0 * inf, log or sqrt of a negative number give, and "
    "all that is computed from it. opscope scan names the call that made the first",
    "inf": "infinity: a result beyond the largest number of its type (65504 for float16), or a "
    "division by zero. opscope scan tells an overflow from a mask's own infinities",
}


def explain(topic: str = "", /, *, json: Json = False) -> int:
    """Say what a kind of finding, its reason, a confidence, a status bit, an exit code, an error of
    opscope or an error code of a device means. Without a topic all words are listed.

    Examples: opscope explain overflow-origin; opscope explain 0x20.

    Parameters
    ----------
    topic
        overflow-origin, likely, 0x420, exit 3, FormatError, 507015, EZ9999, "division by zero".
    """
    explained = meanings(topic) if topic else tuple(words())
    rows = [msgspec.structs.asdict(meaning) for meaning in explained]
    if json:
        summary = {"meanings": rows, "warnings": []}
        print_json(Document(verb="explain", summary=summary))
        return 0
    from opscope.report.console import folded, make_console, print_lines

    console = make_console()
    for meaning in explained:
        named = (
            meaning.family if meaning.name == meaning.code else f"{meaning.name}, {meaning.family}"
        )
        text = f"({named}) {meaning.text}"
        print_lines(console, folded(f"{meaning.code}  ", text, width=console.width, style="bold"))
    return 0


def meanings(topic: str) -> tuple[Meaning, ...]:
    """Everything that a topic may mean; UsageError, with the nearest words, for one that means
    nothing.
    """
    wanted = " ".join(topic.split())
    known = [
        meaning
        for meaning in words()
        if wanted.lower() in (meaning.code.lower(), meaning.name.lower())
    ]
    if known:
        return tuple(known)
    if re.fullmatch(r"(?i)0x[0-9a-f]{1,16}", wanted):
        bits = [hex(bit) for bit in WORDS if bit & int(wanted, 16)]
        if bits and not int(wanted, 16) & ~sum(WORDS):
            return tuple(meaning for meaning in words() if meaning.code in bits)
    if re.fullmatch(r"(?i)(0x[0-9a-f]+|[0-9][0-9, ]*|e[a-z0-9]{4,5}|hccl:[0-9]+)", wanted):
        from opscope.ascend.codes import explain_code

        return explain_code(wanted)
    reason = reason_in(wanted)
    if reason is not None:
        return tuple(meaning for meaning in words() if meaning.code == reason)
    raise UsageError(f"explain {topic!r}: no such word{_near(wanted)}")


def words() -> Iterator[Meaning]:
    """Every word of opscope's own, from the tables that define it."""
    for kind, (text, following) in KINDS.items():
        yield Meaning(kind, "kind of finding", kind, f"{text}. Next: {following}")
    for kind, text in WARNINGS.items():
        yield Meaning(kind, "warning about a training", kind, text)
    for word, text in CONFIDENCES.items():
        yield Meaning(word, "confidence of a finding", word, text)
    for bit, text in WORDS.items():
        told = f"bit {bit.bit_length() - 1}: {BITS[bit]}"
        yield Meaning(hex(bit), "overflow status", text, told)
    for reason, text in REASONS.items():
        yield Meaning(reason, "reason of a finding", reason, text)
    for word, text in VALUES.items():
        yield Meaning(word, "value", word, text)
    for code, text in EXITS.items():
        yield Meaning(f"exit {code}", "exit code", f"exit code {code}", text)
    for name, error in vars(errors).items():
        if isinstance(error, type) and issubclass(error, OpscopeError):
            text = " ".join((inspect.getdoc(error) or "").split())
            yield Meaning(name, f"error, exit code {error.exit_code}", name, text)


def _near(wanted: str) -> str:
    from difflib import get_close_matches

    known = {name.lower(): name for meaning in words() for name in (meaning.code, meaning.name)}
    similar = get_close_matches(wanted.lower(), known, n=2, cutoff=0.5)
    near = " or ".join(known[name] for name in similar)
    return f"; did you mean {near}?" if near else "; opscope explain lists them"
