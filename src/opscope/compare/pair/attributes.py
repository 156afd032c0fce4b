# SPDX-License-Identifier: Apache-2.0
"""Attributes of calls under the names that frameworks share: stride, padding, dilation, groups,
kernel_size, epsilon, momentum.

PyTorch gives them by position (native_functions.yaml), MindSpore, CANN and TensorFlow by name and
for all four axes. What is not known for certain (padding by mode SAME, an attribute left at its
default) is left out, so that it never counts as a difference.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from opscope.compare.side.lowering import spelling
from opscope.judge.arguments import given_arguments
from opscope.operators.spelling import JAX, NAMESPACED, ONNX
from opscope.questions.rows import rows_of_calls

if TYPE_CHECKING:
    from opscope.compare.pair.alignment import Match
    from opscope.compare.side.columns import Side

_POSITIONS = {
    "convolution": {"stride": 3, "padding": 4, "dilation": 5, "groups": 8},
    "max_pool2d": {"kernel_size": 1, "stride": 2, "padding": 3, "dilation": 4},
    "avg_pool2d": {"kernel_size": 1, "stride": 2, "padding": 3},
    "native_layer_norm": {"epsilon": 4},
    "native_batch_norm": {"epsilon": 7, "momentum": 6},
}
_GRAPH_POSITIONS = {
    "native_layer_norm": {"epsilon": 5},
    "native_batch_norm": {"epsilon": 6, "momentum": 7},
}  # MindSpore's scalar inputs
_NAMES = {
    "stride": ("stride", "strides", "window_strides"),
    "padding": ("pad_list", "pads", "pad", "padding"),
    "dilation": ("dilation", "dilations", "rhs_dilation"),
    "groups": ("groups", "group", "feature_group_count"),
    "kernel_size": ("kernel_size", "ksize", "kernel_shape"),
    "epsilon": ("epsilon", "eps"),
    "momentum": ("momentum",),
}  # fmt: skip
_PADDING = "padding"
_SINGLE = frozenset({"epsilon", "momentum", "groups"})
_CLOSE = 1e-5  # an epsilon that was stored as float32


def differing_attributes(target: Side, golden: Side, match: Match) -> dict[int, str]:
    """For target calls (by place) whose attributes differ from their partner's, how they do, in
    words.
    """
    words = {code: word for code, word in target.words.items() if word in _POSITIONS}
    pairs = match.pairs
    chosen = (
        pairs[np.isin(target.calls.op[pairs[:, 0]], np.array(sorted(words), dtype=np.uint64))]
        if len(pairs)
        else pairs
    )
    worlds = spelling(target), spelling(golden)
    keys = target.calls.key[chosen[:, 0]], golden.calls.key[chosen[:, 1]]
    texts = [
        dict(rows_of_calls(side.run, np.unique(key), "args"))
        for side, key in zip((target, golden), keys, strict=True)
    ]
    differing = {}
    for call, own_key, golden_key in zip(
        chosen[:, 0].tolist(), keys[0].tolist(), keys[1].tolist(), strict=True
    ):
        word = words[int(target.calls.op[call])]
        unlike = difference_across(word, (texts[0].get(own_key), texts[1].get(golden_key)), worlds)
        if unlike:
            differing[call] = unlike
    return differing


def difference_across(
    word: str, texts: tuple[str | None, str | None], worlds: tuple[str, str]
) -> str:
    """How the attributes of two calls of this kin differ, each written in its world, in words; ""
    where those that are known do not.
    """
    mine, theirs = (
        attributes(word, text, world=world) for text, world in zip(texts, worlds, strict=True)
    )
    return "; ".join(
        f"argument {name} is {_said(mine[name])}, golden has {_said(theirs[name])}"
        for name in mine
        if name in theirs and not _equal(mine[name], theirs[name])
    )


def attributes(word: str, text: str | None, *, world: str) -> dict[str, tuple[float, ...]]:
    """The attributes of one call from its column args; word is its kin, world whose operator it is
    (lowering.world).
    """
    positional, named = given_arguments(text)
    given: dict[str, Any] = dict(_given(named))
    named_alone = world in NAMESPACED
    positions_of = _GRAPH_POSITIONS if world == "graph" else {} if named_alone else _POSITIONS
    for name, position in positions_of.get(word, {}).items():
        if name not in given and position < len(positional):
            given[name] = positional[position]
    if world == ONNX and isinstance(pads := given.get(_PADDING), list):
        given[_PADDING] = _in_pairs(pads)
    if world == JAX and isinstance(pads := given.get(_PADDING), list):
        given[_PADDING] = _once(pads)
    numbers = {
        name: _numbers(name, value, named)
        for name, value in given.items()
        if name in _POSITIONS.get(word, {})
    }
    if (
        _PADDING not in given
        and str(named.get("pad_mode", named.get("padding_mode"))).upper() == "VALID"
    ):
        numbers[_PADDING] = (0.0, 0.0)
    return {name: value for name, value in numbers.items() if value is not None}


def _in_pairs(pads: list[Any]) -> list[Any]:
    """Paddings of ONNX, at the begins of all axes and then at the ends, axis by axis; each once
    where both ends of every axis have the same.
    """
    begins, ends = pads[: len(pads) // 2], pads[len(pads) // 2 :]
    if begins == ends:
        return begins
    return [each for both in zip(begins, ends, strict=False) for each in both]


def _once(pads: list[Any]) -> list[Any]:
    """Paddings of JAX, the begin and the end of each axis; each once where the two are equal."""
    pairs = [pair for pair in pads if isinstance(pair, list) and len(pair) == 2]
    if all(begin == end for begin, end in pairs):
        return [begin for begin, _ in pairs]
    return [each for pair in pairs for each in pair]


def _given(named: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, spellings in _NAMES.items():
        for word in spellings:
            if word in named:
                yield name, named[word]
                break


def _numbers(name: str, value: Any, named: dict[str, Any]) -> tuple[float, ...] | None:
    """Numbers of the two spatial axes; one number for groups and epsilon; None for what cannot be
    told.
    """
    listed = value if isinstance(value, list) else [value]
    if not listed or not all(
        isinstance(item, int | float) and not isinstance(item, bool) for item in listed
    ):
        return None
    numbers = tuple(float(item) for item in listed)
    if name in _SINGLE:
        return numbers if len(numbers) == 1 else None
    if name == _PADDING:
        if str(named.get("pad_mode", "")).lower() in ("same", "valid") and "pad_list" not in named:
            return None
        if len(numbers) == 4:
            return (
                (numbers[0], numbers[2])
                if numbers[0] == numbers[1] and numbers[2] == numbers[3]
                else numbers
            )
    elif len(numbers) == 4:
        numbers = (
            numbers[1:3]
            if str(named.get("format", named.get("data_format"))).upper() == "NHWC"
            else numbers[2:]
        )
    return numbers * 2 if len(numbers) == 1 else numbers


def _equal(mine: tuple[float, ...], theirs: tuple[float, ...]) -> bool:
    return len(mine) != len(theirs) or all(
        math.isclose(a, b, rel_tol=_CLOSE) for a, b in zip(mine, theirs, strict=True)
    )


def _said(numbers: tuple[float, ...]) -> str:
    words = [f"{number:g}" for number in numbers]
    return words[0] if len(words) == 1 else f"[{', '.join(words)}]"
