# SPDX-License-Identifier: Apache-2.0
"""`opscope report`: a run, or its comparison with others, as one HTML file that needs nothing else;
its verdict as Markdown or as a picture, its calls as a trace.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec
from cyclopts import Parameter

from opscope.cli.failing import note
from opscope.cli.options import EVERYTHING, Operators, Selected, knowing_file
from opscope.cli.printing import completeness, say
from opscope.cli.progress import Progress
from opscope.errors import UsageError

if TYPE_CHECKING:
    from opscope.run.progress import Progress as Told
    from opscope.run.protocol import Run
    from opscope.run.selection import Selection
    from opscope.view.documents import Documents

REDACT = "What the page leaves out: sources, paths, values, or several by commas."
COLOUR = "SQL over the columns of calls and tensors to colour the timeline by, too: log2(abs(max))."


def report(  # noqa: PLR0913 - one for each option
    run: str,
    /,
    *golden: str,
    output: Annotated[
        Path,
        Parameter(
            name=["--output", "-o"],
            help="The file; one that exists gets a sibling, said aloud. .md: the verdict for an "
            "issue; .svg: its picture; .json: a trace for Perfetto and Chrome.",
        ),
    ] = Path("report.html"),
    form: Annotated[
        Literal["html", "md", "svg", "json"] | None,
        Parameter(name="--format", help="What to write, whatever the file is called."),
    ] = None,
    redact: Annotated[str, Parameter(help=REDACT)] = "",
    colour: Annotated[str | None, Parameter(help=COLOUR)] = None,
    operators: Operators = None,
    selection: Selected = EVERYTHING,
) -> int:
    """Write one HTML file with what was found and what led to it, to open or to attach anywhere;
    into a file .md or .svg the verdict alone, into .json a trace of all calls.

    Exit code 0: written, 2: the run cannot be read, 3: written, but the run is incomplete.

    Parameters
    ----------
    run
        A run, or any known dump.
    golden
        The run to trust: the page is then of the comparison with it. Of several each is compared
        with, and the page has them beside one another.
    """
    from opscope.formats.registry import open_run
    from opscope.view.compare_files import free_file

    ending = output.suffix.lower() if form is None else f".{form}"
    if form is not None and output == Path("report.html"):
        output = output.with_suffix(ending)
    left_out = redacted_kinds(redact)
    opened, *goldens = map(open_run, (run, *golden))
    wanted = selection.selection()
    if ending == ".json":
        from opscope.view.trace import trace

        made: Iterable[str] = trace(opened, redact=left_out)
    else:
        with knowing_file(operators), Progress() as progress:
            if goldens:
                names = [(run, one) for one in golden]
                documents, text = _of_several(opened, goldens, names, wanted, progress)
            else:
                documents, text = _of_run(opened, run, wanted, progress)
            title = "opscope" if left_out else f"opscope {Path(run).name}"
            shown = documents(redact=left_out, colour=colour)
            made = [_written(shown, ending, title, "" if left_out else text)]
    free = free_file(output)
    if free != output:
        note(f"{output} exists; written to {free}")
    with free.open("w", encoding="utf-8") as file:
        file.writelines(made)
    say(f"{free}")
    return completeness(opened)


def _written(documents: Documents, ending: str, title: str, text: str) -> str:
    """What a file of this ending holds; text is what is read of a page where no script runs."""
    if ending == ".md":
        from opscope.view.written import written

        return written(documents.get("verdict"), documents.get("run"))
    if ending == ".svg":
        from opscope.view.figure import verdict_figure

        return verdict_figure(*map(documents.get, ("verdict", "calls", "names")))
    from opscope.view.page import page

    return page(documents.whole(), title=title, text=text)


def _of_run(
    opened: Run, run: str, selection: Selection, progress: Told
) -> tuple[Callable[..., Documents], str]:
    """What makes the documents of a run, and the verdict as text."""
    from opscope.scan.api import scan
    from opscope.view.documents import Documents, plain_text

    document = scan(opened, selection=selection, progress=progress)
    document = msgspec.structs.replace(document, runs=(run,))
    return partial(Documents, opened, document), plain_text(document)


def _of_several(
    opened: Run,
    goldens: Sequence[Run],
    names: Sequence[tuple[str, str]],
    selection: Selection,
    progress: Told,
) -> tuple[Callable[..., Documents], str]:
    """The same of comparisons of a run with others, by the names of both; the first tells."""
    from opscope.compare.api import Policy, compare
    from opscope.view.comparison import Compared
    from opscope.view.comparison_page import comparison_text
    from opscope.view.documents import Documents

    compared = []
    for golden, runs in zip(goldens, names, strict=True):
        comparison = compare(opened, golden, Policy(selection=selection), progress=progress)
        document = msgspec.structs.replace(comparison.document, runs=runs)
        compared.append(Compared(comparison, document))
    first = compared[0].document
    return partial(Documents, opened, first, compared=compared), comparison_text(first)


def redacted_kinds(text: str) -> frozenset[str]:
    """The kinds that --redact names; UsageError for one that there is not."""
    from opscope.view.redaction import KINDS

    kinds = frozenset(filter(None, (word.strip() for word in text.split(","))))
    unknown = sorted(kinds - set(KINDS))
    if unknown:
        raise UsageError(f"--redact {unknown[0]}: write {', '.join(KINDS)}")
    return kinds
