# SPDX-License-Identifier: Apache-2.0
"""Changes of whole programs, for ill and for good: the right call comes first, and what is healthy
stays clean.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.compare_zoo.recorded import Goldens, Options, record

import opscope
from opscope.operators.catalogue import family

pytestmark = pytest.mark.zoo

PROGRAM = Path(__file__).parent / "programs" / "variants.py"

# What both sides have, what the target changes, the operators of which one is right, its module,
# and what is said.
FAULTS: dict[str, tuple[Options, Options, str, str | None, str]] = {
    "batch norm's momentum": ({"picture": 1}, {"momentum": 0.2}, "native_batch_norm", "norm1",
        "0.2"), "eps of a later norm": ({}, {"eps": 1e-6}, "native_layer_norm", "blocks.1.norm2",
        "1e-06"), "softmax over another dimension": ({}, {"softmax_dim": 1}, "_softmax",
        "blocks.1.attention", "argument 1 (dim)"), "scale left out": ({}, {"no_scale": 1}, "div",
        "blocks.1.attention", "only golden"), "causal mask left out": ({}, {"no_mask": 1},
        "masked_fill", "blocks.1.attention", "only golden"),
    "mask left out of a fused attention": (
        {"fused": "FLASH_ATTENTION"}, {"no_mask": 1},
        "_scaled_dot_product_flash_attention_for_cpu", "blocks.1.attention", "golden has True"
    ),
    "scale of a fused attention": (
        {"fused": "MATH"}, {"fused": "FLASH_ATTENTION", "scale": 0.5},
        "_scaled_dot_product_flash_attention_for_cpu", "blocks.1.attention", ""
    ),
    "other activation": ({}, {"activation": "silu"}, "silu", "blocks.1", "gelu"),
    "residual dropped": ({}, {"no_residual": 1}, "add", "blocks.1", "only golden"),
    "operands swapped": ({}, {"swap": 1}, "clone", "blocks.1.attention", ""),
    "gradient cut off": ({}, {"detach": 1}, "bmm", "blocks.1.attention", "only golden"),
    "product in bfloat16": ({}, {"narrow": 1}, "_to_copy|bmm", "blocks.1.attention", ""),
    "wrong backward of a function": ({"own_function": 1}, {"bad_backward": 1}, "abs|mul",
        "blocks.2", ""), "learning rate": ({}, {"lr": 2e-2}, "mul", None, "0.9998"),
        "learning rate, lists": ({"foreach": True}, {"lr": 2e-2}, "_foreach_mul", None, "0.9998"),
        "learning rate, fused": ({"fused_kernel": True}, {"lr": 2e-2}, "_fused_adamw", None,
            "lr is 0.02"), "learning rate, lists beside loops": ({"foreach": False},
            {"foreach": True, "lr": 2e-2}, "_foreach_mul", None, "mul_"),
            "learning rate, fused beside loops": ({"foreach": False}, {"fused_kernel": True,
                "lr": 2e-2}, "_fused_adamw", None, "mul_"), "weight decay": ({"foreach": True},
                {"weight_decay": 0.1}, "_foreach_mul", None, "0.999"),
    "betas": ({"foreach": False}, {"betas": [0.9, 0.95]}, "addcmul", None, "value is 0.05"),
    "nesterov": ({"sgd": 0.9, "foreach": True}, {"nesterov": True}, "_foreach_add", None, ""),
    "clipping": ({"clip": 1.0}, {"clip": 0.5}, "mul", None, "0.5"),
    "loss reduction": ({}, {"reduction": "sum"}, "nll_loss_forward", "", "argument 3 (reduction)"),
    "label smoothing": ({}, {"smoothing": 0.1}, "sum", "", "only the target"),
    "index ignored by the loss": ({}, {"ignored": 3}, "nll_loss_forward", "", "argument 4 (ignore_index) is 3"),
    "padding index": ({}, {"padding": 0}, "fill", "", "only the target"),
    "positions off by one": ({}, {"offset": 1}, "add", "", "argument 1 (other) is 1"),
    "weights not tied": ({}, {"untied": 1}, "mm", "head", ""), "evaluation mode": ({"picture": 1},
        {"eval": 1}, "native_batch_norm", "norm1", "argument 5 (training) is False"),
        "evaluation mode of dropout": ({"dropout": 0.1}, {"eval": 1}, "mul|div",
            "blocks.0.dropout", "only golden"), "dropout seed": ({"dropout": 0.1}, {"seed": 3},
            "bernoulli", "blocks.0.dropout", "random"), "dropout rate": ({"dropout": 0.1},
            {"dropout": 0.2}, "bernoulli", "blocks.0.dropout", "argument 1 (p) is 0.8"),
            "dropped bias": ({}, {"no_bias": 1}, "uniform", "",
                "all random numbers that are drawn after it differ"),
    "groups": ({"picture": 1}, {"groups": 2}, "convolution", "conv2", "argument 8 (groups) is 2"),
    "other pooling": ({"picture": 1}, {"average": 1}, "avg_pool2d", "pool", "max_pool2d"),
    "needless cast": ({"picture": 1}, {"cast": 1}, "_to_copy", "", "only the target"),
    "weight perturbed in the program": ({}, {"perturbed": "blocks.2.up.weight"}, "add", "",
        "only the target"), "fault in a compiled program": ({}, {"compile": "aot_eager",
            "eps": 1e-3}, "native_layer_norm", None, "0.001"),
            "fault beside another memory format": ({"picture": 1}, {"channels_last": 1,
                "average": 1}, "avg_pool2d", "pool", ""), "fault beside autocast": ({},
                {"autocast": 1, "no_scale": 1}, "div", "blocks.1.attention", "only golden"),
                "fault beside checkpointing": ({}, {"checkpoint": 1, "eps": 1e-3},
                    "native_layer_norm", "blocks.1.norm2", "0.001"),
}  # fmt: skip
# Changes that are none.
HEALTHY: dict[str, tuple[Options, Options]] = {
    "in place": ({"relu": "new"}, {"relu": "in place"}),
    "checkpointing": ({}, {"checkpoint": 1}),
    "two attention kernels": ({"fused": "FLASH_ATTENTION"}, {"fused": "MATH"}),
    "attention fused and written out": ({}, {"fused": "FLASH_ATTENTION"}),
    "compiled": ({}, {"compile": "aot_eager"}),
    "compiled picture": ({"picture": 1}, {"compile": "aot_eager"}),
    "optimizer over lists": ({"foreach": False}, {"foreach": True}),
    "SGD over lists": ({"sgd": 0.9, "foreach": False}, {"foreach": True}),
    "fused optimizer": ({"foreach": False}, {"fused_kernel": True}),
    "memory format": ({"picture": 1}, {"channels_last": 1}),
    "autocast": ({}, {"autocast": 1}),
    "autocast of a picture": ({"picture": 1}, {"autocast": 1}),
}


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Goldens:
    return Goldens(PROGRAM, lambda: tmp_path_factory.mktemp("golden"))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", FAULTS)
def test_names_the_right_call_first(name: str, golden: Goldens, tmp_path: Path) -> None:
    both, change, ops, module, says = FAULTS[name]
    document = opscope.compare(
        record(PROGRAM, {**both, **change}, tmp_path / "run"), golden(both)
    ).document
    assert document.verdict == "found"
    first = document.findings[0]
    assert (first.kind, family(first.op or "") in ops.split("|")) == ("divergence-origin", True), (
        first
    )
    assert module is None or first.module == module, first
    assert says in " ".join(first.reasons), first.reasons


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", HEALTHY)
def test_healthy_changes_are_clean(name: str, golden: Goldens, tmp_path: Path) -> None:
    both, change = HEALTHY[name]
    document = opscope.compare(
        record(PROGRAM, {**both, **change}, tmp_path / "run"), golden(both)
    ).document
    assert (document.verdict, document.complete) == ("clean", True), document.findings


def test_whole_processes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The same through the command line, values kept of one side."""
    from opscope.cli import main

    for values, options in (("none", {}), ("sample", {"eps": 1e-3})):
        command = [
            sys.executable,
            "-m",
            "opscope",
            "run",
            "--values",
            values,
            "-o",
            str(tmp_path / values),
            "--",
        ]
        done = subprocess.run(
            [*command, sys.executable, str(PROGRAM), json.dumps(options)],
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, done.stderr[-2000:]
    assert main(["compare", str(tmp_path / "sample"), str(tmp_path / "none"), "--json"]) == 1
    first = json.loads(capsys.readouterr().out)["findings"][0]
    assert (first["op"], first["module"]) == ("aten::native_layer_norm.default", "blocks.1.norm2")
