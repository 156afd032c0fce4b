# SPDX-License-Identifier: Apache-2.0
"""How far optimizers' operators move a parameter at least: never further than torch moves it."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch

from opscope.judge.least_update import least_update, ulp_of
from opscope.run.schema import Tensor


def row(tensor: torch.Tensor) -> Tensor:
    values = tensor.detach().double()
    return Tensor(
        process=0,
        index=0,
        io="input",
        slot="",
        dtype=str(tensor.dtype).removeprefix("torch."),
        size=tensor.numel(),
        nan=0,
        pos_inf=0,
        neg_inf=0,
        min=float(values.min()),
        max=float(values.max()),
    )


FUSED: dict[str, tuple[Any, dict[str, Any]]] = {
    "_fused_sgd": (torch.optim.SGD, {"momentum": 0.9, "weight_decay": 0.1}),
    "_fused_adam": (torch.optim.Adam, {"amsgrad": True}),
    "_fused_adamw": (torch.optim.AdamW, {"weight_decay": 0.1}),
    "_fused_adagrad": (torch.optim.Adagrad, {"lr_decay": 0.1, "weight_decay": 0.1}),
}
STATES = {
    "_fused_sgd": ("momentum_buffer",),
    "_fused_adam": ("exp_avg", "exp_avg_sq", "max_exp_avg_sq", "step"),
    "_fused_adamw": ("exp_avg", "exp_avg_sq", "-", "step"),
    "_fused_adagrad": ("sum", "step"),
}


@pytest.mark.parametrize("word", FUSED)
def test_a_step_moves_at_least_as_far(word: str) -> None:
    kind, settings = FUSED[word]
    torch.manual_seed(0)
    parameter = torch.nn.Parameter(torch.randn(40))
    optimizer = kind([parameter], lr=0.1, fused=True, **settings)
    told = 0
    for _ in range(5):
        before = parameter.detach().clone()
        parameter.grad = torch.randn(40) * 10
        optimizer.step()
        group, state = optimizer.param_groups[0], optimizer.state[parameter]
        betas = dict(zip(("beta1", "beta2"), group.get("betas", ()), strict=False))
        scalars = {**{key: value for key, value in group.items() if key != "params"}, **betas}
        args = json.dumps(
            {
                "args": [],
                "kwargs": {k: v for k, v in scalars.items() if isinstance(v, (int, float))},
            }
        )
        rows = {
            f"{place}.0": row(state[name])
            for place, name in enumerate(STATES[word], 2)
            if name in state
        }
        given = {"0.0": row(before), "1.0": row(parameter.grad), **rows}
        least = least_update(word, "0.0", args, given, rows)
        moved = float((parameter.detach() - before).abs().max())
        if least is not None:
            told += least > 0
            assert least <= moved * 1.001
    assert told


@pytest.mark.parametrize(
    ("word", "args", "others", "least"),
    [
        ("_foreach_add", {"args": [[], []], "kwargs": {"alpha": -0.5}}, [4.0], 2.0),
        ("add", {"args": [], "kwargs": {}}, [4.0], 4.0),
        ("_foreach_addcdiv", {"args": [[], [], [], [-0.1]]}, [4.0, 2.0], 0.2),
        ("mul", {"args": [{"tensor": "0"}, 0.9]}, [], 0.3),
        ("lerp", {"args": []}, [4.0], None),
    ],
)
def test_parts_of_a_step(
    word: str, args: dict[str, Any], others: list[float], least: float | None
) -> None:
    dot = ".0" if word.startswith("_foreach") else ""
    given = {f"0{dot}": row(torch.tensor([1.0, -3.0]))}
    given |= {f"{i}{dot}": row(torch.tensor([each, 0.0])) for i, each in enumerate(others, 1)}
    found = least_update(word, f"0{dot}", json.dumps(args), given, {})
    assert found == (None if least is None else pytest.approx(least))


def test_what_is_skipped_or_not_finite_is_due_nothing() -> None:
    skipped = {"0.0": row(torch.ones(4)), "1.0": row(torch.ones(4))}
    args = json.dumps({"args": [], "kwargs": {"lr": 0.1, "momentum": 0.0}})
    assert least_update("_fused_sgd", "0.0", args, skipped, {}) == pytest.approx(0.1)
    given = {**skipped, "kwargs.found_inf": row(torch.ones(1))}
    assert least_update("_fused_sgd", "0.0", args, given, {}) is None
    assert least_update("_fused_sgd", "0.0", "[", skipped, {}) is None


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
def test_an_ulp_is_the_distance_to_the_next_number(dtype: torch.dtype) -> None:
    largest = torch.tensor([0.3, -5.0], dtype=dtype)
    step = float(torch.nextafter(torch.tensor(5.0, dtype=dtype), torch.tensor(9.0, dtype=dtype)))
    assert ulp_of(row(largest)) == step - 5.0
