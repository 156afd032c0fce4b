# SPDX-License-Identifier: Apache-2.0
"""Python stacks, interned: each distinct one is resolved once, without reading a source file."""

from __future__ import annotations

import sys
import sysconfig
from pathlib import Path
from types import CodeType, FrameType

import torch

from opscope.kernels.calls import Site

TORCH = str(Path(torch.__file__).parent)
GRAPHS = frozenset(
    f"{TORCH}/_inductor/{name}.py" for name in ("output_code", "codecache")
)  # where compiled graphs are called
OPSCOPE = str(Path(__file__).parents[2])
LIBRARIES = tuple(
    {
        p
        for key, p in sysconfig.get_paths().items()
        if key in {"stdlib", "platstdlib", "purelib", "platlib"} and p
    }
)
ENGINE = "_engine_run_backward"


class Stacks:
    """Gives each distinct Python stack a number and a Site; rows of table stacks wait in
    `fresh`.
    """

    def __init__(self) -> None:
        self.fresh: list[tuple[int, tuple[str, ...]]] = []
        self._sites: dict[tuple[CodeType | int, ...], Site] = {}
        self._count = 0

    def take(self) -> list[tuple[int, tuple[str, ...]]]:
        """The rows of table stacks since the last time; another thread may be adding more."""
        found = self.fresh[:]
        del self.fresh[: len(found)]
        return found

    def site(self, skip: int = 1) -> Site:
        """Site of the caller, skip frames up."""
        frame: FrameType | None = sys._getframe(skip)
        codes: list[CodeType] = []
        instructions: list[int] = []
        while frame is not None:
            codes.append(frame.f_code)
            instructions.append(frame.f_lasti)
            frame = frame.f_back
        key: tuple[CodeType | int, ...] = (*codes, *instructions)
        found = self._sites.get(key)
        if found is None:
            found = self._sites[key] = self.resolve(codes, instructions)
        return found

    def resolve(self, codes: list[CodeType], instructions: list[int]) -> Site:
        """Number a new stack and say what its frames tell; codes run from the innermost frame
        outwards.
        """
        frames = [
            (code.co_filename, line_of(code, at), code.co_name)
            for code, at in zip(codes, instructions, strict=True)
        ]
        frames = [frame for frame in frames if not inside(frame[0], OPSCOPE)]
        number = self._count
        self._count += 1
        self.fresh.append(
            (number, tuple(f"{file}:{line} in {name}" for file, line, name in frames))
        )
        engine = next(
            (
                i
                for i, (file, _, name) in enumerate(frames)
                if name == ENGINE and inside(file, TORCH)
            ),
            len(frames),
        )
        graph = next((i for i, (file, _, _) in enumerate(frames) if file in GRAPHS), None)
        user = (
            frames[:engine] if graph is None or graph > engine else frames[graph:engine]
        )  # generated code is not the user's
        gradient = any(
            inside(file, f"{TORCH}/autograd/__init__.py") and name in {"backward", "grad"}
            for file, _, name in frames
        )
        return Site(
            stack=number,
            source=user_line(user),
            outer=user_line(frames if graph is None else frames[graph:]) or library_line(frames),
            checkpoint=any(
                inside(file, f"{TORCH}/utils/checkpoint.py") for file, _, _ in frames[:engine]
            ),
            optimizer=any(
                file.startswith(
                    (f"{TORCH}/optim/", f"{TORCH}/amp/grad_scaler", f"{TORCH}/nn/utils/clip_grad")
                )
                for file, _, _ in frames
            ),
            gradient=gradient,
            closure=in_closure(frames),
            compiled=graph is not None,
            api=api_name(frames),
        )


def in_closure(frames: list[tuple[str, int, str]]) -> bool:
    """Whether an optimizer of torch called back the user's closure: what it computes is a forward
    pass.
    """
    user = next((i for i, (file, _, _) in enumerate(frames) if is_user(file)), len(frames))
    optimizer = next(
        (i for i, (file, _, _) in enumerate(frames) if file.startswith(f"{TORCH}/optim/")), -1
    )
    return user < optimizer and not frames[optimizer][0].endswith("/optim/optimizer.py")


def line_of(code: CodeType, instruction: int) -> int:
    for start, end, line in code.co_lines():
        if start <= instruction < end and line is not None:
            return line
    return code.co_firstlineno


def inside(file: str, folder: str) -> bool:
    return file == folder or file.startswith(f"{folder}/")


def is_user(file: str) -> bool:
    """Whether a file is the user's own: not of Python, not installed, not generated."""
    if file.startswith("<"):
        return False
    parts = file.replace("\\", "/")
    return not (
        "/site-packages/" in parts
        or "/dist-packages/" in parts
        or any(inside(file, library) for library in LIBRARIES)
    )


def user_line(frames: list[tuple[str, int, str]]) -> str | None:
    return next((f"{file}:{line}" for file, line, _ in frames if is_user(file)), None)


def library_line(frames: list[tuple[str, int, str]]) -> str | None:
    """Innermost line outside torch and the standard library, for programs that are wholly
    installed.
    """
    return next(
        (
            f"{file}:{line}"
            for file, line, _ in frames
            if "-packages/" in file and not inside(file, TORCH)
        ),
        None,
    )


def api_name(frames: list[tuple[str, int, str]]) -> str | None:
    """The torch function of Python code that the user's line called, where there is one."""
    name = None
    for file, _, function in frames:
        if not inside(file, TORCH):
            break
        if file.endswith("/nn/functional.py"):
            name = f"torch.nn.functional.{function}"
        elif file.endswith(("/functional.py", "/_tensor.py")):
            name = f"torch.{function}"
    return name
