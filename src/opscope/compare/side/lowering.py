# SPDX-License-Identifier: Apache-2.0
"""A run as two frameworks have it in common, for comparing one with the other.

What only one of them does without computing (allocations, views, constants, the initialisation of
parameters) is left out; operators get the words of catalogue.kin; a product and the addition of its
bias become one call, with the inputs of both and the output of the last, where the other side has
them in one; so do the operators of one gradient and those of an optimizer's step. The columns keep
the way back to the run (Side.base), so that findings tell of the calls that were recorded.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable
from functools import lru_cache

import msgspec
import numpy as np

from opscope.compare.side.columns import MODULE, Side
from opscope.compare.side.producers import Flow
from opscope.judge.arguments import given_arguments
from opscope.operators.catalogue import kin, traits_of, works_in_place
from opscope.operators.spelling import JAX, NAMESPACED, ONNX, TENSORFLOW, namespace, word_of
from opscope.questions.rows import rows_of_calls
from opscope.run.keys import NONE

OPTIMIZER = "optimizer_step"
# of updates that only add and multiply: side.conditions knows how it carries an error
LINEAR_OPTIMIZER = "_foreach_add"
OPTIMIZERS = frozenset({OPTIMIZER, LINEAR_OPTIMIZER})
_SHARE = 0.5
_CAMEL = re.compile(r"[A-Z][A-Za-z0-9]*")
_TORCH = re.compile(r"\w+::|(torch|Functional|Tensor|Torch|NPU|Aten)\.")
GRAPH = "graph"  # the world of MindSpore and CANN
# Worlds of which a backward pass does not show the loss that it starts from.
STAGED = frozenset({GRAPH, TENSORFLOW})
_FRAMEWORKS = {"mindspore": GRAPH, "pytorch": "torch", JAX: JAX}
# Worlds that are so unlike others that no call need have a partner: held against them by what the
# programs hold alike.
APART = frozenset({JAX, ONNX})
_GRADIENT, _BIAS_GRADIENT = "convolution_backward", "biasaddgrad"
_BATCH_NORM, _MOVING, _TRAINING = (
    "native_batch_norm",
    3,
    5,
)  # places among its arguments: the first moving average, whether it trains


class Lowered(msgspec.Struct, frozen=True):
    """A side in common words; groups holds, for calls that stand for several, the places of all of
    them in the side it came from.
    """

    side: Side
    flow: Flow
    groups: dict[int, tuple[int, ...]]


@lru_cache(maxsize=8192)
def world(op: str) -> str:
    """Whose spelling an operator has: "torch", "graph" (MindSpore, CANN), "onnx", "jax", "tf", or
    "" for none of them.
    """
    if namespace(op) in NAMESPACED:
        return namespace(op)
    if _TORCH.match(op):
        return "torch"
    return GRAPH if _CAMEL.fullmatch(op) else ""


def foreign(target: Side, golden: Side) -> bool:
    """Whether two runs come from different frameworks, by how their operators are spelt."""
    worlds = spelling(target), spelling(golden)
    return not APART & set(worlds) and "" not in worlds and worlds[0] != worlds[1]


def worlds_apart(target: Side, golden: Side) -> bool:
    """Whether two runs that are held against each other call by call in their own words are spelt
    in two worlds: one of JAX, MindSpore or TensorFlow.
    """
    worlds = {spelling(target), spelling(golden)}
    return len(worlds) > 1 and bool(worlds & {JAX, *STAGED})


def spelling(side: Side) -> str:
    """Whose words most calls of a side bear, as world tells them; "" where that cannot be
    told. Also of a side made common.
    """
    side = side if side.base is None else side.base
    spelt = side.calls.leaf & (side.calls.level != MODULE)  # a module bears the name of its class
    framework = _FRAMEWORKS.get(
        str(side.run.info.config.get("framework"))
    )  # MindSpore's APIs look like PyTorch's in dumps of msprobe
    if framework is not None and spelt.any():
        return framework
    names, counts = np.unique(side.calls.op[spelt], return_counts=True)
    total: dict[str, int] = defaultdict(int)
    for name, count in zip(side.texts(names), counts.tolist(), strict=True):
        total[world(name)] += count
    most = max(total, key=lambda word: total[word], default="")
    return most if total and total[most] > _SHARE * sum(total.values()) else ""


def fused_words(side: Side) -> frozenset[str]:
    """Which of the products of a side carry their bias themselves: a third input of one
    dimension.
    """
    fused = set()
    draft = _Draft(side, None, str)
    for call in np.flatnonzero(side.calls.leaf).tolist():
        word = draft.words[call]
        if (
            traits_of(word).biased
            and len([row for row in draft.read(call) if not side.tensors.constant[row]]) > 2
        ):
            fused.add(word)
    return frozenset(fused)


def lowered(side: Side, flow: Flow, spell: Callable[[str], str], fused: frozenset[str]) -> Lowered:
    """The side in common words; fused are the products whose bias belongs to them."""
    draft = _Draft(side, flow, spell)
    draft.drop()
    draft.hand_on()
    draft.fuse_bias(fused)
    draft.fuse_gradients()
    draft.fuse_optimizer()
    return draft.finished()


class _Draft:
    """A side while calls are left out and put together: home is the call that each now belongs to,
    NONE once it is left out.
    """

    def __init__(self, side: Side, flow: Flow | None, spell: Callable[[str], str]) -> None:
        self.side = side
        calls, tensors = side.calls, side.tensors
        self.words = _worded(side, lambda op: kin(spell(op)))
        self.home = np.arange(len(calls))
        self.joined: dict[int, list[int]] = defaultdict(list)
        self.kept = ~tensors.constant
        self.first = np.searchsorted(tensors.call, np.arange(len(calls) + 1))
        if flow is not None:
            self.producer, self.source = flow.producer.copy(), flow.source_row.copy()
            self.flow = flow

    def rows(self, call: int) -> range:
        return range(int(self.first[call]), int(self.first[call + 1]))

    def read(self, call: int) -> list[int]:
        return [row for row in self.rows(call) if not self.side.tensors.output[row]]

    def written(self, call: int) -> list[int]:
        return [row for row in self.rows(call) if self.side.tensors.output[row]]

    # -- left out ----------------------------------------------------------------------------------

    def drop(self) -> None:
        """Leave out what computes nothing, by-products of what does, and the initialisation of
        parameters.
        """
        calls, tensors = self.side.calls, self.side.tensors
        parameters = set(tensors.storage[tensors.parameter & (tensors.storage >= 0)].tolist())
        roots = {key for key, word in self.side.words.items() if word == ""}
        writes = {key for key, word in self.side.words.items() if word and works_in_place(word)}
        forward = {key for key, word in self.side.words.items() if word == "forward"}
        for call in range(len(calls)):
            initial = (
                int(calls.module[call]) in roots
                and int(calls.op[call]) in writes
                and int(calls.phase[call]) in forward
            )
            made = initial and any(
                tensors.parameter[row] or int(tensors.storage[row]) in parameters
                for row in self.written(call)
            )
            if made or not calls.leaf[call] or traits_of(self.words[call]).dropped:
                self.home[call] = NONE
            elif traits_of(self.words[call]).by_products:
                self.kept[self.written(call)[1:]] = False
        self._drop_moving()
        gone = (
            (self.producer >= 0) & (self.home[np.maximum(self.producer, 0)] < 0)
            if len(self.home)
            else np.zeros(0, dtype=np.bool_)
        )
        self.producer[gone], self.source[gone] = NONE, NONE

    def _drop_moving(self) -> None:
        """Leave out what a batch norm in training writes: dumps taken after the call show that in
        what it read.
        """
        calls = np.array(
            [call for call in np.flatnonzero(self.home >= 0) if self.words[call] == _BATCH_NORM],
            dtype=np.int64,
        )
        known = (
            dict(rows_of_calls(self.side.run, np.unique(self.side.calls.key[calls]), "args"))
            if len(calls)
            else {}
        )
        for call in calls.tolist():
            if not _evaluates(known.get(int(self.side.calls.key[call]))):
                self.kept[self.read(call)[_MOVING:]] = False

    def hand_on(self) -> None:
        """Leave out calls that only hand on their first input, and connect their readers with
        whoever made it.
        """
        handed: dict[int, int] = {}
        for call in np.flatnonzero(self.home >= 0).tolist():
            if traits_of(self.words[call]).handed_on:
                inputs = [row for row in self.read(call) if self.kept[row]]
                if inputs:
                    handed[call] = inputs[0]
                    self.home[call] = NONE
        for row in np.flatnonzero(self.producer >= 0).tolist():
            seen = 0
            while int(self.producer[row]) in handed and seen <= len(handed):
                above = handed[int(self.producer[row])]
                self.producer[row], self.source[row], seen = (
                    self.producer[above],
                    self.source[above],
                    seen + 1,
                )

    # -- put together ------------------------------------------------------------------------------

    def fuse_bias(self, fused: Iterable[str]) -> None:
        """A product and the addition of a bias behind it, where nothing else reads the product."""
        readers = self._readers()
        tensors, wanted = self.side.tensors, set(fused)
        for call in np.flatnonzero(self.home >= 0).tolist():
            if (
                self.words[call] not in wanted
                or len([row for row in self.read(call) if self.kept[row]]) != 2
            ):
                continue
            after = readers.get(call, [])
            if len(after) != 1 or self.words[int(tensors.call[after[0]])] != "add":
                continue
            addition = int(tensors.call[after[0]])
            inputs, outputs = (
                [row for row in self.read(addition) if self.kept[row]],
                self.written(call),
            )
            bias = [row for row in inputs if row != after[0]]
            if len(bias) == 1 and len(outputs) == 1 and self._is_bias(bias[0], outputs[0]):
                self.home[addition] = call
                self.kept[[outputs[0], after[0]]] = False

    def _is_bias(self, row: int, output: int) -> bool:
        """Whether a row is smaller than what it is added to, and no call of this run computed
        it.
        """
        tensors = self.side.tensors
        return 0 <= tensors.size[row] < tensors.size[output] and (
            self.producer[row] < 0 or bool(tensors.parameter[row])
        )

    def fuse_gradients(self) -> None:
        """The gradients of one convolution by input, weight and bias: they read the same gradient
        of its output.
        """
        first: dict[int, int] = {}
        for call in np.flatnonzero(self.home >= 0).tolist():
            if self.words[call] == _GRADIENT:
                for row in self.read(call):
                    if self.producer[row] >= 0 and self._is_gradient(int(self.producer[row])):
                        head = first.setdefault(int(self.source[row]), call)
                        self._join(call, head)
                        break
        for call in np.flatnonzero(self.home >= 0).tolist():
            if self.words[call] == "sum" and word_of(self.side.operator(call)) == _BIAS_GRADIENT:
                for row in self.read(call):
                    first_call = first.get(int(self.source[row])) if self.source[row] >= 0 else None
                    if first_call is not None and self.kept[row]:
                        self._join(call, first_call)

    def _is_gradient(self, call: int) -> bool:
        return self.side.words.get(int(self.side.calls.phase[call])) == "backward"

    def _join(self, call: int, head: int) -> None:
        """Make a call part of another; what both read is kept once."""
        if call == head:
            return
        tensors = self.side.tensors
        members = self.joined[head]
        read = [row for member in (head, *members) for row in self.read(member) if self.kept[row]]
        known = {int(tensors.version[row]) for row in read if tensors.version[row] >= 0}
        members.append(call)
        for row in self.read(call):
            if int(tensors.version[row]) in known:
                self.kept[row] = False
        self.home[call] = head

    def fuse_optimizer(self) -> None:
        """All that an optimizer computes in one step of one process: gradients in, parameters out,
        where its last call stands.

        Parameters and what it keeps from step to step are no inputs: dumps taken after a call show
        what it wrote in what it read.
        """
        calls, tensors = self.side.calls, self.side.tensors
        phases = [key for key, word in self.side.words.items() if word == "optimizer"]
        steps: dict[tuple[int, int], list[int]] = defaultdict(list)
        for call in np.flatnonzero(
            (self.home >= 0) & np.isin(calls.phase, np.array(phases, dtype=np.uint64))
        ).tolist():
            steps[int(calls.process[call]), int(calls.step[call])].append(call)
        written: dict[tuple[int, int], list[int]] = defaultdict(list)
        for (process, _), members in steps.items():
            head = next(filter(self._trains, reversed(members)), members[-1])
            linear = all(
                traits_of(self.words[call].removeprefix("_foreach_")).linear_update
                for call in members
            )
            self.home[members], self.words[head] = head, LINEAR_OPTIMIZER if linear else OPTIMIZER
            for name, row in self._updated(members).items():
                written[process, name].append(row)
        for row in np.flatnonzero(
            tensors.parameter & ~tensors.output & (tensors.named != 0) & (self.producer < 0)
        ).tolist():
            call = int(tensors.call[row])
            before = [
                other
                for other in written.get((int(calls.process[call]), int(tensors.named[row])), ())
                if tensors.call[other] < call
            ]
            if before and self.home[call] != self.home[tensors.call[before[-1]]]:
                self.source[row], self.producer[row] = before[-1], tensors.call[before[-1]]

    def _trains(self, call: int) -> bool:
        """Whether a call writes to a parameter: the last of a step may count it only."""
        return any(self.side.tensors.parameter[row] for row in self.written(call))

    def _updated(self, members: list[int]) -> dict[int, int]:
        """The last row of each parameter that calls write, by the hash of its name; all else that
        passes between them is left out.
        """
        tensors, inside, steps = self.side.tensors, set(members), self.side.calls.step
        last: dict[int, int] = {}
        for call in members:
            for row in self.written(call):
                name = int(tensors.named[row])
                telling = bool(tensors.parameter[row]) and name != 0
                self.kept[last.get(name, row) if telling else row] = False
                if telling:
                    self.kept[row] = True
                    last[name] = row
        for call in members:
            for row in self.read(call):
                made = int(self.producer[row])
                state = bool(tensors.parameter[row]) or (made >= 0 and steps[made] != steps[call])
                if made in inside or state:
                    self.kept[row] = False
        return last

    def _readers(self) -> dict[int, list[int]]:
        """Rows of calls still here that read what a call wrote."""
        readers: dict[int, list[int]] = defaultdict(list)
        tensors = self.side.tensors
        here = (self.producer >= 0) & self.kept & (self.home[tensors.call] >= 0)
        for row in np.flatnonzero(here).tolist():
            readers[int(self.producer[row])].append(row)
        return readers

    # -- done --------------------------------------------------------------------------------------

    def finished(self) -> Lowered:
        """The columns that are left, calls in their order, tensors by the calls they now belong
        to.
        """
        calls, tensors = self.side.calls, self.side.tensors
        heads = np.flatnonzero(self.home == np.arange(len(calls)))
        number = np.full(len(calls) + 1, NONE)
        number[heads] = np.arange(len(heads))
        owner = number[self.home[tensors.call]] if len(tensors) else np.zeros(0, dtype=np.int64)
        rows = np.flatnonzero(self.kept & (owner >= 0))
        rows = rows[np.argsort(owner[rows], kind="stable")]
        row_number = np.full(len(tensors) + 1, NONE)
        row_number[rows] = np.arange(len(rows))
        words = dict(self.side.words)
        codes = np.array(
            [_code(words, self.words[call]) for call in heads.tolist()], dtype=np.uint64
        )
        nothing = np.zeros(len(heads), dtype=np.uint64)
        columns = {name: getattr(calls, name)[heads] for name in calls.__struct_fields__}
        new = msgspec.structs.replace(calls, **{**columns, "op": codes, "args": nothing})
        tensor_columns = {name: getattr(tensors, name)[rows] for name in tensors.__struct_fields__}
        flat = {
            "slot": np.zeros(len(rows), dtype=np.uint64),
            "shape": tensor_columns["sorted_shape"],
        }
        table = msgspec.structs.replace(tensors, **{**tensor_columns, **flat, "call": owner[rows]})
        producer = self.producer[rows]
        made = np.where(producer >= 0, number[self.home[np.maximum(producer, 0)]], NONE)
        source = np.where(made >= 0, row_number[np.maximum(self.source[rows], 0)], NONE)
        flow = Flow(
            np.where(source >= 0, made, NONE), source, self.flow.state[rows], self.flow.whole[rows]
        )
        groups: dict[int, list[int]] = defaultdict(list)
        for call in np.flatnonzero(
            (self.home >= 0) & (self.home != np.arange(len(calls)))
        ).tolist():
            groups[int(number[self.home[call]])].append(call)
        named = {head: (int(heads[head]), *others) for head, others in groups.items()}
        return Lowered(
            Side(self.side.run, new, table, words, base=self.side, places=rows), flow, named
        )


def _evaluates(text: str | None) -> bool:
    """Whether the arguments of a batch norm (column args) say that it does not train."""
    positional, named = given_arguments(text)
    if named.get("is_training") is not None:
        return named["is_training"] is False
    return len(positional) > _TRAINING and positional[_TRAINING] is False


def _code(words: dict[int, str], word: str) -> int:
    code = hash(word) & 0xFFFFFFFFFFFFFFFF
    words[code] = word
    return code


def _worded(side: Side, spell: Callable[[str], str]) -> list[str]:
    """The common word of each call."""
    names, inverse = np.unique(side.calls.op, return_inverse=True)
    spelt = [spell(text) for text in side.texts(names)]
    return [spelt[number] for number in inverse.tolist()]
