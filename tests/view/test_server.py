# SPDX-License-Identifier: Apache-2.0
"""The server: it answers its own page alone, shows runs alone, and changes nothing."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from view_runs import HOSTILE, overflowing

from opscope.scan.api import scan
from opscope.view.documents import Documents
from opscope.view.server import Application, Served

TOKEN = "secret-token"
HOST = "127.0.0.1:8642"


def served(state: list[str]) -> Served:
    def made() -> Documents:
        run = overflowing(steps=int(state[0]), name=HOSTILE)
        return Documents(run, scan(run), alone=False)

    return Served("run", made, lambda: state[0])


@pytest.fixture
def state() -> list[str]:
    return ["3"]


@pytest.fixture
def application(state: list[str]) -> Application:
    return Application([served(state)], token=TOKEN, hosts=frozenset({HOST, "localhost:8642"}))


def ask(
    application: Application, path: str, *, method: str = "GET", query: str = "", **headers: str
) -> tuple[int, dict[str, str], bytes]:
    """One request as a browser sends it; status, headers and body of the answer."""
    sent: list[dict[str, Any]] = []

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    given = {"host": HOST, **headers}
    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "query_string": query.encode(),
        "headers": [(name.encode(), value.encode()) for name, value in given.items()],
    }
    asyncio.run(application(scope, None, send))
    told = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    return sent[0]["status"], told, sent[1]["body"]


def document(application: Application, name: str, query: str = "") -> Any:
    status, headers, body = ask(application, f"/{TOKEN}/0/data/{name}", query=query)
    assert status == 200, body
    assert headers["content-type"] == "application/json"
    return json.loads(body)


def test_the_page_and_its_documents(application: Application) -> None:
    status, headers, body = ask(application, f"/{TOKEN}/0/")
    assert status == 200
    assert body.startswith(b"<!doctype html>")
    assert "connect-src 'self'" in headers["content-security-policy"]
    assert "frame-ancestors 'none'" in headers["content-security-policy"]
    assert headers["cache-control"] == "no-store"
    assert document(application, "verdict")["findings"][0]["id"] == "0.6"
    assert document(application, "calls", "key=0.1")["name"] == "blocks.0:_softmax#1"
    assert document(application, "tiles", "key=0/0/0")["columns"] == 3
    assert list(document(application, "search", "key=softmax+2")) == ["0.7"]
    assert document(application, "timeline", "key=max")["planes"][-1] == "own"


@pytest.mark.parametrize(
    "path", ["/", "/wrong/0/", "/secret-toke/0/", "//", f"/{TOKEN}x/0/data/run"]
)
def test_without_the_token_nothing_is_answered(application: Application, path: str) -> None:
    status, _, body = ask(application, path)
    assert status == 404
    assert b"blocks" not in body


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8642", "127.0.0.1", "", "127.0.0.1:1"]
)
def test_another_host_is_refused_as_after_dns_rebinding(
    application: Application, host: str
) -> None:
    assert ask(application, f"/{TOKEN}/0/data/verdict", host=host)[0] == 403


def test_another_origin_is_refused_and_ones_own_is_not(application: Application) -> None:
    path = f"/{TOKEN}/0/data/run"
    assert ask(application, path, origin="https://evil.example")[0] == 403
    assert ask(application, path, origin="null")[0] == 403
    assert ask(application, path, origin=f"http://{HOST}")[0] == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "PATCH"])
def test_nothing_can_be_changed(application: Application, method: str) -> None:
    assert ask(application, f"/{TOKEN}/0/", method=method)[0] == 405


@pytest.mark.parametrize(
    "path",
    [
        "/0/data/../../../etc/passwd", "/0/data/%2e%2e", "/0/data/__class__", "/0/../", "/1/", "/-1/",
        "/0/static/app.js", "/0/data/", "/99999999999/", "/٣/",
    ],
)  # fmt: skip
def test_nothing_but_documents_is_served(application: Application, path: str) -> None:
    assert ask(application, f"/{TOKEN}{path}")[0] == 404


@pytest.mark.parametrize(
    ("name", "query"),
    [
        ("tiles", "key=0/0"), ("tiles", "key=" + "0" * 5000), ("timeline", "key=1)%20FROM%20x;--"),
        ("calls", "key=" + "9" * 30), ("calls", "key=a.b"), ("tiles", "key=-1/0/0"),
        ("timeline", "key=(SELECT%20content%20FROM%20read_text('/etc/hostname'))"),
    ],
)  # fmt: skip
def test_a_wrong_key_is_said_in_one_line(application: Application, name: str, query: str) -> None:
    status, headers, body = ask(application, f"/{TOKEN}/0/data/{name}", query=query)
    assert status in (400, 404)
    assert headers["content-type"].startswith("text/plain")
    assert b"\n" not in body


def test_a_run_that_grew_is_shown_when_the_page_is_loaded_again(
    application: Application, state: list[str]
) -> None:
    assert len(document(application, "timeline")["rows"]) == 3
    assert document(application, "state") == {"state": "3"}
    state[0] = "5"
    assert len(document(application, "timeline")["rows"]) == 3
    document(application, "run")
    assert len(document(application, "timeline")["rows"]) == 5
