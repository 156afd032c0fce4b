# SPDX-License-Identifier: Apache-2.0
"""What of a command line and an environment a run holds, and who may read it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from opscope.run.store.layout import create_run, process_facts, read_run_file
from opscope.run.store.public import HIDDEN, public_command, public_environment
from opscope.run.store.writer import ProcessWriter

SECRET = "hunter2-Xy"


@pytest.mark.parametrize(
    "words",
    [
        [f"--api-key={SECRET}"],
        ["--token", SECRET],
        [f"--password={SECRET}"],
        [f"https://u:{SECRET}@h/x"],
        ["--db", f"postgres://u:{SECRET}@h"],
        [f"-p{SECRET}"],
        ["-p", SECRET],
        [SECRET],
        [f"token={SECRET}"],
        [f"WANDB_API_KEY={SECRET}"],
        ["-c", f"login('{SECRET}')"],
        ["-H", f"Authorization: Bearer {SECRET}"],
        [f"--url=https://h/?access_token={SECRET}"],
        ["--pat", SECRET],
        ["--name", SECRET],
        [f"--x={SECRET}", "--y"],
        [f"+trainer.key={SECRET}"],
        ["--conn", f"Server=h;Pwd={SECRET};"],
        [f"{SECRET}=="],
        ["--json", f'{{"k": "{SECRET}"}}'],
        ["--password", f"--{SECRET}"],
        [f"-Dkey={SECRET}"],
        [f"@{SECRET}"],
        ["--webhook", f"https://hooks.example/{SECRET}"],
        ["", SECRET],
    ],
    ids=" ".join,
)
def test_no_secret_of_a_command_line_is_kept(words: list[str]) -> None:
    kept = public_command([sys.executable, "train.py", *words])
    assert SECRET not in "\n".join(kept)
    assert len(kept) == 2 + len(words)


@pytest.mark.parametrize(
    "words",
    [["--token", "1234"], ["--password", "/"], ["--api_key", "train"], ["--pin=12345"]],
    ids=" ".join,
)
def test_the_value_of_a_secret_is_hidden_whatever_it_is(words: list[str]) -> None:
    assert public_command(["python", *words])[-1].endswith(HIDDEN)


def test_what_is_harmless_by_its_kind_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").touch()
    command = (
        sys.executable, "-u", "-m", "torch.distributed.run", "--nproc-per-node", "2", "train.py",
        "--lr=1e-3", "--max-tokens", "2048", "--amp", "--dtype", "bfloat16", "--device=cuda:0",
        "--betas", "0.9,0.95", "--out", str(tmp_path), "model.depth=12", "--shuffle=True", "-vv",
        "--", "--tokenizer", "train.py", "--pin-memory", "--num_key_value_heads=8",
        "OMP_NUM_THREADS=4", "", "--rdzv=localhost:29500",
    )  # fmt: skip
    assert public_command(command) == command


def test_of_an_environment_only_settings_and_harmless_values_are_kept(tmp_path: Path) -> None:
    secret = dict.fromkeys(
        (
            "GH_PAT",
            "PGPASS",
            "DB_PWD",
            "COOKIE",
            "ID_JWT",
            "SLACK_WEBHOOK_URL",
            "AWS_SECRET_ACCESS_KEY",
            "DATABASE_URL",
            "MY_AUTH",
            "NETRC_PASS",
        ),
        SECRET,
    )
    odd = {
        "MY_SETTING": SECRET,
        "TORCH_HUB": f"https://h/?access_token={SECRET}",
        "NCCL_X": "ghp_abcdefghijklmnopqrstuvwx",
        "PROXY": f"http://u:{SECRET}@h",
    }
    plain = {
        "OMP_NUM_THREADS": "4",
        "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True",
        "HOME": str(tmp_path),
        "TORCH_LOGS": "+dynamo",
    }
    kept = public_environment({**secret, **odd, **plain})
    assert kept == {**dict.fromkeys(odd, HIDDEN), **plain}


def test_a_run_is_its_owners_unless_it_is_shared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["train.py", f"--token={SECRET}"])
    before = os.umask(0o022)
    try:
        for shared, folder, file in ((False, 0o700, 0o600), (True, 0o755, 0o644)):
            run = create_run(
                tmp_path / "run", command=["python", "train.py", f"--token={SECRET}"], shared=shared
            )
            ProcessWriter(run, process_facts()).close()
            assert {
                (path.is_dir(), path.stat().st_mode & 0o777) for path in (run, *run.rglob("*"))
            } == {(True, folder), (False, file)}
            assert SECRET not in "".join(
                path.read_text(errors="replace") for path in run.rglob("*.json")
            )
    finally:
        os.umask(before)


def test_a_command_is_kept_whole_where_that_was_asked_for(tmp_path: Path) -> None:
    run = create_run(tmp_path / "run", command=["python", SECRET], keep_argv=True)
    assert read_run_file(run).command == ("python", SECRET)
