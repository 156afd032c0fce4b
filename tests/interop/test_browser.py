# SPDX-License-Identifier: Apache-2.0
"""The page in a browser: Debian's chromium, driven by playwright in the environment that
OPSCOPE_BROWSER_PYTHON names.

What is asserted: what one sees, that the console stays silent, that nothing is asked of a network,
that axe-core finds nothing serious. Seconds are printed, not
asserted.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from opscope.formats.registry import open_run
from opscope.run.finding import Finding
from opscope.scan.api import scan
from opscope.view.notebook import document_html

ROOT = Path(__file__).parents[2]
PYTHON = os.environ.get("OPSCOPE_BROWSER_PYTHON")
sys.path.insert(0, str(ROOT / "tests" / "view"))
pytestmark = [
    pytest.mark.interop,
    pytest.mark.skipif(PYTHON is None, reason="OPSCOPE_BROWSER_PYTHON names no interpreter"),
    pytest.mark.skipif(
        not (os.environ.get("OPSCOPE_CHROMIUM") or shutil.which("chromium")),
        reason="no chromium on PATH, and OPSCOPE_CHROMIUM names none",
    ),
]
NET = Path(__file__).with_name("two_heads.py")
LOADED = ["wait", "main#content h1"]
SERIOUS = {"serious", "critical"}


def opscope(*words: object, place: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, "-m", "opscope", *map(str, words)],
        cwd=place,
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


def browse(place: Path, *pages: tuple[str, list[list[Any]]]) -> list[dict[str, Any]]:
    """Visit pages, each an address and its steps."""
    plan = place / "plan.json"
    plan.write_text(json.dumps([{"url": url, "steps": steps} for url, steps in pages]))
    done = subprocess.run(
        [str(PYTHON), str(Path(__file__).with_name("browse.py")), str(plan)],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of the demo's run."""
    place = tmp_path_factory.mktemp("demo")
    program = ROOT / "examples" / "tiny_gpt" / "train.py"
    done = opscope("run", "-o", "demo", "--", sys.executable, program, place=place)
    assert done.returncode == 0, done.stderr
    done = opscope("report", "demo", "-o", "demo.html", place=place)
    assert done.returncode == 0, done.stderr
    return place / "demo.html"


def silent(found: list[dict[str, Any]]) -> None:
    """No error in any console, and nothing asked of anybody but the file or server itself."""
    for one in found:
        assert one["errors"] == []
        assert {url.split("#")[0] for url in one["requests"]} == {one["requests"][0].split("#")[0]}


@pytest.fixture(scope="module")
def origin(demo: Path) -> Finding:
    """Its first finding; which step it is in depends on how the processor rounds float16."""
    return scan(open_run(demo.parent / "demo")).findings[0]


def views(origin: Finding) -> tuple[str, ...]:
    return ("verdict", "timeline", "model", f"call/0.{origin.index}", "call", "training")


def test_every_view_of_the_demo_opens_from_disk(
    demo: Path, origin: Finding, tmp_path: Path
) -> None:
    assert demo.stat().st_size < 1_000_000
    url = demo.as_uri()
    steps = [LOADED, ["text", "main#content h1"]]
    found = browse(tmp_path, *((f"{url}#{view}", steps) for view in views(origin)))
    silent(found)
    assert "bmm in blocks.0.attn" in found[0]["saw"][0]
    assert found[3]["saw"][0] == found[4]["saw"][0] == "blocks.0.attn:bmm#1"


def test_the_path_leads_from_the_origin_to_the_loss(demo: Path, tmp_path: Path) -> None:
    steps = [
        LOADED, ["count", ".node.origin"], ["count", ".node.reached"], ["count", ".node.unsound"],
        ["text", ".row.here"], ["click", ".node.origin"], ["wait", ".hero.call"],
        ["text", "main#content h1"], ["evaluate", "location.hash"],
    ]  # fmt: skip
    (found,) = browse(tmp_path, (demo.as_uri(), steps))
    silent([found])
    origins, reached, unsound, line, name, where = found["saw"]
    assert (origins, reached) == (1, 1)
    assert unsound > 5
    assert "scores = q @ k.transpose(-1, -2)" in line
    assert name == "blocks.0.attn:bmm#1"
    assert where.startswith("#call/0.")


def test_the_keyboard_does_everything(demo: Path, origin: Finding, tmp_path: Path) -> None:
    """Search and open a call, change the view, go along the timeline and down the tree."""
    steps = [
        LOADED, ["press", "/"], ["type", f"attn bmm {origin.step}"], ["wait", "#found li"], ["press", "ArrowDown"],
        ["press", "Enter"], ["wait", ".hero.call"], ["text", "main#content h1"],
        ["press", "2"], ["wait", "canvas.strip"], ["evaluate", "document.querySelector('canvas.strip').focus()"],
        ["press", "ArrowRight"], *[["press", "ArrowDown"]] * origin.step, ["press", "+"],
        ["text", "#cell"], ["press", "Enter"], ["wait", ".hero.call"], ["press", "3"], ["wait", "[role=tree]"],
        ["evaluate", "document.querySelector('[role=treeitem][tabindex=\"0\"]').focus()"],
        ["press", "ArrowDown"], ["press", "ArrowDown"], ["evaluate", "location.hash"],
    ]  # fmt: skip
    (found,) = browse(tmp_path, (demo.as_uri(), steps))
    silent([found])
    name, cell, where = (one for one in found["saw"] if one)
    assert "bmm" in name
    assert f"step {origin.step}" in cell
    assert where.startswith("#model/blocks")


def test_a_link_brings_back_language_theme_and_place(demo: Path, tmp_path: Path) -> None:
    url = demo.as_uri()
    ground = ["evaluate", "getComputedStyle(document.body).backgroundColor"]
    found = browse(
        tmp_path,
        (f"{url}#verdict?lang=zh&theme=dark", [LOADED, ["text", "main#content h1"], ground]),
        (url, [["dark", None], LOADED, ground]),
        (url, [LOADED, ground]),
        (f"{url}#timeline?colour=magnitude&at=3,2", [["wait", "canvas.strip"], ["text", "#cell"],
         ["evaluate", "document.querySelector('.controls select').value"]]),
    )  # fmt: skip
    silent(found)
    assert "有限" in found[0]["saw"][0]
    assert found[0]["saw"][1] == found[1]["saw"][0] != found[2]["saw"][0]
    assert found[3]["saw"][1] == "magnitude"
    assert "step 2" in found[3]["saw"][0]


def test_axe_finds_nothing_serious(demo: Path, origin: Finding, tmp_path: Path) -> None:
    url = demo.as_uri()
    pages = [
        (f"{url}#{view}?lang={language}&theme={theme}", [LOADED, ["axe", None]])
        for view in views(origin)
        for language, theme in (("en", "light"), ("zh", "dark"))  # neither changes the other
    ]
    found = browse(tmp_path, *pages)
    for (address, _), one in zip(pages, found, strict=True):
        wrong = [violation for violation in one["saw"][0] if violation[0] in SERIOUS]
        assert wrong == [], address


def test_a_hostile_run_is_text_and_nothing_more(tmp_path: Path) -> None:
    from view_runs import HOSTILE, overflowing

    from opscope.scan.api import scan
    from opscope.view.documents import Documents
    from opscope.view.page import page

    run = overflowing(name=HOSTILE, source=f"/u/{HOSTILE}.py:3")
    document = scan(run)
    file = tmp_path / "hostile.html"
    text = page(Documents(run, document).whole(), title=HOSTILE, text=HOSTILE)
    file.write_text(text, encoding="utf-8")
    views = (
        "verdict",
        "timeline?at=0,2",
        "model/blocks.0",
        "call/0.6",
        "training",
        f"call/{HOSTILE}",
    )
    steps = [["wait", "main#content"], ["evaluate", "document.title"], ["count", "img"],
             ["count", "script"], ["text", "body"]]  # fmt: skip
    found = browse(tmp_path, *((f"{file.as_uri()}#{view}", steps) for view in views))
    silent(found)
    for one in found:
        title, images, scripts, _ = one["saw"]
        assert title.startswith("opscope")
        assert (images, scripts) == (0, 4)
    assert "<img src=x" in found[0]["saw"][3]


def test_served_and_torn(demo: Path, tmp_path: Path) -> None:
    """The live page over a run whose last batch is torn: it shows what is there and says what is
    missing.
    """
    pytest.importorskip("uvicorn")
    run = demo.parent / "demo"
    (table,) = run.glob("processes/*/calls.arrow")
    whole = table.read_bytes()
    table.write_bytes(whole[: len(whole) * 2 // 3])
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    words = [sys.executable, "-m", "opscope", "serve", str(run)]
    try:
        with subprocess.Popen(
            words, stdout=subprocess.PIPE, env=environment, text=True, cwd=tmp_path
        ) as served:
            assert served.stdout is not None
            address = served.stdout.readline().strip()
            steps = [LOADED, ["text", "body"], ["press", "2"], ["wait", "canvas.strip"]]
            (found,) = browse(tmp_path, (address, steps))
            served.send_signal(signal.SIGINT)
    finally:
        table.write_bytes(whole)
    assert found["errors"] == []
    assert all(url.startswith(address.rpartition(":")[0]) for url in found["requests"])
    assert "torn" in found["saw"][0]


def accessible(found: list[dict[str, Any]]) -> None:
    for one in found:
        for told in one["saw"]:
            if isinstance(told, list):
                assert [violation for violation in told if violation[0] in SERIOUS] == []


def test_a_comparison_draws_its_difference(tmp_path: Path) -> None:
    """A change of one head and four positions, as a picture, with both module trees beside it."""
    environment = {"wrong": "1", "right": "", "again": ""}
    for name, value in environment.items():
        os.environ["WRONG"] = value
        words = ("run", "-o", name, "--values", "full", "--", sys.executable, NET)
        assert opscope(*words, place=tmp_path).returncode == 0
    del os.environ["WRONG"]
    done = opscope("report", "wrong", "right", "-o", "c.html", place=tmp_path)
    assert done.returncode == 0, done.stderr
    url = (tmp_path / "c.html").as_uri()
    steps = [LOADED, ["count", ".picture canvas"], ["text", ".sides"], ["count", ".all tbody tr"],
             ["axe", None], ["click", ".sides tbody tr:nth-child(2) a"], ["text", "main .controls"],
             ["click", ".all th button"], ["count", ".all tbody tr"]]  # fmt: skip
    colours = [
        "evaluate",
        "[...document.querySelectorAll('.controls option')].map(o => o.value)+''",
    ]
    timeline = [["wait", "canvas.strip"], colours]
    found = browse(
        tmp_path, (f"{url}#compare", steps), (f"{url}#timeline?colour=distance", timeline)
    )
    silent(found)
    accessible(found)
    pictures, trees, rows, _, chosen, fewer = found[0]["saw"]
    assert pictures > 0
    assert "attn" in trees
    assert rows >= fewer > 0
    assert "attn" in chosen
    assert "distance" in found[1]["saw"][0]

    done = opscope("report", "right", "wrong", "again", "-o", "three.html", place=tmp_path)
    assert done.returncode == 0, done.stderr
    steps = [LOADED, ["text", ".several tbody tr:nth-child(2)"], ["text", "main h1"], ["axe", None],
             ["click", ".several thead th:nth-child(4) a"], ["wait", ".several th.here:nth-child(4)"],
             ["text", "main h1"], ["evaluate", "location.hash"]]  # fmt: skip
    found = browse(tmp_path, ((tmp_path / "three.html").as_uri() + "#compare", steps))
    silent(found)
    accessible(found)
    attention, first, _, second, where = found[0]["saw"]
    assert [word in attention for word in ("attn", "origin", "same")] == [True] * 3
    assert (first, second) == ("Where the two runs part", "The runs agree.")
    assert "with=1" in where


def notebook(path: Path, *shown: str) -> Path:
    """A notebook whose cells show this HTML."""
    cells = [
        {
            "id": f"cell{place}",
            "cell_type": "code",
            "source": f"# {path.stem}",
            "metadata": {},
            "execution_count": 1,
            "outputs": [
                {
                    "output_type": "execute_result",
                    "execution_count": 1,
                    "metadata": {},
                    "data": {"text/html": said, "text/plain": ""},
                }
            ],
        }
        for place, said in enumerate(shown)
    ]
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    written = {
        "nbformat": 4,
        "nbformat_minor": 5,
        "metadata": {"kernelspec": kernel},
        "cells": cells,
    }
    path.write_text(json.dumps(written), encoding="utf-8")
    return path


def test_jupyterlab_shows_it_with_scripts_and_without(demo: Path, tmp_path: Path) -> None:
    """A verdict and a run as cells: a notebook that is trusted has the page, one that is not the
    words, the tables and the picture.
    """
    run = open_run(demo.parent / "demo")
    said = (document_html(scan(run)), run._repr_html_())
    trusted = notebook(tmp_path / "trusted.ipynb", *said)
    notebook(tmp_path / "strange.ipynb", *said)
    environment = {**os.environ, "JUPYTER_DATA_DIR": str(tmp_path / "data"), "HOME": str(tmp_path)}
    words = [str(PYTHON), "-m", "jupyter", "trust", str(trusted)]
    subprocess.run(words, check=True, env=environment, capture_output=True, timeout=120)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = [str(PYTHON), "-m", "jupyterlab", "--no-browser", "--allow-root"]
    words += ["--ServerApp.token=opscope", f"--ServerApp.port={port}"]
    words += [f"--ServerApp.root_dir={tmp_path}"]
    log = tmp_path / "jupyterlab.log"
    with (
        log.open("w") as file,
        subprocess.Popen(words, env=environment, stdout=file, stderr=subprocess.STDOUT) as lab,
    ):
        try:
            until(lambda: "is running at" in log.read_text() or lab.poll() is not None)
            address = f"http://127.0.0.1:{port}/lab/tree/{{}}.ipynb?token=opscope&reset"
            shown = ".jp-OutputArea-output"
            whole = [["inside", "main#content h1"], ["text", shown], ["count", f"{shown} img"]]
            poor = [["wait", f"{shown} table"], ["count", f"{shown} iframe"], *whole[1:]]
            with_scripts, without = browse(
                tmp_path, (address.format("trusted"), whole), (address.format("strange"), poor)
            )
        finally:
            lab.terminate()
            with suppress(subprocess.TimeoutExpired):
                lab.wait(30)
            lab.kill()  # it does not always end when it is asked to
    headline, words_of_it, pictures = with_scripts["saw"]
    assert "bmm in blocks.0.attn" in headline
    assert "aten::bmm" in words_of_it
    assert pictures == 1
    frames, same_words, pictures = without["saw"]
    assert (frames, pictures) == (0, 1)
    assert "aten::bmm" in same_words


def until(holds: Callable[[], bool]) -> None:
    """Wait for something; two minutes at most."""
    ends = time.monotonic() + 120
    while not holds() and time.monotonic() < ends:
        time.sleep(0.1)
    assert holds()


def test_ranks_stand_beside_one_another(tmp_path: Path) -> None:
    words = ("run", "-o", "two", "--", sys.executable, NET, "2")
    done = opscope(*words, place=tmp_path)
    assert done.returncode == 0, done.stderr
    assert opscope("report", "two", "-o", "two.html", place=tmp_path).returncode == 0
    url = (tmp_path / "two.html").as_uri()
    steps = [LOADED, ["count", ".matrix tbody tr"], ["text", "main"], ["axe", None]]
    found = browse(tmp_path, (f"{url}#ranks", steps))
    silent(found)
    accessible(found)
    assert found[0]["saw"][0] == 2
    assert "allreduce" in found[0]["saw"][1]


FRAMES = """async () => {
  const strip = document.querySelector('canvas.strip'), box = strip.getBoundingClientRect(), frames = [];
  let last = performance.now();
  for (let turn = 0; turn < 90; turn++) {
    strip.dispatchEvent(new WheelEvent('wheel', {deltaY: turn < 60 ? -60 : 90, shiftKey: turn % 3 === 2,
      clientX: box.left + 500, clientY: box.top + 150, bubbles: true, cancelable: true}));
    await new Promise(requestAnimationFrame);
    frames.push(performance.now() - last); last = performance.now();
  }
  const paint = performance.getEntriesByName('first-contentful-paint')[0].startTime;
  return {paint, worst: Math.max(...frames), middle: frames.sort((a, b) => a - b)[45]};
}"""


# How many pixels have the colours of unsound calls and of origins, once the tiles are there.
WRONG = """async () => {
  const strip = document.querySelector('canvas.strip');
  let found = 0;
  for (let turn = 0; turn < 300 && !found; turn++) {
    await new Promise(requestAnimationFrame);
    const {data} = strip.getContext('2d').getImageData(0, 0, strip.width, strip.height);
    for (let at = 0; at < data.length; at += 4) {
      found += (data[at] === 194 && data[at + 1] === 65) || (data[at] === 91 && data[at + 1] === 15);
    }
  }
  return found;
}"""


def test_a_million_calls(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The file is small and the timeline is whole; how fast is printed."""
    from large_run import write_large_run

    write_large_run(tmp_path / "large")
    done = opscope("report", "large", "-o", "large.html", place=tmp_path)
    assert done.returncode == 0, done.stderr
    size = (tmp_path / "large.html").stat().st_size
    assert size < 10_000_000
    url = (tmp_path / "large.html").as_uri()
    pages = [
        (f"{url}#timeline", [["wait", "canvas.strip"], ["evaluate", FRAMES]]),
        (f"{url}#timeline?theme=light", [["wait", "canvas.strip"], ["evaluate", WRONG]]),
        (f"{url}#timeline?at=700,700", [["wait", "canvas.strip"], ["wait", "#cell:has-text('origin')"],
         ["text", "#cell"]]),
        (f"{url}#verdict", [LOADED, ["count", ".node.folded"], ["text", "main#content h1"]]),
    ]  # fmt: skip
    found = browse(tmp_path, *pages)
    silent(found)
    assert found[1]["saw"][0] > 100  # one step of a thousand is wrong, and is seen
    assert "step 700" in found[2]["saw"][0]
    assert found[3]["saw"][0] == 1
    with capsys.disabled():
        print(f"\na million calls: {size / 1e6:.2f} MB, {found[0]['saw'][0]} ms")
