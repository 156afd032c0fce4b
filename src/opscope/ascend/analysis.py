# SPDX-License-Identifier: Apache-2.0
"""One error joined with everything else that was collected: its node, kernel, addresses, place in
the source, dump, verdict.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import msgspec

from opscope.ascend import addresses, objects
from opscope.ascend.addresses import AddressCheck, Owner
from opscope.ascend.cores import completed, core_of, fault_of, kernel_in
from opscope.ascend.dumps import Dump, dump_of_core, find_dump, read_dump
from opscope.ascend.fault import Fault
from opscope.ascend.find import Collection
from opscope.ascend.graphs import Node, find_nodes, text_of
from opscope.ascend.kernels import Kernel, choose, kernel_names
from opscope.ascend.log import LogReader
from opscope.ascend.objects import Place
from opscope.ascend.program import ProgramCounter, program_counter
from opscope.ascend.recorded import Filled, RecordedCall, filled
from opscope.ascend.reference import attributes_of, check
from opscope.ascend.references.judge import DIFFERS, Judged
from opscope.ascend.tensors import KernelTensor, Tiling, tensors_of, tiling_of
from opscope.ascend.verdict import NOT_REPRODUCED, REPRODUCED, Grounds, Verdict, verdicts
from opscope.errors import FormatError, UsageError
from opscope.formats.cann.corefile import CoreFile

Nodes = dict[tuple[str | None, ...], Node | None]  # by what a node was asked for with
_TASK_NAME = re.compile(r"-?\d+(?:_\d+)*_([A-Za-z].*)")
_HASHED = re.compile(r"(?:te_)?([A-Za-z]\w*?)_[0-9a-f]{32,}")


class Missing(msgspec.Struct, frozen=True):
    """Something that was not among the files, what it would tell, and how to collect it."""

    what: str
    text: str
    how: str


class WrittenCase(msgspec.Struct, frozen=True, kw_only=True, tag_field="part", tag="case"):
    """The single-operator case that was written: its folder, what it lacks, and how it went where
    it was tried.
    """

    folder: str
    lacks: tuple[str, ...] = ()
    status: str | None = None
    device: str | None = None
    reason: str | None = None


class Analysis(msgspec.Struct, frozen=True, kw_only=True):
    """Everything known about one error.

    counters are those of the cores in order; place is by the registers, heuristic_place by
    msaicerr's rule; call is the recorded one that launched the kernel, filled what it says of the
    tensors.
    """

    fault: Fault
    operator: str | None = None
    name: str | None = None
    node: Node | None = None
    kernel: Kernel | None = None
    tensors: tuple[KernelTensor, ...] = ()
    tiling: Tiling = Tiling()
    checks: tuple[AddressCheck, ...] = ()
    owners: tuple[Owner, ...] = ()
    counters: tuple[ProgramCounter | None, ...] = ()
    place: Place | None = None
    heuristic_place: Place | None = None
    dump: Dump | None = None
    judged: Judged | None = None
    objects: tuple[Path, ...] = ()
    core: CoreFile | None = None
    case_result: str | None = None
    verdicts: tuple[Verdict, ...] = ()
    case: WrittenCase | None = None
    missing: tuple[Missing, ...] = ()
    problems: tuple[str, ...] = ()
    call: RecordedCall | None = None
    filled: Filled | None = None

    @property
    def verdict(self) -> Verdict:
        return self.verdicts[0]


def analyse(
    fault: Fault,
    collected: Collection,
    *,
    case_result: str | None = None,
    nodes: Nodes | None = None,
) -> Analysis:
    """Join one error with the collection; what cannot be read becomes a problem, never an
    exception.

    nodes holds what was found in the graphs for errors before this one, which may be large and are
    read once for each kernel.
    """
    problems: list[str] = []
    core = core_of(fault, collected.cores)
    fault = completed(fault, core) if core is not None else fault
    names = kernel_names(fault)
    kernel = choose(collected.kernels, names) or (kernel_in(core) if core is not None else None)
    functions = (*names, *((kernel.name, kernel.binary) if kernel else ()))
    asked = (fault.node_name, fault.node_type, fault.kernel, *functions)
    nodes = {} if nodes is None else nodes
    if asked not in nodes:
        nodes[asked] = _node(fault, collected, functions, problems)
    node = nodes[asked]
    tensors = tensors_of(fault, node, kernel)
    counters = tuple(program_counter(core, fault) for core in fault.cores)
    binaries = _objects(collected, kernel, names)
    dump = _dump(fault, collected, node, tensors, problems) or (
        dump_of_core(core, tensors) if core is not None else None
    )
    source_place, heuristic = _places(
        fault, counters, binaries, _beside(collected, kernel, names), names
    )
    checks = addresses.check(fault, tensors)
    operator = operator_type(fault, node, kernel)
    judged = (
        check(operator, dump, tensors, attributes_of(node, kernel))
        if operator and dump is not None
        else None
    )
    found_out = Analysis(
        fault=fault,
        operator=operator,
        name=node.name if node else fault.node_name or _task_name(fault.kernel),
        node=node,
        kernel=kernel,
        tensors=tensors,
        tiling=tiling_of(fault, kernel, node),
        checks=checks,
        owners=addresses.owners(fault, tensors),
        counters=counters,
        place=source_place,
        heuristic_place=heuristic,
        dump=dump,
        judged=judged,
        objects=binaries,
        core=core,
        missing=tuple(_missing(fault, node, kernel, dump, binaries)),
        problems=tuple(problems),
    )
    return with_case_result(found_out, case_result)


def with_case_result(one: Analysis, result: str | None) -> Analysis:
    """The analysis with its verdicts as they are once the case was run; result None where it was
    not.
    """
    grounds = Grounds(
        fault=one.fault,
        checks=one.checks,
        node=one.node,
        kernel=one.kernel,
        dump=one.dump,
        place=one.place,
        case_result=result,
        device_wrong=one.judged.text
        if one.judged is not None and one.judged.status == DIFFERS
        else None,
    )
    return msgspec.structs.replace(one, case_result=result, verdicts=verdicts(grounds))


def with_call(one: Analysis, call: RecordedCall) -> Analysis:
    """The analysis with what the call of a recorded program says that launched the kernel."""
    tensors_filled = filled(one.tensors, call)
    return msgspec.structs.replace(
        one, call=call, filled=tensors_filled, tensors=tensors_filled.tensors
    )


def _task_name(kernel: str | None) -> str | None:
    """The node's name in a task's name: L2Loss of 0_11_L2Loss; None for a name that is a
    kernel's.
    """
    if kernel is None or _HASHED.match(kernel):
        return None
    parts = _TASK_NAME.fullmatch(kernel)
    return parts[1] if parts else None


def operator_type(
    fault: Fault, node: Node | None = None, kernel: Kernel | None = None
) -> str | None:
    """Type of the operator, by the best source there is."""
    if node is not None or fault.node_type:
        return node.type if node is not None else fault.node_type
    keys = (
        kernel.document.get("supportInfo", {}).get("simplifiedKey") if kernel is not None else None
    )
    if isinstance(keys, list) and keys and isinstance(keys[0], str) and "/" in keys[0]:
        return keys[0].partition("/")[0]
    for name in (fault.described.get("dev_func"), fault.function, fault.kernel):
        parts = _HASHED.match(name) if name else None
        if parts:
            plain = parts[1].replace("_", "").lower()
            pieces = (_task_name(fault.kernel) or "").replace("/", "_").split("_")
            return next((piece for piece in pieces if piece.lower() == plain), parts[1])
    return None


def _node(
    fault: Fault, collected: Collection, names: Sequence[str], problems: list[str]
) -> Node | None:
    """The node in the graphs: the one of the log's name, whose kernel fits best; of several graphs
    the last one dumped.
    """
    wanted = {name for name in (fault.node_name, _task_name(fault.kernel)) if name}
    functions = tuple(name for name in names if len(name) > 16)
    nodes: list[Node] = []
    for path, form in collected.graphs:
        try:
            nodes += find_nodes(path, names=wanted, kernels=functions, form=form)
        except FormatError as error:  # noqa: PERF203 - one bad graph leaves the others
            problems.append(str(error))
    if not nodes and fault.kernel:
        nodes = _by_ending(fault.kernel, collected, problems)
    return max(nodes, key=lambda node: _fit(node, fault, functions), default=None)


def _by_ending(kernel: str, collected: Collection, problems: list[str]) -> list[Node]:
    """Nodes whose name, with / as _, ends the task's name: the name the task was given is not
    always the last word of it.
    """
    pieces = kernel.split("_")
    tails = {"_".join(pieces[start:]) for start in range(1, len(pieces))}
    nodes: list[Node] = []
    for path, form in collected.graphs:
        try:
            text = text_of(path)
            said = {
                name
                for name in re.findall(r'^ *name: "([^"\\]{1,512})"$', text, re.MULTILINE)
                if name.replace("/", "_") in tails
            }
            nodes += find_nodes(path, names=said, form=form) if said else []
        except FormatError as error:  # noqa: PERF203 - one bad graph leaves the others
            problems.append(str(error))
    return nodes


def _fit(node: Node, fault: Fault, functions: Sequence[str]) -> tuple[int, int, int, int, str]:
    named = node.name in (fault.node_name, _task_name(fault.kernel))
    kernel = any(one in functions for one in node.kernels)
    typed = fault.node_type in (None, node.type)
    return kernel, named, typed, "ge_proto" in Path(node.file).name, node.file


def _objects(
    collected: Collection, kernel: Kernel | None, names: Sequence[str]
) -> tuple[Path, ...]:
    """Binaries of the kernel: what was loaded ({kernel}_host.o) first, then the compiler's."""
    bases = [*names, *((kernel.binary,) if kernel else ())]
    wanted = [f"{base}{ending}" for ending in ("_host.o", ".o") for base in bases]
    return tuple(
        path for name in dict.fromkeys(wanted) for path in collected.objects if path.name == name
    )


def _beside(collected: Collection, kernel: Kernel | None, names: Sequence[str]) -> tuple[Path, ...]:
    bases = {*names, *((kernel.binary,) if kernel else ())}
    return tuple(
        path for path in collected.beside if any(path.name.startswith(base) for base in bases)
    )


def _dump(
    fault: Fault,
    collected: Collection,
    node: Node | None,
    tensors: Sequence[KernelTensor],
    problems: list[str],
) -> Dump | None:
    names = [
        name
        for name in (node.name if node else None, fault.node_name, _task_name(fault.kernel))
        if name
    ]
    path = find_dump(collected.dumps, fault, names)
    if path is None:
        return None
    try:
        return read_dump(
            path, tensors, failed=[note.text for note in fault.notes if note.topic == "unreadable"]
        )
    except FormatError as error:
        problems.append(str(error))
        return None


def _places(
    fault: Fault,
    counters: Sequence[ProgramCounter | None],
    binaries: Sequence[Path],
    beside: Sequence[Path],
    names: Sequence[str],
) -> tuple[Place | None, Place | None]:
    """The place in the source by the registers and by the heuristic, of the first core that has a
    counter.
    """
    counter = next((one for one in counters if one is not None), None)
    if counter is None:
        return None, None
    said = fault.program.get("source")
    offset = fault.program.get("fixedPCOffset") or counter.offset
    by_registers = (
        objects.locate(offset, objects=binaries, functions=names, beside=beside)
        if offset >= 0
        else None
    )
    if said and by_registers is not None and by_registers.source is None:
        symbol = str(fault.program.get("symbol") or "").rpartition("+0x")[0] or by_registers.symbol
        by_registers = msgspec.structs.replace(by_registers, source=said, symbol=symbol, hint=None)
    if counter.heuristic is None or counter.heuristic < 0:
        return by_registers, None
    return by_registers, objects.locate(
        counter.heuristic, objects=binaries, functions=names, beside=beside
    )


def _missing(
    fault: Fault,
    node: Node | None,
    kernel: Kernel | None,
    dump: Dump | None,
    binaries: Sequence[Path],
) -> list[Missing]:
    absent = []
    if node is None:
        how = "export DUMP_GE_GRAPH=1 DUMP_GRAPH_LEVEL=1 (a single aclnn operator has no graph)"
        absent.append(Missing("graph", "the node, its attributes, its producers", how))
    if kernel is None:
        name = next(iter(kernel_names(fault)), "the kernel")
        how = "keep kernel_meta (op_debug_level 1 or NPU_COLLECT_PATH), give it with --kernel-meta"
        absent.append(Missing("kernel json", f"the description of {name}", how))
    if not binaries:
        absent.append(
            Missing(
                "kernel .o",
                "the line of source of the program counter",
                "op_debug_level 2 keeps it with its lines",
            )
        )
    if dump is None:
        absent.append(_missing_dump(fault, node, kernel))
    if fault.allocations is None:
        absent.append(
            Missing(
                "allocations", "whether the addresses exist", "export ASCEND_GLOBAL_LOG_LEVEL=1"
            )
        )
    if not fault.cores:
        how = "give the process logs, $HOME/ascend/log/debug/plog"
        absent.append(Missing("registers", "the error bits and the program counter", how))
    return absent


def _missing_dump(fault: Fault, node: Node | None, kernel: Kernel | None) -> Missing:
    written = next((file.path for file in fault.dump_files if file.what == "exception"), None)
    if written is not None:
        return Missing(
            "exception dump",
            "the values of the inputs",
            f"the log says it was written to {written}: give it with --dump",
        )
    unknown = node is not None and any(
        dim < 0 for desc in (*node.inputs, *node.outputs) for dim in desc.shape or ()
    )
    if unknown or (kernel is not None and kernel.dynamic):
        how = (
            "kernels of dynamic shape may have no exception dump (enable_exception_dump 1): "
            "use the brief one (2,"
            " or dump_scene lite_exception), dump the node (opscope prepare acl), or fix the shapes"
        )
    else:
        how = "enable_exception_dump 1 (opscope prepare aicore); give it with --dump"
    return Missing("exception dump", "the values of the inputs", how)


def outcomes(text: str, faults: Sequence[Fault]) -> tuple[str | None, ...]:
    """What `--case-result` says of each error: a word for all of them, or the logs of the run of
    the case.

    It reproduced when those logs hold an error of a kernel of the same name, or of one that they do
    not name. Of several errors the others stay open then. UsageError for what is neither a word nor
    logs.
    """
    if text in (REPRODUCED, NOT_REPRODUCED):
        return (text,) * len(faults)
    from opscope.ascend.find import collect
    from opscope.ascend.log import read_logs

    logs_at = Path(text)
    if not logs_at.exists():
        raise UsageError(
            f"--case-result {text}: write reproduced, not-reproduced, or a folder of logs "
            "that exists"
        )
    logs = collect([logs_at]).logs
    if not logs:
        raise UsageError(f"--case-result {text}: holds no log")
    again = [set(kernel_names(fault)) for fault in read_logs(logs).faults()]
    same = [
        any(not names or names & set(kernel_names(fault)) for names in again) for fault in faults
    ]
    return tuple(REPRODUCED if one else None if any(same) else NOT_REPRODUCED for one in same)


def analyse_all(
    reader: LogReader, collected: Collection, *, case_result: str | None = None
) -> tuple[Analysis, ...]:
    """Every error of the logs, first error first."""
    faults = reader.faults()
    known = {core.path for fault in faults if (core := core_of(fault, collected.cores)) is not None}
    faults = (*faults, *(fault_of(core) for core in collected.cores if core.path not in known))
    results = outcomes(case_result, faults) if case_result is not None else (None,) * len(faults)
    nodes: Nodes = {}
    return tuple(
        analyse(fault, collected, case_result=result, nodes=nodes)
        for fault, result in zip(faults, results, strict=True)
    )
