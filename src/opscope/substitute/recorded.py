# SPDX-License-Identifier: Apache-2.0
"""A recorded call, made again and judged: from plain arrays to a verdict."""

from __future__ import annotations

import contextlib
import time
import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import torch

from opscope.errors import UnavailableError
from opscope.judge.repetition import nature_of, told_apart
from opscope.judge.replayed import Replayed
from opscope.operators.catalogue import traits_of
from opscope.substitute.arguments import Conditions, bytes_of, dtype_named
from opscope.substitute.callables import function_of
from opscope.substitute.examine import Answer, examine, same_bits
from opscope.substitute.layout import WRITTEN, Call
from opscope.substitute.perform import Bound, perform
from opscope.substitute.schema import draws_random
from opscope.substitute.truth import FAILURES, Attempt, drawing_from, seeded

if TYPE_CHECKING:
    pass


JUDGED = 16  # different results of one call that are judged


class Recorded(msgspec.Struct, frozen=True, kw_only=True):
    """A call with the bytes of its memories, and its recorded outputs by slot as (element type,
    array); none were kept: empty.

    exact: every input has its recorded values, so that the recorded outputs are what the call must
    give.
    """

    call: Call
    memories: Sequence[Any]
    outputs: Mapping[str, tuple[str, Any]]
    exact: bool = True


class Replay(msgspec.Struct, frozen=True, kw_only=True):
    """Verdict of a replayed call. against says what was judged: recorded outputs, or what the
    device gave now.

    nature of a wrong result: persistent (wrong every time, the same bits), unstable (wrong every
    time, other bits), intermittent (wrong in some runs), transient (recorded so, and right every
    time now). tried counts how often the call was made, wrong how often it was.
    """

    verdict: Replayed
    substitute: str = ""
    against: str = ""
    nature: str | None = None
    tried: int = 1
    wrong: int = 0
    distinct: int = 1
    seconds: float = 0.0
    metrics: tuple[dict[str, Any], ...] = ()


def trials_of(bound: Bound, device: str, repeat: int) -> list[dict[str, torch.Tensor]]:
    """What the call gives each time it is made. UnavailableError when it cannot be made here, with
    the reason.
    """
    dispatched = hasattr(bound.func, "tags")
    random = (
        draws_random(bound.func, *literal(bound.call))
        if dispatched
        else traits_of(bound.call.op).random
    )
    if random and bound.call.random is None:
        raise UnavailableError(
            "it draws random numbers, and the generator's state was not recorded"
        )
    return [made(bound, device) for _ in range(max(repeat, 1))]


def replay_recorded(
    recorded: Recorded,
    *,
    device: str = "cpu",
    repeat: int = 1,
    trials: Sequence[Mapping[str, torch.Tensor]] | None = None,
) -> Replay:
    """Make a recorded call again on a device and on substitutes; trials are what another process
    gave when it made the call.

    UnavailableError when it cannot be made here, with the reason.
    """
    start = time.perf_counter()
    bound = bind(recorded)
    trials = trials_of(bound, device, repeat) if trials is None else trials
    results = told_apart(map(host, trials), alike)
    target = recorded_target(recorded, trials[0]) if recorded.exact else {}
    against = "recorded outputs" if target else f"outputs on {device}"
    judged = [examine(bound, outputs, thorough=True) for outputs, _ in results[:JUDGED]]
    wrong = sum(
        count
        for (_, count), answer in zip(results, judged, strict=False)
        if answer.verdict.verdict == "wrong"
    )
    answer = examine(bound, target, thorough=True) if target else judged[0]
    # the recorded result is right, or there is none: this device errs now
    if answer.verdict.verdict != "wrong" and wrong:
        answer, against = (
            next(each for each in judged if each.verdict.verdict == "wrong"),
            f"outputs on {device}",
        )
    verdict = answer.verdict
    if len(results) > 1 and verdict.verdict != "wrong":
        verdict = Replayed(
            verdict="flaky",
            slot=verdict.slot,
            reason=f"{len(results)} different results in {len(trials)} runs",
        )
    return Replay(
        verdict=verdict,
        substitute=answer.substitute,
        against=against,
        tried=len(trials),
        wrong=wrong,
        distinct=len(results),
        nature=nature_of(wrong, sum(count for _, count in results[:JUDGED]), len(results))
        if verdict.verdict == "wrong"
        else None,
        seconds=time.perf_counter() - start,
        metrics=measured(bound, target or results[0][0], answer),
    )


def bind(recorded: Recorded) -> Bound:
    """The call on its memories; UnavailableError for an operator or API that this process does not
    have.
    """
    memories = list(map(bytes_of, recorded.memories))
    return Bound(recorded.call, memories, function_of(recorded.call))


def usable(device: str) -> str:
    """The recorded device where it is here, else the CPU."""
    kind = device.partition(":")[0]
    if kind == "cpu" or not hasattr(torch, kind):
        return "cpu"
    return device if getattr(torch, kind).is_available() else "cpu"


def one_thread() -> None:
    """Compute on one thread: several processes replay at a time."""
    torch.set_num_threads(1)


def literal(call: Call) -> tuple[list[Any], dict[str, Any]]:
    """Arguments whose tensors and tagged values are left as they are."""
    return list(call.args["args"]), dict(call.args["kwargs"])


def made(bound: Bound, device: str) -> dict[str, torch.Tensor]:
    """Outputs of the call on a device; UnavailableError when it fails there."""

    def run() -> Any:
        with drawing_from(bound.call.random):
            return (
                perform(bound, Conditions(device=device))
                if device == "cpu"
                else on_device(bound, device)
            )

    attempt = Attempt(device, run)
    if attempt.performed is None:
        raise UnavailableError(attempt.reason)
    return attempt.performed.outputs


def on_device(bound: Bound, device: str) -> Any:
    """The call with all its tensors on an accelerator, those that lay on the host included."""
    moved = {
        slot: msgspec.structs.replace(laid, device=device)
        for slot, laid in bound.call.tensors.items()
    }
    return perform(
        Bound(msgspec.structs.replace(bound.call, tensors=moved), bound.memories, bound.func),
        Conditions(device=device),
    )


def host(outputs: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {slot: tensor.cpu() for slot, tensor in outputs.items()}


def alike(one: Mapping[str, torch.Tensor], other: Mapping[str, torch.Tensor]) -> bool:
    return all(same_bits(tensor, other.get(slot)) for slot, tensor in one.items())


def recorded_target(
    recorded: Recorded, made_now: Mapping[str, torch.Tensor]
) -> dict[str, torch.Tensor]:
    """Recorded outputs as tensors, under the slots that the call gives."""
    targets = {}
    for slot, (dtype, array) in recorded.outputs.items():
        given_slot = slot if slot in made_now else WRITTEN + slot
        if given_slot not in made_now:
            continue
        targets[given_slot] = (
            bytes_of(array).view(dtype_named(dtype)).reshape(array.shape)
            if array.size
            else made_now[given_slot][:0].cpu().reshape(array.shape)
        )
    return targets


def measured(
    bound: Bound, target: Mapping[str, torch.Tensor], answer: Answer
) -> tuple[dict[str, Any], ...]:
    """The standard checker's columns for each output, against the trusted result."""
    from opscope.substitute.columns import columns_of

    trusted = None  # a wider type draws other numbers
    if bound.call.random is None:
        trusted = Attempt(
            "cpu", lambda: perform(bound, Conditions(device="cpu", wide=wider(target)))
        ).performed
    if trusted is None:
        trusted = Attempt("cpu", lambda: seeded(bound)).performed
    if trusted is None:
        return ()
    verdicts = {each.slot: each.verdict for each in answer.outputs}
    with warnings.catch_warnings(), contextlib.suppress(*FAILURES):
        warnings.simplefilter("ignore")
        return tuple(
            {
                "slot": slot,
                "verdict": verdicts.get(slot, answer.verdict.verdict),
                **columns_of(tensor, trusted.outputs[slot]),
            }
            for slot, tensor in target.items()
            if slot in trusted.outputs
        )
    return ()


def wider(target: Mapping[str, torch.Tensor]) -> torch.dtype:
    """The element type the standard checker raises a call to: float32 for half types, else
    float64.
    """
    narrow = any(tensor.dtype in (torch.float16, torch.bfloat16) for tensor in target.values())
    return torch.float32 if narrow else torch.float64
