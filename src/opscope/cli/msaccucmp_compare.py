# SPDX-License-Identifier: Apache-2.0
"""`opscope-msaccucmp compare` and `file_compare`: the manuals' options, algorithms, file names and
columns, without CANN.

compare -m DUMP -g GOLDEN [-f GRAPH.json] -out DIR writes DIR/result_{YYYYmmddHHMMSS}.csv; with -op
NAME -o|-i N it writes the elements of one tensor in pages; of two plain files it says the
algorithms' answers. file_compare writes them to file_result_{time}.txt.
"""

from __future__ import annotations

import argparse
import csv
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opscope.cli.failing import note
from opscope.cli.msaccucmp_custom import Algorithm, own_algorithms, parameters
from opscope.cli.printing import say
from opscope.errors import UsageError
from opscope.formats.cann.codes import Code, RefusedError
from opscope.report.table import harmless

if TYPE_CHECKING:
    from opscope.formats.cann.compare import Golden, Row, Settings
    from opscope.formats.cann.fusion import Graph

_GOOD = 0.99  # cosine similarity that the advisor takes for agreement
_SHOWN = 0.95  # cosine similarity up to which a row goes into the filtered table


def warn(text: str) -> None:
    """One line on stderr in this tool's name."""
    note(text, tool="opscope-msaccucmp")


def add_commands(commands: Any) -> None:
    """Register both commands with their options."""
    _compare_options(
        commands.add_parser("compare", help="compare dump files with their ground truth")
    )
    files = commands.add_parser("file_compare", help="compare two .npy files")
    files.add_argument(
        "-m", "--my_dump_path", dest="mine", required=True, help=".npy file to judge"
    )
    files.add_argument(
        "-g",
        "--golden_dump_path",
        dest="golden",
        required=True,
        help=".npy file of the ground truth",
    )
    files.add_argument(
        "-out",
        "--output",
        dest="out",
        default="",
        help="directory for file_result_{time}.txt (default: the current one)",
    )
    files.add_argument(
        "-alg",
        "--algorithm",
        dest="algorithms",
        help="numbers or names, comma separated, or all (default)",
    )


def _compare_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("-m", "--my_dump_path", dest="mine", required=True, help="dump file or directory to judge")
    add(
        "-g",
        "--golden_dump_path",
        dest="golden",
        required=True,
        help="directory of the ground truth: .npy files or dump files",
    )
    add(
        "-f",
        "--fusion_rule_file",
        dest="fusion",
        help="graph as JSON, made by atc --mode=1 (or 5); a directory of them: every model",
    )
    add(
        "-q",
        "--quant_fusion_rule_file",
        dest="quant",
        help="graph of the quantised model, as the quantiser wrote it",
    )
    add(
        "-cf",
        "--close_fusion_rule_file",
        dest="closed",
        help="the graph built without fusion, whose dump is the ground truth",
    )
    add(
        "-out",
        "--output",
        dest="out",
        default="",
        help="directory for the results (default: the current one)",
    )
    add(
        "-c",
        "--custom_script_path",
        dest="custom",
        help="directory with your own algorithm/alg_NAME.py; they are run",
    )
    add(
        "-a",
        "--algorithm_options",
        dest="options",
        help="Algorithm:name=value,…;… for algorithms of -c; no built-in one has any",
    )
    add(
        "-alg",
        "--algorithm",
        dest="algorithms",
        help="numbers 0 to 9 or names, comma separated, or all (default)",
    )
    add(
        "-map",
        "--mapping",
        dest="mapping",
        action="store_true",
        help="also write mapping_{time}.csv",
    )
    add(
        "-overflow_detection",
        dest="overflow",
        action="store_true",
        help="one column more: whether an output overflowed",
    )
    add(
        "-r",
        "--range",
        dest="range",
        help="operators START,END,STEP by their place, from 1; END -1 is the last",
    )
    add("-s", "--select", dest="select", help="operators by their places, such as 1,4,9")
    add(
        "-p",
        "--post_process",
        dest="post",
        type=int,
        choices=[0, 1],
        default=0,
        help="1: also write the rows that are off",
    )
    add(
        "-max",
        "--max_cmp_size",
        dest="most",
        type=int,
        default=0,
        help="compare only so many elements of each tensor (0: all)",
    )
    add("-advisor", dest="advisor", action="store_true", help="also write advisor_summary.txt")
    add(
        "-v",
        "--version",
        dest="version",
        type=int,
        choices=[1, 2],
        default=2,
        help="taken from the content whatever is said",
    )
    add(
        "-op", "--op_name", dest="op", help="one operator: write the elements of one of its tensors"
    )
    one = parser.add_mutually_exclusive_group()
    one.add_argument(
        "-o", "--output_tensor", dest="output", type=int, help="with -op: number of the output"
    )
    one.add_argument(
        "-i", "--input_tensor", dest="input", type=int, help="with -op: number of the input"
    )
    add(
        "--ignore_single_op_result",
        dest="ignore",
        action="store_true",
        help="with -op: write the largest errors alone",
    )
    add(
        "-n",
        "--topn",
        dest="top",
        type=int,
        default=20,
        help="with -op: how many of the largest errors, 1 to 10000",
    )
    add(
        "-ml",
        "--max_line",
        dest="lines",
        type=int,
        default=1_000_000,
        help="with -op: lines of a file, 10000 to 1000000",
    )
    add("-ffts", dest="ffts", action="store_true", help=argparse.SUPPRESS)


def compare(options: argparse.Namespace) -> int:
    """Run `compare`; answers the documented exit code. Raises RefusedError."""
    _refuse(options)
    parameters(options.options)
    mine, golden_path, out = Path(options.mine), Path(options.golden), directory_for(options.out)
    if mine.suffix == ".npy" and golden_path.is_file():
        return _two_files(mine, golden_path, options.algorithms, None)
    if options.fusion is not None and Path(options.fusion).is_dir():
        return _batch(options, out)
    return _one(options, out, "")


def _batch(options: argparse.Namespace, out: Path) -> int:
    """Every model of a dump for which a directory has the graph; answers the last exit code, as
    documented.
    """
    from opscope.formats.cann.batch import models_in

    if options.op is not None:
        raise RefusedError(
            Code.PARAMETER,
            f"-op {options.op}: not with a directory of graphs; name one graph with -f",
        )
    code = int(Code.OK)
    for model in models_in(Path(options.mine), Path(options.fusion)):
        if model.remark:
            warn(model.remark)
        own = argparse.Namespace(
            **{**vars(options), "mine": str(model.dump), "fusion": str(model.graph)}
        )
        code = _one(own, out, f"{model.name}_")
    return code


def _one(options: argparse.Namespace, out: Path, prefix: str) -> int:
    from opscope.formats.cann import compare as dumps

    mine, graph = Path(options.mine), _graph(options)
    golden = dumps.golden_in(Path(options.golden))
    if options.op is not None:
        from opscope.cli.msaccucmp_elements import one_tensor

        return one_tensor(options, mine, golden, graph, out)
    settings = _settings(options, len(dumps.operators_in(mine)))
    return _table(options, (mine, golden, graph, out), settings, prefix)


def _refuse(options: argparse.Namespace) -> None:
    if any(str(path).endswith(".h5") for path in (options.mine, options.golden)):
        text = (
            "HDF5 files are not read; save the tensors as .npy or .pt and compare the folders: "
            "opscope compare MINE GOLDEN"
        )
        raise RefusedError(Code.PARAMETER, text)
    if options.closed is not None and options.fusion is None:
        raise RefusedError(
            Code.PARAMETER,
            "-cf says what the operators of -f stand for in the unfused graph; name that "
            "graph with -f",
        )
    if options.closed is not None and options.quant is not None:
        raise RefusedError(Code.PARAMETER, "-q and -cf exclude each other")


def _graph(options: argparse.Namespace) -> Graph | None:
    """What the operators stand for, by the graphs that -f, -q and -cf name."""
    from opscope.formats.cann.fusion import read_graph
    from opscope.formats.cann.fusion_merge import with_quantised, with_unfused

    fusion, quant, closed = (
        None if text is None else read_graph(_existing(text))
        for text in (options.fusion, options.quant, options.closed)
    )
    if fusion is None:
        return quant
    if quant is not None:
        return with_quantised(fusion, quant)
    return fusion if closed is None else with_unfused(fusion, closed)


def _settings(options: argparse.Namespace, count: int) -> Settings:
    from opscope.formats.cann.compare import Settings as Chosen

    if options.range is not None and options.select is not None:
        raise RefusedError(Code.PARAMETER, "-r and -s exclude each other")
    if options.most < 0:
        raise RefusedError(Code.PARAMETER, f"-max {options.most}: a number of elements, 0 for all")
    which, own = _algorithms(options)
    places = (
        _range(options.range, count)
        if options.range is not None
        else _places(options.select, count)
        if options.select
        else None
    )
    return Chosen(
        algorithms=which,
        most=options.most or None,
        places=places,
        overflow=options.overflow,
        own=own,
    )


def _algorithms(
    options: argparse.Namespace,
) -> tuple[tuple[int, ...], tuple[tuple[str, Algorithm], ...]]:
    """The built-in algorithms that are asked for, and those of the user's own; all where nothing is
    said. Raises RefusedError.
    """
    from opscope.formats.cann.algorithms import NAMES, chosen

    given = parameters(options.options)
    own = {} if options.custom is None else own_algorithms(Path(options.custom), given)
    for name in given:
        if name not in own:
            if name not in NAMES:
                raise RefusedError(
                    Code.PARAMETER,
                    f"-a {name}: no such algorithm; there are {', '.join((*NAMES, *own))}",
                )
            warn(f"-a {name}: it has no parameters; they are ignored")
    words = [word.strip() for word in (options.algorithms or "").split(",")]
    named = [word for word in words if word in own]
    rest = ",".join(word for word in words if word and word not in own)
    try:
        which = () if named and not rest else chosen(rest)
    except UsageError as error:
        raise RefusedError(Code.PARAMETER, f"-alg {error}") from error
    everything = not named and rest.lower() in ("", "all")
    return which, tuple((name, own[name]) for name in (own if everything else named))


def _range(text: str, count: int) -> frozenset[int]:
    words = [
        part.strip() or default
        for part, default in zip(f"{text},,".split(","), ("1", "-1", "1"), strict=False)
    ][:3]
    if len(text.split(",")) > 3 or not all(word.lstrip("-").isdigit() for word in words):
        raise RefusedError(Code.PARAMETER, f"-r {text}: written START,END,STEP, such as 1,101,20")
    start, end, step = (int(word) for word in words)
    end = count if end == -1 else end
    if not 1 <= start <= end or step < 1 or start > count:
        raise RefusedError(Code.PARAMETER, f"-r {text}: there are operators 1 to {count}")
    return frozenset(range(start, min(end, count) + 1, step))


def _places(text: str, count: int) -> frozenset[int]:
    words = [part.strip() for part in text.split(",")]
    if not all(word.isascii() and word.isdigit() and 1 <= int(word[:9]) <= count for word in words):
        raise RefusedError(
            Code.PARAMETER, f"-s {text}: places such as 1,4,9; there are operators 1 to {count}"
        )
    return frozenset(int(word) for word in words)


def _table(
    options: argparse.Namespace,
    what: tuple[Path, Golden, Graph | None, Path],
    settings: Settings,
    prefix: str,
) -> int:
    from opscope.formats.cann import algorithms
    from opscope.formats.cann.compare import compare as dumps_compare

    mine, golden, graph, out = what
    moment = time.strftime("%Y%m%d%H%M%S")
    ranged = options.range is not None or options.select is not None
    names = [
        *(algorithms.NAMES[number] for number in settings.algorithms),
        *(name for name, _ in settings.own),
    ]
    path = out / f"{prefix}result_{moment}.csv"
    header = list(
        _header(names, ranged=ranged, overflow=settings.overflow, addressed=not golden.npy)
    )
    rows = list(dumps_compare(mine, golden, graph, settings))
    _write(
        path,
        header,
        (
            _cells(row, ranged=ranged, overflow=settings.overflow, addressed=not golden.npy)
            for row in rows
        ),
    )
    if options.mapping:
        _write(out / f"{prefix}mapping_{moment}.csv", _MAPPED, map(_mapped, rows))
    if options.post == 1:
        off = [row for row in rows if _off(row, settings)]
        cells = (
            _cells(row, ranged=ranged, overflow=settings.overflow, addressed=not golden.npy)
            for row in off
        )
        _write(out / f"{prefix}filtered_result.csv", header, cells)
    if options.advisor:
        (out / f"{prefix}advisor_summary.txt").write_text(_advice(rows, settings), encoding="utf-8")
    whole = sum(not row.reason for row in rows)
    say(f"{len(rows)} tensors, {whole} of them compared by every algorithm; the table is {path}")
    return int(Code.OK)


def _header(names: list[str], *, ranged: bool, overflow: bool, addressed: bool) -> Iterator[str]:
    yield "Index"
    yield from ["OpSequence"] * ranged
    yield from ("OpType", "NPUDump", "DataType", "Address", "GroundTruth", "DataType")
    yield from ["Address"] * addressed
    yield from ("TensorIndex", "Shape")
    yield from ["OverFlow"] * overflow
    yield from (*names, "CompareFailReason")


def _cells(row: Row, *, ranged: bool, overflow: bool, addressed: bool) -> Iterator[str]:
    yield str(row.index)
    yield from [str(row.index)] * ranged
    yield from (
        row.op_type,
        row.mine,
        row.mine_dtype,
        row.mine_address,
        row.golden,
        row.golden_dtype,
    )
    yield from [row.golden_address] * addressed
    yield from (row.tensor_index, row.shape)
    yield from [row.overflow] * overflow
    yield from (answer.text for answer in row.answers)
    yield row.reason


_MAPPED = [
    "Index",
    "OpType",
    "NPUDump",
    "GroundTruth",
    "TensorIndex",
    "NPUDumpPath",
    "GroundTruthPath",
]


def _mapped(row: Row) -> Iterator[str]:
    yield from (
        str(row.index),
        row.op_type,
        row.mine,
        row.golden,
        row.tensor_index,
        row.mine_path,
        row.golden_path,
    )


def _write(path: Path, header: list[str], rows: Iterable[Iterable[str]]) -> None:
    with path.open("w", newline="", encoding="utf-8", errors="backslashreplace") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(
            [cell if _is_number(cell) else harmless(cell) for cell in row] for row in rows
        )


def _is_number(text: str) -> bool:
    return text.lstrip("-").replace(".", "", 1).isdigit()


def _cosine(row: Row, settings: Settings) -> float | None:
    """Cosine similarity of a row; None where it was not asked for or is NaN."""
    text = row.answers[settings.algorithms.index(0)].text if 0 in settings.algorithms else "NaN"
    return None if text == "NaN" else float(text)


def _off(row: Row, settings: Settings) -> bool:
    cosine = _cosine(row, settings)
    return cosine is None or cosine <= _SHOWN


def _advice(rows: list[Row], settings: Settings) -> str:
    """The three lines of the documented advisor; the first of its findings that holds."""
    overflowed = next((row for row in rows if row.overflow == "YES"), None)
    if overflowed is not None:
        return _three(
            "FP16 Overflow",
            str(overflowed.index),
            f"{overflowed.mine} overflows; use a wider type for it or scale its inputs",
        )
    known = [(row, cosine) for row in rows if (cosine := _cosine(row, settings)) is not None]
    fed = next((row for row, cosine in known if row.op_type == "Data" and cosine < _GOOD), None)
    if fed is not None:
        return _three(
            "Input Inconsistent",
            str(fed.index),
            f"the inputs differ: {fed.mine}; feed both sides alike, preprocessing included",
        )
    off = [row for row, cosine in known if cosine < _GOOD]
    if not off:
        return _three(
            "Global Consistency",
            "NA",
            "The accuracy meets requirements; check the post-processing of the model",
        )
    last = max(off, key=lambda row: row.index)
    if last.index == max(row.index for row, _ in known):
        return _three(
            "Global Consistency",
            str(off[0].index),
            f"the results differ; {off[0].mine} is the first operator that is off",
        )
    return _three(
        "Global Consistency",
        str(off[0].index),
        "single operators deviate, the results agree; this may be accepted",
    )


def _three(kind: str, index: str, advice: str) -> str:
    return f"Detection Type: {kind}\nOperator Index: {index}\nExpert Advice: {advice}\n"


def file_compare(options: argparse.Namespace) -> int:
    """Run `file_compare`; answers the documented exit code. Raises RefusedError."""
    return _two_files(
        _existing(options.mine),
        _existing(options.golden),
        options.algorithms,
        directory_for(options.out),
    )


def _two_files(mine: Path, golden: Path, wanted: str | None, out: Path | None) -> int:
    from opscope.formats.cann import algorithms
    from opscope.formats.npy import read_npy

    try:
        which = algorithms.chosen(wanted)
    except UsageError as error:
        raise RefusedError(Code.PARAMETER, f"-alg {error}") from error
    answers = algorithms.compute(
        read_npy(_existing(str(mine))), read_npy(_existing(str(golden))), which
    )
    lines = [
        f"{algorithms.NAMES[number]}: {answer.text}"
        for number, answer in zip(which, answers, strict=True)
    ]
    reason = algorithms.reasons(answers)
    text = "".join(
        f"{line}\n" for line in [*lines, *([f"CompareFailReason: {reason}"] if reason else [])]
    )
    say(*text.splitlines())
    if out is not None:
        path = out / f"file_result_{time.strftime('%Y%m%d%H%M%S')}.txt"
        path.write_text(text, encoding="utf-8")
        say(f"written to {path}")
    return int(Code.OK)


def _existing(text: str) -> Path:
    path = Path(text)
    if not path.is_file():
        raise RefusedError(Code.PATH, f"{path}: no such file")
    return path


def directory_for(text: str) -> Path:
    """The output directory that an option names, made where it is missing; RefusedError when it
    cannot be.
    """
    out = Path(text or ".")
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RefusedError(
            Code.PATH, f"{out}: cannot be made: {error.strerror or error}"
        ) from error
    return out
