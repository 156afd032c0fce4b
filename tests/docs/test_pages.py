# SPDX-License-Identifier: Apache-2.0
"""What the pages beside the tutorial and the gallery type is typed, on small runs that stand where
the pages' own runs and dumps stand.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.docs.test_docs import DOCS, commands
from tests.docs.test_shown import PAGES as TYPED
from tests.docs.typed import ROOT

from opscope.cli import main
from opscope.cli.app import VERBS

# Three steps of a small model; with FAULT its last block overflows in the last one, with KERNEL a
# product of its own gives NaN.
TRAIN = """
import os, torch
from torch import nn
torch.manual_seed(0)
if "KERNEL" in os.environ:
    library = torch.library.Library("aten", "IMPL")
    library.impl("bmm", lambda x, y: x.new_full((*x.shape[:2], y.shape[2]), float("nan")), "CPU")

class Attention(nn.Module):
    def forward(self, x):
        scores = torch.bmm(x, x.transpose(1, 2))
        return torch.bmm(scores.softmax(-1), x)

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.attn, self.scale = nn.GroupNorm(2, 4), Attention(), 1.0
    def forward(self, x):
        return x + self.attn(self.norm(x).half() * self.scale).float()

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(3))
        self.head = nn.Linear(8, 3)
    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(x.mean(1))

net = Net()
if "EPS" in os.environ:
    net.blocks[1].norm.eps = float(os.environ["EPS"])
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(3):
    if "FAULT" in os.environ and step == 2:
        net.blocks[2].scale = 300.0
    loss = nn.functional.cross_entropy(net(torch.randn(2, 4, 8)), torch.tensor([0, 2]))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
METRIC = re.compile(r"^    # (mine\.py)\n((?:    .*\n|\n)+?)(?=\n    \$ )", re.MULTILINE)
# What stands in a page, and what stands here in its place.
HERE = {
    **dict.fromkeys(("RUN", "run/", "runs/x", "eager"), "runs/demo"),
    **dict.fromkeys(("TARGET", "runs/lenet_mindspore", "runs/npu", "npu", "runs/jax"), "runs/eps"),
    **dict.fromkeys(("GOLDEN", "runs/lenet_torch", "runs/gpu", "gpu", "runs/torch"), "runs/plain"),
    "runs/good": "runs/plain",
    "gpu_again": "runs/again",
    "FOLDER": "examples/aicore",
    "infer.py": "train.py",
    "/dump/20230101120000": "dumps/cann",
    "/dump/20230101120000/0": "dumps/cann",
    "/dump": "dumps/mindspore",
    "dump_path/": "dumps/msprobe",
    "Conv2D,*Momentum": "*bmm*",
    "3": "2",
}
# What cannot be typed here, and why.
ELSEWHERE = {
    "aicore -": "waits for what is pasted",
    "repro FOLDER": "runs a kernel of an Ascend device",
    "aicore RUN -o case": "a run that ended with an error of an Ascend device",
    "repro RUN": "the same",
    "bisect --compile -- python train.py": "compiles the program many times",
    "check-op aten::_fused_sgd_ --dtype bfloat16 --dtype float32": "torch's samples need SciPy",
    "compare mp_tensor_mix_b mp_tensor_mix": "dumps of a program of MindSpore",
    "compare --export model.pt2 --trust eager": "an exported program",
    "compare --export model.onnx eager": "an exported program",
    "show /dump/20230101120000/0 net/conv1/Conv2D-op12": "a call of a net of its own",
    "show /dump Default/network-WithLossCell/_backbone-Net/conv1-Conv2d/Conv2D-op12": "a call of a net of its own",
    "scan ptdbg_dump_v4.0/": "a dump of ptdbg",
    "scan dump": "a dump of TensorFlow",
    "compare dump runs/port": "a dump of TensorFlow",
    "doctor --device npu": "an NPU",
    "run -- python train_ms.py": "MindSpore",
    "repro runs/train_ms-… Default/network-WithLossCell/_backbone-HalfNet/Mul-op0 -o case": "MindSpore",
}
REFUSED = {"prepare mindspore statistics"}  # as the page says that it is


def indented(page: Path) -> list[list[str]]:
    """The words of the commands of blocks without fences; what stands behind them in columns is no
    part of them.
    """
    lines = re.findall(r"^ {4}(?:\$ )?(opscope [a-z].*)$", page.read_text("utf-8"), re.MULTILINE)
    shown = [shlex.split(re.split(r" {3,}", line)[0], comments=True)[1:] for line in lines]
    return [words for words in shown if words[0] in dict(VERBS)]


def shown_on(page: Path) -> list[list[str]]:
    found = [*commands(page), *indented(page)]
    return [list(words) for words in dict.fromkeys(map(tuple, found))]


SHOWN = {
    page: shown_on(page)
    for page in sorted(DOCS.glob("*.md"))
    if ".zh-CN" not in page.name and page not in TYPED
}
HERE_TOO = {
    page: [words for words in found if " ".join(words) not in ELSEWHERE]
    for page, found in SHOWN.items()
}


def recorded(folder: Path, to: str, **variables: str) -> None:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("OPSCOPE")}
    words = ["run", "--values", "full", "-o", to, "--", sys.executable, "train.py"]
    done = subprocess.run(
        [sys.executable, "-m", "opscope", *words],
        cwd=folder,
        env=kept | variables | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the program, its runs, a case of one, and dumps made of it."""
    folder = tmp_path_factory.mktemp("workshop")
    shutil.copytree(ROOT / "examples" / "aicore", folder / "examples" / "aicore")
    (folder / "train.py").write_text(TRAIN)
    recorded(folder, "runs/demo", FAULT="1")
    recorded(folder, "runs/plain")
    recorded(folder, "runs/eps", EPS="0.001")
    recorded(folder, "runs/again", EPS="1.00001e-5")
    run = str(folder / "runs" / "demo")
    for kind in ("cann", "msprobe", "mindspore"):
        assert main(["convert", run, "-o", str(folder / "dumps" / kind), "--type", kind]) == 0
    return folder


def test_what_cannot_be_typed_is_shown_somewhere() -> None:
    shown = {" ".join(words) for found in SHOWN.values() for words in found}
    assert set(ELSEWHERE) <= shown
    assert sum(map(len, HERE_TOO.values())) >= 35


@pytest.mark.zoo
@pytest.mark.parametrize(
    "page", [page for page, found in HERE_TOO.items() if found], ids=lambda page: page.stem
)
def test_what_a_page_types_can_be_done(
    page: Path,
    workshop: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    shutil.copytree(workshop, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("KERNEL" if page.stem == "bisect" else "FAULT", "1")
    for name, text in METRIC.findall(page.read_text("utf-8")):
        (tmp_path / name).write_text(re.sub("^    ", "", text, flags=re.MULTILINE))
    if page.stem == "minimize":
        assert main(["repro", "runs/demo", "blocks.2.attn:bmm#1", "-o", "case"]) == 1
    if page.stem == "bisect":
        recorded(tmp_path, "runs/bad")
    here = HERE | {"python": sys.executable, "/data/dump": str(tmp_path / "tree")}
    for words in HERE_TOO[page]:
        typed = [here.get(word, word) for word in words]
        shutil.rmtree("runs/bisect-train", ignore_errors=True)  # a search of the page's own, each
        code = main(typed)
        said = capfd.readouterr()
        refused = " ".join(words).startswith(tuple(REFUSED))
        fine = {2} if refused else {0, 1, *([3] if words[0] == "convert" else [])}
        assert code in fine, (words, code, said.err[-2000:])
        assert "this is a bug" not in said.err
        assert "Traceback" not in said.err
