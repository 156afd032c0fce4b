# SPDX-License-Identifier: Apache-2.0
"""Opens pages in chromium and says what it saw, as JSON: run in the environment that has playwright.

    python browse.py PLAN.json

A plan is a list of {"url", "steps"}; a step is [verb, argument]: "wait" for a selector, "press" a
key, "click" a selector, "type" a text, "text" or "count" of a selector, "evaluate" an expression,
"dark", "axe", "shot" (a file). What "text", "count", "evaluate" and "axe" give
is under "saw", what the console and the page said wrong under "errors", what went beyond the page
under "requests".
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, sync_playwright

AXE = "async () => (await axe.run(document, {resultTypes: ['violations']})).violations"


def seen(page: Page, verb: str, argument: Any) -> Any:
    """Do one step; what it gives, None for one that gives nothing."""
    if verb == "wait":
        page.wait_for_selector(argument, timeout=60_000)
    elif verb == "press":
        page.keyboard.press(argument)
    elif verb == "type":
        page.keyboard.type(argument)
    elif verb == "click":
        page.click(argument, timeout=60_000)
    elif verb == "dark":
        page.emulate_media(color_scheme="dark")
    elif verb == "shot":
        page.screenshot(path=argument)
    elif verb == "text":
        return page.inner_text(argument, timeout=60_000)
    elif verb == "count":
        return page.locator(argument).count()
    elif verb == "evaluate":
        return page.evaluate(argument)
    elif verb == "axe":
        # Not by add_script_tag: the page's own policy refuses every script that is not its own.
        found = importlib.util.find_spec("axe_playwright_python")
        if found is None or found.origin is None:
            raise LookupError("axe-playwright-python is missing; see tests/interop/browser.txt")
        page.evaluate(Path(found.origin).with_name("axe.min.js").read_text("utf-8") + "\n;0")
        return [
            [one["impact"], one["id"], one["nodes"][0]["html"][:200]] for one in page.evaluate(AXE)
        ]
    return None


def visit(page: Page, plan: dict[str, Any]) -> dict[str, Any]:
    """One page, all its steps."""
    errors: list[str] = []
    requests: list[str] = []
    page.on("console", lambda said: errors.append(said.text) if said.type == "error" else None)
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("dialog", lambda dialog: (errors.append(f"dialog {dialog.message}"), dialog.dismiss()))
    page.on("request", lambda request: requests.append(request.url[:200]))
    page.goto(plan["url"])
    saw = [seen(page, *step) for step in plan["steps"]]
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
