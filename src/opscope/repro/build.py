# SPDX-License-Identifier: Apache-2.0
"""A call of a run -> a case and the values it needs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from opscope.errors import MissingValueError, UsageError
from opscope.judge.terms import terms_of
from opscope.judge.tolerance import one_side, precision_of
from opscope.kernels import statistics
from opscope.kernels.calls import STATISTICS
from opscope.operators.spelling import JAX
from opscope.repro.arguments import (
    SLOT,
    checked_device,
    parse_arguments,
    parse_operator,
    random_states,
    scalars,
    tensor_slots,
)
from opscope.repro.buffers import Placed, kept_shape, place
from opscope.repro.case import Allowed, Buffer, Case, CaseOutput, CaseTensor, Failure, Randomness
from opscope.repro.failure import arrived_unsound, failure_of, told_by_run
from opscope.repro.rows import argument_text, borrow_values, operators_inside, same_elements
from opscope.repro.synthesis import synthesise
from opscope.repro.tensorfile import Entry
from opscope.run.dtypes import dtype_of, find_dtype
from opscope.run.query import tensors_of
from opscope.run.schema import Tensor

if TYPE_CHECKING:
    from opscope.arrays import Array
    from opscope.run.protocol import Run
    from opscope.run.schema import Call

# Variables that change what an operator computes or how errors surface; others may tell about the
# machine's owner.
ENVIRONMENT = (
    "TORCH",
    "PYTORCH",
    "ATEN",
    "CUDA",
    "CUBLAS",
    "NVIDIA_TF32",
    "ASCEND",
    "NPU",
    "OMP",
    "MKL",
    "ONEDNN",
    "DNNL",
    "KMP",
)
ASKED = ("float64", "float32", "float16", "bfloat16")
COLLECTIVES = frozenset(
    {"c10d", "_c10d_functional", "_c10d_functional_autograd", "c10d_functional"}
)


class Material(msgspec.Struct, frozen=True):
    """A case with the entries of its two tensor files, whose values are read from the run when they
    are written.
    """

    case: Case
    inputs: tuple[Entry, ...]
    expected: tuple[Entry, ...]


class Filled(msgspec.Struct, frozen=True):
    """Where an input's elements come from: see CaseTensor.values."""

    values: str
    entry: Entry | None


def build(run: Run, call: Call, *, device: str | None = None, dtype: str | None = None) -> Material:
    """The case of one operator call of torch's dispatcher.

    device and dtype are what the script uses unless told otherwise. Raises UsageError when the call
    cannot be made again (not an operator, an argument that is an object, a tensor of unknown shape
    or private class) and MissingValueError when an input has neither values nor statistics; both
    say why.
    """
    _check_callable(run, call)
    return assemble(run, call, form="torch", device=device, dtype=dtype)


def assemble(
    run: Run, call: Call, *, form: str, device: str | None = None, dtype: str | None = None
) -> Material:
    """The case of a call in a form that can make it again; raises as build does."""
    rebuilt = rebuild(run, call)
    tree, inputs, outputs, placed, filled = (
        rebuilt.tree,
        rebuilt.inputs,
        rebuilt.outputs,
        rebuilt.placed,
        rebuilt.filled,
    )
    expected = [
        Entry(
            key=row.slot,
            dtype=dtype_of(row.dtype),
            shape=row.shape,
            load=_loader(run, row, row.shape),
        )
        for row in outputs
        if row.shape is not None and _dense(row) and _kept(run, row)
    ]
    kept = {entry.key for entry in expected}
    states = _generator_states(run, call)
    case = Case(
        form=form,
        op=call.op,
        call=call.name,
        rank=call.rank,
        step=call.step,
        index=call.index,
        phase=call.phase,
        module=call.module,
        source=call.source,
        device=_device(call, inputs, outputs),
        args=tree,
        buffers=rebuilt.buffers,
        run_on=None if device is None else checked_device(device),
        run_as=None if dtype is None else dtype_of(dtype).name,
        tensors=tuple(_tensor(row, placed[row.slot], filled[row.slot]) for row in inputs),
        outputs=tuple(
            _output(row, key=row.slot if row.slot in kept else None)
            for row in outputs
            if row.shape is not None
        ),
        random=Randomness(states={name: entry.key for name, entry in states.items()}),
        failure=_of_these_inputs(
            told_by_run(run, call, failure_of(call, inputs, outputs, scalars(tree))), filled
        ),
        flags={"deterministic": True} if run.info.deterministic else {},
        environment=_environment(run),
        warnings=(*rebuilt.warnings, *(_lost_strides(inputs) if form == "torch" else ())),
        allowed=_allowed(call, inputs, outputs),
    )
    entries = {item.entry.key: item.entry for item in filled.values() if item.entry is not None}
    return Material(case, (*entries.values(), *states.values()), tuple(expected))


def _of_these_inputs(failure: Failure, filled: Mapping[str, Filled]) -> Failure:
    """The failure without witnesses where inputs are invented (of unset ones none is)."""
    if not any(item.values == "synthesised" for item in filled.values()):
        return failure
    return msgspec.structs.replace(failure, witnesses=())


def allowances(op: str, *, terms: int, types: Iterable[str]) -> dict[str, Allowed]:
    """What an operator's results may err, in these element types and those that a script may be
    asked for.
    """
    known = [name for name in dict.fromkeys([*types, *ASKED]) if precision_of(name) is not None]
    rules = {name: one_side(op, name, terms=terms) for name in known}
    return {
        name: Allowed(
            absolute=rule.absolute, relative=rule.relative, scaled=rule.scaled, own=rule.own
        )
        for name, rule in rules.items()
        if rule.judged
    }


def _allowed(call: Call, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> dict[str, Allowed]:
    before, after = (
        [row.shape for row in rows if row.shape is not None] for rows in (inputs, outputs)
    )
    return allowances(
        call.op, terms=terms_of(call.op, before, after), types=[row.dtype for row in outputs]
    )


def _generator_states(run: Run, call: Call) -> dict[str, Entry]:
    """Generator states before the call, where the run kept them and still has them."""
    states = {}
    for name, (ref, size) in random_states(call.args).items():
        row = Tensor(
            process=call.process,
            index=call.index,
            io="input",
            slot=name,
            dtype="uint8",
            shape=(size,),
            stride=(1,),
            offset=0,
            value=ref,
        )
        if _kept(run, row):
            states[name] = Entry(
                key=f"random.{name}",
                dtype=dtype_of("uint8"),
                shape=(size,),
                load=_loader(run, row, (size,)),
            )
    return states


class Rebuilt(msgspec.Struct, frozen=True, kw_only=True):
    """What a call needs to be made again: its argument tree, its tensors in their memories, and
    where their values are from.
    """

    tree: dict[str, Any]
    inputs: list[Tensor]
    outputs: list[Tensor]
    buffers: dict[str, Buffer]
    placed: dict[str, Placed]
    filled: dict[str, Filled]
    warnings: tuple[str, ...] = ()


def rebuild(run: Run, call: Call) -> Rebuilt:
    """Arguments and tensors of a call of any level; UsageError and MissingValueError as build
    raises them.
    """
    tree = parse_arguments(argument_text(run, call), call=call.name)
    rows = tensors_of(run, call)
    inputs = borrow_values(
        run, _inputs(call, [row for row in rows if row.io == "input"], tensor_slots(tree))
    )
    buffers, placed, warnings = place(inputs)
    filled = _fill_all(run, inputs, placed)
    return Rebuilt(
        tree=tree,
        inputs=inputs,
        outputs=_outputs(rows),
        buffers=buffers,
        placed=placed,
        filled=filled,
        warnings=(*warnings, *_warnings(inputs, filled)),
    )


def _check_callable(run: Run, call: Call) -> None:
    if call.level != "operator":
        inner = operators_inside(run, call)
        named = f": try {', '.join(map(repr, inner))}" if inner else ""
        raise UsageError(
            f"{call.name} is a call of level {call.level}; only single operators can be cut "
            f"out{named}"
        )
    namespace, _, _ = parse_operator(call.op)
    if namespace in COLLECTIVES:
        raise UsageError(
            f"{call.name}: {call.op} needs a process group, which a script of one process "
            "cannot rebuild"
        )
    if namespace == JAX:
        raise UsageError(f"{call.name}: {call.op} is a primitive of JAX, which no script calls yet")


def _inputs(call: Call, rows: Sequence[Tensor], slots: Iterable[str]) -> list[Tensor]:
    """The input rows of the slots a call needs, each fit to be rebuilt."""
    by_slot = {row.slot: row for row in rows}
    fit = []
    for slot in dict.fromkeys(slots):
        row = by_slot.get(slot)
        if row is None:
            raise UsageError(
                f"{call.name}: its input {slot} was not recorded; record again with --io both"
            )
        reason = _unfit(row)
        if reason is not None:
            raise UsageError(f"{call.name}: input {slot} {reason}, so the call cannot be rebuilt")
        fit.append(row)
    return fit


def _outputs(rows: Iterable[Tensor]) -> list[Tensor]:
    """Output rows, one a slot: an argument written beside the results may carry the slot of one of
    them, and comes later.
    """
    by_slot: dict[str, Tensor] = {}
    for row in rows:
        if row.io == "output" and SLOT.fullmatch(row.slot):
            by_slot.setdefault(row.slot, row)
    return list(by_slot.values())


def _unfit(row: Tensor) -> str | None:
    dtype = find_dtype(row.dtype)
    if row.shape is None or dtype is None:
        return (
            "has no recorded shape"
            if row.shape is None
            else f"has the unknown element type {row.dtype!r}"
        )
    if dtype.numpy is None or dtype.name.startswith(("q", "string")):
        return f"is of type {dtype.name}, whose values opscope does not keep"
    if row.tensor_class not in {None, "", "Tensor", "Parameter"}:
        return f"is a {row.tensor_class!r}"
    if (row.layout or "strided").startswith(("sparse", "nested", "jagged", "_mkldnn")):
        return f"has the layout {row.layout}"
    return "is a meta tensor without values" if row.device == "meta" else None


def _dense(row: Tensor) -> bool:
    dtype = find_dtype(row.dtype)
    return dtype is not None and dtype.numpy is not None and (row.layout or "strided") == "strided"


def _fill_all(run: Run, rows: Iterable[Tensor], placed: dict[str, Placed]) -> dict[str, Filled]:
    """What fills each input; rows that look at the same elements in the same way share an entry."""
    filled: dict[str, Filled] = {}
    seen: dict[object, Filled] = {}
    for row in rows:
        place_of = (row.slot,) if row.storage is None else same_elements(row)
        if place_of not in seen:
            seen[place_of] = _fill(run, row, placed[row.slot])
        filled[row.slot] = seen[place_of]
    return filled


def _fill(run: Run, row: Tensor, placed: Placed) -> Filled:
    """Recorded values where they were kept, else values made from the statistics."""
    dtype, shape = dtype_of(row.dtype), row.shape or ()
    kept = kept_shape(shape, placed.stride)
    if math.prod(kept) == 0 or _kept(run, row):
        return Filled(
            "recorded", Entry(key=row.slot, dtype=dtype, shape=kept, load=_loader(run, row, kept))
        )
    if _uninitialised(run, row):
        return Filled("uninitialised", None)
    flat, exact = synthesise(row, math.prod(kept))
    return Filled(
        "exact" if exact else "synthesised",
        Entry(key=row.slot, dtype=dtype, shape=kept, load=lambda: flat.reshape(kept)),
    )


def _kept(run: Run, row: Tensor) -> bool:
    """Whether a row's values can be had: its shard may be gone with old steps."""
    try:
        return row.value is not None and run.value(row) is not None
    except MissingValueError:
        return False


def _uninitialised(run: Run, row: Tensor) -> bool:
    """opscope reads every tensor on the CPU, except memory that an allocator returned and nobody
    has written yet.
    """
    return (
        run.info.coverage.statistics
        and row.size is None
        and row.value is None
        and row.device == "cpu"
        and row.storage is not None
    )


def _loader(run: Run, row: Tensor, kept: tuple[int, ...]) -> Any:
    def load() -> Array:
        import numpy as np

        if row.shape is not None and 0 in row.shape:
            return np.empty(kept, dtype_of(row.dtype).to_numpy())
        values = run.value(row)
        if values.shape != row.shape:
            raise MissingValueError(
                f"{row.io} {row.slot}: the run holds shape {list(values.shape)}, its row says "
                f"{list(row.shape or ())}"
            )
        _hold_against(run, row, values)
        return values[tuple(slice(0, size) for size in kept)]  # dimensions of stride 0 once

    return load


def _hold_against(run: Run, row: Tensor, values: Array) -> None:
    """UsageError where saved values are not those that the statistics tell of; of other tools' runs
    only their NaN are counted.
    """
    if row.io != "input" or row.nan is None or row.partial or row.size != values.size:
        return
    exact = run.info.coverage.statistics
    known = (
        row
        if exact
        else Tensor(
            process=row.process,
            index=row.index,
            io=row.io,
            slot=row.slot,
            dtype=row.dtype,
            nan=row.nan,
        )
    )
    held = contradiction(known, values) if exact or values.dtype.kind not in "biu" else None
    if held is not None:
        raise UsageError(
            f"input {row.slot}: its statistics do not tell of what the run holds ({held}): "
            "its memory was written unseen in between, "
            "so the call cannot be rebuilt"
        )


def _tensor(row: Tensor, placed: Placed, filled: Filled) -> CaseTensor:
    shape = row.shape or ()
    return CaseTensor(
        slot=row.slot,
        dtype=dtype_of(row.dtype).name,
        shape=shape,
        stride=placed.stride,
        offset=placed.offset,
        buffer=placed.buffer,
        device=_device_name(row),
        key=None if filled.entry is None else filled.entry.key,
        kept=kept_shape(shape, placed.stride),
        values=filled.values,
        requires_grad=bool(row.requires_grad),
        layout=row.layout,
        role=row.role,
        tensor_name=row.tensor_name,
        stats=statistics_of(row),
    )


def _output(row: Tensor, *, key: str | None) -> CaseOutput:
    return CaseOutput(
        slot=row.slot,
        dtype=row.dtype,
        shape=row.shape or (),
        device=_device_name(row),
        key=key,
        stats=statistics_of(row),
    )


def statistics_of(row: Tensor) -> dict[str, Any]:
    """The statistics of a row that are not null, by column."""
    return {name: getattr(row, name) for name in STATISTICS if getattr(row, name) is not None}


def _device_name(row: Tensor) -> str:
    return checked_device(row.device or "cpu")


def _device(call: Call, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> str:
    """Where the call ran: an accelerator when any of its tensors lay there."""
    seen = [call.device, *(row.device for row in (*outputs, *inputs))]
    named = [checked_device(device) for device in seen if device]
    return next(
        (device for device in named if device not in {"cpu", "meta"}), named[0] if named else "cpu"
    )


def _environment(run: Run) -> dict[str, Any]:
    info = run.info
    packages = {str(name): str(version) for name, version in info.packages.items()}
    chosen = {
        str(name): str(value)
        for name, value in info.environment.items()
        if name.startswith(ENVIRONMENT)
    }
    return {
        "packages": packages,
        "variables": chosen,
        "seed": info.seed,
        "run_format": info.format,
        "opscope": info.version,
    }


def _warnings(inputs: Sequence[Tensor], filled: dict[str, Filled]) -> list[str]:
    said = []
    invented = [slot for slot, item in filled.items() if item.values == "synthesised"]
    if invented:
        said.append(
            f"values of input {', '.join(invented)} were not kept: they are SYNTHESISED from "
            "statistics, positions and "
            "correlations are invented; a failure that does not show proves nothing"
        )
    blank = [slot for slot, item in filled.items() if item.values == "uninitialised"]
    if blank:
        said.append(f"input {', '.join(blank)} was uninitialised memory; here it is zeros")
    unsound = arrived_unsound(inputs)
    if unsound:
        said.append(
            f"input {', '.join(unsound)} held NaN or inf already: this call may only pass them on"
        )
    private = [row.slot for row in inputs if row.layout not in {None, "strided"}]
    if private:
        said.append(
            f"conditions differ: input {', '.join(private)} had a private device format; an "
            "NPU casts it back, elsewhere it is strided"
        )
    return said


def _lost_strides(inputs: Sequence[Tensor]) -> list[str]:
    """What is said of tensors that may have lain in memory in another order than C's."""
    lost = [
        row.slot
        for row in inputs
        if row.stride is None and sum(size > 1 for size in row.shape or ()) > 1
    ]
    return (
        [
            (
                f"conditions differ: strides of input {', '.join(lost)} were not recorded; here C "
                "order is taken"
            )
        ]
        if lost
        else []
    )


# Whether saved values are those that the statistics of their row tell of: memory may have been
# written unseen in between.

COUNTS = {
    "nan": "NaN",
    "pos_inf": "+Inf",
    "neg_inf": "-Inf",
    "zero": "zeros",
    "neg": "negative elements",
    "pos": "positive elements",
}
INTEGERS = {"min_int": "smallest", "max_int": "largest"}
MOMENTS = {"min": "smallest", "max": "largest", "mean": "mean", "l2norm": "norm"}
CLOSE = 1e-3  # an accelerator sums in float32


def contradiction(row: Tensor, values: Array) -> str | None:
    """How values contradict the statistics of the row they were stored for, in words; None where
    they do not.

    A digest that is the same decides; one that is not, or any other statistic that both have,
    contradicts: counts and integers where they differ at all, the rest beyond 0.001 of the largest
    magnitude. Values of other tools are in types and by rules of their own: what is held against
    them is the caller's choice.
    """
    try:
        held = statistics(values)
    except TypeError:
        return None  # no numbers
    if row.digest is not None and row.digest == held.digest:
        return None
    for name, words in (COUNTS | INTEGERS).items():
        mine, told = getattr(held, name), getattr(row, name)
        if mine is not None and told is not None and mine != told:
            return f"{words}: {mine}" if name in INTEGERS else f"{mine} {words}"
    largest = max(
        abs(bound) for bound in (row.min or 0.0, row.max or 0.0, held.min or 0.0, held.max or 0.0)
    )
    for name, words in MOMENTS.items():
        mine, told = getattr(held, name), getattr(row, name)
        reach = CLOSE * max(largest, abs(told or 0.0))
        if mine is not None and told is not None and not abs(mine - told) <= reach:
            return f"{words}: {mine:.6g}"
    return "other bits" if row.digest is not None and held.digest is not None else None
