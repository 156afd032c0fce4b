# SPDX-License-Identifier: Apache-2.0
"""The script that completes, run by a real bash."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from opscope.cli.app import VERBS


def script(shell: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "opscope", "completion", shell],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def completed(place: Path, *words: str) -> list[str]:
    """What bash offers for the last of these words."""
    (place / "opscope.bash").write_text(script("bash"), encoding="utf-8")
    typed = " ".join(f"'{word}'" for word in words)
    code = (
        f"source {place / 'opscope.bash'}\nCOMP_WORDS=({typed})\nCOMP_CWORD={len(words) - 1}\n"
        '_opscope\nprintf "%s\\n" "${COMPREPLY[@]}"\n'
    )
    done = subprocess.run(["bash", "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return [line.strip() for line in done.stdout.splitlines()]


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash")
def test_bash_completes_verbs_and_options(tmp_path: Path) -> None:
    assert completed(tmp_path, "opscope", "sc") == ["scan"]
    assert set(dict(VERBS)) <= set(completed(tmp_path, "opscope", ""))
    assert "--show-hidden" in completed(tmp_path, "opscope", "scan", "--s")


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_have_every_verb(shell: str) -> None:
    text = script(shell)
    assert [verb for verb in dict(VERBS) if verb not in text] == []
