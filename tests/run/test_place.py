# SPDX-License-Identifier: Apache-2.0
"""Folders that are written as `.` and `..`: what goes beside them has a name."""

from __future__ import annotations

from pathlib import Path

import pytest

from opscope.cli import main
from opscope.cli.tour import make_example
from opscope.errors import UsageError
from opscope.repro.write import free_folder
from opscope.run.place import with_own_name
from opscope.view.compare_files import free_file


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / "outer" / "inner"
    place.mkdir(parents=True)
    (place / "file").write_text("is not empty")
    monkeypatch.chdir(place)
    return place


@pytest.mark.parametrize("free", [free_folder, free_file])
def test_what_goes_beside_a_folder_without_a_name_is_named_after_it(free, here: Path) -> None:
    assert free(Path()) == here.with_name("inner-2")
    assert free(Path("..")) == here.parent.with_name("outer-2")
    assert free(Path("new")) == Path("new")


@pytest.mark.parametrize("act", [with_own_name, free_folder, free_file, make_example])
def test_nothing_goes_beside_the_root(act) -> None:
    with pytest.raises(UsageError, match="name a file or folder in it"):
        act(Path("/"))


def test_an_empty_folder_is_written_into(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert free_folder(Path()) == Path()


def test_a_run_beside_this_folder_is_the_one_that_is_told(
    here: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for output, made in (
        (".", here.with_name("inner-2")),
        ("..", here.parent.with_name("outer-2")),
    ):
        assert main(["run", "-o", output, "--", "true"]) == 0
        assert f"exists, recording into {made}\n" in capfd.readouterr().err
        assert (made / "run.json").exists()
