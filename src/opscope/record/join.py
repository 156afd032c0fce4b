# SPDX-License-Identifier: Apache-2.0
"""Beginning a recording in this process: below `opscope run`, by the environment, or in a
with-block of the program.
"""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from opscope.errors import UnavailableError
from opscope.operators.catalogue import declare_rows
from opscope.operators.declare import read_operators
from opscope.record.active import active
from opscope.record.config import (
    OPTIONS,
    RecordConfig,
    config_from,
    parse_options,
    read_words,
    words_of,
)
from opscope.record.exits import watch, watch_threads
from opscope.record.rank import LOCAL_VARIABLES, WORLD_VARIABLES, first_number, known_rank
from opscope.record.seed import seed_all
from opscope.record.session import Session
from opscope.run.contain import contain, reason, tell
from opscope.run.place import with_own_name
from opscope.run.printable import printable
from opscope.run.relation import html_table
from opscope.run.store.blackbox import BlackBox
from opscope.run.store.layout import BLACKBOX, create_run, process_facts, seal_run
from opscope.run.store.writer import ProcessWriter
from opscope.version import VERSION

if TYPE_CHECKING:
    from opscope.record.torch.recorder import TorchRecorder

Texts = str | int | Sequence[str] | Sequence[int] | None  # one, or several in a list


def join_from_environment(environ: Mapping[str, str] | None = None) -> Session | None:
    """Join the recording that OPSCOPE_RUN and OPSCOPE_RUN_ID name; called once torch has been
    imported.
    """
    environ = os.environ if environ is None else environ
    run, identity = environ.get("OPSCOPE_RUN"), environ.get("OPSCOPE_RUN_ID")
    if not run or not identity or active.session is not None:
        return active.session
    return begin(parse_options(environ.get("OPSCOPE", "")), Path(run))


def begin(config: RecordConfig, run: Path) -> Session:
    """Record this process into a run directory that exists."""
    if config.operators is not None:
        declare_rows(read_operators(config.operators))
    facts = process_facts(
        rank=known_rank(os.environ) or 0,
        local_rank=first_number(os.environ, LOCAL_VARIABLES),
        world=first_number(os.environ, WORLD_VARIABLES),
        keep_argv=config.keep_argv,
    )
    writer = ProcessWriter(run, facts, keep=config.keep_last)
    session = Session(config, writer, process=writer.process.process)
    if writer.failed is not None:
        session.closed = True
        return session
    from opscope.record.torch.recorder import TorchRecorder

    if config.seed is not None:
        seed_all(config.seed, deterministic=config.deterministic)
    recorder = TorchRecorder(session)
    attach_blackbox(session, recorder)
    recorder.watch_formulas()
    recorder.watch_graphs()
    watch(session)
    watch_threads(session, recorder.enter_modes, recorder.exit_modes)
    active.enter(session)
    session.start(recorder)
    return session


def attach_blackbox(session: Session, recorder: TorchRecorder) -> None:
    """Give the process its black box; a disk that has no room for it ends the recording, not the
    program.
    """
    contain(
        session.fail,
        lambda: recorder.book.attach(BlackBox.create(session.writer.directory / BLACKBOX)),
    )


class Part(Protocol):
    """What one framework's recording can be told."""

    @property
    def closed(self) -> bool: ...
    def pause(self) -> None: ...
    def resume(self) -> None: ...
    def mark_step(self) -> None: ...
    def close(self, exit_code: int | None = None) -> None: ...


class Recording:
    """A with-block that records what torch and MindSpore do inside it; inside an outer recording it
    joins that one.

    path of the finished or joined run, None before the block is entered. start, stop and step
    overrule the rules of docs/schema.md. A framework that is imported inside the block is not
    recorded.
    """

    def __init__(self, config: RecordConfig) -> None:
        self.config = config
        self.path: Path | None = None
        self._parts: list[Part] = []
        self._joined = False

    def __repr__(self) -> str:
        return f"<Recording {printable(self._place)!r}: {self._state}>"

    def _repr_html_(self) -> str:
        words = {name: str(value) for name, value in self.config.words().items()}
        rows = {"state": self._state, **words}
        return html_table(f"Recording {self._place}", ("", ""), rows.items())

    @property
    def _place(self) -> str:
        return str(self.path or self.config.output)

    @property
    def _state(self) -> str:
        going = any(not part.closed for part in self._parts)
        return "recording" if going else "not recording"

    def __enter__(self) -> Recording:
        if active.session is not None:
            self._parts, self._joined = [active.session], True
            self.path = active.session.writer.directory.parents[1]
            return self
        if active.joined is not None:
            self.path, self._joined = active.joined, True
            return self
        if not {"torch", "mindspore"} & sys.modules.keys() and find_spec("torch") is None:
            raise UnavailableError(
                "nothing can be recorded: torch is not installed in this interpreter, MindSpore "
                "has not been imported"
            )
        config = self.config
        wanted = with_own_name(Path(config.output or Path("runs", config.tag or "recording")))
        self.path = create_run(
            wanted,
            command=sys.argv,
            config=config.words(),
            shared=config.shared,
            keep_argv=config.keep_argv,
            version=VERSION,
            seed=config.seed,
            deterministic=config.deterministic,
        )
        if self.path.name != wanted.name:
            print(
                f"opscope: {wanted} exists, recording into {wanted.with_name(self.path.name)}",
                file=sys.stderr,
            )
        self._parts = list(_parts(config, self.path))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: object
    ) -> None:
        if not self._parts or self._joined or self.path is None:
            return
        for part in self._parts:
            part.close(None if kind is None else 1)
        active.drop()
        contain(_not_sealed, seal_run, self.path)

    def start(self) -> None:
        """Record again after stop()."""
        self._tell(lambda part: part.resume())

    def stop(self) -> None:
        """Watch nothing until start()."""
        self._tell(lambda part: part.pause())

    def step(self) -> None:
        """Say that a step is over; the rules that find steps are off from then on."""
        if self._joined:
            mark_step()
        else:
            self._tell(lambda part: part.mark_step())

    @property
    def flagged(self) -> int | None:
        """The last finished step of torch in which something overflowed or was judged wrong, as far
        as one operator tells; whether that is a finding, scan says.
        """
        session = active.session
        return None if session is None else session.flagged

    def note(self, step: int, text: str) -> None:
        """What a trainer calls a step, kept for scan to say; of at most 64 steps."""
        if active.session is not None:
            active.session.note("trainer", f"step {step}", text)

    def flush(self) -> None:
        """Return when every finished step can be read from the run."""
        session = active.session
        if session is not None:
            session.drain()
            session.writer.flush()

    def _tell(self, action: Callable[[Part], None]) -> None:
        for part in self._parts:
            if not part.closed:
                action(part)


def _not_sealed(error: BaseException) -> None:
    tell(f"the run is not sealed: {reason(error)}")


def _parts(config: RecordConfig, run: Path) -> Iterator[Part]:
    """A recording of each framework that the program has imported; of torch where it has imported
    none.
    """
    if "mindspore" in sys.modules:
        from opscope.record.mindspore.inside import InsideRecording

        yield InsideRecording(config, run)
    if "torch" in sys.modules or "mindspore" not in sys.modules:
        yield begin(config, run)


def record(  # noqa: PLR0913 - the options of `opscope run`, each by its name
    path: str | os.PathLike[str] | None = None,
    *,
    tag: str | None = None,
    shared: bool | None = None,
    keep_argv: bool | None = None,
    values: str | None = None,
    sample: int | None = None,
    steps: Texts = None,
    ranks: Texts = None,
    ops: Texts = None,
    skip: Texts = None,
    set_dump: bool | None = None,
    phases: Texts = None,
    io: str | None = None,
    levels: Texts = None,
    keep: str | None = None,
    on_overflow: str | None = None,
    around: int | None = None,
    stop_after: bool | None = None,
    step_module: str | None = None,
    seed: int | None = None,
    deterministic: bool | None = None,
    torch_flags: Texts = None,
    sync: bool | None = None,
    check: bool | None = None,
    budget: str | None = None,
    substitute: str | None = None,
    backend: str | None = None,
    journal: Texts = None,
    device_ring: str | int | None = None,
    operators: str | os.PathLike[str] | None = None,
    layout: str | None = None,
    config: str | os.PathLike[str] | None = None,
) -> Recording:
    """Record what torch or MindSpore does inside a with-block into a run directory.

    path is that directory, by default runs/recording; an existing one gets a sibling. Every other
    keyword is the option of `opscope run` with its dashes as underscores; where one is None, what
    OPSCOPE in the environment says holds. Several steps, ranks or patterns may be given as a list.
    Raises UsageError for one that cannot be used.
    """
    given = {**locals(), "output": path}
    del given["path"]
    return Recording(config_from(read_words(os.environ.get("OPSCOPE", "")), words_of(given)))


# The keywords are said where the command line has them from.
record.__doc__ = "\n".join(
    [
        inspect.getdoc(record) or "",
        "",
        *(f"{option.field}: {option.help}" for option in OPTIONS if option.word != "output"),
    ]
)


def mark_step() -> None:
    """Say that a training step is over; without a recording it does nothing."""
    if active.session is not None:
        active.session.mark_step()
    for mark in active.marks:
        mark()  # which contain what they raise themselves


def set_dump(target: object, enabled: bool = True) -> None:  # noqa: FBT001, FBT002 - as mindspore.set_dump is called
    """Choose a module or an operator to be recorded, before its first call, where --set-dump
    (dump_mode 2) is on.

    target is an nn.Module, an operator (torch.ops.aten.bmm), a Cell or primitive of MindSpore, or a
    PATTERN of names; enabled False takes a choice back, for a module inside a chosen one too.
    Raises UsageError for anything else.
    """
    active.chosen.choose(target, enabled=enabled)
