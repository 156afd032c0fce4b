# SPDX-License-Identifier: Apache-2.0
"""A directory of CANN dump files (or one file) as a run: each operator a call, its tensors measured
when they are asked for.

op is the operator type of the file's name, name the full name of the header where it has one (a
number behind # tells calls of one name and step apart). layout is the format on the device; shape
is the host's where the header lets it be known, and values and statistics are then those of the
host's elements, without padding. Types that NumPy does not have keep their name in the row and are
measured as decoded. Overflow records put their bits on the call they are of; what they say in full
stands in the run's config under "overflow". Order is that of the headers' times.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from opscope.formats.cann import dumpfile, tree
from opscope.formats.cann.calls import list_calls, read_records, with_status
from opscope.formats.cann.rows import Rows
from opscope.formats.foreign import ForeignRun, Tables
from opscope.run.protocol import RunInfo
from opscope.run.schema import Process

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from opscope.formats.cann.tree import Tree
    from opscope.run.schema import Call


class CannRun(ForeignRun):
    """A run over dump files that knows which files each call is from."""

    def __init__(
        self, *args: Any, files: Mapping[tuple[int, int], tuple[str, ...]], **more: Any
    ) -> None:
        super().__init__(*args, **more)
        self._files = files

    def files_of(self, call: Call) -> tuple[str, ...]:
        """Paths of a call's dump files under the root; none for an overflow whose operator was not
        dumped.
        """
        return self._files.get((call.process, call.index), ())


def open_dump(path: Path) -> CannRun:
    """The run under a directory, or of one file. Raises FormatError when one file was named and
    cannot be read.
    """
    dump = tree.read(path)
    if path.is_file() and dump.problems:
        dumpfile.read(path)
    root = path if path.is_dir() else path.parent
    late: list[str] = []
    ranks = sorted(
        {operator.first.rank for operator in dump.operators}
        | {record.rank for record in dump.records}
    ) or [0]
    numbers = {rank: number for number, rank in enumerate(ranks)}
    records = read_records(root, dump.records, late)
    calls, operators = list_calls(dump.operators, numbers)
    tables = Tables(
        calls=tuple(with_status(calls, operators, records, numbers)),
        processes=tuple(
            Process(process=number, directory=_common(dump, rank), rank=rank)
            for rank, number in numbers.items()
        ),
        problems=dump.problems,
    )
    version = next(
        (operator.first.version for operator in dump.operators if operator.first.version), None
    )
    info = RunInfo(
        path=str(path),
        format="cann",
        version=version,
        config={"overflow": [record.told() for record in records]},
    )
    rows = Rows(root, operators, late)
    files = {
        key: tuple(source.path for source in operator.sources)
        for key, operator in operators.items()
    }
    return CannRun(info, root, tables, rows.draft, load=rows.load, late=late, files=files)


def _common(dump: Tree, rank: int) -> str:
    """The deepest directory under which all files of a rank lie, relative to the root."""
    own = {operator.first.directory for operator in dump.operators if operator.first.rank == rank}
    return "/".join(_shared([directory.split("/") for directory in own])) or "."


def _shared(paths: Sequence[Sequence[str]]) -> list[str]:
    shared: list[str] = []
    for level in zip(*paths, strict=False):
        if len(set(level)) > 1:
            break
        shared.append(level[0])
    return shared
