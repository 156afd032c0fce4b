# SPDX-License-Identifier: Apache-2.0
"""What a finding of an AI Core error has as evidence: one frozen record for each part of it.

Registers and addresses are hexadecimal texts, as the logs print them. A Verdict and a WrittenCase
are parts as they are.
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from opscope.ascend.analysis import Missing
from opscope.ascend.dumps import DumpedTensor
from opscope.ascend.fault import DumpFile, Noted
from opscope.ascend.graphs import Producer, TensorDesc
from opscope.ascend.kernels import Parameter
from opscope.run.finding import Finding

Hex = str | list[str]  # of several words a list
P = TypeVar("P", bound=msgspec.Struct)


def parts(finding: Finding, kind: type[P]) -> list[P]:
    """All parts of that kind."""
    return [each for each in finding.evidence if isinstance(each, kind)]


def part(finding: Finding, kind: type[P]) -> P | None:
    """The first part of that kind; None where the error has none."""
    return next(iter(parts(finding, kind)), None)


def _word(name: str) -> str:
    """`node` of NodePart."""
    return name.removesuffix("Part").lower()


class Part(msgspec.Struct, frozen=True, kw_only=True, tag_field="part", tag=_word):
    """One part of the evidence; as data its kind stands under `part`."""


class ErrorPart(Part, frozen=True, kw_only=True):
    """The error itself, as the logs have it."""

    time: str | None = None
    pid: int | None = None
    process: str | None = None
    generation: str = ""
    soc: str | None = None
    device: int | None = None
    stream: int | None = None
    task: int | None = None
    context: int | None = None
    thread: int | None = None
    kernel: str | None = None
    function: str | None = None
    operator: str | None = None
    node: str | None = None
    tiling_key: str | None = None
    dump_level: str | None = None
    failure: dict[str, str] = {}
    description: dict[str, str] = {}
    files: tuple[str, ...] = ()
    offset: int = 0
    dump_files: tuple[DumpFile, ...] = ()
    program: dict[str, Any] = {}
    notes: tuple[Noted, ...] = ()
    warnings: tuple[str, ...] = ()
    case_result: str | None = None


class ToldBit(msgspec.Struct, frozen=True, kw_only=True):
    """A bit of an error code, and what it likely means."""

    number: int
    name: str
    unit: str
    meaning: str
    kind: str
    cause: str


class Counter(msgspec.Struct, frozen=True, kw_only=True):
    """Where a core was: addresses, and how far they lie behind the kernel's start."""

    start: str
    current: str
    current_offset: str | None
    fixed: str | None
    offset: str | None
    method: str
    heuristic_offset: str | None


class ToldCore(msgspec.Struct, frozen=True, kw_only=True):
    """One core; decoded holds the fields of its error info registers by unit."""

    core: int | None
    kind: str
    device: int | None
    die: int | None
    serial: int | None
    code: str
    codes: tuple[str, ...]
    numbering: str
    message: str | None
    time: str | None
    bits: tuple[ToldBit, ...]
    registers: dict[str, Hex]
    extend: dict[str, Hex | int]
    decoded: dict[str, dict[str, Any]]
    pc: Counter | None


class CoresPart(Part, frozen=True, kw_only=True):
    """The cores that reported the error."""

    cores: tuple[ToldCore, ...] = ()


class ToldCode(msgspec.Struct, frozen=True, kw_only=True):
    """A code that some layer returned."""

    code: str
    name: str | None
    text: str | None
    inner: str | None


class ReturnedPart(Part, frozen=True, kw_only=True):
    """The codes that were returned."""

    codes: tuple[ToldCode, ...] = ()


class ToldTensor(msgspec.Struct, frozen=True, kw_only=True):
    """A tensor of the kernel (tensors.KernelTensor)."""

    io: str
    index: int
    part: int
    name: str | None
    dtype: str | None
    format: str | None
    shape: tuple[int, ...] | None
    origin_shape: tuple[int, ...] | None
    origin_format: str | None
    address: str | None
    said_address: str | None
    size: int | None
    position: int | None
    optional: bool
    unreadable: str | None
    label: str


class ArgumentsPart(Part, frozen=True, kw_only=True):
    """The kernel's arguments: tensors, and its words before and after the execution."""

    tensors: tuple[ToldTensor, ...] = ()
    words_before: tuple[str, ...] = ()
    words_after: tuple[str, ...] = ()
    block_dim: int | None = None
    args_size: int | None = None


class ToldCheck(msgspec.Struct, frozen=True, kw_only=True):
    """What was found out about a tensor's address (addresses.AddressCheck)."""

    tensor: str
    address: str | None
    size: int | None
    status: str
    text: str
    confidence: str = "proven"
    allocation: tuple[int, int] | None = None


class ToldOwner(msgspec.Struct, frozen=True, kw_only=True):
    """Whose memory an address of the logs or registers is."""

    source: str
    address: str
    text: str


class AddressesPart(Part, frozen=True, kw_only=True):
    """Addresses; allocations is their number, None where the logs say nothing about memory."""

    checks: tuple[ToldCheck, ...] = ()
    owners: tuple[ToldOwner, ...] = ()
    allocations: int | None = None


class TilingPart(Part, frozen=True, kw_only=True):
    """The kernel's tiling data; bytes are hexadecimal, held says how many are there."""

    key: str | None = None
    bytes: str = ""
    held: int = 0
    size: int | None = None
    address: str | None = None
    word: int | None = None
    source: str = ""
    cut: bool = False
    words32: tuple[int, ...] = ()


class NodePart(Part, frozen=True, kw_only=True):
    """The node in the graph engine's dump (graphs.Node); attributes are the operator's own."""

    name: str
    type: str
    file: str
    input_names: tuple[str, ...]
    consumers: tuple[str, ...]
    original: tuple[str, ...]
    kernels: tuple[str, ...]
    id: int | None
    stream_id: int | None
    attributes: dict[str, Any]
    all_attributes: dict[str, Any]
    inputs: tuple[TensorDesc, ...]
    outputs: tuple[TensorDesc, ...]
    producers: tuple[Producer, ...]


class KernelPart(Part, frozen=True, kw_only=True):
    """The kernel's description (kernels.Kernel), and its binaries."""

    file: str
    name: str
    binary: str
    functions: tuple[str, ...]
    attributes: tuple[dict[str, Any], ...]
    block_dim: int | None
    core_type: str | None
    magic: str | None
    tiling_size: int | None
    dynamic: bool
    zeroed: tuple[int, ...]
    workspace: tuple[int, ...]
    sha256: str | None
    implementation: str | None
    document: dict[str, Any]
    inputs: tuple[Parameter, ...]
    outputs: tuple[Parameter, ...]
    objects: tuple[str, ...]


class ToldPlace(msgspec.Struct, frozen=True, kw_only=True):
    """A place in the kernel (objects.Place)."""

    offset: str
    symbol: str | None
    symbol_offset: int | None
    source: str | None
    text: str | None
    python: str | None
    object: str | None
    hint: str | None
    instructions: tuple[str, ...]


class PlacePart(ToldPlace, frozen=True, kw_only=True, tag_field="part", tag="place"):
    """Where in the kernel it was by the registers, and by msaicerr's heuristic."""

    heuristic: ToldPlace | None


class ToldBlock(msgspec.Struct, frozen=True, kw_only=True):
    """Global memory in a .core file."""

    type: int
    address: str
    size: int
    copied: bool


class ToldLocal(msgspec.Struct, frozen=True, kw_only=True):
    """On-chip memory in a .core file."""

    core: str
    memory: str
    size: int


class CoreFilePart(Part, frozen=True, kw_only=True, tag="core file"):
    """What a .core file holds, its memory by size only; registers by core and address."""

    file: str
    kernel: str
    device: int | None
    blocks: tuple[ToldBlock, ...]
    locals: tuple[ToldLocal, ...]
    registers: dict[str, dict[str, str]]


class ReferencePart(Part, frozen=True, kw_only=True):
    """How the dumped outputs compare with a CPU reference (references.judge.Judged)."""

    status: str
    text: str
    outputs: tuple[tuple[int, int, float], ...]


class DumpPart(Part, frozen=True, kw_only=True):
    """The exception dump."""

    file: str
    op_name: str
    tensors: tuple[DumpedTensor, ...]
    problems: tuple[str, ...]


class CallPart(Part, frozen=True, kw_only=True):
    """The recorded call that launched the kernel (recorded.RecordedCall)."""

    run: str
    name: str
    op: str
    source: str | None
    text: str
    certain: bool


class MissingPart(Part, frozen=True, kw_only=True):
    """What was not among the files."""

    items: tuple[Missing, ...] = ()


class SeenCode(msgspec.Struct, frozen=True, kw_only=True):
    """A code of the logs that makes no error of its own: the line that has it, and what it
    means.
    """

    code: str
    text: str
    meaning: str
