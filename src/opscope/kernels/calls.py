# SPDX-License-Identifier: Apache-2.0
"""Records of the bookkeeping in plain Python: operators, tensors, versions, storages, calls in the
making.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from math import sqrt
from typing import Any

import msgspec

# of an uninitialised storage that are written apart from each other; beyond that it counts as
# written
MOST_PIECES = 64

Span = tuple[tuple[int, int], ...]

STATISTICS = (
    "size",
    "nan",
    "pos_inf",
    "neg_inf",
    "zero",
    "neg",
    "pos",
    "near_limit",
    "min",
    "max",
    "mean",
    "l2norm",
    "min_int",
    "max_int",
)
COUNTS = ("size", "nan", "pos_inf", "neg_inf", "zero", "neg", "pos", "near_limit")


@dataclass(frozen=True)
class Operator:
    """What the bookkeeper must know of one operator overload.

    filled: those of the arguments it writes whose content before the call cannot show in the
    result. asks: position of the argument that says which outputs are wanted. unscaled: position of
    the gradients that it writes to only where grad_scale is given. computes: it can make what is
    not finite of what is. Of collectives: begins says that outputs arrive later, functional that
    awaits (wait_tensor) tells when.
    """

    op: str
    short: str
    writes: frozenset[str] = frozenset()
    allocator: bool = False
    collective: bool = False
    watched: bool = False
    hidden: bool = False
    signal: bool = False
    bound: str | None = None
    random: bool = False
    workspace: bool = False
    begins: bool = False
    functional: bool = False
    awaits: bool = False
    filled: frozenset[str] = frozenset()
    asks: int | None = None
    unscaled: int | None = None
    computes: bool = False
    graph: bool = False  # a graph that torch.compile made


UNKNOWN = Operator(op="", short="")


class Facts(msgspec.Struct, frozen=True):
    """What is read of a tensor besides its memory; readable says whether its elements may be read
    on the host.

    data is where the elements of a readable tensor of a subclass lie, lazy whether the memory is
    not the elements as they are.
    uncounted: a tensor of inference mode, to which writes are not counted.
    Where logical is not None the tensor is composed: logical is its own shape, parts what it
    consists of besides its values, by name, and all else is of the values.
    """

    address: int
    offset: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: str
    device: str
    layout: str
    tensor_class: str | None
    requires_grad: bool
    counter: int
    readable: bool
    staged: bool = False
    item: int = 0
    data: int = 0
    lazy: bool = False
    uncounted: bool = False
    logical: tuple[int, ...] | None = None
    parts: tuple[tuple[str, Any], ...] = ()

    @property
    def extent(self) -> range:
        """The bytes of its storage from the first that it covers to the last; all where the size of
        its elements is not known.
        """
        if not self.item:
            return range(1 << 63)
        if 0 in self.shape:
            return range(0)
        last = sum(
            (size - 1) * stride for size, stride in zip(self.shape, self.stride, strict=False)
        )
        return range(self.offset * self.item, (self.offset + last + 1) * self.item)


@dataclass(frozen=True)
class Site:
    """Where in the program a call was made, resolved once for each distinct Python stack.

    source is the innermost line of the user's code that autograd's engine did not pass; outer the
    innermost at all.
    """

    stack: int | None
    source: str | None
    outer: str | None = None
    checkpoint: bool = False
    optimizer: bool = False
    gradient: bool = False
    closure: bool = False
    # made by code that torch.compile generated: what it fused rewrote memory that nobody saw
    compiled: bool = False
    api: str | None = None


@dataclass(eq=False)
class Version:
    """One state of some elements of a storage, and what was read of it."""

    number: int
    order: Span
    unread: bool = True
    statistics: Any = None
    value: tuple[str, str] | None = None


@dataclass(eq=False)
class Storage:
    """A storage that is held weakly: its number in the run, how often it was written, its versions
    in the present state.
    """

    number: int
    reference: Any
    counters: list[int] = field(default_factory=list)
    versions: dict[Any, Version] = field(default_factory=dict)
    uninitialised: bool = False
    made: list[range] = field(
        default_factory=list
    )  # bytes of an uninitialised storage that were written since
    awaited: int = 0  # outputs of collectives that have not arrived
    steady: int = 0  # compiled graphs that are running, read it and do not write to it
    role: str | None = None
    name: str | None = None

    def rewritten(self, *counters: int) -> None:
        """Something wrote to it: what was read of it no longer holds; autograd's counter has one of
        these values now.
        """
        self.versions.clear()
        self.counters = list(counters)

    def make(self, extent: range) -> None:
        """A call wrote these bytes: the others of an uninitialised storage hold what the memory
        held before.
        """
        if self.uninitialised:
            apart = [one for one in self.made if one.stop < extent.start or extent.stop < one.start]
            met = [one for one in self.made if one not in apart] + [extent]
            self.made = [*apart, range(min(one.start for one in met), max(one.stop for one in met))]
            self.uninitialised = len(self.made) <= MOST_PIECES

    def blank(self, extent: range) -> bool:
        """Whether some of these bytes were never written."""
        return self.uninitialised and not any(
            one.start <= extent.start and extent.stop <= one.stop for one in self.made
        )

    def blanked(self) -> None:
        """What it holds is nobody's from now on."""
        self.uninitialised, self.made = True, []


@dataclass(eq=False)
class Observed:
    """One tensor row in the making; statistics are filled in from its version when the row is
    handed over.
    """

    io: str
    slot: str
    tensor: Any
    facts: Facts
    storage: Storage | None
    version: Version | None
    copies: int
    order: Span
    value: tuple[str, str] | None = None
    arrived: bool = False  # NaN or +Inf that no recorded call made
    part: bool = False  # indices, sizes, scales of a composed tensor

    def statistics(self) -> dict[str, Any]:
        """Statistics of the logical elements: those of the version, times how often an expanded
        tensor repeats them.
        """
        known = self.version.statistics if self.version is not None else None
        if known is None:
            return {}
        columns = {name: getattr(known, name) for name in (*STATISTICS, "sample")}
        if self.copies != 1:
            columns.update(
                {name: columns[name] * self.copies for name in COUNTS if columns[name] is not None}
            )
            if columns["l2norm"] is not None:
                columns["l2norm"] *= sqrt(self.copies)
        if self.version is not None and self.copies == 1 and self.order == self.version.order:
            columns["digest"] = known.digest
        return columns


@dataclass(eq=False)
class Draft:
    """One call in the making."""

    index: int
    step: int
    level: str
    parent: int | None
    phase: str
    op: str
    module: str
    thread: int
    operator: Operator = UNKNOWN
    function: Any = None
    k: int = 0
    forward: Draft | None = None
    forward_index: int | None = None
    autograd: int | None = None
    site: Site | None = None
    args: str | None = None
    status: int | None = None
    error: str | None = None
    selected: bool = True
    sampled: bool = False
    inputs: list[Observed] = field(default_factory=list)
    outputs: list[Observed] = field(default_factory=list)
    before: dict[str, Any] = field(default_factory=dict)
    random: dict[str, Any] = field(default_factory=dict)  # generator states before the call
    unasked: frozenset[str] = frozenset()  # outputs that nobody wants
    kept: bool = False  # values were kept because the call is suspicious
    again: int | None = None  # the call of a compiled graph that this one executes again
    sequence: int = 0  # of a compiled graph: the first autograd node that it may have made

    @property
    def label(self) -> str:
        return (
            self.op.rpartition("::")[2].partition(".")[0]
            if self.level in {"operator", "graph"}
            else self.op.rpartition(".")[2]
        )

    @property
    def source(self) -> str | None:
        """The user's line: in backward the one inside a custom autograd function, else that of the
        forward call.
        """
        if self.site is None:
            return None
        if self.site.source is not None or self.phase != "backward":
            return self.site.source or self.site.outer
        if self.forward is not None:
            return self.forward.source
        return self.site.outer

    @property
    def name(self) -> str:
        return call_name(self.label, self.module, self.phase, self.k)


@dataclass(eq=False)
class Landing:
    """One output of a collective, whose version nobody else has before it has arrived."""

    storage: Storage
    key: Any
    version: Version | None
    tensor: Any
    extent: range


@dataclass(eq=False)
class Flight:
    """A collective whose outputs are being filled; its rows wait until it is known what came. work
    is None for functional ones.
    """

    work: Any
    step: int
    landings: list[Landing]
    draft: Draft | None = None
    futureless: bool = False

    def meets(self, storage: Storage, extent: range) -> bool:
        """Whether one of its outputs shares bytes with these."""
        return any(
            one.storage is storage
            and one.extent.start < extent.stop
            and extent.start < one.extent.stop
            for one in self.landings
        )


SUFFIX = {
    "forward": "",
    "backward": "~bwd",
    "optimizer": "~opt",
    "recompute": "~re",
    "communication": "~comm",
}


def call_name(label: str, module: str, phase: str, k: int) -> str:
    """The name of the k-th call of this kind in a step, `blocks.2.attn:bmm#1` (docs/schema.md,
    column name).
    """
    return f"{module or '<root>'}:{label}{SUFFIX[phase]}#{k}"


def forget_oldest(remembered: dict[Any, Any], *, most: int) -> None:
    """Drop the half that was put in first when there are more: a step that never ends must not fill
    memory.
    """
    if len(remembered) > most:
        for key in list(islice(remembered, len(remembered) // 2)):
            del remembered[key]


def covering(facts: Facts) -> tuple[Any, Span, int]:
    """Which elements a tensor covers, in what order, and how often each is repeated.

    Returns (key, order, copies): key is equal for two tensors of one storage exactly when they
    cover the same elements with the same type; order is equal when they also run through them in
    the same order.
    """
    copies, dims = 1, []
    for size, stride in zip(facts.shape, facts.stride, strict=True):
        if size == 1:
            continue
        if stride == 0:
            copies *= size
        else:
            dims.append((size, stride))
    return (
        (facts.offset, facts.dtype, merge(sorted(dims, key=lambda d: (-d[1], -d[0])))),
        merge(dims),
        copies,
    )


def merge(dims: Iterable[tuple[int, int]]) -> Span:
    """Join neighbouring dimensions that run through memory without a gap."""
    joined: list[tuple[int, int]] = []
    for size, stride in dims:
        if joined and joined[-1][1] == size * stride:
            joined[-1] = (joined[-1][0] * size, stride)
        else:
            joined.append((size, stride))
    return tuple(joined)


def base(tensor: Any) -> Any:
    """The elements of an expanded tensor, each once."""
    return tensor[tuple(slice(0, 1) if stride == 0 else slice(None) for stride in tensor.stride())]


def written(operator: Operator, slot: str) -> bool:
    """Whether a call of the operator writes to the tensor in that slot."""
    return writes_to(operator.writes, slot)


def writes_to(writes: frozenset[str], slot: str) -> bool:
    """Whether a tensor in this slot ("1.0" belongs to argument "1") is among what is written."""
    return head_of(slot) in writes


def declined(args: Sequence[Any], asks: int | None) -> frozenset[str]:
    """Outputs that a call does not ask for; asks is the position of the mask that has a place for
    each. A device may give memory for them that it has not written.
    """
    mask = args[asks] if asks is not None and asks < len(args) else None
    wanted = mask if isinstance(mask, list) else []
    return frozenset(str(output) for output, one in enumerate(wanted) if one is False)


def unasked(operator: Operator, args: Sequence[Any], kwargs: Mapping[str, Any]) -> frozenset[str]:
    """Outputs that a call does not ask for, and the gradients of a fused optimizer that is to scale
    none, and so writes to none.
    """
    scales = operator.unscaled is None or kwargs.get("grad_scale") is not None
    return declined(args, operator.asks) | frozenset(() if scales else (str(operator.unscaled),))


def opened(stacks: Mapping[int, Sequence[Draft]], thread: int) -> list[tuple[int, str]]:
    """(index, module) of calls that were entered and not left, those of this thread last."""
    ordered = sorted(stacks.items(), key=lambda entry: entry[0] == thread)
    return [(draft.index, draft.module) for _, stack in ordered for draft in stack]


def offer(recorder: Any, draft: Draft, *, made: bool = False) -> None:
    """Large tensors of devices that a call is about to compute with, or has made, by version: what
    they hold may be gone when it is known what it made of them.
    """
    if not recorder.offered_from or not draft.operator.computes:
        return
    given = [
        (seen.version.number, seen.tensor)
        for seen in (draft.outputs if made else draft.inputs)
        if seen.facts.staged
        and not seen.part
        and seen.version is not None
        and not seen.version.unread
        and seen.facts.extent.stop - seen.facts.extent.start >= recorder.offered_from
    ]
    if given:
        recorder.binding.offer(given, made)


def head_of(slot: str) -> str:
    """The argument that a slot belongs to: "1" of "1.0", "kwargs.out" of "kwargs.out.2"."""
    return ".".join(slot.split(".")[:2]) if slot.startswith("kwargs.") else slot.partition(".")[0]


def anomalous(draft: Draft) -> bool:
    """Whether outputs hold a kind of non-finite value that no input held, or NaN or +Inf arrived
    that no recorded call made.
    """
    return any(seen.arrived for seen in draft.inputs) or makes(draft)


def makes(draft: Draft) -> bool:
    """Whether outputs hold a kind of non-finite value that no input held."""
    return bool(kinds_made(draft.inputs, draft.outputs))


def kinds_made(inputs: list[Observed], outputs: list[Observed]) -> set[str]:
    """Kinds of non-finite values that outputs hold and no input held; none where NaN came in:
    whatever follows from it is no origin.
    """
    made = kinds_held(outputs)
    given = kinds_held(inputs) if made else made
    return set() if "nan" in given else made - given


def kinds_held(rows: Iterable[Observed]) -> set[str]:
    """Kinds of non-finite values that are known to be in these tensors."""
    known = [
        row.version.statistics
        for row in rows
        if row.version is not None and row.version.statistics is not None
    ]
    return {
        kind
        for kind in ("nan", "pos_inf", "neg_inf")
        for statistics in known
        if getattr(statistics, kind)
    }


def is_integer(dtype: str) -> bool:
    """Whether an element type is of the integers."""
    return dtype.startswith(("int", "uint"))


def accumulates_gradient(node: Any) -> bool:
    """Whether an autograd node hands a gradient to its parameter."""
    return type(node).__name__ == "AccumulateGrad"
