# SPDX-License-Identifier: Apache-2.0
"""An exported program beside the eager model: executed on what the model of a run was given."""

from __future__ import annotations

import pickle
import re
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.record.recorded import read
from torch import Tensor, nn

import opscope
from opscope.cli.compare import compare as compare_command
from opscope.errors import UsageError
from opscope.formats.registry import open_run
from opscope.replay.exported import record_exported
from opscope.run.memory import MemoryRun
from opscope.run.protocol import RunInfo
from opscope.run.schema import Call

pytestmark = [
    pytest.mark.zoo,
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.skipif(
        not hasattr(torch.fx.graph.PythonCode, "_prologue_start"),
        reason="this torch does not say how it counts lines of generated code",
    ),
]
FREE = torch.export.Dim.AUTO


class Block(nn.Module):
    def __init__(self, eps: float) -> None:
        super().__init__()
        self.fc, self.norm = nn.Linear(8, 8), nn.LayerNorm(8, eps=eps)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        h = self.norm(self.fc(x) * 0.01)
        return h if mask is None else h * mask


class Words(nn.Module):
    def __init__(self, eps: float = 1e-5) -> None:
        super().__init__()
        self.emb = nn.Embedding(16, 8)
        self.blocks = nn.ModuleList(Block(eps) for _ in range(2))

    def forward(self, words: Tensor, mask: Tensor) -> Tensor:
        x = self.emb(words)
        for block in self.blocks:
            x = block(x, mask)
        return x.bfloat16()


class Pixels(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.norm(self.conv(x))).amax((2, 3))


def words(count: int) -> tuple[Tensor, ...]:
    return torch.randint(0, 16, (count, 5)), torch.rand(count, 5, 1)


def pixels(count: int) -> tuple[Tensor, ...]:
    return (torch.randn(count, 3, 8, 8).transpose(2, 3),)


def seeded(make: Any, *given: Any) -> Any:
    torch.manual_seed(0)
    return make(*given).eval()


def exported(path: Path, model: nn.Module, given: tuple[Tensor, ...], **named: Tensor) -> Path:
    """The model as a file, of any number of rows."""
    names = ("words", "mask") if isinstance(model, Words) else ("x", *named)
    shapes = {name: {0: FREE} for name in names}
    torch.export.save(torch.export.export(model, given, named, dynamic_shapes=shapes), path)
    return path


def eager(path: Path, model: nn.Module, given: Any, values: str = "full") -> Path:
    """Two calls of a model, with what a program does beside it."""
    with opscope.record(path, values=values), torch.no_grad():
        for count in (3, 5):
            torch.softmax(model(*given(count)).float(), -1).amax().item()
    return path


def recorded(model: Path, run: Path) -> Path:
    return record_exported(model, open_run(run), run.with_name("exported"))


@pytest.mark.parametrize(("make", "given"), [(Words, words), (Pixels, pixels)])
def test_the_same_model_is_silent(make: Any, given: Any, tmp_path: Path) -> None:
    file = exported(tmp_path / "model.pt2", seeded(make), given(4))
    run = eager(tmp_path / "eager", seeded(make), given)
    found = recorded(file, run)
    document = opscope.compare(found, run).document
    assert (document.findings, document.complete) == ((), True)
    loading = [call.op for call in read(found).calls if call.op.startswith("aten::set_")]
    assert not loading  # only what the model does is recorded


def test_shapes_that_were_fixed_are_silent_and_modules_are_the_models(tmp_path: Path) -> None:
    file = tmp_path / "model.pt2"
    torch.export.save(torch.export.export(seeded(Pixels), pixels(4)), file)
    run = eager(tmp_path / "eager", seeded(Pixels), lambda count: pixels(4))
    found = recorded(file, run)
    assert opscope.compare(found, run).document.findings == ()
    modules = [{call.module for call in read(each).calls} for each in (found, run)]
    assert modules[0] == modules[1] == {"", "conv", "norm"}


def test_another_argument_is_named_at_the_line_it_was_exported_from(tmp_path: Path) -> None:
    file = exported(tmp_path / "model.pt2", seeded(Words, 1e-3), words(4))
    run = eager(tmp_path / "eager", seeded(Words), words)
    first = opscope.compare(recorded(file, run), run).document.findings[0]
    lines = Path(__file__).read_text().splitlines()
    line = 1 + next(place for place, text in enumerate(lines) if "h = self.norm(" in text)
    assert (first.op, first.source) == ("aten::native_layer_norm.default", f"{__file__}:{line}")
    assert "argument 4 (eps) is 0.001, golden has 1e-05" in first.reasons


@pytest.mark.parametrize(
    ("values", "named", "words_of_it"),
    [
        ("anomaly", False, "record the eager model with --values full"),
        ("full", True, r"it takes 2 tensors \(x, mask\), and the model's call was given 1"),
    ],
)
def test_what_cannot_be_executed_is_told(
    values: str, named: bool, words_of_it: str, tmp_path: Path
) -> None:
    given = (torch.ones(4, 8),)
    mask = {"mask": torch.ones(4, 8)} if named else {}
    file = exported(tmp_path / "model.pt2", seeded(Block, 1e-5), given, **mask)
    run = eager(
        tmp_path / "run", seeded(Block, 1e-5), lambda count: (torch.ones(count, 8),), values
    )
    with pytest.raises(UsageError, match=words_of_it):
        recorded(file, run)


def test_a_training_is_refused(tmp_path: Path) -> None:
    model = seeded(Block, 1e-5)
    with opscope.record(tmp_path / "run", values="full"):
        model(torch.ones(3, 8)).sum().backward()
    file = exported(tmp_path / "model.pt2", model, (torch.ones(4, 8),))
    with pytest.raises(UsageError, match="record an inference"):
        recorded(file, tmp_path / "run")


def test_calls_that_lie_inside_of_each_other_are_no_model(tmp_path: Path) -> None:
    rows = [
        Call(
            process=0,
            rank=0,
            step=0,
            index=index,
            level="module",
            phase="forward",
            op="Block",
            name=f"block#{index}",
            parent=(index + 1) % 3,
        )
        for index in range(3)
    ]
    file = tmp_path / "model.pt2"
    file.touch()
    golden = MemoryRun(RunInfo(path="here", format="test"), calls=rows)
    with pytest.raises(UsageError, match="no call of a model is recorded"):
        record_exported(file, golden, tmp_path / "exported")


class Hostile:
    def __reduce__(self) -> Any:
        return (Path.touch, (Path("executed"),))


@pytest.mark.sample
def test_nothing_of_the_file_is_executed_unasked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with zipfile.ZipFile("hostile.pt2", "w") as file:
        file.writestr("hostile/data.pkl", pickle.dumps(Hostile()))
    run = eager(tmp_path / "run", seeded(Block, 1e-5), lambda count: (torch.ones(count, 8),))
    with pytest.raises(UsageError, match="add --trust"):
        compare_command(str(run), export=Path("hostile.pt2"))
    with pytest.raises(UsageError, match=re.escape("hostile.pt2: not executed on what")):
        compare_command(str(run), export=Path("hostile.pt2"), trust=True)
    with pytest.raises(UsageError, match="no such file"):
        compare_command(str(run), export=Path("none.pt2"), trust=True)
    with pytest.raises(UsageError, match="give TARGET and GOLDEN"):
        compare_command(str(run))
    assert not Path("executed").exists()
