# SPDX-License-Identifier: Apache-2.0
"""The disk fails, the process dies, the process forks: the program goes on, and what was flushed
can be read.
"""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from pathlib import Path

import msgspec
import numpy as np
import pytest
from run_rows import append_step, call, new_run, random_bytes, tensor
from safetensors.numpy import load_file

from opscope.errors import FormatError, UsageError
from opscope.run.arrow import decode_stream, encode_rows
from opscope.run.database import sql
from opscope.run.descriptor import LostFileError
from opscope.run.query import calls
from opscope.run.schema import Process
from opscope.run.store import spool as spool_module
from opscope.run.store.blackbox import BlackBox, Facts, blackbox_text, read_blackbox
from opscope.run.store.layout import (
    BLACKBOX,
    create_run,
    process_facts,
    read_run_file,
    seal_run,
    update_process,
)
from opscope.run.store.reader import NativeRun
from opscope.run.store.shards import ShardFile
from opscope.run.store.spool import Spool
from opscope.run.store.tables import TableFile
from opscope.run.store.writer import ProcessWriter

HERE = Path(__file__).parent
PROGRAM = """
    import os, signal, sys, time
    from pathlib import Path
    sys.path.insert(0, {here!r})
    import numpy as np
    from run_rows import append_step, new_run, random_bytes
"""


def program(body: str, *arguments: object, **options: object) -> subprocess.CompletedProcess[str]:
    """Run a program that records, in a process of its own."""
    text = textwrap.dedent(PROGRAM.format(here=str(HERE))) + textwrap.dedent(body)
    return subprocess.run(
        [sys.executable, "-c", text, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=240,
        **options,
    )  # type: ignore[call-overload,no-any-return]


class TestDiskFull:
    def test_the_limit_of_file_sizes(self, tmp_path: Path) -> None:
        """EFBIG comes from pwrite as ENOSPC does: tables and shards stop, the program ends as it
        would.
        """
        done = program(
            """
            import resource
            run, writer = new_run(Path(sys.argv[1]), flush_seconds=0.05)
            append_step(writer, 0)
            writer.flush()
            resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
            for step in range(1, 400):
                writer.keep_value(random_bytes(50_000, step), dtype="uint8", shape=(50_000,))
                append_step(writer, step)
            writer.flush()
            print(writer.failed is not None, writer.keep_value(b"x", dtype="uint8", shape=(1,)))
            writer.flush()
            writer.close(0)
            sys.exit(7)
            """,
            tmp_path,
        )
        assert (done.returncode, done.stdout) == (7, "True None\n")
        assert done.stderr.count("opscope:") == 1
        assert "File too large; recording ended, the program goes on" in done.stderr
        run = NativeRun(tmp_path / "run")
        rows = list(decode_stream("calls", run.table("calls")))
        assert [row.index for row in rows] == list(range(len(rows)))
        assert len(rows) >= 4
        assert len(rows) % 4 == 0
        assert not any("torn" in problem for problem in run.problems)
        assert not list((tmp_path / "run" / "processes").glob("*/*.partial"))

    def test_no_space_for_a_shard(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        def full(file: int, offset: int, length: int) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(os, "posix_fallocate", full)
        path, writer = new_run(tmp_path)
        assert writer.keep_value(b"small", dtype="uint8", shape=(5,), seal=True) is not None
        assert writer.keep_value(random_bytes(9 << 20), dtype="uint8", shape=(9 << 20,)) is None
        assert "No space left on device" in str(writer.failed)
        append_step(writer, 0)
        writer.end_step(1)
        writer.flush()
        writer.update(rank=1)
        writer.close(0)
        assert capsys.readouterr().err.count("opscope:") == 1
        run = NativeRun(path)
        assert run.processes[0].exit_code is None
        [problem] = run.problems
        assert problem.endswith(
            "recording ended before the process did: No space left on device; what came later "
            "was not seen"
        )

    def test_why_recording_ended_is_noted_once_there_is_room(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def full(*_: object) -> None:
            raise OSError(28, "No space left on device")

        path, writer = new_run(tmp_path)
        monkeypatch.setattr(os, "pwrite", full)
        monkeypatch.setattr(Path, "replace", full)
        append_step(writer, 0)
        writer.flush()
        assert NativeRun(path).processes[0].failed is None
        monkeypatch.undo()
        writer.close(0)
        assert NativeRun(path).processes[0].failed == "No space left on device"

    def test_a_batch_that_did_not_fit_is_cut_off(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """pwrite may write half of a batch before it fails."""
        path, writer = new_run(tmp_path)
        append_step(writer, 0)
        writer.flush()
        real = os.pwrite

        def half(file: int, data: memoryview, offset: int) -> int:
            if len(data) > 1000:
                return real(file, data[:500], offset)
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(os, "pwrite", half)
        append_step(writer, 1)
        writer.flush()
        monkeypatch.undo()
        assert writer.failed is not None
        run = NativeRun(path)
        assert len(list(decode_stream("calls", run.table("calls")))) == 4
        assert not any("torn" in problem for problem in run.problems)


class TestSealing:
    def test_a_torn_process_is_left_out(self, tmp_path: Path) -> None:
        path, writer = new_run(tmp_path)
        append_step(writer, 0)
        writer.close(0)
        (writer.directory / "process.json").write_text("{")
        assert seal_run(path)
        assert read_run_file(path).processes == ()

    def test_a_run_that_is_gone_or_cannot_be_written(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        path, writer = new_run(tmp_path)
        writer.close(0)

        def full(source: Path, target: Path) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(Path, "replace", full)
        assert not seal_run(path)
        with pytest.raises(UsageError, match="No space left"):
            create_run(tmp_path / "other")
        monkeypatch.undo()
        assert not read_run_file(path).sealed
        assert not list(path.glob(".run.json*"))
        (path / "run.json").unlink()
        assert not seal_run(path)


class TestPastThePageCache:
    """Shards are written with O_DIRECT where that works, and otherwise as any file."""

    @pytest.mark.parametrize("fast", [True, False])
    def test_both_ways_give_the_same_file(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fast: bool
    ) -> None:
        monkeypatch.setattr(Spool, "prefer_direct", lambda _: fast)
        self.check(tmp_path)

    @pytest.mark.skipif(not os.access("/dev/shm", os.W_OK), reason="no file system in memory here")
    def test_a_file_system_in_memory(self) -> None:
        with tempfile.TemporaryDirectory(dir="/dev/shm") as directory:
            self.check(Path(directory))

    def test_a_file_system_that_refuses_when_written(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        real, refused = os.pwrite, []

        def pwrite(file: int, data: memoryview, offset: int) -> int:
            if fcntl.fcntl(file, fcntl.F_GETFL) & getattr(os, "O_DIRECT", 0):
                refused.append(offset)
                raise OSError(22, "Invalid argument")
            return real(file, data, offset)

        monkeypatch.setattr(os, "pwrite", pwrite)
        monkeypatch.setattr(Spool, "prefer_direct", lambda _: True)
        self.check(tmp_path)
        assert len(refused) <= 1

    def check(self, directory: Path) -> None:
        path, writer = new_run(directory, flush_seconds=3600)
        blocks = [random_bytes(size, size) for size in (5, 9 << 20, 3, 20_000_001, 8 << 20, 77)]
        refs = [writer.keep_value(block, dtype="uint8", shape=block.shape) for block in blocks]
        rows = [
            tensor(i, dtype="uint8", shape=block.shape, value=ref)
            for i, (block, ref) in enumerate(zip(blocks, refs, strict=True))
        ]
        writer.append("tensors", encode_rows("tensors", rows), step=0)
        writer.close(0)
        assert writer.failed is None
        run = NativeRun(path)
        for i, block in enumerate(blocks):
            assert run.value(run.tensors_of(0, i)[0]).tobytes() == block.tobytes()
        first = refs[0]
        assert first is not None
        assert len(load_file(writer.directory / first.shard)) == len(blocks)

    def test_the_faster_way_is_taken(self) -> None:
        spool = Spool()
        assert spool.prefer_direct() is (spool_module.O_DIRECT != 0)
        for rates, direct in (
            ({True: 1e9}, True),
            ({True: 1e8}, False),
            ({True: 1e8, False: 5e7}, True),
            ({True: 1e8, False: 2e9}, False),
        ):
            spool._rates = rates
            assert spool.prefer_direct() is direct


class TestNoPermission:
    def test_a_directory_that_is_none(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        (tmp_path / "file").write_text("")
        writer = ProcessWriter(tmp_path / "file", process_facts())
        append_step(writer, 0)
        assert writer.keep_value(b"x", dtype="uint8", shape=(1,)) is None
        writer.flush()
        writer.close(0)
        writer.drop_after_fork()
        assert writer.failed is not None
        assert capsys.readouterr().err.count("opscope:") == 1

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
    def test_a_directory_of_somebody_else(self, tmp_path: Path) -> None:
        for directory in (tmp_path, *tmp_path.parents):
            if (
                directory.owner() == "root"
                and directory != Path("/")
                and directory.stat().st_mode & 0o7 == 0
            ):
                directory.chmod(directory.stat().st_mode | 0o5)
        path = create_run(tmp_path / "run")
        done = program(
            """
            from opscope.run.store.layout import process_facts
            from opscope.run.store.writer import ProcessWriter
            os.seteuid(65534)
            writer = ProcessWriter(sys.argv[1], process_facts())
            append_step(writer, 0)
            writer.close(0)
            sys.exit(7)
            """,
            path,
        )
        assert done.returncode == 7
        assert done.stderr.count("opscope:") == 1
        assert "Permission denied; recording ended" in done.stderr

    def test_a_file_in_the_way(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        _, writer = new_run(tmp_path)
        (writer.directory / "calls.arrow").write_bytes(b"mine")
        append_step(writer, 0)
        writer.flush()
        writer.close(0)
        assert "File exists; recording ended" in capsys.readouterr().err
        assert (writer.directory / "calls.arrow").read_bytes() == b"mine"

    def test_the_warning_is_said_before_close_returns(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The writing thread is slow to say why recording ended; a process that ended meanwhile
        would lose it.
        """
        _, writer = new_run(tmp_path)
        (writer.directory / "calls.arrow").write_bytes(b"mine")
        discard, said = writer._values.discard, []
        monkeypatch.setattr(
            writer._values,
            "discard",
            lambda: (time.sleep(0.2), discard(), said.append("discarded")),
        )
        append_step(writer, 0)
        writer.flush()
        writer.close(0)
        assert said == ["discarded"]

    def test_the_run_is_removed_while_it_is_written(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        import shutil

        path, writer = new_run(tmp_path, keep=1)
        append_step(writer, 0)
        writer.flush()
        shutil.rmtree(path)
        for step in range(1, 9):
            append_step(writer, step)
        writer.flush()
        writer.close(0)
        assert capsys.readouterr().err.count("opscope:") == 1


class TestDeath:
    def killed(self, directory: Path, how: str) -> NativeRun:
        done = program(
            f"""
            from opscope.run.store.blackbox import BlackBox, Facts, blackbox_text
            run, writer = new_run(Path(sys.argv[1]), flush_seconds=3600)
            box = BlackBox.create(writer.directory / "blackbox")
            ref = writer.keep_value(np.arange(6, dtype=np.float32), dtype="float32", shape=(2, 3))
            append_step(writer, 0, value=ref)
            writer.flush()
            box.enter(3, 11, blackbox_text("aten::add.Tensor", "<root>:add#3"))
            box.enter(8, 11, blackbox_text("torch.nn.Linear", "<root>:Linear#1", "", "/home/me/train.py:3"), Facts(step=1, level="module"))
            box.enter(9, 11, blackbox_text("aten::mm.default", "fc:mm#1", "fc", "/home/me/train.py:7"), Facts(1, 8, "operator", "backward"))
            append_step(writer, 9, value=writer.keep_value(b"abcd" * 6, dtype="float32", shape=(2, 3)))
            {how}
            """,
            directory,
        )
        assert done.returncode != 0
        return NativeRun(directory / "run")

    @pytest.mark.parametrize(
        "how", ["os.kill(os.getpid(), signal.SIGKILL)", "os.abort()", "os._exit(3)"]
    )
    def test_what_was_flushed_is_there_and_the_black_box_names_the_operator(
        self, tmp_path: Path, how: str
    ) -> None:
        run = self.killed(tmp_path, how)
        found = list(calls(run))
        assert [row.index for row in found if row.error is None and row.step == 0] == [0, 1, 2, 3]
        assert float(run.value(run.tensors_of(0, 1)[0])[1, 2]) == 5
        module, operator = (
            row for row in found if row.error == "unfinished"
        )  # call 3 has its row and is not repeated
        assert (module.op, module.level, module.module, module.index, module.parent) == (
            "torch.nn.Linear",
            "module",
            None,
            8,
            None,
        )
        assert (operator.op, operator.phase, operator.step, operator.parent) == (
            "aten::mm.default",
            "backward",
            1,
            8,
        )
        assert (operator.name, operator.module, operator.source, operator.thread) == (
            "fc:mm#1",
            "fc",
            "/home/me/train.py:7",
            11,
        )
        [problem] = run.problems
        assert "ended in aten::mm.default without closing" in problem
        assert sum(
            len(batch["index"]) for batch in run.columns("calls", ["index", "error"])
        ) == len(found)
        assert (
            next(sql(run, "SELECT count(*) AS n FROM calls WHERE error = 'unfinished'"))["n"] == 2
        )

    def test_killed_while_writing_values_at_full_speed(self, tmp_path: Path) -> None:
        text = textwrap.dedent(PROGRAM.format(here=str(HERE))) + textwrap.dedent(
            """
            run, writer = new_run(Path(sys.argv[1]), flush_seconds=0.05, keep=None)
            print("ready", flush=True)
            for step in range(100_000):
                data = random_bytes(200_000, step)
                append_step(writer, step, value=writer.keep_value(data, dtype="uint8", shape=(200_000,)))
            """
        )
        for number, delay in enumerate((0.05, 0.2, 0.4)):
            directory = tmp_path / str(number)
            directory.mkdir()
            child = subprocess.Popen(
                [sys.executable, "-c", text, str(directory)], stdout=subprocess.PIPE
            )
            assert child.stdout is not None
            child.stdout.readline()
            time.sleep(delay)
            child.kill()
            child.wait()
            child.stdout.close()
            run = NativeRun(directory / "run")
            for row in decode_stream("tensors", run.table("tensors")):
                seen = run.value(msgspec.structs.replace(row, dtype="uint8", shape=None))
                assert seen.tobytes() == random_bytes(200_000, row.index // 4).tobytes()
                if row.index > 40:
                    break

    @pytest.mark.parametrize("ending", [{"signal": 9}, {"exit_code": 0}])
    def test_what_the_launcher_knows_of_the_end_does_not_make_a_run_complete(
        self, tmp_path: Path, ending: dict[str, int]
    ) -> None:
        """Only the writer's own close says that every row is there."""
        run = self.killed(tmp_path, "os.kill(os.getpid(), signal.SIGKILL)")
        [directory] = (tmp_path / "run" / "processes").glob("p-*")
        update_process(directory, **ending)
        [problem] = NativeRun(tmp_path / "run").problems
        assert "ended in aten::mm.default without closing its files" in problem
        assert len(NativeRun(tmp_path / "run").unfinished) == len(run.unfinished) == 2

    def test_an_open_call_of_a_living_process_is_not_unfinished(self, tmp_path: Path) -> None:
        path, writer = new_run(tmp_path)
        box = BlackBox.create(writer.directory / BLACKBOX)
        box.enter(5, 1, blackbox_text("aten::mm.default", "<root>:mm#1"))
        assert NativeRun(path).unfinished == ()
        writer.close(0)
        assert [row.index for row in NativeRun(path).unfinished] == [5]
        box.close()

    def test_another_process_with_the_same_id_is_not_this_one(self, tmp_path: Path) -> None:
        path = create_run(tmp_path / "run")
        facts = process_facts()
        old = Process(process=-1, directory="", host=facts.host, pid=facts.pid, start=1000.0)
        ProcessWriter(path, old).flush()
        assert any("without closing" in line for line in NativeRun(path).problems)

    def test_a_damaged_black_box_is_a_problem_and_no_more(self, tmp_path: Path) -> None:
        path, writer = new_run(tmp_path)
        append_step(writer, 0)
        writer.close(0)
        (writer.directory / BLACKBOX).write_bytes(b"OPSCOPBB" + b"\xff" * 5000)
        run = NativeRun(path)
        assert len(list(calls(run))) == 4
        assert len(run.problems) == 1
        assert "black box" in run.problems[0]


class TestFork:
    def test_a_child_leaves_the_parents_files_alone(self, tmp_path: Path) -> None:
        done = program(
            """
            run, writer = new_run(Path(sys.argv[1]), flush_seconds=0.05)
            os.register_at_fork(after_in_child=writer.drop_after_fork)
            for step in range(4):
                ref = writer.keep_value(random_bytes(300_000, step), dtype="uint8", shape=(300_000,))
                append_step(writer, step, value=ref)
                pid = os.fork()
                if pid == 0:
                    writer.keep_value(b"child", dtype="uint8", shape=(5,), seal=True)
                    append_step(writer, 99)
                    writer.flush()
                    writer.close(1)
                    writer.update(rank=9)
                    sys.exit(0)
                assert os.waitpid(pid, 0)[1] == 0
            writer.close(0)
            print(writer.failed)
            """,
            tmp_path,
        )
        assert (done.stdout, done.stderr, done.returncode) == ("None\n", "", 0)
        run = NativeRun(tmp_path / "run")
        assert run.problems == ()
        assert sorted({row.step for row in calls(run)}) == list(range(4))
        for step in (0, 2, 3):
            assert (
                run.value(
                    msgspec.structs.replace(
                        run.tensors_of(0, 4 * step)[0], dtype="uint8", shape=None
                    )
                ).tobytes()
                == random_bytes(300_000, step).tobytes()
            )
        assert run.processes[0].rank == 0


class TestBlackBox:
    def test_recent_calls_wrap_around(self, tmp_path: Path) -> None:
        box = BlackBox.create(tmp_path / "box")
        for index in range(3000):
            box.enter(index, 7, blackbox_text("aten::add.Tensor", f"<root>:add#{index}"))
            box.leave(index, 7)
        found = read_blackbox(tmp_path / "box")
        assert [row.index for row in found.recent] == list(range(3000 - 1024, 3000))
        assert all(row.left for row in found.recent)
        assert (found.open, found.pid) == ((), os.getpid())
        box.close()

    def test_a_full_disk_is_told_with_its_path_and_leaves_no_file(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def full(*_: object) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(os, "posix_fallocate", full)
        with pytest.raises(OSError, match="box"):
            BlackBox.create(tmp_path / "box")
        assert not list(tmp_path.iterdir())

    def test_stacks_of_threads(self, tmp_path: Path) -> None:
        box = BlackBox.create(tmp_path / "box")
        for index, thread in ((1, 7), (2, 8), (3, 7), (4, 2**63 + 5), (5, 7)):
            box.enter(index, thread, blackbox_text(f"op{index}", "n"), Facts(step=index))
        box.leave(3, 7)  # an exception left call 5 without a word
        assert {(row.index, row.thread) for row in read_blackbox(tmp_path / "box").open} == {
            (1, 7),
            (2, 8),
            (4, 2**63 + 5),
        }
        box.leave(99, 7)
        box.leave(1, 7)
        assert {row.index for row in read_blackbox(tmp_path / "box").open} == {2, 4}
        box.close()

    def test_more_open_calls_than_slots(self, tmp_path: Path) -> None:
        """Those of the outermost are kept; once they are left there is room again."""
        box = BlackBox.create(tmp_path / "box")
        for index in range(1100):
            box.enter(index, 1 + index % 80, blackbox_text("m", "n"))
        assert [row.index for row in read_blackbox(tmp_path / "box").open] == list(range(1024))
        for index in reversed(range(40, 1100)):
            box.leave(index, 1 + index % 80)
        assert [row.index for row in read_blackbox(tmp_path / "box").open] == list(range(40))
        box.enter(2000, 1, blackbox_text("m", "n"))
        assert read_blackbox(tmp_path / "box").open[-1].index == 2000
        box.close()

    def test_an_open_call_keeps_its_slot(self, tmp_path: Path) -> None:
        """However many calls are made inside of it."""
        box = BlackBox.create(tmp_path / "box")
        box.enter(1, 7, blackbox_text("torch.nn.Linear", "<root>:Linear#1"))
        for index in range(2, 5000):
            box.enter(index, 7, blackbox_text("aten::add.Tensor", "n"))
            box.leave(index, 7)
        found = read_blackbox(tmp_path / "box")
        assert [row.index for row in found.open] == [1]
        assert [row.index for row in found.recent] == [1, *range(5000 - 1023, 5000)]
        box.close()

    def test_cut_short_by_somebody_else_while_it_is_written(self, tmp_path: Path) -> None:
        """No signal comes of it."""
        box = BlackBox.create(tmp_path / "box")
        os.truncate(tmp_path / "box", 0)
        box.enter(1, 1, blackbox_text("m", "n"))
        box.leave(1, 1)
        box.close()

    def test_its_descriptor_was_closed_and_given_to_another_file(self, tmp_path: Path) -> None:
        box = BlackBox.create(tmp_path / "box")
        number = box.place[1]
        os.close(number)
        other = os.open(tmp_path / "mine", os.O_CREAT | os.O_RDWR)
        os.dup2(other, number)
        with pytest.raises(LostFileError, match="the program closed its descriptor"):
            box.enter(1, 1, blackbox_text("m", "n"))
        box.close()
        assert os.fstat(number).st_size == 0
        os.close(number)
        os.close(other)

    def test_long_and_odd_texts(self, tmp_path: Path) -> None:
        box = BlackBox.create(tmp_path / "box")
        box.enter(1, 1, blackbox_text("算子", "名" * 400, "m"))
        box.enter(2, 1, blackbox_text("a\udcff", "n"))
        first, second = read_blackbox(tmp_path / "box").open
        assert first.op == "算子"
        assert first.name.startswith("名" * 100)
        assert second.op == "a\\udcff"
        box.close()

    @pytest.mark.parametrize(
        "content", [b"", b"short", b"x" * 5000, b"OPSCOPBB" + b"\x02" + b"\x00" * 5000]
    )
    def test_not_a_black_box(self, tmp_path: Path, content: bytes) -> None:
        (tmp_path / "box").write_bytes(content)
        with pytest.raises(FormatError, match="black box"):
            read_blackbox(tmp_path / "box")

    def test_cut_short(self, tmp_path: Path) -> None:
        BlackBox.create(tmp_path / "box").close()
        os.truncate(tmp_path / "box", 100_000)
        with pytest.raises(FormatError, match="torn"):
            read_blackbox(tmp_path / "box")

    def test_noise_never_raises_anything_else(self, tmp_path: Path) -> None:
        BlackBox.create(tmp_path / "box").close()
        content = bytearray((tmp_path / "box").read_bytes())
        for seed in range(20):
            noisy = bytearray(content)
            noisy[64:] = random_bytes(len(noisy) - 64, seed).tobytes()
            (tmp_path / "box").write_bytes(noisy)
            assert len(read_blackbox(tmp_path / "box").recent) <= 1024

    def test_the_layout_is_the_documented_one(self, tmp_path: Path) -> None:
        box = BlackBox.create(tmp_path / "box")
        box.enter(
            -2,
            7,
            "op\x1fname\x1fmodule\x1fsource",
            Facts(step=3, parent=1, level="api", phase="optimizer"),
        )
        data = (tmp_path / "box").read_bytes()
        slot = (
            (1).to_bytes(8, "little")
            + (-2).to_bytes(8, "little", signed=True)
            + (7).to_bytes(8, "little")
            + (1).to_bytes(8, "little")
            + (3).to_bytes(4, "little")
            + bytes([1, 2, 0, 0])
            + (21).to_bytes(2, "little")
            + bytes(6)
            + b"op\x1fname\x1fmodule\x1fsource"
        )
        assert data[:8] == b"OPSCOPBB"
        assert np.frombuffer(data, "<u4", 6, 8).tolist() == [2, 4096, 512, 1024, 0, 0]
        assert np.frombuffer(data, "<u8", 2, 32).tolist() == [os.getpid(), 0]
        assert data[4096 : 4096 + len(slot)] == slot
        assert len(data) == 4096 + 1024 * 512
        box.close()


def test_files_left_open_are_closed(tmp_path: Path) -> None:
    for number in range(5):
        _, writer = new_run(tmp_path / str(number))
        append_step(
            writer,
            0,
            value=writer.keep_value(random_bytes(9 << 20, number), dtype="uint8", shape=(9 << 20,)),
        )
        writer.close(0)
    shard = ShardFile(tmp_path, "values-00000.safetensors", Spool())
    shard.append(memoryview(random_bytes(9 << 20)))
    shard.discard()
    assert not list(tmp_path.glob("values*"))
    opened = [str(file.readlink()) for file in Path("/proc/self/fd").iterdir() if file.is_symlink()]
    assert [path for path in opened if path.startswith(str(tmp_path))] == []


def test_a_table_is_appended_in_whole_batches(tmp_path: Path) -> None:
    from opscope.run.arrow import table_schema

    table = TableFile(tmp_path / "calls.arrow", table_schema("calls"))
    sizes = [table.size]
    for index in range(3):
        table.write(encode_rows("calls", [call(index)]))
        sizes.append(table.size)
        assert (tmp_path / "calls.arrow").stat().st_size == table.size
    table.abandon()
    assert sizes == sorted(set(sizes))
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL  # nothing here installs a handler


def test_threads_that_tell_facts_at_once_end_nothing(tmp_path: Path) -> None:
    """Two models trained in two threads end their steps together."""
    path, writer = new_run(tmp_path)
    patience = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)

    def tell(kind: str) -> None:
        for number in range(60):
            writer.update(torch={**writer.process.torch, kind: number})

    threads = [threading.Thread(target=tell, args=(f"kind{n}",)) for n in range(4)]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(patience)
    writer.close(0)
    assert writer.failed is None
    (process,) = NativeRun(path).processes
    assert process.failed is None
    assert not list(writer.directory.glob(".*"))
