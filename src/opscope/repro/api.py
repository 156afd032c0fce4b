# SPDX-License-Identifier: Apache-2.0
"""A call at the level of the API: the function that a user calls, followed by its backward pass."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from opscope.errors import UsageError
from opscope.operators.catalogue import traits_of
from opscope.operators.spelling import in_place
from opscope.repro.arguments import node_code, parse_operator
from opscope.repro.buffers import kept_shape
from opscope.repro.build import Material, allowances, build
from opscope.repro.case import Allowed, Buffer, Case, CaseOutput, CaseTensor, Failure
from opscope.repro.rows import judged
from opscope.repro.tensorfile import Entry
from opscope.run.dtypes import dtype_of
from opscope.run.query import call_at
from opscope.run.schema import dense_strides

if TYPE_CHECKING:
    from opscope.run.protocol import Run
    from opscope.run.schema import Call

F = "torch.nn.functional"
# Operator -> the user's function, and which of the operator's arguments it takes, in its own order.
FUNCTIONS: dict[str, tuple[str, tuple[int, ...]]] = {
    "native_group_norm": ("torch.group_norm", (0, 6, 1, 2, 7)),
    "native_layer_norm": ("torch.layer_norm", (0, 1, 2, 3, 4)),
    "native_batch_norm": (f"{F}.batch_norm", (0, 3, 4, 1, 2, 5, 6, 7)),
    "_softmax": ("torch.softmax", (0, 1)),
    "_log_softmax": ("torch.log_softmax", (0, 1)),
    "max_pool2d_with_indices": ("torch.max_pool2d", (0, 1, 2, 3, 4, 5)),
    "embedding": (f"{F}.embedding", (1, 0)),
}
UPSTREAM = "upstream."


def api_code(op: str, tree: dict[str, Any]) -> str:
    """The call as a user writes it; an operator without a public function is called as it is,
    through autograd.
    """
    namespace, name, overload = parse_operator(op)
    nodes, named = list(tree["args"]), tree["kwargs"]
    target = f"torch.ops.{namespace}.{name}.{overload}"
    if namespace == "aten" and name in FUNCTIONS:
        target, places = FUNCTIONS[name]
        nodes = [nodes[position] for position in places if position < len(nodes)]
    elif namespace == "aten" and not in_place(op) and traits_of(op).public:
        target = f"torch.{name}"
    given = [node_code(node) for node in nodes] + [
        f"{key}={node_code(node)}" for key, node in named.items()
    ]
    return f"{target}({', '.join(given)})"


def build_api(
    run: Run, call: Call, *, device: str | None = None, dtype: str | None = None
) -> Material:
    """The case of the function that a call belongs to, its backward pass included; of a gradient
    that of its forward call.

    Raises as build does, and UsageError for a gradient whose forward call was not recorded.
    """
    forward = _forward(run, call)
    made = build(run, forward, device=device, dtype=dtype)
    failure = made.case.failure
    upstream: tuple[CaseTensor, Entry] | None = None
    if forward is not call:
        gradient = build(run, call)
        failure = _of_gradients(gradient.case.failure, made.case)
        upstream = _upstream(gradient, made.case)
    elif any(
        sample.gradient is not None
        for sample in judged(run, process=call.process, index=call.index)
    ):
        upstream = _drawn(made.case)
    rows = [
        msgspec.structs.replace(row, requires_grad=dtype_of(row.dtype).kind in {"float", "complex"})
        for row in made.case.tensors
    ]
    buffers, inputs = dict(made.case.buffers), list(made.inputs)
    if upstream is not None:
        row, entry = upstream
        rows.append(row)
        inputs.append(entry)
        buffers[row.buffer] = Buffer(size=max(1, _span(row)), dtype=row.dtype)
    case = msgspec.structs.replace(
        made.case,
        level="api",
        call=call.name,
        index=call.index,
        phase=call.phase,
        failure=failure,
        tensors=tuple(rows),
        buffers=buffers,
        source=call.source or made.case.source,
        outputs=_outputs(made.case),
        allowed=_allowed(rows),
    )
    return Material(
        case,
        tuple(inputs),
        tuple(entry for entry in made.expected if entry.key in {row.key for row in case.outputs}),
    )


def _outputs(case: Case) -> tuple[CaseOutput, ...]:
    """Outputs of the function: one alone, where it hides what else its operator returns."""
    hides = parse_operator(case.op)[1] in FUNCTIONS
    return tuple(row for row in case.outputs if row.slot == "0" or not hides)


def _allowed(rows: Sequence[CaseTensor]) -> dict[str, Allowed]:
    """Of whatever formula: gradients add up as many terms as the longest dimension has."""
    longest = max((size for row in rows for size in row.shape), default=1)
    return allowances("", terms=longest, types=[row.dtype for row in rows])


def _forward(run: Run, call: Call) -> Call:
    if call.phase != "backward":
        return call
    forward = None if call.forward_index is None else call_at(run, call.process, call.forward_index)
    if forward is None:
        raise UsageError(f"{call.name}: its forward call was not recorded; leave --level api out")
    return forward


def _of_gradients(failure: Failure, forward: Case) -> Failure:
    """The failure of a gradient kernel, looked for in every gradient: which one an operator's
    output becomes is autograd's business.
    """
    if failure.kind not in {"nonfinite", "mismatch"}:
        return failure
    classes = tuple(dict.fromkeys(name for names in failure.outputs.values() for name in names))
    slots = [
        f"grad.{row.slot}"
        for row in forward.tensors
        if dtype_of(row.dtype).kind in {"float", "complex"}
    ]
    return msgspec.structs.replace(failure, outputs=dict.fromkeys(slots, classes), witnesses=())


def _upstream(gradient: Material, forward: Case) -> tuple[CaseTensor, Entry] | None:
    """What came down to the function's first output: the first input of its gradient kernel, where
    it has that output's shape.
    """
    first = next((row for row in forward.outputs if row.slot == "0"), None)
    row = next(
        (row for row in gradient.case.tensors if row.slot == "0" and row.key is not None), None
    )
    if (
        first is None
        or row is None
        or row.shape != first.shape
        or "backward" not in gradient.case.op
    ):
        return None
    entry = next(entry for entry in gradient.inputs if entry.key == row.key)
    slot = UPSTREAM + "0"
    return (
        msgspec.structs.replace(
            row, slot=slot, key=slot, buffer=slot, offset=0, requires_grad=False
        ),
        msgspec.structs.replace(entry, key=slot),
    )


def _drawn(forward: Case) -> tuple[CaseTensor, Entry] | None:
    """A drawn gradient for the function's first output: the sum's, ones, would hide what is wrong
    with some formulas.
    """
    row = next(
        (row for row in forward.outputs if row.slot == "0" and dtype_of(row.dtype).kind == "float"),
        None,
    )
    if row is None:
        return None
    slot, dtype = UPSTREAM + "0", dtype_of(row.dtype)

    def load() -> Any:
        import numpy as np

        from opscope.narrow import as_type

        return as_type(np.random.default_rng(0).standard_normal(row.shape), dtype.to_numpy())

    stride = dense_strides(row.shape)
    tensor = CaseTensor(
        slot=slot,
        dtype=dtype.name,
        shape=row.shape,
        stride=stride,
        offset=0,
        buffer=slot,
        device=row.device,
        key=slot,
        kept=kept_shape(row.shape, stride),
        values="exact",
    )
    return tensor, Entry(key=slot, dtype=dtype, shape=tensor.kept, load=load)


def _span(row: CaseTensor) -> int:
    return (
        1 + sum((size - 1) * step for size, step in zip(row.shape, row.stride, strict=True))
        if 0 not in row.shape
        else 0
    )
