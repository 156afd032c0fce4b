# SPDX-License-Identifier: Apache-2.0
"""What the action does with a recorded run: compares it with the base branch's, and tells.

    python verdict.py RUN GOLDEN

RUN is scanned, and compared with GOLDEN where that is there. Findings stand at their lines, the
verdict in the summary of the job and in one comment, which later runs write anew. In the
environment: NAME, FAIL_ON (finding, divergence, never), TOKEN, and what GitHub sets. Needs opscope
on the path, nothing else.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

LONGEST = 60_000  # characters of a comment; GitHub takes 65,536
TIMEOUT = 30.0  # seconds
TITLES = {
    0: "nothing wrong found",
    1: "something was found",
    3: "nothing found, but the recording is incomplete",
}


class Judged(NamedTuple):
    """The exit code of a verb of opscope and what it printed."""

    code: int
    text: str


class Verdict(NamedTuple):
    """What is told: of the run alone, and beside the base branch's (None: there is none yet)."""

    scanned: Judged
    compared: Judged | None
    details: str

    @property
    def code(self) -> int:
        """The exit code that weighs most: a finding, then what was incomplete."""
        codes = {self.scanned.code, 0 if self.compared is None else self.compared.code}
        return next((code for code in (1, 3) if code in codes), 0)

    def fails(self, fail_on: str) -> bool:
        """Whether the job is to fail."""
        if fail_on == "never":
            return False
        if fail_on == "divergence":
            return self.compared is not None and self.compared.code == 1
        return self.code == 1

    def markdown(self, name: str) -> str:
        """The comment."""
        beside = (
            "No run of the base branch is kept yet; the next push to it keeps one."
            if self.compared is None
            else _fenced(self.compared.text)
        )
        parts = [
            _marker(name),
            f"### opscope `{name}`: {TITLES[self.code]}",
            "**Beside the base branch**",
            beside,
            "**This run**",
            _fenced(self.scanned.text),
        ]
        if self.details:
            parts += ["<details><summary>details</summary>", self.details, "</details>"]
        return "\n\n".join(parts)[:LONGEST] + "\n"


def judge(run: Path, golden: Path) -> Verdict:
    """Asks opscope about a run; SystemExit where it cannot be read."""
    scanned = _asked("scan", str(run), "--annotate")
    annotations = [line for line in scanned.text.splitlines() if line.startswith("::")]
    print("\n".join(annotations))
    told = _asked("scan", str(run))
    compared = _asked("compare", str(run), str(golden)) if golden.exists() else None
    with tempfile.TemporaryDirectory() as folder:
        written = Path(folder, "verdict.md")
        _asked("report", str(run), *([str(golden)] if compared else []), "-o", str(written))
        details = written.read_text(encoding="utf-8") if written.exists() else ""
    return Verdict(told, compared, details)


def _asked(*words: str) -> Judged:
    done = subprocess.run(
        [sys.executable, "-m", "opscope", *words], capture_output=True, text=True, check=False
    )
    if done.returncode not in TITLES:
        sys.exit(done.stderr)
    return Judged(done.returncode, done.stdout)


def comment(text: str, name: str, environment: Mapping[str, str]) -> str:
    """Writes the comment, over the one that is there; what has become of it, in words."""
    number = _pull_request(environment)
    token = environment.get("TOKEN", "")
    if number is None or not token:
        return "no comment: no pull request" if number is None else "no comment: no token"
    base = f"{environment['GITHUB_API_URL']}/repos/{environment['GITHUB_REPOSITORY']}/issues"
    try:
        there = _request(f"{base}/{number}/comments?per_page=100", token)
        own = [one["id"] for one in there if one["body"].startswith(_marker(name))]
        if own:
            _request(f"{base}/comments/{own[0]}", token, method="PATCH", body=text)
            return "comment written anew"
        _request(f"{base}/{number}/comments", token, method="POST", body=text)
    except (urllib.error.URLError, OSError) as error:
        return f"no comment: {error} (of a fork the token may only read)"
    return "comment written"


def _pull_request(environment: Mapping[str, str]) -> int | None:
    path = environment.get("GITHUB_EVENT_PATH", "")
    if not path:
        return None
    event = json.loads(Path(path).read_text(encoding="utf-8"))
    number: int | None = event.get("pull_request", {}).get("number")
    return number


def _request(url: str, token: str, *, method: str = "GET", body: str | None = None) -> Any:
    request = urllib.request.Request(
        url,
        method=method,
        data=None if body is None else json.dumps({"body": body}).encode(),
        headers={
            "Authorization": f"Bearer {token}",
            "Accept": "application/vnd.github+json",
            "Content-Type": "application/json",
        },
    )
    with urllib.request.urlopen(request, timeout=TIMEOUT) as answer:
        return json.load(answer)


def _marker(name: str) -> str:
    return f"<!-- opscope {name} -->"


def _fenced(text: str) -> str:
    """Text as a block of code that nothing in it can end."""
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}text\n{text.rstrip()}\n{fence}"


def _append(path: str | None, text: str) -> None:
    if path:
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(text)


def main(arguments: list[str], environment: Mapping[str, str]) -> int:
    """Judges, tells, and answers 1 where the job is to fail."""
    name = environment.get("NAME", "run")
    verdict = judge(Path(arguments[0]), Path(arguments[1]))
    text = verdict.markdown(name)
    kept = Path(environment.get("RUNNER_TEMP", "."), f"opscope-{name}.md")
    kept.write_text(text, encoding="utf-8")
    _append(environment.get("GITHUB_STEP_SUMMARY"), text)
    _append(environment.get("GITHUB_OUTPUT"), f"verdict={kept}\ncode={verdict.code}\n")
    print(f"opscope: {TITLES[verdict.code]}; {comment(text, name, environment)}")
    return int(verdict.fails(environment.get("FAIL_ON", "finding")))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], os.environ))
