# SPDX-License-Identifier: Apache-2.0
"""The longest common subsequence of two sequences of numbers, for sequences of any length.

Equal ends are cut off, long middles are split at numbers that stand once on either side (the
anchors of patience diff, kept in increasing order), and what lies between is handed to rapidfuzz,
whose memory is n*m/8 bytes.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise

Pair = tuple[int, int]
MAX_CELLS = 400_000_000  # 50 MB of bits in one call of rapidfuzz


def common(target: Sequence[int], golden: Sequence[int]) -> Iterator[Pair]:
    """Positions of a common subsequence, unsorted: the longest one up to MAX_CELLS cells, a long
    one beyond.
    """
    waiting = [(0, len(target), 0, len(golden))]
    while waiting:
        a, b, c, d = waiting.pop()
        while a < b and c < d and target[a] == golden[c]:
            yield a, c
            a, c = a + 1, c + 1
        tail = 0
        while a < b and c < d and target[b - 1] == golden[d - 1]:
            b, d, tail = b - 1, d - 1, tail + 1
        yield from ((b + i, d + i) for i in range(tail))
        if a < b and c < d:
            if (b - a) * (d - c) > MAX_CELLS:
                waiting.extend(_split(target, golden, (a, b, c, d)))
            else:
                yield from _longest(target[a:b], golden[c:d], a, c)


def _longest(
    target: Sequence[int], golden: Sequence[int], first: int, second: int
) -> Iterator[Pair]:
    from rapidfuzz.distance import LCSseq

    shared = set(target) & set(golden)
    if not shared:
        return
    mine = [at for at, token in enumerate(target) if token in shared]
    theirs = [at for at, token in enumerate(golden) if token in shared]
    for code in LCSseq.opcodes([target[at] for at in mine], [golden[at] for at in theirs]):
        if code.tag == "equal":
            for i, j in zip(
                range(code.src_start, code.src_end),
                range(code.dest_start, code.dest_end),
                strict=True,
            ):
                yield mine[i] + first, theirs[j] + second


def _split(
    target: Sequence[int], golden: Sequence[int], span: tuple[int, int, int, int]
) -> list[tuple[int, int, int, int]]:
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


def _blocks(span: tuple[int, int, int, int]) -> list[tuple[int, int, int, int]]:
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
    places = {token: at for at, token in enumerate(golden)}
    counted = Counter(golden)
    pairs = [
        (at, places[token])
        for at, token in enumerate(target)
        if token in once and counted[token] == 1
    ]
    ends: list[int] = []
    last: list[int] = []
    before = [-1] * len(pairs)
    for number, (_, place) in enumerate(pairs):
        depth = bisect_left(ends, place)
        before[number] = last[depth - 1] if depth else -1
        ends[depth : depth + 1] = [place]
        last[depth : depth + 1] = [number]
    chain: list[Pair] = []
    number = last[-1] if last else -1
    while number >= 0:
        chain.append(pairs[number])
        number = before[number]
    return chain[::-1]
