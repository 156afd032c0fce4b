# SPDX-License-Identifier: Apache-2.0
"""`opscope run --check`: while the program runs, calls are made again on trusted substitutes and
judged.

Below the recorder's mode lies one more, which hands calls with their inputs and outputs to a
process of its own (substitute/apart.py) and makes the call itself once more to see whether it gives
the same bits. The program waits for a verdict only where there are no cores to spare; its
generators, tensors and autograd graph are left as they are.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import torch

from opscope.errors import UnavailableError
from opscope.judge.replayed import Replayed
from opscope.operators.catalogue import traits_of
from opscope.record.active import active
from opscope.record.torch.aside import aside
from opscope.record.torch.budget import NEVER, Budget, Rest, Signature
from opscope.record.torch.capture import Captured, NotCapturedError, capture
from opscope.record.torch.determinism import Difference, differences, repeat
from opscope.record.torch.devices import captures, current_stream
from opscope.record.torch.held import Held
from opscope.record.torch.mode import WatchingMode
from opscope.record.torch.operators import describe, gives_tensors, unhindered
from opscope.record.torch.randomness import devices
from opscope.run.contain import contain, is_the_programs, reason, tell
from opscope.run.schema import Judgement
from opscope.substitute.apart import Apart
from opscope.substitute.arguments import dtype_named
from opscope.substitute.examine import CHANGED
from opscope.substitute.layout import ARGUMENTS, GRADIENT, GRADS, WANTED, WRITTEN
from opscope.substitute.perform import outputs_of, strided
from opscope.substitute.schema import draws_random, only_views

if TYPE_CHECKING:
    from opscope.kernels.calls import Operator
    from opscope.substitute.layout import Call, Given
    from opscope.substitute.wire import Reply

Formula = Callable[[], "tuple[Captured, list[torch.Tensor]] | None"]
LIMIT = 1 << 30  # bytes of one call's tensors
MOST_TOLD = 10  # wrong calls of one signature; then it is known, and no longer checked
HELD = (
    64 << 20
)  # bytes of a call's arguments that are copied to see whether it changes what it only reads
MOST_STARTS = 3  # of the process that makes calls again


@dataclass(eq=False)
class Known:
    """What is remembered of an operator overload; checked is false for one that is never
    checked.
    """

    operator: Operator
    checked: bool
    views: bool = False
    random: bool = False
    above: bool = False  # a function above kernels, whose row has no arguments


@dataclass(eq=False)
class UnderWay:
    """A call whose verdict has not come: where it stands in the run, and what is needed to keep its
    inputs.
    """

    index: int | None
    op: str
    signature: Signature
    call: Call
    accumulation: float | None = (
        # unit roundoff of its products where the program allows another than that of their type
        None
    )
    flaky: Sequence[Difference] = ()  # outputs that came out otherwise when the call was made again
    broken: frozenset[str] = frozenset()  # arguments that it changed, though it only reads them
    above: bool = False  # a function above kernels, whose row has no arguments


@dataclass(eq=False)
class Tally:
    """What came of the checks: verdicts by kind, operators that could not be judged with the
    reason, and how often.
    """

    verdicts: dict[str, int] = field(default_factory=dict)
    unjudged: dict[str, list[Any]] = field(default_factory=dict)

    def count(self, verdict: str) -> None:
        self.verdicts[verdict] = self.verdicts.get(verdict, 0) + 1

    def miss(self, op: str, reason: str) -> None:
        self.unjudged.setdefault(op, [reason, 0])[1] += 1


class Checker:
    """Checks the calls of one process. index says which call of the run is being made, watching how
    long recording took.

    keep stores a tensor's values in the run and says where; steps is how many stay in it, None for
    all.
    """

    def __init__(
        self,
        share: float | None,
        *,
        index: Callable[[], int | None],
        watching: Callable[[], float],
        keep: Callable[[torch.Tensor], tuple[str, str] | None],
        steps: int | None = None,
        process: int = 0,
    ) -> None:
        self.budget = Budget(share)
        self.index = index
        self.watching = watching
        self.keep = keep
        self.process = process
        self.tally = Tally()
        self.active = True
        self.judgements: list[Judgement] = []
        self.accused = 0
        self._accused_before = 0
        self._known: dict[Any, Known] = {}
        self._under_way: dict[int, UnderWay] = {}
        self._held: Held[UnderWay] = Held(steps)
        self._starts = 0
        self._waited = 0.0
        # Where both compute on the same cores each slows the other down by more than it takes, so
        # the program waits instead.
        self._aside = cores() >= 2 * torch.get_num_threads()
        self._apart: Apart | None = None
        # One thread of the program at a time deals with the process; no kernel of the program is
        # called meanwhile.
        self._alone = threading.RLock()
        self._start()

    # -- life --------------------------------------------------------------------------------------

    def _start(self) -> None:
        self._starts += 1
        try:
            self._apart = Apart(active.take_started()) if self._starts <= MOST_STARTS else None
        except UnavailableError as error:
            self.fail(error)
            return
        if self._apart is None:
            self.fail(UnavailableError(f"the process for substitutes ended {MOST_STARTS} times"))

    def fail(self, error: BaseException) -> None:
        """Checking ends with one line, the program goes on."""
        if self.active:
            self.active = False
            tell(f"no longer checking: {reason(error)}; the program goes on")

    def settle(self) -> None:
        """Wait for the verdicts of calls that are under way."""
        with self._alone:
            while self._under_way:
                self._take(wait=True)

    def step_ends(self) -> bool:
        """Wait for the verdicts of this step; whether any of them is against a kernel."""
        with aside(), self._alone:
            self._settle_between_calls()
            self._held.step_ends()
        accused = self.accused > self._accused_before
        self._accused_before = self.accused
        return accused

    def _settle_between_calls(self) -> None:
        """Wait for verdicts where no call is being checked, to which the time would be counted."""
        begun = time.perf_counter()
        with self._waiting():
            self.settle()
        self.budget.spent += time.perf_counter() - begun

    @contextlib.contextmanager
    def _waiting(self) -> Iterator[None]:
        """The program waits for verdicts, which need not count that time again."""
        begun = time.perf_counter()
        try:
            yield
        finally:
            self._waited += time.perf_counter() - begun

    def close(self) -> None:
        """Take the last verdicts and end the process."""
        if self._apart is None:
            return
        with self._alone:
            with aside(), contextlib.suppress(UnavailableError):
                self._check_held()
                self._settle_between_calls()
            self.active = False
            if self._apart is not None:
                self._apart.close()
                self._apart = None

    def take(self) -> list[Judgement]:
        """Judgements since the last time."""
        taken, self.judgements = self.judgements, []
        return taken

    def facts(self) -> dict[str, Any]:
        """What was checked, for process.json."""
        budget, most = (
            self.budget,
            sorted(self.tally.unjudged.items(), key=lambda item: -item[1][1])[:50],
        )
        return {
            "calls": budget.seen,
            "checked": budget.checked,
            "signatures": len(budget.signatures),
            "seconds": round(budget.spent, 3),
            "sampling": round(budget.sampled, 3),
            "recording": round(self.watching(), 3),
            "beyond": round(budget.beyond(self.watching()), 3),
            "budget": "all" if budget.share is None else f"{budget.share * 100:g}%",
            "verdicts": dict(self.tally.verdicts),
            "unjudged": {op: {"reason": reason, "calls": times} for op, (reason, times) in most},
        }

    # -- calls -------------------------------------------------------------------------------------

    def checks(self, func: Any) -> bool:
        """Whether calls of an operator are ever checked."""
        return self._facts_of(func).checked

    def call(
        self,
        func: Any,
        args: Sequence[Any],
        kwargs: dict[str, Any],
        *,
        run: Callable[[], Any] | None = None,
        formula: Formula | None = None,
    ) -> Any:
        """Make a call for the program, and check it if it is its turn.

        run makes it where func itself would not; formula gives the gradients of its autograd
        formula, which are judged as well.
        """
        signature = self.turn(func, args, kwargs)
        if isinstance(signature, Signature):
            return self.check(func, args, kwargs, signature, run=run, formula=formula)
        return run() if run is not None else unhindered(func)(*args, **kwargs)

    def turn(
        self, func: Any, args: Sequence[Any], kwargs: dict[str, Any], rested: int = 0
    ) -> Signature | Rest:
        """The signature of a call that is to be checked or held, else how long none like it need be
        asked for.

        rested counts the calls like it that were made since the last time without asking.
        """
        known = contain(self.fail, self._facts_of, func) if self.active else None
        if known is None:
            return NEVER
        return (
            self._turn(func, args, kwargs, sampling=not known.views, rested=rested)
            if known.checked
            else NEVER
        )

    def check(
        self,
        func: Any,
        args: Sequence[Any],
        kwargs: dict[str, Any],
        signature: Signature,
        *,
        run: Callable[[], Any] | None = None,
        formula: Formula | None = None,
    ) -> Any:
        """Make a call whose turn it is, and check or hold it."""
        begun = time.perf_counter()
        target, known, held = unhindered(func), self._known[func], signature.holding
        wait_for_devices(args, kwargs)
        captured = self._guarded(self._capture, known, signature, func, args, kwargs)
        made = time.perf_counter()
        result = run() if run is not None else target(*args, **kwargs)
        wait_for_devices(args, kwargs)
        ended = time.perf_counter()
        if captured is not None:
            self._guarded(
                self._check,
                known,
                signature,
                captured,
                result,
                func,
                lambda: repeat(captured, target, args, kwargs),
            )
            if formula is not None and signature.closely:
                self._guarded(self._check_formula, known, signature, formula)
        self.budget.took(signature, made - begun + time.perf_counter() - ended, new=not held)
        return result

    def formula(
        self,
        func: Any,
        args: Sequence[Any],
        kwargs: dict[str, Any],
        test: Callable[[], Replayed | None],
    ) -> Replayed | None:
        """What a test says against the gradient formula of a call, if it is the call's turn;
        generators stay as they are.
        """
        signature = self._turn(func, args, kwargs, holding=False)
        if not isinstance(signature, Signature):
            return None
        begun = time.perf_counter()
        verdict: Replayed | None = None
        if signature.closely:
            with torch.random.fork_rng(devices=[]):
                verdict = self._guarded(test)
        if verdict is not None:
            signature.wrong += 1
        self.budget.took(signature, time.perf_counter() - begun, new=True)
        return verdict

    def accuse_formula(self, index: int, verdict: Replayed) -> None:
        """Write the judgement that a formula is not the derivative of its operator."""
        self.tally.count("not the derivative")
        self._judge(
            index,
            "replay-mismatch",
            "differences",
            verdict,
            {"output": "", "gradient": verdict.slot, "differences": True},
        )

    def accuse_compiled(self, index: int, verdict: Replayed, told: Mapping[str, Any]) -> None:
        """Write the judgement that compiled code is not what its graph computes."""
        self._judge(index, "compiled-mismatch", "its own operators", verdict, told)

    def _turn(
        self,
        func: Any,
        args: Sequence[Any],
        kwargs: dict[str, Any],
        *,
        sampling: bool = True,
        holding: bool = True,
        rested: int = 0,
    ) -> Signature | Rest:
        """The same for an operator that is checked; without sampling only the first calls of a
        signature are.
        """
        begun = time.perf_counter()
        try:
            signature = self.budget.signature(func, args, kwargs)
            signature.sampling = sampling
            self.budget.rested(signature, rested)
            if signature.wrong >= MOST_TOLD:
                return NEVER
            watching = self.watching()
            wanted = self.budget.wants(signature, begun, watching)
            signature.holding = holding and not wanted and self.budget.holds(signature)
            return (
                signature
                if wanted or signature.holding
                else self.budget.rest(signature, begun, watching)
            )
        except BaseException as error:
            self.fail(error)
            if is_the_programs(error):
                raise
            return NEVER
        finally:
            self.budget.spent += time.perf_counter() - begun

    def _facts_of(self, func: Any) -> Known:
        known = self._known.get(func)
        return known if known is not None else self._learn(func)

    def _learn(self, func: Any) -> Known:
        operator = describe(func)
        schema = getattr(func, "_schema", None)
        gives = gives_tensors(func, operator)
        special = (
            operator.allocator
            or operator.collective
            or operator.hidden
            or operator.signal
            or traits_of(operator.op).once
        )
        random = schema is not None and torch.Tag.nondeterministic_seeded in func.tags
        views, above = (
            schema is not None and only_views(func),
            not isinstance(func, torch._ops.OpOverload),
        )
        known = self._known[func] = Known(
            operator, bool(gives) and not special, views, random, above
        )
        return known

    def _guarded(self, action: Callable[..., Any], *arguments: Any) -> Any:
        try:
            with aside(), torch.no_grad():
                return action(*arguments)
        except NotCapturedError as reason:
            self.tally.miss(arguments[0].operator.op, str(reason))
        except UnavailableError:
            with self._alone:
                self._under_way.clear()
                self._start()
        except BaseException as error:
            self.fail(error)
            if is_the_programs(error):
                raise
        return None

    def _capture(
        self,
        known: Known,
        signature: Signature,
        func: Any,
        args: Sequence[Any],
        kwargs: dict[str, Any],
    ) -> Captured | None:
        if not self.active:
            return None
        random = known.random and draws_random(func, args, kwargs)
        captured = capture(
            known.operator.op,
            args,
            kwargs,
            writes=known.operator.writes,
            random=random,
            limit=LIMIT,
        )
        captured.asks = known.operator.asks
        if signature.closely and not known.views:
            captured.hold(HELD)
        return captured

    def _check(
        self,
        known: Known,
        signature: Signature,
        captured: Captured,
        result: Any,
        func: Any,
        again: Callable[[], Any],
    ) -> None:
        broken = captured.unmet_promises(func)
        given, more = captured.given(result)
        if not given.outputs:
            return
        flaky: Sequence[Difference] = ()
        if captured.call.random is None and not known.views and signature.closely and not broken:
            outputs = outputs_of(result, captured.tensors, captured.writes)
            flaky = self._repeat(
                captured.call,
                {slot: tensor for slot, tensor in outputs.items() if slot in given.outputs},
                again,
            )
        request = UnderWay(
            self.index(),
            known.operator.op,
            signature,
            captured.call,
            allowed_accumulation(captured),
            flaky,
            broken,
            known.above,
        )
        pieces = (
            [] if known.views and not more else [*captured.pieces, *more]
        )  # of views only where the outputs lie can be wrong
        with self._alone:
            if signature.holding:
                self._held.put(signature, request, pieces, given)
            else:
                self._held.drop(signature)
                self._submit(request, pieces, given)

    def _check_formula(self, known: Known, signature: Signature, formula: Formula) -> None:
        """Judge the gradients that a call's own autograd formula gives."""
        computed = formula()
        if computed is not None and not known.random:
            captured, gradients = computed
            request = UnderWay(
                self.index(), known.operator.op, signature, captured.call, above=known.above
            )
            given, more = captured.given(gradients)
            with self._alone:
                self._submit(request, [*captured.pieces, *more], given)

    def _check_held(self) -> None:
        """Check the calls that wait for the end."""
        for held in self._held.take():
            begun = time.perf_counter()
            held.request.signature.holding = False
            self._submit(held.request, held.pieces, held.given)
            self.budget.took(held.request.signature, time.perf_counter() - begun, new=True)

    def _submit(self, request: UnderWay, pieces: list[torch.Tensor], given: Given) -> None:
        """Hand a call over; where no cores are to spare, wait for its verdict."""
        while (
            apart := self._apart
        ) is not None and apart.full:  # another one where it ends meanwhile
            with self._waiting():
                self._take(wait=True)
        if apart is None:
            return
        ticket = apart.submit(
            request.call,
            pieces,
            given,
            thorough=self.budget.affords_truth(request.signature),
            accumulation=request.accumulation,
            flaky={each.slot: each.error for each in request.flaky},
        )
        self._under_way[ticket] = request
        if self._aside or not apart.ready:
            self._take(wait=False)
            return
        with self._waiting():
            self.settle()

    def _repeat(
        self, call: Call, outputs: dict[str, torch.Tensor], again: Callable[[], Any]
    ) -> Sequence[Difference]:
        """Make the call once more and compare bits; healthy kernels may differ in the last digits,
        which is only counted.
        """
        apart = differences(call, outputs, again())
        beyond = [each for each in apart if each.beyond_rounding]
        if apart and not beyond:
            self.tally.count("flaky in the last digits")
        return beyond

    def _accuse_flaky(self, request: UnderWay, undefined: Sequence[str]) -> None:
        """Tell the output that is furthest apart, of those that a healthy kernel gives alike."""
        flakiest = next((each for each in request.flaky if each.slot not in undefined), None)
        if flakiest is None:
            return
        request.signature.flaky += 1
        self.tally.count("flaky")
        if request.signature.flaky <= MOST_TOLD:
            flaky = Replayed(verdict="flaky", error=flakiest.error, reason=flakiest.reason)
            self._judge(request.index, "nondeterminism", "the same call", flaky)

    # -- verdicts ----------------------------------------------------------------------------------

    def _take(self, *, wait: bool) -> None:
        apart = self._apart
        if apart is None:
            self._under_way.clear()
            return
        try:
            for reply in apart.replies(wait=wait):
                request = self._under_way.pop(reply.ticket)
                self._verdict(apart, request, reply)
                apart.done(reply.ticket)
        except UnavailableError:
            for request in self._under_way.values():
                self.tally.miss(request.op, "the process that made it again ended")
            self._under_way.clear()
            self._start()

    def _verdict(self, apart: Apart, request: UnderWay, reply: Reply) -> None:
        overlap = min(
            self._waited, reply.seconds
        )  # that the program waited meanwhile has been counted already
        self._waited -= overlap
        self.budget.took(request.signature, reply.seconds - overlap, new=False)
        self._accuse_flaky(request, reply.undefined)
        verdict = reply.verdict
        if verdict is None and request.broken:  # an operator that the other process does not have
            slot = min(request.broken)
            verdict = Replayed(verdict="wrong", slot=WRITTEN + slot, reason=CHANGED.format(slot))
        if verdict is None:
            self.tally.miss(request.op, reply.error)
            return
        self.tally.count(verdict.verdict)
        if verdict.verdict == "unknown":
            self.tally.miss(request.op, verdict.reason)
        if verdict.verdict != "wrong" or request.signature.wrong >= MOST_TOLD:
            return
        request.signature.wrong += 1
        gradient = gradient_slot(request.call, verdict.slot)
        told = {
            "inputs": self._keep(apart, request, reply) if request.signature.wrong <= 2 else {},
            **({"args": plain_arguments(request.call)} if request.above else {}),
            "inside": reply.inside,
            "replaced": sorted(replaced_kernels().intersection(reply.inside)),
            **({} if gradient is None else {"gradient": gradient, "output": ""}),
        }
        self._judge(request.index, "replay-mismatch", reply.substitute, verdict, told)

    def _keep(self, apart: Apart, request: UnderWay, reply: Reply) -> dict[str, tuple[str, str]]:
        """Where the inputs of a wrong call were stored, by slot."""
        call = request.call
        memories = apart.memories(reply.ticket)
        kept = {}
        for slot, laid in call.tensors.items() if memories else ():
            if GRADS in slot:
                continue
            reference = self.keep(
                strided(memories[laid.memory].clone(), laid, dtype_named(laid.dtype))
            )
            if reference is not None:
                kept[slot] = reference
        return kept

    def _judge(
        self,
        index: int | None,
        kind: str,
        substitute: str,
        verdict: Replayed,
        told: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        """Write a judgement; told is what its sample says beyond the verdict."""
        if index is None:
            return
        sample = {
            "reason": verdict.reason,
            "output": verdict.slot,
            "elements": verdict.elements,
            "of": verdict.size,
            "worst": verdict.worst,
            "got": verdict.got,
            "expected": verdict.expected,
            "own_error": verdict.own_error,
            "inputs": {},
            **({"witnesses": verdict.witnesses} if verdict.witnesses else {}),
            **told,
        }
        row = Judgement(
            process=self.process,
            index=index,
            kind=kind,
            substitute=substitute,
            error=verdict.error,
            tolerance=verdict.tolerance,
            sample=json.dumps(sample),
        )
        self.judgements.append(row)
        self.accused += 1


def wait_for_devices(args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Let what the program asked of accelerators be done: an operator that failed there raises in
    the program, not in what opscope asks next.
    """
    for device in {device for device in devices((*args, *kwargs.values())) if device.type != "cpu"}:
        if device.type != "meta" and not captures(device):
            current_stream(device).synchronize()


def plain_arguments(call: Call) -> dict[str, Any]:
    """The arguments of a call, or of the one whose gradient it is, as column args has them."""
    return {
        **call.args,
        "kwargs": {
            key: node
            for key, node in call.args["kwargs"].items()
            if key not in {GRADS, WANTED, ARGUMENTS}
        },
    }


def gradient_slot(call: Call, slot: str) -> str | None:
    """The argument whose gradient an output is; None for a call that is no gradient."""
    if not call.op.startswith(GRADIENT):
        return None
    wanted = call.args["kwargs"][WANTED]
    return str(wanted[int(slot)]) if slot.isdigit() and int(slot) < len(wanted) else slot


def replaced_kernels() -> set[str]:
    """Operators of torch without overload whose kernels were registered from Python, here or by
    torch itself.
    """
    names = (
        entry.split("/")
        for entry in torch.library._impls
        if entry.startswith("aten/") and not entry.endswith("/Meta")
    )
    return {f"aten::{name.partition('.')[0]}" for _, name, *_ in names}


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def allowed_accumulation(captured: Captured) -> float | None:
    """Unit roundoff that the program lets its products have on accelerators (TF32), None for that
    of their type.
    """
    if all(tensor.device.type != "cuda" for tensor in captured.tensors.values()):
        return None
    name = captured.call.op
    allowed = (
        torch.backends.cudnn.allow_tf32
        if "conv" in name or "rnn" in name
        else torch.backends.cuda.matmul.allow_tf32
    )
    return (
        2.0**-11
        if allowed and any(tensor.dtype is torch.float32 for tensor in captured.tensors.values())
        else None
    )


class CheckMode(WatchingMode):
    """Hands every operator call to a checker: below the modes that substitutes and the journal
    bring; else the bookkeeper does.
    """

    def __init__(self, checker: Checker, watched: Callable[[], bool]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.checker = checker
        self.watched = watched
        self.handle(self.dispatch)

    def dispatch(
        self,
        func: Any,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """The mode's handler."""
        if types or not self.checker.active or not self.watched():
            return unhindered(func)(*args, **(kwargs or {}))
        return self.checker.call(func, args, kwargs or {})
