# SPDX-License-Identifier: Apache-2.0
"""The same Gemma after its move to an accelerator with fused operators: one call for a norm, a
rotation, a gated unit or attention; projections packed; weights and their steps in two flat buffers.
"""

import sys

import numpy as np
import torch
from torch.nn import functional as fused

N_VOCAB, H, NQ, NKV, D, FFN, DEPTH, SPAN, SOFTCAP = 37, 16, 4, 2, 4, 24, 2, 4, 6.0
PAD = -100


def rms_norm(x, gain):
    return fused.rms_norm(x, (H,), 1.0 + gain, 1e-6)  # <- plus_one scaled


def rotary_mul(x, cos, sin):
    """The first half of a head turned against the second."""
    first, second = x.chunk(2, dim=-1)
    turned = [first * cos - second * sin, second * cos + first * sin]  # <- precision
    return torch.cat(turned, dim=-1)  # <- precision


def geglu(packed):
    gate, up = packed.chunk(2, dim=-1)  # <- halves
    return fused.gelu(gate, approximate="tanh") * up  # <- halves


def tables(length):
    base = torch.pow(10000.0, -torch.arange(D // 2) * 2.0 / D)
    angle = torch.outer(torch.arange(length, dtype=torch.float32), base)
    return torch.cos(angle), torch.sin(angle)  # <- precision


def seen(length):
    """True where a query may look: itself and the SPAN - 1 tokens before."""
    full = torch.ones(length, length, dtype=torch.bool)
    return full.tril() & full.triu(1 - SPAN)  # <- window


def attention(p, x, cos, sin, mask):
    packed = x @ p["qkv"].T
    q, k, v = (
        part.unflatten(-1, (-1, D)).transpose(1, 2)
        for part in packed.split([NQ * D, NKV * D, NKV * D], dim=-1)
    )
    q, k = rotary_mul(q, cos, sin), rotary_mul(k, cos, sin)
    k, v = k.repeat_interleave(NQ // NKV, 1), v.repeat_interleave(NQ // NKV, 1)  # <- groups
    y = fused.scaled_dot_product_attention(q, k, v, attn_mask=mask)  # <- window
    return y.transpose(1, 2).flatten(2) @ p["o"].T


def forward(p, ids):
    x = fused.embedding(ids, p["embed"]) * H**0.5  # <- scaled
    cos, sin = tables(ids.shape[1])
    mask = seen(ids.shape[1])
    for layer in p["layers"]:
        x = x + attention(layer, rms_norm(x, layer["norm1"]), cos, sin, mask)
        y = geglu(rms_norm(x, layer["norm2"]) @ layer["gate_up"].T)
        x = x + y @ layer["down"].T
    logits = rms_norm(x, p["norm"]) @ p["embed"].T
    return torch.tanh(logits / SOFTCAP) * SOFTCAP  # <- capped


def loaded(old):
    """Matrices and gains by name, the projections packed."""
    matrices, gains = {"embed": old["embed_tokens.weight"]}, {"norm": old["norm.weight"]}
    for n in range(DEPTH):
        at = f"layers.{n}."
        qkv = [old[f"{at}self_attn.{part}_proj.weight"] for part in "qkv"]
        gate_up = [old[f"{at}mlp.{part}_proj.weight"] for part in ("gate", "up")]
        matrices[f"{n}.qkv"] = torch.cat(qkv)
        matrices[f"{n}.o"] = old[f"{at}self_attn.o_proj.weight"]
        matrices[f"{n}.gate_up"] = torch.cat(gate_up)
        matrices[f"{n}.down"] = old[f"{at}mlp.down_proj.weight"]
        gains[f"{n}.norm1"] = old[f"{at}input_layernorm.weight"]
        gains[f"{n}.norm2"] = old[f"{at}post_attention_layernorm.weight"]
    return matrices, gains


class Buffer:
    """Weights in one flat tensor, their steps taken together."""

    def __init__(self, weights, decay):
        self.shapes = {name: w.shape for name, w in weights.items()}
        self.flat = torch.cat([w.flatten() for w in weights.values()]).requires_grad_()
        self.mean, self.square = torch.zeros_like(self.flat), torch.zeros_like(self.flat)
        self.decay = decay

    def views(self):
        parts = self.flat.split([shape.numel() for shape in self.shapes.values()])
        return {name: part.view(shape) for (name, shape), part in zip(self.shapes.items(), parts)}

    @torch.no_grad()
    def step(self, gradient, rate, t):
        self.mean.lerp_(gradient, 1 - 0.9)
        self.square.lerp_(gradient.square(), 1 - 0.95)
        denominator = (self.square / (1 - 0.95**t)).sqrt() + 1e-8
        self.flat.mul_(1 - rate * self.decay)  # <- plain
        self.flat.addcdiv_(self.mean / (1 - 0.9**t), denominator, value=-rate)


def tree(named):
    layers = [
        {name[2:]: w for name, w in named.items() if name.startswith(f"{n}.")} for n in range(DEPTH)
    ]
    return {"embed": named["embed"], "norm": named["norm"], "layers": layers}


matrices, gains = loaded(torch.load(sys.argv[1]))
buffers = [Buffer(matrices, decay=0.1), Buffer(gains, decay=0.0)]
flats = [buffer.flat for buffer in buffers]
rng = np.random.default_rng(179)
losses = []
for step in range(1, 4):
    text = torch.tensor(rng.integers(1, N_VOCAB, (4, 12)))
    ends = torch.tensor(rng.integers(4, 12, (4, 1)))
    labels = torch.where(torch.arange(11) < ends, text[:, 1:], PAD)
    counted = int((labels != PAD).sum())
    gradients = [torch.zeros_like(flat) for flat in flats]
    total = 0.0
    for half in (slice(0, 2), slice(2, 4)):
        params = tree(buffers[0].views() | buffers[1].views())
        logits = forward(params, text[half, :-1])
        wanted = labels[half]
        each = fused.cross_entropy(
            logits.mT, wanted, ignore_index=PAD, reduction="none"
        )  # <- capped
        loss = each.sum() / counted  # <- micro
        for gradient, fresh in zip(gradients, torch.autograd.grad(loss, flats)):
            gradient.add_(fresh)
        total += loss.item()
    norm = torch.linalg.vector_norm(torch.cat(gradients))  # <- clipped
    factor = (1.0 / (norm + 1e-6)).clamp(max=1.0)  # <- clipped
    for buffer, gradient in zip(buffers, gradients):
        buffer.step(gradient * factor, 4e-3, step)  # <- clipped
    losses.append(total)
