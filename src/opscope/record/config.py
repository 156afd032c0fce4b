# SPDX-License-Identifier: Apache-2.0
"""What a recording is asked to do, and the one place where its options are named.

The same words serve `opscope run`, the environment variable OPSCOPE (one string, shell quoting) and
`--config FILE` (TOML, the words without their dashes, or another tool's JSON). A word later in that
order of precedence wins: file, then OPSCOPE, then the command line.
"""

from __future__ import annotations

import importlib
import os
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from opscope.errors import UsageError
from opscope.formats.settings.steps import step_and_before
from opscope.operators.declare import read_operators
from opscope.record.backend_rules import parse_backend_rules
from opscope.run.schema import LEVELS
from opscope.run.selection import Selection, parse_pattern, parse_selection
from opscope.run.store.retention import parse_keep
from opscope.substitute.rules import parse_rules

if TYPE_CHECKING:
    from opscope.formats.settings.recording import Recording

VALUES = ("none", "anomaly", "overflow", "sample", "full")
ON_OVERFLOW = ("keep", "stop")
LAYOUTS = ("mindspore", "acl", "msprobe")
_LARGEST = 1 << 20  # bytes of a file of options
Words = dict[str, str | bool]


class Option(msgspec.Struct, frozen=True, kw_only=True):
    """One option: its word without dashes, what it does, and what it takes (None: nothing, it is a
    switch).
    """

    word: str
    takes: str | None = None
    help: str
    short: str | None = None
    choices: tuple[str, ...] = ()

    @property
    def field(self) -> str:
        """The word as a Python name."""
        return self.word.replace("-", "_")

    @property
    def flags(self) -> tuple[str, ...]:
        """How it is spelt on the command line."""
        return (f"--{self.word}",) if self.short is None else (f"--{self.word}", self.short)


OPTIONS: tuple[Option, ...] = (
    Option(
        word="output",
        short="-o",
        takes="PATH",
        help="directory of the run; an existing one gets a sibling [runs/NAME-TIME]; a URL: also "
        "shipped there",
    ),
    Option(word="tag", takes="NAME", help="name of the run where -o gives none"),
    Option(word="shared", help="others may read the run, as the umask says; else only you"),
    Option(word="keep-argv", help="keep the command line whole; else what may be secret is masked"),
    Option(
        word="values",
        takes="KIND",
        choices=VALUES,
        help="values kept: none, anomaly (inputs of an origin), overflow (outputs too), sample, "
        "full [anomaly]",
    ),
    Option(word="sample", takes="N", help="with --values sample: every Nth call [10]"),
    Option(
        word="steps", takes="STEPS", help="steps recorded, 0|5-8; recording ends after the last one"
    ),
    Option(word="ranks", takes="RANKS", help="ranks recorded, 0,7; tp=2,dp=4: one of each role"),
    Option(
        word="ops",
        takes="PATTERN",
        help="operators recorded: globs over operator, name and module, name-regex(RE)",
    ),
    Option(word="skip", takes="PATTERN", help="operators left out"),
    Option(
        word="set-dump",
        help="record only what the program chose with opscope.set_dump(module or operator)",
    ),
    Option(
        word="phases", takes="PHASES", help="forward, backward, optimizer, recompute, communication"
    ),
    Option(
        word="io",
        takes="SIDE",
        choices=("input", "output", "both"),
        help="tensors recorded: input, output or both [both]",
    ),
    Option(word="levels", takes="LEVELS", help="operator, module, api, digest [operator,module]"),
    Option(
        word="keep",
        takes="KEEP",
        help="steps kept whole: last:N or all; those with a finding stay anyway [last:100]",
    ),
    Option(
        word="on-overflow",
        takes="ACTION",
        choices=ON_OVERFLOW,
        help="at the first overflow: keep going or stop the program [keep]",
    ),
    Option(
        word="around",
        takes="N",
        help="record step N and the one before it, then end the program cleanly",
    ),
    Option(word="stop-after", help="end the program, cleanly, after the last of --steps"),
    Option(word="step-module", takes="PATH", help="a step is one forward call of this module"),
    Option(word="seed", takes="N", help="seed python, NumPy and torch"),
    Option(word="deterministic", help="deterministic algorithms only"),
    Option(
        word="torch-flags",
        takes="FLAGS",
        help="NAME=VALUE[,…]: torch's settings held at these values, by their names in a run",
    ),
    Option(word="sync", help="wait for the device after every operator"),
    Option(
        word="check",
        help="make calls again on a trusted substitute while the program runs, and judge them",
    ),
    Option(
        word="budget",
        takes="SHARE",
        help="with --check: share of the program's time it may take beyond first calls, or all "
        "[20%]",
    ),
    Option(
        word="substitute",
        takes="RULES",
        help="PATTERN=KIND[;…]: run these operators as cpu, float64, float32, decomposition, "
        "function:…",
    ),
    Option(
        word="backend",
        takes="RULES",
        help="GRAPH[/NODES]=BACKEND[;…]: compile these graphs of torch.compile, or nodes of one, "
        "with another backend, such as eager",
    ),
    Option(
        word="journal",
        takes="PATTERN",
        help="write inputs of these operators before each call, for when the process dies in it",
    ),
    Option(
        word="device-ring",
        takes="SIZE",
        help="memory of each device for copies of what calls read lately, 0 or 512KiB, 1GiB "
        "[64MiB]",
    ),
    Option(
        word="operators",
        takes="FILE",
        help="what operators are that opscope does not know: a line each, its name and its traits",
    ),
    Option(
        word="layout",
        takes="LAYOUT",
        choices=LAYOUTS,
        help="also write the run in that tool's own tree, to --config's path",
    ),
    Option(
        word="config",
        takes="FILE",
        help="options from a TOML file, data_dump.json, acl.json or msprobe's config.json",
    ),
)
DEVICE_RING = "64MiB"
UNITS = {"": 1, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30}
USUAL_LEVELS = ("operator", "module")
DIGEST = "digest"  # what ranks exchange and how parameters are updated: the state that they share
_BY_FLAG = {flag: option for option in OPTIONS for flag in option.flags}
_BY_FIELD = {option.field: option for option in OPTIONS}


class RecordConfig(msgspec.Struct, frozen=True, kw_only=True):
    """What to record, where to, and what to do about it.

    output is a path or None (runs/{tag or script}-{time}); sample keeps the values of every Nth
    call when values is "sample"; levels end in DIGEST where ranks that are not selected are
    recorded by digests; seed is below 2**32, NumPy's limit.
    """

    output: str | None = None
    tag: str | None = None
    values: str = "anomaly"
    sample: int = 10
    selection: Selection = Selection()
    levels: tuple[str, ...] = USUAL_LEVELS
    keep: str = "last:100"
    on_overflow: str = "keep"
    stop_after: bool = False
    step_module: str | None = None
    seed: int | None = None
    deterministic: bool = False
    torch_flags: str | None = None
    sync: bool = False
    check: bool = False
    budget: str = "20%"
    substitute: str | None = None
    backend: str | None = None
    journal: str | None = None
    device_ring: str = DEVICE_RING
    operators: str | None = None
    layout: str | None = None
    set_dump: bool = False
    shared: bool = False
    keep_argv: bool = False

    @property
    def share(self) -> float | None:
        """Share of the program's time that checking may take; None for no limit."""
        return None if self.budget == "all" else float(self.budget.removesuffix("%")) / 100

    @property
    def device_ring_bytes(self) -> int:
        """Bytes of each device's ring; 0 where no values are kept of origins, or all are anyway."""
        return 0 if self.values in {"none", "full"} else parse_size(self.device_ring)

    @property
    def digest(self) -> bool:
        """Whether ranks that are not selected, all where none is, are recorded by digests alone."""
        return DIGEST in self.levels

    @property
    def keep_last(self) -> int | None:
        """How many steps are kept whole; None for all of them."""
        return parse_keep(self.keep)

    def words(self) -> Words:
        """What differs from the defaults, by field name, as config_from reads it."""
        selection = self.selection
        texts: Mapping[str, str | None] = {
            "steps": _range_text(selection.steps),
            "ranks": _range_text(selection.ranks),
            "ops": selection.ops.text if selection.ops else None,
            "skip": selection.skip.text if selection.skip else None,
            "phases": ",".join(selection.phases) if selection.phases else None,
            "io": selection.io if selection.io != "both" else None,
        }
        words: Words = {field: text for field, text in texts.items() if text is not None}
        for field, default in msgspec.structs.asdict(RecordConfig()).items():
            value = getattr(self, field)
            if field != "selection" and value != default:
                words[field] = (
                    value
                    if isinstance(value, bool)
                    else ",".join(value)
                    if isinstance(value, tuple)
                    else str(value)
                )
        return words

    def to_options(self) -> str:
        """The option string that parse_options reads back to this; only what differs from the
        defaults.
        """
        words = ((_BY_FIELD[field].word, value) for field, value in self.words().items())
        return shlex.join(
            f"--{word}" if value is True else f"--{word}={value}" for word, value in words
        )


def parse_options(options: str | Sequence[str]) -> RecordConfig:
    """Read options given as one string or as separate words; UsageError for what cannot be used."""
    return config_from(read_words(options))


def config_from(*layers: Mapping[str, str | bool]) -> RecordConfig:
    """Options by field name, later layers winning; a config file named in any of them comes before
    all.
    """
    words: Words = {}
    for layer in layers:
        words.update(layer)
    path = words.pop("config", None)
    if isinstance(path, str):
        words = {**read_file(Path(path)), **words}
    for field, value in words.items():
        _check_choice(_BY_FIELD[field], value)
    text = {field: value for field, value in words.items() if isinstance(value, str)}
    if "around" in text:
        wanted = _number(text["around"], what="--around", least=0)
        text.setdefault("steps", step_and_before(wanted))
        words = {"stop_after": True, **words}
    selected = {
        field: text[field]
        for field in ("steps", "ranks", "ops", "skip", "phases", "io")
        if field in text
    }
    return RecordConfig(
        output=text.get("output"),
        tag=text.get("tag"),
        values=text.get("values", "anomaly"),
        sample=_number(text.get("sample", "10"), what="--sample", least=1),
        selection=parse_selection(**selected),
        levels=_levels(text.get("levels", ",".join(USUAL_LEVELS))),
        keep=_keep(text.get("keep", "last:100")),
        on_overflow=text.get("on_overflow", "keep"),
        stop_after=words.get("stop_after") is True,
        step_module=text.get("step_module"),
        seed=_number(text["seed"], what="--seed", least=0) if "seed" in text else None,
        deterministic=words.get("deterministic") is True,
        torch_flags=_flags(text.get("torch_flags")),
        sync=words.get("sync") is True,
        check=words.get("check") is True,
        budget=_budget(text.get("budget", "20%")),
        substitute=_rules(text.get("substitute")),
        backend=_backends(text.get("backend")),
        journal=_pattern(text.get("journal")),
        device_ring=_size(text.get("device_ring", DEVICE_RING)),
        operators=_operators(text.get("operators")),
        layout=text.get("layout"),
        set_dump=words.get("set_dump") is True,
        shared=words.get("shared") is True,
        keep_argv=words.get("keep_argv") is True,
    )


def read_words(options: str | Sequence[str]) -> Words:
    """Options by field name, nothing but the words checked; UsageError for a word that is not an
    option.
    """
    rest = list(reversed(_split(options) if isinstance(options, str) else options))
    words: Words = {}
    while rest:
        word = rest.pop()
        flag, equals, given = word.partition("=")
        if flag.startswith("--no-") and _is_switch(f"--{flag[5:]}") and not equals:
            words[_BY_FLAG[f"--{flag[5:]}"].field] = False
            continue
        option = _BY_FLAG.get(flag) or _unknown(flag)
        if option.takes is None and equals:
            raise UsageError(f"{flag} takes no value, {given!r} was given")
        if option.takes is not None and not equals and not rest:
            raise UsageError(f"{flag} needs a value: {flag} {option.takes}")
        words[option.field] = True if option.takes is None else given if equals else rest.pop()
    return words


def split_command(
    arguments: Sequence[str], *, more: Sequence[str] = ()
) -> tuple[list[str], list[str]]:
    """Part `[options] [--] CMD…` into the options and the command: it starts after `--`, or at the
    first word that is no option.

    more are further options that take a value. One that is not known ends nothing, so that it is
    reported rather than run.
    """
    takes_value = {flag for flag, option in _BY_FLAG.items() if option.takes is not None} | set(
        more
    )
    at = 0
    while at < len(arguments):
        word = arguments[at]
        if word == "--":
            return list(arguments[:at]), list(arguments[at + 1 :])
        if not word.startswith("-"):
            break
        at += 2 if word in takes_value else 1
    return list(arguments[:at]), list(arguments[at:])


def read_file(path: Path) -> Words:
    """Options from a file: TOML, `steps = "0|5-8"`, `stop-after = true`, or another tool's JSON
    (formats.settings.recording).

    UsageError names the file and the word.
    """
    text = read_text(path)
    if text.lstrip().startswith("{") or path.suffix == ".json":
        return dict(read_settings(path, text).words)
    try:
        table = _toml().loads(text)
    except ValueError as error:  # TOMLDecodeError
        raise UsageError(f"{path}: not TOML: {error}") from error
    words: Words = {}
    for key, value in table.items():
        field = key.replace("-", "_")
        if field not in _BY_FIELD or field == "config":
            raise UsageError(
                f"{path}: unknown option {key!r}{_near(key, [option.word for option in OPTIONS])}"
            )
        words[field] = _word_of(value, _BY_FIELD[field], str(path))
    if any(
        rule.kind.startswith("function")
        for rule in parse_rules(str(words.get("substitute", "*=cpu")))
    ):
        raise UsageError(
            f"{path}: a file of options runs no function of a module; give function:… with "
            "--substitute on the command line"
        )
    return words


def read_text(path: Path) -> str:
    """Text of a file of options; UsageError when it cannot be read, or is too large to be one."""
    try:
        with path.open("rb") as file:
            data = file.read(_LARGEST + 1)
        if len(data) > _LARGEST:
            raise UsageError(f"{path}: more than {_LARGEST >> 20} MiB; no file of options")
        return data.decode("utf-8-sig")
    except OSError as error:
        raise UsageError(
            f"{path}: {error.strerror or error}; --config needs a file that can be read"
        ) from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: not UTF-8 text (byte {error.start})") from error


def read_settings(path: Path, text: str) -> Recording:
    """The recording that another tool's JSON asks for; UsageError names the file and the key."""
    from opscope.formats.settings.parse import parse_settings
    from opscope.formats.settings.recording import recording_of

    try:
        document, twice = parse_settings(text)
        if twice:
            raise UsageError(twice[0].line())
        return recording_of(document, os.environ)
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from error


def words_of(given: Mapping[str, object]) -> Words:
    """Options given as Python values by field name, None for what was not said; UsageError for a
    value that an option cannot have.
    """
    return {
        field: _word_of(value, _BY_FIELD[field], "record")
        for field, value in given.items()
        if value is not None
    }


def _word_of(value: object, option: Option, where: str) -> str | bool:
    """A value of TOML or Python as a word; where names the file or function it was given to."""
    if option.takes is None and isinstance(value, bool):
        return value
    if option.takes is not None and isinstance(value, list | tuple | range):
        if value and all(isinstance(part, str | int) for part in value):
            return ",".join(map(str, value))
    elif (
        option.takes is not None
        and isinstance(value, str | int | os.PathLike)
        and not isinstance(value, bool)
    ):
        return str(value) if isinstance(value, int) else str(os.fspath(value))
    wanted = "true or false" if option.takes is None else "text"
    raise UsageError(f"{where}: {option.word} is {value!r}, {wanted} was expected")


def _toml() -> Any:
    try:
        return importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    except ImportError as error:
        raise UsageError(
            "--config needs Python 3.11, or the package tomli: pip install tomli"
        ) from error


def _split(options: str) -> list[str]:
    try:
        return shlex.split(options)
    except ValueError as error:
        raise UsageError(f"OPSCOPE {options!r}: {error}") from error


def _is_switch(flag: str) -> bool:
    option = _BY_FLAG.get(flag)
    return option is not None and option.takes is None


def _unknown(flag: str) -> Option:
    if not flag.startswith("-"):
        raise UsageError(f"{flag!r} is not an option")
    raise UsageError(f"unknown option {flag}{_near(flag, list(_BY_FLAG))}")


def _near(word: str, known: list[str]) -> str:
    from difflib import get_close_matches

    similar = get_close_matches(word, known, n=1)
    return f"; did you mean {similar[0]}?" if similar else ""


def _check_choice(option: Option, value: object) -> None:
    if option.choices and value not in option.choices:
        raise UsageError(f"--{option.word} {value!r}: not one of {', '.join(option.choices)}")


def _number(text: str, *, what: str, least: int) -> int:
    if re.fullmatch(r"[0-9]{1,10}", text) is None or not least <= int(text) < 2**32:
        raise UsageError(f"{what} {text!r}: not a whole number from {least} to {2**32 - 1}")
    return int(text)


def _budget(text: str) -> str:
    if text != "all" and re.fullmatch(r"[0-9]{1,6}(\.[0-9]{1,3})?%", text) is None:
        raise UsageError(f"--budget {text!r}: neither a percentage such as 20% nor all")
    return text


def parse_size(text: str) -> int:
    """Bytes that a size names: a whole number, with KiB, MiB or GiB; UsageError for anything
    else.
    """
    match = re.fullmatch(r"\s*([0-9]{1,15})\s*(|KiB|MiB|GiB)\s*", text, re.ASCII | re.IGNORECASE)
    if match is None:
        raise UsageError(f"--device-ring {text!r}: write 0, 512KiB, 64MiB or 1GiB")
    return int(match[1]) * UNITS[match[2].lower()]


def _size(text: str) -> str:
    """The text of a size, once it is known to be one."""
    parse_size(text)
    return text


def _rules(text: str | None) -> str | None:
    if text is not None:
        parse_rules(text)
    return text


def _backends(text: str | None) -> str | None:
    if text is not None:
        parse_backend_rules(text)
    return text


def _flags(text: str | None) -> str | None:
    """The text of settings, once they are known to be some."""
    for item in text.split(",") if text is not None else ():
        if not re.fullmatch(r"[a-z][a-z0-9_.]*=\w+", item.strip(), re.ASCII):
            raise UsageError(
                f"--torch-flags {text!r}: write NAME=VALUE[,NAME=VALUE], such as "
                "backends.cudnn.allow_tf32=False"
            )
    return text


def _levels(text: str) -> tuple[str, ...]:
    """Levels in the order of the schema, each once, and DIGEST, which alone goes with the usual
    ones. parse_selection says which one is wrong.
    """
    words = [word.strip().lower() for word in text.split(",")]
    rest = [word for word in words if word != DIGEST]
    wanted = parse_selection(levels=",".join(rest)).levels or () if rest else USUAL_LEVELS
    return (
        *(level for level in LEVELS if level in wanted),
        *([DIGEST] if DIGEST in words else []),
    )


def _keep(text: str) -> str:
    """The text of --keep, once it is known to be one."""
    parse_keep(text)
    return text


def _pattern(text: str | None) -> str | None:
    """The text of a pattern, once it is known to be one."""
    if text is not None:
        parse_pattern(text)
    return text


def _operators(path: str | None) -> str | None:
    """Where a file of operators lies, once it has been read."""
    if path is None:
        return None
    read_operators(path)
    return str(Path(path).absolute())


def _range_text(ranges: tuple[tuple[int, int], ...] | None) -> str | None:
    if ranges is None:
        return None
    return "|".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)
