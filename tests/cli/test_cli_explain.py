# SPDX-License-Identifier: Apache-2.0
"""`opscope explain`: every word that opscope says has its meaning, from where the word is defined."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import opscope
from opscope.cli.explain import BITS, EXITS, meanings, words
from opscope.errors import OpscopeError, UsageError
from opscope.judge.overflow import WORDS
from opscope.judge.reasons import OVERFLOWS, reason_in
from opscope.run.finding import CONFIDENCES, KINDS

SOURCE = Path(opscope.__file__).parent
DOCS = SOURCE.parents[1] / "docs"
BUILDERS = {"Finding", "Accusation"}


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "opscope", "explain", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
    )


def reasons_of(path: Path) -> set[str]:
    """The texts that the functions of a module give as reasons; numbers and names that they put in
    are all "7".
    """
    tree = ast.parse(path.read_text(encoding="utf-8"))
    given = [
        node.value if isinstance(node, ast.Return) else node.args[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Return)
        or getattr(getattr(node, "func", None), "attr", "") == "append"
    ]
    tuples = [
        part
        for value in given
        if value is not None
        for part in ast.walk(value)
        if isinstance(part, ast.Tuple)
    ]
    texts = [*given, *(text for each in tuples for text in each.elts)]
    written = {
        "".join(str(part.value) if isinstance(part, ast.Constant) else "7" for part in text.values)
        if isinstance(text, ast.JoinedStr)
        else text.value
        for text in texts
        if isinstance(text, ast.JoinedStr)
        or (isinstance(text, ast.Constant) and isinstance(text.value, str))
    }
    return {text for text in written if " " in text and not text.startswith("7 of ")}


@pytest.fixture(scope="module")
def makers() -> list[ast.Module]:
    """The modules of the house that make findings."""
    texts = [path.read_text(encoding="utf-8") for path in SOURCE.rglob("*.py")]
    return [ast.parse(text) for text in texts if any(f"{name}(" in text for name in BUILDERS)]


def said(name: str, makers: list[ast.Module]) -> set[str]:
    """The texts that the house gives this field where it makes findings, constants of the module
    followed.
    """
    found = set()
    for tree in makers:
        constants = {
            target.id: node.value
            for node in tree.body
            if isinstance(node, ast.Assign)
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        for call in ast.walk(tree):
            if not isinstance(call, ast.Call) or getattr(call.func, "id", "") not in BUILDERS:
                continue
            for keyword in call.keywords:
                if keyword.arg == name:
                    value = constants.get(getattr(keyword.value, "id", ""), keyword.value)
                    if not isinstance(value, ast.Constant | ast.IfExp):
                        continue
                    found |= {
                        each.value
                        for each in ast.walk(value)
                        if isinstance(each, ast.Constant) and isinstance(each.value, str)
                    }
    return found


def test_every_kind_and_confidence_that_is_said_has_a_meaning(
    makers: list[ast.Module],
) -> None:
    kinds, confidences = said("kind", makers), said("confidence", makers)
    assert {"crash", "rank-mismatch", "replay-mismatch"} <= kinds
    assert kinds <= set(KINDS)
    assert "proven" in confidences
    assert confidences - {"", "wrong"} <= set(CONFIDENCES)


def test_every_word_is_explained_by_its_code_and_by_its_name() -> None:
    for one in words():
        assert one in meanings(one.code)
        assert one in meanings(one.name.upper())
        assert len(one.text) > 10
    names = {one.code for one in words()}
    tree = (OpscopeError, *OpscopeError.__subclasses__())
    assert {
        error.__name__ for error in tree if error.__module__ == OpscopeError.__module__
    } <= names
    assert set(map(hex, WORDS)) <= names


def test_every_reason_that_the_rules_give_is_explained_and_no_other() -> None:
    given = reasons_of(SOURCE / "judge" / "overflow_rules.py")
    assert len(given) >= 20
    assert "infinity times zero" in given
    assert [text for text in sorted(given) if reason_in(text) is None] == []
    used = {reason_in(text) for text in given}
    others = {
        "saturated at …, the end of the range of …",
        "saturated at …",
        "… has no …",
        "invalid floating-point operation",
        "… to … overflow",
    }
    assert used | others == set(OVERFLOWS)
    overflow = (SOURCE / "judge" / "overflow.py").read_text(encoding="utf-8")
    for reason in others:
        part = max(reason.split("…"), key=len)
        assert part.strip(" ,") in overflow


@pytest.mark.parametrize(
    ("topic", "reason"),
    [
        ("division by zero (1 of 16 divisors are 0)", "division by zero"),
        ("why  result leaves float16 (largest 65504); inputs 0: [-1, 2]", "result leaves …"),
        ("exponential of 90 leaves float32 (largest 3.4e+38)", "exponential of … leaves …"),
        ("70000 leaves float16 (largest 65504)", "… leaves …"),
        ("float32 to float16 overflow", "… to … overflow"),
        ("saturated at 65504, the largest finite float16", "saturated at …"),
        ("float32 -3 has no uint8", "… has no …"),
    ],
)
def test_a_reason_is_known_as_it_is_printed(topic: str, reason: str) -> None:
    (meaning,) = meanings(topic)
    assert meaning.code == reason


def test_the_exit_codes_are_those_of_the_manual() -> None:
    table = re.findall(r"^\| (\d+) \| (.+) \|$", (DOCS / "cli.md").read_text(), re.MULTILINE)
    assert {int(code): text for code, text in table} == EXITS


@pytest.mark.parametrize(
    ("topic", "text"),
    [
        ("overflow-origin", "opscope repro RUN CALL"),
        ("0x420", "accumulation overflow"),
        ("exit 3", "incomplete"),
        ("FormatError", "exit code 2"),
        ("507015", "ACL_ERROR_RT_AICORE_EXCEPTION"),
        ("EZ9999", "screen"),
        ("accumulation overflow", "0x400"),
    ],
)
def test_what_a_person_types(topic: str, text: str) -> None:
    done = run(topic)
    assert done.returncode == 0, done.stderr
    assert text in " ".join(done.stdout.split())


def test_without_a_topic_all_words_are_listed() -> None:
    done = run("--json")
    rows = json.loads(done.stdout)["summary"]["meanings"]
    assert {row["code"] for row in rows} == {one.code for one in words()}


def test_a_misspelt_word_names_the_nearest() -> None:
    with pytest.raises(UsageError, match="did you mean overflow-origin"):
        meanings("overflow-orgin")
    done = run("zzzz")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "opscope: explain 'zzzz': no such word; opscope explain lists them\n"


def test_every_bit_of_a_status_is_told_in_words_and_no_other() -> None:
    assert BITS.keys() == WORDS.keys()
    assert "matrix product" in meanings("0x400")[0].text


def test_words_that_a_newcomer_has_are_known() -> None:
    assert "opscope scan" in meanings("NaN")[0].text
    assert "65504" in meanings("inf")[0].text
