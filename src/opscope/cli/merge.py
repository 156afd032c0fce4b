# SPDX-License-Identifier: Apache-2.0
"""`opscope merge`: one run of the parts of a job whose nodes share no disk."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from opscope.cli.options import Json
from opscope.cli.printing import completeness, print_json, say
from opscope.version import VERSION


def merge(
    *parts: str,
    out: Annotated[Path, Parameter(name=("-o", "--out"), help="The run to make, or to add to.")],
    json: Json = False,
) -> int:
    """Make one run of the parts that the nodes of one job recorded, each into its own folder.

    The same parts make the same run, however often; a part that comes late is added. Exit code 2:
    a part is of another job, has a rank that another one has, or cannot be read, and nothing is
    written. 3: a rank is missing, or a part is torn.

    Parameters
    ----------
    parts
        Runs of the nodes of one job; URLs that they were shipped to.
    """
    from opscope.run.remote import Copy, RemoteFolder, is_url
    from opscope.run.store.merge import merge as merge_parts
    from opscope.run.store.reader import NativeRun

    copies = {part: Copy(RemoteFolder(part)).whole() for part in parts if is_url(part)}
    here = [copies[part].path if part in copies else Path(part) for part in parts]
    run = NativeRun(merge_parts(here, out))
    ranks = {process.rank for process in run.processes if process.world is not None}
    if json:
        print_json(
            {
                "opscope": VERSION,
                "verb": "merge",
                "runs": list(parts),
                "out": str(out),
                "complete": not run.problems,
                "ranks": sorted(ranks),
                "processes": len(run.processes),
                "summary": {"warnings": run.problems},
            }
        )
    else:
        world = max(process.world or 0 for process in run.processes)
        say(f"{out}: {len(ranks)} of {world} ranks, {len(run.processes)} processes")
    return completeness(run)
