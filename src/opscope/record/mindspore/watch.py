# SPDX-License-Identifier: Apache-2.0
"""The launcher's side: while the command runs, finished iterations of MindSpore dumps go into the
run; the rest when it has ended.
"""

from __future__ import annotations

import shutil
import signal
import threading
from collections import ChainMap, Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from opscope.errors import FormatError, OpscopeError
from opscope.formats.mindspore.failed import Failed
from opscope.formats.mindspore.reader import open_dump
from opscope.record.mindspore.compiled import LOCK, began, folders_of, taking
from opscope.record.mindspore.iterations import Iterations
from opscope.record.mindspore.place import (
    FOLDER,
    RAISED,
    Facts,
    read_choices,
    read_facts,
    remove_dump,
)
from opscope.record.mindspore.raised import FACTS, Raised
from opscope.run.query import calls as calls_of
from opscope.run.store.layout import write_json
from opscope.run.store.process_reader import UNFINISHED

if TYPE_CHECKING:
    from opscope.record.config import RecordConfig
    from opscope.record.mindspore.ingest import Ingestor

POLL_SECONDS = 0.3
MOST_PROBLEMS = 10


class Dumps:
    """The MindSpore processes of one run."""

    def __init__(self, run: Path, config: RecordConfig) -> None:
        self.notes: list[str] = []
        self._run, self._config = run.absolute(), config
        self._processes: dict[str, _Graphs] = {}
        self._taken: set[Path] = set()
        self._failed = False
        self._died: tuple[int, int] | None = None

    def guarded(self, action: Callable[[], None]) -> bool:
        """Do something that must not fail the command: a failure ends the taking in, and is said
        once.
        """
        if self._failed:
            return False
        try:
            action()
        except Exception as error:  # noqa: BLE001 - the recording boundary: the command's exit code is what counts
            self._failed = True
            self.notes.append(
                f"{self._run}: what MindSpore dumped is not all in the run: "
                f"{type(error).__name__}: {error}"
            )
        return not self._failed

    def poll(self, *, ended: bool = False) -> None:
        """Take every folder that is finished; all of them once the command has ended."""
        for process_folder in sorted(
            path for path in (self._run / FOLDER).glob("*") if path.is_dir()
        ):
            with taking(process_folder):
                self._take(process_folder, ended=ended)

    def _take(self, process_folder: Path, *, ended: bool) -> None:
        facts = self._facts(process_folder)
        if facts is None or (not ended and (facts.taken_inside or not facts.owned)):
            return
        if facts.taken_inside and not facts.owned:
            return  # nothing says which of the user's folders the process took
        for iteration, folders in finished(Path(facts.dump), self._taken, ended=ended):
            graphs = self._graphs(process_folder, facts)
            graphs.ingestor.chosen.adopt(read_choices(process_folder))
            for folder in sorted(folders, key=began):
                graphs.take(folder, iteration, owned=facts.owned)
            self._taken.update(folders)

    def died(self, pid: int, signal: int) -> None:
        """A process was ended by a signal: where that was in a kernel of a graph, the call is
        told.
        """
        self._died = (pid, signal)

    def close(self) -> None:
        """Take what is left, close the tables, and remove what the dumps leave."""
        for process_folder in (self._run / FOLDER).glob("*") if self._died is not None else ():
            facts = self._facts(process_folder)
            if facts is not None and self._died is not None and facts.process.pid == self._died[0]:
                tell_died(process_folder, Path(facts.dump), self._died[1], self._taken)
        self.poll(ended=True)
        for graphs in self._processes.values():
            graphs.close()
            problems = list(dict.fromkeys(graphs.ingestor.problems))
            more = (
                [f"{len(problems) - MOST_PROBLEMS} more files of the dump cannot be read"]
                if len(problems) > MOST_PROBLEMS
                else []
            )
            self.notes.extend([*problems[:MOST_PROBLEMS], *more])
        for process_folder in (self._run / FOLDER).glob("*"):
            facts = self._facts(process_folder)
            if facts is not None and facts.owned:
                remove_dump(Path(facts.dump))
            shutil.rmtree(process_folder / RAISED, ignore_errors=True)  # it is in the tables now
            (process_folder / LOCK).unlink(missing_ok=True)

    def _facts(self, process_folder: Path) -> Facts | None:
        """What a process tells, as it is now; None while it has told nothing, or nothing that can
        be read.
        """
        try:
            return read_facts(process_folder)
        except FormatError as error:
            if str(error) not in self.notes:
                self.notes.append(str(error))
            return None

    def _graphs(self, process_folder: Path, facts: Facts) -> _Graphs:
        if process_folder.name not in self._processes:
            from opscope.record.mindspore.ingest import Ingestor
            from opscope.run.store.writer import ProcessWriter

            writer = ProcessWriter(self._run, facts.process, keep=self._config.keep_last)
            self._processes[process_folder.name] = _Graphs(
                Ingestor(writer, self._config, place=process_folder)
            )
        return self._processes[process_folder.name]


class _Graphs:
    """The graphs of one process, iteration by iteration into the steps of its tables."""

    def __init__(self, ingestor: Ingestor) -> None:
        self.ingestor = ingestor
        self._iterations = Iterations()
        self._step: int | None = None
        self._finding = False
        self._names: Counter[str] = Counter()
        # digest -> version of what was made in this step, and in the one before
        self._made: ChainMap[int, int] = ChainMap({}, {})

    def take(self, folder: Path, iteration: int, *, owned: bool) -> None:
        """Take the folder of a graph that ran after those before it."""
        from opscope.record.mindspore.ingest import Within

        def here(phases: frozenset[str]) -> Within:
            step = self._iterations.step(iteration, phases)
            if step != self._step:
                self._end()
                self._step = step
            return Within(step=step, names=self._names, versions=self._made)

        taken = self.ingestor.take(folder, owned=owned, within=here)
        self._made.update(taken.made)
        self._finding |= taken.finding

    def close(self) -> None:
        """The process has ended, and everything is taken."""
        self._end()
        self.ingestor.close()

    def _end(self) -> None:
        if self._step is not None:
            self.ingestor.end_step(self._step, finding=self._finding)
        self._names.clear()
        self._finding, self._made = False, ChainMap({}, self._made.maps[0])


def finished(dump: Path, taken: set[Path], *, ended: bool) -> Iterator[tuple[int, list[Path]]]:
    """Folders of iterations that are whole, by iteration: of each graph all but the newest while
    the program runs.

    Iterations are given out once every graph of the same net is past them, so that a step stays
    together.
    """
    graphs: dict[Path, dict[int, Path]] = {}
    for folder in dump.glob("rank_*/*/*/*"):
        if (
            folder.name.isdigit()
            and folder.parent.name.isdigit()
            and folder not in taken
            and folder.is_dir()
        ):
            graphs.setdefault(folder.parent, {})[int(folder.name)] = folder
    if not graphs:
        return
    newest = min(max(iterations) for iterations in graphs.values())
    for step in sorted({step for iterations in graphs.values() for step in iterations}):
        if ended or step < newest:
            yield (
                step,
                [
                    iterations[step]
                    for _, iterations in sorted(graphs.items(), key=lambda item: int(item[0].name))
                    if step in iterations
                ],
            )


@contextmanager
def _signals_blocked() -> Iterator[None]:
    """A thread that is started meanwhile gets no signal in place of the main thread, in which the
    launcher waits for them.
    """
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def watching(run: Path, config: RecordConfig) -> Iterator[Dumps]:
    """Take dumps into a run from a thread while the block runs, and the rest at its end."""
    dumps = Dumps(run, config)
    over = threading.Event()

    def work() -> None:
        while not over.wait(POLL_SECONDS):
            if (run / FOLDER).is_dir() and not dumps.guarded(dumps.poll):
                return

    thread = threading.Thread(target=work, name="opscope-mindspore", daemon=True)
    with _signals_blocked():
        thread.start()
    try:
        yield dumps
    finally:
        over.set()
        thread.join()
        if (run / FOLDER).is_dir():
            dumps.guarded(dumps.close)


# A process that a signal ended inside a compiled graph: the launcher tells which kernel it was,
# as a process does of one that raised.
#
# MindSpore dumps a kernel after it ran, so it is one that has no files though all it reads was
# made. Kernels of a graph run side by side: where several had begun, all are told and none is
# accused.

FAULTS = frozenset({signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGABRT})
MOST_CANDIDATES = 8


def tell_died(process_folder: Path, dump: Path, number: int, taken: Collection[Path]) -> None:
    """Tell what is needed to write the row of the kernel in which a process died of this signal;
    nothing where there is none.

    taken are folders that are in the run already. A signal that somebody sends ends a program
    anywhere: only faults count.
    """
    last = max(
        (folder for folder in folders_of(dump) if folder not in taken), key=began, default=None
    )
    if last is None or number not in FAULTS or (process_folder / RAISED).exists():
        return
    try:
        meant = [
            call
            for call in calls_of(open_dump(last, failed=Failed(UNFINISHED, died=True)))
            if call.error is not None
        ]
    except (OpscopeError, OSError):  # taking the folder into the run says what is wrong with it
        return
    if not meant:
        return
    if len(meant) == 1:
        told = Raised(folder=str(last), error=UNFINISHED, kernel=meant[0].name)
    else:
        text = f"the process died of signal {number} in a compiled graph"
        candidates = tuple(
            f"{call.op} ({call.source or call.name})" for call in meant[:MOST_CANDIDATES]
        )
        told = Raised(folder=str(last), error=text, kernel=None, candidates=candidates)
    (process_folder / RAISED).mkdir()
    write_json(process_folder / RAISED / FACTS, told)
