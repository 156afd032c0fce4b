# SPDX-License-Identifier: Apache-2.0
"""The page as one file: its policy names what is in it and nothing else, and no text of a run is
markup.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import re
from html.parser import HTMLParser

import pytest
from view_runs import HOSTILE, overflowing

from opscope.scan.api import scan
from opscope.view.documents import Documents, plain_text
from opscope.view.page import packed, page


class Parsed(HTMLParser):
    """The elements of a page, with the text in scripts and styles."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None], str]] = []
        self._open = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs), ""))
        self._open = True

    def handle_endtag(self, tag: str) -> None:
        self._open = False

    def handle_data(self, data: str) -> None:
        if not self._open:
            return
        tag, attrs, text = self.elements[-1]
        self.elements[-1] = (tag, attrs, text + data)

    def all(self, tag: str) -> list[tuple[dict[str, str | None], str]]:
        return [(attrs, text) for name, attrs, text in self.elements if name == tag]


def sha(text: str) -> str:
    return "'sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() + "'"


def hostile_page() -> str:
    run = overflowing(name=HOSTILE, source="/u/<script>x.py:3")
    document = scan(run)
    return page(Documents(run, document).whole(), title=HOSTILE, text=plain_text(document))


@pytest.fixture(scope="module")
def parsed() -> Parsed:
    return Parsed(hostile_page())


def policy(parsed: Parsed) -> dict[str, list[str]]:
    (said,) = [
        attrs["content"] or ""
        for attrs, _ in parsed.all("meta")
        if attrs.get("http-equiv") == "Content-Security-Policy"
    ]
    return {part.split()[0]: part.split()[1:] for part in said.split(";")}


def test_every_script_and_style_is_in_the_policy_by_digest(parsed: Parsed) -> None:
    rules = policy(parsed)
    scripts = [text for attrs, text in parsed.all("script") if attrs.get("id") != "documents"]
    assert len(scripts) == 3
    assert {sha(text) for text in scripts} <= set(rules["script-src"])
    assert [sha(text) for _, text in parsed.all("style")] == rules["style-src"]
    assert all(rule.startswith("'sha256-") for rule in rules["script-src"])
    assert rules["default-src"] == rules["connect-src"] == ["'none'"]


def test_every_module_is_in_the_policy_and_has_its_integrity(parsed: Parsed) -> None:
    (text,) = [text for attrs, text in parsed.all("script") if attrs.get("type") == "importmap"]
    found = json.loads(text)
    assert set(found["imports"].values()) == set(found["integrity"])
    for url, said in found["integrity"].items():
        code = base64.b64decode(url.removeprefix("data:text/javascript;base64,")).decode()
        assert f"'{said}'" == sha(code)
        assert f"'{said}'" in policy(parsed)["script-src"]
        for name in re.findall(r"""from ['"]([^'"]+)['"]""", code):
            assert name in found["imports"], name


def test_a_hostile_run_adds_no_element(parsed: Parsed) -> None:
    assert len(parsed.all("script")) == 4
    assert not parsed.all("img")
    assert HOSTILE in parsed.all("title")[0][1]


def test_nothing_is_loaded_from_elsewhere(parsed: Parsed) -> None:
    for _, attrs, _ in parsed.elements:
        assert not {"src", "href", "action"} & set(attrs)


def test_documents_survive_packing() -> None:
    text = packed({"a": [1.5, float("inf"), HOSTILE]})
    assert re.fullmatch(r"[A-Za-z0-9+/=]+", text)
    assert json.loads(gzip.decompress(base64.b64decode(text))) == {"a": [1.5, "inf", HOSTILE]}
    assert packed({"a": 1}) == packed({"a": 1})
