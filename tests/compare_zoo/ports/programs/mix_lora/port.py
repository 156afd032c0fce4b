# SPDX-License-Identifier: Apache-2.0
"""Low-rank adapters merged into a fused qkv matrix, complex rotations, fused attention kernel."""

import sys

import torch
import torch.nn.functional as F

E_DIM, N_HEAD, CTX, N_TOK = 16, 4, 10, 22
D_HEAD = E_DIM // N_HEAD

ckpt = torch.load(sys.argv[1], weights_only=True)
FROZEN = {
    "tok": ckpt["embed.weight"],
    "qkv": torch.cat(
        [
            ckpt["attn.q_proj.base.weight"],
            ckpt["attn.k_proj.weight"],
            ckpt["attn.v_proj.base.weight"],
        ]
    ),
    "o": ckpt["attn.o_proj.weight"],
    "head": ckpt["lm_head.weight"],
}
MLP = [ckpt[k] for k in ("fc.weight", "fc.bias", "proj.weight", "proj.bias")]


def adapter(tag):
    down, up = ckpt[f"attn.{tag}_proj.lora_A"], ckpt[f"attn.{tag}_proj.lora_B"]
    return [down.requires_grad_(), up.requires_grad_()]


lora_q, lora_v = adapter("q"), adapter("v")
norms = [ckpt[f"{n}.{w}"].requires_grad_() for n in ("ln1", "ln2") for w in ("weight", "bias")]

freq = 1.0 / 100.0 ** (torch.arange(0, D_HEAD, 2) / D_HEAD)
phase = torch.arange(CTX)[:, None] * freq
spin = torch.polar(torch.ones_like(phase), phase)
pos = torch.arange(CTX)
near = (pos[:, None] >= pos) & (pos[:, None] - pos < 4)  # <- local_window


def merged_qkv(rank=2, alpha=8.0):
    dq, dv = (up @ down for down, up in (lora_q, lora_v))
    delta = torch.cat([dq, torch.zeros_like(dq), dv])
    return FROZEN["qkv"] + delta * (alpha / rank)  # <- lora_scale


def turn(h):
    re, im = h.unflatten(-1, (2, -1)).unbind(-2)  # <- rotary_pairs
    z = torch.complex(re, im) * spin  # <- rotary_pairs
    return torch.cat([z.real, z.imag], -1)


def model(tok):
    h = FROZEN["tok"][tok]
    n = F.layer_norm(h, (E_DIM,), norms[0], norms[1])
    qkv = F.linear(n, merged_qkv()).unflatten(-1, (3, N_HEAD, D_HEAD))  # <- lora_scale
    q, k, v = qkv.permute(2, 0, 3, 1, 4)
    mix = F.scaled_dot_product_attention(turn(q), turn(k), v, attn_mask=near)  # <- local_window
    h = h + mix.transpose(1, 2).flatten(2) @ FROZEN["o"].t()
    inner = torch.addmm(MLP[1], h.flatten(0, 1), MLP[0].t())
    h = h + torch.addmm(MLP[3], F.gelu(inner), MLP[2].t()).view_as(h)
    return F.layer_norm(h, (E_DIM,), norms[2], norms[3]) @ FROZEN["head"].t()


tuned = lora_q + lora_v + norms  # <- norm_trained
mean = [torch.zeros_like(w) for w in tuned]
peak = [torch.zeros_like(w) for w in tuned]

rng = torch.Generator().manual_seed(29)
text = torch.randint(0, N_TOK, (4, 5, CTX + 1), generator=rng)
reply = torch.rand(4, 5, CTX, generator=rng) < 0.6

losses = []
for n, (row, chosen) in enumerate(zip(text, reply), 1):
    logp = model(row[:, :-1]).log_softmax(-1)
    hit = logp.gather(2, row[:, 1:, None]).squeeze(2)
    loss = -hit[chosen].mean()  # <- prompt_tokens
    grads = torch.autograd.grad(loss, tuned)
    with torch.no_grad():
        for i, (w, g) in enumerate(zip(tuned, grads)):
            mean[i].lerp_(g, 0.1)
            peak[i] = torch.maximum(0.999 * peak[i], g.abs() + 1e-8)
            w -= 0.05 / (1 - 0.9**n) * mean[i] / peak[i]  # <- norm_trained
    losses.append(loss.item())
print(losses)
