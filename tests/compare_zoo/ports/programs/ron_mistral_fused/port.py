# SPDX-License-Identifier: Apache-2.0
"""The same tuning without transformers: fused wqkv and w13, rotary by complex numbers, in the manner of Meta's code."""
import math
import sys
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)


@dataclass
class Args:
    dim: int = 32
    hidden: int = 56
    n_layers: int = 2
    n_heads: int = 4
    n_kv: int = 2
    vocab: int = 61
    theta: float = 1000.0
    window: int = 5
    eps: float = 1e-5

    @property
    def hd(self):
        return self.dim // self.n_heads


def rope_table(a, length):
    freqs = 1.0 / (a.theta ** (torch.arange(0, a.hd, 2).float() / a.hd))
    angles = torch.outer(torch.arange(length).float(), freqs)
    return torch.polar(torch.ones_like(angles), angles)


def rotate(x, table):
    """x: (B, T, H, hd); neighbouring channels make one complex number."""
    z = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(z * table[None, :, None, :]).flatten(-2)  # <- qk_layout


class Block(nn.Module):
    def __init__(self, a):
        super().__init__()
        self.a = a
        self.wqkv = nn.Linear(a.dim, (a.n_heads + 2 * a.n_kv) * a.hd, bias=False)
        self.wo = nn.Linear(a.n_heads * a.hd, a.dim, bias=False)
        self.w13 = nn.Linear(a.dim, 2 * a.hidden, bias=False)
        self.w2 = nn.Linear(a.hidden, a.dim, bias=False)
        self.norm1 = nn.Parameter(torch.ones(a.dim))
        self.norm2 = nn.Parameter(torch.ones(a.dim))

    def forward(self, x, table, mask):
        a, (b, t, _) = self.a, x.shape
        h = F.rms_norm(x, (a.dim,), self.norm1, a.eps)
        q, k, v = self.wqkv(h).split([a.n_heads * a.hd, a.n_kv * a.hd, a.n_kv * a.hd], dim=-1)
        q, k = (rotate(z.view(b, t, -1, a.hd), table) for z in (q, k))  # <- qk_layout
        q = q.view(b, t, a.n_kv, a.n_heads // a.n_kv, a.hd)
        att = torch.einsum("btgrd,bsgd->bgrts", q, k) / math.sqrt(a.hd)
        att = att.masked_fill(~mask, float("-inf")).softmax(-1)  # <- window
        o = torch.einsum("bgrts,bsgd->btgrd", att, v.view(b, t, a.n_kv, a.hd))
        x = x + self.wo(o.reshape(b, t, -1))
        gate, up = self.w13(F.rms_norm(x, (a.dim,), self.norm2, a.eps)).chunk(2, -1)
        return x + self.w2(F.silu(gate) * up)


class Decoder(nn.Module):
    def __init__(self, a):
        super().__init__()
        self.a = a
        self.tok = nn.Embedding(a.vocab, a.dim)
        self.blocks = nn.ModuleList(Block(a) for _ in range(a.n_layers))
        self.norm = nn.Parameter(torch.ones(a.dim))
        self.out = nn.Linear(a.dim, a.vocab, bias=False)

    def forward(self, ids):
        t = ids.shape[1]
        age = torch.arange(t)[:, None] - torch.arange(t)[None, :]
        mask = (age >= 0) & (age < self.a.window)  # <- window
        table, x = rope_table(self.a, t), self.tok(ids)
        for block in self.blocks:
            x = block(x, table, mask)
        return self.out(F.rms_norm(x, (self.a.dim,), self.norm, self.a.eps))


def interleave(w, heads):
    """HF keeps the two rotary halves apart; put channel i beside channel i + hd/2."""
    rows, cols = w.shape
    return w.view(heads, 2, rows // heads // 2, cols).transpose(1, 2).reshape(rows, cols)  # <- qk_layout


def load_hf(model, path):
    hf, a = torch.load(path), model.a
    sd = {"tok.weight": hf["model.embed_tokens.weight"], "norm": hf["model.norm.weight"], "out.weight": hf["lm_head.weight"]}
    for i in range(a.n_layers):
        pre, new = f"model.layers.{i}.", f"blocks.{i}."
        q, k = hf[pre + "self_attn.q_proj.weight"], hf[pre + "self_attn.k_proj.weight"]
        q, k = interleave(q, a.n_heads), interleave(k, a.n_kv)  # <- qk_layout
        sd[new + "wqkv.weight"] = torch.cat([q, k, hf[pre + "self_attn.v_proj.weight"]])
        sd[new + "wo.weight"] = hf[pre + "self_attn.o_proj.weight"]
        sd[new + "w13.weight"] = torch.cat([hf[pre + "mlp.gate_proj.weight"], hf[pre + "mlp.up_proj.weight"]])
        sd[new + "w2.weight"] = hf[pre + "mlp.down_proj.weight"]
        sd[new + "norm1"] = hf[pre + "input_layernorm.weight"]
        sd[new + "norm2"] = hf[pre + "post_attention_layernorm.weight"]
    model.load_state_dict(sd)


def batches(n):
    for step in range(n):
        g = torch.Generator().manual_seed(500 + step)
        ids = torch.randint(3, 61, (4, 14), generator=g)
        prompt = torch.randint(2, 7, (4,), generator=g)
        answer = torch.arange(14)[None] >= prompt[:, None]  # <- prompt_labels
        yield ids, answer


model = Decoder(Args())
load_hf(model, sys.argv[1])
matrices = [p for p in model.parameters() if p.dim() > 1]
vectors = [p for p in model.parameters() if p.dim() <= 1]  # <- decay_norms
opt = torch.optim.AdamW(  # <- decay_norms
    [dict(params=matrices, weight_decay=0.1), dict(params=vectors, weight_decay=0.0)],  # <- decay_norms
    lr=4e-3, betas=(0.9, 0.95), eps=1e-7,
)

losses = []
for step, (ids, answer) in enumerate(batches(5)):
    for group in opt.param_groups:
        group["lr"] = 4e-3 * min(1.0, (step + 1) / 3)  # <- warmup
    opt.zero_grad(set_to_none=True)
    logp = model(ids)[:, :-1].log_softmax(-1)
    nll = -logp.gather(-1, ids[:, 1:, None]).squeeze(-1)
    count = answer[:, 1:].float()  # <- prompt_labels
    loss = (nll * count).sum() / count.sum()  # <- prompt_labels
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    opt.step()  # <- decay_norms warmup
    losses.append(loss.item())
print(losses)
