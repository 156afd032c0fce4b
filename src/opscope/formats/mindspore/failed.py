# SPDX-License-Identifier: Apache-2.0
"""Which kernel of a graph raised: MindSpore dumps a kernel after it ran, so the one that raised has
no files.

It is among the kernels that have not run though all whose outputs they read have, and the error
names its primitive ("For 'Gather', …") or the source file of its kernel (…/lu_solve_cpu_kernel.cc).
Some errors name the kernel itself, as files name it; that one has been dumped, with outputs that
mean nothing. A graph whose parameters have been dumped has run to its end: they come last. Of a
process that died in a kernel there is no error to say which; it is one of those that had all they
read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import msgspec

from opscope.formats.mindspore.edges import Source, Tracer
from opscope.formats.mindspore.graph import Graph, Node
from opscope.formats.mindspore.join import Kernel
from opscope.formats.mindspore.kernels import PARAMETER, Execution
from opscope.formats.mindspore.names import flat, split_number

_LAUNCHED = re.compile(r"Launch kernel failed: *(\S+)")
_RULE = re.compile(r"\s*-{5,}\s*")
_TITLE = re.compile(r"\s*- [^:]*:\s*")
_STACKS = "- The Function Call Stack"
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


class Failed(msgspec.Struct, frozen=True):
    """A graph that raised: MindSpore's text, and the full name of the kernel where it is known
    already.

    died: the process ended in the graph, and error is no text of MindSpore's.
    """

    error: str
    kernel: str | None = None
    died: bool = False


def first_paragraph(text: str) -> str:
    """What MindSpore's text says first, its rules of dashes and titles left out."""
    said: list[str] = []
    for line in text.splitlines():
        if _RULE.fullmatch(line) or _TITLE.fullmatch(line) or not line.strip():
            if said:
                break
            continue
        said.append(line.strip())
    return "\n".join(said)


def failed_kernels(
    graph: Graph, nodes: dict[Kernel, Node], runs: Sequence[Execution], failed: Failed
) -> list[tuple[Node, Execution]]:
    """Kernels that may be the one that raised, each with its inputs' files as far as there are any;
    nodes are those of files.
    """
    launched = _LAUNCHED.search(failed.error)
    if launched is not None:
        run = next(
            (run for run in runs if run.kernel[1] == flat(launched[1]) and run.kernel in nodes),
            None,
        )
        if run is not None:
            inputs = {key: file for key, file in run.files.items() if key[0] == "input"}
            return [(nodes[run.kernel], msgspec.structs.replace(run, files=inputs, statistics={}))]
    if any(run.kernel[0] == PARAMETER or run.occurrence for run in runs):
        return []
    waiting = [node for node in _waiting(graph, nodes, runs) if failed.kernel in {None, node.name}]
    if failed.kernel is None and not failed.died:
        waiting = [node for node in waiting if _named(node.op, failed.error)]
    last = max((run.time for run in runs), default=0)
    return [
        (node, Execution(kernel=(node.op, flat(node.name)), time=last, task=0, stream=0))
        for node in waiting
    ]


def _waiting(graph: Graph, nodes: dict[Kernel, Node], runs: Iterable[Execution]) -> list[Node]:
    """Kernels without files that had everything they read; not those that files without a node may
    be of.
    """
    kernels = {run.kernel for run in runs}
    ran = {nodes[kernel].key for kernel in kernels if kernel in nodes}
    loose = {(op, flat(split_number(name)[0])) for op, name in kernels if (op, name) not in nodes}
    tracer = Tracer(graph)
    return [
        node
        for node in graph.kernels
        if node.key not in ran
        and (node.op, flat(split_number(node.name)[0])) not in loose
        and all(key in ran for _, source in tracer.operands(node) for key in _read(source))
    ]


def _read(source: Source) -> list[str]:
    """Keys of the kernels whose outputs an operand is."""
    if source.kind == "tuple":
        return [key for part in source.parts for key in _read(part)]
    return [source.key] if source.kind == "output" else []


def _named(op: str, error: str) -> bool:
    """Whether an error names a primitive, or the source file of its kernel."""
    said = error.partition(_STACKS)[0]
    snake = _HUMP.sub("_", op).lower()
    return (
        re.search(rf"(?<!\w){re.escape(op)}(?!\w)", said) is not None
        or re.search(rf"/{re.escape(snake)}_(\w+_)?kernel\.", error) is not None
    )
