# SPDX-License-Identifier: Apache-2.0
"""Which kinds of settings there are, what one is asked for, and what it answers with.

`opscope prepare KIND` looks a kind up here. Its module is imported when it is used.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from difflib import get_close_matches
from importlib import import_module
from typing import Any

import msgspec

from opscope.errors import UsageError
from opscope.formats.settings.parse import parse_settings
from opscope.formats.settings.problem import Problem

# Name -> where its Kind stands, in the order a person meets them.
BUILTIN: Mapping[str, str] = {
    "mindspore": "opscope.formats.settings.mindspore:KIND",
    "acl": "opscope.formats.settings.acl:KIND",
    "atc": "opscope.formats.settings.atc:KIND",
    "tensorflow": "opscope.formats.settings.tensorflow:KIND",
    "msprobe": "opscope.formats.settings.msprobe:KIND",
    "aicore": "opscope.formats.settings.aicore:KIND",
}


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """What a user asks a kind for.

    purpose is one of the kind's purposes; step counts from 0. settings holds keys of the tool's own
    file, as the user typed them, and wins over everything else. environment is that of the program
    to come. Fields that a kind has no use for it ignores; None means not asked for.
    """

    purpose: str | None = None
    path: str | None = None
    step: int | None = None
    steps: str | None = None
    operators: tuple[str, ...] = ()
    io: str | None = None
    data: str | None = None
    backend: str | None = None
    level: str | None = None
    pynative: bool = False
    acl: bool = False
    sink: bool | None = None
    exception_dump: str | None = None
    framework: str | None = None
    settings: Mapping[str, Any] = {}
    environment: Mapping[str, str] = {}


class TextFile(msgspec.Struct, frozen=True):
    """A file to write: its name, without folders, and its text."""

    name: str
    text: str


class Variable(msgspec.Struct, frozen=True):
    """An environment variable, and where it must be set."""

    name: str
    value: str
    where: str


class Snippet(msgspec.Struct, frozen=True):
    """Lines of the user's own program or command line, and where they belong."""

    where: str
    text: str


class Prepared(msgspec.Struct, frozen=True, kw_only=True):
    """Everything needed before the next run. {FOLDER} in values and snippets stands for the folder
    the files are written to.

    result says which folders and files will appear, and how opscope reads them.
    """

    files: tuple[TextFile, ...] = ()
    environment: tuple[Variable, ...] = ()
    snippets: tuple[Snippet, ...] = ()
    advice: tuple[str, ...] = ()
    result: str = ""
    problems: tuple[Problem, ...] = ()


class Kind(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of settings.

    purposes maps a purpose to what it is for. verify remarks on a file somebody wrote (for
    `--verify`): on the parsed document where syntax is "json", on its text where it is "text"; None
    where the kind has no file of its own.
    """

    name: str
    about: str
    purposes: Mapping[str, str]
    prepare: Callable[[Request], Prepared]
    verify: Callable[[Any, Request], tuple[Problem, ...]] | None = None
    syntax: str = "json"


def find_kind(name: str) -> Kind:
    """The kind of that name (`acl.json` is `acl`); UsageError, with the nearest name, for one that
    is not known.
    """
    wanted = name.lower().removesuffix(".json")
    reference = BUILTIN.get(wanted)
    if reference is None:
        raise UsageError(f"no settings of kind {name!r}; {_nearest(wanted, BUILTIN)}")
    module, _, attribute = reference.partition(":")
    kind: Kind = getattr(import_module(module), attribute)
    return kind


# Keys that a file of a kind has at its top, nothing else has, and that are spelt right or nearly
# so.
_MARKS = {
    "common_dump_settings": "mindspore",
    "e2e_dump_settings": "mindspore",
    "dump": "acl",
    "task": "msprobe",
    "dump_path": "msprobe",
    "level": "msprobe",
    "step": "msprobe",
    "rank": "msprobe",
    "statistics": "msprobe",
    "tensor": "msprobe",
}


def kind_of_file(text: str) -> str:
    """The kind of settings that a file's text is of, by its keys; UsageError where nothing says
    so.
    """
    if "=" in text and not text.lstrip().startswith(("{", "[")):
        return "atc"
    names: list[str] = re.findall(r'"([^"\\\n]{1,60})"\s*:', text)
    wrong: UsageError | None = None
    try:
        document, _ = parse_settings(text)
        names = [str(name) for name in document] if isinstance(document, dict) else []
    except UsageError as error:
        wrong = error
    for name in names:
        near = get_close_matches(name, _MARKS, n=1, cutoff=0.75)
        if near:
            return _MARKS[near[0]]
    if wrong is not None and (not text.strip() or text.lstrip().startswith(("{", "["))):
        raise wrong
    raise UsageError(
        "nothing in it says whose settings these are; name the kind: opscope prepare KIND "
        "--verify FILE"
    )


# Words for what is wanted -> how people say it, looked through in this order; the Chinese words are
# those of the manuals.
_SAID = {
    "aicore": ("exception", "ai core", "ai_core", "异常", "报错"),
    "address": ("越界",),
    "set_dump": ("set_dump", "set dump", "指定对象"),
    "sampling": ("sampl", "采样", "切片"),
    "migration": ("migrat", "迁移"),
    "overflow": ("overflow", "溢出"),
    "compare": ("compare", "比对", "对比", "比较", "精度"),
    "nan": ("nan", "非数"),
    "statistics": ("statistic", "everything", "统计"),
    "dump": ("全部", "全量", "整网", "所有"),
}
_PHRASES = {phrase: word for word, phrases in _SAID.items() for phrase in phrases}
_STEP = re.compile(r"(?:\bstep\s*|迭代\s*|步骤\s*|步\s*)([0-9]{1,9})(?![0-9])", re.IGNORECASE)
_NTH_STEP = re.compile(
    r"第\s*([0-9]{1,9})\s*(?:个)?\s*(?:迭代|步|轮|step)", re.IGNORECASE
)  # counted from 1, as the manual says


def read_purpose(phrase: str) -> tuple[str, int | None]:
    """A purpose and a step out of "nan at step 10", "compare with GPU", "AI Core error",
    "第10个迭代溢出"; steps count from 0.
    """
    words = phrase.strip().lower()
    nth, plain = _NTH_STEP.search(words), _STEP.search(words)
    step = (
        max(0, int(nth[1]) - 1) if nth is not None else int(plain[1]) if plain is not None else None
    )
    if " " in words or words in _PHRASES or not words.isascii():
        words = next((word for said, word in _PHRASES.items() if said in words), words)
    return words, step


# A purpose that a kind calls otherwise.
_OTHERWISE = {
    "aicore": {"error"},
    "address": {"memory"},
    "memory": {"address"},
    "dump": {"model", "nan"},
    "model": {"dump"},
    "migration": {"compare"},
    "error": {"aicore"},
}


def chosen_purpose(kind: str, purposes: Mapping[str, str], purpose: str | None) -> str:
    """The purpose asked for, else the first; UsageError for one the kind does not have."""
    if purpose is None:
        return next(iter(purposes))
    if (
        purpose not in purposes
        and purpose in _OTHERWISE
        and (same := _OTHERWISE[purpose] & purposes.keys())
    ):
        return next(name for name in purposes if name in same)
    if purpose not in purposes:
        raise UsageError(f"prepare {kind}: no purpose {purpose!r}; {_nearest(purpose, purposes)}")
    return purpose


def _nearest(word: str, known: Collection[str]) -> str:
    """What may have been meant, in words."""
    near = get_close_matches(word, known, n=1)
    return f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"
