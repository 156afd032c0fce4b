# SPDX-License-Identifier: Apache-2.0
"""A notebook's cell under recording: %load_ext opscope, then %%opscope in a cell's first line. From
then on verdicts and comparisons show the page of `opscope report` as well.
"""

from __future__ import annotations

import os
from typing import Any

from opscope.compare.tell.comparison import Comparison
from opscope.errors import OpscopeError
from opscope.record.config import config_from, read_words
from opscope.record.join import Recording
from opscope.run.contain import contain, reason, tell
from opscope.run.finding import Document
from opscope.scan.api import scan
from opscope.view.notebook import comparison_html, document_html


def load_ipython_extension(shell: Any) -> None:
    """What IPython calls for %load_ext opscope."""

    def opscope(line: str, cell: str) -> Document | None:
        """Record this cell, with the options of `opscope run` behind the magic (-o runs/x --values
        full), and say what was found.
        """
        return run_cell(shell, line, cell)

    shell.register_magic_function(opscope, "cell", "opscope")
    formatter = shell.display_formatter.formatters["text/html"]
    formatter.for_type(Document, document_html)
    formatter.for_type(Comparison, comparison_html)


def run_cell(shell: Any, line: str, cell: str) -> Document | None:
    """Run a cell in a notebook under recording; the document of its scan, which the notebook shows.

    The cell runs whatever happens to its recording, but for an option that cannot be used: then one
    line on stderr says so, and nothing runs. What the cell raises is shown by the notebook as ever.
    """
    recording = contain(_failed, _recording, line)
    if recording is None:
        return None
    contain(_failed, recording.__enter__)
    shell.run_cell(cell, store_history=False)
    if recording.path is None:
        return None
    contain(_failed, recording.__exit__, None, None, None)
    return contain(_failed, scan, recording.path)


def _recording(line: str) -> Recording:
    return Recording(config_from(read_words(os.environ.get("OPSCOPE", "")), read_words(line)))


def _failed(error: BaseException) -> None:
    tell(str(error) if isinstance(error, OpscopeError) else reason(error))
