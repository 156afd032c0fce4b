# SPDX-License-Identifier: Apache-2.0
"""What the pages of the gallery type is typed, and prints what they show."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.docs.test_docs import DOCS
from tests.docs.typed import blocks, missing, typed, workplace

STORIES = sorted(page for page in (DOCS / "gallery").glob("*.md") if ".zh-CN" not in page.name)


def test_there_are_twelve_stories_in_both_languages_that_show_the_same() -> None:
    assert len(STORIES) == 12
    for page in STORIES:
        chinese = page.with_name(f"{page.stem}.zh-CN.md")
        one, other = (blocks(each.read_text(encoding="utf-8")) for each in (page, chinese))
        assert one
        assert [(block.lines, block.shown) for block in one] == [
            (block.lines, block.shown) for block in other
        ]


@pytest.mark.zoo
@pytest.mark.parametrize("page", STORIES, ids=lambda page: page.stem)
def test_what_a_story_types_prints_what_it_shows(page: Path, tmp_path: Path) -> None:
    environment = workplace(tmp_path)
    for block in blocks(page.read_text(encoding="utf-8")):
        code, printed = typed(block.lines, tmp_path, environment)
        assert code in {0, 1}, printed
        assert block.shown
        assert missing(block.shown, printed) is None, printed


def test_a_line_that_is_not_printed_is_seen() -> None:
    printed = "step 0  loss 2.5\nstep 1  loss nan\nfirst overflow  step 1\n"
    assert missing("step 0  loss 2.4\n…\nfirst overflow  step 1\n", printed) is None
    assert (
        missing("step 0  loss 2.5\nfirst overflow  step 1\n", printed) == "first overflow  step 1"
    )
    assert missing("…\nfirst overflow  step 2\n", printed) == "first overflow  step 2"
    assert missing("step 1  loss nan\n…\nstep 0  loss 2.5\n", printed) == "step 0  loss 2.5"
