# SPDX-License-Identifier: Apache-2.0
"""A kernel that is wrong in every process is named by the operator itself in another form; coarse
and ill-conditioned ones are not.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from opscope.record.torch.capture import capture
from opscope.substitute.examine import examine
from opscope.substitute.perform import Bound, outputs_of
from opscope.substitute.shared import is_update, judge_update
from opscope.substitute.witness import near_by
from opscope.substitute.witness.alone import fits
from opscope.substitute.witness.apart import is_dense

aten: Any = torch.ops.aten


@pytest.fixture
def library() -> Iterator[Any]:
    library = torch.library.Library("opscope_witness", "DEF")
    yield library
    library._destroy()


def verdict_of(func: Any, *args: Any, writes: frozenset[str] = frozenset()) -> Any:
    """The verdict of a call by what it gives itself: every process has the same kernel."""
    captured = capture(func.name(), args, {}, writes=writes, random=False, limit=1 << 24)
    result = func(*args)
    given, _ = captured.given(result)
    outputs = {
        slot: tensor
        for slot, tensor in outputs_of(result, captured.tensors, writes).items()
        if slot in given.outputs
    }
    return examine(Bound(captured.call, captured.pieces, func, writes), outputs).verdict


def define(library: Any, schema: str, function: Any) -> Any:
    name = library.define(schema)
    library.impl(name, function, "CPU")
    return getattr(torch.ops.opscope_witness, name).default


def blockwise_wrong(x: torch.Tensor) -> torch.Tensor:
    """A vector body that leaves whole blocks of eight as they were in float32, and a right tail."""
    result = x.exp()
    if x.dtype is torch.float32:
        whole = x.numel() // 8 * 8
        result.view(-1)[:whole] = x.reshape(-1)[:whole]
    return result


def test_a_vector_body_that_is_wrong_is_named_by_the_element_alone(library: Any) -> None:
    func = define(library, "body(Tensor x) -> Tensor", blockwise_wrong)
    found = verdict_of(func, torch.linspace(1, 2, 67))
    assert (found.verdict, found.elements, found.size) == ("wrong", 64, 67)
    assert "alone the operator gives" in found.reason
    assert verdict_of(func, torch.linspace(1, 2, 7)).verdict == "agree"


def test_a_kernel_that_goes_wrong_with_strides_in_every_type_is_named_by_contiguous_arguments(
    library: Any,
) -> None:
    def strided_wrong(x: torch.Tensor) -> torch.Tensor:
        return x.exp() if x.is_contiguous() else torch.zeros_like(x)

    func = define(library, "strided(Tensor x) -> Tensor", strided_wrong)
    assert verdict_of(func, torch.randn(6, 5).t()).verdict == "wrong"
    assert verdict_of(func, torch.randn(6, 5)).verdict == "agree"


def test_a_kernel_that_is_coarse_in_every_form_is_not_accused(library: Any) -> None:
    def coarse(x: torch.Tensor) -> torch.Tensor:
        return x.exp() * (1.001 if x.dtype is torch.float32 else 1.0)

    assert verdict_of(
        define(library, "coarse(Tensor x) -> Tensor", coarse), torch.randn(67)
    ).verdict in {"agree", "ill-conditioned"}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_an_ill_conditioned_call_is_not_accused(dtype: torch.dtype) -> None:
    y = 1 - 0.002 * torch.rand(40, dtype=dtype)
    assert (
        verdict_of(aten.tanh_backward.default, torch.randn(40, dtype=dtype), y).verdict != "wrong"
    )
    assert (
        verdict_of(
            aten.sub.Tensor,
            torch.full((40,), 1e4, dtype=dtype),
            torch.full((40,), 1e4, dtype=dtype),
        ).verdict
        != "wrong"
    )


def test_products_in_the_precision_that_the_program_asks_for_are_not_accused() -> None:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    try:
        found = verdict_of(aten.mm.default, torch.randn(64, 300), torch.randn(300, 64))
    finally:
        torch.set_float32_matmul_precision(before)
    assert found.verdict != "wrong"


def test_an_update_that_left_elements_as_they_were() -> None:
    before = torch.linspace(0.1, 0.3, 67, dtype=torch.float64).numpy()
    true = before - 0.01
    rounded = torch.from_numpy(true).bfloat16().double().numpy()
    assert judge_update("written:0.0", "bfloat16", before, rounded, true).verdict == "agree"
    stale = rounded.copy()
    stale[:64] = before[:64]
    found = judge_update("written:0.0", "bfloat16", before, stale, true)
    assert (found.verdict, found.elements) == ("wrong", 64)
    assert is_update("aten::_fused_sgd_.default", "written:0.0")
    assert not is_update("aten::_fused_sgd_.default", "0")
    assert not is_update("aten::add_.Tensor", "written:0")


def test_what_is_near_the_true_element() -> None:
    assert near_by(2.0, 0.5)(2.4)
    assert not near_by(2.0, 0.5)(float("nan"))
    assert near_by(float("inf"), None)(float("inf"))
    assert not near_by(float("inf"), None)(1.0)
    assert not near_by(2385.0, None)(0.0002)


@pytest.mark.parametrize(
    ("shape", "stride", "dense"),
    [((3, 4), (4, 1), True), ((3, 4), (1, 3), False), ((1, 4), (9, 1), True), ((), (), True)],
)
def test_dense(shape: tuple[int, ...], stride: tuple[int, ...], *, dense: bool) -> None:
    assert is_dense(shape, stride) is dense


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_the_fused_sgd_that_ships(dtype: torch.dtype) -> None:
    """torch 2.13.0 leaves whole vectors of half parameters as they were on some processors; where
    it does not, nobody is accused.
    """
    parameters, gradients = torch.linspace(-1, 1, 67, dtype=dtype), torch.ones(67, dtype=dtype)
    given = ([parameters.clone()], [gradients], [])
    settings = {
        "lr": 0.5,
        "weight_decay": 0.0,
        "momentum": 0.0,
        "dampening": 0.0,
        "nesterov": False,
        "maximize": False,
        "is_first_step": True,
    }
    captured = capture(
        "aten::_fused_sgd_.default",
        given,
        settings,
        writes=frozenset({"0"}),
        random=False,
        limit=1 << 20,
    )
    aten._fused_sgd_.default(*given, **settings)
    stale = int((given[0][0] == parameters).sum())
    found = examine(Bound(captured.call, captured.pieces), {"written:0.0": given[0][0]}).verdict
    assert (found.verdict == "wrong") == bool(stale)
    assert not stale or found.elements >= stale - 1


def captured_call(func: Any, *args: Any) -> Bound:
    captured = capture(func.name(), args, {}, writes=frozenset(), random=False, limit=1 << 24)
    return Bound(captured.call, captured.pieces, func)


def test_only_what_a_program_could_call_is_cut_out() -> None:
    """Kernels that do not look whether their arguments fit would write beyond them."""
    x, w = torch.randn(4, 3), torch.randn(4, 3)
    assert fits(captured_call(aten.add.Tensor, x, w), (4, 3), 2)
    assert not fits(captured_call(aten.linear.default, x, w), (4, 4), 1)
    places = torch.zeros(4, 3, dtype=torch.int64)
    assert not fits(captured_call(aten.gather.default, x, 1, places), (4, 3), 2)
    assert fits(captured_call(aten.gather.default, x, 1, places), (4, 3), 1)
    lists = (
        [torch.randn(32, 16), torch.randn(32), torch.randn(4, 32)],
        [torch.randn(32, 16), torch.randn(32), torch.randn(4, 32)],
        [],
    )
    settings = dict.fromkeys(("weight_decay", "momentum", "lr", "dampening"), 0.5) | dict.fromkeys(
        ("nesterov", "maximize", "is_first_step"), False
    )
    captured = capture(
        "aten::_fused_sgd_.default",
        lists,
        settings,
        writes=frozenset({"0"}),
        random=False,
        limit=1 << 20,
    )
    assert fits(Bound(captured.call, captured.pieces), (32, 16), 2)
    norm = (
        torch.randn(3, 3),
        torch.randn(3, 3),
        torch.ones(3),
        None,
        None,
        torch.zeros(3),
        torch.ones(3),
        True,
        1e-5,
        [True] * 3,
    )
    assert not fits(captured_call(aten.native_batch_norm_backward.default, *norm), (3, 3), 1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_result_without_a_digit_right_is_suspected_by_the_true_one_alone(
    library: Any, dtype: torch.dtype
) -> None:
    def lost(x: torch.Tensor) -> torch.Tensor:
        return x.exp() if x.dtype is torch.float64 else (x * 0 + 3)

    found = verdict_of(
        define(library, "lost(Tensor x) -> Tensor", lost), torch.randn(67, dtype=dtype)
    )
    assert (found.verdict, found.witnesses) == (
        ("wrong", 1) if dtype is torch.float32 else ("agree", 0)
    )


def test_what_underflows_in_its_type_is_right() -> None:
    assert verdict_of(aten._to_copy.default, torch.tensor([3e-9])).verdict == "agree"
    assert (
        verdict_of(
            aten.mul.Tensor, torch.full((9,), 1e-4).half(), torch.full((9,), 1e-5).half()
        ).verdict
        != "wrong"
    )


def test_documented_approximations_are_not_accused() -> None:
    x = 1000 + 1e-3 * torch.rand(40, 3)
    assert verdict_of(aten._euclidean_dist.default, x, x.clone()).verdict != "wrong"


def test_sums_in_half_types_are_accused_where_they_stop_growing_only() -> None:
    words = torch.zeros(4096, dtype=torch.int64)
    healthy = torch.randn(4096, 8).bfloat16()
    assert (
        verdict_of(aten.embedding_dense_backward.default, healthy, words, 4, -1, False).verdict
        != "wrong"
    )
    kept = torch.zeros(1, dtype=torch.bfloat16).index_put(
        (words,), torch.ones(4096, dtype=torch.bfloat16), accumulate=True
    )
    found = verdict_of(
        aten.embedding_dense_backward.default, torch.ones(4096, 8).bfloat16(), words, 4, -1, False
    )
    assert kept.item() == 4096 or found.verdict == "wrong"


def test_quotients_that_are_rounded_before_they_are_cut_are_not_accused() -> None:
    x, y = torch.full((250,), 18.0).bfloat16(), torch.full((250,), 1.0).bfloat16()
    assert verdict_of(aten.floor_divide.default, x * 1.0078125, y * 1.0078125).verdict != "wrong"


def test_what_speaks_of_its_element_type_is_not_held_against_a_wider_one() -> None:
    x = torch.tensor([float("inf"), float("-inf"), 1.0, float("nan")])
    assert verdict_of(aten.nan_to_num.default, x).verdict == "agree"


def test_factors_that_only_a_gradient_reads_are_those_of_any_layout() -> None:
    for func in (aten._linalg_det.default, aten._linalg_slogdet.default):
        assert verdict_of(func, torch.randn(10, 10)[::2, ::2]).verdict != "wrong"
        assert verdict_of(func, torch.randn(5, 5)).verdict != "wrong"


@pytest.mark.parametrize("p", [2.0, float("inf")])
def test_gradients_that_find_their_place_by_a_rounded_distance_are_not_accused(p: float) -> None:
    x = torch.randn(5, 5)
    distance = aten._pdist_forward.default(x, p)
    gradient = torch.randn_like(distance)
    assert verdict_of(aten._pdist_backward.default, gradient, x, p, distance).verdict != "wrong"


def test_state_of_an_optimizer_whose_terms_cancel_is_not_accused() -> None:
    torch.manual_seed(0)
    parameter, decay = torch.randn(16).bfloat16(), 0.1
    gradient = (-decay * parameter).add(1e-3).bfloat16()  # gradient + decay * parameter is small
    lists = [[parameter], [gradient], [torch.zeros(16).bfloat16()], [torch.tensor(1.0)]]
    settings = {"lr": 0.1, "lr_decay": 0.0, "weight_decay": decay, "eps": 1e-10, "maximize": False}
    func = aten._fused_adagrad_.default
    writes = frozenset({"0", "1", "2"})
    captured = capture(func.name(), lists, settings, writes=writes, random=False, limit=1 << 24)
    result = func(*lists, **settings)
    given, _ = captured.given(result)
    outputs = {
        slot: tensor
        for slot, tensor in outputs_of(result, captured.tensors, writes).items()
        if slot in given.outputs and slot.endswith("2.0")
    }
    bound = Bound(captured.call, captured.pieces, func, writes)
    assert outputs
    assert examine(bound, outputs).verdict.verdict != "wrong"


def test_integers_that_strides_make_wrong_are_named_by_contiguous_arguments(library: Any) -> None:
    def strided_wrong(x: torch.Tensor) -> torch.Tensor:
        return x + 1 if x.is_contiguous() else x + 2

    func = define(library, "counted(Tensor x) -> Tensor", strided_wrong)
    found = verdict_of(func, torch.arange(12).view(3, 4).t())
    assert (found.verdict, found.witnesses, found.got, found.expected) == ("wrong", 2, "2", "1")
    assert verdict_of(func, torch.arange(12)).verdict == "agree"


def test_integers_that_are_undefined_in_every_form_are_not_accused(library: Any) -> None:
    func = define(library, "garbage(Tensor x) -> Tensor", lambda x: torch.randint_like(x, 1 << 40))
    assert verdict_of(func, torch.arange(12).view(3, 4).t()).verdict != "wrong"


def test_choices_among_equal_integers_are_not_accused() -> None:
    x = torch.randint(0, 3, (40, 6)).t()
    for func, args in (
        (aten.sort.default, (x, 1)),
        (aten.argmax.default, (x, 1)),
        (aten.topk.default, (x, 3)),
        (aten.mode.default, (x, 1)),
        (aten.cumsum.default, (x, 1)),
        (aten._unique2.default, (x, False, True, True)),
    ):
        assert verdict_of(func, *args).verdict != "wrong"


def test_products_of_integers_whose_only_row_has_a_step_of_nothing() -> None:
    """pytorch issue 195066."""
    row = torch.randint(-8, 8, (64,), dtype=torch.int8).as_strided((1, 64), (0, 1))
    matrix = torch.randint(-8, 8, (64, 32), dtype=torch.int8)
    right = torch.equal(aten._int_mm.default(row, matrix), row.int() @ matrix.int())
    assert right or verdict_of(aten._int_mm.default, row, matrix).verdict == "wrong"


def test_bytes_are_held_against_int64_where_that_fits() -> None:
    pixels = torch.arange(0, 256, 3, dtype=torch.uint8)
    found = verdict_of(aten.lt.Scalar, pixels, 256)
    assert (found.verdict, found.elements, found.witnesses) == ("wrong", len(pixels), 1)
    assert "in int64, where no argument wraps," in found.reason
    below = verdict_of(aten.le.Tensor, pixels, torch.tensor(-19, dtype=torch.int8))
    assert (below.verdict, below.got, below.expected) == ("wrong", "1", "0")


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("add.Tensor", 200),
        ("mul.Tensor", 7),
        ("sub.Tensor", 77),
        ("bitwise_and.Scalar", 15),
        ("remainder.Scalar", 7),
        ("lt.Scalar", 100),
        ("eq.Scalar", 255),
        ("__rshift__.Scalar", 2),
        ("pow.Tensor_Scalar", 3),
        ("clamp_min.default", 9),
        ("floor_divide.Scalar", 5),
    ],
)
@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16], ids=str)
def test_integers_that_wrap_or_round_as_they_are_meant_are_not_accused(
    name: str, other: int, dtype: torch.dtype
) -> None:
    operator, overload = name.split(".")
    numbers = torch.arange(0, 256, 3).to(dtype)
    found = verdict_of(getattr(getattr(aten, operator), overload), numbers, other)
    assert found.verdict == "agree"


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int32], ids=str)
@pytest.mark.parametrize(
    ("name", "rest"),
    [
        ("abs", ()),
        ("neg", ()),
        ("sum", ()),
        ("cumsum", (0,)),
        ("sort", ()),
        ("argmax", ()),
        ("bitwise_not", ()),
        ("sgn", ()),
        ("prod", ()),
        ("nonzero", ()),
        ("flip", ([0],)),
    ],
)
def test_right_kernels_of_integers_are_not_accused(
    dtype: torch.dtype, name: str, rest: tuple[Any, ...]
) -> None:
    numbers = torch.tensor([-128, 127, 0, 3, 3, -5]).to(dtype)
    assert verdict_of(getattr(aten, name).default, numbers, *rest).verdict == "agree"


def test_bits_of_booleans_are_no_numbers() -> None:
    flags = torch.tensor([True, False, True])
    for func in (aten.bitwise_not.default, aten.sum.default, aten.logical_not.default):
        assert verdict_of(func, flags).verdict == "agree"


def test_infinite_complex_numbers_are_added_part_by_part() -> None:
    pole = torch.tensor([complex(math.inf, 0), 1 + 2j], dtype=torch.complex64)
    assert verdict_of(aten.add.Tensor, pole, pole).verdict == "wrong"
    assert verdict_of(aten.add.Tensor, pole[1:], pole[1:].conj().resolve_conj()).verdict == "agree"
