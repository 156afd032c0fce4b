# SPDX-License-Identifier: Apache-2.0
"""What the recorder must know of an operator overload, read from its schema."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from opscope.judge.operators import HANDS_ON, is_overwritten, is_workspace
from opscope.kernels.calls import Operator
from opscope.operators.catalogue import traits_of
from opscope.operators.spelling import in_place
from opscope.substitute.schema import written_arguments

# Keys that the operators go through which these kernels call, and the device whose autocast has to
# be on: the first conjugates lazily inside itself, the product of the second follows autocast
# (torch 2.13, the only two of all that its operator database samples whose results differ by more
# than last digits); the last two are handed tensors of zeros without memory, as derivatives of
# derivatives are, and call what would read it.
CALLED_THROUGH: dict[str, dict[str, str | None]] = {
    "aten::linalg_pinv": {"Conjugate": None, "Negative": None},
    "aten::_trilinear": {"AutocastCPU": "cpu", "AutocastCUDA": "cuda"},
    "aten::mul.Scalar": {"ZeroTensor": None},
    "aten::add.Scalar": {"ZeroTensor": None},
}


COMMUNICATION = frozenset({"c10d", "_c10d_functional", "_c10d_functional_autograd"})

# What functional collectives fill, at the latest while they are waited for, where their schemas do
# not say so. It is no trait `writes`, by which a wait would count as a call in place.
RECEIVING = {
    "irecv": frozenset({"0"}),
    "batch_p2p_ops": frozenset({"3"}),
    "wait_tensor": frozenset({"0"}),
}


def exchanged(namespace: str, short: str, marked: frozenset[str]) -> frozenset[str]:
    """Slots that a collective writes, now or until it has been waited for."""
    if namespace == "c10d":  # whose schemas mark nothing: by its name, but for what only waits
        writes = in_place(short) and short != "monitored_barrier_"
        return frozenset({"0"}) if writes else frozenset()
    return RECEIVING.get(short, marked)


@functools.cache
def describe(func: Any) -> Operator:
    """Facts of one operator: name `namespace::name.overload`, the arguments it writes, and its
    family.
    """
    schema = getattr(func, "_schema", None)
    if isinstance(getattr(func, "operator", None), Operator):  # a graph that torch.compile made
        return func.operator  # type: ignore[no-any-return]
    if schema is None:  # a higher-order operator
        return Operator(
            op=f"higher_order::{getattr(func, '__name__', func)}",
            short=str(getattr(func, "__name__", "call")),
        )
    namespace, _, short = schema.name.partition("::")
    overload = schema.overload_name or "default"
    writes = written_arguments(schema)
    collective = namespace in COMMUNICATION
    if collective:
        writes = exchanged(namespace, short, writes)
    known, alone = traits_of(schema.name), traits_of(schema.name.replace("::_foreach_", "::"))
    bound = (known.bound or alone.bound or None) if writes and namespace == "aten" else None
    out_variant = (
        bool(writes) and not short.endswith("_") and all(w.startswith("kwargs.") for w in writes)
    )
    return Operator(
        op=f"{schema.name}.{overload}",
        short=short,
        writes=writes,
        allocator=known.allocates,
        collective=collective,
        watched=known.watched,
        hidden=namespace in {"profiler", "prim"},
        signal=short == "_amp_update_scale_",
        bound="overwritten" if out_variant else bound,
        random=torch.Tag.nondeterministic_seeded in getattr(func, "tags", ()),
        workspace=is_workspace(schema.name, "uint8"),
        begins=collective and short not in HANDS_ON,
        functional=collective and namespace != "c10d",
        awaits=collective and short == "wait_tensor",
        filled=frozenset(slot for slot in writes if is_overwritten(schema.name, slot)),
        asks=mask_of_outputs(schema),
        unscaled=unscaled_gradients(schema),
        computes=not (known.view or known.moves or known.predicate or known.allocates),
    )


def gives_tensors(func: Any, operator: Operator) -> bool:
    """Whether a call gives or writes tensors, by its schema; False where it has none."""
    schema = getattr(func, "_schema", None)
    return schema is not None and bool(
        operator.writes or any("Tensor" in str(each.type) for each in schema.returns)
    )


def unscaled_gradients(schema: Any) -> int | None:
    """Position of the gradients that a fused optimizer writes to where it is given `grad_scale`,
    and only there.
    """
    names = [argument.name for argument in schema.arguments]
    fused = schema.name.startswith("aten::_fused_") and {"grads", "grad_scale"} <= {*names}
    return names.index("grads") if fused else None


def mask_of_outputs(schema: Any) -> int | None:
    """Position of the argument that says which outputs are wanted; None where all always are.

    Of torch 2.13's operators that take a list of bools the others are told how to add
    (`use_fast_accum`).
    """
    masks = (
        position
        for position, each in enumerate(schema.arguments)
        if str(each.type) == "List[bool]" and each.name.endswith("mask")
    )
    return next(masks, None) if len(schema.returns) > 1 else None


@functools.cache
def tensor_arguments(func: Any) -> frozenset[int]:
    """Positions of the arguments that are tensors, or that may be none."""
    schema = getattr(func, "_schema", None)
    if schema is None:
        return frozenset()
    return frozenset(
        position
        for position, each in enumerate(schema.arguments)
        if str(each.type) in {"Tensor", "Optional[Tensor]"}
    )


@functools.cache
def takes_tensors(func: Any) -> frozenset[int]:
    """Positions of the arguments that have to be tensors; the operators that also take numbers for
    them have none.
    """
    schema = getattr(func, "_schema", None)
    if schema is None or torch._C._should_allow_numbers_as_tensors(
        schema.name.rpartition("::")[2].removesuffix("_")
    ):
        return frozenset()
    return tensor_arguments(func)


def autocast_above(device: str) -> bool:
    """Whether autocast is on for a device where the program made the call that a mode is handling:
    below the mode it never is.
    """
    restored = getattr(torch._C, "_RestorePythonTLSSnapshot", None)
    if restored is not None:
        # an error where no mode is handling a call
        with contextlib.suppress(RuntimeError), restored():
            return torch.is_autocast_enabled(device)
    return torch.is_autocast_enabled(device)


def straight(func: Any, args: Sequence[Any]) -> Callable[..., Any] | None:
    """What hands a call to the dispatcher without a word to those who listen to functions, as code
    in C++ does.

    A kernel in Python runs as it does bare, its functions heard. None where only func itself can
    make the call: numbers in the place of tensors, keys that `unhindered` gives back.
    """
    if not hasattr(func, "_schema"):
        return func  # type: ignore[no-any-return] # of higher order: Python itself made the call
    if any(
        isinstance(args[position], (int, float, complex))
        for position in tensor_arguments(func)
        if position < len(args)
    ):
        return None
    return dispatching(func) if unhindered(func) is func else None


@functools.cache
def dispatching(func: Any) -> Callable[..., Any] | None:
    """The dispatcher's own function for an operator; None for those of scripts alone
    (prim::device).
    """
    call = getattr(torch._C, "_dispatch_call_boxed", None)
    with contextlib.suppress(RuntimeError):
        return functools.partial(call, func._handle) if call is not None else None
    return None


@functools.cache
def unhindered(func: Any) -> Callable[..., Any]:
    """What makes a call below a dispatch mode as it is made without one: func itself for nearly
    every operator.

    torch keeps these keys from whatever a kernel calls below a mode: complex linalg_pinv, and
    bilinear under autocast, then give other values.
    """
    guard = getattr(torch._C, "_ForceDispatchKeyGuard", None)
    schema = getattr(func, "_schema", None)
    name, overload = (schema.name, schema.overload_name) if schema is not None else ("", "")
    withheld = CALLED_THROUGH.get(f"{name}.{overload}", CALLED_THROUGH.get(name))
    if guard is None or withheld is None:
        return func  # type: ignore[no-any-return]

    def call(*args: Any, **kwargs: Any) -> Any:
        included, excluded = (
            torch._C._dispatch_tls_local_include_set(),
            torch._C._dispatch_tls_local_exclude_set(),
        )
        for name, device in withheld.items():
            if device is None or autocast_above(device):
                excluded = excluded - torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, name))
        with guard(included, excluded):
            return func(*args, **kwargs)

    return call
