# SPDX-License-Identifier: Apache-2.0
"""References of operators that only accelerators have, held against other code for the same
mathematics.
"""

from __future__ import annotations

import math

import msgspec
import pytest
import torch
from torch.nn import functional

from opscope.substitute import references
from opscope.substitute.examine import examine
from opscope.substitute.layout import Call, Flags
from opscope.substitute.perform import Bound, Gathered, on_accelerator

LAYOUTS = {
    "BNSD": lambda each: each,
    "BSND": lambda each: each.transpose(1, 2),
    "BSH": lambda each: each.transpose(1, 2).flatten(2),
    "SBH": lambda each: each.transpose(1, 2).flatten(2).transpose(0, 1),
}


def drawn(*shape: int, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.randn(*shape, dtype=dtype)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("groups", [1, 2])
def test_fused_attention_is_attention(layout: str, groups: int) -> None:
    query, key, value = (drawn(2, 4 // each, 5, 8) for each in (1, groups, groups))
    mask = torch.ones(5, 5, dtype=torch.bool).triu(1)
    laid = [LAYOUTS[layout](each) for each in (query, key, value)]
    given = {"scale": 0.3, "atten_mask": mask}
    output, largest, total = references.fused_attention(*laid, 4, layout, **given)
    expected = functional.scaled_dot_product_attention(
        query,
        *(each.repeat_interleave(groups, 1) for each in (key, value)),
        attn_mask=~mask,
        scale=0.3,
    )
    torch.testing.assert_close(output, LAYOUTS[layout](expected))
    scores = (query @ key.repeat_interleave(groups, 1).transpose(-1, -2) * 0.3).masked_fill(
        mask, -math.inf
    )
    assert largest.shape == total.shape == (2, 4, 5, references.COPIES)
    torch.testing.assert_close(largest[..., 0] + total[..., 0].log(), scores.logsumexp(-1))


def test_the_gradients_of_fused_attention_are_those_of_attention() -> None:
    query, key, value = (drawn(1, 2, 4, 8).requires_grad_() for _ in range(3))
    grad = drawn(1, 2, 4, 8)
    functional.scaled_dot_product_attention(query, key, value, scale=0.5).backward(grad)
    found = references.fused_attention_backward(
        query.detach(), key.detach(), value.detach(), grad, 2, "BNSD", scale_value=0.5
    )
    for one, tensor in zip(found, (query, key, value), strict=True):
        torch.testing.assert_close(one, tensor.grad)


@pytest.mark.parametrize(
    "given",
    [
        {"keep_prob": 0.9},
        {"sparse_mode": 4},
        {"sink": drawn(4)},
        {"atten_mask": torch.ones(5, 5, dtype=torch.bool)},
        {"atten_mask": torch.zeros(5, 5, dtype=torch.bool), "next_tockens": 0},
    ],
    ids=["dropout", "band", "sink", "nothing attended to", "band beside the mask"],
)
def test_what_is_not_followed_is_refused(given: dict[str, object]) -> None:
    with pytest.raises(NotImplementedError):
        references.fused_attention(*(drawn(2, 4, 5, 8) for _ in range(3)), 4, "BNSD", **given)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_rms_norm_and_its_gradients(dtype: torch.dtype) -> None:
    value, gamma, grad = drawn(3, 4, 8, dtype=dtype), drawn(8, dtype=dtype), drawn(3, 4, 8)
    grad = grad.to(dtype)
    output, scale = references.rms_norm(value, gamma, 1e-5)
    expected = functional.rms_norm(value.double(), (8,), gamma.double(), 1e-5)
    assert output.dtype is dtype
    assert scale.shape == (3, 4, 1)
    near = 0.02 if dtype is torch.bfloat16 else 1e-5
    roughly = {"atol": near, "rtol": near}
    torch.testing.assert_close(output.double(), expected, check_dtype=False, **roughly)
    leaves = [each.double().requires_grad_() for each in (value, gamma)]
    functional.rms_norm(leaves[0], (8,), leaves[1], 1e-5).backward(grad.double())
    for one, leaf in zip(
        references.rms_norm_backward(grad, value, gamma, scale), leaves, strict=True
    ):
        torch.testing.assert_close(one.double(), leaf.grad, **roughly)


@pytest.mark.parametrize("mode", ["half", "interleave"])
def test_a_rotation_keeps_the_length_of_pairs_and_is_undone_by_its_gradient(mode: str) -> None:
    value, angle = drawn(2, 3, 4, 8), drawn(1, 1, 4, 4)
    angle = torch.cat([angle, angle], -1) if mode == "half" else angle.repeat_interleave(2, -1)
    turned = references.rotary_mul(value, angle.cos(), angle.sin(), mode)
    torch.testing.assert_close(turned.norm(dim=-1), value.norm(dim=-1))
    back, *_ = references.rotary_mul_backward(turned, value, angle.cos(), angle.sin(), mode)
    torch.testing.assert_close(back, value)


def test_swiglu_gates_one_half_by_the_other() -> None:
    value, grad = drawn(3, 8).requires_grad_(), drawn(3, 4)
    expected = functional.silu(value[:, :4]) * value[:, 4:]
    torch.testing.assert_close(references.swiglu(value.detach()), expected)
    expected.backward(grad)
    torch.testing.assert_close(references.swiglu_backward(grad, value.detach()), value.grad)


@pytest.mark.parametrize("shapes", [((3, 4), (4, 5)), ((2, 3, 4), (4, 5)), ((4,), (2, 4, 5))])
def test_matmul_backward_gives_what_was_asked_for(shapes: tuple[tuple[int, ...], ...]) -> None:
    first, second = (drawn(*shape).requires_grad_() for shape in shapes)
    product = first @ second
    grad = torch.randn_like(product)
    product.backward(grad)
    given = (grad, first.detach(), second.detach())
    by_first, by_second = references.matmul_backward(*given, [True, True])
    torch.testing.assert_close(by_first, first.grad)
    torch.testing.assert_close(by_second, second.grad)
    assert references.matmul_backward(*given, [False, True])[0] is None


def test_dropout_backward_reads_a_mask_of_bits() -> None:
    grad = drawn(5, 7)
    kept = torch.rand(5, 7) > 0.5
    padded = torch.cat([kept.reshape(-1), torch.zeros(128 - 35, dtype=torch.bool)])
    bits = (padded.reshape(-1, 8).to(torch.uint8) << torch.arange(8, dtype=torch.uint8)).sum(
        1, dtype=torch.uint8
    )
    for mask in (bits, kept):
        found = references.dropout_backward(grad, mask, 2.0)
        torch.testing.assert_close(found, grad * kept * 2)
    with pytest.raises(NotImplementedError):
        references.dropout_backward(grad, bits[:2], 2.0)


@pytest.mark.parametrize(("device", "elsewhere"), [("", False), ("cpu", False), ("npu:0", True)])
def test_references_stand_in_for_calls_on_accelerators_alone(device: str, elsewhere: bool) -> None:
    call = Call(
        op="aten::native_dropout_backward.default",
        args={"args": [], "kwargs": {}},
        tensors={},
        memories=(),
        device=device,
        flags=Flags(),
    )
    assert on_accelerator(call) is elsewhere


@pytest.mark.parametrize(("device", "verdict"), [("npu:0", "agree"), ("cpu", "wrong")])
@pytest.mark.parametrize("asked", ["none", "tanh"])
def test_an_npu_computes_gelu_in_either_form(device: str, verdict: str, asked: str) -> None:
    value = drawn(64, dtype=torch.float32)
    given = functional.gelu(value, approximate="tanh" if asked == "none" else "none")
    judged = examine(gelu_call(value, device, asked), {"0": given})
    assert judged.verdict.verdict == verdict
    broken = examine(gelu_call(value, device, asked), {"0": given * 1.01})
    assert broken.verdict.verdict == "wrong"


def gelu_call(value: torch.Tensor, device: str, asked: str) -> Bound:
    gathered = Gathered([("0", value)])
    call = Call(
        op="aten::gelu.default",
        args={"args": [{"tensor": "0"}], "kwargs": {"approximate": asked}},
        tensors={"0": msgspec.structs.replace(gathered.laid["0"], device=device)},
        memories=tuple(gathered.memories),
    )
    return Bound(call, gathered.pieces, torch.ops.aten.gelu.default)
