# SPDX-License-Identifier: Apache-2.0
"""Makes a call again on trusted substitutes and judges what the program's kernel gave.

The trusted kernel in the same element types comes first: bit for bit the same result needs no
further question, except that the first call of a signature is compared with the true result all the
same. The true result is the operator in float64, or its decomposition in float64 where the operator
knows no such type. Before anything is accused, the substitute itself is
tried: what it leaves uninitialised, or gives otherwise the second time, proves nothing. Where
outputs lie, in memory of the arguments or in their own, is held against the trusted kernel's.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from types import MappingProxyType

import msgspec
import torch

from opscope.judge.replayed import (
    BEYOND,
    EASE,
    NARROWLY,
    ROUNDOFF,
    Replayed,
    Sides,
    gravest,
    judge_output,
)
from opscope.kernels.calls import writes_to
from opscope.operators.catalogue import traits_of
from opscope.substitute.arguments import dtype_name, in_float32
from opscope.substitute.cpu import Cpu
from opscope.substitute.determined import QUANTITIES, judge_determined
from opscope.substitute.integers import judge_integers
from opscope.substitute.layout import GRADIENT, WRITTEN, Laid
from opscope.substitute.perform import Bound, Performed
from opscope.substitute.references import WITHOUT_FLOAT64, form_of
from opscope.substitute.schema import only_views
from opscope.substitute.shared import judge_shared
from opscope.substitute.terms import terms_of
from opscope.substitute.truth import (
    Attempt,
    as_array,
    magnitude,
    roundoff,
    seeded,
    slack,
    true_result,
    with_filled_memory,
)
from opscope.substitute.wider import Float64

CHANGED = "argument {} was changed, which the operator only reads by its schema"
NONE_LAID: Mapping[str, Laid] = MappingProxyType({})
COPY = "a copy, where the substitute's result shares memory with an argument, as its schema says"
SHARED = "it shares memory with an argument, where the substitute's result is new"
PLACES = "the view has other elements, another shape or type than the substitute's"


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict of a call, which substitutes took part, and the seconds it took."""

    verdict: Replayed
    substitute: str = ""
    seconds: float = 0.0
    outputs: tuple[Replayed, ...] = ()


def examine(
    bound: Bound,
    target: Mapping[str, torch.Tensor],
    *,
    outputs: Mapping[str, Laid] | None = None,
    thorough: bool = True,
    accumulation: float | None = None,
) -> Answer:
    """Judge a call's outputs by slot; outputs says where they lie, where that is to be judged as
    well.

    thorough compares with the true result even when the trusted kernel gives the same bits.
    accumulation is the unit roundoff that the program allows its products (TF32), None for that of
    the element type.
    """
    start = time.perf_counter()
    own = Attempt("cpu", lambda: seeded(bound))
    target = {
        slot: tensor
        for slot, tensor in target.items()
        if not encoded(bound, slot, tuple(tensor.shape), dtype_name(tensor), own)
    }
    apart = {slot for slot, tensor in target.items() if not same_bits(tensor, own.output(slot))}
    sharing = None if own.performed is None else judge_sharing(bound, outputs or {}, own.performed)
    if sharing is not None:
        return Answer(
            verdict=sharing,
            substitute="cpu",
            seconds=time.perf_counter() - start,
            outputs=(sharing,),
        )
    if not apart and not thorough:
        return Answer(
            verdict=Replayed(verdict="agree"), substitute="cpu", seconds=time.perf_counter() - start
        )
    true = true_result(bound) if bound.call.random is None else own
    if bound.name in QUANTITIES and apart:
        judged = judge_determined(bound, target, own.performed, true.performed)
    else:
        judged = [
            judge_slot(bound, slot, tensor, own=own, true=true, accumulation=accumulation)
            if slot in apart
            else judge_shared(bound, slot, tensor, true=true, accumulation=accumulation)
            for slot, tensor in target.items()
        ]
    verdict = gravest(judged)
    if verdict.verdict == "wrong":
        for form in other_forms(bound):
            other = examine(form, target, accumulation=accumulation)
            if other.verdict.verdict == "agree":
                return other
    if verdict.verdict == "wrong" and own.performed is not None:
        unsure = undefined(bound, verdict.slot, own)
        if unsure is not None:
            doubted = msgspec.structs.replace(verdict, verdict="unknown", reason=unsure)
            verdict = unless_told(bound, target[verdict.slot], doubted)
    named = "+".join(
        dict.fromkeys(attempt.name for attempt in (own, true) if attempt.performed is not None)
    )
    if verdict.verdict == "unknown" and not named:
        verdict = msgspec.structs.replace(verdict, reason=own.reason or true.reason)
    return Answer(
        verdict=verdict,
        substitute=named,
        seconds=time.perf_counter() - start,
        outputs=tuple(judged),
    )


def other_forms(bound: Bound) -> Iterator[Bound]:
    """The call in the forms that its device may compute whatever is asked for, that one without."""
    call, kinds = bound.call, devices(bound)
    form = form_of(call.op, kinds)
    if form is not None and form is not bound.func:
        yield Bound(call, bound.memories, form, bound.writes)
    args = in_float32(call.args)
    if kinds & WITHOUT_FLOAT64 and args != call.args:
        narrow = msgspec.structs.replace(call, args=args)
        yield Bound(narrow, bound.memories, bound.func, bound.writes)


def unless_told(bound: Bound, tensor: torch.Tensor, unsure: Replayed) -> Replayed:
    """The verdict of what the trusted kernel leaves undefined: integers may be told wrong by
    another form all the same, and then that it leaves them so is wrong.
    """
    if tensor.is_floating_point() or tensor.is_complex():
        return unsure
    told = judge_integers(bound, unsure.slot, tensor)
    return told if told.verdict == "wrong" else unsure


def examine_places(bound: Bound, outputs: Mapping[str, Laid]) -> Answer:
    """Judge where the outputs of a call lie that only makes views: whether they name the same
    elements as the trusted kernel's.
    """
    start = time.perf_counter()
    own = Attempt("cpu", lambda: Cpu().run(bound))
    if own.performed is None:
        return Answer(
            verdict=Replayed(verdict="unknown", reason=own.reason),
            seconds=time.perf_counter() - start,
        )
    starts = {
        laid.memory: start_of(own.performed.tensors[slot], laid)
        for slot, laid in bound.call.tensors.items()
        if 0 not in laid.shape
    }
    judged = [
        Replayed(verdict="agree", slot=slot)
        if same_place(laid, own.output(slot), starts.get(laid.memory))
        else Replayed(verdict="wrong", slot=slot, reason=PLACES)
        for slot, laid in outputs.items()
    ]
    return Answer(
        verdict=gravest(judged),
        substitute="cpu",
        seconds=time.perf_counter() - start,
        outputs=tuple(judged),
    )


def judge_sharing(bound: Bound, outputs: Mapping[str, Laid], trusted: Performed) -> Replayed | None:
    """What is to be said against where results lie; None where they lie as the trusted kernel's do.

    Other devices may copy what the CPU need not, so only results of the CPU are judged.
    """
    if bound.call.op.startswith(GRADIENT):
        return None
    spans = [
        (start, start + bound.call.memories[laid.memory].size)
        for slot, laid in bound.call.tensors.items()
        if 0 not in laid.shape
        for start in (start_of(trusted.tensors[slot], laid),)
    ]
    for slot, laid in outputs.items():
        tensor = trusted.outputs.get(slot)
        if (
            slot.startswith(WRITTEN)
            or tensor is None
            or tensor.numel() == 0
            or laid.device != "cpu"
            or 0 in laid.shape
        ):
            continue
        shares = laid.memory < len(bound.call.memories)
        if shares is any(start <= tensor.data_ptr() < end for start, end in spans):
            continue
        if shares or only_views(bound.func):
            return Replayed(
                verdict="wrong", slot=slot, reason=SHARED if shares else COPY, size=tensor.numel()
            )
    return None


def same_place(laid: Laid, tensor: torch.Tensor | None, start: int | None) -> bool:
    """Whether a tensor has these elements of the memory that begins at this address."""
    if tensor is None or tuple(tensor.shape) != laid.shape or dtype_name(tensor) != laid.dtype:
        return False
    if tensor.numel() == 0:
        return True
    steps = all(
        one == other
        for size, one, other in zip(laid.shape, laid.stride, tensor.stride(), strict=True)
        if size > 1
    )
    return steps and start is not None and start_of(tensor, laid) == start


def start_of(tensor: torch.Tensor, laid: Laid) -> int:
    """The address at which the memory of a tensor begins."""
    return tensor.data_ptr() - laid.offset * tensor.element_size()


def narrowed(bound: Bound, slot: str, mine: torch.Tensor, tensor: torch.Tensor) -> bool:
    """Whether a device gave another floating-point type by a rule of its own: float32 where it has
    no float64 (`.double()` on an NPU), a wider one for the statistics of a normalisation.
    """
    if devices(bound) <= {"cpu"}:
        return False
    kinds = (mine.dtype, tensor.dtype)
    return kinds == (torch.float64, torch.float32) or (
        is_by_product(bound, slot) and all(kind.is_floating_point for kind in kinds)
    )


def encoded(bound: Bound, slot: str, shape: tuple[int, ...], dtype: str, own: Attempt) -> bool:
    """Whether an output is a by-product in a form of the device's own, for its backward kernel
    alone: a mask of bits where the CPU has indices, statistics where it gives none.
    """
    mine = own.output(slot)
    if mine is None or devices(bound) <= {"cpu"} or not is_by_product(bound, slot):
        return False
    integers = not (mine.dtype.is_floating_point or mine.dtype.is_complex)
    return tuple(mine.shape) != shape or (integers and dtype_name(mine) != dtype)


def is_by_product(bound: Bound, slot: str) -> bool:
    return slot != "0" and WRITTEN not in slot and traits_of(bound.call.op).by_products


def judge_slot(
    bound: Bound,
    slot: str,
    tensor: torch.Tensor,
    *,
    own: Attempt,
    true: Attempt,
    accumulation: float | None,
) -> Replayed:
    """The verdict of one output whose bits differ from the trusted kernel's."""
    mine, expected = own.output(slot), true.output(slot)
    argument = slot.removeprefix(WRITTEN)
    if argument != slot and not writes_to(bound.promised, argument) and mine is not None:
        return Replayed(
            verdict="wrong", slot=slot, reason=CHANGED.format(argument), size=tensor.numel()
        )
    if mine is None and expected is None:
        return Replayed(
            verdict="unknown",
            slot=slot,
            reason=own.reason or true.reason or "the substitute has no such output",
            size=tensor.numel(),
        )
    for trusted in (mine, expected):
        if trusted is not None and trusted.shape != tensor.shape:
            reason = f"shape {list(tensor.shape)} where the substitute gives {list(trusted.shape)}"
            return Replayed(verdict="wrong", slot=slot, reason=reason, size=tensor.numel())
    if mine is not None and narrowed(bound, slot, mine, tensor):
        mine = mine.to(tensor.dtype)
    if mine is not None and mine.dtype is not tensor.dtype:
        reason = f"{dtype_name(tensor)} where the substitute gives {dtype_name(mine)}"
        return Replayed(verdict="wrong", slot=slot, reason=reason, size=tensor.numel())
    floating = tensor.dtype.is_floating_point or tensor.dtype.is_complex
    terms = terms_of(bound, slot, tensor)
    sides = Sides(
        dtype=dtype_name(tensor),
        target=as_array(tensor),
        own=as_array(mine),
        true=as_array(expected) if floating else None,
        magnitude=magnitude(bound, slot, terms) if floating else None,
        wider=expected is None or expected.dtype is not tensor.dtype,
    )
    terms = (
        msgspec.structs.replace(terms, accumulation=accumulation)
        if terms.kind == "linear"
        else terms
    )
    verdict = judge_output(slot, sides, terms)
    if (
        verdict.verdict == "wrong"
        and verdict.reason in (BEYOND, NARROWLY)
        and true.name == Float64.name
    ):
        verdict = judge_output(
            slot,
            msgspec.structs.replace(
                sides, slack=slack(bound, slot, sides.true, unit=roundoff(sides.dtype))
            ),
            terms,
        )
    if (
        verdict.verdict == "wrong"
        and not floating
        and any(device != "cpu" for device in devices(bound))
        and chooses(bound)
    ):
        return msgspec.structs.replace(
            verdict,
            verdict="unknown",
            reason="which of equal elements comes first may differ between devices",
        )
    return verdict


def undefined(bound: Bound, slot: str, own: Attempt) -> str | None:
    """Why the trusted result proves nothing: it is another one the second time, or where fresh
    memory holds NaN.
    """
    before = own.output(slot)
    for filled in (False, True):
        again = Attempt(
            "cpu",
            lambda: with_filled_memory(lambda: seeded(bound)) if filled else seeded(bound),  # noqa: B023
        )
        output = again.output(slot)
        if (
            before is not None
            and output is not None
            and not same_bits(before, output)
            and not close(before, output)
        ):
            return (
                "the trusted kernel leaves part of this output undefined"
                if filled
                else "the trusted kernel is not deterministic here"
            )
    return None


def not_defined(
    bound: Bound, apart: Mapping[str, float], outputs: Mapping[str, Laid] = NONE_LAID
) -> tuple[str, ...]:
    """Those outputs that a healthy kernel may give so far apart from one time to the next.

    The trusted one does not determine them, or no more is between two results than roundings of the
    inputs make: where memory lies decides in which order some libraries add. What is in a form of
    the device's own may be padded. outputs says what the call gave.
    """
    if not apart:
        return ()
    own, true = Attempt("cpu", lambda: seeded(bound)), true_result(bound)
    return tuple(
        slot
        for slot, error in apart.items()
        if (slot in outputs and encoded(bound, slot, outputs[slot].shape, outputs[slot].dtype, own))
        or undefined(bound, slot, own)
        or error <= 2 * EASE * furthest(bound, slot, own, true)
    )


def furthest(bound: Bound, slot: str, own: Attempt, true: Attempt) -> float:
    """The most that roundings of the inputs move any element of a true result; 0 where nothing is
    known of it.
    """
    output = own.output(slot)
    if output is None or dtype_name(output) not in ROUNDOFF or true.name != Float64.name:
        return 0.0
    moved = slack(bound, slot, as_array(true.output(slot)), unit=roundoff(dtype_name(output)))
    return 0.0 if moved is None else float(moved.max(initial=0.0))


def close(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two results of one kernel differ by rounding only."""
    if not one.dtype.is_floating_point:
        return False
    return bool(
        torch.allclose(one.double(), other.double(), rtol=1e-2, atol=0.0, equal_nan=True)
    ) or bool((one.double() - other.double()).abs().max() <= 1e-3 * one.double().abs().max())


def same_bits(one: torch.Tensor, other: torch.Tensor | None) -> bool:
    """Whether two tensors have the same type, shape and bits; NaN equals any NaN, 0 equals -0."""
    if other is None or one.shape != other.shape or one.dtype is not other.dtype:
        return False
    if one.numel() == 0:
        return True
    left, right = in_a_row(one), in_a_row(other.to(one.device))
    if one.dtype is torch.bool:
        return torch.equal(left, right)
    if torch.equal(*map(in_words, (left, right))):
        return True
    return bool(one.dtype.is_floating_point) and one.element_size() >= 2 and all_equal(left, right)


def in_a_row(tensor: torch.Tensor) -> torch.Tensor:
    """Its elements with a step of 1, which torch calls contiguous with any step where there is but
    one.
    """
    whole = tensor.detach().contiguous()
    return whole.as_strided((whole.numel(),), (1,))


def in_words(flat: torch.Tensor) -> torch.Tensor:
    """The bytes of a flat tensor in words as long as they can be: comparing takes a time for
    each.
    """
    size = flat.numel() * flat.element_size()
    if (
        size % 8 == 0
        and flat.data_ptr() % 8 == 0
        and flat.storage_offset() * flat.element_size() % 8 == 0
    ):
        return flat.view(torch.uint8).view(torch.int64)
    return flat.view(torch.uint8)


def all_equal(left: torch.Tensor, right: torch.Tensor) -> bool:
    """Whether all elements are equal, NaN to NaN and 0 to -0."""
    return bool(((left == right) | (left.isnan() & right.isnan())).all().item())


def devices(bound: Bound) -> set[str]:
    """Kinds of devices that the program's call was made on."""
    places = [bound.call.device, *(laid.device for laid in bound.call.tensors.values())]
    return {device.partition(":")[0] for device in places}


def chooses(bound: Bound) -> bool:
    """Whether which of several equal elements it names is its own choice."""
    return traits_of(bound.call.op).chooses
