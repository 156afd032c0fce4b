# SPDX-License-Identifier: Apache-2.0
"""Find the data folders of a MindSpore dump, synchronous and asynchronous, and list their files.

    {path}/rank_{r}/{net}/{graph}/{iteration}/…                          synchronous; {graph}/constants/ beside the iterations
    {path}/{time}/{device}/{model_name}/{model_id}/{iteration}/…         asynchronous
    {path}/{step}/{time}/{device}/{model_name}/{model_id}/{iteration}/…  asynchronous through MS_ACL_DUMP_CFG_PATH
    {path}/{step}/{time}/{device}/…                                      the same at O0/O1: aclop and aclnn kernels lie here

{time} has 14 digits. {step} is the user's step, {iteration} below it is GE's. graphs/,
execution_order/ and .dump_metadata/ lie beside {net}. Other files (the acl json that MindSpore
leaves in {path}) are none of ours.
"""  # noqa: E501

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import msgspec

from opscope.formats.mindspore.names import (
    RawFile,
    TensorFile,
    parse_arguments_name,
    parse_overflow_name,
    parse_raw_name,
    parse_tensor_name,
)
from opscope.formats.mindspore.statistic import read_mapping

_DEPTH = 8
_TIME = re.compile(r"\d{14}")
_NUMBER = re.compile(r"\d{1,9}")
_RANK = re.compile(r"rank_(\d{1,9})")
_SIDE = frozenset({"graphs", "execution_order", ".dump_metadata", "debug_files"})


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where a data folder stands: whose it is and which step; device is set for asynchronous trees,
    constants for constant data.
    """

    path: Path
    rank: int
    step: int
    iteration: int = 0
    net: str = ""
    graph: int = 0
    base: Path | None = None  # rank_{r}, which has graphs/ and execution_order/
    device: int | None = None
    time: str = ""
    constants: bool = False


class Listing(msgspec.Struct, frozen=True, kw_only=True):
    """The files of one data folder."""

    tensors: tuple[TensorFile, ...] = ()
    raw: tuple[RawFile, ...] = ()
    overflows: tuple[RawFile, ...] = ()
    arguments: tuple[tuple[str, str, str], ...] = ()  # op_type, op_name, file
    statistic: bool = False


def find_places(root: Path) -> list[Place]:
    """Data folders below root (or root itself), in the order of rank, step, time and graph."""
    places = [
        place
        for folder, below in _folders(root, ())
        if (place := _place(folder, below)) is not None
    ]
    return sorted(
        places,
        key=lambda place: (
            place.rank,
            place.time if place.base is None else "",
            place.step,
            place.graph,
            place.iteration,
        ),
    )


def _folders(folder: Path, below: tuple[str, ...]) -> Iterator[tuple[Path, tuple[str, ...]]]:
    yield folder, below
    if len(below) >= _DEPTH:
        return
    try:
        with os.scandir(folder) as entries:
            names = sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
    except OSError:
        return
    for name in names:
        if name not in _SIDE:
            yield from _folders(folder / name, (*below, name))


def _place(folder: Path, below: tuple[str, ...]) -> Place | None:
    """The place a folder is by its name and those above it; names above root count for the
    synchronous tree only.
    """
    parts = folder.parts if folder.is_absolute() else folder.resolve().parts
    synchronous = _synchronous(folder, parts)
    return synchronous if synchronous is not None else _asynchronous(folder, below, parts)


def _synchronous(folder: Path, parts: tuple[str, ...]) -> Place | None:
    if len(parts) < 4 or not _NUMBER.fullmatch(parts[-2]):
        return None
    rank = _RANK.fullmatch(parts[-4])
    constants = parts[-1] == "constants"
    if rank is None or not (constants or _NUMBER.fullmatch(parts[-1])):
        return None
    step = 0 if constants else int(parts[-1])
    return Place(
        path=folder,
        rank=int(rank[1]),
        step=step,
        iteration=step,
        net=parts[-3],
        graph=int(parts[-2]),
        base=folder.parents[2],
        constants=constants,
    )


def _asynchronous(folder: Path, below: tuple[str, ...], parts: tuple[str, ...]) -> Place | None:
    # …/{time}/{device}/{model_name}/{model_id}/{iteration} and …/{time}/{device}
    for deep in (4, 1):
        tail = parts[-deep - 1 :]
        if (
            len(tail) <= deep
            or not _TIME.fullmatch(tail[0])
            or not _NUMBER.fullmatch(tail[1])
            or not _NUMBER.fullmatch(tail[-1])
        ):
            continue
        if deep == 4 and not _NUMBER.fullmatch(tail[3]):
            continue
        above = below[-deep - 2] if len(below) >= deep + 2 else ""
        iteration = int(tail[-1]) if deep == 4 else 0
        step = int(above) if _NUMBER.fullmatch(above) else iteration
        net, graph = (tail[2], int(tail[3])) if deep == 4 else ("", 0)
        device = int(tail[1])
        return Place(
            path=folder,
            rank=device,
            step=step,
            iteration=iteration,
            net=net,
            graph=graph,
            device=device,
            time=tail[0],
        )
    return None


def list_files(folder: Path, problems: list[str]) -> Listing:
    """The files of a data folder, each under the name it should have had (mapping.csv)."""
    names = read_mapping(folder / "mapping.csv", problems)
    tensors, raw, overflows, arguments, statistic = [], [], [], [], False
    try:
        with os.scandir(folder) as entries:
            files = [entry.name for entry in entries if entry.is_file()]
    except OSError as error:
        problems.append(f"{folder}: cannot be listed: {error.strerror or error}")
        return Listing()
    for file in files:
        name = _true_name(file, names) if names else file
        tensor = parse_tensor_name(name, file=file)
        if tensor is not None:
            tensors.append(tensor)
        elif file == "statistic.csv":
            statistic = True
        elif (overflow := parse_overflow_name(name)) is not None:
            overflows.append(overflow)
        elif (kernel := parse_raw_name(name, file=file)) is not None:
            raw.append(kernel)
        elif (argument := parse_arguments_name(name)) is not None:
            arguments.append((*argument, file))
    return Listing(
        tensors=tuple(tensors),
        raw=tuple(raw),
        overflows=tuple(overflows),
        arguments=tuple(arguments),
        statistic=statistic,
    )


def _true_name(file: str, names: dict[str, str]) -> str:
    """The long name behind a short one; the mapping may name the file with or without its
    extension.
    """
    if file in names:
        long = names[file]
    else:
        stem, dot, suffix = file.rpartition(".")
        if not dot or stem not in names:
            return file
        long = names[stem]
        if not long.endswith(f".{suffix}"):
            long = f"{long}.{suffix}"
    return long.rsplit("/", 1)[-1]


def looks_like_dump(root: Path) -> bool:
    """Whether a path is a folder that is, or stands in, a MindSpore dump; opens no payload."""
    if not root.is_dir():
        return False
    for place in _first_places(root):
        try:
            with os.scandir(place.path) as entries:
                for count, entry in enumerate(entries):
                    if _belongs(entry.name, synchronous=place.base is not None):
                        return True
                    if count > 1000:
                        break
        except OSError:
            continue
    return False


def _first_places(root: Path) -> Iterator[Place]:
    for seen, (folder, below) in enumerate(_folders(root, ()), 1):
        place = _place(folder, below)
        if place is not None:
            yield place
        if seen > 2000:
            return


def _belongs(name: str, *, synchronous: bool) -> bool:
    if name == "statistic.csv" or parse_tensor_name(name) is not None:
        return True
    return synchronous and (
        parse_raw_name(name) is not None or parse_arguments_name(name) is not None
    )
