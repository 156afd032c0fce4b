# SPDX-License-Identifier: Apache-2.0
"""`opscope serve`: the page of runs of any size, also while they are still being written."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
from cyclopts import Parameter

from opscope.cli.failing import note
from opscope.cli.options import Operators
from opscope.cli.printing import say
from opscope.cli.report import REDACT, redacted_kinds
from opscope.errors import UnavailableError, UsageError
from opscope.run.remote import RemoteFolder, is_url

if TYPE_CHECKING:
    from opscope.view.documents import Documents
    from opscope.view.server import Served

PORT, TRIED = 8642, 50
LOOPBACK = ("127.0.0.1", "localhost", "::1")


def serve(
    *runs: str,
    host: Annotated[
        str, Parameter(help="Address to listen on; another than this machine's own is said aloud.")
    ] = "127.0.0.1",
    port: Annotated[
        int, Parameter(help="The first port to try; one that is taken is passed by.")
    ] = (PORT),
    redact: Annotated[str, Parameter(help=REDACT)] = "",
    operators: Operators = None,
    show: Annotated[
        bool, Parameter(name="--open", help="Open the page in a browser.", negative=())
    ] = False,
) -> int:
    """Show runs in the browser until Ctrl-C: the page of opscope report over all their calls.

    The printed address holds a token; without it nothing is answered. Nothing is written, and
    nothing but these runs is served.

    Parameters
    ----------
    runs
        Runs, or any known dumps.
    """
    if not runs:
        raise UsageError("which run? write: opscope serve RUN")
    try:
        import uvicorn
    except ModuleNotFoundError as error:
        raise UnavailableError(
            "opscope serve needs uvicorn: pip install 'opscope[serve]'; opscope report writes a "
            "file without it"
        ) from error
    import secrets

    from opscope.operators.catalogue import declare_rows
    from opscope.operators.declare import read_operators
    from opscope.view.server import Application

    kinds = redacted_kinds(redact)
    if operators is not None:  # for as long as it serves, in whichever thread a page is made
        declare_rows(read_operators(operators))
    served = [_served(run, kinds) for run in runs]
    listening = free_socket(host, port)
    number = listening.getsockname()[1]
    token = secrets.token_urlsafe(18)
    shown = f"[{host}]" if ":" in host else host
    hosts = {f"{name}:{number}" for name in ("127.0.0.1", "localhost", "[::1]", shown)}
    if host not in LOOPBACK:
        note(f"listening on {host}: whoever reaches it and knows the address sees these runs")
    address = f"http://{shown}:{number}/{token}/"
    say(address)
    if show:
        import webbrowser

        webbrowser.open(address)
    application = Application(served, token=token, hosts=frozenset(hosts))
    config = uvicorn.Config(
        application,
        log_level="warning",
        access_log=False,
        lifespan="off",
        server_header=False,
        ws="none",
    )
    uvicorn.Server(config).run(sockets=[listening])
    return 0


def free_socket(host: str, port: int) -> socket.socket:
    """A socket that listens on this port or the next free one; UsageError where none is."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for number in range(port, min(port + TRIED, 65536)):
        listening = socket.socket(family, socket.SOCK_STREAM)
        try:
            listening.bind((host, number))
            listening.listen(64)
        except OSError as error:
            listening.close()
            if isinstance(error, socket.gaierror):
                raise UsageError(f"--host {host}: {error.strerror}") from error
            continue
        if number != port:
            note(f"port {port} is taken; listening on {number}")
        return listening
    raise UsageError(f"--port {port}: neither it nor the {TRIED} after it can be had on {host}")


def _served(run: str, redact: frozenset[str]) -> Served:
    from opscope.formats.registry import open_run
    from opscope.view.server import Served

    open_run(run)  # what cannot be read is said before a server starts
    return Served(Path(run).name, _documents(run, redact), lambda: state_of(run))


def _documents(run: str, redact: frozenset[str]) -> Callable[[], Documents]:
    def made() -> Documents:
        from opscope.formats.registry import open_run
        from opscope.scan.api import scan
        from opscope.view.documents import Documents

        opened = open_run(run)
        document = msgspec.structs.replace(scan(opened), runs=(run,))
        return Documents(opened, document, redact=redact, alone=False)

    return made


def state_of(run: str | os.PathLike[str]) -> str:
    """A text that changes when a run grows, a URL too: how many files and bytes it has.

    FormatError where a URL cannot be listed.
    """
    if is_url(os.fspath(run)):
        sizes = list(RemoteFolder(os.fspath(run)).sizes().values())
    elif not (path := Path(run)).is_dir():
        return str(path.stat().st_size)
    else:
        sizes = [file.stat().st_size for file in path.rglob("*") if file.is_file()]
    return f"{len(sizes)} {sum(sizes)}"
