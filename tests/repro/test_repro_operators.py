# SPDX-License-Identifier: Apache-2.0
"""Real operators that fail: each is cut out of a run, executed alone in a fresh process, and must
fail in the same way.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from tests.repro.single_calls import record, run_script

import opscope.repro
from opscope.run.memory import MemoryRun
from opscope.run.schema import Call

INF, NAN = math.inf, math.nan
Recorded = tuple[MemoryRun, Call]


def seeded(*shape: int, dtype: torch.dtype = torch.float32, scale: float = 1.0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(sum(shape))
    return (torch.randn(*shape, generator=generator) * scale).to(dtype)


def bmm() -> Recorded:
    return record(
        "aten::bmm.default",
        seeded(2, 8, 64, dtype=torch.float16, scale=100),
        seeded(2, 64, 8, dtype=torch.float16, scale=100),
    )


def log() -> Recorded:
    return record("aten::log.default", torch.tensor([1.0, 0.0, -1.0]))


def layer_norm() -> Recorded:
    x = torch.tensor([[1.0, INF, 2.0], [1.0, 2.0, 3.0]])
    return record("aten::native_layer_norm.default", x, [3], torch.ones(3), torch.zeros(3), 1e-5)


def convolution() -> Recorded:
    x, w = (
        torch.full((1, 3, 8, 8), 60000.0, dtype=torch.float16),
        torch.ones(4, 3, 3, 3, dtype=torch.float16),
    )
    x = x.to(memory_format=torch.channels_last)
    return record("aten::convolution.default", x, w, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1)


def log_in_place() -> Recorded:
    return record("aten::log_.default", torch.tensor([1.0, -2.0, 4.0]))


def addcdiv_in_place() -> Recorded:
    return record(
        "aten::addcdiv_.default", torch.ones(4), torch.ones(4), torch.zeros(4), value=-0.1
    )


def strided_view() -> Recorded:
    base = torch.zeros(6, 10)
    base[:, 3] = -1.0
    return record("aten::sqrt.default", base[1:5:2, 1::2])


def expanded() -> Recorded:
    return record(
        "aten::div.Tensor", torch.ones(5, 4), torch.tensor([0.0, 1.0, 2.0, 3.0]).expand(5, 4)
    )


def overlapping_windows() -> Recorded:
    return record("aten::log.default", torch.arange(6.0).as_strided((4, 3), (1, 1)))


def aliased() -> Recorded:
    # add_ of a buffer to a shifted view of itself is unsafe; mul by its own transpose is legal and
    # aliases all the same.
    x = torch.tensor([[1e30, -1e30], [3e30, 1.0]])
    return record("aten::mul.Tensor", x, x.t())


def in_place_on_alias() -> Recorded:
    x = torch.tensor([1e30, 2.0, 3.0])
    return record("aten::mul_.Tensor", x, x)


def writes_seen_through_another_view() -> Recorded:
    # The first product is seen by the second entry only because both look at one storage.
    x = torch.full((4,), 1e20)
    return record("aten::_foreach_mul_.Scalar", [x[:3], x[1:]], 1e15)


def two_types_one_storage() -> Recorded:
    x = torch.full((2,), 0x7F7F7F7F, dtype=torch.int32)
    return record(
        "aten::_foreach_add.List",
        [x.view(torch.float32), torch.ones(2)],
        [x.view(torch.float32), torch.full((2,), INF)],
    )


def bytes_under_two_types() -> Recorded:
    x = torch.full((4,), 3e38)
    return record("aten::masked_fill.Scalar", x, x.view(torch.bool)[:4], INF)


def keyword_tensors() -> Recorded:
    x = torch.full((2, 2), 1e38)
    return record("aten::addmm.default", torch.zeros(2, 2), x, mat2=x, beta=1, alpha=2)


def cat() -> Recorded:
    return record(
        "aten::cat.default", [torch.ones(2, 3), torch.full((1, 3), NAN), torch.empty(0)], 0
    )


def foreach() -> Recorded:
    return record("aten::_foreach_add_.Scalar", [torch.full((3,), 3e38), torch.ones(2)], 3e38)


def foreach_lists() -> Recorded:
    return record(
        "aten::_foreach_div.List", [torch.ones(3), torch.ones(2)], [torch.ones(3), torch.zeros(2)]
    )


def softmax_backward() -> Recorded:
    y = torch.softmax(seeded(4, 5), 1)
    return record(
        "aten::_softmax_backward_data.default", torch.full((4, 5), INF), y, 1, torch.float32
    )


def gelu_backward() -> Recorded:
    return record(
        "aten::gelu_backward.default",
        torch.full((6,), 65000.0, dtype=torch.float16),
        torch.full((6,), 1.5, dtype=torch.float16),
        approximate="tanh",
    )


def flash_attention() -> Recorded:
    q = torch.full((1, 2, 8, 16), 1e30)
    return record(
        "aten::_scaled_dot_product_flash_attention_for_cpu.default",
        q,
        q * 2,
        torch.ones(1, 2, 8, 16),
        0.0,
        True,
        scale=1e9,
    )


def embedding_backward() -> Recorded:
    index = torch.tensor([1, 1, 2])
    return record(
        "aten::embedding_dense_backward.default", torch.full((3, 4), 3e38), index, 5, -1, False
    )


def index_put() -> Recorded:
    return record(
        "aten::index_put.default",
        torch.zeros(3, 4),
        [None, torch.tensor([1, 3])],
        torch.tensor([NAN, 1.0]),
    )


def scalar_infinity() -> Recorded:
    return record("aten::sub.Tensor", torch.full((3,), INF), torch.tensor(INF), alpha=1)


def masked_fill_infinity() -> Recorded:
    return record(
        "aten::masked_fill.Scalar",
        torch.ones(2, 2),
        torch.tensor([[True, False], [False, True]]),
        -INF,
    )


def full_dtype_device() -> Recorded:
    return record(
        "aten::full.default",
        [2, 3],
        NAN,
        dtype=torch.float16,
        layout=torch.strided,
        device=torch.device("cpu"),
        pin_memory=False,
    )


def to_copy() -> Recorded:
    x = torch.full((1, 2, 3, 3), 1e5)
    return record(
        "aten::_to_copy.default", x, dtype=torch.float16, memory_format=torch.channels_last
    )


def complex_numbers() -> Recorded:
    x = torch.tensor([1e200 + 1e100j, 1 + 1j], dtype=torch.complex128)
    return record("aten::mul.Tensor", x, x.conj().resolve_conj().flip(0).flip(0))


def complex_scalar() -> Recorded:
    return record(
        "aten::mul.Scalar", torch.full((2,), 1e38, dtype=torch.complex64), complex(1e38, -2.0)
    )


def boolean() -> Recorded:
    return record(
        "aten::where.self",
        torch.tensor([True, False]),
        torch.tensor([NAN, 1.0]),
        torch.tensor([1.0, 1.0]),
    )


def bfloat16() -> Recorded:
    return record("aten::exp.default", torch.full((5,), 90.0, dtype=torch.bfloat16))


def fp8_cast() -> Recorded:
    return record(
        "aten::_to_copy.default", torch.tensor([1.0, NAN, 300.0]), dtype=torch.float8_e4m3fn
    )


def fp8_input() -> Recorded:
    return record(
        "aten::_to_copy.default",
        torch.tensor([1.0, INF, 300.0]).to(torch.float8_e5m2),
        dtype=torch.float32,
    )


def batch_norm_writes_running_mean() -> Recorded:
    x = torch.full((2, 3, 4), 3e38)
    return record(
        "aten::native_batch_norm.default",
        x,
        torch.ones(3),
        torch.zeros(3),
        torch.zeros(3),
        torch.ones(3),
        True,
        0.1,
        1e-5,
    )


def scalar_tensor() -> Recorded:
    return record("aten::div.Tensor", torch.tensor(1.0), torch.tensor(0.0))


def out_variant() -> Recorded:
    return record("aten::exp.out", torch.full((3,), 100.0), out=torch.zeros(3))


def split_list() -> Recorded:
    return record("aten::split.Tensor", torch.tensor([1.0, NAN, 2.0]), 2)


def gru() -> Recorded:
    params = [seeded(12, 4), seeded(12, 3), seeded(12), seeded(12)]
    return record(
        "aten::gru.input",
        torch.full((2, 1, 4), NAN),
        torch.zeros(1, 1, 3),
        params,
        True,
        1,
        0.0,
        False,
        False,
        False,
    )


FAILING = [
    bmm,
    log,
    layer_norm,
    convolution,
    log_in_place,
    addcdiv_in_place,
    strided_view,
    expanded,
    overlapping_windows,
    aliased,
    in_place_on_alias,
    two_types_one_storage,
    writes_seen_through_another_view,
    bytes_under_two_types,
    keyword_tensors,
    cat,
    foreach,
    foreach_lists,
    softmax_backward,
    gelu_backward,
    flash_attention,
    embedding_backward,
    index_put,
    scalar_infinity,
    masked_fill_infinity,
    full_dtype_device,
    to_copy,
    complex_numbers,
    complex_scalar,
    boolean,
    bfloat16,
    fp8_cast,
    fp8_input,
    batch_norm_writes_running_mean,
    scalar_tensor,
    out_variant,
    split_list,
    gru,
]


@pytest.mark.parametrize("case", FAILING, ids=lambda case: case.__name__)
def test_failing_operator_is_reproduced_alone(case: Callable[[], Recorded], tmp_path: Path) -> None:
    run, call = case()
    opscope.repro.write(run, call, tmp_path / "case")
    code, document = run_script(tmp_path / "case")
    assert (code, document["verdict"]) == (1, "reproduced"), document["lines"]
    assert "in part" not in document["reason"]
    for row in run.rows("tensors"):
        if row.io == "output":
            here = document["seen"][row.slot]
            assert (here["nan"], here["pos_inf"], here["neg_inf"]) == (
                row.nan,
                row.pos_inf,
                row.neg_inf,
            )
            assert any(line.startswith(f"  same  {row.slot} ") for line in document["lines"]), (
                document["lines"]
            )


@pytest.mark.parametrize(
    "case",
    [
        bmm,
        *(
            pytest.param(case, marks=pytest.mark.zoo)
            for case in (log_in_place, two_types_one_storage)
        ),
    ],
    ids=lambda case: case.__name__,
)
def test_folder_runs_in_a_fresh_process_from_any_path(
    case: Callable[[], Recorded], tmp_path: Path
) -> None:
    run, call = case()
    directory = tmp_path / 'a case+it\'s 复现 "x"'
    repro = opscope.repro.write(run, call, directory)
    assert sorted(repro.written) == [
        "README.md",
        "case.json",
        "expected.safetensors",
        "inputs.safetensors",
        "repro.py",
    ]
    outcome = opscope.repro.execute(directory)
    assert (outcome.status, outcome.exit_code, outcome.shown, outcome.tried) == (
        "reproduced",
        1,
        1,
        1,
    ), outcome
