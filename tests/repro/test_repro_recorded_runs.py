# SPDX-License-Identifier: Apache-2.0
"""Calls that opscope itself recorded: every one of a training is rebuilt bit for bit; the command
line around it.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from tests.repro.single_calls import run_script
from torch import nn
from torch.nn import functional as F

import opscope
import opscope.repro
from opscope.cli import main
from opscope.run.protocol import Run
from opscope.run.query import calls
from opscope.run.schema import Call

pytestmark = pytest.mark.zoo

# oneDNN's recurrent layers sum in an order that changes with the address of their buffers.
INEXACT = {"aten::mkldnn_rnn_layer.default", "aten::mkldnn_rnn_layer_backward.default"}


class Net(nn.Module):
    """Attention with a causal mask, a convolution, norms, an embedding and an LSTM: views, aliases
    and lists of tensors.
    """

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.qkv, self.head = nn.Embedding(11, 8), nn.Linear(8, 24), nn.Linear(8, 11)
        self.conv, self.batch, self.group = (
            nn.Conv1d(8, 8, 3, padding=1),
            nn.BatchNorm1d(8),
            nn.GroupNorm(2, 8),
        )
        self.layer, self.lstm = nn.LayerNorm(8), nn.LSTM(8, 8, batch_first=True)

    def forward(self, index: torch.Tensor) -> torch.Tensor:
        x = self.layer(self.embed(index))
        q, k, v = self.qkv(x).view(2, 5, 3, 2, 4).permute(2, 0, 3, 1, 4)
        mask = torch.triu(torch.full((5, 5), float("-inf")), 1)
        x = x + (torch.softmax(q @ k.transpose(-1, -2) / 2 + mask, -1) @ v).transpose(1, 2).reshape(
            2, 5, 8
        )
        x = x + self.group(self.batch(self.conv(x.transpose(1, 2)))).transpose(1, 2)
        x = x + self.lstm(x)[0] + F.scaled_dot_product_attention(x, x, x, is_causal=True)
        return self.head(F.gelu(x))


def train(directory: Path) -> Run:
    torch.manual_seed(0)
    net, index = Net(), torch.randint(0, 11, (2, 5))
    optimizer = torch.optim.AdamW(net.parameters(), 1e-3)
    with opscope.record(directory, values="full"):
        loss = F.cross_entropy(net(index).flatten(0, 1), index.flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
    return opscope.open_run(directory)


def rebuilt(run: Run, call: Call, directory: Path) -> list[str]:
    """Lines about the outputs of a call that is not bit for bit what was recorded."""
    opscope.repro.write(run, call, directory)
    _, document = run_script(directory, "--no-wide")
    outputs = [row for row in opscope.repro.read_case(directory).outputs if row.key is not None]
    same = [line for line in document["lines"] if line.startswith("  same")]
    return [] if len(same) == len(outputs) else [f"{call.name} {call.op}", *document["lines"]]


def test_every_call_of_a_training_is_rebuilt_bit_for_bit(tmp_path: Path) -> None:
    run = train(tmp_path / "run")
    seen, different = set(), []
    for number, call in enumerate(calls(run)):
        if call.level == "operator" and call.op not in INEXACT:
            seen.add(call.op)
            different += rebuilt(run, call, tmp_path / str(number))
    assert not different
    assert len(seen) > 50, "the training no longer runs the operators this test is about"


@pytest.fixture
def failing(tmp_path: Path) -> Path:
    """A run in which a product leaves float16 in step 1, with the default values policy."""
    with opscope.record(tmp_path / "a run"):
        for scale in (1.0, 300.0):
            q = torch.full((2, 4, 8), scale, dtype=torch.float16)
            (q @ q.transpose(1, 2)).sum()
            opscope.mark_step()
    return tmp_path / "a run"


@pytest.mark.sample
def test_command_writes_tries_and_says_reproduced(
    failing: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "案 case"
    assert main(["repro", str(failing), "<root>:bmm#1", "-o", str(folder)]) == 1
    printed = capsys.readouterr()
    assert "reproduced 3/3: inf in output 0, as recorded" in printed.out
    assert "720000 is beyond 65504, the largest float16" in " ".join(printed.out.split())
    assert "taken from step 1 of the 2 steps" in printed.err, (
        "the first finding's step, not the first"
    )
    command = next(line for line in printed.out.splitlines() if line.startswith("next  python '"))
    assert "case/repro.py'" in command, "in one piece"
    assert opscope.repro.execute(folder).status == "reproduced"


def test_command_answers_with_one_json_document(
    failing: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [
        "repro",
        str(failing),
        "s0/<root>:bmm#1",
        "-o",
        str(tmp_path / "case"),
        "--json",
        "--repeat",
        "1",
        "--dtype",
        "float32",
    ]
    code = main(words)
    printed = capsys.readouterr()
    document = json.loads(printed.out)
    assert (document["verb"], document["verdict"]) == ("repro", "clean")
    assert code == (0 if document["complete"] else 3)
    assert document["summary"]["outcome"]["status"] == "not-reproduced"
    assert document["summary"]["word"] == "not reproduced here"
    assert set(document["summary"]["written"]) >= {
        "repro.py",
        "case.json",
        "inputs.safetensors",
        "README.md",
    }


def test_command_never_overwrites(
    failing: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "case").mkdir()
    (tmp_path / "case" / "mine").write_text("x")
    assert (
        main(["repro", str(failing), "<root>:bmm#1", "-o", str(tmp_path / "case"), "--repeat", "1"])
        == 1
    )
    assert [path.name for path in (tmp_path / "case").iterdir()] == ["mine"]
    assert (tmp_path / "case-2" / "repro.py").exists()
    assert (
        f"{tmp_path / 'case'} exists; written to {tmp_path / 'case-2'}" in capsys.readouterr().err
    )


def test_command_says_why_it_cannot(
    failing: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = str(tmp_path / "case")
    assert main(["repro", str(failing), "<root>:bmm#1", "-o", folder, "--device", "npu:0"]) == 125
    assert "cannot be tried here" in capsys.readouterr().out
    assert main(["repro", str(failing), "nothing#1", "-o", folder]) == 2
    assert main(["repro", str(tmp_path / "absent"), "x", "-o", folder]) == 2
    assert main(["repro", str(failing), "<root>:bmm#1", "-o", folder, "--dtype", "float17"]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert all(line.startswith("opscope: ") for line in lines)
