# SPDX-License-Identifier: Apache-2.0
"""Python stacks, interned: each distinct one is resolved once, without reading a source file; and
which lines of the program stand behind code that torch.fx generates.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from types import CodeType, FrameType
from typing import TypeVar

import torch

from opscope.kernels.calls import Site
from opscope.record.own_code import OPSCOPE, frames_in, inside, is_user
from opscope.record.torch.modules import tree

TORCH = str(Path(torch.__file__).parent)
GRAPHS = frozenset(
    f"{TORCH}/_inductor/{name}.py" for name in ("output_code", "codecache")
)  # where compiled graphs are called
ENGINE = "_engine_run_backward"
Absent = TypeVar("Absent")
Places = list[tuple[str, int, str]]  # file, line, function; outermost first
STEPPING = (f"{TORCH}/optim/", f"{TORCH}/amp/grad_scaler", f"{TORCH}/nn/utils/clip_grad")


@dataclass(frozen=True, eq=False, slots=True)
class Frame:
    """One frame of a stack, and what it tells: which code it is in, of which part of torch."""

    code: CodeType  # held, so that its address is not used again
    text: str
    place: str
    ours: bool
    user: bool
    engine: bool
    graph: bool
    checkpoint: bool
    optimizer: bool
    stepping: bool  # of an optimizer, or of what is called around one
    gradient: bool
    file: str
    name: str


def frame_of(code: CodeType, instruction: int) -> Frame:
    """What an instruction of some code tells when it stands on a stack."""
    return frame_at(code, code.co_filename, line_of(code, instruction), code.co_name)


def frame_at(code: CodeType, file: str, line: int, name: str) -> Frame:
    """What a line of a file tells, in which this code stands or which it was made from."""
    line_text = f"{file}:{line}"
    return Frame(
        code=code,
        text=f"{line_text} in {name}",
        place=line_text,
        ours=inside(file, OPSCOPE),
        user=is_user(file),
        engine=name == ENGINE and inside(file, TORCH),
        graph=file in GRAPHS,
        checkpoint=inside(file, f"{TORCH}/utils/checkpoint.py"),
        optimizer=file.startswith(f"{TORCH}/optim/"),
        stepping=file.startswith(STEPPING),
        gradient=name in {"backward", "grad"} and inside(file, f"{TORCH}/autograd/__init__.py"),
        file=file,
        name=name,
    )


class Stacks:
    """Gives each distinct Python stack a number and a Site; rows of table stacks wait in
    `fresh`.
    """

    def __init__(self) -> None:
        self.fresh: list[tuple[int, tuple[str, ...]]] = []
        self._sites: dict[tuple[CodeType | int, ...], Site] = {}
        # A recursion makes stacks of the same frames over and over: what one tells is asked once.
        self._frames: dict[tuple[int, int], tuple[Frame, ...]] = {}
        self._traced: dict[CodeType, dict[int, Places]] = {}
        self._count = 0

    def read_as(self, lines: Mapping[CodeType, dict[int, Places]]) -> None:
        """Lines of the program that stand behind those of generated code, outermost first."""
        self._traced.update(lines)

    def take(self) -> list[tuple[int, tuple[str, ...]]]:
        """The rows of table stacks since the last time; another thread may be adding more."""
        rows = self.fresh[:]
        del self.fresh[: len(rows)]
        return rows

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
        site = self._sites.get(key)
        if site is None:
            site = self._sites[key] = self.resolve(codes, instructions)
        return site

    def resolve(self, codes: list[CodeType], instructions: list[int]) -> Site:
        """Number a new stack and say what its frames tell; codes run from the innermost frame
        outwards.
        """
        every = chain.from_iterable(map(self._frames_of, codes, instructions))
        frames = [frame for frame in every if not frame.ours]
        distinct = set(frames)  # few of a deep recursion
        number = self._count
        self._count += 1
        self.fresh.append((number, tuple([frame.text for frame in frames])))
        engine = _first(frames, {frame for frame in distinct if frame.engine}, len(frames))
        graph = _first(frames, {frame for frame in distinct if frame.graph}, None)
        user = (
            frames[:engine] if graph is None or graph > engine else frames[graph:engine]
        )  # generated code is not the user's
        return Site(
            stack=number,
            source=user_line(user),
            outer=user_line(frames if graph is None else frames[graph:]) or library_line(frames),
            checkpoint=any(frame.checkpoint for frame in set(frames[:engine])),
            optimizer=any(frame.stepping for frame in distinct),
            gradient=any(frame.gradient for frame in distinct),
            closure=any(frame.optimizer for frame in distinct) and in_closure(frames),
            compiled=graph is not None,
            api=api_name(frames),
        )

    def _frames_of(self, code: CodeType, instruction: int) -> tuple[Frame, ...]:
        """The frame of an instruction, below it those that its line was traced from."""
        key = (id(code), instruction)
        frames = self._frames.get(key)
        if frames is None:
            behind = self._traced.get(code, {}).get(line_of(code, instruction), [])
            traced = [frame_at(code, *line) for line in reversed(behind)]
            frames = self._frames[key] = (*traced, frame_of(code, instruction))
        return frames


def _first(frames: list[Frame], wanted: set[Frame], absent: Absent) -> int | Absent:
    """Place of the first of those frames."""
    return next(i for i, frame in enumerate(frames) if frame in wanted) if wanted else absent


def in_closure(frames: list[Frame]) -> bool:
    """Whether an optimizer of torch called back the user's closure: what it computes is a forward
    pass.
    """
    user = next((i for i, frame in enumerate(frames) if frame.user), len(frames))
    optimizer = next((i for i, frame in enumerate(frames) if frame.optimizer), -1)
    return user < optimizer and not frames[optimizer].file.endswith("/optim/optimizer.py")


def line_of(code: CodeType, instruction: int) -> int:
    for start, end, line in code.co_lines():
        if start <= instruction < end and line is not None:
            return line
    return code.co_firstlineno


def user_line(frames: list[Frame]) -> str | None:
    return next((frame.place for frame in frames if frame.user), None)


def library_line(frames: list[Frame]) -> str | None:
    """Innermost line outside torch and the standard library, for programs that are wholly
    installed.
    """
    return next(
        (
            frame.place
            for frame in frames
            if "-packages/" in frame.file and not inside(frame.file, TORCH)
        ),
        None,
    )


def api_name(frames: list[Frame]) -> str | None:
    """The torch function of Python code that the user's line called, where there is one."""
    name = None
    for frame in frames:
        if not inside(frame.file, TORCH):
            break
        if frame.file.endswith("/nn/functional.py"):
            name = f"torch.nn.functional.{frame.name}"
        elif frame.file.endswith(("/functional.py", "/_tensor.py")):
            name = f"torch.{frame.name}"
    return name


def frames_of(node: torch.fx.Node) -> Places:
    """The lines of the program that a node of a graph was captured from."""
    return frames_in(node.meta.get("stack_trace") or "")


def traced_lines(root: torch.nn.Module) -> dict[CodeType, dict[int, Places]]:
    """The code of every graph that a model holds and calls (an exported one that is loaded, one
    that is traced), and by line of it those of the program
    from which the operators there were traced; a torch that does not say how it counts them (2.4)
    gives none.
    """
    lines = {}
    for _, module in tree(root):
        if isinstance(module, torch.fx.GraphModule):
            code = getattr(type(module).forward, "__code__", None)
            if isinstance(code, CodeType):
                lines[code] = _lines(module, code.co_firstlineno)
    return lines


def _lines(module: torch.fx.GraphModule, first: int) -> dict[int, Places]:
    """torch counts the lines of its nodes from the first of the code (GraphModule._lineno_map);
    older ones counted from elsewhere, and did not say from where.
    """
    if not hasattr(module, "_prologue_start"):
        return {}
    nodes = list(module.graph.nodes)
    places = {
        first + line: frames_of(nodes[index])
        for line, index in (getattr(module, "_lineno_map", None) or {}).items()
        if index is not None and index < len(nodes)
    }
    return {line: frames for line, frames in places.items() if frames}
