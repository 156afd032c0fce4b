# SPDX-License-Identifier: Apache-2.0
"""Collections that come as archives: read, named by the archive, bounded, and never written
anywhere else.
"""

from __future__ import annotations

import gzip
import io
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from opscope.cli import main

from .aicore_case import collection, sound
from .aicore_logs import classic, failed
from .conftest import part

Aicore = Callable[..., tuple[int, dict[str, Any]]]


@pytest.mark.parametrize("ending", ["tar.gz", "tar", "tar.xz", "zip"])
def test_a_collection_as_an_archive(aicore: Aicore, tmp_path: Path, ending: str) -> None:
    place = collection(tmp_path / "c", values=sound())
    archive = tmp_path / f"collected.{ending}"
    if ending == "zip":
        with zipfile.ZipFile(archive, "w") as zipped:
            for path in sorted(place.rglob("*")):
                zipped.write(path, path.relative_to(tmp_path))
    else:
        with tarfile.open(archive, f"w:{ending.partition('.')[2]}") as tar:
            tar.add(place, "c")
    code, document = aicore(archive, "-o", tmp_path / "out")
    (finding,) = document["findings"]
    assert (code, finding["op"], part(finding, "node")["file"]) == (
        1,
        "L2Loss",
        f"{archive}/c/graph/ge_proto_00000001_graph_1_Build.txt",
    )
    assert part(finding, "error")["files"] == [f"{archive}/c/log/plog-4711_1.log"]
    assert (tmp_path / "out" / "case" / "inputs" / "input.0.npy").is_file()
    info = (tmp_path / "out" / "info.txt").read_text()
    assert "opscope-" not in info.replace(str(tmp_path), "")  # which may have such a name itself


def test_rotated_logs_are_read(aicore: Aicore, tmp_path: Path) -> None:
    (tmp_path / "plog-4711_1.log.gz").write_bytes(gzip.compress(classic(1.0).encode()))
    (tmp_path / "plog-4711_2.log").write_text(failed(1.1, "A"))
    _, document = aicore(tmp_path)
    (finding,) = document["findings"]
    assert (part(finding, "error")["kernel"], len(part(finding, "cores")["cores"])) == ("A", 1)


def test_members_that_lead_elsewhere_are_left_out(aicore: Aicore, tmp_path: Path) -> None:
    archive = tmp_path / "in" / "x.tar"
    archive.parent.mkdir()
    with tarfile.open(archive, "w") as tar:
        for name in ("../../outside.log", "/absolute.log", "plog-1_1.log"):
            text = (classic(1.0) + failed(1.1, "A")).encode()
            info = tarfile.TarInfo(name)
            info.size = len(text)
            tar.addfile(info, io.BytesIO(text))
        link = tarfile.TarInfo("link.log")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(link)
    _, document = aicore(archive)
    assert len(document["findings"]) == 1
    assert not (tmp_path / "outside.log").exists()
    assert not Path("/absolute.log").exists()


def test_a_torn_archive_gives_what_is_whole(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "plog-4711_1.log.gz"
    text = (classic(1.0) + failed(1.1, "A")).encode() + bytes(range(256)) * 2000
    path.write_bytes(gzip.compress(text, 0)[:-2000])
    assert main(["aicore", str(path)]) == 1
    assert "cannot be unpacked to its end" in capsys.readouterr().out.replace("\n         ", " ")


def test_holes_of_a_sparse_log_are_not_read(aicore: Aicore, tmp_path: Path) -> None:
    """A log of 20 GiB, an error at its head and one at its end: read in no time, offsets are those
    of the file.
    """
    text = (classic(1.0) + failed(1.1, "0_11_L2Loss")).encode()
    with (tmp_path / "plog-1_1.log").open("wb") as file:
        file.write(text)
        file.seek(20 << 30)
        file.write(b"x\n" + (classic(2.0, serial=8) + failed(2.1, "0_12_Other")).encode())
    code, document = aicore(tmp_path)
    assert (code, len(document["findings"])) == (1, 2)
    assert [part(finding, "error")["offset"] for finding in document["findings"]] == [
        0,
        (20 << 30) + 2,
    ]
