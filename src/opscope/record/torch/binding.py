# SPDX-License-Identifier: Apache-2.0
"""torch as the bookkeeper sees it: facts of tensors, weak references, autograd, reading and keeping
values.

Serves both the compiled recorder (native/recorder.cpp) and its reference (kernels/bookkeeping.py).
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Sequence
from types import CodeType
from typing import TYPE_CHECKING, Any

import torch

from opscope.formats.layouts.plain import is_plain
from opscope.kernels.calls import Draft, Facts, Operator, Site, base
from opscope.kernels.compiled import NUMBERS
from opscope.record.active import active
from opscope.record.operators_met import OperatorsMet
from opscope.record.rows import arrow_batches
from opscope.record.session import captured_calls
from opscope.record.torch.arrivals import Arrivals
from opscope.record.torch.aside import PLAIN, TensorBase, aside, plainly, set_aside
from opscope.record.torch.composed import ONEDNN, Composed, composed, is_composed, readable
from opscope.record.torch.memory import resolved
from opscope.record.torch.modules import distributed_tensor
from opscope.record.torch.operator_facts import row_of
from opscope.record.torch.operators import describe, straight, takes_tensors, unhindered
from opscope.record.torch.randomness import random_states
from opscope.record.torch.stacks import Stacks
from opscope.record.torch.staging import Staging, read
from opscope.record.torch.suspects import SeenTensor, Suspect
from opscope.run.contain import is_surfaced, is_the_programs
from opscope.run.store.blackbox import BlackBox, blackbox_text
from opscope.run.store.blackbox import Facts as BoxFacts

if TYPE_CHECKING:
    from opscope.record.session import Session
    from opscope.record.torch.modules import Modules
    from opscope.record.torch.sentinel import Sentinel

storage_address: Callable[[torch.Tensor], int] = torch._C._storage_address  # type: ignore[attr-defined]
NUMBERS_AS = {bool: torch.bool, int: torch.int64, float: torch.float64, complex: torch.complex128}
ENUMS = {torch.dtype: "dtype", torch.layout: "layout", torch.memory_format: "memory_format"}
# Subclasses that are recorded as they are, their operators being for a mode of torch's own that
# lies below; calls on all others are left to the subclass, so that its inner kernels are seen.
OPAQUE = frozenset({"FakeTensor", "FunctionalTensor"})


SHARED = frozenset({"communication", "optimizer"})  # phases in which ranks do what the others do


class TorchBinding:
    """Implements kernels.bookkeeping.Binding on torch."""

    strided = torch.strided
    tensor_type = torch.Tensor
    parameter_type = torch.nn.Parameter
    storage_address = staticmethod(storage_address)
    graph_task = staticmethod(torch._C._current_graph_task_id)
    current_node = staticmethod(torch._C._current_autograd_node)
    next_sequence = staticmethod(torch._C._autograd._get_sequence_nr)
    has_function_modes = staticmethod(torch._C._is_torch_function_mode_enabled)
    no_functions = torch._C.DisableTorchFunction
    modes_below = staticmethod(torch._C._len_torch_dispatch_stack)
    push_mode = staticmethod(torch._C._push_on_torch_dispatch_stack)
    pop_mode = staticmethod(torch._C._pop_torch_dispatch_stack)
    release_storage: Callable[[int], None] = staticmethod(torch.UntypedStorage._free_weak_ref)
    expired_storage: Callable[[int], bool] = staticmethod(torch.UntypedStorage._expired)  # type: ignore[assignment]

    def __init__(self, session: Session, *, sentinel: Sentinel, modules: Modules) -> None:
        self.session = session
        self.sentinel = sentinel
        self.modules = modules
        self.stacks = Stacks()
        self.staging = Staging(
            session.device_lost,
            lambda what, why: session.note("not measured", what, why),
            unkept=lambda what, why: session.note("not kept", what, why),
            ring=session.config.device_ring_bytes,
        )
        self.arrivals = Arrivals(self.fail)
        self.met = OperatorsMet(session.writer.directory)
        self.selection = session.config.selection
        narrowed = any(
            part is not None
            for part in (self.selection.ops, self.selection.skip, self.selection.phases)
        )
        self.selective = narrowed or session.config.set_dump or session.config.digest
        self.element_types = element_types()
        self._codes: dict[int, CodeType] = {}

    # -- tensors -----------------------------------------------------------------------------------

    @staticmethod
    def is_tensor(value: object) -> bool:
        return isinstance(value, torch.Tensor)

    @staticmethod
    def facts(tensor: torch.Tensor) -> Facts:
        """Facts of a tensor; meta, fake and functional tensors have no readable memory, composed
        ones that of their values.
        """
        with aside():
            return facts_of(tensor)

    @staticmethod
    @set_aside
    def hold(tensor: torch.Tensor) -> Any:
        """A weak reference to the tensor's storage as torch numbers it, or to a tensor that has
        none, as an object.
        """
        if tensor.layout is ONEDNN:
            return torch._C._WeakTensorRef(tensor)  # type: ignore[attr-defined]
        return int(TensorBase.untyped_storage(readable(tensor))._weak_ref())

    @classmethod
    def release(cls, reference: Any) -> None:
        if isinstance(reference, int):
            cls.release_storage(reference)

    @classmethod
    def expired(cls, reference: Any) -> bool:
        return (
            cls.expired_storage(reference)
            if isinstance(reference, int)
            else bool(reference.expired())
        )

    @staticmethod
    @set_aside
    def resolved(tensor: torch.Tensor) -> torch.Tensor:
        """What is read of a tensor: its values where it is composed, with its conjugate or negative
        bit carried out.
        """
        return resolved(readable(TensorBase.detach(plainly(tensor))))

    @staticmethod
    @set_aside
    def read(tensor: torch.Tensor) -> Any:
        """Statistics of a host tensor's elements; None where NumPy has no such type."""
        tensor = readable(plainly(tensor).detach())
        return read(base(tensor) if 0 in tensor.stride() else tensor)

    def work_of(self, result: Any) -> Any:
        return self.arrivals.work_of(result)

    @staticmethod
    def graphs_ran() -> bool:
        """Whether compiled code may have run in this process; it counts its writes as torch does,
        but for tensors of inference mode.
        """
        return captured_calls() > 0

    @staticmethod
    def whole(tensor: torch.Tensor) -> bool:
        """Whether a tensor still has the memory that it covers: what is sharded gives the memory of
        gathered parameters back.
        """
        facts = TorchBinding.facts(tensor)
        return (
            not facts.address
            or facts.logical is not None
            or facts.extent.stop <= tensor.untyped_storage().nbytes()
        )

    @set_aside
    def stage(self, tensor: torch.Tensor) -> int:
        tensor = readable(plainly(tensor).detach())
        return self.staging.stage(base(tensor) if 0 in tensor.stride() else tensor)

    @set_aside
    def offer(self, given: Sequence[tuple[int, torch.Tensor]], made: bool) -> None:  # noqa: FBT001 - asked from C++ too
        """Large tensors of devices that a call is about to read, or has made, by version; of
        composed ones their values alone would not be the tensor.
        """
        plain = [(number, plainly(tensor).detach()) for number, tensor in given]
        self.staging.offer(
            [
                (number, base(tensor) if 0 in tensor.stride() else tensor)
                for number, tensor in plain
                if not is_composed(tensor)
            ],
            made=made,
        )

    @set_aside
    def keep(self, tensor: torch.Tensor, *, seal: bool = False) -> tuple[str, str] | None:
        """Store a tensor's elements; of a composed one nothing, since its values alone are not the
        tensor.
        """
        plain = plainly(tensor)
        if plain.device.type == "cpu":
            return self.sentinel.keep(plain, seal=seal)
        return self.staging.answer(
            plain,
            lambda: self.sentinel.keep(plain, seal=seal),
            lambda what, why: self.session.note("not kept", what, why),
        )

    @staticmethod
    @set_aside
    def clone(tensor: torch.Tensor) -> torch.Tensor:
        return TensorBase.clone(TensorBase.detach(plainly(tensor)))  # type: ignore[no-any-return]

    def label(self, tensor: torch.Tensor) -> tuple[str | None, str | None]:
        return self.modules.label(tensor)

    @staticmethod
    @set_aside
    def random_states(
        args: Sequence[Any], kwargs: dict[str, Any] | None
    ) -> dict[str, torch.Tensor]:
        return random_states(args, kwargs or {})

    @set_aside
    def keep_random(self, states: dict[str, torch.Tensor], sealed: bool) -> str | None:  # noqa: FBT001 - asked from C++ too
        return self.sentinel.keep_random(states, seal=sealed)

    def accumulates(self, node: Any, gradient: torch.Tensor) -> str | None:
        """Name of the parameter whose gradient an AccumulateGrad node collects; None where that is
        a part of memory in which other parameters' gradients may lie, as one cut into three is.
        """
        facts = self.facts(gradient)
        if facts.logical is None and len(facts.extent) < gradient.untyped_storage().nbytes():
            return None
        return self.modules.label(node.variable)[1]

    # -- operators ---------------------------------------------------------------------------------

    @staticmethod
    def handles(types: Sequence[type]) -> Any:
        """Whether calls on these subclasses are recorded as they are, not as the kernels inside;
        NotImplemented: torch is to ask.

        Those that have no handler of their own (uninitialised parameters) are, and all where the
        program has a mode below ours: torch asks the uppermost mode and then the subclasses. It
        serves DTensor without its handler, which only calls again.
        """
        if all(not is_wrapper(kind) or kind.__name__ in OPAQUE for kind in types) or mode_below():
            return True
        return NotImplemented if any(map(is_distributed, types)) else False

    def declined(
        self,
        mode: Any,
        func: Any,
        types: Sequence[type],
        args: Sequence[Any],
        kwargs: dict[str, Any],
    ) -> Any:
        """What torch does where a mode answers NotImplemented, but that its error does not name
        ours (native/recorder.cpp).
        """
        if self.modes_below():
            return NotImplemented
        for kind in types:
            self.push_mode(mode)
            try:
                result = kind.__torch_dispatch__(func, types, args, kwargs)  # type: ignore[attr-defined]
            finally:
                self.pop_mode(None)
            if result is not NotImplemented:
                return result
        raise TypeError(self.nobody(func, types))

    @staticmethod
    def nobody(func: Any, types: Sequence[type]) -> str:
        """torch's own words for a call that all handlers decline."""
        declining = "".join(f"  - tensor subclass {kind!r}\n" for kind in types)
        return (
            f"Multiple dispatch failed for '{func.__module__}.{func.__name__}'; "
            "all __torch_dispatch__ handlers returned NotImplemented:\n\n"
            f"{declining}\nFor more information, try re-running with TORCH_LOGS=not_implemented"
        )

    def describe(self, func: Any) -> Operator:
        """Facts of an operator, asked once; what the catalogue does not know of it goes with the
        run.
        """
        operator = describe(func)
        self.met.meet(operator.op, row_of(func, operator.op))
        return operator

    @staticmethod
    def target(func: Any) -> Any:
        """What is called for an operator; the overload's own C function saves one Python frame a
        call, higher-order ones have none.
        """
        made = unhindered(func)
        return getattr(func, "_op", func) if made is func else made

    @staticmethod
    def straight(func: Any, args: Sequence[Any]) -> Any:
        """What makes a call unheard by function modes and subclasses; None where `target` has to,
        with them out of the way.
        """
        return straight(func, args)

    @staticmethod
    @set_aside
    def numbers(func: Any, args: Sequence[Any]) -> tuple[Any, ...]:
        """The arguments of a call as its operator takes them.

        A mode is handed a tensor that stands for a Python number (a constant of a scripted or
        traced function) as that number, which most operators refuse.
        """
        places = takes_tensors(func)
        return tuple(
            torch.scalar_tensor(each, dtype=NUMBERS_AS[type(each)])
            if position in places and type(each) in NUMBERS_AS
            else each
            for position, each in enumerate(args)
        )

    @staticmethod
    def takes_tensors(func: Any) -> list[int]:
        """Positions whose arguments have to be tensors, numbers being refused."""
        return list(takes_tensors(func))

    def wanted(
        self,
        op: str,
        label: str,
        module: str,
        phase: str,
        accumulates: bool,  # noqa: FBT001 - by the bookkeeping
        *others: str | None,
    ) -> bool:
        """Whether --ops, --skip, --phases and a level of digests let a call through.

        accumulates: the call hands a gradient to its parameter.
        others: the API that the stack tells, and of a gradient also operator and API of its forward
        call.
        """
        selection = self.selection
        if selection.phases is not None and phase not in selection.phases:
            return False
        if self.session.digest and phase not in SHARED and not accumulates:
            return False
        name = f"{module or '<root>'}:{label}"
        api, *partner = others
        own = [op, *apis_of(op), *([api] if api is not None and phase != "backward" else [])]
        if selection.skip is not None and any(
            selection.skip.matches(each, name, module) for each in own
        ):
            return False
        if self.session.config.set_dump and not active.chosen.wants(
            own, name, module, self.modules.path_of
        ):
            return False
        names = [
            *own,
            *(name for each in partner if each is not None for name in (each, *apis_of(each))),
        ]
        return selection.ops is None or any(
            selection.ops.matches(each, name, module) for each in names
        )

    @staticmethod
    def encode(value: object) -> str:
        return encode(value)

    @staticmethod
    def constant(value: object) -> bool:
        """Whether a leaf is one of torch's few named constants, so that its text may be kept for
        good.
        """
        return type(value) in ENUMS

    # -- where and when ----------------------------------------------------------------------------

    def site(self) -> Site:
        return self.stacks.site(skip=2)

    def resolve(self, codes: list[CodeType], instructions: list[int]) -> Site:
        # Their addresses stand for them in the compiled recorder; two that are equal have two.
        self._codes.update((id(code), code) for code in codes)
        return self.stacks.resolve(codes, instructions)

    @staticmethod
    def running_node() -> Any:
        """The autograd node that runs in this thread, None outside a backward pass."""
        return torch._C._current_autograd_node() if torch._C._current_graph_task_id() >= 0 else None

    # -- what the session wants to know ------------------------------------------------------------

    def signal(self) -> None:
        self.session.scaler_updated()

    def due(self) -> None:
        self.session.drain()

    def fail(self, error: BaseException) -> None:
        """Recording ends; raises what is the program's own."""
        self.session.fail(error)
        if is_the_programs(error):
            raise error

    @staticmethod
    def surfaced(error: BaseException) -> str | None:
        """What a device said in the middle of a call of an operator that had failed there, as the
        call's error; None for all else.
        """
        return f"{type(error).__name__}: {error}"[:4000] if is_surfaced(error) else None

    @staticmethod
    def passes(error: BaseException) -> None:
        """Let what is the program's own pass; all else is forgotten."""
        if is_the_programs(error):
            raise error

    def missed(self, op: str, error: BaseException) -> bool:
        """One call could not be recorded; whether recording goes on. Raises what is the program's
        own.
        """
        lasts = self.session.missed(op, error)
        if is_the_programs(error):
            raise error
        return lasts

    @set_aside
    def observed(
        self, io: str, slot: str, tensor: torch.Tensor, known: dict[str, Any] | None
    ) -> SeenTensor:
        """One tensor of a suspicious call; known holds its statistics by column, None when it was
        not read.
        """
        tensor = tensor if is_wrapper(type(tensor)) else plainly(tensor)
        return SeenTensor(
            io, slot, str(tensor.dtype).removeprefix("torch."), tensor, **(known or {})
        )

    def draft(
        self,
        func: Any,
        args: str,
        inputs: list[SeenTensor],
        outputs: list[SeenTensor],
        before: dict[str, Any],
    ) -> Suspect:
        operator = describe(func)
        return Suspect(operator.op, operator.writes, args, inputs, outputs, before)

    @staticmethod
    def suspected(func: Any) -> None:
        """A compiled graph made something that is not finite, as no input of it was."""
        func.suspected()

    @set_aside
    def judge(self, suspect: Suspect) -> int | None:
        return self.sentinel.judge(suspect)

    @set_aside
    def judge_draft(self, draft: Draft) -> int | None:
        """The same for a draft of the reference."""
        whole = [[seen for seen in side if not seen.part] for side in (draft.inputs, draft.outputs)]
        rows = [
            [self.observed(seen.io, seen.slot, seen.tensor, seen.statistics()) for seen in side]
            for side in whole
        ]
        suspect = self.draft(draft.function, draft.args or "", rows[0], rows[1], draft.before)
        bits = self.judge(suspect)
        for seen, judged in zip(
            (*whole[0], *whole[1]), (*suspect.inputs, *suspect.outputs), strict=True
        ):
            seen.value = judged.value
        draft.kept = suspect.kept
        return bits

    @staticmethod
    def box_enter(box: BlackBox, draft: Draft) -> None:
        facts = BoxFacts(step=draft.step, parent=draft.parent, level=draft.level, phase=draft.phase)
        box.enter(
            draft.index,
            draft.thread,
            blackbox_text(draft.op, draft.name, draft.module, draft.source),
            facts,
        )

    @staticmethod
    def batches(drafts: list[Draft], *, process: int, rank: int, levels: int) -> tuple[Any, Any]:
        return arrow_batches(drafts, process=process, rank=rank, levels=levels)


def facts_of(tensor: torch.Tensor) -> Facts:
    kind, requires_grad = type(tensor), TensorBase.requires_grad.__get__(tensor)
    wrapper = is_wrapper(kind)
    if not wrapper:
        tensor = plainly(tensor)
        whole = consists_of(tensor)
        if whole is not None:
            return composed_facts(tensor, whole, kind, requires_grad=requires_grad)
    dense = tensor.layout is torch.strided and not tensor.is_nested
    address = storage_address(tensor) if dense and torch._C._has_storage(tensor) else 0
    host = tensor.device.type == "cpu"
    memory = bool(address) and not tensor.is_meta and not wrapper and not tensor.is_quantized
    return Facts(
        address=address,
        offset=concrete(tensor.storage_offset()) if address else 0,
        shape=() if tensor.is_nested else tuple(map(concrete, tensor.shape)),
        stride=tuple(map(concrete, tensor.stride())) if dense else (),
        dtype=str(tensor.dtype).removeprefix("torch."),
        device=str(tensor.device),
        layout=layout_name(tensor),
        tensor_class=None if kind in PLAIN else kind.__qualname__,
        requires_grad=requires_grad,
        counter=0 if tensor.is_inference() else tensor._version,
        uncounted=tensor.is_inference(),
        readable=memory and host,
        staged=memory and not host and layout_name(tensor) == "strided",
        data=tensor.data_ptr() if memory and host and kind not in PLAIN else 0,
        lazy=tensor.is_conj() or tensor.is_neg(),
        item=tensor.element_size(),
    )


def consists_of(tensor: torch.Tensor) -> Composed | None:
    """What a composed tensor consists of; None for others, and where that cannot be had (no memory,
    a transform's, another backend's).
    """
    if (
        not is_composed(tensor)
        or tensor.is_meta
        or torch._C._functorch.is_functorch_wrapped_tensor(tensor)
    ):
        return None
    try:
        whole = composed(tensor)
    except (RuntimeError, NotImplementedError):
        return None
    return whole if whole.values is not None or tensor.layout is ONEDNN else None


def composed_facts(
    tensor: torch.Tensor, whole: Composed, kind: type, *, requires_grad: bool
) -> Facts:
    """Facts of the values, which stand for the tensor; those in oneDNN's format have no storage,
    and are known by their tensor.
    """
    values = whole.values
    shape = tuple(tensor.shape if values is None else values.shape)
    return Facts(
        address=tensor._cdata if values is None else storage_address(values),
        offset=0 if values is None else int(values.storage_offset()),
        shape=shape,
        stride=tuple(math.prod(shape[i + 1 :]) for i in range(len(shape)))
        if values is None
        else tuple(values.stride()),
        dtype=str(tensor.dtype).removeprefix("torch."),
        device=str(tensor.device),
        layout=layout_name(tensor),
        tensor_class=None if kind in PLAIN else kind.__qualname__,
        requires_grad=requires_grad,
        counter=sum(
            each._version
            for each in (tensor, values)
            if each is not None and not each.is_inference()
        ),
        uncounted=tensor.is_inference(),
        readable=tensor.device.type == "cpu",
        staged=tensor.device.type != "cpu",
        lazy=True,
        logical=() if tensor.is_nested else tuple(tensor.shape),
        parts=whole.parts,
    )


def concrete(size: int | torch.SymInt) -> int:
    """A size as a number; one of a graph in the making is not asked for, which would fix it there:
    what it stands for, -1 if unknown.
    """
    if isinstance(size, torch.SymInt):
        return (
            int(size.node.hint) if size.node.has_hint() and isinstance(size.node.hint, int) else -1
        )
    return size


def is_wrapper(kind: type) -> bool:
    """Whether a subclass stands for other tensors or for none, so that its own memory means
    nothing.
    """
    return kind not in PLAIN and getattr(kind, "__torch_dispatch__", None) is not getattr(
        torch.Tensor, "__torch_dispatch__", None
    )


def is_distributed(kind: type) -> bool:
    """Whether a subclass has DTensor's own handler, which torch passes by."""
    distributed = distributed_tensor()
    return (
        distributed is not None
        and getattr(getattr(kind, "__torch_dispatch__", None), "__func__", kind)
        is distributed.__torch_dispatch__.__func__
    )


def mode_below() -> bool:
    """Whether a mode of the program lies below ours, while ours handles a call; those that torch
    itself keeps apart are asked later.
    """
    own = sum(
        torch._C._get_dispatch_mode(key) is not None
        for key in torch._C._TorchDispatchModeKey.__members__.values()
    )
    return bool(torch._C._len_torch_dispatch_stack() > own)


def apis_of(op: str) -> tuple[str, ...]:
    """The names under which users know an operator, for those that have no Python frame to tell
    them.
    """
    short = op.rpartition("::")[2].partition(".")[0].removeprefix("native_").rstrip("_")
    return (
        (f"torch.{short}", f"torch.Tensor.{short}", f"torch.nn.functional.{short}")
        if op.startswith("aten::")
        else ()
    )


def element_types() -> dict[torch.dtype, tuple[str, int]]:
    """Each torch dtype with its name and its number in the compiled kernels, -1 where they cannot
    read it.
    """
    types = {value for value in vars(torch).values() if isinstance(value, torch.dtype)}
    names = {dtype: str(dtype).removeprefix("torch.") for dtype in types}
    return {dtype: (name, NUMBERS.get(name, -1)) for dtype, name in names.items()}


def layout_name(tensor: torch.Tensor) -> str:
    """Private format of an NPU tensor where torch_npu tells it, else torch's layout without its
    prefix.
    """
    if tensor.device.type == "npu":
        return npu_format(tensor) or "strided"
    return "nested" if tensor.is_nested else str(tensor.layout).removeprefix("torch.")


def npu_format(tensor: torch.Tensor) -> str | None:
    """Name or number of a private device format, by torch_npu.get_npu_format; None where elements
    lie as torch's strides say.
    """
    reader = getattr(sys.modules.get("torch_npu"), "get_npu_format", None)
    if reader is None:
        return None
    answer = reader(tensor)
    name = str(getattr(answer, "name", answer))
    return None if name in {"UNDEFINED", "ND"} or is_plain(name) else name


def encode(value: object) -> str:
    """One leaf of an argument tree as JSON: plain values as they are, all others tagged
    (docs/schema.md, args).
    """
    if value is None or isinstance(value, (bool, str)):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, int):
        return str(int(value))
    if isinstance(value, float):
        return repr(float(value)) if math.isfinite(value) else f'{{"float": "{float(value)}"}}'
    if isinstance(value, complex):
        return f'{{"complex": [{encode(value.real)}, {encode(value.imag)}]}}'
    return json.dumps(tagged(value), ensure_ascii=False)


def tagged(value: object) -> dict[str, Any]:
    tag = ENUMS.get(type(value))
    if tag is not None:
        return {tag: str(value).removeprefix("torch.")}
    if isinstance(value, torch.device):
        return {"device": str(value)}
    if isinstance(value, torch.Generator):
        return {"generator": str(value.device)}
    if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        return {"object": str(value)}
    return {
        "object": process_group(value) or f"{type(value).__module__}.{type(value).__qualname__}"
    }


def process_group(value: object) -> dict[str, str] | None:
    """Name and ranks of a process group, boxed for the dispatcher or not; None for anything
    else.
    """
    group = getattr(sys.modules.get("torch.distributed"), "ProcessGroup", None)
    if group is None:
        return None
    try:
        group_object = group.unbox(value) if isinstance(value, torch.ScriptObject) else value
        if isinstance(group_object, group):
            return {
                "process_group": str(group_object.group_name),
                "ranks": spans(torch.distributed.get_process_group_ranks(group_object)),
            }
    except (AttributeError, KeyError, RuntimeError, TypeError, ValueError):
        return None  # another object in a box, or a group that torch does not know
    return None


def spans(ranks: Sequence[int]) -> str:
    """Ranks in few words: "0-7", "0-6:2" (every second), "0,3,5"."""
    step = ranks[1] - ranks[0] if len(ranks) > 2 else 1
    if len(ranks) > 1 and step > 0 and list(ranks) == list(range(ranks[0], ranks[-1] + 1, step)):
        return f"{ranks[0]}-{ranks[-1]}" + (f":{step}" if step > 1 else "")
    return ",".join(map(str, ranks))
