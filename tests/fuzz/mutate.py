# SPDX-License-Identifier: Apache-2.0
"""Change kept inputs at random and hold every parser to its promise: no crash, no hang over 2 s,
growth under 64 MiB.

    python tests/fuzz/mutate.py [--inputs 1000000] [--seed 0] [--keep FOLDER] [TARGET …]

Needs nothing beside opscope; the inputs are shared out among the parsers, each in a process of its
own. Input N of a target depends on the seed alone, so that what a dying process was given can be
made again. What breaks the promise is written to FOLDER.
"""

from __future__ import annotations

import argparse
import gc
import json
import mmap
import os
import random
import re
import resource
import signal
import struct
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from targets import CORPUS, TARGETS, attempt

HANG = 2.0  # seconds of CPU for one input
DEAD = 30  # seconds after which the input is given up
GROWTH = 64 << 20
MOST_FINDS = 20
LARGEST = 1 << 20
NUMBER = re.compile(rb"-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?")
NUMBERS = (
    b"0",
    b"-1",
    b"1",
    b"255",
    b"256",
    b"65535",
    b"2147483647",
    b"2147483648",
    b"-2147483649",
    b"4294967296",
    b"9223372036854775807",
    b"9223372036854775808",
    b"18446744073709551616",
    b"1e309",
    b"-1e309",
    b"1e-400",
    b"NaN",
    b"Infinity",
    b"nan",
    b"inf",
    b"0x7f",
    b"9" * 40,
    b"9" * 400,
    b"9" * 4301,
    b"1_000",
    "١٢".encode(),
    b"0.1",
    b"1.",
    b"-0",
)
TOKENS = (
    b"\\ud800",
    b"\\udfff",
    b'"\\ud800"',
    b"\x00",
    b"\xff",
    b"\xed\xa0\x80",
    b"\n",
    b"\r",
    b",",
    b'"',
    b"'",
    b"\\",
    b"{",
    b"}",
    b"[",
    b"]",
    b"[" * 600,
    b'{"a":' * 500,
    b"(" * 300,
    b"null",
    b"true",
    b"[]",
    b"{}",
    b'""',
    b"../../../etc/passwd",
    b"/etc/passwd",
    b"\x1b[31m",
    "\u202e".encode(),
    b"=1+1",
    b"%s%n",
    b"A" * 5000,
    b"\xef\xbb\xbf",
    b"\xff\xfe",
    b":",
    b"=",
    b"#",
    b";",
    b" " * 300,
    b"\t",
    b"<",
    b">",
)
VALUES: tuple[Any, ...] = (
    None,
    True,
    False,
    -1,
    0,
    1,
    2**31,
    2**63,
    2**64,
    10**40,
    10**4299,
    1e308,
    -0.0,
    1e-320,
    float("nan"),
    float("inf"),
    "",
    "x" * 300,
    "\ud800",
    "\0",
    "a\nb",
    "float32",
    "../x",
    "/etc/passwd",
    "\x1b[2J",
    [],
    {},
    [[]],
    {"a": {}},
    ["a"] * 50,
    [0] * 50,
    [[1, 2], "x", None],
    {"type": "torch.Tensor"},
)


def changed(inputs: list[bytes], chance: random.Random) -> bytes:
    """One of the inputs with some changes; JSON is changed as JSON half of the time."""
    data = chance.choice(inputs)
    if data[:1] in (b"{", b"[") and chance.random() < 0.5:
        try:
            data = _other_json(data, chance)
        except ValueError:
            pass
        if chance.random() < 0.7:
            return data
    piece = bytearray(data)
    for _ in range(chance.choice((1, 1, 1, 2, 3, 6))):
        chance.choice(CHANGES)(piece, chance, inputs)
    return bytes(piece[:LARGEST])


def _other_json(data: bytes, chance: random.Random) -> bytes:
    document = json.loads(data)
    places: list[tuple[Any, Any]] = []
    stack = [document]
    while stack:
        one = stack.pop()
        for key, item in one.items() if isinstance(one, dict) else enumerate(one):
            places.append((one, key))
            if isinstance(item, dict | list):
                stack.append(item)
    for _ in range(chance.choice((1, 1, 2, 4))):
        if not places:
            break
        one, key = chance.choice(places)
        what = chance.random()
        if what < 0.7:
            one[key] = chance.choice(VALUES)
        elif what < 0.85 and isinstance(one, dict):
            one.pop(key, None)
        elif isinstance(one, dict) and key in one:
            one[chance.choice(("", "x", "\ud800", "a/b", str(key) * 2))] = one[key]
        else:
            one[key] = chance.choice(places)[0]
    return json.dumps(_plain(document, 60)).encode()


def _plain(value: Any, depth: int) -> Any:
    """The value as a tree, since a part may have been put into itself."""
    if depth == 0 or not isinstance(value, dict | list):
        return None if isinstance(value, dict | list) else value
    if isinstance(value, dict):
        return {
            str(key): _plain(item, depth - 8) if depth > 8 else None for key, item in value.items()
        }
    return [_plain(item, depth - 8) if depth > 8 else None for item in value]


def _place(piece: bytearray, chance: random.Random) -> int:
    return chance.randrange(len(piece)) if piece else 0


def _flip(piece: bytearray, chance: random.Random, _: list[bytes]) -> None:
    if piece:
        piece[_place(piece, chance)] ^= 1 << chance.randrange(8)


def _byte(piece: bytearray, chance: random.Random, _: list[bytes]) -> None:
    if piece:
        piece[_place(piece, chance)] = chance.choice(
            (0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256))
        )


def _whole(piece: bytearray, chance: random.Random, _: list[bytes]) -> None:
    """A number of two to eight bytes, in either order."""
    form = chance.choice(("<H", ">H", "<I", ">I", "<Q", ">Q"))
    most = (1 << 8 * struct.calcsize(form)) - 1
    at = _place(piece, chance)
    value = chance.choice((0, 1, most, most // 2, most // 2 + 1, len(piece), chance.randrange(256)))
    piece[at : at + struct.calcsize(form)] = struct.pack(form, min(value, most))


def _number(piece: bytearray, chance: random.Random, _: list[bytes]) -> None:
    places = list(NUMBER.finditer(piece[:65536]))
    if places:
        found = chance.choice(places)
        piece[found.start() : found.end()] = chance.choice(NUMBERS)


def _token(piece: bytearray, chance: random.Random, _: list[bytes]) -> None:
    at = _place(piece, chance)
    piece[at:at] = chance.choice(TOKENS)


def _cut(piece: bytearray, chance: random.Random, _: list[bytes]) -> None:
    at = _place(piece, chance)
    del piece[at : at + chance.choice((1, 4, 16, 256, len(piece)))]


def _again(piece: bytearray, chance: random.Random, _: list[bytes]) -> None:
    at = _place(piece, chance)
    part = bytes(piece[at : at + chance.choice((1, 8, 64, 1024))])
    piece[at:at] = part * chance.choice((1, 2, 30))


def _splice(piece: bytearray, chance: random.Random, inputs: list[bytes]) -> None:
    other = chance.choice(inputs)
    at, there = _place(piece, chance), chance.randrange(len(other) + 1)
    piece[at:] = other[there:]


CHANGES: tuple[Callable[[bytearray, random.Random, list[bytes]], None], ...] = (
    _flip,
    _byte,
    _whole,
    _number,
    _token,
    _cut,
    _again,
    _splice,
)


class Hung(BaseException):
    """One input took too long."""


def _hung(*_: object) -> None:
    raise Hung


def watch(name: str, count: int, seed: int, keep: Path, at: mmap.mmap) -> int:
    """Give a parser that many changed inputs; the number of finds."""
    inputs = [path.read_bytes() for path in sorted((CORPUS / name).iterdir())]
    for data in inputs:
        attempt(name, data)
    gc.collect()
    signal.signal(signal.SIGVTALRM, _hung)
    finds: dict[str, int] = {}
    slowest, before = 0.0, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
    start = time.process_time()
    for number in range(count):
        at[:8] = struct.pack("<q", number)
        data = changed(inputs, random.Random(f"{seed} {name} {number}"))
        begun = time.process_time()
        why = ""
        try:
            signal.setitimer(signal.ITIMER_VIRTUAL, DEAD)
            attempt(name, data)
        except (Exception, Hung) as error:  # noqa: BLE001 - any is a find
            why = f"{type(error).__name__} {_where(error)}"
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        spent = time.process_time() - begun
        slowest = max(slowest, spent)
        if spent > HANG:
            why = why or f"{spent:.1f} s"
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10) - before
        if grown > GROWTH:
            why, before = why or f"{grown >> 20} MiB", before + grown
        if why and finds.setdefault(why, number) == number and len(finds) <= MOST_FINDS:
            kept = keep / f"{name}-{number}"
            kept.write_bytes(data)
            print(f"{name} {number}: {why}: {kept}", flush=True)
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10) - before
    spent = time.process_time() - start
    print(
        f"{name:26}{count:9} inputs {spent:7.1f} s  slowest {slowest:.2f} s  growth "
        f"{grown >> 20} MiB  finds {len(finds)}",
        flush=True,
    )
    return len(finds)


def _where(error: BaseException) -> str:
    """The innermost line of opscope that the error passed."""
    frames = [one for one in traceback.extract_tb(error.__traceback__) if "opscope" in one.filename]
    return f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""


def apart(name: str, count: int, seed: int, keep: Path) -> bool:
    """The same in a process of its own; whether there were finds."""
    at = mmap.mmap(-1, 8)
    sys.stdout.flush()
    child = os.fork()
    if not child:
        code = 70
        try:
            code = min(watch(name, count, seed, keep, at), 60)
        finally:
            sys.stdout.flush()
            os._exit(code)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status < 0 or status == 70:
        print(f"{name}: ended by {status} at input {struct.unpack('<q', at[:8])[0]}", flush=True)
    return status != 0


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--inputs", type=int, default=1_000_000, help="in total, shared out among the targets"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, default=Path("fuzz-finds"))
    parser.add_argument("targets", nargs="*", default=[*TARGETS])
    options = parser.parse_args()
    options.keep.mkdir(parents=True, exist_ok=True)
    share = -(-options.inputs // len(options.targets))
    found = [name for name in options.targets if apart(name, share, options.seed, options.keep)]
    print(f"{share * len(options.targets)} inputs, finds in: {', '.join(found) or 'none'}")
    raise SystemExit(1 if found else 0)


if __name__ == "__main__":
    main()
