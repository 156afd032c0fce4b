# SPDX-License-Identifier: Apache-2.0
"""The models of one dump, each with its graph out of a directory of graphs: what `compare -f
DIRECTORY` goes through.

A dump lies in {time}/{device}/{model}/{model_id}/{step}/; a graph names its model in graph[].name.
Of several steps the last one counts. Where clocks differ by a moment, a model and a graph belong
together by the number at the end of their names.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import msgspec

from opscope.errors import FormatError
from opscope.formats.bounded_json import load_json
from opscope.formats.cann.codes import Code, RefusedError
from opscope.formats.folders import file_names, folder_names

_LAYOUT = "dump_path/time/device_id/model_name/model_id/dump_step/dump_file"
_NUMBER = re.compile(r"\d+")


class Model(msgspec.Struct, frozen=True):
    """One model's dump and graph; name is what its result is called, device_model_step; remark is
    what to know.
    """

    name: str
    dump: Path
    graph: Path
    remark: str = ""


def models_in(dump: Path, graphs: Path) -> list[Model]:
    """Models that both directories know. Raises RefusedError where there are none, FormatError for
    a graph that cannot be read.
    """
    if not dump.is_dir():
        raise RefusedError(Code.PATH, f"{dump}: not a directory")
    if not dump.resolve().name.isdigit():
        raise RefusedError(
            Code.PATH,
            f"{dump}: with a directory of graphs -m ends in the time of the dump: {_LAYOUT}",
        )
    named = _named(graphs)
    if not named:
        raise RefusedError(
            Code.PATH,
            f"{graphs}: no graph as JSON in it; make one with atc --mode=1 --om=MODEL.om "
            "--json=FILE.json",
        )
    models = list(_matched(dump, named))
    if not models:
        raise RefusedError(
            Code.PATH,
            f"{dump}: none of its models is in {graphs}: {', '.join(sorted(named)[:4])}; it "
            f"is laid out {_LAYOUT}",
        )
    return models


def _named(graphs: Path) -> dict[str, Path]:
    """Graphs by the name of their model."""
    graph_of: dict[str, Path] = {}
    for name in file_names(graphs):
        if name.endswith(".json"):
            content = load_json(graphs / name)
            listed = content.get("graph") if isinstance(content, dict) else None
            if not isinstance(listed, list):
                raise FormatError(
                    graphs / name,
                    'no list "graph" in it; make it with atc --mode=1 --om=MODEL.om --json=THIS',
                )
            graph_of |= {
                one["name"]: graphs / name
                for one in listed
                if isinstance(one, dict) and isinstance(one.get("name"), str)
            }
    return graph_of


def _matched(dump: Path, named: dict[str, Path]) -> Iterator[Model]:
    for device in folder_names(dump):
        for model in folder_names(dump / device):
            graph, remark = named.get(model), ""
            if graph is None:
                known = next((name for name in named if _same_but_for_time(name, model)), None)
                graph = None if known is None else named[known]
                remark = (
                    f"{model} in {dump} and the graph {known} are not of one time; the "
                    "result may be wrong"
                )
            if graph is not None:
                yield from (
                    Model(*one, graph, remark)
                    for one in _steps(dump / device / model, f"{device}_{model}")
                )


def _steps(model: Path, name: str) -> Iterator[tuple[str, Path]]:
    """Of each model id its last step."""
    for number in folder_names(model):
        steps = sorted(
            folder_names(model / number),
            key=lambda step: (int(step) if step.isdigit() else -1, step),
        )
        if steps:
            yield f"{name}_{steps[-1]}", model / number / steps[-1]


def _same_but_for_time(graph: str, model: str) -> bool:
    numbers = _NUMBER.findall(graph), _NUMBER.findall(model)
    return len(numbers[0]) == len(numbers[1]) == 2 and numbers[0][1] == numbers[1][1]
