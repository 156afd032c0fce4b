# SPDX-License-Identifier: Apache-2.0
"""Healthy kernels that compute in another order are accused of nothing, wrong elements are,
whatever the trusted kernel happens to err.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from msgspec.structs import replace

from opscope.record.torch.capture import capture
from opscope.substitute.examine import examine, not_defined, same_bits
from opscope.substitute.layout import Laid
from opscope.substitute.perform import Bound

Tensor = torch.Tensor
aten: Any = torch.ops.aten


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # small tensors: more threads only wait for each other
    yield
    torch.set_num_threads(threads)


def verdict_of(func: Any, args: tuple[Any, ...], result: Tensor) -> str:
    captured = capture(
        func.name() if "." in func.name() else f"{func.name()}.default",
        args,
        {},
        writes=frozenset(),
        random=False,
        limit=1 << 20,
    )
    return examine(Bound(captured.call, captured.pieces), {"0": result}).verdict.verdict


def tanh_backward(dtype: torch.dtype) -> tuple[Any, tuple[Any, ...], Tensor]:
    """1 - y * y as y nears 1 keeps the rounding of y * y; other kernels fuse the two."""
    grad, y = torch.randn(20, dtype=dtype), 1 - 0.002 * torch.rand(20, dtype=dtype)
    return aten.tanh_backward.default, (grad, y), grad - grad * y * y


def softmax_backward(dtype: torch.dtype) -> tuple[Any, tuple[Any, ...], Tensor]:
    grad, y = torch.randn(5, 5, dtype=dtype), torch.randn(5, 5, dtype=dtype).softmax(1)
    return (
        aten._softmax_backward_data.default,
        (grad, y, 1, dtype),
        grad * y - y * (grad * y).flip(1).sum(1, keepdim=True),
    )


def spatial_transformer(dtype: torch.dtype) -> tuple[Any, tuple[Any, ...], Tensor]:
    """Coordinates lose digits when -1 is taken to 0."""
    x, grid = (
        torch.randn(1, 2, 5, 20, dtype=dtype),
        -1 + 0.4 * torch.rand(1, 13, 10, 2, dtype=dtype),
    )
    bent = grid * (1 + torch.finfo(dtype).eps)
    return (
        aten.grid_sampler_2d.default,
        (x, grid, 2, 0, False),
        aten.grid_sampler_2d.default(x, bent, 2, 0, False),
    )


def batch_norm_backward(dtype: torch.dtype) -> tuple[Any, tuple[Any, ...], Tensor]:
    """Of two samples a channel all gradients cancel but for epsilon's part."""
    x, grad, weight = (
        torch.randn(2, 3, dtype=dtype),
        torch.randn(2, 3, dtype=dtype),
        torch.ones(3, dtype=dtype),
    )
    mean, variance = x.mean(0), x.var(0, unbiased=False)
    scale = (variance + 1e-5).rsqrt()
    hat = (x - mean) * scale
    result = scale * (grad - grad.mean(0) - hat * (grad * hat).mean(0))
    args = (
        grad,
        x,
        weight,
        torch.zeros(3, dtype=dtype),
        torch.ones(3, dtype=dtype),
        mean,
        scale,
        True,
        1e-5,
        [True, False, False],
    )
    return aten.native_batch_norm_backward.default, args, result


@pytest.mark.parametrize("seed", [0, 2, 4])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    "program",
    [tanh_backward, softmax_backward, spatial_transformer, batch_norm_backward],
    ids=lambda each: each.__name__,
)
def test_another_order_of_rounding_is_healthy(
    program: Callable[[torch.dtype], Any], dtype: torch.dtype, seed: int
) -> None:
    torch.manual_seed(seed)
    assert verdict_of(*program(dtype)) in ("agree", "ill-conditioned")


@pytest.mark.parametrize(("dtype", "off"), [(torch.float32, 1e-4), (torch.float64, 1e-10)])
@pytest.mark.parametrize(
    "program",
    [tanh_backward, softmax_backward, spatial_transformer, batch_norm_backward],
    ids=lambda each: each.__name__,
)
def test_one_element_beyond_it_is_wrong(
    program: Callable[[torch.dtype], Any], dtype: torch.dtype, off: float
) -> None:
    torch.manual_seed(1)
    func, args, result = program(dtype)
    result.view(-1)[1] += off
    assert verdict_of(func, args, result) == "wrong"


def test_integers_have_no_truer_result_than_that_of_the_type_they_give() -> None:
    """The trusted kernel computes in float32 too, and is itself some roundings off."""
    x = torch.arange(1, 60, dtype=torch.uint8)
    result = torch.special.bessel_y1(x.double()).float()
    assert verdict_of(aten.special_bessel_y1.default, (x,), result) == "agree"
    result[7] *= 1.001
    assert verdict_of(aten.special_bessel_y1.default, (x,), result) == "wrong"


def test_normal_numbers_of_another_cosine_are_the_same_draw() -> None:
    torch.manual_seed(0)
    state = torch.get_rng_state()
    drawn = torch.randn(4096)
    torch.set_rng_state(state)
    captured = capture(
        "aten::randn.default", ([4096],), {}, writes=frozenset(), random=True, limit=1 << 20
    )
    bound = Bound(captured.call, captured.pieces)
    near = drawn.abs().argmin()
    for off, verdict in ((1.5e-6, "agree"), (1e-4, "wrong")):
        other = drawn.clone()
        other[near] += off
        assert examine(bound, {"0": other}).verdict.verdict == verdict


def attention_backward(dtype: torch.dtype) -> tuple[Any, tuple[Any, ...], Tensor]:
    """Of one key the weights are 1, and what the scores' gradient is a difference of cancels."""
    grad, query, key, value = (torch.randn(3, 2, 1, 64).to(dtype) for _ in range(4))
    sums = torch.logsumexp((query.float() @ key.float().mT) / 8, -1)
    apart = (
        (grad.float().flip(3) * value.float().flip(3)).cumsum(3)[..., -1:]
        - (grad.float() * value.float()).sum(3, keepdim=True)
    ) / 8
    args = (grad, query, key, value, value, sums, 0.0, False)
    return (
        aten._scaled_dot_product_flash_attention_for_cpu_backward.default,
        args,
        (apart * key.float()).to(dtype),
    )


@pytest.mark.parametrize("seed", range(4))
def test_what_is_left_of_a_difference_is_no_accumulation_in_a_half_type(seed: int) -> None:
    torch.manual_seed(seed)
    assert verdict_of(*attention_backward(torch.bfloat16)) in ("agree", "ill-conditioned")


def scattered(x: Tensor, weight: Tensor, *, wide: bool) -> Tensor:
    """A transposed convolution without padding: products of channels in float32 or in the type,
    added up over the window in the type.
    """
    (height, width), (rows, columns) = x.shape[2:], weight.shape[2:]
    result = x.new_zeros(x.shape[0], weight.shape[1], height + rows - 1, width + columns - 1)
    for row in range(rows):
        for column in range(columns):
            parts = [
                x[:, c, None] * weight[None, c, :, row, column, None, None]
                for c in range(x.shape[1])
            ]
            product = sum(part.float() for part in parts).to(x.dtype) if wide else sum(parts)
            result[:, :, row : row + height, column : column + width] += product
    return result


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("wide", "verdict"), [(True, "agree"), (False, "wrong")])
def test_a_convolution_may_scatter_over_its_window_in_a_half_type_but_not_sum_channels_in_it(
    dtype: torch.dtype, wide: bool, verdict: str
) -> None:
    torch.manual_seed(0)
    x, weight = torch.randn(2, 96, 6, 6).to(dtype), torch.randn(96, 4, 3, 3).to(dtype)
    args = (x, weight, None, [1, 1], [0, 0], [1, 1], True, [0, 0], 1)
    assert verdict_of(aten.convolution.default, args, scattered(x, weight, wide=wide)) == verdict


def test_gradients_of_a_convolution_may_be_added_up_in_a_half_type_sample_by_sample() -> None:
    torch.manual_seed(0)
    x, grad, weight = (
        torch.randn(shape).to(torch.bfloat16)
        for shape in ((32, 16, 7, 7), (32, 12, 7, 7), (12, 16, 1, 1))
    )
    result = torch.zeros_like(weight)
    for one, other in zip(x.flatten(2), grad.flatten(2), strict=True):
        result += (other.float() @ one.float().T).to(torch.bfloat16)[:, :, None, None]
    args = (grad, x, weight, None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1, [False, True, False])
    captured = capture(
        "aten::convolution_backward.default",
        args,
        {},
        writes=frozenset(),
        random=False,
        limit=1 << 20,
    )
    bound = Bound(captured.call, captured.pieces)
    assert examine(bound, {"1": result}).verdict.verdict == "agree"
    result = torch.zeros_like(weight)
    for one, other in zip(x.flatten(2).unbind(0), grad.flatten(2).unbind(0), strict=True):
        for place in range(49):
            result += (other[:, None, place] * one[None, :, place])[:, :, None, None]
    assert examine(bound, {"1": result}).verdict.verdict == "wrong"


def test_the_bits_of_one_element_that_torch_calls_contiguous_with_any_step() -> None:
    part = torch.view_as_real(torch.tensor([1 + 2j]))[..., 1]
    assert part.stride() == (2,)
    assert same_bits(part, torch.tensor([2.0]))
    assert not same_bits(part, torch.tensor([1.0]))


def inverse_of(matrix: Tensor) -> Bound:
    captured = capture(
        "aten::linalg_inv_ex.default",
        (matrix,),
        {},
        writes=frozenset(),
        random=False,
        limit=1 << 20,
    )
    return Bound(captured.call, captured.pieces)


@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64, torch.float64])
def test_two_results_as_near_as_roundings_of_the_inputs_bring_them_are_no_nondeterminism(
    dtype: torch.dtype,
) -> None:
    generator = torch.Generator().manual_seed(0)
    one, other = (
        torch.linalg.qr(torch.randn(6, 6, dtype=dtype, generator=generator))[0] for _ in range(2)
    )
    bound = inverse_of(
        one @ torch.diag(torch.logspace(0, -4, 6, dtype=dtype)) @ other
    )  # its rows lose four digits
    moved = (
        0.1 * 1e4 * 1e4 * torch.finfo(dtype).eps
    )  # at most the condition number times the largest element
    assert not_defined(bound, {"0": moved}) == ("0",)
    assert (
        not_defined(bound, {"0": 1e3 * moved})
        == not_defined(bound, {"0": float("inf")})
        == not_defined(bound, {})
        == ()
    )


def test_a_well_conditioned_result_that_comes_otherwise_is_nondeterminism() -> None:
    bound = inverse_of(torch.eye(6) * 2)
    assert not_defined(bound, {"0": 1e-4}) == ()


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128], ids=str)
def test_a_sum_of_products_made_in_a_narrower_type_is_told_and_its_inputs_stay(
    dtype: torch.dtype,
) -> None:
    torch.manual_seed(0)
    narrow = torch.complex64 if dtype.is_complex else torch.float32
    a, b = torch.randn(10, 4, dtype=dtype), torch.randn(4, 8, dtype=dtype)
    before = a.clone()
    assert (
        verdict_of(aten.mm.default, (a, b), (a.to(narrow).to(dtype)) @ (b.to(narrow).to(dtype)))
        == "wrong"
    )
    assert torch.equal(a, before)


def test_one_wrong_term_of_the_loss_of_many_rows_is_told() -> None:
    torch.manual_seed(0)
    x, rows = torch.randn(9_000, 25).log_softmax(1), torch.randint(0, 25, (9_000,))
    right, _ = aten.nll_loss_forward(x, rows, None, 1, -100)
    off = x.gather(1, rows[:, None])[0, 0] / 9_000
    assert verdict_of(aten.nll_loss_forward.default, (x, rows, None, 1, -100), right) == "agree"
    assert (
        verdict_of(aten.nll_loss_forward.default, (x, rows, None, 1, -100), right + off) == "wrong"
    )


ONE_SIGN = {
    "mse": lambda x, y, rows: (aten.mse_loss.default, (x, y), (x - y).square()),
    "huber": lambda x, y, rows: (
        aten.huber_loss.default,
        (x, y),
        torch.nn.functional.huber_loss(x, y, reduction="none"),
    ),
    "nll": lambda x, y, rows: (
        aten.nll_loss_forward.default,
        (x.log_softmax(1), rows, None, 1, -100),
        -x.log_softmax(1).gather(1, rows[:, None]),
    ),
}


@pytest.mark.parametrize("name", ONE_SIGN)
def test_a_mean_of_many_terms_of_one_sign_is_judged_by_itself(name: str) -> None:
    torch.manual_seed(0)
    x, y, rows = torch.randn(300, 300), torch.randn(300, 300), torch.randint(0, 300, (300,))
    func, args, terms = ONE_SIGN[name](x, y, rows)
    one_by_one = terms.flatten().cumsum(0)[-1] / terms.numel()  # the worst order
    assert verdict_of(func, args, one_by_one) == "agree"
    assert verdict_of(func, args, one_by_one * 1.003) == "wrong"


def on_an_accelerator(func: Any, *args: Any) -> Bound:
    """A call as a recording of an NPU has it."""
    captured = capture(
        f"{func.name()}.default", args, {}, writes=frozenset(), random=False, limit=1 << 20
    )
    laid = {slot: replace(each, device="npu:0") for slot, each in captured.call.tensors.items()}
    return Bound(replace(captured.call, tensors=laid), captured.pieces)


def test_a_mask_of_bits_that_a_device_has_for_indices_is_not_compared() -> None:
    x = torch.randn(1, 2, 8, 8)
    bound = on_an_accelerator(aten.max_pool2d_with_indices.default, x, [2, 2])
    values = torch.nn.functional.max_pool2d(x, 2)
    bits = torch.zeros(1, 2, 4, 160, dtype=torch.int8)
    assert examine(bound, {"0": values, "1": bits}).verdict.verdict == "agree"
    assert examine(bound, {"0": values * 2, "1": bits}).verdict.verdict == "wrong"
    outputs = {"1": Laid(memory=9, dtype="int8", shape=tuple(bits.shape), stride=bits.stride())}
    assert not_defined(bound, {"1": 3.0}, outputs) == ("1",)


def test_statistics_of_a_normalisation_may_be_wider_on_a_device() -> None:
    x = torch.randn(4, 32).half()
    bound = on_an_accelerator(aten.native_layer_norm.default, x, [32], None, None, 1e-5)
    mean = x.float().mean(-1, keepdim=True)
    scale = (x.float().var(-1, correction=0, keepdim=True) + 1e-5).rsqrt()
    result = ((x.float() - mean) * scale).half()
    assert examine(bound, {"0": result, "1": mean, "2": scale}).verdict.verdict != "wrong"
    assert examine(bound, {"0": result, "1": mean, "2": 2 * scale}).verdict.verdict == "wrong"
    assert examine(bound, {"0": result.float()}).verdict.verdict == "wrong", "its result is none"


def test_a_device_without_float64_gives_float32_for_it() -> None:
    """A replay makes the call on the CPU, and knows where the program made it."""
    x = torch.randn(5)
    captured = capture(
        "aten::_to_copy.default",
        (x,),
        {"dtype": torch.float64},
        writes=frozenset(),
        random=False,
        limit=1 << 20,
    )
    here = Bound(captured.call, captured.pieces)
    there = Bound(replace(captured.call, device="npu:0"), captured.pieces)
    assert examine(there, {"0": x}).verdict.verdict == "agree"
    assert examine(there, {"0": x + 1}).verdict.verdict == "wrong"
    assert examine(here, {"0": x}).verdict.verdict == "wrong"


@pytest.mark.parametrize(("device", "verdict"), [("npu:0", "agree"), ("cpu", "wrong")])
def test_a_device_without_float64_takes_numbers_as_float32(device: str, verdict: str) -> None:
    """CANN's AdamW is given 0.999 as float32, and 1 - 0.999 is 1.3e-5 off then."""

    def operands() -> tuple[list[Tensor], ...]:
        torch.manual_seed(0)
        one = torch.ones(1)
        return [torch.randn(8)], [torch.randn(8)], [torch.zeros(8)], [torch.zeros(8)], [], [one]

    def settings(beta: float) -> dict[str, Any]:
        rates = {"lr": 1e-3, "beta1": 0.9, "beta2": beta, "weight_decay": 0.01, "eps": 1e-8}
        return {**rates, "amsgrad": False, "maximize": False}

    captured = capture(
        "aten::_fused_adamw_.default",
        operands(),
        settings(0.999),
        writes=frozenset({"0", "2", "3"}),
        random=False,
        limit=1 << 20,
    )
    bound = Bound(replace(captured.call, device=device), captured.pieces)
    given = operands()
    torch._fused_adamw_(*given, **settings(float(torch.tensor(0.999))))
    result = {f"written:{slot}.0": given[slot][0] for slot in (0, 2, 3)}
    assert examine(bound, result).verdict.verdict == verdict
    wrong = {**result, "written:3.0": result["written:3.0"] * 1.001}
    assert examine(bound, wrong).verdict.verdict == "wrong"
