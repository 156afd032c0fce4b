# SPDX-License-Identifier: Apache-2.0
"""Which differences of environment and configuration between a bad and a good run make the failure
come.

Environment variables, torch's settings and what `opscope run` switches (--seed, --deterministic,
--sync) are changed here; versions of packages by a command of the user's, which gets all of them as
`name==version` words before each trial.
"""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from opscope.bisect.oracle import BAD, GOOD, UNCLEAR, Observation, Oracle, Scan, oracle_for
from opscope.bisect.search import Answers, Bisected
from opscope.bisect.trials import Tell, Trials
from opscope.errors import UnavailableError, UsageError
from opscope.repro.ddmin import ddmin
from opscope.run.store.public import HIDDEN

if TYPE_CHECKING:
    from opscope.run.protocol import RunInfo
    from opscope.run.schema import Process

# Variables that say where and who, not how is computed.
PLACES = frozenset(
    {
        "PWD",
        "OLDPWD",
        "SHLVL",
        "_",
        "HOME",
        "USER",
        "LOGNAME",
        "HOSTNAME",
        "TERM",
        "TMPDIR",
        "COLUMNS",
        "LINES",
    }
)
BUILT_IN = frozenset({"variable", "switch", "flag"})
SWITCHES = ("seed", "deterministic", "sync")


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that was otherwise: kind is variable, switch, flag, autocast or package; None: it
    was not there.
    """

    kind: str
    key: str
    bad: str | None
    good: str | None

    @property
    def name(self) -> str:
        """How it is called in the log."""
        return f"{self.kind} {self.key}"


class Recorded(Protocol):
    """What of a run is compared."""

    @property
    def info(self) -> RunInfo: ...
    @property
    def processes(self) -> Sequence[Process]: ...


def differences(bad: Recorded, good: Recorded) -> tuple[Difference, ...]:
    """What differs between two runs; the kinds in the order variable, switch, flag, autocast,
    package.

    A variable whose value one of them did not record is none of them.
    """
    left_out = {
        key for run in (bad, good) for key, value in run.info.environment.items() if value == HIDDEN
    }
    tables = (
        (
            "variable",
            _computing(bad.info.environment, left_out),
            _computing(good.info.environment, left_out),
        ),
        ("switch", _switches(bad.info), _switches(good.info)),
        *_settings(bad, good),
        ("package", bad.info.packages, good.info.packages),
    )
    return tuple(
        Difference(kind=kind, key=key, bad=before.get(key), good=after.get(key))
        for kind, before, after in tables
        for key in sorted(before.keys() | after.keys())
        if before.get(key) != after.get(key)
    )


class Means(msgspec.Struct, frozen=True, kw_only=True):
    """What a search over differences has: an oracle (None: the failure itself), the user's hook for
    packages, the most trials.
    """

    oracle: Oracle | None = None
    hook: str | None = None
    most: int = 100


def bisect_differences(
    trials: Trials, elements: Sequence[Difference], means: Means, *, scan: Scan, tell: Tell
) -> Bisected:
    """The smallest set of differences that, taken over from the good run, makes the failure of the
    bad one go away.

    Raises UsageError when the runs do not differ or the command does not fail under the conditions
    of the bad one, UnavailableError when the failure stays under all conditions of the good one.
    """
    changeable = [
        element
        for element in elements
        if element.kind in BUILT_IN or (element.kind == "package" and means.hook is not None)
    ]
    left = [
        element.key
        for element in elements
        if element.kind == "package" and element not in changeable
    ]
    if left:
        tell(
            "packages that differ are left as they are, --hook CMD would change them: "
            f"{', '.join(left)}"
        )
    if any(element.kind == "autocast" for element in elements):
        tell("autocast differs, and is the program's own: it is left as it is")
    if not changeable:
        raise UsageError(
            "the two runs do not differ in anything that can be changed here; --hook CMD "
            "changes packages"
        )
    by_name = {element.name: element for element in changeable}
    for record in trials.records[:1]:  # of an earlier search that is gone on with
        trials.learn(record.exit_code, record.seconds)

    def apply(names: Sequence[str], folder: str) -> Observation:
        return _observe(
            trials, [(element, element.name in names) for element in changeable], means.hook, folder
        )

    answers = Answers(
        trials, means.oracle or _own_oracle(trials, apply, scan), apply, most=means.most, tell=tell
    )
    first = answers.ask(())
    if first == GOOD:
        raise UsageError(
            "the command does not fail under the conditions of the bad run; nothing to search for"
        )
    if first == UNCLEAR:
        raise UnavailableError(
            f"cannot tell good from bad under the conditions of the bad run: {answers.oracle.doubt}"
        )
    everything = list(by_name)
    if answers.ask(everything) == BAD:
        why = "the failure stays under all conditions of the good run that can be changed here"
        return Bisected(
            guilty=(),
            question=answers.oracle.words,
            why=why,
            trials=trials.made,
            candidates=len(everything),
        )
    guilty = ddmin(everything, lambda names: answers.ask(names) == GOOD, patience=len(everything))
    good, bad = (next(iter(trials.known(elements)), None) for elements in (guilty, ()))
    return Bisected(
        guilty=tuple(map(_words, (by_name[name] for name in guilty))),
        question=answers.oracle.words,
        why="the failure goes away",
        trials=trials.made,
        candidates=len(everything),
        proven=good is not None and good.verdict == GOOD,
        good=None if good is None else str(trials.show(good, "good")),
        bad=None if bad is None else str(trials.show(bad, "bad")),
    )


def _own_oracle(
    trials: Trials, apply: Callable[[Sequence[str], str], Observation], scan: Scan
) -> Oracle:
    """The failure that the command shows under the conditions of the bad run, which is a trial too;
    UsageError when it shows none.
    """
    known = trials.known(())
    seen = trials.seen(known[0]) if known else apply((), "first")
    oracle = oracle_for(seen, scan)
    if oracle is None:
        raise UsageError(
            "the command does not fail under the conditions of the bad run; say what good is "
            "with --metric or --oracle"
        )
    if not known:
        trials.note((), oracle.judge(seen), seen)
    return oracle


def _observe(
    trials: Trials, chosen: Sequence[tuple[Difference, bool]], hook: str | None, folder: str
) -> Observation:
    """Run the command, each difference as in the good run or as in the bad one."""
    wanted = [(element, element.good if good else element.bad) for element, good in chosen]
    packages = [
        f"{element.key}=={value}"
        for element, value in wanted
        if element.kind == "package" and value is not None
    ]
    if hook is not None and packages:
        _call_hook(hook, packages)
    switches: list[str] = []
    for element, value in wanted:
        if element.kind == "switch" and value is not None:
            switches += [f"--{element.key}"] if value == "true" else [f"--{element.key}", value]
    flags = ",".join(
        f"{element.key}={value}"
        for element, value in wanted
        if element.kind == "flag" and value is not None
    )
    switches += ["--torch-flags", flags] if flags else []
    variables = {element.key: value for element, value in wanted if element.kind == "variable"}
    return trials.observe(("--values", "none", *switches), variables, folder)


def _call_hook(hook: str, packages: Sequence[str]) -> None:
    try:
        code = subprocess.run(
            [*shlex.split(hook), *packages], stdout=subprocess.DEVNULL, check=False
        ).returncode
    except (OSError, ValueError) as error:
        raise UsageError(f"--hook {hook!r} cannot be run: {error}") from error
    if code != 0:
        raise UnavailableError(f"--hook {hook!r} ended with {code} for {' '.join(packages)}")


def _computing(environment: dict[str, str], left_out: set[str]) -> dict[str, str]:
    return {
        key: value
        for key, value in environment.items()
        if key not in PLACES | left_out and not key.startswith("OPSCOPE")
    }


def _switches(info: RunInfo) -> dict[str, str]:
    switches = {name: info.config.get(name) for name in SWITCHES}
    return {
        name: "true" if value is True else str(value)
        for name, value in switches.items()
        if value not in {None, False}
    }


def _settings(
    bad: Recorded, good: Recorded
) -> Iterator[tuple[str, dict[str, str], dict[str, str]]]:
    """torch's flags that both runs tell, and autocast, from the first process of each that tells
    any.
    """
    # What one of torch's settings says twice: setting both by their names is an error.
    twice = {"backends.cuda.matmul.allow_tf32": "get_float32_matmul_precision"}
    before, after = (
        next((process.torch for process in run.processes if process.torch), {})
        for run in (bad, good)
    )
    one, other = before.get("flags", {}), after.get("flags", {})
    names = {name for name in one.keys() & other.keys() if twice.get(name) not in one}
    yield (
        "flag",
        {name: str(one[name]) for name in names},
        {name: str(other[name]) for name in names},
    )
    if before and after:
        yield "autocast", _autocast(before), _autocast(after)


def _autocast(settings: dict[str, Any]) -> dict[str, str]:
    return {"autocast": ", ".join(settings.get("autocast", ())) or "off"}


def _words(element: Difference) -> str:
    before, after = (
        value if value is not None else "not set" for value in (element.bad, element.good)
    )
    return f"{element.name}: {before} -> {after}"
