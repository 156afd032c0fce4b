# SPDX-License-Identifier: Apache-2.0
"""Random programs, made from pieces: `python -m tests.attack.programs FIRST LAST` runs those of
seeds FIRST to LAST - 1.

A piece is a function of a random.Random that does what programs do with torch and gives what came
of it. A program is a seeded choice of pieces, each with its own numbers, some of them wrapped (in
autocast, a thread, no_grad, …). What a piece gives, raises (with its message and the functions of
its traceback) or warns is printed by digest, so that two runs of one seed can be held against each
other line by line. Nothing here knows whether it is being recorded.
"""

from __future__ import annotations

import gc
import hashlib
import importlib
import random
import re
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any

import torch

from tests.attack import limits

Piece = Callable[[random.Random], Any]
MODULES = ("tensors", "subclasses", "modules", "transforms", "tracing", "process", "listening")
EACH = 6  # pieces of a program


def pieces() -> dict[str, Piece]:
    """Every piece by its name, in a fixed order."""
    found: dict[str, Piece] = {}
    for module in MODULES:
        room = importlib.import_module(f"tests.attack.pieces_{module}")
        found.update(
            {
                f"{module}.{name}": value
                for name, value in sorted(vars(room).items())
                if getattr(value, "__module__", "") == room.__name__
                and callable(value)
                and not isinstance(value, type)
                and not name.startswith("_")
            }
        )
    return found


# -- what came of a piece --------------------------------------------------------------------------


def told(value: Any) -> str:
    """A value as text that is equal exactly when the value is; addresses of objects are left
    out.
    """
    if isinstance(value, torch.Tensor):
        return _tensor(value)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{told(key)}: {told(item)}" for key, item in value.items()) + "}"
    if isinstance(value, (list, tuple, set, frozenset)):
        return f"{type(value).__name__}[" + ", ".join(map(told, value)) + "]"
    return re.sub(r"0x[0-9a-f]{6,}", "0x", repr(value))


def _tensor(value: torch.Tensor) -> str:
    kind = f"{type(value).__name__} {value.dtype} {value.layout} grad={value.requires_grad}"
    with torch.no_grad():
        try:
            if (
                value.is_sparse
                or value.layout is not torch.strided
                or value.is_nested
                or value.is_quantized
            ):
                value = (
                    value.dequantize()
                    if value.is_quantized
                    else value.to_dense()
                    if not value.is_nested
                    else value.values()
                )
            plain = value.detach().resolve_conj().resolve_neg().contiguous()
            held = bytes(plain.flatten().view(torch.uint8).numpy()) if plain.numel() else b""
        except Exception as error:  # noqa: BLE001 - a tensor without memory: only its kind can be told
            return f"{kind} {type(error).__name__}"
    return f"{kind} {tuple(value.shape)} {hashlib.sha256(held).hexdigest()[:16]}"


def raised(error: BaseException) -> str:
    """Type and message of an exception and the functions that it came through."""
    frames = traceback.extract_tb(error.__traceback__)
    message = re.sub(r"0x[0-9a-f]{6,}", "0x", str(error))
    return f"{type(error).__qualname__}: {message!r} through {' '.join(limits.functions(frames))}"


def outcome(piece: Piece, chooser: random.Random) -> str:
    """What a piece gave or raised, what it warned of, and where it left torch's generator."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            text = told(piece(chooser))
        except Exception as error:  # noqa: BLE001 - an exception is an outcome like any other
            text = raised(error)
    warned = [f"{each.category.__name__}: {str(each.message)[:200]!r}" for each in caught]
    return f"{text} | {warned} | {told(torch.get_rng_state())[-17:]} | {told(_state())}"


def _state() -> dict[str, object]:
    """Settings of torch that a piece may have left changed."""
    return {
        "grad": torch.is_grad_enabled(),
        "inference": torch.is_inference_mode_enabled(),
        "autocast": torch.is_autocast_enabled("cpu"),
        "dtype": torch.get_default_dtype(),
        "device": torch.get_default_device(),
        "function modes": torch._C._len_torch_function_stack(),
        "tracing": torch._C._get_tracing_state() is not None,
        "threads": torch.get_num_threads(),
    }


# -- wrapped pieces --------------------------------------------------------------------------------


def _within(context: Callable[[], Any]) -> Callable[[Piece], Piece]:
    def wrap(piece: Piece) -> Piece:
        @wraps(piece)
        def wrapped(chooser: random.Random) -> Any:
            with context():
                return piece(chooser)

        return wrapped

    return wrap


def _threaded(piece: Piece) -> Piece:
    @wraps(piece)
    def wrapped(chooser: random.Random) -> Any:
        found: list[Any] = []
        failed: list[BaseException] = []

        def work() -> None:
            try:
                found.append(piece(chooser))
            except BaseException as error:  # noqa: BLE001 - raised again where the program waits
                failed.append(error)

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        if failed:
            raise failed[0]
        return found[0]

    return wrapped


def _inside_module(piece: Piece) -> Piece:
    @wraps(piece)
    def wrapped(chooser: random.Random) -> Any:
        class Outer(torch.nn.Module):
            def forward(self) -> Any:
                return piece(chooser)

        return Outer()()

    return wrapped


def _twice(piece: Piece) -> Piece:
    @wraps(piece)
    def wrapped(chooser: random.Random) -> Any:
        return piece(chooser), gc.collect() >= 0, piece(chooser)

    return wrapped


class _Counting(torch.overrides.TorchFunctionMode):
    """Counts the functions that the program calls under it."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(getattr(func, "__name__", str(func)))
        return func(*args, **(kwargs or {}))


def _function_mode(piece: Piece) -> Piece:
    @wraps(piece)
    def wrapped(chooser: random.Random) -> Any:
        with _Counting() as mode:
            result = piece(chooser)
        return (
            result,
            len(mode.names),
            hashlib.sha256(" ".join(mode.names).encode()).hexdigest()[:16],
        )

    return wrapped


class _Noting(torch.utils._python_dispatch.TorchDispatchMode):
    """Notes the operators that the program calls under it."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(str(func))
        return func(*args, **(kwargs or {}))


def _dispatch_mode(piece: Piece) -> Piece:
    @wraps(piece)
    def wrapped(chooser: random.Random) -> Any:
        with _Noting() as mode:
            result = piece(chooser)
        return result, mode.names

    return wrapped


def _errors(piece: Piece) -> Piece:
    @wraps(piece)
    def wrapped(chooser: random.Random) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            return piece(chooser)

    return wrapped


WRAPPERS: dict[str, Callable[[Piece], Piece]] = {
    "no_grad": _within(torch.no_grad),
    "inference": _within(torch.inference_mode),
    "autocast": _within(lambda: torch.autocast("cpu", torch.bfloat16)),
    "anomaly": _within(lambda: torch.autograd.detect_anomaly(check_nan=False)),
    "device": _within(lambda: torch.device("cpu")),
    "saved": _within(
        lambda: torch.autograd.graph.saved_tensors_hooks(
            lambda each: each.clone(), lambda each: each
        )
    ),
    "thread": _threaded,
    "module": _inside_module,
    "twice": _twice,
    "functions": _function_mode,
    "operators": _dispatch_mode,
    "errors": _errors,
}
# What a wrapper and a piece cannot say together: how much a piece does before time or the number of
# frames stops it, an interrupt in another thread than the main one, the frames of a traceback; and,
# where opcheck traces, two prim::device: torch's wrappers ask for their device by an operator that
# only scripts have. Every way to hand it on that Python knows is heard by function modes itself, so
# the mode hands it on unheard, and what lies below it is not heard either.
UNFIT = {
    "process.alarms_that_raise": {"functions", "operators"},
    "process.interrupts": {"functions", "operators", "thread"},
    "process.climbs_into_the_recursion_limit": {"functions", "operators"},
    "process.traced_lines": {"anomaly"},
    "modules.library_operators": {"functions"},
}


# -- programs --------------------------------------------------------------------------------------


def program(seed: int) -> list[tuple[str, Piece]]:
    """The pieces of a seed's program with their names, wrapped as the seed says."""
    chooser = random.Random(seed)
    known = pieces()
    made: list[tuple[str, Piece]] = []
    for name in chooser.choices(list(known), k=EACH):
        piece, title = known[name], name
        fitting = [each for each in WRAPPERS if each not in UNFIT.get(name, ())]
        for wrapper in chooser.sample(fitting, k=chooser.choice((0, 0, 1, 1, 2))):
            piece, title = WRAPPERS[wrapper](piece), f"{wrapper}({title})"
        made.append((title, piece))
    return made


def show(title: str, piece: Piece, seed: int | str) -> None:
    """Run one piece and print its line."""
    torch.manual_seed(7)
    torch.set_grad_enabled(True)  # an alarm or an interrupt may have come between
    print(f"{seed} {title} -> {outcome(piece, random.Random(str(seed) + title))}", flush=True)


def main(words: list[str]) -> int:
    """Run the programs of some seeds, or every piece once (`each`)."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's & has it ignored
    if words[0] == "each":
        for name, piece in pieces().items():
            if len(words) == 1 or any(word in name for word in words[1:]):
                show(name, piece, "each")
        return 0
    for seed in range(int(words[0]), int(words[1])):
        for title, piece in program(seed):
            show(title, piece, seed)
    return 3


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
