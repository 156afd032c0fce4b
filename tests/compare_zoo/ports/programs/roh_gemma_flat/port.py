# SPDX-License-Identifier: Apache-2.0
"""Gemma as plain functions over a flat dictionary of tensors, with complex rotations and a written-out AdamW."""
import math
import sys

import torch
import torch.nn.functional as F

torch.set_num_threads(1)

D, H, KV, HD, DEPTH, VOCAB, FF = 32, 4, 2, 8, 2, 61, 48
LEN, B, N_STEPS = 14, 4, 5


def interleave(w, heads):
    """Half-split rotary rows -> neighbouring (real, imaginary) rows."""
    return w.view(heads, 2, HD // 2, D).transpose(1, 2).reshape(heads * HD, D)


def import_hf(path):
    src = torch.load(path)
    out = {"tok": src["model.embed_tokens.weight"], "norm": src["model.norm.weight"]}
    for i in range(DEPTH):
        pre = f"model.layers.{i}."
        q, k, v = (src[f"{pre}self_attn.{n}_proj.weight"] for n in "qkv")
        out[f"{i}.wqkv"] = torch.cat([interleave(q, H), interleave(k, KV), v])
        out[f"{i}.wo"] = src[pre + "self_attn.o_proj.weight"]
        out[f"{i}.w13"] = torch.cat([src[pre + "mlp.gate_proj.weight"], src[pre + "mlp.up_proj.weight"]])
        out[f"{i}.w2"] = src[pre + "mlp.down_proj.weight"]
        out[f"{i}.n1"] = src[pre + "input_layernorm.weight"]
        out[f"{i}.n2"] = src[pre + "post_attention_layernorm.weight"]
    return {k: t.clone().requires_grad_(True) for k, t in out.items()}


def rms(x, w):
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * (1.0 + w)


def rotate(x, phase):
    pairs = torch.view_as_complex(x.unflatten(-1, (-1, 2)).contiguous())
    return torch.view_as_real(pairs * phase).flatten(-2)


def share_heads(t):
    return t.repeat_interleave(H // KV, dim=1)  # <- kv_tiled


def forward(p, ids):
    n = ids.shape[1]
    inv = 10000.0 ** (-torch.arange(0, HD, 2).float() / HD)
    angle = torch.outer(torch.arange(n).float(), inv)
    phase = torch.polar(torch.ones_like(angle), angle)
    x = F.embedding(ids, p["tok"]) * math.sqrt(D)  # <- embed_unscaled
    for i in range(DEPTH):
        qkv = (rms(x, p[f"{i}.n1"]) @ p[f"{i}.wqkv"].T).unflatten(-1, (H + 2 * KV, HD)).transpose(1, 2)
        q, k, v = qkv.split([H, KV, KV], dim=1)
        q, k = rotate(q, phase), rotate(k, phase)
        y = F.scaled_dot_product_attention(q, share_heads(k), share_heads(v), is_causal=True)  # <- kv_tiled
        x = x + y.transpose(1, 2).flatten(2) @ p[f"{i}.wo"].T
        gate, up = (rms(x, p[f"{i}.n2"]) @ p[f"{i}.w13"].T).chunk(2, dim=-1)
        x = x + (F.gelu(gate, approximate="tanh") * up) @ p[f"{i}.w2"].T  # <- gelu_exact
    return rms(x, p["norm"]) @ p["tok"].T


def make_batches():
    g = torch.Generator().manual_seed(5)

    def draw(lo, hi, size=(1,)):
        return torch.randint(lo, hi, size, generator=g)

    for _ in range(N_STEPS):
        ids = torch.zeros(B, LEN, dtype=torch.long)
        for row in ids:
            n = int(draw(7, LEN + 1))
            start, stride = int(draw(1, VOCAB)), int(draw(1, 5))
            row[:n] = (start + stride * torch.arange(n) + draw(0, 2, (n,))) % (VOCAB - 1) + 1
        yield ids


def learning_rate(t):
    base = 6e-3
    return base * (t + 1) / 3 if t < 2 else base * 0.5 * (1 + math.cos(math.pi * (t - 2) / 3))


@torch.no_grad()
def clip_(grads, limit):
    total = torch.stack([g.square().sum() for g in grads]).sum().sqrt()  # <- clip_each_tensor
    for g in grads:
        g.mul_(torch.clamp(limit / (total + 1e-6), max=1.0))  # <- clip_each_tensor


@torch.no_grad()
def adamw_(params, grads, mem, t, lr, b1=0.9, b2=0.95, eps=1e-6, decay=0.1):
    for (name, w), g in zip(params.items(), grads):
        m, v = mem.setdefault(name, (torch.zeros_like(w), torch.zeros_like(w)))
        if w.ndim > 1:
            w.mul_(1 - lr * decay)
        m.lerp_(g, 1 - b1)
        v.lerp_(g * g, 1 - b2)
        w.sub_(lr * (m / (1 - b1**t)) / ((v / (1 - b2**t)).sqrt() + eps))  # <- no_bias_correction


params = import_hf(sys.argv[1])
memory, losses = {}, []
for step, ids in enumerate(make_batches()):
    scores = forward(params, ids[:, :-1])
    target = ids[:, 1:]
    loss = F.cross_entropy(scores[target != 0], target[target != 0])
    grads = [g.clone() for g in torch.autograd.grad(loss, list(params.values()))]
    clip_(grads, 0.5)  # <- clip_each_tensor
    adamw_(params, grads, memory, step + 1, learning_rate(step))  # <- no_bias_correction
    losses.append(loss.item())

print(losses)
