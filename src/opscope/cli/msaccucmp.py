# SPDX-License-Identifier: Apache-2.0
"""`opscope-msaccucmp`: the options of the manuals' own converter, word for word, without CANN.

The exit code is the documented one (0 when everything was done); `compare` and `file_compare` stand
in msaccucmp_compare.py. `--shim DIR` writes a msaccucmp.py that runs this command, so that a line
copied from a manual works unchanged.
"""

from __future__ import annotations

import argparse
import os
import py_compile
import re
import sys
import time
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from opscope.cli.msaccucmp_compare import add_commands, compare, directory_for, file_compare, warn
from opscope.cli.printing import say
from opscope.cli.progress import Progress
from opscope.errors import OpscopeError
from opscope.formats.cann.codes import Code, RefusedError
from opscope.formats.cann.dtypes import FORMAT_NUMBERS
from opscope.formats.cann.names import COMPANIONS, MAPPING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from opscope.formats.cann.convert import Failure, Request

FAILED = "convert_failed_file_list.txt"
_SHAPE = re.compile(r"\(?\[?\s*(\d+(?:\s*,\s*\d+)*)\s*,?\s*\]?\)?")
_SHIM = '''#!/usr/bin/env python3
"""Runs opscope-msaccucmp in the place of CANN's converter; written by `opscope-msaccucmp --shim`."""
import os
import sys

PYTHON = {python!r}

try:
    from opscope.cli.msaccucmp import main
except (ImportError, SyntaxError):  # another Python: go on in the one that has opscope
    if os.environ.get("OPSCOPE_SHIM") == PYTHON or not os.path.exists(PYTHON):
        sys.exit("msaccucmp.py: opscope is not in %s any more; write this file again with opscope-msaccucmp --shim" % PYTHON)
    os.environ["OPSCOPE_SHIM"] = PYTHON
    os.execv(PYTHON, [PYTHON] + sys.argv)
else:
    sys.exit(main(sys.argv[1:]))
'''  # noqa: E501


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; answers the exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    parser = _parser()
    options = parser.parse_args(given)
    try:
        if options.shim is not None:
            return _shim(Path(options.shim))
        if options.command == "convert":
            return _convert(options)
        if options.command == "overflow":
            return _overflow(options)
        if options.command == "compare":
            return compare(options)
        if options.command == "file_compare":
            return file_compare(options)
    except RefusedError as error:
        warn(str(error))
        return int(error.code)
    except OpscopeError as error:
        warn(str(error))
        return int(Code.DUMP_DATA)
    parser.print_help()
    return int(Code.PARAMETER)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="opscope-msaccucmp",
        description="Convert and compare CANN dump files as msaccucmp.py does, without CANN.",
    )
    parser.add_argument(
        "--shim", metavar="DIR", help="write a msaccucmp.py into DIR that runs this command"
    )
    _compat(parser, default=None)
    commands = parser.add_subparsers(
        dest="command", metavar="{convert,overflow,compare,file_compare}"
    )
    _convert_options(
        commands.add_parser("convert", help="convert dump files to NumPy, raw or PyTorch files")
    )
    _overflow_options(
        commands.add_parser("overflow", help="summarise overflow records and their operators")
    )
    add_commands(commands)
    return parser


def _compat(parser: argparse.ArgumentParser, default: str | None) -> None:
    text = "do as that tool does where it is known to be wrong (docs/formats-cann.md)"
    parser.add_argument("--compat", choices=["msaccucmp"], default=default, help=text)


def _convert_options(parser: argparse.ArgumentParser) -> None:
    tensor = parser.add_mutually_exclusive_group()
    parser.add_argument(
        "-d",
        "--dump_file",
        dest="dump",
        required=True,
        help="dump file, comma list of files, or directory",
    )
    parser.add_argument(
        "-out",
        "--output",
        dest="out",
        default="",
        help="directory for the results (default: the current one)",
    )
    parser.add_argument(
        "-f", "--format", dest="format", help="layout to bring the tensors to, such as NCHW"
    )
    parser.add_argument(
        "-s",
        "--shape",
        dest="shape",
        help="shape in that layout, such as 1,3,224,224; only with -f and one file",
    )
    tensor.add_argument(
        "-o",
        "--output_tensor",
        dest="output",
        help="index of the only output to convert; only with -f and one file",
    )
    tensor.add_argument(
        "-i",
        "--input_tensor",
        dest="input",
        help="index of the only input to convert; only with -f and one file",
    )
    parser.add_argument("-c", "--custom_script_path", dest="custom", help=argparse.SUPPRESS)
    text = (
        "1: protobuf files, 2: files with a header (default); taken from the content whatever "
        "is said"
    )
    parser.add_argument(
        "-v", "--version", dest="version", type=int, choices=[1, 2], default=2, help=text
    )
    parser.add_argument(
        "-t",
        "--type",
        dest="type",
        choices=["npy", "bin", "msnpy", "pt"],
        default="npy",
        help="kind of file (default: npy)",
    )
    _compat(parser, default=argparse.SUPPRESS)


def _overflow_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-d", "--dump_path", dest="dump", required=True, help="directory with the dump files"
    )
    parser.add_argument(
        "-out", "--output", dest="out", required=True, help="directory for the results"
    )
    parser.add_argument(
        "-n",
        "--top_n",
        dest="top",
        type=int,
        choices=[1, 2, 3, 4, 5],
        default=1,
        help="how many records, the first by time",
    )
    _compat(parser, default=argparse.SUPPRESS)


def _convert(options: argparse.Namespace) -> int:
    from opscope.formats.cann.convert import convert
    from opscope.formats.cann.names import read_mapping
    from opscope.formats.cann.output import Output

    paths, single = _paths(options.dump)
    request = _request(options, single=single)
    out = directory_for(options.out)
    if options.version == 1:
        warn("-v 1 is no longer needed: the form of a file is taken from its content")
    # The reference tool keeps the number a file got whose name was too long; ours writes the name
    # that mapping.csv has for it.
    known = {
        folder: {} if request.exact else read_mapping(folder)
        for folder in {path.parent for path in paths}
    }
    outputs = {folder: Output(out, names) for folder, names in known.items()}
    with Progress() as progress:
        numbers = count(1)

        def advance() -> None:
            progress("convert", next(numbers), len(paths))

        failures = convert(
            [(path, outputs[path.parent]) for path in paths],
            request,
            jobs=os.cpu_count() or 1,
            done=advance,
        )
    return _report(failures, len(paths), out)


def _paths(text: str) -> tuple[list[Path], bool]:
    """The files that -d names, and whether it names just one. Raises RefusedError."""
    if "," in text and not Path(text).exists():
        named = [Path(part.strip()) for part in text.split(",") if part.strip()]
        existing = [path for path in named if path.is_file()]
        for path in named:
            if path not in existing:
                warn(f"{path}: no such file; it is left out")
        if not existing:
            raise RefusedError(Code.PATH, f"{text}: none of these is a file")
        return existing, False
    path = Path(text)
    if path.is_file():
        return [path], True
    if not path.is_dir():
        raise RefusedError(Code.PATH, f"{text}: no such file or directory")
    files = sorted(
        entry for entry in path.iterdir() if entry.is_file() and _may_be_dump(entry.name)
    )
    if not files:
        below = any(entry.is_dir() for entry in path.iterdir())
        raise RefusedError(
            Code.NO_DUMP_FILE,
            f"{text}: no dump file in it"
            + ("; name one of the directories in it" if below else ""),
        )
    return files, False


def _may_be_dump(name: str) -> bool:
    return name not in (MAPPING, FAILED) and Path(name).suffix.lower() not in COMPANIONS


def _request(options: argparse.Namespace, *, single: bool) -> Request:
    from opscope.formats.cann.convert import Request

    if options.format is None:
        given = {
            "-o": options.output,
            "-i": options.input,
            "-s": options.shape,
            "-c": options.custom,
        }
        for option, value in given.items():
            if value is not None:
                raise RefusedError(Code.PARAMETER, f"{option} takes effect only with -f")
    elif options.format not in FORMAT_NUMBERS:
        raise RefusedError(Code.PARAMETER, f"{options.format}: no such format")
    if options.custom is not None:
        raise RefusedError(
            Code.PARAMETER,
            "-c: scripts of the user are not run; every published conversion is built in",
        )
    side = (
        "input" if options.input is not None else "output" if options.output is not None else None
    )
    text = options.input if options.input is not None else options.output or "0"
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise RefusedError(Code.PARAMETER, f"{text}: an index is a natural number")
    shape = _shape(options.shape) if options.shape else ()
    if not single and (side is not None or shape):
        warn("-o, -i and -s are for one file; they are ignored")
        side, shape = None, ()
    inputs, outputs = (
        (int(text),) if side == one else None if side is None else () for one in ("input", "output")
    )
    return Request(
        kind=options.type,
        layout=options.format,
        shape=shape,
        inputs=inputs,
        outputs=outputs,
        strict=side is not None,
        exact=options.compat is not None,
    )


def _shape(text: str) -> tuple[int, ...]:
    match = _SHAPE.fullmatch(text.strip())
    dims = tuple(int(part) for part in match[1].split(",")) if match is not None else ()
    if not dims or min(dims) < 1 or max(dims) >= 1 << 62:
        raise RefusedError(
            Code.SHAPE, f"{text}: a shape is written like 1,3,224,224, each dimension 1 or more"
        )
    return dims


def _report(failures: Sequence[Failure], count: int, out: Path) -> int:
    """Tell and list what failed; answers the code of the first failure."""
    if not failures:
        say(f"{count} dump file{'s' if count != 1 else ''} converted into {out}")
        return int(Code.OK)
    with (out / FAILED).open("a", encoding="utf-8", errors="surrogateescape") as file:
        for failure in failures:
            file.write(",".join((str(failure.path), *failure.tensors)) + "\n")
    for failure in failures:
        for reason in failure.reasons:
            warn(reason)
    warn(
        f"{len(failures)} of {count} dump files could not be converted wholly; they are "
        f"listed in {out / FAILED}"
    )
    return int(failures[0].code)


def _overflow(options: argparse.Namespace) -> int:
    from opscope.formats.cann.output import Output
    from opscope.formats.cann.overflow import summarise

    directory = Path(options.dump)
    if not directory.is_dir():
        raise RefusedError(Code.PATH, f"{directory}: not a directory")
    out = directory_for(options.out)
    summary = summarise(directory, Output(out), top=options.top, exact=options.compat is not None)
    for _, reason in summary.failures:
        warn(reason)
    if not summary.found:
        warn(f"{directory}: no overflow record in it")
        return int(Code.OK)
    name = f"overflow_summary_{time.strftime('%Y%m%d%H%M%S')}.txt"
    (out / name).write_text(summary.text, encoding="utf-8", errors="surrogateescape")
    say(*summary.text.splitlines())
    say(
        f"{summary.found} overflow records; the summary of the first "
        f"{min(options.top, summary.found)} is in {out / name}"
    )
    return next((int(code) for code, _ in summary.failures if code != Code.OK), int(Code.OK))


def _shim(directory: Path) -> int:
    """Write msaccucmp.py, and msaccucmp.pyc for this interpreter, since older manuals name that
    one.
    """
    out = directory_for(str(directory))
    script = out / "msaccucmp.py"
    script.write_text(_SHIM.format(python=sys.executable), encoding="utf-8")
    script.chmod(0o755)
    py_compile.compile(str(script), cfile=str(out / "msaccucmp.pyc"), doraise=True)
    say(f"{script} written")
    return int(Code.OK)


if __name__ == "__main__":
    sys.exit(main())
