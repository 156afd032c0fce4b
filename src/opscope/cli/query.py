# SPDX-License-Identifier: Apache-2.0
"""`opscope query`: SQL over the tables calls, tensors, stacks, judgements and processes."""

from __future__ import annotations

import sys
from typing import Annotated

from cyclopts import Parameter

from opscope.cli.options import Json
from opscope.cli.printing import completeness, write_pieces
from opscope.errors import UsageError


def query(
    run: str,
    sql: str,
    /,
    *,
    json: Json = False,
    csv: Annotated[
        bool,
        Parameter(
            help="Comma-separated values; text that a spreadsheet would run as a formula is quoted."
        ),
    ] = False,
) -> int:
    """Ask a run in SQL (SQLite's): SELECT op, count(*) FROM calls GROUP BY op.

    Tables: calls, tensors, stacks, judgements, processes; docs/schema.md names their columns.
    "index" is quoted in SQL.

    Parameters
    ----------
    run
        A run, or any known dump.
    sql
        One SELECT.
    """
    from opscope.formats.registry import open_run
    from opscope.run.database import sql as ask

    if json and csv:
        raise UsageError("--json and --csv exclude one another")
    opened = open_run(run)
    rows = ask(opened, sql)
    if json:
        from opscope.report.json import json_pieces

        write_pieces(json_pieces({}, [("rows", rows)]))
    elif csv:
        from opscope.report.table import write_csv

        write_csv(rows, sys.stdout)
    else:
        from opscope.report.table import print_table

        print_table(rows)
    return completeness(opened)
