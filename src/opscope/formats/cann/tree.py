# SPDX-License-Identifier: Apache-2.0
"""The dump files under a path: found, named, their headers' summaries read, slices of one operator
put together.
"""

from __future__ import annotations

import os
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from opscope.errors import FormatError
from opscope.formats.cann import dumpfile, ffts, names
from opscope.formats.cann.ffts import Slicing
from opscope.formats.cann.message import DumpData
from opscope.formats.cann.names import DumpName, Place

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

MAX_DEPTH = 32
FFTSPLUS = 4
_ABOVE = 6  # directories above the root that may say device and step


class Source(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One dump file: its path under the root, what its name and directories say, and the few fields
    a list needs.
    """

    path: str
    name: DumpName
    place: Place
    op_name: str = ""
    dump_time: int = 0
    version: str = ""
    slicing: Slicing | None = None
    rank: int = 0
    step: int = 0

    @property
    def directory(self) -> str:
        return self.path.rpartition("/")[0]

    @property
    def full_name(self) -> str:
        """The operator's name as the graph has it, or as the file has it where the header is
        silent.
        """
        return self.op_name or self.name.op_name or self.name.op_type

    @property
    def device(self) -> str | None:
        number = self.place.device if self.place.device is not None else self.name.device
        return None if number is None else f"npu:{number}"


class Operator(msgspec.Struct, frozen=True, gc=False):
    """One execution of an operator: its one file, or those of its slices in order."""

    sources: tuple[Source, ...]

    @property
    def first(self) -> Source:
        return self.sources[0]

    @property
    def name(self) -> str:
        """Name of the operator; of a manually cut one without what marks the slice."""
        full = self.first.full_name
        return full if len(self.sources) == 1 else names.slice_base(full)


class Tree(msgspec.Struct, frozen=True):
    """What lies under a root: operators in order, overflow records, and one line for each file that
    could not be read.
    """

    operators: tuple[Operator, ...]
    records: tuple[Source, ...]
    problems: tuple[str, ...]


class Found(NamedTuple):
    """A file that has, or is mapped to, the name of a dump file: where it is, the same under the
    root, and what that says.
    """

    path: str
    relative: str
    name: DumpName
    place: Place


def found(root: Path, *, look_at: int | None = None) -> Iterator[Found]:
    """Every such file under root, or root itself. Ends after look_at files and directories of any
    kind, where given.
    """
    base = root if root.is_dir() else root.parent
    above = base.resolve().parts[1:][-_ABOVE:]
    if base is not root:
        mapped = names.read_mapping(base) if root.name.isdigit() else {}
        yield Found(
            str(root), root.name, _name(mapped.get(root.name, root.name)), names.place(above)
        )
        return
    top = str(base)
    seen = 0
    for directory, subdirectories, files in os.walk(top):
        below = tuple(Path(os.path.relpath(directory, top)).parts) if directory != top else ()
        subdirectories.sort()
        if len(below) >= MAX_DEPTH:
            subdirectories.clear()
        mapped = names.read_mapping(Path(directory)) if names.MAPPING in files else {}
        place = names.place((*above, *below))
        prefix = "".join(f"{part}/" for part in below)
        for file in sorted(files)[: None if look_at is None else look_at - seen]:
            name = names.parse(mapped.get(file, file))
            if name is not None:
                yield Found(f"{directory}/{file}", prefix + file, name, place)
        seen += 1 + len(files)
        if look_at is not None and seen >= look_at:
            return


def _name(known: str) -> DumpName:
    """What the name of a file says that the user named; whatever it is called, it may be a dump."""
    return names.parse(known) or DumpName(op_type=known, op_name="")


def read(root: Path) -> Tree:
    """All dump files under root; their headers are read, their payloads are not."""
    problems: list[str] = []
    read_or_none = (_source(file, problems) for file in found(root))
    sources = [source for source in read_or_none if source is not None]
    plain = [source for source in sources if not source.name.opdebug]
    operators, torn = _joined(plain)
    return Tree(
        operators=tuple(sorted(operators, key=_order)),
        records=tuple(source for source in sources if source.name.opdebug),
        problems=(*problems, *torn),
    )


def _source(file: Found, problems: list[str]) -> Source | None:
    try:
        header: DumpData = dumpfile.summary(file.path)
    except FormatError as error:
        problems.append(str(error))
        return None
    return Source(
        rank=_rank(file.place, file.name),
        step=file.place.step or 0,
        path=file.relative,
        name=file.name,
        place=file.place,
        op_name=header.op_name,
        dump_time=header.dump_time,
        version=header.version,
        slicing=ffts.slicing(header) if file.name.task_type == FFTSPLUS else None,
    )


def _rank(place: Place, name: DumpName) -> int:
    for rank in (place.rank, place.device, name.device):
        if rank is not None and rank < 1 << 31:
            return rank
    return 0


def _order(operator: Operator) -> tuple[int, int, int, str]:
    first = operator.sources[0]
    return first.rank, first.step, first.dump_time or first.name.timestamp, first.path


def _joined(sources: Sequence[Source]) -> tuple[list[Operator], list[str]]:
    """Operators of the files; slices whose set is not complete stay alone, with a line that says
    so.
    """
    groups: dict[tuple[str, ...], list[Source]] = defaultdict(list)
    operators: list[Operator] = []
    problems: list[str] = []
    for source in sources:
        if source.slicing is None or source.slicing.count == 1:
            operators.append(Operator((source,)))
        else:
            base = names.slice_base(source.name.op_name)
            task = "" if not source.slicing.auto else f"{source.name.task}.{source.name.stream}"
            groups[source.directory, source.name.op_type, base, task].append(source)
    for group in groups.values():
        numbered = {_number(source): source for source in group}
        slicing = group[0].slicing
        if (
            slicing is not None
            and len(group) == slicing.count
            and sorted(numbered) == list(range(slicing.count))
        ):
            operators.append(Operator(tuple(numbered[number] for number in range(slicing.count))))
            continue
        operators += [Operator((source,)) for source in group]
        count = slicing.count if slicing is not None else 0
        problems.append(
            f"{group[0].path}: {len(group)} of {count} slices of this operator are here; each "
            "is listed by itself"
        )
    return operators, problems


def _number(source: Source) -> int:
    """Which slice a file is: the thread, or the number behind _lxslice."""
    if source.slicing is not None and source.slicing.auto:
        return source.name.thread if source.name.thread is not None else -1
    number = names.slice_number(source.name.op_name)
    return -1 if number is None else number
