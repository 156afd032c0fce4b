# SPDX-License-Identifier: Apache-2.0
"""What recording asks of an NPU: kernels, copies, waits and memory beside the program's own.

    python benchmarks/npu.py [--counters VARIABLE] [--options "--values full"] [--only NAME …]

needs torch_npu, and in place of CANN something that counts what is asked of it and writes the
counts as JSON at the end of the process to the file that VARIABLE names (`%p` is the process):
kernels, synchronisations, h2d, d2h and their bytes. Each program runs bare and under
`opscope run`, with few and with more steps; what is printed is of the steps between, so that what
happens once (a ring of host memory, a type that is tried) is left out. Losses have to be equal.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional

STEPS = (2, 6)
COUNTS = ("kernels", "synchronisations", "h2d", "h2d_bytes", "d2h", "d2h_bytes")
LARGE = 1 << 20  # elements
Step = Callable[[], torch.Tensor]


def mlp() -> Step:
    net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)).npu()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    x, y = torch.randn(32, 8).npu(), torch.randn(32, 4).npu()

    def step() -> torch.Tensor:
        optimizer.zero_grad()
        loss = functional.mse_loss(net(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return step


def conv() -> Step:
    net = nn.Sequential(
        *(nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.Flatten()),
        nn.Linear(32 * 8 * 8, 10),
    ).npu()
    optimizer = torch.optim.Adam(net.parameters())
    x, y = torch.randn(8, 3, 16, 16).npu(), torch.randint(0, 10, (8,)).npu()

    def step() -> torch.Tensor:
        optimizer.zero_grad()
        loss = functional.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return step


class Transformer(nn.Module):
    """Two blocks over 32 words."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.words, self.head = nn.Embedding(100, width), nn.Linear(width, 100)
        self.blocks = nn.ModuleList(
            nn.ModuleDict(
                {
                    "norm": nn.LayerNorm(width),
                    "qkv": nn.Linear(width, 3 * width),
                    "out": nn.Linear(width, width),
                    "wide": nn.Linear(width, 4 * width),
                    "narrow": nn.Linear(4 * width, width),
                }
            )
            for _ in range(2)
        )
        self.register_buffer("mask", torch.triu(torch.full((32, 32), float("-inf")), 1))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.words(ids)
        for block in self.blocks:
            q, k, v = block["qkv"](block["norm"](x)).chunk(3, -1)
            scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5 + self.mask.to(q.dtype)
            x = x + block["out"](torch.softmax(scores, -1) @ v)
            x = x + block["narrow"](functional.gelu(block["wide"](block["norm"](x))))
        return self.head(x)


def transformer(*, half: bool, width: int = 64) -> Step:
    net = Transformer(width).npu()
    optimizer = torch.optim.AdamW(net.parameters(), fused=not half)
    scaler = torch.amp.GradScaler("npu", init_scale=2.0**12, enabled=half)
    ids = torch.randint(0, 100, (4, 33)).npu()

    def step() -> torch.Tensor:
        optimizer.zero_grad()
        with torch.autocast("npu", dtype=torch.float16, enabled=half):
            logits = net(ids[:, :-1]).float()
        loss = functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        return loss

    return step


def versions(size: int) -> Step:
    """One new version a step, whose values nobody asks for."""
    x = torch.linspace(-1, 1, size).npu()
    return x.neg


PROGRAMS: dict[str, Callable[[], Step]] = {
    "MLP": mlp,
    "transformer, amp float16": lambda: transformer(half=True),
    "transformer, float32, fused AdamW": lambda: transformer(half=False),
    "transformer, float32, width 512": lambda: transformer(half=False, width=512),
    "convolutions": conv,
    "one small version": lambda: versions(64),
    "one large version": lambda: versions(LARGE),
}


def run_program(name: str, steps: int) -> None:
    """Print each step's result and the peak of device memory."""
    import torch_npu  # noqa: F401

    import opscope

    torch.manual_seed(0)
    step, found = PROGRAMS[name](), []
    for _ in range(steps):
        found.append(step())
        opscope.mark_step()
    print([float(each.detach().cpu().double().sum()) for each in found])
    # what was asked for: how much of a block an allocator leaves idle depends on its neighbours
    print(torch.npu.memory_stats()["requested_bytes.all.peak"], file=sys.stderr)


def counted(
    name: str, steps: int, *, variable: str, options: Sequence[str] | None
) -> tuple[dict[str, int], str]:
    """Counts of a run, peak of device memory among them, and what it printed."""
    with tempfile.TemporaryDirectory() as folder:
        recorded = (
            []
            if options is None
            else ["-m", "opscope", "run", "-o", f"{folder}/run", *options, "--", sys.executable]
        )
        done = subprocess.run(
            [sys.executable, *recorded, __file__, "--program", name, "--steps", str(steps)],
            env={**os.environ, variable: f"{folder}/counts.%p"},
            capture_output=True,
            text=True,
            check=True,
        )
        files = [json.loads(each.read_text()) for each in Path(folder).glob("counts.*")]
    peak = next(int(line) for line in done.stderr.splitlines() if line.isdecimal())
    counts = max(files, key=lambda each: each["kernels"])
    return {key: counts[key] for key in COUNTS} | {"peak": peak}, done.stdout


def measure(name: str, *, variable: str, options: Sequence[str]) -> list[str]:
    """One row: added kernels for each of the program's, then what a step adds, then the peak."""
    found = {
        (kind, steps): counted(name, steps, variable=variable, options=given)
        for kind, given in (("bare", None), ("recorded", options))
        for steps in STEPS
    }
    few, more = STEPS
    if found["bare", more][1] != found["recorded", more][1]:
        sys.exit(f"{name}: results differ: {found['bare', more][1]}{found['recorded', more][1]}")

    def of_steps(kind: str, count: str) -> float:
        return (found[kind, more][0][count] - found[kind, few][0][count]) / (more - few)

    added = {each: of_steps("recorded", each) - of_steps("bare", each) for each in COUNTS}
    peak = found["recorded", more][0]["peak"] - found["bare", more][0]["peak"]
    return [
        name,
        f"{of_steps('bare', 'kernels'):.0f}",
        f"{added['kernels']:.1f}",
        f"{added['kernels'] / of_steps('bare', 'kernels'):.2f}",
        f"{added['h2d']:.0f}",
        f"{added['d2h']:.1f}",
        f"{added['d2h_bytes'] / 1024:.1f}",
        f"{added['synchronisations']:.2f}",
        f"{peak / 1024:.0f}",
    ]


HEAD = (
    *("program", "its kernels a step", "added kernels", "for each of its own"),
    *("host to device", "device to host", "KiB", "waits", "peak KiB"),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--counters", default="SIM_COUNTERS", metavar="VARIABLE")
    parser.add_argument("--options", default="")
    parser.add_argument("--only", nargs="+", choices=PROGRAMS, default=[*PROGRAMS], metavar="NAME")
    parser.add_argument("--program", choices=sorted(PROGRAMS), help=argparse.SUPPRESS)
    parser.add_argument("--steps", type=int, default=STEPS[1], help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.program is not None:
        run_program(asked.program, asked.steps)
        return
    if importlib.util.find_spec("torch_npu") is None:
        print("torch_npu is not installed: nothing is measured")
        return
    print("| " + " | ".join(HEAD) + " |\n|---" + "|--:" * (len(HEAD) - 1) + "|")
    for name in asked.only:
        row = measure(name, variable=asked.counters, options=shlex.split(asked.options))
        print("| " + " | ".join(row) + " |", flush=True)


if __name__ == "__main__":
    main()
