# SPDX-License-Identifier: Apache-2.0
"""The conformance suite itself: a sound format passes all of it, and each way of being wrong fails
the test that is there for it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from opscope.errors import FormatError, MissingValueError
from opscope.formats.foreign import measure
from opscope.formats.registry import Format
from opscope.run.memory import MemoryRun
from opscope.run.protocol import Run, RunInfo
from opscope.run.schema import Call, Process, Stack, Tensor, ValueRef
from opscope.testing import FormatTests

MAGIC = b"toy1"
Change = Callable[[dict[str, Any]], None]


def toy_files(path: Path) -> dict[str, bytes]:
    return (
        {file.name: file.read_bytes() for file in sorted(path.glob("*.toy"))}
        if path.is_dir()
        else {}
    )


def detect(path: Path) -> bool:
    return any(data.startswith(MAGIC) for data in toy_files(path).values())


def open_toy(path: Path, change: Change) -> Run:
    """Each file is one call with one output of float32, and a second row of the same version as
    input of the next call.
    """
    values: dict[str, np.ndarray[Any, Any]] = {}
    problems = []
    for name, data in toy_files(path).items():
        if data.startswith(MAGIC) and len(data) % 4 == 0:
            values[name] = np.frombuffer(data[4:], np.float32)
        else:
            problems.append(f"{path / name}: no toy")
    if not values:
        raise FormatError(path, "no toys")
    calls, tensors = [], []
    for index, (name, array) in enumerate(values.items()):
        calls.append(
            Call(
                process=0,
                rank=0,
                step=0,
                index=index,
                level="api",
                phase="forward",
                op="toy",
                name=name,
                stack=0,
            )
        )
        row = Tensor(
            process=0,
            index=index,
            io="output",
            slot="0",
            dtype="float32",
            version=index + 1,
            value=ValueRef(name, ""),
        )
        tensors.append(measure(row, array))
        if index:
            last = tensors[-2] if index == 1 else tensors[-3]
            tensors.append(msgspec.structs.replace(last, index=index, io="input"))
    tensors.append(Tensor(process=0, index=0, io="input", slot="0", dtype="float32", partial=True))
    held: dict[str, Any] = {
        "info": RunInfo(path=str(path), format="toy"),
        "processes": [Process(process=0, directory="", rank=0)],
        "calls": calls,
        "tensors": tensors,
        "stacks": [Stack(process=0, stack=0, frames=("a.py:1 in f",))],
        "problems": problems,
    }

    def value(tensor: Tensor) -> np.ndarray[Any, Any]:
        if tensor.value is None or tensor.value.shard not in values:
            raise MissingValueError("not kept")
        return values[tensor.value.shard]

    held["value"] = value
    change(held)
    return MemoryRun(**held)


def suite(place: Path, change: Change = lambda held: None, **parts: Any) -> FormatTests:
    """The suite over two samples of a toy format that is changed in one way."""
    kind = Format(
        "toy", parts.get("detect", detect), parts.get("open", lambda path: open_toy(path, change))
    )
    samples = []
    for number in range(2):
        folder = place / f"sample{number}"
        folder.mkdir()
        for name in "abc":
            array = np.arange(6, dtype=np.float32) * (number + 1) - ord(name)
            (folder / f"{name}.toy").write_bytes(MAGIC + array.tobytes())
        samples.append(folder)

    class Suite(FormatTests):
        format = kind

        @staticmethod
        def samples() -> list[Path]:
            return samples

    return Suite()


def failures(tests: FormatTests, place: Path) -> Iterator[str]:
    """Names of the tests that fail."""
    for name, test in inspect.getmembers(tests, inspect.ismethod):
        if not name.startswith("test_"):
            continue
        arguments = {}
        if "tmp_path" in inspect.signature(test).parameters:
            arguments["tmp_path"] = place / name
            (place / name).mkdir()
        try:
            test(**arguments)
        except (AssertionError, ValueError, RuntimeError):
            yield name


def test_a_sound_format_passes(tmp_path: Path) -> None:
    assert list(failures(suite(tmp_path), tmp_path)) == []


def rows(number: int, **changes: Any) -> Change:
    """Change one tensor row."""

    def change(held: dict[str, Any]) -> None:
        held["tensors"][number] = msgspec.structs.replace(held["tensors"][number], **changes)

    return change


def call(number: int, **changes: Any) -> Change:
    """Change one call."""

    def change(held: dict[str, Any]) -> None:
        held["calls"][number] = msgspec.structs.replace(held["calls"][number], **changes)

    return change


def sets(**changes: Any) -> Change:
    """Change a part of the run."""
    return lambda held: held.update(changes)


def leak(tensor: Tensor) -> np.ndarray[Any, Any]:
    """A value whatever is asked for."""
    return np.zeros(6, np.float32)


@pytest.mark.parametrize(
    ("change", "failing"),
    [
        (call(1, name="a.toy"), "test_calls_are_in_order_and_their_names_unique"),
        (call(1, process=7), "test_calls_are_in_order_and_their_names_unique"),
        (call(1, level="kernel"), "test_calls_say_their_level_and_phase"),
        (call(1, phase="sideways"), "test_calls_say_their_level_and_phase"),
        (call(0, parent=2), "test_calls_point_at_earlier_calls"),
        (call(1, forward_index=1), "test_calls_point_at_earlier_calls"),
        (call(1, stack=4), "test_stacks_are_there"),
        (rows(0, index=9), "test_tensors_belong_to_calls"),
        (rows(0, io="sideways"), "test_tensors_belong_to_calls"),
        (rows(2, slot="0", io="output", index=1), "test_tensors_belong_to_calls"),
        (rows(0, shape=(2, 3)), "test_values_are_what_the_row_says"),
        (rows(0, dtype="float16"), "test_values_are_what_the_row_says"),
        (rows(0, nan=1), "test_statistics_equal_numpy"),
        (rows(0, min=-97.0), None),
        (rows(0, min=-97.5), "test_statistics_equal_numpy"),
        (rows(0, mean=-94.49), "test_statistics_equal_numpy"),
        (rows(0, mean=None), "test_statistics_equal_numpy"),
        (rows(-1, nan=0), "test_partial_rows_have_no_statistics"),
        (rows(2, version=3), "test_one_version_is_one_set_of_bytes"),
        (sets(value=leak), "test_rows_without_values_say_so"),
        (sets(value=leak), "test_no_value_lies_outside"),
        (sets(problems=["something"]), "test_it_is_a_run"),
        (sets(processes=[]), "test_it_is_a_run"),
        (sets(info=RunInfo(path="elsewhere", format="toy")), "test_it_is_a_run"),
    ],
)
def test_what_is_wrong_fails(change: Change, failing: str | None, tmp_path: Path) -> None:
    """failing None: the change is none, which shows that the fault beside it is what fails."""
    found = list(failures(suite(tmp_path, change), tmp_path))
    assert (failing in found) if failing else found == []


def test_a_format_that_takes_everything_fails(tmp_path: Path) -> None:
    assert "test_nothing_else_is_detected" in list(
        failures(suite(tmp_path, detect=lambda path: True), tmp_path)
    )


def test_a_format_that_takes_nothing_fails(tmp_path: Path) -> None:
    assert "test_its_samples_are_detected" in list(
        failures(suite(tmp_path, detect=lambda path: False), tmp_path)
    )


def test_a_format_that_falls_over_damage_fails(tmp_path: Path) -> None:
    """An error that is no FormatError, and one of several lines."""

    def brittle(path: Path) -> Run:
        return open_toy(path, lambda held: held["problems"] and _raise(ValueError("buffer size")))

    def chatty(path: Path) -> Run:
        return open_toy(
            path, lambda held: held.update(problems=["one\ntwo"]) if held["problems"] else None
        )

    for kind in (brittle, chatty):
        place = tmp_path / kind.__name__
        place.mkdir()
        assert {"test_torn_files_do_not_stop_it", "test_empty_files_do_not_stop_it"} <= set(
            failures(suite(place, open=kind), place)
        )


def _raise(error: Exception) -> None:
    raise error
