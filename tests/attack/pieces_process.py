# SPDX-License-Identifier: Apache-2.0
"""Pieces of random programs: threads, processes, signals, frames, references, and what else of
Python a program uses.
"""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import contextvars
import gc
import importlib.util
import inspect
import os
import random
import signal
import subprocess
import sys
import threading
import time
import traceback
import warnings
import weakref
from collections.abc import Iterator
from typing import Any

import torch

from tests.attack import limits


def pools(r: random.Random) -> Any:
    def work(n: int) -> torch.Tensor:
        return (torch.ones(3) * n).exp().sum()

    with concurrent.futures.ThreadPoolExecutor(r.randint(1, 3)) as pool:
        found = list(pool.map(work, range(4)))
        failed = pool.submit(lambda: torch.ones(2) + torch.ones(3)).exception()
    return found, type(failed).__name__, str(failed)


def threads_of_every_kind(r: random.Random) -> Any:
    found: dict[str, Any] = {}

    class Own(threading.Thread):
        def run(self) -> None:
            found["own"] = torch.ones(2).sum(), self.name, self.daemon

    local = threading.local()
    local.x = 1
    threads = [
        Own(name="mine", daemon=True),
        threading.Thread(target=lambda: found.update(plain=(torch.ones(1), hasattr(local, "x")))),
    ]
    timer = threading.Timer(0.001, lambda: found.update(timer=torch.zeros(1)))
    before = threading.active_count()
    for thread in [*threads, timer]:
        thread.start()
    for thread in [*threads, timer]:
        thread.join()
    import _thread

    done = threading.Event()
    _thread.start_new_thread(
        lambda: (found.update(raw=torch.ones(2) * r.choice((2, 2))), done.set()), ()
    )
    done.wait()
    return (
        found["own"],
        found["plain"],
        found["timer"],
        found["raw"],
        threading.active_count() - before,
    )


def thread_that_raises(r: random.Random) -> Any:
    seen: list[str] = []
    previous, threading.excepthook = (
        threading.excepthook,
        lambda args: seen.append(
            f"{args.exc_type.__name__} {[f.name for f in traceback.extract_tb(args.exc_traceback)]}"
        ),
    )
    try:
        thread = threading.Thread(target=lambda: torch.ones(2) + torch.ones(r.randint(3, 4)))
        thread.start()
        thread.join()
    finally:
        threading.excepthook = previous
    return seen


def backward_in_a_thread(r: random.Random) -> Any:
    w = torch.ones(3, requires_grad=True)
    loss = (w * r.randint(1, 3)).exp().sum()
    thread = threading.Thread(target=loss.backward)
    thread.start()
    thread.join()
    return w.grad


def asynchronous(r: random.Random) -> Any:
    async def work(n: int) -> torch.Tensor:
        with torch.no_grad():
            x = torch.ones(2) * n
            await asyncio.sleep(0)
        return x.exp() + torch.nn.functional.relu(x)

    async def main() -> Any:
        return await asyncio.gather(
            *(work(n) for n in range(r.randint(1, 3))), return_exceptions=True
        )

    return asyncio.run(main())


def generators_with_torch(r: random.Random) -> Any:
    @torch.no_grad()
    def numbers() -> Iterator[Any]:
        for n in range(3):
            got = yield torch.ones(1) * n
            yield torch.is_grad_enabled(), got

    made = numbers()
    found = [next(made), made.send(torch.ones(1)), torch.is_grad_enabled(), next(made)]
    made.close()
    try:
        next(made)
    except StopIteration:
        found.append(r.random())
    return found


def signals(r: random.Random) -> Any:
    seen: list[Any] = []
    previous = signal.signal(
        signal.SIGUSR1,
        lambda number, frame: seen.append((number, torch.ones(2).sum(), frame.f_code.co_name)),
    )
    try:
        for _ in range(r.randint(1, 3)):
            os.kill(os.getpid(), signal.SIGUSR1)
            torch.ones(3).exp()
    finally:
        signal.signal(signal.SIGUSR1, previous)
    return seen


class Expired(Exception):
    """What the program's alarm raises."""


def alarms_that_raise(r: random.Random) -> Any:
    def expire(number: int, frame: Any) -> None:
        raise Expired("time is up")

    with warnings.catch_warnings():
        # Python runs inside a backward where that is recorded, so the handler may run there as well
        warnings.filterwarnings("ignore", "Error detected in")
        return expired(r, expire)


def expired(r: random.Random, expire: Any) -> Any:
    previous = signal.signal(signal.SIGALRM, expire)
    caught = 0
    try:
        for _ in range(15):
            try:
                torch.set_grad_enabled(True)  # torch's no_grad may have been left on its way in
                # again after a second: Python swallows what is raised in a callback of a weakref
                signal.setitimer(signal.ITIMER_REAL, r.choice((0.0005, 0.001, 0.002)), 1.0)
                model = torch.nn.Linear(4, 4)
                while True:
                    model(torch.ones(2, 4)).sum().backward()
            except Expired:
                caught += 1
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
    finally:
        signal.signal(signal.SIGALRM, previous)
        torch.manual_seed(0)  # how much was drawn is a matter of time
    return caught, torch.ones(2) + 1


def interrupts(r: random.Random) -> Any:
    caught = 0
    for _ in range(10):
        timer = threading.Timer(
            r.choice((0.001, 0.002)), lambda: os.kill(os.getpid(), signal.SIGINT)
        )
        try:
            timer.start()
            while True:
                torch.nn.functional.linear(torch.ones(2, 4), torch.ones(3, 4)).add_(1)
        except KeyboardInterrupt:
            caught += 1
        timer.join()
    return caught


def exits(r: random.Random) -> Any:
    found = []

    class Leaves(torch.nn.Module):
        def forward(self) -> None:
            sys.exit(r.choice((0, 3, "text")))

    for attempt in (lambda: Leaves()(), lambda: (_ for _ in ()).throw(GeneratorExit())):
        try:
            attempt()
        except BaseException as error:  # noqa: BLE001
            found.append((type(error).__name__, getattr(error, "code", None)))
    return found


def warnings_of_torch(r: random.Random) -> Any:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.nn.functional.mse_loss(torch.ones(3), torch.ones(1))
        torch.optim.lr_scheduler.StepLR(
            torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.1), 1
        ).step()
        torch.nn.functional.softmax(torch.ones(2))
        torch.tensor(torch.ones(r.randint(1, 2)))
        warnings.warn("mine", stacklevel=2)
        torch.empty(0).resize_(2)
        torch.ones(2, 2).T.shape, torch.ones(2).T
        (torch.ones(3, requires_grad=True) * 2).grad
    return [
        (
            each.category.__name__,
            str(each.message)[:150],
            os.path.basename(each.filename),
            each.lineno,
        )
        for each in caught
    ]


def warnings_are_errors(r: random.Random) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found: list[Any] = [
            torch.nn.Linear(2, r.randint(1, 3))(torch.ones(2)),
            torch.ones(3).to_sparse() * 2,
        ]
        for attempt in (
            lambda: torch.nn.functional.mse_loss(torch.ones(3), torch.ones(1)),
            lambda: torch.nn.functional.softmax(torch.ones(2)),
            lambda: torch.ones(2).to_sparse_csr() if False else torch.eye(2).to_sparse_csr(),
            lambda: torch.nested.nested_tensor([torch.ones(1)]),
            lambda: (torch.ones(3, requires_grad=True) * 2).grad,
            lambda: torch.compile(lambda x: x + 1, backend="eager")(torch.ones(1)),
        ):
            try:
                found.append(type(attempt()).__name__)
            except Warning as error:
                found.append((type(error).__name__, str(error)[:150]))
        return found


def frames(r: random.Random) -> Any:
    seen: list[Any] = []

    class Looks(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            seen.append(limits.functions(reversed(traceback.extract_stack()))[:6])
            x.register_hook(lambda g: seen.append(limits.functions(traceback.extract_stack())[-4:]))
            return x * 2

    class Formula(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * r.choice((2, 2))

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            seen.append(limits.functions(traceback.extract_stack())[-5:])
            return g

    x = torch.ones(2, requires_grad=True)
    Formula.apply(Looks()(x)).sum().backward()
    return seen


def tracebacks(r: random.Random) -> Any:
    class Inner(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x @ torch.ones(r.randint(5, 6))

    model = torch.nn.Sequential(torch.nn.Linear(2, 2), Inner())
    found = []
    for attempt in (
        lambda: model(torch.ones(2)),
        lambda: torch.ones(2).backward(),
        lambda: torch.linalg.inv(torch.zeros(2, 2)),
        lambda: torch.optim.SGD([], lr=1),
    ):
        try:
            attempt()
        except Exception as error:  # noqa: BLE001
            found.append(limits.functions(traceback.extract_tb(error.__traceback__)))
            found.append(
                (
                    error.__context__ is None,
                    error.__cause__ is None,
                    getattr(error, "__notes__", None),
                )
            )
    return found


def traced_lines(r: random.Random) -> Any:
    called: list[tuple[str, str]] = []

    def trace(frame: Any, event: str, arg: Any) -> None:
        if event == "call":
            called.append((os.path.basename(frame.f_code.co_filename), frame.f_code.co_name))

    previous = sys.getprofile()
    sys.setprofile(trace)
    try:
        y = torch.nn.Linear(2, r.randint(1, 2))(torch.ones(1, 2))
        y.sum().backward()
    finally:
        sys.setprofile(previous)
    return [f"{file}:{name}" for file, name in called if (file, name) not in limits.TRACED]


def recursion(r: random.Random) -> Any:
    def down(n: int, x: torch.Tensor) -> torch.Tensor:
        return down(n + 1, x + 1)

    try:
        down(0, torch.ones(r.randint(1, 2)))
    except RecursionError as error:
        return str(error)
    return None


def climbs_into_the_recursion_limit(r: random.Random) -> Any:
    """Its last frames are met by operators, modules and backward passes in turn: where exactly is a
    matter of frames.
    """
    model, met = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU()), []
    limit, depth = sys.getrecursionlimit(), len(inspect.stack(0))

    def climb(n: int) -> None:
        if n % 3 == 0:
            torch.ones(3).mul_(n + r.randint(1, 2)).sum()
        else:
            model(torch.ones(1, 2)).sum().backward()
        climb(n + 1)

    def down(n: int, first: int) -> None:
        return down(n - 1, first) if n else climb(first)

    for first in range(3):
        try:
            down(limit - depth - 40, first)
        except RecursionError:
            met.append(first)
    torch.manual_seed(0)
    return met, torch.ones(2) * 3


def near_the_recursion_limit(r: random.Random) -> Any:
    limit = sys.getrecursionlimit()
    depth = len(inspect.stack(0))
    found = []

    def down(n: int) -> Any:
        return torch.ones(2).add_(1) if n == 0 else down(n - 1)

    for spare in (60, 30, 20, 12, 8):
        try:
            found.append(down(limit - depth - spare))
        except RecursionError:
            found.append("too deep")
    return found, r.random()


def references_die(r: random.Random) -> Any:
    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(2, 2)
            self.me = self

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layer(x)

    model = Model()
    x = torch.ones(1, 2, requires_grad=True)
    y = model(x)
    y.sum().backward()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer.step()
    refs = [weakref.ref(each) for each in (model, model.layer, model.layer.weight, x, y, optimizer)]
    grad_fn = weakref.ref(y.grad_fn) if hasattr(type(y.grad_fn), "__weakref__") else None
    del model, x, y, optimizer
    first = [ref() is None for ref in refs]
    gc.collect()
    return first, [ref() is None for ref in refs], grad_fn, r.random()


def finalisers_use_torch(r: random.Random) -> Any:
    seen: list[Any] = []

    class Owns:
        def __init__(self) -> None:
            self.x = torch.ones(2)

        def __del__(self) -> None:
            seen.append((self.x * r.choice((2, 2))).sum())

    class Node(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.owns = Owns()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + Owns().x

    Node()(torch.ones(2))
    gc.collect()
    return seen


def garbage(r: random.Random) -> Any:
    gc.collect()
    before = sum(isinstance(each, torch.nn.Module) for each in gc.get_objects())
    model = torch.nn.Sequential(*(torch.nn.Linear(2, 2) for _ in range(r.randint(1, 4))))
    model(torch.ones(1, 2))
    count = sum(isinstance(each, torch.nn.Module) for each in gc.get_objects()) - before
    referrers = len(gc.get_referrers(model[0]))
    del model
    gc.collect()
    return (
        count,
        referrers,
        sum(isinstance(each, torch.nn.Module) for each in gc.get_objects()) - before,
        gc.isenabled(),
        gc.garbage,
    )


def context_variables(r: random.Random) -> Any:
    var: contextvars.ContextVar[int] = contextvars.ContextVar("attack", default=0)
    var.set(r.randint(1, 9))
    context = contextvars.copy_context()
    return context.run(lambda: (var.get(), torch.ones(1) * var.get())), len(
        [v for v in context if v.name.startswith("opscope")]
    )


def environment(r: random.Random) -> Any:
    found = [
        importlib.util.find_spec("torch").name,
        torch.__spec__.name,
        type(torch.__spec__.loader).__name__,
        "exec_module" in vars(torch.__loader__),
        torch.__spec__._initializing,
    ]
    found += [
        os.path.basename(sys.argv[0]),
        sys.flags.isolated,
        __name__,
        r.random(),
        [
            type(each).__name__
            for each in sys.meta_path
            if "opscope" in type(each).__module__ and type(each).__name__ not in limits.FINDERS
        ],
    ]
    found += [
        sys.getswitchinterval(),
        sys.getrecursionlimit(),
        sys.gettrace(),
        signal.getsignal(signal.SIGTERM),
        signal.getsignal(signal.SIGINT).__name__,
    ]
    return found


def site_customisation(r: random.Random) -> Any:
    return (
        importlib.util.find_spec("sitecustomize") is None,
        importlib.util.find_spec("usercustomize") is None,
        "sitecustomize" in sys.modules,
        r.random(),
    )


def signatures(r: random.Random) -> Any:
    functions = (
        os._exit,
        threading.Thread._bootstrap_inner,
        torch.Tensor.backward,
        torch.nn.Module.__call__,
        torch.library.Library.impl,
    )
    return [
        (
            getattr(f, "__name__", None),
            getattr(f, "__qualname__", None),
            getattr(f, "__module__", None),
        )
        for f in functions
    ], r.random()


def children(r: random.Random) -> Any:
    code = (
        f"import torch, sys; print((torch.ones(2) * {r.randint(1, 3)}).sum().item()); sys.exit(4)"
    )
    made = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)  # noqa: S603
    return made.returncode, made.stdout, made.stderr


def forked(r: random.Random) -> Any:
    read, write = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.write(write, str((torch.ones(3) * r.choice((2, 2))).exp().sum().item()).encode())
        finally:
            os._exit(5)
    os.close(write)
    told = os.read(read, 100)
    os.close(read)
    return told, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def processes(r: random.Random) -> Any:
    import torch.multiprocessing as mp

    context = mp.get_context("fork")
    queue = context.SimpleQueue()
    shared = torch.zeros(2).share_memory_()
    process = context.Process(target=_child, args=(queue, shared, r.randint(1, 3)))
    process.start()
    process.join()
    return shared, queue.get(), process.exitcode


def _child(queue: Any, shared: torch.Tensor, by: int) -> None:
    shared.add_(by)
    queue.put(shared.sum().item())
    sys.exit(6)


def at_the_end(r: random.Random) -> Any:
    number = r.randint(0, 99)
    atexit.register(
        lambda: print("at exit", number, (torch.ones(2) * number).sum().item(), flush=True)
    )


def descriptors(r: random.Random) -> Any:
    path = f"/proc/self/fd/{r.randint(200, 300)}"
    reads = os.dup(0)
    os.close(reads)
    return os.path.exists(path), sys.stdout.isatty(), os.get_inheritable(1)


def timings(r: random.Random) -> Any:
    first = time.perf_counter()
    event = torch.autograd.profiler.record_function("attack")
    with event:
        torch.ones(r.randint(1, 3))
    return time.perf_counter() >= first


def patched(r: random.Random) -> Any:
    genuine = torch.nn.functional.relu
    torch.nn.functional.relu = lambda x, inplace=False: genuine(x) * 2
    call = torch.nn.Module.__call__
    seen = []

    def own(self: Any, *args: Any, **kwargs: Any) -> Any:
        seen.append(type(self).__name__)
        return call(self, *args, **kwargs)

    torch.nn.Module.__call__ = own
    try:
        return torch.nn.ReLU()(torch.ones(r.randint(1, 3))), seen
    finally:
        torch.nn.functional.relu = genuine
        torch.nn.Module.__call__ = call


def builtins_are_replaced(r: random.Random) -> Any:
    """Who asks for a builtin that the program replaced, the program may see: opscope too."""
    import builtins

    genuine = builtins.isinstance

    def own(value: Any, kind: Any) -> bool:
        return genuine(value, kind)

    builtins.isinstance = own
    try:
        y = torch.ones(2) * r.randint(1, 3)
    finally:
        builtins.isinstance = genuine
    return y


def patched_dunder(r: random.Random) -> Any:
    genuine = torch.Tensor.detach
    seen = []

    def own(self: Any) -> Any:
        seen.append("detach")
        return genuine(self)

    torch.Tensor.detach = own
    torch.Tensor.clone, kept = (lambda self, **_: seen.append("clone")), torch.Tensor.clone
    try:
        x = torch.full((3,), 3e38)
        x.mul_(r.randint(10, 20))
        return x / 0, seen
    finally:
        torch.Tensor.detach, torch.Tensor.clone = genuine, kept
