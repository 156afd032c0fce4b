# SPDX-License-Identifier: Apache-2.0
"""`opscope completion`: the script with which a shell completes verbs and options."""

from __future__ import annotations

from typing import Annotated, Literal

from cyclopts import Parameter

WHERE = "The shell; each reads the script from its own place (below)."


def completion(shell: Annotated[Literal["bash", "zsh", "fish"], Parameter(help=WHERE)], /) -> int:
    """Print the script that completes verbs and options in a shell.

    bash: opscope completion bash > ~/.local/share/bash-completion/completions/opscope

    zsh: opscope completion zsh > DIR/_opscope, where DIR is one of $fpath

    fish: opscope completion fish > ~/.config/fish/completions/opscope.fish
    """
    from opscope.cli.app import make_app

    print(make_app().generate_completion(shell=shell))
    return 0
