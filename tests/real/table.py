# SPDX-License-Identifier: Apache-2.0
"""Published wrong kernels of PyTorch's CPU that ship: which program shows each, the operator to be
named, and the versions it shows in.

Each was tried bare in the versions named. The programs are ours; nothing of the issues' code is in
them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch.nn import functional


class Real(NamedTuple):
    """A program of tests/real/programs, its issue in pytorch/pytorch, the operator, and the release
    that mended it, where one is known, or what tries whether it shows.

    also names an operator that is wrong in the same way and that the gradient calls; overflow says
    that the result is not finite, so that the run names its operator as an overflow's origin in any
    case.
    """

    program: str
    issue: int
    op: str
    mended: str | Callable[[], bool] | None = None
    overflow: bool = False
    also: str = ""


def embedding_bag_divides_by_the_right_frequency() -> bool:
    table, words = torch.ones(12, 2, requires_grad=True), torch.tensor([1, 1, 1, 3, 7, 7])
    functional.embedding_bag(
        words, table, torch.tensor([0, 3]), mode="sum", scale_grad_by_freq=True
    ).sum().backward()  # type: ignore[no-untyped-call]
    assert table.grad is not None
    return bool((table.grad[words] == 1).all())


def sinh_of_large_numbers_is_finite() -> bool:
    return bool(torch.sinh(torch.linspace(86, 89.2, 67)).isfinite().all())


def cosh_of_large_numbers_is_finite() -> bool:
    return bool(torch.cosh(torch.full((67,), 88.9)).isfinite().all())


def sums_of_halves_overflow_to_infinity() -> bool:
    generator = torch.Generator().manual_seed(0)
    image = (torch.rand(2, 7, 9, 11, generator=generator) * 9 - 4).half()
    kernel = torch.full((7, 3, 5, 6), -9990.0, dtype=torch.float16)
    return not functional.conv_transpose2d(image, kernel, padding=2).isnan().any()


def gelu_of_infinity_is_infinite() -> bool:
    scores = torch.zeros(4, 33)
    scores[:, 5] = float("inf")
    return not functional.gelu(scores).isnan().any()


def int8_products_of_one_row_are_right() -> bool:
    generator = torch.Generator().manual_seed(0)
    weight, token = (
        torch.randint(-8, 8, size, dtype=torch.int8, generator=generator)
        for size in ((64, 32), (64,))
    )
    row = token.expand(1, 64).as_strided((1, 64), (0, 1))
    right = (token.long()[:, None] * weight.long()).sum(0)
    return bool((torch._int_mm(row, weight)[0] == right).all())


REAL = (
    Real("fused_sgd", 191763, "aten::_fused_sgd_", "2.14"),
    Real("gelu_tail", 187806, "aten::gelu"),
    Real("gelu_infinite", 185770, "aten::gelu", gelu_of_infinity_is_infinite, overflow=True),
    Real("bessel_i0", 192293, "aten::i0", overflow=True, also="aten::special_i1"),
    Real("bessel_i1", 192294, "aten::special_i1", overflow=True),
    Real("zeta_infinite", 187294, "aten::special_zeta"),
    Real("polygamma_poles", 186640, "aten::polygamma"),
    Real("adaptive_max_pool3d", 197888, "aten::adaptive_max_pool3d_backward"),
    Real("fractional_max_pool2d", 197888, "aten::fractional_max_pool2d_backward"),
    Real("fractional_max_pool3d", 197888, "aten::fractional_max_pool3d_backward"),
    Real("norm_overflow", 193006, "aten::linalg_vector_norm", overflow=True),
    Real("norm_of_high_order", 184036, "aten::norm", overflow=True),
    Real("layer_norm_large", 162489, "aten::native_layer_norm", overflow=True),
    Real("group_norm_offset", 54293, "aten::native_group_norm"),
    Real("grid_sample_far", 51911, "aten::grid_sampler_2d", overflow=True),
    Real("histogram_half", 174668, "aten::histc"),
    Real("index_reduce_mean", 139242, "aten::index_reduce"),
    Real("embedding_bag_end", 191965, "aten::_embedding_bag"),
    Real(
        "embedding_bag_frequency",
        190063,
        "aten::_embedding_bag_backward",
        embedding_bag_divides_by_the_right_frequency,
    ),
    Real("sinh_large", 48641, "aten::sinh", sinh_of_large_numbers_is_finite, overflow=True),
    Real("int_mm_expanded", 195066, "aten::_int_mm", int8_products_of_one_row_are_right),
    Real(
        "cosh_large",
        183765,
        "aten::cosh",
        cosh_of_large_numbers_is_finite,
        overflow=True,
        also="aten::sinh",
    ),
)
# The same, that are run together in one process, which is faster; each finding has the file it
# stands in. What is wrong in every type and form is suspected, and a gradient formula that torch
# composes of right kernels is named by its overflow alone, with its forward operator.
TOGETHER = (
    Real("mm_into_operand", 85852, "aten::mm"),
    Real("bmm_into_operand", 87551, "aten::bmm"),
    Real("addmm_into_operand", 48900, "aten::addmm"),
    Real("shifted_window", 144861, "aten::copy_"),
    Real("centred_in_place", 135487, "aten::sub_"),
    Real("differences_in_place", 8212, "aten::sub_"),
    Real("mask_of_bytes", 178716, "aten::le"),
    Real("bytes_below_256", 101653, "aten::lt"),
    Real("interpolate_long", 144643, "aten::upsample_linear1d"),
    Real("complex_add_infinite", 82510, "aten::add", overflow=True),
    Real("fmod_large", 193753, "aten::fmod", overflow=True),
    Real("remainder_large", 193753, "aten::remainder", overflow=True),
    Real("index_put_half", 156173, "aten::index_put_"),
    Real("gammainc_missing", 132614, "aten::igamma"),
    Real(
        "conv_transpose_half",
        153700,
        "aten::convolution",
        sums_of_halves_overflow_to_infinity,  # not where oneDNN has kernels of the type
        overflow=True,
    ),
)
FORMULAS = (
    Real("angle_small", 98276, "aten::angle"),
    Real("atan2_half", 193040, "aten::atan2"),
    Real("logaddexp_gradient", 49724, "aten::logaddexp"),
)
# Show, and are not named: a function that torch composes of right kernels, and one that reads memory
# nobody wrote, in every form.
SILENT = (
    Real("ndtr_tail", 192295, "aten::special_ndtr"),
    Real("lstsq_rank", 187411, "aten::linalg_lstsq"),
)
# Shown by check-op; of these no issue was found.
UNPUBLISHED = (
    Real("matrix_exp_bfloat16", 0, "aten::linalg_matrix_exp"),
    Real(
        "soft_margin_confident",
        0,
        "aten::soft_margin_loss",
        overflow=True,
        also="aten::soft_margin_loss_backward",
    ),
)
# Shows, and is not named by a check: the definition that would tell is not among ours. The run
# names it as an overflow's origin.
UNNAMED = (Real("complex_rsqrt", 156152, "aten::rsqrt", overflow=True),)


class Miscompiled(NamedTuple):
    """A program of tests/real/programs, its issue, the functions of the graph that have to be named
    among others, and the words of the line that the finding stands at.
    """

    program: str
    issue: int
    nodes: tuple[str, ...]
    line: str
    phase: str = "forward"


# What inductor makes of a graph on the CPU that its operators do not compute, torch 2.13.0.
MISCOMPILED = (
    Miscompiled("compiled_shift", 197829, ("clone", "setitem"), "window[1:] ="),
    Miscompiled("compiled_int8_minimum", 191499, ("min",), "torch.min"),
    Miscompiled("compiled_dtype_view", 198101, ("view", "setitem"), "halves.view"),
    Miscompiled("compiled_swap", 0, ("clone", "copy_"), "back.copy_"),
    Miscompiled("compiled_amax_bfloat16", 186799, ("amax",), ".amax(1)", "backward"),
    Miscompiled("compiled_copy_then_write", 198131, ("setitem", "add_"), "learned.add_"),
    Miscompiled("compiled_uint8_abs", 187018, ("abs", "neg", "floordiv"), "torch.abs"),
    Miscompiled("compiled_dropout_off", 195422, ("dropout", "iadd"), "kept += kept"),
    Miscompiled("compiled_std_large", 197089, ("std",), "torch.std"),
    Miscompiled("compiled_shift_dropout", 197829, ("clone", "setitem"), "cache[1:] ="),
    Miscompiled("compiled_index_put_flip", 198270, ("index_put_", "flip", "add_"), "scores.add_"),
    Miscompiled("compiled_scatter_then_reset", 198094, ("slice_scatter", "zero_"), "total.zero_"),
    Miscompiled("compiled_rolled_state", 198270, ("setitem", "roll", "copy_"), "slots.copy_"),
    Miscompiled("compiled_floor_divide", 197895, ("floordiv",), "values // width"),
)
