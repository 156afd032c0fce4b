# SPDX-License-Identifier: Apache-2.0
"""The tables of a process that runs MindSpore in PyNative mode: primitives, Cells, compiled parts,
in the order they ran.

Versions are known by address and content: bytes at one address that have not changed are one
version, and what a compiled part made is known again by its digest. A backward primitive belongs to
the forward one whose inputs or outputs it reads. When a step ends is for record.steps to say; where
the program has no optimizer, one ends when forward work begins again after a gradient.
"""

from __future__ import annotations

import sys
import threading
from collections import ChainMap, Counter
from collections.abc import Callable, Hashable, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from opscope.arrays import Array
from opscope.kernels import digest as digest_of
from opscope.kernels.calls import call_name
from opscope.record.arrays import bytes_of, measured
from opscope.record.chosen import Chosen
from opscope.record.mindspore.bits import is_origin, overflow_bits, unsound
from opscope.record.mindspore.cells import Scope, operator_of, path_below
from opscope.record.mindspore.frames import Site
from opscope.record.mindspore.ingest import Ingestor, Numbers, Within
from opscope.record.mindspore.iterations import Iterations
from opscope.record.mindspore.reading import (
    PARAMETER,
    array_of,
    base_of,
    data_address,
    described,
    parameters_of,
)
from opscope.record.steps import Steps
from opscope.run.contain import contain, reason, tell
from opscope.run.dtypes import dtype_of_numpy
from opscope.run.schema import Call, Stack, Tensor, ValueRef
from opscope.run.store.blackbox import BlackBox, Facts, blackbox_text
from opscope.run.store.layout import BLACKBOX

if TYPE_CHECKING:
    from opscope.record.config import RecordConfig
    from opscope.record.mindspore.compiled import CompiledParts
    from opscope.run.store.writer import ProcessWriter

Slots = Sequence[tuple[str, Any]]
BATCH = 256
MOST_PROBLEMS = 10
FUNCTIONAL = "optimizer without a Cell"


class _Seen(msgspec.Struct, frozen=True):
    """What is known of the bytes at an address: their version, the digest by which they are known
    again, after how many calls.
    """

    version: int
    digest: int | None
    calls: int


class Noted(msgspec.Struct, frozen=True):
    """A primitive that is about to run: name, site, column args, inputs as they are before it, its
    number once it has one.
    """

    op: str
    site: Site
    args: str
    before: list[tuple[str, Any, Array | None]]
    index: int | None = None


class Book:
    """The tables of one process.

    live names the optimizers of the program; stop ends the program with an exit code; compiled is
    None where there is nothing to take.
    """

    def __init__(
        self,
        make_writer: Callable[[], ProcessWriter],
        config: RecordConfig,
        *,
        live: Callable[[], set[Hashable]] = set,
        stop: Callable[[int], None] = lambda code: None,  # noqa: ARG005
        chosen: Chosen | None = None,
    ) -> None:
        self.step = 0
        self.active = True
        self.compiled: CompiledParts | None = None
        self.steps = Steps(lambda _: self.end_step(), live, module=config.step_module)
        self._make_writer, self._config, self._live, self._stop = make_writer, config, live, stop
        self._chosen = chosen or Chosen()
        self._numbers = Numbers()
        self._local = threading.local()
        self._inputs: dict[int, list[Tensor]] = {}  # of Cells that are running, by index
        self._versions: dict[tuple[int, int], _Seen] = {}
        # digest -> version of what was made in this step, and in the one before
        self._made: ChainMap[int, int] = ChainMap({}, {})
        # primitives and compiled parts that have run, and had run when the step began
        self._done = self._begun = 0
        self._counts: Counter[tuple[str, ...]] = Counter()
        self._names: Counter[str] = Counter()
        self._stacks: dict[tuple[str, ...], int] = {}
        self._parameters: dict[tuple[int, int], str] = {}  # of the outermost Cell, by address
        self._paths: dict[
            int, str
        ] = {}  # of Cells that were called, by identity: a gradient runs when they have ended
        self._iterations = Iterations()
        self._relatives = Relatives()
        self._waiting: dict[str, list[Any]] = {"stacks": [], "calls": [], "tensors": []}
        self._problems = 0
        self._gradient_seen = self._functional = self._finding = self._paused = self._stopping = (
            False
        )

    @cached_property
    def writer(self) -> ProcessWriter:
        """The tables, made with the first row: a program in graph mode has none."""
        return self._make_writer()

    @cached_property
    def _blackbox(self) -> BlackBox | None:
        """Names the primitive that runs, should the process die in it; None where the disk has no
        room for it.
        """
        return contain(
            lambda error: tell(
                f"{reason(error)}: a call in which the process dies will have no row"
            ),
            lambda: BlackBox.create(self.writer.directory / BLACKBOX),
        )

    @cached_property
    def _ingestor(self) -> Ingestor:
        place = self.compiled.place if self.compiled is not None else None
        return Ingestor(
            self.writer, self._config, place=place, numbers=self._numbers, chosen=self._chosen
        )

    @property
    def observing(self) -> bool:
        """Whether rows are still taken, and a wanted step is still to come."""
        last = self._config.selection.last_step
        return self.active and not self._paused and (last is None or self.step <= last)

    def pause(self) -> None:
        """Take no rows until resume()."""
        self.take_compiled(wait=True)
        self._paused = True

    def resume(self) -> None:
        """Take rows again; what was compiled and ran meanwhile is left out."""
        self.drop_compiled()
        self._paused = False

    def drop_compiled(self) -> None:
        """Delete what compiled parts have dumped."""
        if self.compiled is not None:
            self.compiled.take(self.compiled.remove, wait=True)

    @property
    def scopes(self) -> list[Scope]:
        """The Cells that run in the calling thread, outermost first."""
        if not hasattr(self._local, "scopes"):
            self._local.scopes = []
        scopes: list[Scope] = self._local.scopes
        return scopes

    def close(self) -> None:
        """Write what is left; a second call does nothing."""
        if self.active and "writer" in self.__dict__:
            self.take_compiled(wait=True)
            self.flush()
            self.writer.end_step(self.step, finding=self._finding)
            self.writer.close()
        self.active = False

    def give_up(self, error: BaseException) -> None:
        """Recording ends, the program goes on; nothing is said of the end that was asked for."""
        if not self.active or self._stopping:
            return
        self.active = False
        tell(f"recording of PyNative ended: {reason(error)}; the program goes on")
        if "writer" in self.__dict__:
            self.writer.update(failed=reason(error))
            self.writer.close()

    # -- steps -------------------------------------------------------------------------------------

    def turn(self, site: Site) -> None:
        """Notice where a step ends, before a primitive of this site runs."""
        if self._functional and site.phase != "optimizer":
            self._functional = False
            self.steps.optimizer_ends(FUNCTIONAL)
        if (
            site.phase == "optimizer"
            and not any(scope.optimizer for scope in self.scopes)
            and not self._functional
        ):
            self._functional = True
            self.steps.optimizer_begins(FUNCTIONAL)
        self._phase_begins(site.phase)

    def _phase_begins(self, phase: str) -> None:
        if phase == "backward":
            self.steps.backward()
            self._gradient_seen = True
        elif (
            phase == "forward"
            and self._gradient_seen
            and not self.steps.marked
            and self.steps.module is None
        ):
            self._gradient_seen = False
            if not self._live():
                self.end_step()

    def mark_step(self) -> None:
        """The program says that a step is over; the first time that may be what was noticed just
        before.
        """
        contain(self.give_up, self._mark_step)

    def _mark_step(self) -> None:
        self.take_compiled(wait=True)
        self.steps.mark(idle=self._done == self._begun)

    def end_step(self) -> None:
        """A step is over: write it, count names anew, and end the program where that was asked
        for.
        """
        self.flush()
        if "writer" in self.__dict__:
            self.writer.end_step(self.step, finding=self._finding)
        self.step += 1
        self._begun = self._done
        finding, self._finding, self._gradient_seen = self._finding, False, False
        self._counts.clear()
        self._names.clear()
        self._relatives.clear()
        self._made = ChainMap({}, self._made.maps[0])
        last = self._config.selection.last_step
        if finding and self._config.on_overflow == "stop":
            self._end_program(1)
        elif self._config.stop_after and last is not None and self.step > last:
            self._end_program(0)

    def _end_program(self, code: int) -> None:
        self._stopping = True
        self._stop(code)

    # -- compiled parts ----------------------------------------------------------------------------

    def take_compiled(self, *, within: Within | None = None, wait: bool = False) -> None:
        """Take what compiled parts have dumped since the last time, at the place where the program
        is now.

        within has the phase of the Cell that is leaving, where it says more than the graph, and the
        line that called it; wait for what is still running.
        """
        parts = self.compiled
        if parts is not None and parts.own and self.active and not self._paused:
            leaving = within or Within(step=self.step)
            parts.take(lambda folder: self._take_folder(folder, leaving, parts), wait=wait)

    def _take_folder(self, folder: Path, leaving: Within, parts: CompiledParts) -> None:
        self.flush()
        if self.writer.failed is not None:  # which has said why
            self.active = False
            parts.remove(folder)
            return
        self._done += 1
        iteration = int(folder.name) if parts.counts else None

        def here(phases: frozenset[str]) -> Within:
            if iteration is not None:
                self._turn_to(self._iterations.step(iteration, phases))
            return self._here(phases, leaving)

        taken = self._ingestor.take(folder, owned=parts.facts.owned, within=here)
        self._tell_problems()
        self._made.update(taken.made)
        self._finding = self._finding or taken.finding
        if iteration is not None:
            return
        if "backward" in taken.phases:
            self._phase_begins("backward")
        if "optimizer" in taken.phases and leaving.phase is None:
            for optimizer in self._live() or {FUNCTIONAL}:
                self.steps.optimizer_begins(optimizer)
                self.steps.optimizer_ends(optimizer)

    def _turn_to(self, step: int) -> None:
        if step > self.step:
            self.end_step()
            self.step = step

    def _tell_problems(self) -> None:
        """Say the first few things that could not be read; one that the disk had no room for is one
        of very many.
        """
        for problem in self._ingestor.problems[: max(0, MOST_PROBLEMS - self._problems)]:
            print(f"opscope: {problem}", file=sys.stderr)
        before, self._problems = self._problems, self._problems + len(self._ingestor.problems)
        if before <= MOST_PROBLEMS < self._problems:
            print("opscope: more files of the dump cannot be read", file=sys.stderr)
        self._ingestor.problems.clear()

    def _here(self, phases: frozenset[str], leaving: Within) -> Within:
        """Where the program is, once a step has ended that this part does not belong to."""
        if (
            "forward" in phases
            and leaving.phase is None
            and not (self.compiled is not None and self.compiled.counts)
        ):
            self._phase_begins("forward")
        scopes = self.scopes
        known = {
            seen.digest: seen.version for seen in self._versions.values() if seen.digest is not None
        }
        return msgspec.structs.replace(
            leaving,
            step=self.step,
            parent=scopes[-1].index if scopes else None,
            module=scopes[-1].module if scopes else "",
            names=self._names,
            versions=known | self._made,
        )

    # -- Cells -------------------------------------------------------------------------------------

    def enter_cell(self, cell: Any, tensors: Slots, *, optimizer: bool) -> Scope:
        """A Cell begins; its tensors are not read for it."""
        scopes = self.scopes
        module = path_below(scopes[-1] if scopes else None, cell)
        if not scopes and not optimizer:
            self._parameters = parameters_of(cell)
        if optimizer:
            self.steps.optimizer_begins(id(cell))
        else:
            self.steps.module_enters(module)
        self._paths[id(cell)] = module
        scope = Scope(
            cell=cell,
            module=module,
            index=self._numbers.next_index(),
            step=self.step,
            optimizer=optimizer,
        )
        self._inputs[scope.index] = [
            self._touched(scope.index, "input", slot, tensor) for slot, tensor in tensors
        ]
        scopes.append(scope)
        return scope

    def leave_cell(self, scope: Scope, tensors: Slots, site: Site, error: str | None) -> None:
        """A Cell has ended, and whatever inside it was never left."""
        scopes = self.scopes
        if scope not in scopes:
            return
        phase = "optimizer" if scope.optimizer else site.phase
        leaving = Within(
            step=self.step, phase="optimizer" if scope.optimizer else None, source=site.source
        )
        self.take_compiled(within=leaving, wait=True)
        while scopes[-1] is not scope:
            scopes.pop()
        op = operator_of(scope.cell)
        wanted = (
            "module" in self._config.levels
            and self.wanted(op, phase, step=scope.step)
            and self._is_chosen(op, scopes[-1].module)
        )
        scopes.pop()
        rows = [
            *self._inputs.pop(scope.index, []),
            *(self._touched(scope.index, "output", slot, tensor) for slot, tensor in tensors),
        ]
        if wanted:
            call = Call(
                process=self.writer.process.process,
                rank=self.writer.process.rank,
                step=scope.step,
                index=scope.index,
                level="module",
                parent=scopes[-1].index if scopes else None,
                phase=phase,
                op=operator_of(scope.cell),
                module=scope.module,
                name=self._name(
                    "module", operator_of(scope.cell).rpartition(".")[2], scope.module, phase
                ),
                stack=self._stack(site),
                source=site.source,
                error=error,
            )
            self._write(call, rows)
        if scope.optimizer:
            self.steps.optimizer_ends(id(scope.cell))

    def _touched(self, index: int, io: str, slot: str, tensor: Any) -> Tensor:
        """A row of a Cell, without statistics; its bytes are read only where something ran since
        they were read last.
        """
        row = self._described(index, io, slot, tensor)
        seen = self._versions.get(data_address(tensor))
        if seen is not None and seen.calls == self._done:
            return msgspec.structs.replace(row, version=seen.version)
        read, _ = self._row(index, io, slot, tensor, array_of(tensor))
        return msgspec.structs.replace(row, version=read.version)

    # -- primitives --------------------------------------------------------------------------------

    def before(self, inputs: Slots) -> list[tuple[str, Any, Array | None]]:
        """The inputs as they are before the primitive runs, which may write to them."""
        keep = self._config.values != "none"
        return [(slot, tensor, _copied(array_of(tensor), keep=keep)) for slot, tensor in inputs]

    def wanted(self, op: str, phase: str, *, step: int | None = None) -> bool:
        """Whether step, --ops, --skip and --phases let a call through in the innermost Cell.

        step is the present one, of a Cell the one it began in.
        """
        selection = self._config.selection
        if not selection.wants_step(self.step if step is None else step) or (
            selection.phases is not None and phase not in selection.phases
        ):
            return False
        module = self.scopes[-1].module if self.scopes else ""
        return selection.wants_op(op, f"{module or '<root>'}:{op}", module)

    def _is_chosen(self, op: str, module: str) -> bool:
        """Whether set_dump chose a call; asked once its module is known, which of a gradient is
        that of its forward call.
        """
        return not self._config.set_dump or self._chosen.wants(
            [op], f"{module or '<root>'}:{op}", module, self._path_of
        )

    def _path_of(self, cell: object) -> str | None:
        return self._paths.get(id(cell))

    def enter(self, noted: Noted) -> Noted:
        """The primitive begins: it gets its number, and stands in the black box until leave()."""
        index, scope = self._numbers.next_index(), self.scopes[-1] if self.scopes else None
        if self._blackbox is not None and self.active:
            module = scope.module if scope is not None else ""
            name = call_name(
                noted.op,
                module,
                noted.site.phase,
                1 + self._counts["operator", noted.site.phase, module, noted.op],
            )
            facts = Facts(
                step=self.step,
                parent=None if scope is None else scope.index,
                phase=noted.site.phase,
            )
            self._blackbox.enter(
                index,
                threading.get_ident(),
                blackbox_text(noted.op, name, module, noted.site.source),
                facts,
            )
        return msgspec.structs.replace(noted, index=index)

    def leave(self, noted: Noted) -> None:
        """The primitive has ended, and its row is made."""
        if self._blackbox is not None and noted.index is not None:
            self._blackbox.leave(noted.index, threading.get_ident())

    def add(self, noted: Noted, results: Slots, error: str | None) -> None:
        """One finished primitive."""
        if "operator" not in self._config.levels:
            return
        op, site, index = (
            noted.op,
            noted.site,
            self._numbers.next_index() if noted.index is None else noted.index,
        )
        self._done += 1
        inputs = [
            self._row(index, "input", slot, tensor, array) for slot, tensor, array in noted.before
        ]
        outputs = [
            self._row(index, "output", slot, tensor, array_of(tensor)) for slot, tensor in results
        ]
        rows = [row for row, _ in (*inputs, *outputs)]
        read, made = [row for row, _ in inputs], [row for row, _ in outputs]
        self._made.update(
            {
                row.digest: row.version
                for row in made
                if row.digest is not None and row.version is not None
            }
        )
        scope = self.scopes[-1] if self.scopes else None
        call = Call(
            process=self.writer.process.process,
            rank=self.writer.process.rank,
            step=self.step,
            index=index,
            level="operator",
            parent=scope.index if scope is not None else None,
            phase=site.phase,
            op=op,
            module=scope.module if scope is not None else "",
            name="",
            stack=self._stack(site),
            source=site.source,
            args=noted.args,
            device=next((row.device for row in rows if row.device), None),
            error=error,
            status=overflow_bits(op, noted.args, read, made),
        )
        call = self._relatives.placed(call, read, made)
        if not self._is_chosen(op, call.module or ""):
            return
        self._ingestor.meet(op)
        telling = is_origin(read, made) or error is not None
        self._finding = self._finding or any(map(unsound, made))
        sampled = self._config.values == "sample" and index % self._config.sample == 0
        if self._config.values == "full" or sampled or (telling and self._config.values != "none"):
            rows = [self._kept(row, array) for row, array in (*inputs, *outputs)]
        self._write(
            msgspec.structs.replace(
                call, name=self._name("operator", op, call.module or "", site.phase)
            ),
            rows,
        )

    def _write(self, call: Call, rows: Sequence[Tensor]) -> None:
        self._waiting["calls"].append(call)
        self._waiting["tensors"] += [row for row in rows if self._config.selection.wants_io(row.io)]
        if len(self._waiting["calls"]) >= BATCH:
            self.flush()

    def flush(self) -> None:
        """Hand rows to the writer."""
        if any(self._waiting.values()):
            self.writer.append_rows(self._waiting, step=self.step)
        self._waiting = {"stacks": [], "calls": [], "tensors": []}

    def _name(self, level: str, op: str, module: str, phase: str) -> str:
        self._counts[level, phase, module, op] += 1
        return call_name(op, module, phase, self._counts[level, phase, module, op])

    def _stack(self, site: Site) -> int:
        known = self._stacks.get(site.frames)
        if known is None:
            known = self._stacks[site.frames] = self._numbers.next_stack()
            self._waiting["stacks"].append(
                Stack(process=self.writer.process.process, stack=known, frames=site.frames)
            )
        return known

    # -- tensors -----------------------------------------------------------------------------------

    def _row(
        self, index: int, io: str, slot: str, tensor: Any, array: Array | None
    ) -> tuple[Tensor, Array | None]:
        row = self._described(index, io, slot, tensor)
        if array is None:
            return row, None
        with_statistics = measured(row, array)
        if with_statistics is row:
            return row, None
        return msgspec.structs.replace(
            with_statistics, version=self._version(tensor, array, with_statistics.digest)
        ), array

    def _described(self, index: int, io: str, slot: str, tensor: Any) -> Tensor:
        """A row without statistics; what a primitive is handed of a parameter is one as well."""
        row = described(self.writer.process.process, index, io, slot, tensor)
        if row.role is not None:
            return row
        name = self._parameters.get(data_address(tensor))
        return (
            row if name is None else msgspec.structs.replace(row, role=PARAMETER, tensor_name=name)
        )

    def _version(self, tensor: Any, array: Array, digest: int | None) -> int:
        """Bytes at one address that have not changed are one version, views of them too; elsewhere
        they may be what was made before.
        """
        key = data_address(tensor)
        seen = self._versions.get(key)
        if seen is None or seen.digest != digest:
            made = self._made.get(digest) if digest is not None else None
            of_base = self._of_base(tensor, array, digest) if made is None else made
            version = self._numbers.next_version() if of_base is None else of_base
        else:
            version = seen.version
        self._versions[key] = _Seen(version, digest, self._done)
        return version

    def _of_base(self, tensor: Any, array: Array, digest: int | None) -> int | None:
        """The version of what a view is a part of, where that has not changed: indexing has no
        primitive that calls back.
        """
        base = base_of(tensor, array.dtype)
        seen = self._versions.get(base[0]) if base is not None else None
        if base is None or seen is None or digest is None or seen.digest != digest_of(base[1]):
            return None
        self._made[digest] = seen.version  # MindSpore may read a copy of the view
        return seen.version

    def _kept(self, row: Tensor, array: Array | None) -> Tensor:
        if array is None:
            return row
        value: ValueRef | None = self.writer.keep_value(
            bytes_of(array), dtype=dtype_of_numpy(array.dtype).name, shape=array.shape
        )
        return msgspec.structs.replace(row, value=value)


def _copied(array: Array | None, *, keep: bool) -> Array | None:
    """A copy where values may be kept: the primitive may write to its input."""
    return array.copy() if array is not None and keep else array


# The forward call that a backward primitive belongs to, found by the bytes both have in their
# hands.


class Relatives:
    """Forward calls of a step, by the versions they read and made."""

    def __init__(self) -> None:
        self._by_version: dict[int, list[Call]] = {}

    def clear(self) -> None:
        """A step is over."""
        self._by_version.clear()

    def placed(self, call: Call, read: Sequence[Tensor], made: Sequence[Tensor]) -> Call:
        """The call, remembered if it is forward; a backward one gets the module, line and index of
        its forward call.

        That is the latest call of the same primitive (ReluGrad, ReLU) among those that hold what it
        reads. Where there is none but all of those are of one module, that is its module; else it
        stays as it is.
        """
        if call.phase == "forward":
            for version in {row.version for row in (*read, *made) if row.version is not None}:
                self._by_version.setdefault(version, []).append(call)
        if call.phase != "backward" or call.module:
            return call
        near = [
            relative
            for row in read
            if row.version is not None
            for relative in self._by_version.get(row.version, ())
        ]
        same = [relative for relative in near if base_name(relative.op) == base_name(call.op)]
        if same:
            forward = max(same, key=lambda relative: relative.index)
            return msgspec.structs.replace(
                call, module=forward.module, forward_index=forward.index, source=forward.source
            )
        modules = {relative.module for relative in near}
        return msgspec.structs.replace(call, module=modules.pop()) if len(modules) == 1 else call


def base_name(op: str) -> str:
    """A primitive's name without what says that it is a gradient: ReluGrad and ReLU are
    relatives.
    """
    name = op.lower().removesuffix("ext").removesuffix("v2").removesuffix("v3")
    for mark in ("grad", "backpropinput", "backpropfilter", "backward"):
        name = name.replace(mark, "")
    return name
