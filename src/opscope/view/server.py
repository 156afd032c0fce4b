# SPDX-License-Identifier: Apache-2.0
"""The page over runs that are still being written, or too large for a file: one ASGI application
that answers GET alone, to whoever knows its token.

A page of another site cannot ask it (Host and Origin are those of the server's own address, which
also ends DNS rebinding), nor guess the token, nor be answered anything but documents of the runs
that it was given: no path in a request names a file.
"""

from __future__ import annotations

import hmac
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any
from urllib.parse import parse_qs

from opscope.errors import OpscopeError
from opscope.report.json import json_text
from opscope.run.printable import printable
from opscope.view.documents import Documents
from opscope.view.page import live_page, live_policy

MOST_KEY = 4000  # characters
Scope = Mapping[str, Any]
Answer = tuple[int, str, bytes]
Send = Callable[[dict[str, Any]], Awaitable[None]]


class Served:
    """One run: its documents, made anew once the run has grown."""

    def __init__(self, name: str, make: Callable[[], Documents], state: Callable[[], str]) -> None:
        self.name = name
        self._make, self._state = make, state
        self._lock = threading.Lock()
        self._known: tuple[str, Documents] | None = None

    def get(self, name: str, key: str | None) -> Any:
        """A document by name and key, None where there is none; "state" is a text that changes
        when the run does.
        """
        if name == "state":
            return {"state": self._state()}
        with self._lock:
            # The documents of one page belong together: only a page that is loaded begins anew.
            if self._known is None or (name == "run" and self._known[0] != self._state()):
                self._known = (self._state(), self._make())
            return self._known[1].get(name, key)


class Application:
    """ASGI (https://asgi.readthedocs.io): GET /TOKEN/N/ is the page of run N, and
    /TOKEN/N/data/NAME its documents.
    """

    def __init__(self, runs: Sequence[Served], *, token: str, hosts: frozenset[str]) -> None:
        self._runs, self._token, self._hosts = tuple(runs), token, hosts

    async def __call__(self, scope: Scope, receive: Any, send: Send) -> None:  # noqa: ARG002 - nobody is read from
        """Answer one request; everything but HTTP is refused."""
        if scope["type"] != "http":
            return
        import asyncio

        # In a thread, so that a long question stops no other page.
        status, kind, body = await asyncio.to_thread(self.answer, scope)
        headers = [
            (b"content-type", kind.encode()),
            (b"content-length", str(len(body)).encode()),
            (b"content-security-policy", live_policy().encode()),
            (b"x-content-type-options", b"nosniff"),
            (b"x-frame-options", b"DENY"),
            (b"referrer-policy", b"no-referrer"),
            (b"cross-origin-resource-policy", b"same-origin"),
            (b"cache-control", b"no-store"),
        ]
        if status == 302:
            headers.append((b"location", body))
        await send({"type": "http.response.start", "status": status, "headers": headers})
        sent = b"" if scope["method"] == "HEAD" else body
        await send({"type": "http.response.body", "body": sent})

    def answer(self, scope: Scope) -> Answer:
        """Status, content type and body of one request."""
        headers = {name.decode("latin-1").lower(): value for name, value in scope["headers"]}
        refused = self._refusal(scope, headers)
        if refused is not None:
            return refused
        parts = str(scope["path"]).split("/")[2:]
        if parts in ([], [""]):
            return 302, "text/plain", f"/{self._token}/0/".encode()
        number, *rest = parts
        if not (number.isascii() and number.isdigit() and len(number) < 5):
            return _said(404, "no such page")
        if int(number) >= len(self._runs):
            return _said(404, "no such run")
        served = self._runs[int(number)]
        if rest in ([], [""]):
            page = live_page(title=f"opscope {served.name}", runs=[one.name for one in self._runs])
            return 200, "text/html; charset=utf-8", page.encode()
        if len(rest) == 2 and rest[0] == "data":
            return _document(served, rest[1], scope)
        return _said(404, "no such page")

    def _refusal(self, scope: Scope, headers: Mapping[str, bytes]) -> Answer | None:
        host = headers.get("host", b"").decode("latin-1")
        origin = headers.get("origin")
        if scope["method"] not in ("GET", "HEAD"):
            return _said(405, "this server only shows")
        if host not in self._hosts:
            return _said(403, "this address is not the server's own")
        if origin is not None and origin.decode("latin-1") != f"http://{host}":
            return _said(403, "only the server's own page may ask")
        given = str(scope["path"]).split("/")[1:2] or [""]
        if not hmac.compare_digest(given[0].encode(), self._token.encode()):
            return _said(404, "the address lacks the token that opscope serve printed")
        return None


def _document(served: Served, name: str, scope: Scope) -> Answer:
    query = parse_qs(scope.get("query_string", b"").decode("latin-1"), max_num_fields=4)
    key = query.get("key", [None])[0]
    if key is not None and len(key) > MOST_KEY:
        return _said(400, "the key is too long")
    try:
        content = served.get(name, key)
    except OpscopeError as error:
        return _said(400, printable(str(error)))
    except (ValueError, OSError) as error:
        return _said(400, printable(f"{name}: {error}"))
    if content is None:
        return _said(404, "the run holds nothing of that name")
    return 200, "application/json", json_text(content).encode()


def _said(status: int, text: str) -> Answer:
    return status, "text/plain; charset=utf-8", text.encode(errors="backslashreplace")
