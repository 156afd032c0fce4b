# SPDX-License-Identifier: Apache-2.0
"""The longest common subsequence of two sequences of numbers, for sequences of any length.

Equal ends are cut off, long middles are split at numbers that stand once on either side (the
anchors of patience diff, kept in increasing order), and what lies between is
solved by a table of n*m bits.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise

Pair = tuple[int, int]
Span = tuple[int, int, int, int]
MAX_CELLS = 400_000_000  # 50 MB of bits at once


def common(target: Sequence[int], golden: Sequence[int]) -> Iterator[Pair]:
    """Positions of a common subsequence, unsorted: the longest one up to MAX_CELLS cells, a long
    one beyond.
    """
    waiting = [(0, len(target), 0, len(golden))]
    while waiting:
        ends, (a, b, c, d) = _equal_ends(target, golden, waiting.pop())
        yield from ends
        if a < b and c < d:
            if (b - a) * (d - c) > MAX_CELLS:
                waiting.extend(_split(target, golden, (a, b, c, d)))
            else:
                yield from ((a + i, c + j) for i, j in _longest(target[a:b], golden[c:d]))


def _equal_ends(
    target: Sequence[int], golden: Sequence[int], span: Span
) -> tuple[list[Pair], Span]:
    """What is equal at both ends of a span, and the span between."""
    a, b, c, d = span
    pairs = []
    while a < b and c < d and target[a] == golden[c]:
        pairs.append((a, c))
        a, c = a + 1, c + 1
    while a < b and c < d and target[b - 1] == golden[d - 1]:
        b, d = b - 1, d - 1
        pairs.append((b, d))
    return pairs, (a, b, c, d)


def _longest(target: Sequence[int], golden: Sequence[int]) -> Iterator[Pair]:
    shared = set(target) & set(golden)
    mine = [at for at, token in enumerate(target) if token in shared]
    theirs = [at for at, token in enumerate(golden) if token in shared]
    pairs = _longest_of_shared([target[at] for at in mine], [golden[at] for at in theirs])
    return ((mine[i], theirs[j]) for i, j in pairs)


def _longest_of_shared(columns: Sequence[int], rows: Sequence[int]) -> Iterator[Pair]:
    """Every number stands on both sides."""
    ends, (a, b, c, d) = _equal_ends(columns, rows, (0, len(columns), 0, len(rows)))
    yield from ends
    idle = _idle_columns(columns[a:b], rows[c:d])
    while b > a and d > c:
        column = 1 << (b - a - 1)
        if idle[d - c] & column:
            b -= 1
            continue
        d -= 1
        if idle[d - c] & column:  # with this row the column begins to count: they are a pair
            b -= 1
            yield b, d


def _idle_columns(columns: Sequence[int], rows: Sequence[int]) -> list[int]:
    """Bit c of number r: what the first r rows and the columns before c have in common grows no
    longer by column c.

    A row of the textbook table grows by 0 or 1 from column to column, so a number of as many bits
    holds it, and one addition, whose carries run from column to column, makes the next.
    """
    bits: dict[int, int] = {}
    for at, token in enumerate(columns):
        bits[token] = bits.get(token, 0) | 1 << at
    every = (1 << len(columns)) - 1
    idle = [every]
    for token in rows:
        fresh = idle[-1] & bits.get(token, 0)
        idle.append((idle[-1] + fresh | idle[-1] - fresh) & every)
    return idle


def _split(target: Sequence[int], golden: Sequence[int], span: Span) -> list[Span]:
    """Spans between anchors; without anchors, blocks in proportion, small enough for memory."""
    a, b, c, d = span
    anchors = _anchors(target[a:b], golden[c:d])
    if not anchors:
        return _blocks(span)
    spans, last = [], (a, c)
    for i, j in [*((a + i, c + j) for i, j in anchors), (b, d)]:
        spans.append((last[0], i, last[1], j))
        last = (i, j)
    return spans


def _blocks(span: Span) -> list[Span]:
    a, b, c, d = span
    count = min(int(((b - a) * (d - c) / MAX_CELLS) ** 0.5) + 1, b - a, d - c)
    if count < 2:
        return []  # one call against hundreds of millions
    cuts = [(a + (b - a) * k // count, c + (d - c) * k // count) for k in range(count + 1)]
    return [(i, k, j, m) for (i, j), (k, m) in pairwise(cuts)]


def _anchors(target: Sequence[int], golden: Sequence[int]) -> list[Pair]:
    """Numbers that stand once on each side, as far as their order agrees: a longest increasing
    subsequence.
    """
    once = {token for token, count in Counter(target).items() if count == 1}
    index_of = {token: at for at, token in enumerate(golden)}
    counted = Counter(golden)
    pairs = [
        (at, index_of[token])
        for at, token in enumerate(target)
        if token in once and counted[token] == 1
    ]
    ends: list[int] = []
    last: list[int] = []
    before = [-1] * len(pairs)
    for number, (_, partner) in enumerate(pairs):
        depth = bisect_left(ends, partner)
        before[number] = last[depth - 1] if depth else -1
        ends[depth : depth + 1] = [partner]
        last[depth : depth + 1] = [number]
    chain: list[Pair] = []
    number = last[-1] if last else -1
    while number >= 0:
        chain.append(pairs[number])
        number = before[number]
    return chain[::-1]
