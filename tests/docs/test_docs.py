# SPDX-License-Identifier: Apache-2.0
"""The documentation speaks of what is there: tests it names, options, exit codes, its own pages,
the same in both languages.
"""

from __future__ import annotations

import ast
import fnmatch
import re
import shlex
import sys
from pathlib import Path

import pytest
from cyclopts import CycloptsError

from opscope.cli.app import VERBS, make_app
from opscope.cli.bisect import with_command_apart as bisect_apart
from opscope.cli.run import with_command_apart as run_apart
from opscope.record.config import OPTIONS
from opscope.run.finding import KINDS
from opscope.run.schema import TABLES

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
from reference import PAGES as GENERATED  # noqa: E402

DOCS = ROOT / "docs"
PAGES = sorted([*DOCS.glob("*.md"), *DOCS.glob("gallery/*.md"), *ROOT.glob("*.md")])
TWINS = [
    (page.with_name(page.name.replace(".zh-CN", "")), page)
    for page in PAGES
    if ".zh-CN" in page.name
]


def named_tests(page: Path) -> list[str]:
    return re.findall(r"tests/[\w/]+\.py::\w+", page.read_text(encoding="utf-8"))


def functions_of(path: Path) -> set[str]:
    return {
        node.name
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef)
    }


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_tests_that_are_named_exist(page: Path) -> None:
    for named in named_tests(page):
        path, _, function = named.partition("::")
        assert (ROOT / path).is_file(), named
        assert function in functions_of(ROOT / path), named


def test_programs_that_the_faq_names_exist() -> None:
    text = (DOCS / "faq.md").read_text(encoding="utf-8")
    programs = {path.stem for path in (ROOT / "tests" / "zoo" / "programs").glob("*.py")}
    named = set(re.findall(r"`((?:healthy|ddp|gan)_\w+)`", text))
    assert named
    assert named <= programs


def test_traps_that_the_faq_names_exist() -> None:
    text = (DOCS / "faq.md").read_text(encoding="utf-8")
    traps = (ROOT / "tests" / "zoo" / "test_traps.py").read_text(encoding="utf-8")
    named = [
        name
        for inside in re.findall(r"test_the_program_does_not_notice` \(([^)]*)\)", text)
        for name in re.findall(r"`(\w+)`", inside)
    ]
    assert len(named) >= 6
    assert [name for name in named if f'    "{name}": """\n' not in traps] == []


def test_every_page_is_in_the_contents() -> None:
    trees = re.findall(
        r"```\{toctree\}\n(.*?)```", (DOCS / "index.md").read_text(encoding="utf-8"), re.DOTALL
    )
    listed = [
        line for tree in trees for line in tree.splitlines() if line and not line.startswith(":")
    ]
    pages = {
        page.relative_to(DOCS).with_suffix("").as_posix() for page in PAGES if DOCS in page.parents
    } - {"index"}
    assert [
        page
        for page in sorted(pages)
        if not any(fnmatch.fnmatchcase(page, entry) for entry in listed)
    ] == []
    made = {f"generated/{name}" for name in GENERATED}
    assert [entry for entry in listed if not fnmatch.filter(pages | made, entry)] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text):
        assert target.startswith(("https://", "http://")) or (page.parent / target).exists(), (
            f"{page.name}: {target}"
        )


def test_every_question_is_answered_with_a_test() -> None:
    sections = re.split(
        r"^### (\d+)\. ", (DOCS / "faq.md").read_text(encoding="utf-8"), flags=re.MULTILINE
    )[1:]
    numbers, texts = [int(number) for number in sections[::2]], sections[1::2]
    assert numbers == list(range(1, 29))
    assert all("::test_" in text for text in texts)


@pytest.mark.parametrize("twins", TWINS, ids=lambda twins: twins[0].name)
def test_both_languages_say_the_same(twins: tuple[Path, Path]) -> None:
    english, chinese = (twin.read_text(encoding="utf-8") for twin in twins)
    assert named_tests(twins[0]) == named_tests(twins[1])
    assert levels(english) == levels(chinese)
    assert code(english) == code(chinese)
    assert indented(english) == indented(chinese)
    assert words_of_commands(english) == words_of_commands(chinese)


def fenced(text: str) -> list[tuple[str, str]]:
    """Every block between fences, its language first."""
    return re.findall(r"^```(\S*)\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def prose(text: str) -> str:
    return re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)


def levels(text: str) -> list[int]:
    """How deep each heading stands; lines of code that begin with a number sign are none."""
    return [len(found) for found in re.findall(r"^(#+) ", prose(text), re.MULTILINE)]


def code(text: str) -> list[str]:
    """What is typed and printed: not a drawing, whose words are translated, and not what Sphinx
    makes of the code, which stands in one language.
    """
    return [block for language, block in fenced(text) if "│" not in block and "{" not in language]


def indented(text: str) -> list[str]:
    """The lines of blocks without fences."""
    return re.findall(r"^ {4}\S.*", prose(text), re.MULTILINE)


def words_of_commands(text: str) -> set[str]:
    """The options and the verbs that a page speaks of."""
    return set(re.findall(r"(?<![\w-])--[a-z][a-z-]+|`opscope [a-z-]+", text))


@pytest.mark.parametrize("twins", TWINS, ids=lambda twins: twins[0].name)
def test_each_language_leads_to_the_other_and_stays_in_its_own(twins: tuple[Path, Path]) -> None:
    english, chinese = twins
    assert f"]({chinese.name})" in english.read_text(encoding="utf-8")
    leads = re.findall(r"\]\(([^)#\s]+\.md)", chinese.read_text(encoding="utf-8"))
    assert english.name in leads
    translated = {one.resolve() for one, _ in TWINS if one != english}
    assert [link for link in leads if (chinese.parent / link).resolve() in translated] == []


def test_every_option_of_run_is_documented_and_no_other() -> None:
    section = (
        (DOCS / "cli.md")
        .read_text(encoding="utf-8")
        .partition("## opscope run")[2]
        .partition("\n## ")[0]
    )
    rows = "\n".join(line.split(" | ")[0] for line in section.splitlines() if line.startswith("|"))
    documented = set(re.findall(r"--([a-z][a-z-]*)", rows))
    assert documented == {option.word for option in OPTIONS} | {"beside", "json-file", "no-status"}


def test_every_verb_is_documented_and_no_other() -> None:
    text = (DOCS / "cli.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^## opscope ([\w-]+)", text, re.MULTILINE)) == {
        verb for verb, _ in VERBS
    }


def test_the_reference_made_of_code_has_every_verb_option_word_and_column() -> None:
    verbs, words, columns = (GENERATED[name]() for name in ("verbs", "words", "columns"))
    assert set(re.findall(r"^## opscope ([\w-]+)", verbs, re.MULTILINE)) == {
        verb for verb, _ in VERBS
    }
    assert [option.word for option in OPTIONS if f"`--{option.word}`" not in verbs] == []
    assert all(f"`{kind}`" in words for kind in KINDS)
    assert all(f"`{name}`" in columns for fields in TABLES.values() for name in fields)


def commands(page: Path) -> list[list[str]]:
    """The words of every `opscope VERB …` that a block of the page shows; comments and results left
    out.
    """
    blocks = re.findall(
        r"^```(?:console|text|bash|sh)?\n(.*?)^```",
        page.read_text(encoding="utf-8"),
        re.DOTALL | re.MULTILINE,
    )
    lines = [
        line.removeprefix("$ ")
        for block in blocks
        for line in re.sub(r"\n {10,}", " ", block).splitlines()
    ]
    shown = [
        shlex.split(line, comments=True)[1:] for line in lines if re.match(r"opscope [a-z]", line)
    ]
    return [words for words in shown if words and words[0] in dict(VERBS)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_that_are_shown_can_be_typed(page: Path) -> None:
    for words in commands(page):
        apart = {"run": run_apart, "bisect": bisect_apart}.get(words[0], list)
        make_app().parse_args(apart(words), exit_on_error=False, print_error=False)


def test_a_command_that_cannot_be_typed_is_seen() -> None:
    with pytest.raises(CycloptsError):
        make_app().parse_args(
            ["scan", "r", "--no-such-option"], exit_on_error=False, print_error=False
        )
    assert len(commands(ROOT / "README.md")) >= 5
