# SPDX-License-Identifier: Apache-2.0
"""Opens pages in chromium and says what it saw, as JSON: run in the environment that has playwright.

    python browse.py PLAN.json

A plan is a list of {"url", "steps"}; a step is [verb, argument]: "wait" for a selector, "press" a
key, "click" a selector, "type" a text, "text" or "count" of a selector, "inside" the text of one in
the first frame of the page, "evaluate" an expression, "dark", "axe", "shot" (a file). What "text",
"count", "inside", "evaluate" and "axe" give is under "saw", what the console and the page said wrong under "errors", what went beyond the page
under "requests".
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, sync_playwright

AXE = "async () => (await axe.run(document, {resultTypes: ['violations']})).violations"


def waits(page: Page, selector: str) -> None:
    page.wait_for_selector(selector, timeout=60_000)


def axe(page: Page, _: Any) -> list[list[str]]:
    """What axe-core finds: impact, rule, markup."""
    # Not by add_script_tag: the page's own policy refuses every script that is not its own.
    found = importlib.util.find_spec("axe_playwright_python")
    if found is None or found.origin is None:
        raise LookupError("axe-playwright-python is missing; see tests/interop/browser.txt")
    page.evaluate(Path(found.origin).with_name("axe.min.js").read_text("utf-8") + "\n;0")
    return [[one["impact"], one["id"], one["nodes"][0]["html"][:200]] for one in page.evaluate(AXE)]


def inside(page: Page, selector: str) -> str:
    return page.frame_locator("iframe").first.locator(selector).inner_text(timeout=60_000)


# What each verb does; what it gives is seen, None by what gives nothing.
VERBS: dict[str, Callable[[Page, Any], Any]] = {
    "wait": waits,
    "press": lambda page, key: page.keyboard.press(key),
    "type": lambda page, text: page.keyboard.type(text),
    "click": lambda page, selector: page.click(selector, timeout=60_000),
    "dark": lambda page, _: page.emulate_media(color_scheme="dark"),
    "shot": lambda page, file: page.screenshot(path=file) and None,
    "text": lambda page, selector: page.inner_text(selector, timeout=60_000),
    "inside": inside,
    "count": lambda page, selector: page.locator(selector).count(),
    "evaluate": lambda page, expression: page.evaluate(expression),
    "axe": axe,
}


def visit(page: Page, plan: dict[str, Any]) -> dict[str, Any]:
    """One page, all its steps."""
    errors: list[str] = []
    requests: list[str] = []
    page.on("console", lambda said: errors.append(said.text) if said.type == "error" else None)
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("dialog", lambda dialog: (errors.append(f"dialog {dialog.message}"), dialog.dismiss()))
    page.on("request", lambda request: requests.append(request.url[:200]))
    page.goto(plan["url"])
    saw = [VERBS[verb](page, argument) for verb, argument in plan["steps"]]
    return {
        "saw": [one for one in saw if one is not None],
        "errors": errors,
        "requests": [url for url in requests if not url.startswith("data:")],
    }


def main() -> int:
    """Every page of the plan in a tab of its own."""
    plan = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    program = os.environ.get("OPSCOPE_CHROMIUM") or shutil.which("chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        found = []
        for one in plan:
            context = browser.new_context(viewport={"width": 1400, "height": 900}, locale="en-GB")
            found.append(visit(context.new_page(), one))
            context.close()
        browser.close()
    print(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
