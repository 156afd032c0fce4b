# SPDX-License-Identifier: Apache-2.0
"""The kernels as a program without Python, on a thread pool of its caller; for aarch64 too where it
can be compiled and emulated.
"""

from __future__ import annotations

import shutil
import struct
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kernel_arrays import DTYPES, LAYOUTS, LENGTHS, content, differences, laid_out, special

from opscope.kernels import Statistics, compiled, reference

NATIVE = Path(__file__).resolve().parents[2] / "src/opscope/kernels/native"
CORE = ("statistics", "layout", "dispatch", "scalar")
FLAGS = (
    "-std=c++17",
    "-O2",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-ffp-contract=off",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-pthread",
)
AVX2 = ("-mavx2", "-mfma", "-mf16c", "-mpopcnt")
AVX512 = (
    *AVX2,
    "-mavx512f",
    "-mavx512bw",
    "-mavx512dq",
    "-mavx512vl",
    "-Wno-uninitialized",
    "-Wno-maybe-uninitialized",
)
X86 = {"sse2": (), "avx2": AVX2, "avx512": AVX512}
CROSS, EMULATOR = "aarch64-linux-gnu-g++", "qemu-aarch64"


def built(compiler: str, kernels: dict[str, tuple[str, ...]], folder: Path) -> Path:
    objects = []
    for name, flags in {**dict.fromkeys(CORE, ()), **kernels}.items():
        objects.append(folder / f"{name}.o")
        subprocess.run(
            [compiler, *FLAGS, *flags, "-c", NATIVE / f"{name}.cpp", "-o", objects[-1]], check=True
        )
    program = folder / "driver"
    source = Path(__file__).with_name("kernel_driver.cpp")
    subprocess.run(
        [compiler, *FLAGS, f"-I{NATIVE}", source, *objects, "-static", "-o", program], check=True
    )
    return program


def shared_symbols(program: Path) -> list[str]:
    """Functions of the vector kernels that the linker may exchange for those of another instruction
    set.
    """
    objects = [
        program.with_name(f"{name}.o")
        for name in (*X86, "neon", "scalar")
        if program.with_name(f"{name}.o").exists()
    ]
    listed = subprocess.run(
        ["nm", "--defined-only", *objects], stdout=subprocess.PIPE, text=True, check=True
    ).stdout
    return [line for line in listed.splitlines() if line.split()[1:2] in (["W"], ["V"], ["u"])]


def cases() -> list[Any]:
    """Every type at every length, every layout, every float and a large array for several
    threads.
    """
    rng = np.random.default_rng(19)
    found = []
    for name in DTYPES:
        dtype = np.dtype(name)
        found += [
            content(dtype, length, kind, rng)
            for length in LENGTHS
            for kind in ("plain", "a few", "bytes")
        ]
        found += [laid_out(content(dtype, 3000, "a few", rng), layout, rng) for layout in LAYOUTS]
        found += [special(dtype), content(dtype, 300_001, "plain", rng)]
        if dtype.itemsize <= 2 and dtype.kind != "b":
            found.append(
                np.arange(2 ** (8 * dtype.itemsize)).astype(f"u{dtype.itemsize}").view(dtype)
            )
    return found


def encoded(array: Any, *, digest: bool, threads: int) -> bytes:
    base = array
    while isinstance(base.base, np.ndarray):
        base = base.base
    low, high = (
        np.lib.array_utils.byte_bounds(array)
        if array.size
        else (array.ctypes.data, array.ctypes.data)
    )
    held = np.frombuffer(
        (base.view(np.uint8).reshape(-1) if base.flags.c_contiguous else base.copy()).tobytes(),
        np.uint8,
    )
    start = low - base.ctypes.data
    body = held[start : start + high - low].tobytes()
    head = (
        compiled.NUMBERS[array.dtype.name],
        digest,
        threads,
        array.ndim,
        array.ctypes.data - low,
        len(body),
    )
    strides = [stride // array.itemsize for stride in array.strides]
    return struct.pack(f"<{6 + 2 * array.ndim}q", *head, *array.shape, *strides) + body


def decoded(line: str) -> tuple[str, Statistics]:
    isa, *fields = line.split()
    counts, floats, exact, sample = fields[:8], fields[8:12], fields[12:15], fields[15:]
    values = [None if field == "-" else float.fromhex(field) for field in floats]
    ends = [None if field == "-" else int(field) for field in exact]
    sampled = tuple(map(float.fromhex, sample)) or None
    return isa, Statistics(*map(int, counts), *values, *ends, sampled)  # type: ignore[arg-type]


def check(command: list[str | Path], isas: list[str]) -> None:
    arrays = cases()
    stream = b"".join(encoded(array, digest=True, threads=3) for array in arrays)
    lines = (
        subprocess.run(command, input=stream, stdout=subprocess.PIPE, check=True)
        .stdout.decode()
        .splitlines()
    )
    assert len(lines) == len(arrays) * len(isas)
    for place, line in enumerate(lines):
        array = arrays[place // len(isas)]
        isa, found = decoded(line)
        assert isa == isas[place % len(isas)]
        assert differences(found, reference.statistics(array), array) == [], (
            isa,
            array.dtype,
            array.shape,
            array.strides,
        )


@pytest.mark.zoo
@pytest.mark.slow
def test_on_this_machine(tmp_path: Path) -> None:
    compiler = shutil.which("c++") or shutil.which("g++")
    machine = subprocess.run(
        [compiler or "false", "-dumpmachine"], capture_output=True, text=True, check=False
    ).stdout
    if not machine.startswith("x86_64"):
        pytest.skip("compiles the kernels of x86-64")
    program = built(str(compiler), X86, tmp_path)
    check([program], compiled.load().isas())  # type: ignore[union-attr]
    assert shared_symbols(program) == []


@pytest.mark.zoo
@pytest.mark.slow
@pytest.mark.skipif(
    not (shutil.which(CROSS) and shutil.which(EMULATOR)), reason=f"needs {CROSS} and {EMULATOR}"
)
def test_on_an_emulated_aarch64(tmp_path: Path) -> None:
    check([EMULATOR, built(CROSS, {"neon": ()}, tmp_path)], ["scalar", "neon"])
