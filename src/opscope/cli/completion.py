# SPDX-License-Identifier: Apache-2.0
"""`opscope completion`: the script with which a shell completes verbs and options, and the manual
page.
"""

from __future__ import annotations

from typing import Annotated, Literal

from cyclopts import Parameter

FOR = "The shell; each reads the script from a place of its own. man: the manual page instead."


def completion(
    shell: Annotated[Literal["bash", "zsh", "fish", "man"], Parameter(help=FOR)], /
) -> int:
    """Print the script that completes verbs and options in a shell, or the manual page."""
    from opscope.cli.app import make_app

    app = make_app()
    if shell == "man":
        from opscope.cli.man import man_page

        print(man_page(app))
    else:
        print(app.generate_completion(shell=shell))
    return 0
