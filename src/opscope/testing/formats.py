# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: S101 - a suite of tests
"""The conformance suite for formats: what every run must offer, whatever it was read from.

    class TestMine(FormatTests):
        format = my_package.FORMAT

        @staticmethod
        def samples() -> list[Path]:
            return [Path(__file__).parent / "data" / "small"]

pytest collects the inherited tests. Samples are copied before anything is done to them. Nothing of
pytest is imported here.
"""

from __future__ import annotations

import math
import shutil
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import nanoarrow
import numpy as np

from opscope.arrays import Array
from opscope.errors import FormatError, MissingValueError, OpscopeError
from opscope.formats.registry import Format
from opscope.narrow import name_of, widened
from opscope.run.dtypes import find_dtype
from opscope.run.protocol import Run
from opscope.run.query import records
from opscope.run.schema import LEVELS, PHASES, TABLES, Call, Tensor, ValueRef

DAMAGED = 12  # files of a sample that are damaged, one after the other
_MEASURED = (
    "size",
    "nan",
    "pos_inf",
    "neg_inf",
    "zero",
    "neg",
    "pos",
    "min",
    "max",
    "mean",
    "l2norm",
)


class FormatTests:
    """Inherit, set format, override samples; also garbage where a format reads files that could be
    anything.
    """

    format: Format

    @staticmethod
    def samples() -> list[Path]:
        """Small dumps of the format, files or folders."""
        raise NotImplementedError

    def _runs(self) -> Iterator[tuple[Path, Run]]:
        for path in self.samples():
            yield path, self.format.open(path)

    # -- what it is --------------------------------------------------------------------------------

    def test_its_samples_are_detected(self) -> None:
        for path in self.samples():
            assert self.format.detect(path), path

    def test_nothing_else_is_detected(self, tmp_path: Path) -> None:
        (tmp_path / "empty").mkdir()
        (tmp_path / "text.txt").write_text("a text\n")
        (tmp_path / "noise.bin").write_bytes(bytes(range(256)) * 8)
        (tmp_path / "nothing.json").write_text("{}")
        for name in ("empty", "text.txt", "noise.bin", "nothing.json", "absent"):
            assert not self.format.detect(tmp_path / name), name

    def test_it_is_a_run(self) -> None:
        for path, run in self._runs():
            assert isinstance(run, Run)
            assert run.info.path == str(path)
            assert run.info.format
            assert run.processes
            assert run.problems == (), run.problems

    # -- tables ------------------------------------------------------------------------------------

    def test_tables_have_the_columns_of_the_schema(self) -> None:
        for _, run in self._runs():
            for table, types in TABLES.items():
                schema = nanoarrow.c_array_stream(run.table(table)).get_schema()
                assert [child.name for child in schema.children] == list(types)

    def test_tables_can_be_read_twice(self) -> None:
        for _, run in self._runs():
            for table in TABLES:
                assert list(records(run, table)) == list(records(run, table))

    def test_calls_are_in_order_and_their_names_unique(self) -> None:
        for _, run in self._runs():
            calls = _calls(run)
            assert calls
            assert len({(call.process, call.index) for call in calls}) == len(calls)
            assert len({(call.rank, call.step, call.name) for call in calls}) == len(calls)
            assert {call.process for call in calls} <= {
                process.process for process in run.processes
            }

    def test_calls_say_their_level_and_phase(self) -> None:
        for _, run in self._runs():
            for call in _calls(run):
                assert call.level in LEVELS
                assert call.phase in PHASES
                assert call.op
                assert call.name

    def test_calls_point_at_earlier_calls(self) -> None:
        for _, run in self._runs():
            calls = {(call.process, call.index): call for call in _calls(run)}
            for call in calls.values():
                for earlier in (call.parent, call.forward_index):
                    if earlier is not None:
                        assert (call.process, earlier) in calls
                        assert earlier < call.index, f"{call.name} points at a later call"

    def test_stacks_are_there(self) -> None:
        for _, run in self._runs():
            known = {(stack.process, stack.stack) for stack in records(run, "stacks")}
            assert {
                (call.process, call.stack) for call in _calls(run) if call.stack is not None
            } <= known

    def test_tensors_belong_to_calls(self) -> None:
        for _, run in self._runs():
            known = {(call.process, call.index) for call in _calls(run)}
            tensors = _tensors(run)
            assert tensors
            places = [(row.process, row.index, row.io, row.slot) for row in tensors]
            assert len(set(places)) == len(places)
            for row in tensors:
                assert (row.process, row.index) in known
                assert row.io in {"input", "output"}
                assert row.slot

    # -- values ------------------------------------------------------------------------------------

    def test_values_are_what_the_row_says(self) -> None:
        for _, run in self._runs():
            for row in _tensors(run):
                if row.value is not None:
                    values = run.value(row)
                    assert tuple(values.shape) == row.shape
                    known = find_dtype(row.dtype)
                    if known is not None and known.numpy is not None:
                        assert name_of(values.dtype) == known.numpy
                        assert values.dtype.isnative

    def test_statistics_equal_numpy(self) -> None:
        for _, run in self._runs():
            for row in _tensors(run):
                if row.value is not None:
                    _check(row, reference(run.value(row)))

    def test_rows_without_values_say_so(self) -> None:
        for _, run in self._runs():
            for row in _tensors(run):
                if row.value is None:
                    assert refuses(lambda run=run, row=row: run.value(row), MissingValueError)  # type: ignore[misc]

    def test_partial_rows_have_no_statistics(self) -> None:
        for _, run in self._runs():
            for row in _tensors(run):
                if row.partial:
                    assert [name for name in _MEASURED if getattr(row, name) is not None] == []
                    assert row.value is None

    def test_one_version_is_one_set_of_bytes(self) -> None:
        for _, run in self._runs():
            seen: dict[tuple[int, int], set[tuple[str, int]]] = defaultdict(set)
            for row in _tensors(run):
                if row.version is not None and row.digest is not None:
                    seen[row.process, row.version].add((row.dtype, row.digest))
            assert [version for version, digests in seen.items() if len(digests) > 1] == []

    def test_no_value_lies_outside(self) -> None:
        for _, run in self._runs():
            row = Tensor(
                process=0,
                index=0,
                io="output",
                slot="0",
                dtype="uint8",
                value=ValueRef("../../../../etc/passwd", ""),
            )
            assert refuses(lambda run=run, row=row: run.value(row), OpscopeError)  # type: ignore[misc]

    # -- damage ------------------------------------------------------------------------------------

    def test_torn_files_do_not_stop_it(self, tmp_path: Path) -> None:
        self._damage(tmp_path, lambda data: data[: len(data) // 2])

    def test_empty_files_do_not_stop_it(self, tmp_path: Path) -> None:
        self._damage(tmp_path, lambda data: data[:0])

    def test_changed_bytes_do_not_stop_it(self, tmp_path: Path) -> None:
        self._damage(tmp_path, _shaken)

    def _damage(self, folder: Path, change: Callable[[bytes], bytes]) -> None:
        """Each of some files damaged alone: the run opens, or one FormatError says why; tables and
        values never fail otherwise.
        """
        for number, path in enumerate(self.samples()):
            for file in _some_files(path):
                copy = folder / f"{number}" / path.name
                _copy(path, copy)
                target = copy / file.relative_to(path) if path.is_dir() else copy
                target.chmod(0o644)
                target.write_bytes(change(target.read_bytes()))
                self._use(copy)
                shutil.rmtree(folder / f"{number}")

    def _use(self, path: Path) -> None:
        if not self.format.detect(path):
            return
        run = _opened(self.format, path)
        if isinstance(run, FormatError):
            assert "\n" not in str(run)
            return
        for table in TABLES:
            list(records(run, table))
        for row in _tensors(run):
            refuses(lambda run=run, row=row: run.value(row), OpscopeError)  # type: ignore[misc]
        assert all("\n" not in problem for problem in run.problems)


def _opened(kind: Format, path: Path) -> Run | FormatError:
    try:
        return kind.open(path)
    except FormatError as error:
        return error


def _calls(run: Run) -> list[Call]:
    return list(records(run, "calls"))


def _tensors(run: Run) -> list[Tensor]:
    return list(records(run, "tensors"))


def refuses(action: Callable[[], Any], kind: type[Exception]) -> bool:
    """Whether an action raises an error of a kind; another error goes on."""
    try:
        action()
    except kind:
        return True
    return False


def reference(values: Array) -> dict[str, Any]:
    """Statistics of an array as docs/schema.md defines them, by NumPy in the plainest way."""
    wide = (
        np.abs(values.astype(np.complex128))
        if values.dtype.kind == "c"
        else widened(values).astype(np.float64)
    )
    finite = wide[np.isfinite(wide)]
    statistics: dict[str, Any] = {
        "size": values.size,
        "nan": int(np.isnan(wide).sum()),
        "pos_inf": int(np.isposinf(wide).sum()),
        "neg_inf": int(np.isneginf(wide).sum()),
        "zero": int((finite == 0).sum()),
        "neg": int((finite < 0).sum()),
        "pos": int((finite > 0).sum()),
        "min": None,
        "max": None,
        "mean": None,
        "l2norm": None,
    }
    if finite.size:
        statistics |= {
            "min": float(finite.min()),
            "max": float(finite.max()),
            "mean": math.fsum(finite.ravel()) / finite.size,
        }
        statistics["l2norm"] = float(np.linalg.norm(finite.ravel()))
    return statistics


def _check(row: Tensor, expected: dict[str, Any]) -> None:
    for name in _MEASURED:
        known, right = getattr(row, name), expected[name]
        if name in {"mean", "l2norm"} and right is not None:
            assert known is not None, (row, name)
            scale = max(
                abs(right), expected["l2norm"] / math.sqrt(max(1, expected["size"])), 1e-300
            )
            assert abs(known - right) <= 1e-9 * scale, (row, name, right)
        else:
            assert known == right, (row, name, right)


def _some_files(path: Path) -> list[Path]:
    """A few files of a sample, of every suffix."""
    if path.is_file():
        return [path]
    files = sorted(file for file in path.rglob("*") if file.is_file())
    first = {file.suffix: file for file in reversed(files)}
    step = max(1, len(files) // DAMAGED)
    return list(dict.fromkeys([*first.values(), *files[::step]]))[:DAMAGED]


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target, copy_function=shutil.copyfile)
        for folder in (target, *(path for path in target.rglob("*") if path.is_dir())):
            folder.chmod(0o755)
    else:
        shutil.copyfile(source, target)


def _shaken(data: bytes) -> bytes:
    """The data with some of its bytes changed, always in the same way."""
    changed = bytearray(data)
    for k in range(1 + len(data) // 64):
        if changed:
            changed[zlib.crc32(k.to_bytes(8, "little") + data[:64]) % len(changed)] ^= 1 << k % 8
    return bytes(changed)
