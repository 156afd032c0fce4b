# SPDX-License-Identifier: Apache-2.0
"""What --executor names, as a concurrent.futures.Executor: scheduling, moving data and trying again
are the engine's.

    processes:4              processes of this machine
    dask://scheduler:8786    a Dask cluster (dask.distributed's Client.get_executor)
    ray, ray://head:10001    a Ray cluster (opscope.engine.ray)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any, Generic, TypeVar

import msgspec

from opscope.errors import OpscopeError, UnavailableError, UsageError

MAX_PROCESSES = 1024
Given = TypeVar("Given")
Result = TypeVar("Result")
Work = TypeVar("Work", bound=msgspec.Struct)
Answer = TypeVar("Answer", bound=msgspec.Struct)


@contextmanager
def executor_of(name: str | None) -> Iterator[Executor | None]:
    """The engine of this name within the block; None where none is named.

    UsageError for a name that is none, UnavailableError for an engine that is not installed or
    cannot be reached.
    """
    kind, _, rest = (name or "").partition(":")
    if name is None:
        yield None
    elif kind == "processes":
        yield from _processes(name, rest)
    elif kind == "dask" and rest.startswith("//"):
        yield from _dask(f"tcp:{rest}")
    elif kind == "ray":
        yield from _ray(None if not rest else name)
    else:
        raise UsageError(
            f"--executor {name}: wants processes:N, dask://HOST:PORT, ray or ray://HOST:PORT"
        )


def _processes(name: str, count: str) -> Iterator[Executor]:
    import multiprocessing

    if not count.isdecimal() or not 0 < int(count) <= MAX_PROCESSES:
        raise UsageError(f"--executor {name}: wants processes:N, N from 1 to {MAX_PROCESSES}")
    with ProcessPoolExecutor(int(count), multiprocessing.get_context("spawn")) as pool:
        yield pool


def _dask(address: str) -> Iterator[Executor]:
    try:
        from distributed import Client
    except ImportError as error:
        raise UnavailableError(
            f"dask.distributed is not installed here ({error}); pip install distributed, or take "
            "--executor processes:N"
        ) from error
    try:
        client = Client(address, timeout=10)
    except (OSError, ValueError) as error:
        raise UnavailableError(f"{address}: no Dask scheduler answers: {error}") from error
    with client, client.get_executor() as pool:
        yield pool


def _ray(address: str | None) -> Iterator[Executor]:
    from opscope.engine.ray import RayExecutor

    try:
        pool = RayExecutor(address)
    except ImportError as error:
        raise UnavailableError(
            f"Ray is not installed here ({error}); pip install ray, or take --executor processes:N"
        ) from error
    except ConnectionError as error:
        raise UnavailableError(f"{address}: no Ray cluster answers: {error}") from error
    with pool:
        yield pool


class _Due(Future[Result]):
    """Makes its call when its result is asked for."""

    def __init__(self, call: Callable[[], Result]) -> None:
        super().__init__()
        self._call = call

    def result(self, timeout: float | None = None) -> Result:  # noqa: ARG002 - Future's
        return self._call()


class InThisProcess(Executor):
    """One task after the other, each when its answer is asked for."""

    def submit(self, fn: Callable[..., Result], /, *args: Any, **kwargs: Any) -> Future[Result]:
        """A future of fn(*args, **kwargs)."""
        return _Due(partial(fn, *args, **kwargs))


class Task(msgspec.Struct, Generic[Work, Answer], frozen=True):
    """What workers do: function of a work and of what is asked, both as msgpack, which gives an
    answer as msgpack; lost(work, why) stands for one that did not come.
    """

    function: Callable[[bytes, bytes], bytes]
    answer: type[Answer]
    lost: Callable[[Work, str], Answer]


def parts(
    pool: Executor,
    task: Task[Work, Answer],
    works: Sequence[Work],
    asked: msgspec.Struct,
    told: Callable[[int], None],
) -> dict[Work, Answer]:
    """The answer of every work; told how many percent are there."""
    answered: dict[Work, Answer] = {}
    sent = {msgspec.msgpack.encode(work): work for work in works}
    for given, answer in answers(pool, task.function, sent, msgspec.msgpack.encode(asked)):
        work = sent[given]
        answered[work] = (
            task.lost(work, answer)
            if isinstance(answer, str)
            else msgspec.msgpack.decode(answer, type=task.answer)
        )
        told(100 * len(answered) // len(works))
    return answered


def answers(
    pool: Executor, function: Callable[..., bytes], tasks: Iterable[Given], *given: Any
) -> Iterator[tuple[Given, bytes | str]]:
    """function(task, *given) of every task as it ends: its bytes, or why there are none.

    What a worker raises is told and hides nothing of the others; so is a worker that died where
    its engine does not try again.
    """
    futures = [(task, _submitted(pool, function, task, *given)) for task in tasks]
    for number, (task, future) in enumerate(futures):
        futures[number] = (task, "")  # what was answered is not held
        yield task, future if isinstance(future, str) else _answer(future)


def _submitted(pool: Executor, function: Callable[..., bytes], *given: Any) -> Future[bytes] | str:
    try:
        return pool.submit(function, *given)
    except RuntimeError as error:  # a pool that lost a worker takes no more
        return _why(error)


def _answer(future: Future[bytes]) -> bytes | str:
    try:
        return future.result()
    except Exception as error:  # noqa: BLE001 - an engine raises what it likes, and a rank is lost
        return _why(error)


def _why(error: Exception) -> str:
    """One line of what happened to a worker."""
    words = " ".join(str(error).split())[:300]
    return words if isinstance(error, OpscopeError) else f"{type(error).__name__}: {words}"
