# SPDX-License-Identifier: Apache-2.0
"""Records a live PyTorch program: modes, module hooks and optimizer hooks on one side, the
bookkeeper on the other.
"""

from __future__ import annotations

import math
import sys
import threading
from collections.abc import Callable, Hashable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch.nn.modules import module as module_hooks
from torch.optim.optimizer import (
    Optimizer,
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)
from torch.overrides import _get_current_function_mode_stack
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from opscope.kernels import compiled
from opscope.kernels.bookkeeping import Recorder
from opscope.record.config import DIGEST, RecordConfig
from opscope.record.own_code import OPSCOPE, inside, is_user
from opscope.record.steps import Steps
from opscope.record.torch.again import Again
from opscope.record.torch.beneath import Beneath
from opscope.record.torch.binding import TorchBinding
from opscope.record.torch.checker import Checker
from opscope.record.torch.compiled import CompiledCheck
from opscope.record.torch.dynamo import surround_compilations
from opscope.record.torch.flags import autocast_types, hold_flags, parse_flags, read_flags
from opscope.record.torch.float_status import FloatStatus
from opscope.record.torch.formulas import Formulas
from opscope.record.torch.graphs import Graphs
from opscope.record.torch.mode import ApiMode, OperatorMode
from opscope.record.torch.modules import (
    Modules,
    no_global_hooks,
    result_tensors,
    tensors_in,
    uncounted,
)
from opscope.record.torch.optimizers import LiveOptimizers
from opscope.record.torch.sentinel import Sentinel
from opscope.record.torch.stacks import traced_lines
from opscope.record.torch.subclasses import allow_subclasses
from opscope.record.torch.training import Training
from opscope.record.torch.uncompiled import leave_package_uncompiled, leave_uncompiled
from opscope.run.arrow import encode_rows
from opscope.run.contain import contain
from opscope.run.schema import CALL_TYPES, LEVELS, TENSOR_TYPES, Stack

if TYPE_CHECKING:
    from opscope.record.session import Session

SETTINGS = {
    "lr": "the learning rate",
    "weight_decay": "the weight decay",
    "momentum": "the momentum",
}
MOST_COPIES = 64  # of tensors of devices that an origin read
MOST_BYTES = {False: 1 << 28, True: 1 << 24}  # of them; those of what may be a mask are few
Result = TypeVar("Result")


@dataclass(eq=False)
class CopiesKept:
    """What was stored of devices' tensors that may be an origin's."""

    most: int  # bytes
    count: int = 0
    size: int = 0

    @property
    def full(self) -> bool:
        return self.count >= MOST_COPIES or self.size >= self.most

    def add(self, size: int) -> None:
        self.count += 1
        self.size += size


class TorchRecorder:
    """Feeds one process's session; `start` and `stop` may alternate any number of times."""

    def __init__(self, session: Session) -> None:
        config = session.config
        leave_uncompiled(TorchRecorder, TorchBinding, Checker)
        self.session = session
        self.modules = Modules()
        self.binding = TorchBinding(session, sentinel=Sentinel(session), modules=self.modules)
        self.book = make_book(self.binding, config)
        self.book.offered_from = self.binding.staging.offered_from
        session.cleanup.callback(self.binding.arrivals.watch(self.book))
        self.steps = Steps(
            self._step_ended, LiveOptimizers(self.modules.may_have_used), module=config.step_module
        )
        self._worked = False
        self._float_status = FloatStatus()
        self.suspicious_step: int | None = None
        self._kept = {mask: CopiesKept(most) for mask, most in MOST_BYTES.items()}
        self.levels = tuple(level for level in config.levels if level != DIGEST)
        self._autocast: dict[str, None] = {}
        self._training = Training(self.modules)
        self._held = parse_flags(config.torch_flags)
        hold_flags(self._held)
        self._scopes = threading.local()
        self._modes = threading.local()
        self._hooks: list[Any] = []
        session.cleanup.enter_context(uncounted(self._hook_numbers))
        allow_subclasses(session.cleanup)
        leave_package_uncompiled(session.cleanup)
        self._waits = False  # modes to be taken off once a call is over
        self.beneath = (
            Beneath(session, self.book, self.binding)
            if config.check or config.substitute or config.journal
            else None
        )

    def watch_graphs(self) -> None:
        """Record what torch.compile makes, until the session ends."""

        def refused(name: str, why: str) -> None:
            self.session.note("not executed again", name, why)

        again = Again(self.book, self.enter_modes, self.exit_modes, refused)
        checker = self.beneath.checker if self.beneath is not None else None
        check = CompiledCheck(checker) if checker is not None else None
        Graphs(
            self.session,
            self.book,
            again,
            check,
            enters=self._package_enters,
            unseen=self._unseen,
        ).watch()
        surround_compilations(self.session.cleanup, lambda: no_global_hooks(self._hook_numbers))

    def _hook_numbers(self) -> list[int]:
        return [hook.id for hook in self._hooks]

    def watch_formulas(self) -> None:
        """Know which gradient formula in Python is running, until the session ends."""
        book = self.book

        def raised(op: str, error: str) -> None:
            book.leave_scope(book.enter_scope("operator", op, "", []), [], error)

        formulas = Formulas(
            self.session.writer.directory,
            watched=lambda: bool(book.active and not book.paused),
            step=lambda: int(book.step),
            raised=raised,
            failed=self.session.fail,
        )
        formulas.install()
        self.session.cleanup.callback(formulas.remove)

    # -- switching ---------------------------------------------------------------------------------

    def pause(self) -> None:
        """Only count steps, until the next start."""
        self.book.paused = True

    def start(self) -> None:
        if self.book.paused:
            self.book.paused = False
            self.book.forget()
        if self.book.active:
            return
        self.book.active = True
        self.book.forget()
        self._hooks = [
            register_optimizer_step_pre_hook(self._optimizer_begins),
            register_optimizer_step_post_hook(self._optimizer_ends),
        ]
        if self._sees_modules:
            self._hooks += [
                module_hooks.register_module_forward_pre_hook(self._module_enters),
                module_hooks.register_module_forward_hook(self._module_leaves, always_call=True),
            ]
        self.enter_modes()

    def stop(self) -> None:
        """Stop watching; modes of other threads pass calls through from now on."""
        self.book.active = False
        self._tell_status()
        for hook in self._hooks:
            hook.remove()
        self._hooks = []
        self.exit_modes()

    def abandon(self) -> None:
        """In a forked child: the modes stay on the stack and pass every call through."""
        self.book.active = False
        self.book.attach(None)

    def fetch(self, *, end: bool) -> bool:
        """Bring statistics from devices, at the end of a step or when they are many; False while
        rows still wait for them.
        """
        arrived = self._fetch(end=end)
        if end and not self.book.active:
            self.binding.staging.let_go()
        return arrived

    def _fetch(self, *, end: bool) -> bool:
        staging = self.binding.staging
        if not self.book.pending:
            return True
        if not end and not staging.full:
            return False
        self.book.fetched(staging.fetch(), self._keep_copied)
        staging.go_on()
        if end and not self._float_status.full:
            self._read_status()
        return True

    def _keep_copied(
        self,
        ticket: int,
        version: int,
        mask: bool,  # noqa: FBT001 - asked from C++ too
    ) -> tuple[str, str] | None:
        """Where a copy of a device's tensor was stored, the host's by its ticket or that of the
        device's ring; None where there is none any more, or enough have been kept. mask: what was
        made of it may be one.
        """
        if self.session.config.values == "none" or self._kept[mask].full:
            return None
        staging = self.binding.staging
        tensor = staging.copy_of(ticket)
        tensor = staging.held(version) if tensor is None else tensor
        if tensor is None:
            return None
        self._kept[mask].add(tensor.nbytes)
        return self.binding.keep(tensor, seal=True)

    def batches(self, *, process: int, rank: int) -> dict[str, Any]:
        """Arrow batches of what was finished since the last time, by table."""
        levels = {"operator"} if self.session.digest else {*self.levels}
        if "operator" in levels:
            levels.add("graph")
        calls, tensors = self.book.take(
            process, rank, sum(1 << LEVELS.index(level) for level in levels)
        )
        batches_of = {
            table: batch
            for table, batch in (("calls", calls), ("tensors", tensors))
            if batch is not None
        }
        stacks = self.binding.stacks.take()
        judgements = self.beneath.judgements() if self.beneath is not None else []
        if judgements:
            batches_of["judgements"] = encode_rows("judgements", judgements)
        if stacks:
            batches_of["stacks"] = encode_rows(
                "stacks",
                [Stack(process=process, stack=number, frames=frames) for number, frames in stacks],
            )
        return batches_of

    def step_marked(self) -> None:
        """The program says that a step is over. Outside of modules it reads the loss and clears
        gradients: that is no step's work.
        """
        self._note_backward()
        self.steps.mark(idle=not (self._worked if self._sees_modules else self.book.pending))

    @property
    def _sees_modules(self) -> bool:
        return "module" in self.levels or self.levels == ("operator",)

    def _step_ended(self, skipped: bool) -> None:  # noqa: FBT001 - callback of record.steps
        self.session.step_ended(skipped)
        self._worked = False

    def _read_status(self) -> None:
        """Whether something overflowed in this step, as devices tell that saturate; others are not
        asked.
        """
        step = int(self.book.step)
        rose = self._float_status.note(step, self.binding.staging.overflow_statuses())
        if rose:
            self.suspicious_step = step
        # the program may be killed before it ends
        if rose or step & (step - 1) == 0 or not self.book.active:
            self._tell_status()

    def _tell_status(self) -> None:
        facts = self._float_status.facts()
        if facts:
            self.session.state("float status", facts)

    def settings(self) -> dict[str, Any]:
        """torch's flags as they are now, and where autocast has been on, for process.json."""
        return {"flags": read_flags(), "autocast": list(self._autocast)}

    def training(self) -> dict[str, Any]:
        """Facts of the training, for process.json."""
        return self._training.facts()

    def enter_modes(self) -> None:
        """Push the modes in the calling thread."""
        if getattr(self._modes, "stack", None) is not None:
            return
        self._modes.stack = ExitStack()
        for mode in self.beneath.modes if self.beneath is not None else ():
            self._modes.stack.enter_context(mode)
        if "api" in self.levels:
            self._modes.stack.enter_context(ApiMode(self))
        self._modes.stack.enter_context(OperatorMode(self))

    def exit_modes(self) -> None:
        """Take the modes off the calling thread, or once the call is over in which this is
        asked.
        """
        stack = getattr(self._modes, "stack", None)
        if stack is None:
            return
        if self._modes_on_top():
            self._modes.stack = None
            stack.close()
        elif not self._waits:
            # torch holds the modes while one of them handles a call, and puts them back after it
            self._waits = True
            register_optimizer_step_post_hook(self._call_is_over)

    @contextmanager
    def _unseen(self) -> Iterator[None]:
        """A block of native code, whose calls are no rows: what it writes to between them, nobody
        sees. Where modes of the program's lie above ours they are, and nothing that was read before
        holds.
        """
        if getattr(self._modes, "stack", None) is None:
            yield
            return
        off = self._modes_on_top()
        if off:
            self.exit_modes()
        try:
            yield
        finally:
            self._guarded(self.enter_modes if off else self.book.forget)

    def _modes_on_top(self) -> bool:
        """Whether what leaving the modes takes off are the modes: torch holds them aside during a
        call, and the program has its own.
        """
        stacks = [_get_current_dispatch_mode_stack()]
        if "api" in self.levels:
            stacks.append(_get_current_function_mode_stack())  # type: ignore[no-untyped-call]
        tops = [stack[-1] if stack else None for stack in stacks]
        return all(
            isinstance(top, (OperatorMode, ApiMode)) and top.recorder is self for top in tops
        )

    def _call_is_over(self, *_: Any) -> None:
        """Optimizer hook, which stays: torch goes through its hooks while it calls them."""
        if not self.book.active:
            self._guarded(self.exit_modes)

    # -- operators and APIs ------------------------------------------------------------------------

    def api(self, name: str, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run one torch function under observation."""
        if not self.book.active or self.book.paused:
            return func(*args, **kwargs)
        index = self._guarded(self._enter_api, name, args, kwargs)
        if index is None:
            return func(*args, **kwargs)
        try:
            result = func(*args, **kwargs)
        except BaseException as error:
            self._guarded(
                self.book.leave_scope, index, [], f"{type(error).__name__}: {error}"[:4000]
            )
            raise
        self._guarded(lambda: self.book.leave_scope(index, list(result_tensors(result))))
        return result

    def _enter_api(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
        given = [*tensors_in(args, ""), *tensors_in(kwargs, "kwargs")]
        return int(self.book.enter_scope("api", name, self._path(), given))

    def scaler_updated(self) -> None:
        self._note_backward()
        self.steps.scaler_updates()

    def _note_backward(self) -> None:
        if self.book.backward_seen:
            self.book.backward_seen = False
            self.steps.backward()

    def _guarded(self, action: Callable[..., Result], *arguments: Any) -> Result | None:
        return contain(self._missed, action, *arguments)

    def _missed(self, error: BaseException) -> None:
        self.session.missed("a module, an API or an optimizer", error)

    # -- modules -----------------------------------------------------------------------------------

    def _scope(self) -> list[tuple[torch.nn.Module, int, str]]:
        if not hasattr(self._scopes, "stack"):
            self._scopes.stack = []
        stack: list[tuple[torch.nn.Module, int, str]] = self._scopes.stack
        return stack

    def _path(self) -> str:
        scope = self._scope()
        return scope[-1][2] if scope else ""

    def _module_enters(self, module: torch.nn.Module, args: Any) -> None:
        if torch.compiler.is_compiling() or not self.book.active or self.book.paused:
            return
        self._guarded(self._enter_module, module, args)

    def _enter_module(self, module: torch.nn.Module, args: Any) -> None:
        scope = self._scope()
        if not scope:
            hold_flags(self._held)  # the program may have set its own since
            self._autocast.update(dict.fromkeys(autocast_types()))
        parent = scope[-1] if scope else None
        path = self.modules.path(
            module,
            parent[0] if parent else None,
            parent[2] if parent else None,
            scope[0][0] if scope else None,
        )
        learnt, self.modules.learnt = self.modules.learnt, []
        for reference in learnt:
            model = reference()
            if model is not None:
                self._training.model_learnt(model)
                self.binding.stacks.read_as(traced_lines(model))
        strangers, self.modules.strangers = self.modules.strangers, []
        for reference in strangers:
            graph = reference()
            if graph is not None:
                self.binding.stacks.read_as(traced_lines(graph))
        memories, self.modules.memories = self.modules.memories, []
        for memory in memories:
            self.book.label(*memory)
        if not scope:
            self._model_enters(module, args)
        self.steps.module_enters(path)
        self._worked = True
        kind = type(module)
        op = (
            f"torch.nn.{kind.__name__}"
            if kind.__module__.startswith("torch.nn.")
            else f"{kind.__module__}.{kind.__qualname__}"
        )
        index = self.book.enter_scope("module", op, path, list(tensors_in(args, "")))
        self._training.module_enters(module, path, index)
        scope.append((module, index, path))

    def _model_enters(self, module: torch.nn.Module, args: Any) -> None:
        """A model is called from the program's own loop: not from a backward pass, a thread beside
        it, and no loss or activation.
        """
        if not _in_main_loop() or next(module.parameters(), None) is None:
            return
        self._note_backward()
        infers = not torch.is_grad_enabled()
        # the program's function modes and subclasses hear of no attribute that is read here
        with torch._C.DisableTorchFunction():
            continues = any(tensor.grad_fn is not None for _, tensor in tensors_in(args, ""))
        self.steps.model_enters(id(module), line_of_program(), infers=infers, continues=continues)

    def _package_enters(self, model: object) -> None:
        """A model that was compiled before and loaded is called, of which no gradient can come."""
        if not self._scope() and _in_main_loop():
            self._note_backward()
            self.steps.model_enters(id(model), line_of_program(), infers=True)

    def _module_leaves(self, module: torch.nn.Module, *given: Any) -> None:
        """Forward hook: given are args, kwargs and the result; after an exception torch leaves the
        kwargs out.
        """
        if torch.compiler.is_compiling() or not self.book.active:
            return
        self._guarded(self._leave_module, module, given[-1])

    def _leave_module(self, module: torch.nn.Module, result: Any) -> None:
        scope = self._scope()
        if not any(entry[0] is module for entry in scope):
            return
        while scope:
            entered, index, _ = scope.pop()
            self.book.leave_scope(index, list(result_tensors(result)) if entered is module else [])
            if entered is module:
                break

    # -- optimizers --------------------------------------------------------------------------------

    def _optimizer_begins(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:  # noqa: ARG002
        if self.book.active:
            self._guarded(self._begin_optimizer, optimizer)

    def _begin_optimizer(self, optimizer: Optimizer) -> None:
        self._note_backward()
        self.steps.optimizer_begins(id(optimizer))
        self.book.push_phase("optimizer")
        self._note_settings(optimizer)
        self._training.optimizer_steps(optimizer, int(self.book.step))

    def _note_settings(self, optimizer: Optimizer) -> None:
        """Write down a setting of an optimizer that is not finite: what computes with it shows its
        value, not its name.
        """
        for group in optimizer.param_groups:
            for name, value in group.items():
                if type(value) is float and not math.isfinite(value):
                    words = SETTINGS.get(name, f"the optimizer's {name}")
                    self.session.note("settings", f"step {self.book.step}", f"{words} is {value}")

    def _optimizer_ends(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:  # noqa: ARG002
        if self.book.active:
            self._guarded(self._end_optimizer, id(optimizer))

    def _end_optimizer(self, optimizer: int) -> None:
        self._note_backward()
        self.book.pop_phase()
        self.steps.optimizer_ends(optimizer)


def _in_main_loop() -> bool:
    """Whether the main thread runs, and no backward pass."""
    in_backward = torch._C._current_graph_task_id() >= 0
    return not in_backward and threading.current_thread() is threading.main_thread()


def line_of_program() -> Hashable:
    """Which call of the program's own code is under way; None where there is none of its own."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and (
        inside(frame.f_code.co_filename, OPSCOPE) or not is_user(frame.f_code.co_filename)
    ):
        frame = frame.f_back
    return None if frame is None else (frame.f_code, frame.f_lasti)


# The bookkeeper that serves here: the compiled one, else its reference.


def make_book(binding: TorchBinding, config: RecordConfig) -> Any:
    """A recorder as kernels.bookkeeping.Recorder defines it."""
    native = compiled.load_recorder()
    values = (
        "anomaly" if config.values == "overflow" else config.values
    )  # which tensors of such a call are kept is the sentinel's word
    if native is None:
        return Recorder(
            binding,
            values=values,
            sample=config.sample,
            io=config.selection.io,
            selective=binding.selective,
        )
    book = native.Recorder(
        binding,
        values,
        config.sample,
        config.selection.io,
        list(CALL_TYPES.items()),
        list(TENSOR_TYPES.items()),
    )
    book.use_threads(torch.get_num_threads(), openmp_library())
    return book


def openmp_library() -> str:
    """The OpenMP library torch computes with, so that its threads serve the statistics too; "" when
    it is not GNU's.
    """
    libraries = sorted(Path(torch.__file__).parent.glob("lib/libgomp*.so*")) + sorted(
        Path(torch.__file__).parent.parent.glob("torch.libs/libgomp*.so*")
    )
    return str(libraries[0]) if libraries else ""
