# SPDX-License-Identifier: Apache-2.0
"""Eager Llama with separate projections, complex rotary embedding and its own AdamW."""
import sys

import torch
from torch import nn

torch.set_num_threads(1)


class Args:
    d, depth, q_heads, kv_heads, words, ctx, inner = 32, 2, 4, 2, 50, 12, 64
    hd = d // q_heads


def linear(i, o):
    return nn.Linear(i, o, bias=False)


def as_pairs(w, heads):
    """Reorder the rows of a q or k projection from the half-split to the adjacent-pair convention."""
    n, d = w.shape
    return w.view(heads, 2, n // heads // 2, d).transpose(1, 2).reshape(n, d)  # <- rope_layout


def rotary_table():
    inv = 1.0 / 10000.0 ** (torch.arange(0, Args.hd, 2).float() / Args.hd)
    ang = torch.arange(Args.ctx).float()[:, None] * inv
    return torch.polar(torch.ones_like(ang), ang)


def rotate(x, table):
    z = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2))  # <- rope_layout
    return torch.view_as_real(z * table[None, :, None]).flatten(-2)  # <- rope_layout


class DecoderLayer(nn.Module):
    def __init__(self):
        super().__init__()
        a = Args
        self.input_layernorm = nn.RMSNorm(a.d, eps=1e-5)
        self.post_attention_layernorm = nn.RMSNorm(a.d, eps=1e-5)
        self.q_proj, self.o_proj = linear(a.d, a.d), linear(a.d, a.d)
        self.k_proj, self.v_proj = linear(a.d, a.kv_heads * a.hd), linear(a.d, a.kv_heads * a.hd)
        self.gate_proj, self.up_proj, self.down_proj = linear(a.d, a.inner), linear(a.d, a.inner), linear(a.inner, a.d)

    def attend(self, x, table):
        b, t, _ = x.shape
        share = Args.q_heads // Args.kv_heads
        q = rotate(self.q_proj(x).view(b, t, Args.q_heads, Args.hd), table)  # <- rope_layout
        k = rotate(self.k_proj(x).view(b, t, Args.kv_heads, Args.hd), table)  # <- rope_layout
        v = self.v_proj(x).view(b, t, Args.kv_heads, Args.hd)
        q = q.view(b, t, Args.kv_heads, share, Args.hd)  # <- kv_repeat
        scores = torch.einsum("bigsd,bjgd->bgsij", q, k) * Args.hd ** -0.5  # <- kv_repeat
        future = torch.ones(t, t, dtype=torch.bool).triu(1)
        probs = scores.masked_fill(future, torch.finfo(scores.dtype).min).softmax(dim=-1)
        mixed = torch.einsum("bgsij,bjgd->bigsd", probs, v)  # <- kv_repeat
        return self.o_proj(mixed.reshape(b, t, -1))

    def forward(self, x, table):
        x = x + self.attend(self.input_layernorm(x), table)
        y = self.post_attention_layernorm(x)
        return x + self.down_proj(nn.functional.silu(self.gate_proj(y)) * self.up_proj(y))


class CausalLM(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed_tokens = nn.Embedding(Args.words, Args.d)
        self.layers = nn.ModuleList([DecoderLayer() for _ in range(Args.depth)])
        self.norm = nn.RMSNorm(Args.d, eps=1e-5)
        self.table = rotary_table()

    def forward(self, ids):
        x = self.embed_tokens(ids)
        for layer in self.layers:
            x = layer(x, self.table)
        return self.norm(x) @ self.embed_tokens.weight.t()  # <- tied_head


def from_fused(path):
    new = {}
    kv = Args.kv_heads * Args.hd
    for key, w in torch.load(path).items():
        key = key.replace("h.", "layers.", 1) if key.startswith("h.") else key
        base = key.rsplit(".", 2)[0]
        if key.endswith("attn.qkv.weight"):
            base = base.removesuffix(".attn")
            q, k, v = w.split([Args.d, kv, kv])
            new[base + ".q_proj.weight"] = as_pairs(q, Args.q_heads)  # <- rope_layout
            new[base + ".k_proj.weight"] = as_pairs(k, Args.kv_heads)
            new[base + ".v_proj.weight"] = v
        elif key.endswith("fc.weight"):
            new[base + ".gate_proj.weight"], new[base + ".up_proj.weight"] = w.chunk(2)
        elif key != "lm_head.weight":
            for old, name in (("attn.proj", "o_proj"), ("norm_1", "input_layernorm"), ("wte", "embed_tokens"),
                              ("norm_2", "post_attention_layernorm"), ("ln_f", "norm"), (".down.", ".down_proj.")):
                key = key.replace(old, name)
            new[key] = w
    return {k: w.clone() for k, w in new.items()}


def adamw(params, memory, t, lr=3e-3, b1=0.9, b2=0.95, eps=1e-8, wd=0.1):  # <- beta2
    for p, (m, v) in zip(params, memory):
        p.mul_(1 - lr * wd)
        m.mul_(b1).add_(p.grad, alpha=1 - b1)
        v.mul_(b2).add_(p.grad.square(), alpha=1 - b2)  # <- beta2
        p.sub_(lr / (1 - b1 ** t) * m / ((v / (1 - b2 ** t)).sqrt() + eps))  # <- beta2


lm = CausalLM()
lm.load_state_dict(from_fused(sys.argv[1]))
params = list(lm.parameters())
memory = [(torch.zeros_like(p), torch.zeros_like(p)) for p in params]
rng = torch.Generator().manual_seed(42)

losses = []
for t in range(1, 6):
    tokens = torch.randint(0, Args.words, (4, Args.ctx + 1), generator=rng)
    start = torch.randint(2, 7, (4,), generator=rng)
    answer = torch.arange(Args.ctx).expand(4, -1) >= start.unsqueeze(1)  # <- prompt_mask
    logp = lm(tokens[:, :-1]).log_softmax(-1)  # <- tied_head
    token_loss = -logp.gather(-1, tokens[:, 1:, None]).squeeze(-1)
    loss = token_loss[answer].mean()  # <- prompt_mask
    loss.backward()
    with torch.no_grad():
        total = torch.cat([p.grad.flatten() for p in params]).norm()
        if total > 1.0:
            for p in params:
                p.grad.div_(total + 1e-6)
        adamw(params, memory, t)  # <- beta2
    lm.zero_grad()
    losses.append(loss.item())
print(losses)
