# SPDX-License-Identifier: Apache-2.0
"""pytest --opscope: a test that trains fails on the operator that broke its training, even where
its assertions pass. The fixture opscope_golden holds a training against its first recording.

pytest loads this module in every suite where opscope is installed: nothing of the house is imported
before an option or the fixture asks for it.
"""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Generator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from opscope.record.join import Recording
    from opscope.run.protocol import Run

FIXTURE = "opscope_golden"
MARK = "opscope_off"
UNWATCHED = pytest.StashKey[list[str]]()  # why tests were not watched to their end


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options, in a group of their own."""
    group = parser.getgroup("opscope", "operators that break a training")
    group.addoption(
        "--opscope",
        action="store_true",
        help="fail a test whose training overflowed or went NaN, and name the operator",
    )
    group.addoption(
        "--opscope-runs",
        metavar="DIR",
        default="runs/pytest",
        help="where runs with a finding are kept, below the root [runs/pytest]",
    )
    group.addoption(
        "--opscope-update",
        action="store_true",
        help=f"record the golden runs of {FIXTURE} anew",
    )


def pytest_configure(config: pytest.Config) -> None:
    """The marker."""
    config.addinivalue_line("markers", f"{MARK}: a test that --opscope does not watch")
    config.stash[UNWATCHED] = []


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """A suite that passes because nothing was watched says so."""
    reasons = config.stash[UNWATCHED]
    if reasons:
        told = f"{len(reasons)} tests were not watched to their end: {reasons[0]}"
        terminalreporter.write_line(f"opscope: {told}", yellow=True)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    """Watch one test; where it fails of itself, its report says what was found too."""
    if not _watched(item):
        return (yield)
    from opscope.record.join import record
    from opscope.run.contain import contain

    wanted = item.config.rootpath / item.config.getoption("--opscope-runs") / _name(item)
    recording = record(wanted)
    reasons = item.config.stash[UNWATCHED]
    unwatched = partial(_not_watched, reasons)
    contain(unwatched, recording.__enter__)
    try:
        answer = yield
    except BaseException:
        contain(unwatched, recording.__exit__, *sys.exc_info())
        told = contain(unwatched, _found, recording, reasons)
        if told is not None:
            item.add_report_section("call", "opscope", told)
        raise
    contain(unwatched, recording.__exit__, None, None, None)
    told = contain(unwatched, _found, recording, reasons)
    if told is not None:
        pytest.fail(told, pytrace=False)
    return answer


def _watched(item: pytest.Item) -> bool:
    """Whether a recording of this test is wanted and can be: what has not imported torch by now
    trains nothing.
    """
    return bool(
        item.config.getoption("--opscope")
        and "torch" in sys.modules
        and item.get_closest_marker(MARK) is None
        and FIXTURE not in getattr(item, "fixturenames", ())
    )


def _not_watched(reasons: list[str], error: BaseException) -> None:
    from opscope.run.contain import reason

    reasons.append(reason(error))


def _cut_short(run: Run) -> str | None:
    """Why the recording ended before the test did."""
    return next((each.failed for each in run.processes if each.failed is not None), None)


def _found(recording: Recording, reasons: list[str]) -> str | None:
    """What scan says of a test that trained, a run without a finding being removed; None for
    nothing. Where the recording ended before the test did, reasons has why.

    A test that makes infinities and has no backward pass tests just that.
    """
    from opscope.formats.registry import open_run
    from opscope.run.query import columns
    from opscope.scan.api import scan

    if recording.path is None:
        return None
    run = open_run(recording.path)
    reasons += filter(None, [_cut_short(run)])
    trains = any("backward" in batch["phase"] for batch in columns(run, "calls", ["phase"]))
    document = scan(run) if trains else None
    if document is None or not document.findings:
        shutil.rmtree(recording.path, ignore_errors=True)
        return None
    return f"{document!r}\nnext: opscope scan {recording.path}"


class Golden:
    """A with-block: the first time it records the golden run into path, later it records beside it
    and compares.

    Fails the test where the two part, and keeps the run at fault.
    """

    def __init__(self, path: Path, aside: Path, reasons: list[str], *, update: bool) -> None:
        self.path = path
        self._aside = aside
        self._update = update
        self._reasons = reasons  # why tests were not watched to their end
        self._recording: Recording | None = None

    def __enter__(self) -> Golden:
        from opscope.record.join import record

        if self._update:
            shutil.rmtree(self.path, ignore_errors=True)
        wanted = self._aside if self.path.exists() else self.path
        self._recording = record(wanted, values="none")
        self._recording.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        recording = self._recording
        if recording is None or recording.path is None:
            return
        recording.__exit__(*error)
        first = recording.path == self.path
        if error[0] is not None:
            if first:  # a training that failed is no golden one
                shutil.rmtree(recording.path, ignore_errors=True)
            return
        cut_short = self._cut_short(recording.path)
        if cut_short is not None:  # half a training is no golden one, and is held against none
            self._reasons.append(cut_short)
            shutil.rmtree(recording.path, ignore_errors=True)
        elif not first:
            self._compare(recording.path)

    def _cut_short(self, path: Path) -> str | None:
        from opscope.formats.registry import open_run

        return _cut_short(open_run(path))

    def _compare(self, target: Path) -> None:
        from opscope.compare.api import compare

        document = compare(target, self.path).document
        if document.findings:
            told = f"{document!r}\nnext: opscope compare {target} {self.path}"
            pytest.fail(f"{told}\nor, where the change is meant: pytest --opscope-update", False)  # noqa: FBT003 - pytrace
        shutil.rmtree(target, ignore_errors=True)


@pytest.fixture
def opscope_golden(request: pytest.FixtureRequest) -> Golden:
    """A Golden whose run lies in opscope_golden beside the test's file: with opscope_golden: …"""
    node, config = request.node, request.config
    return Golden(
        Path(node.path).parent / FIXTURE / _name(node),
        config.rootpath / config.getoption("--opscope-runs") / _name(node),
        config.stash[UNWATCHED],
        update=config.getoption("--opscope-update"),
    )


def _name(item: Any) -> str:
    """A test as the name of a folder."""
    return re.sub(r"[^\w.-]+", "-", item.nodeid.rpartition("/")[2]).strip("-")[:120]
