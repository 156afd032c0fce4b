# SPDX-License-Identifier: Apache-2.0
"""Build the calls of a MindSpore dump, with what is needed to draft their tensor rows later."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from functools import reduce
from itertools import pairwise
from operator import or_
from pathlib import Path
from typing import Any

import msgspec

from opscope.errors import FormatError
from opscope.formats import opdebug
from opscope.formats.mindspore.arguments import arguments_text
from opscope.formats.mindspore.edges import Versions, Wiring, wire
from opscope.formats.mindspore.evidence import Evidence
from opscope.formats.mindspore.failed import Failed, failed_kernels, first_paragraph
from opscope.formats.mindspore.graph import Graph, Node
from opscope.formats.mindspore.join import Kernel, join
from opscope.formats.mindspore.kernels import PARAMETER, Execution, executions, in_order
from opscope.formats.mindspore.layout import Listing, Place, list_files
from opscope.formats.mindspore.metadata import read_arguments
from opscope.formats.mindspore.names import flat, known_number
from opscope.formats.mindspore.raw import overflow_units
from opscope.formats.mindspore.source import (
    module_of,
    phase_of,
    stack_frames,
    updates_alone,
    user_line,
)
from opscope.formats.mindspore.statistic import read_statistic
from opscope.run.schema import Call, Stack

GRAPH_OP = "KernelGraph"


class CallFiles(msgspec.Struct, frozen=True):
    """Where the tensors of one call come from; parameters of a graph call are executions of type
    Parameter.
    """

    place: Place
    run: Execution | None
    node: Node | None = None
    wiring: Wiring | None = None
    parameters: tuple[tuple[Execution, str, str], ...] = ()  # execution, name, role


class Folder(msgspec.Struct, frozen=True):
    """A data folder with its executions and the graph it ran."""

    place: Place
    listing: Listing
    runs: tuple[Execution, ...]


class Loaded(msgspec.Struct, frozen=True):
    """A graph with its execution order and its joined kernels."""

    graph: Graph
    order: tuple[Node, ...]
    nodes: dict[Kernel, Node]


class Builder:
    """Collects the calls and stacks of one dump, folder by folder."""

    def __init__(self, problems: list[str], *, cpu: bool, failed: Failed | None = None) -> None:
        self.problems = problems
        self._failed = failed
        self.calls: list[Call] = []
        self.stacks: list[Stack] = []
        self.files: dict[tuple[int, int], CallFiles] = {}
        self.held: dict[
            tuple[int, int], tuple[Place, Execution, tuple[str, str]]
        ] = {}  # process, version -> who holds its bytes
        self._cpu = cpu
        self._process = 0
        self._index = 0
        self._versions = Versions()
        self._known_stacks: dict[tuple[str, ...], int] = {}
        self._names: dict[tuple[int, str], int] = defaultdict(int)
        self._last: dict[int, int] = {}
        self._ran: int | None = None  # the step of the folder before

    def start_process(self, process: int) -> None:
        """Calls of the next folders belong to this process."""
        self._process, self._index, self._versions, self._last, self._ran = (
            process,
            0,
            Versions(),
            {},
            None,
        )
        self._known_stacks.clear()
        self._names.clear()

    def end_process(self) -> None:
        """All folders of a process were added."""
        own = [call for call in self.calls if call.process == self._process]
        self.calls[len(self.calls) - len(own) :] = in_turns(own, self.files)

    def add(self, folder: Folder, loaded: Loaded | None) -> None:
        """Add the calls of one folder."""
        place = folder.place
        self._follow_weights(place)
        handed_on = self._ran == place.step
        self._ran = self._ran if place.constants else place.step
        wirings = (
            wire(loaded.graph, loaded.order, self._versions, handed_on=handed_on)
            if loaded is not None
            else {}
        )
        kernels = [run for run in folder.runs if run.kernel[0] != PARAMETER]
        failed = (
            failed_kernels(loaded.graph, loaded.nodes, folder.runs, self._failed)
            if loaded is not None and self._failed
            else []
        )
        kernels = [run for run in kernels if run.kernel not in {run.kernel for _, run in failed}]
        saved = self._saved_arguments(folder, loaded)
        units = self._overflows(folder)
        if loaded is not None:
            position = {node.key: i for i, node in enumerate(loaded.order)}
            kernels = in_order(
                kernels,
                {
                    kernel: position[node.key]
                    for kernel, node in loaded.nodes.items()
                    if node.key in position
                },
            )
        indices: dict[str, int] = {}
        updates = loaded is not None and updates_alone(loaded.order)
        for run in kernels:
            node = loaded.nodes.get(run.kernel) if loaded is not None else None
            wiring = wirings.get(node.key) if node is not None and run.occurrence == 0 else None
            own = [
                unit
                for unit in units
                if opdebug.same_task(
                    unit, known_number(run.task), known_number(run.stream), None, None
                )
            ]
            units = [unit for unit in units if unit not in own]
            call = self._call(place, run, (node, wiring), (saved, own, indices))
            if updates and call.phase == "forward":
                call = msgspec.structs.replace(call, phase="optimizer")
            self._keep(call, CallFiles(place, run, node, wiring))
            if node is not None:
                indices.setdefault(node.key, call.index)
                indices.setdefault(f"id {node.primal.get('unique_id')}", call.index)
        self._add_lost(place, units)
        self._add_parameters(folder, loaded)
        for node, run in failed:
            self._add_failed(place, run, (node, wirings.get(node.key)), (saved, [], indices))

    def _add_failed(
        self,
        place: Place,
        run: Execution,
        graph: tuple[Node, Wiring | None],
        about: tuple[dict[Kernel, dict[str, Any]], list[opdebug.Unit], dict[str, int]],
    ) -> None:
        """A kernel that raised, with what it read and no outputs; it is the last of its folder."""
        text = first_paragraph(self._failed.error) if self._failed is not None else None
        call = msgspec.structs.replace(self._call(place, run, graph, about), error=text)
        wiring = msgspec.structs.replace(graph[1], outputs=()) if graph[1] is not None else None
        self._keep(call, CallFiles(place, run, graph[0], wiring))

    def _follow_weights(self, place: Place) -> None:
        """Weights are those of the iteration before, unless iterations in between were not
        dumped.
        """
        last = self._last.get(place.graph)
        if last is not None and place.iteration not in {last, last + 1}:
            self._versions.forget_weights()
        self._last[place.graph] = place.iteration

    def _keep(self, call: Call, files: CallFiles) -> None:
        self.calls.append(call)
        self.files[call.process, call.index] = files
        self._index += 1
        if files.run is None or files.wiring is None:
            return
        for io, slots in (("input", files.wiring.inputs), ("output", files.wiring.outputs)):
            for slot in slots:
                key = (io, str(slot.position))
                if slot.version is not None and key in files.run.files:
                    self.held.setdefault(
                        (self._process, slot.version), (files.place, files.run, key)
                    )

    def _call(
        self,
        place: Place,
        run: Execution,
        graph: tuple[Node | None, Wiring | None],
        about: tuple[dict[Kernel, dict[str, Any]], list[opdebug.Unit], dict[str, int]],
    ) -> Call:
        (node, wiring), (saved, units, indices) = graph, about
        name = node.name if node is not None and node.name else run.full_name or run.kernel[1]
        owner = self._owner(node, wiring, indices)
        trace = owner[1].trace if owner is not None else node.trace if node is not None else ()
        phase = phase_of(run.kernel[0], name, node)
        forward = node.primal.get("forward_unique_id") if node is not None else None
        task, stream = (
            (None, None) if self._cpu else (known_number(run.task), known_number(run.stream))
        )
        return Call(
            process=self._process,
            rank=place.rank,
            step=place.step,
            index=self._index,
            level="operator",
            parent=owner[0] if owner is not None else None,
            phase=phase,
            op=node.op if node is not None else run.kernel[0],
            module=module_of(name),
            name=self._unique(place.step, name),
            forward_index=indices.get(f"id {forward}")
            if forward is not None and phase == "backward"
            else None,
            stack=self._stack(stack_frames(trace)),
            source=user_line(trace),
            args=arguments_text(node, wiring, saved.get(run.kernel, {}), run.files),
            task=task,
            stream=stream,
            device=f"npu:{place.device}" if place.device is not None else None,
            status=_bits(units),
        )

    def _owner(
        self, node: Node | None, wiring: Wiring | None, indices: dict[str, int]
    ) -> tuple[int, Node] | None:
        """The kernel a back-end conversion belongs to: the one whose output it converts."""
        if (
            node is None
            or wiring is None
            or not node.backend_cast
            or node.trace
            or not wiring.inputs
        ):
            return None
        source = wiring.inputs[0].source
        if source is None or source.kind != "output" or source.key not in indices:
            return None
        owner = self.files.get((self._process, indices[source.key]))
        return (
            (indices[source.key], owner.node)
            if owner is not None and owner.node is not None
            else None
        )

    def _unique(self, step: int, name: str) -> str:
        self._names[step, name] += 1
        count = self._names[step, name]
        return name if count == 1 else f"{name}#{count}"

    def _stack(self, frames: tuple[str, ...]) -> int | None:
        if not frames:
            return None
        number = self._known_stacks.get(frames)
        if number is None:
            number = self._known_stacks[frames] = len(self._known_stacks)
            self.stacks.append(Stack(process=self._process, stack=number, frames=frames))
        return number

    def _saved_arguments(
        self, folder: Folder, loaded: Loaded | None
    ) -> dict[Kernel, dict[str, Any]]:
        """Kernel arguments by kernel; their file carries the node's own full name, which need not
        be the files' number.
        """
        arguments: dict[Kernel, dict[str, Any]] = {}
        if not folder.listing.arguments:
            return arguments
        by_name = (
            {flat(node.name): kernel for kernel, node in loaded.nodes.items()}
            if loaded is not None
            else {}
        )
        for op_type, name, file in folder.listing.arguments:
            arguments[by_name.get(name, (op_type, name))] = self._arguments(
                folder.place.path / file
            )
        return arguments

    def _arguments(self, path: Path) -> dict[str, Any]:
        try:
            return read_arguments(path)
        except FormatError as error:
            self.problems.append(str(error))
            return {}

    def _overflows(self, folder: Folder) -> list[opdebug.Unit]:
        """Units that report an overflow in the records of a folder."""
        units = []
        for overflow in folder.listing.overflows:
            units += self._units(folder.place.path / overflow.file)
        return units

    def _units(self, path: Path) -> list[opdebug.Unit]:
        try:
            return overflow_units(path)
        except FormatError as error:
            self.problems.append(str(error))
            return []

    def _add_lost(self, place: Place, units: list[opdebug.Unit]) -> None:
        """An overflow whose kernel was not dumped is a call of its own: what is known must not be
        silent.
        """
        for unit in units:
            call = Call(
                process=self._process,
                rank=place.rank,
                step=place.step,
                index=self._index,
                level="operator",
                phase="forward",
                op="Opdebug",
                name=self._unique(place.step, f"Opdebug.{unit.name}.{unit.task}.{unit.stream}"),
                task=unit.task,
                stream=unit.stream,
                status=unit.bits,
            )
            self._keep(call, CallFiles(place, None))

    def _add_parameters(self, folder: Folder, loaded: Loaded | None) -> None:
        """Files of parameters, inputs and constants: the kernels that read them show them; the rest
        hang on a call of the graph.
        """
        runs = [run for run in folder.runs if run.kernel[0] == PARAMETER]
        if not runs:
            return
        names = (
            {
                flat(p.name): (p.name, "input data" if p.weight is False else "parameter")
                for p in loaded.graph.parameters
            }
            if loaded is not None
            else {}
        )
        shown = self._shown(folder.place)
        rest = []
        for run in runs:
            name, role = names.get(run.kernel[1], (run.kernel[1], _role(run.kernel[1])))
            version = self._versions.weights.get(name)
            if version is not None and run.files:
                self.held.setdefault(
                    (self._process, version), (folder.place, run, next(iter(run.files)))
                )
            if name not in shown:
                rest.append((run, name, role))
        if rest:
            title = f"{folder.place.net or 'graph'}/{folder.place.graph}" + (
                "/constants" if folder.place.constants else ""
            )
            call = Call(
                process=self._process,
                rank=folder.place.rank,
                step=folder.place.step,
                index=self._index,
                level="module",
                phase="forward",
                op=GRAPH_OP,
                module="",
                name=self._unique(folder.place.step, title),
            )
            self._keep(call, CallFiles(folder.place, None, parameters=tuple(rest)))

    def _shown(self, place: Place) -> set[str]:
        """Names of the parameters that rows of kernels of this folder carry."""
        shown = set()
        for call in reversed(self.calls):
            files = self.files[call.process, call.index]
            if files.place is not place:
                break
            if files.wiring is not None and files.run is not None:
                slots = (
                    (io, slot)
                    for io, part in (
                        ("input", files.wiring.inputs),
                        ("output", files.wiring.outputs),
                    )
                    for slot in part
                )
                known = files.run.files.keys() | files.run.statistics.keys()
                shown |= {
                    slot.parameter
                    for io, slot in slots
                    if slot.parameter and (io, str(slot.position)) in known
                }
        return shown


def _bits(units: list[opdebug.Unit]) -> int | None:
    return reduce(or_, (unit.bits for unit in units)) if units else None


def _role(name: str) -> str:
    return (
        "constant"
        if name.startswith("data-")
        else "input data"
        if name.startswith("inputs")
        else "parameter"
    )


def read_folder(place: Place, problems: list[str]) -> Folder:
    """List a data folder and group its files; reads statistic.csv, no payload."""
    listing = list_files(place.path, problems)
    rows = []
    if listing.statistic:
        try:
            rows = read_statistic(place.path / "statistic.csv", problems)
        except FormatError as error:
            problems.append(str(error))
    return Folder(place, listing, tuple(executions(listing, rows)))


def load_graph(
    base: Path | None,
    number: int,
    folders: list[Folder],
    sources: tuple[dict[int, Graph], dict[int, list[str]]],
) -> Loaded | None:
    """The graph of these folders with its kernels joined; None without a graph. A graph without an
    execution order runs as written.
    """
    graphs, orders = sources
    graph = graphs.get(number) if base is not None else None
    if graph is None:
        return None
    names = orders.get(number, [])
    turn = {name: i for i, name in enumerate(names)}
    order = (
        sorted(graph.kernels, key=lambda node: turn.get(node.name, len(turn)))
        if names
        else graph.kernels
    )
    evidence = Evidence(
        (f.place, run) for f in folders for run in f.runs if run.kernel[0] != PARAMETER
    )
    return Loaded(graph, tuple(order), join(evidence.facts(), graph, evidence))


# Calls of graphs that took turns: a loop's condition and its body are two graphs, and each has a
# folder of its own.

Key = tuple[int, int]


def in_turns(calls: Sequence[Call], files: dict[Key, CallFiles]) -> list[Call]:
    """The calls of one process, those of a step in the order of time where its graphs took turns;
    files follows the new numbers.
    """
    steps: dict[int, list[Call]] = defaultdict(list)
    for call in calls:
        steps[call.step].append(call)
    ordered: list[Call] = []
    for own in steps.values():
        times = [_time(files[call.process, call.index]) for call in own]
        folders = [files[call.process, call.index].place.path for call in own]
        ordered += _renumbered(own, times, files) if _took_turns(times, folders) else own
    return ordered


def _time(file: CallFiles) -> int:
    return file.run.time if file.run is not None else 0


def _took_turns(times: list[int], folders: list[Path]) -> bool:
    """Whether one folder began before another ended."""
    spans: dict[Path, tuple[int, int]] = {}
    for time, folder in zip(times, folders, strict=True):
        if time > 0:
            first, last = spans.get(folder, (time, time))
            spans[folder] = (min(first, time), max(last, time))
    ordered = sorted(spans.values())
    return any(following[0] < last for (_, last), following in pairwise(ordered))


def _renumbered(calls: list[Call], times: list[int], files: dict[Key, CallFiles]) -> list[Call]:
    """The calls by time, with the numbers they have together; those without a time stay behind what
    was before them.
    """
    latest, keys = 0, []
    for position, time in enumerate(times):
        latest = time or latest
        keys.append((latest, position))
    numbers = sorted(call.index for call in calls)
    order = [calls[position] for _, position in sorted(keys)]
    new = {call.index: number for call, number in zip(order, numbers, strict=True)}
    moved = {call.index: files.pop((call.process, call.index)) for call in calls}
    renumbered = []
    for call in order:
        files[call.process, new[call.index]] = moved[call.index]
        renumbered.append(
            msgspec.structs.replace(
                call,
                index=new[call.index],
                parent=new.get(call.parent, call.parent) if call.parent is not None else None,
                forward_index=new.get(call.forward_index, call.forward_index)
                if call.forward_index is not None
                else None,
            )
        )
    return renumbered
