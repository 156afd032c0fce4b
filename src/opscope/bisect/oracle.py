# SPDX-License-Identifier: Apache-2.0
"""Whether a run of the command failed in the way that is searched for: each kind of failure is one
oracle.

An oracle answers "good", "bad" or "unclear" about one observation, as `git bisect run` has it: 0,
1, 125. A failure of another kind than the one searched for is unclear, never bad and never good.
"""

from __future__ import annotations

import math
import operator
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import msgspec

from opscope.errors import UsageError

if TYPE_CHECKING:
    from opscope.run.finding import Document

GOOD, BAD, UNCLEAR = "good", "bad", "unclear"
TAIL = 1 << 20
COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "<": operator.lt,
    ">": operator.gt,
}
NUMBER = r"([-+]?(?:\d+\.?\d*(?:[eE][-+]?\d+)?|\.\d+(?:[eE][-+]?\d+)?|nan|inf(?:inity)?))"
NAMED = re.compile(r"name-regex\((.*)\)", re.DOTALL)
ENDED = re.compile(r"([A-Za-z_][\w.]*)(?:: (.*))?", re.ASCII)
Scan = Callable[[Path], "Document"]


class Observation(msgspec.Struct, frozen=True, kw_only=True):
    """One run of the command: where its output lies, and how it ended (None: it had to be
    stopped).
    """

    folder: Path
    exit_code: int | None
    seconds: float

    @property
    def run(self) -> Path:
        """The recorded run."""
        return self.folder / "run"

    @property
    def stdout(self) -> str:
        """The end of what the command printed."""
        return _tail(self.folder / "stdout.txt")

    @property
    def stderr(self) -> str:
        """The end of what the command said on stderr."""
        return _tail(self.folder / "stderr.txt")


class Oracle(Protocol):
    """One way to tell good from bad: words say when a run is bad, doubt when it is neither."""

    @property
    def words(self) -> str: ...
    @property
    def doubt(self) -> str: ...

    def judge(self, seen: Observation) -> str:
        """GOOD, BAD or UNCLEAR."""
        ...


class CommandOracle(msgspec.Struct, frozen=True):
    """The user's own command: 0 good, 125 unclear, 1 to 127 bad. The output is its stdin, the rest
    stands in its environment.
    """

    command: str

    @property
    def words(self) -> str:
        """What is asked."""
        return f"{self.command} exits with 1"

    @property
    def doubt(self) -> str:
        """When it cannot tell."""
        return f"{self.command} exits with 125"

    def judge(self, seen: Observation) -> str:
        """Run it; UsageError when it cannot be run or ends by a signal, as git does."""
        environment = {
            **os.environ,
            "OPSCOPE_TRIAL": str(seen.folder),
            "OPSCOPE_TRIAL_RUN": str(seen.run),
            "OPSCOPE_TRIAL_EXIT_CODE": "" if seen.exit_code is None else str(seen.exit_code),
        }
        try:
            with (seen.folder / "stdout.txt").open("rb") as text:
                code = subprocess.run(
                    shlex.split(self.command),
                    stdin=text,
                    env=environment,
                    stdout=subprocess.DEVNULL,
                    check=False,
                ).returncode
        except (OSError, ValueError) as error:
            raise UsageError(f"--oracle {self.command!r} cannot be run: {error}") from error
        if code < 0 or code > 127:
            raise UsageError(
                f"--oracle {self.command!r} ended with {code}; it has to exit with 0 (good), "
                "1 (bad) or 125 (cannot tell)"
            )
        return {0: GOOD, 125: UNCLEAR}.get(code, BAD)


class MetricOracle(msgspec.Struct, frozen=True):
    """The last value of a metric that the command printed: good when the condition holds, bad when
    not or when it is NaN.
    """

    text: str
    pattern: str
    comparison: str
    bound: float

    @property
    def words(self) -> str:
        """What is asked."""
        return f"{self.text} does not hold"

    @property
    def doubt(self) -> str:
        """When it cannot tell."""
        return f"the command failed, or printed no value for {self.text}"

    def judge(self, seen: Observation) -> str:
        """UNCLEAR when the command printed no such value, or failed."""
        value = last_value(self.pattern, seen.stdout)
        if value is None or seen.exit_code != 0:
            return UNCLEAR
        return (
            GOOD
            if not math.isnan(value) and COMPARISONS[self.comparison](value, self.bound)
            else BAD
        )


class ExceptionOracle(msgspec.Struct, frozen=True):
    """The command ends with this exception; numbers and addresses in its text aside."""

    error: str

    @property
    def words(self) -> str:
        """What is asked."""
        return f"it raises {self.error}"

    @property
    def doubt(self) -> str:
        """When it cannot tell."""
        return "the command failed in another way"

    def judge(self, seen: Observation) -> str:
        """GOOD when the command succeeds, UNCLEAR when it ends in another way."""
        if seen.exit_code == 0:
            return GOOD
        return BAD if final_error(seen.stderr) == self.error else UNCLEAR


class ExitOracle(msgspec.Struct, frozen=True):
    """The command ends with this exit code, 128 + n for signal n; None: it does not end."""

    code: int | None

    @property
    def words(self) -> str:
        """What is asked."""
        return "it does not end" if self.code is None else f"it exits with {self.code}"

    @property
    def doubt(self) -> str:
        """When it cannot tell."""
        return "the command failed in another way"

    def judge(self, seen: Observation) -> str:
        """GOOD when the command succeeds, UNCLEAR when it ends in another way."""
        return GOOD if seen.exit_code == 0 else BAD if seen.exit_code == self.code else UNCLEAR


class NonfiniteOracle(msgspec.Struct, frozen=True):
    """Values that are not finite reach a loss, a gradient or a parameter."""

    scan: Scan

    @property
    def words(self) -> str:
        """What is asked."""
        return "NaN or inf reaches a loss, a gradient or a parameter"

    @property
    def doubt(self) -> str:
        """When it cannot tell."""
        return "the command failed"

    def judge(self, seen: Observation) -> str:
        """By the trial's own recording; UNCLEAR when the command failed."""
        if seen.exit_code != 0:
            return UNCLEAR
        return BAD if reached(self.scan(seen.run)) else GOOD


def chosen_oracle(command: str | None, metric: str | None) -> Oracle | None:
    """The oracle that the user asked for, None when the failure itself has to tell; UsageError for
    one that makes no sense.
    """
    if command is not None and metric is not None:
        raise UsageError("--oracle and --metric both say what good is; give one of them")
    if command is not None:
        _check_command(command)
        return CommandOracle(command)
    return None if metric is None else metric_oracle(metric)


def _check_command(command: str) -> None:
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise UsageError(f"--oracle {command!r} cannot be run: {error}") from error
    if not words:
        raise UsageError(
            "--oracle is empty; give a command that exits with 0 (good), 1 (bad) or 125 "
            "(cannot tell)"
        )
    if shutil.which(words[0]) is None:
        raise UsageError(
            f"--oracle {command!r}: {words[0]!r} is no command here; a file needs to be executable"
        )


def metric_oracle(text: str) -> MetricOracle:
    """`loss<2.5`: good when the last value printed beside the word is below 2.5;
    `name-regex(RE)<2.5` finds it by its one group.
    """
    parts = re.fullmatch(r"(.+?)\s*(<=|>=|<|>)\s*" + NUMBER, text.strip(), re.DOTALL)
    if parts is None:
        raise UsageError(
            f"--metric {text!r}: write NAME<NUMBER (good when it holds), such as 'loss<2.5'"
        )
    name, comparison, bound = parts[1], parts[2], float(parts[3])
    regex = NAMED.fullmatch(name)
    pattern = (
        regex[1] if regex is not None else rf"(?<![\w]){re.escape(name)}\W{{0,8}}?{NUMBER}(?![\w])"
    )
    try:
        compiled = re.compile(pattern, re.IGNORECASE)
    except re.error as error:
        raise UsageError(f"--metric {text!r}: not a regular expression: {error}") from error
    if compiled.groups != 1:
        raise UsageError(f"--metric {text!r}: the expression needs one group around the number")
    return MetricOracle(text.strip(), pattern, comparison, bound)


def oracle_for(seen: Observation, scan: Scan) -> Oracle | None:
    """The oracle for the failure that an observation shows; None when it shows none."""
    if seen.exit_code is None:
        return ExitOracle(None)
    if seen.exit_code != 0:
        error = final_error(seen.stderr)
        return (
            ExceptionOracle(error)
            if error is not None and seen.exit_code < 128
            else ExitOracle(seen.exit_code)
        )
    return NonfiniteOracle(scan) if reached(scan(seen.run)) else None


def reached(document: Document) -> bool:
    """Whether values that are not finite did damage."""
    return any(
        finding.kind == "overflow-origin"
        and any(record.get("reached") for record in finding.evidence)
        for finding in document.findings
    )


def final_error(stderr: str) -> str | None:
    """Class and text of the exception that the last traceback ends with, numbers and addresses as
    `#`; None without one.
    """
    _, marker, after = stderr.rpartition("Traceback (most recent call last)")
    if not marker:
        return None
    for line in after.splitlines()[1:]:
        ended = ENDED.fullmatch(line.rstrip())
        if ended is not None and not line.startswith((" ", "\t")):
            return re.sub(r"0x[0-9a-fA-F]+|\d+", "#", line.strip())[:500]
    return None


def last_value(pattern: str, text: str) -> float | None:
    """The last number that the pattern's group finds."""
    values: Sequence[str] = re.findall(pattern, text, re.IGNORECASE)
    try:
        return float(values[-1]) if values else None
    except ValueError:
        return None


def _tail(path: Path) -> str:
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - TAIL))
            return file.read().decode("utf-8", "replace")
    except OSError:
        return ""
