# SPDX-License-Identifier: Apache-2.0
"""Ranks that train one model, one of which runs another program: told at its first other call, and
never of ranks that share work out, read their data in Python or do something else in each step.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.questions.builder import Builder, state

from opscope.run.finding import Finding
from opscope.scan.api import scan


def content(number: int, **columns: Any) -> dict[str, Any]:
    return state(number, **{"digest": number, **columns})


def arguments(*values: Any, **keywords: Any) -> str:
    tree = {"args": [{"tensor": "0"}, *values], "kwargs": keywords}
    return msgspec.json.encode(tree).decode()


Ops = list[tuple[str, str]]
NORM: Ops = [("layer_norm", arguments([16], 1e-5)), ("gelu", arguments())]


def trained(
    odd: Any = NORM,
    *,
    steps: int = 4,
    ranks: int = 3,
    usual: Ops = NORM,
    shape: tuple[int, ...] = (4, 16),
    called: int = 1,
    gradient: int = 0,
    role: str = "parameter",
    modes: dict[str, Any] | None = None,
) -> list[Finding]:
    """Ranks that run `usual` in module b of each step, the last one `odd` (a list, or what gives
    one for a step) on tensors of another shape, calling b more often, with another gradient, mode.
    """
    rows = Builder()
    for rank in range(ranks):
        last = rank == ranks - 1
        at: dict[str, Any] = {"process": rank, "source": "/ddp.py:7"}
        for step in range(steps):
            rows.step = step
            ops = usual if not last else odd(step) if callable(odd) else odd
            parent = sum(call.process == rank for call in rows.calls)
            for _ in range(called if last else 1):
                rows.call("Block", [], [], level="module", module="b", **at)
            for place, (op, args) in enumerate(ops):
                size: dict[str, Any] = {"shape": shape if last else (4, 16)}
                number = 1000 * rank + 100 * step + place
                phase = "communication" if "c10d" in op else "forward"
                at_call = {**at, "phase": phase, "module": "b", "parent": parent}
                given = [content(10_000 + number, **size)]
                rows.call(op, given, [content(20_000 + number, **size)], args=args, **at_call)
            held = {"role": "gradient", "tensor_name": "b.weight"}
            number = 30_000 + step + (gradient if last else 0)
            weight = content(40_000 + rank, digest=7, role=role, tensor_name="b.weight")
            rows.call("mm", [weight], [content(number, **held)], phase="backward", **at)
        rows.ends(rank, exit_code=0, torch={"training": {"modes": modes}} if last and modes else {})
    found = scan(rows.run()).findings
    return [finding for finding in found if finding.kind == "rank-mismatch"]


EPS: Ops = [("layer_norm", arguments([16], 1e-3)), NORM[1]]
RELU: Ops = [NORM[0], ("relu", arguments())]


@pytest.mark.parametrize(
    ("odd", "op", "words"),
    [
        (EPS, "layer_norm", "argument 2 (weight) is 0.001, rank 0 has 1e-05"),
        (RELU, "relu", "rank 2 runs aten::relu.default, rank 0 aten::gelu.default"),
        ([NORM[0], ("gelu", arguments(approximate="tanh"))], "gelu", "approximate is tanh"),
        (
            [NORM[0], ("_to_copy", arguments(dtype={"dtype": "bfloat16"})), NORM[1]],
            "_to_copy",
            "rank 2 runs aten::_to_copy",
        ),
    ],
    ids=["eps", "activation", "keyword", "autocast"],
)
def test_another_program_on_one_rank_is_told_at_its_first_other_call(
    odd: Ops, op: str, words: str
) -> None:
    (finding,) = trained(odd)
    assert (finding.rank, finding.step, finding.op) == (2, 0, f"aten::{op}.default")
    assert (finding.source, finding.confidence) == ("/ddp.py:7", "suspected")
    assert words in " ".join(finding.reasons)


REDUCED: tuple[str, str] = ("c10d::allreduce_", arguments())
ITEM: tuple[str, str] = ("_local_scalar_dense", arguments())


HEALTHY: dict[str, dict[str, Any]] = {
    "the same": {},
    "sizes are the batch's own": {"odd": [("layer_norm", arguments([32], 1e-5)), NORM[1]]},
    "a view": {"odd": [("view", arguments([4, 16])), *NORM]},
    "not always the same": {"odd": lambda step: EPS if step else NORM},
    "two steps": {"odd": EPS, "steps": 2},
    "other shapes before": {"odd": RELU, "shape": (3, 16)},
    "other shapes go in": {"odd": EPS, "shape": (3, 16)},
    "a rank that validates": {"odd": EPS, "called": 2},
    "two models": {"odd": EPS, "gradient": 500},
    "shards": {"odd": EPS, "role": "shard"},
    "work is shared out": {"odd": [REDUCED, *EPS], "usual": [REDUCED, *NORM]},
    "the data decides": {"odd": [ITEM, *EPS], "usual": [ITEM, *NORM]},
}


@pytest.mark.parametrize("name", HEALTHY)
def test_what_ranks_may_do_otherwise_is_let_alone(name: str) -> None:
    assert trained(**HEALTHY[name]) == []


def test_another_mode_is_told_as_such_alone() -> None:
    (finding,) = trained(RELU, modes={"b": [(0, False)]})
    assert "in eval mode on rank 2" in finding.reasons[0]
