# SPDX-License-Identifier: Apache-2.0
"""The verbs, and how words become a call of one of them. A verb's module is imported when the verb
is used.
"""

from __future__ import annotations

from collections.abc import Sequence

from cyclopts import App, CycloptsError, Parameter

from opscope.cli.examples import examples_of
from opscope.errors import UsageError
from opscope.version import VERSION

ABOUT = """Find the operator that broke a model, and prove it.

opscope run -- python train.py      records any command and says what it found
"""

# In the order a person meets them.
VERBS: tuple[tuple[str, str], ...] = (
    ("run", "Run any command under recording and say what was found."),
    ("merge", "Make one run of the parts that the nodes of one job recorded."),
    ("scan", "Name the first overflow, NaN or Inf of a run, and its source line."),
    ("compare", "Align two runs and name the operator where they part."),
    ("replay", "Run recorded calls again, against trusted substitutes."),
    (
        "check-op",
        "Sweep one operator, or all, over types, shapes and layouts, against all witnesses.",
    ),
    ("repro", "Cut one call out into a folder with a script that stands alone."),
    ("minimize", "Shrink such a folder while it still fails in the same way."),
    ("bisect", "Find the operators whose substitution makes a command's failure go away."),
    ("convert", "Read any known dump, write plain files or another tool's layout."),
    ("aicore", "Explain an AI Core error of an Ascend device from its logs, graphs and dumps."),
    ("prepare", "Write or check the collection settings another tool needs."),
    ("show", "List calls, those of one line of code too; print one with its tensors."),
    ("query", "SQL over the tables of a run."),
    ("report", "Write a run as one HTML page: the finding, the path it took, every call on it."),
    ("serve", "Show runs of any size in the browser, also while they are being recorded."),
    ("watch", "Follow a run from another shell while it is being recorded."),
    ("tour", "Walk through the main verbs on a small example, offline."),
    ("explain", "Say what a kind of finding, a status bit, an exit code or an error code means."),
    (
        "completion",
        "Print the script with which a shell completes verbs and options, or the man page.",
    ),
    ("doctor", "Say which versions and devices are here, what is missing, and why."),
)


def make_app() -> App:
    """The command line as a cyclopts application."""
    app = App(
        name="opscope",
        help=ABOUT,
        help_format="plaintext",
        version=f"opscope {VERSION}",
        default_parameter=Parameter(negative=()),
    )
    for number, (verb, about) in enumerate(VERBS):
        word = verb.replace("-", "_")
        app.command(
            f"opscope.cli.{word}:{word}",
            name=verb,
            help=about,
            help_epilogue=examples_of(verb),
            sort_key=number,
        )
    return app


def dispatch(arguments: Sequence[str]) -> int:
    """Run the verb that these words name; UsageError for words that make no sense."""
    words = list(arguments)
    if words[:1] == ["run"]:
        from opscope.cli.run import with_command_apart

        words = with_command_apart(words)
    elif words[:1] == ["bisect"]:
        from opscope.cli.bisect import with_command_apart as bisected_apart

        words = bisected_apart(words)
    try:
        code = make_app()(
            words, exit_on_error=False, print_error=False, result_action="return_value"
        )
    except CycloptsError as error:
        verb = words[0] if words and words[0] in dict(VERBS) else ""
        see = f"opscope {verb} --help" if verb else "opscope --help"
        message = _sentence(str(error))
        raise UsageError(
            f"{message} See {see}" if message.endswith("?") else f"{message}; see {see}"
        ) from error
    return code if isinstance(code, int) else 0


def _sentence(message: str) -> str:
    """A message of cyclopts in the manner of ours: one line, no capital, no full stop."""
    # The commands that it lists are some of them only.
    line = " ".join(message.split()).partition(" Available commands:")[0].rstrip(".").rstrip(", ")
    return line[:1].lower() + line[1:]
