# SPDX-License-Identifier: Apache-2.0
"""nanoGPT-like rewrite: linear layers, fused attention, a hand-made learning rate."""
import inspect
import math
import sys
from dataclasses import dataclass

import torch
import torch.nn as nn
from torch.nn import functional as F


@dataclass
class GPTConfig:
    block_size: int = 16
    vocab_size: int = 61
    n_layer: int = 2
    n_head: int = 4
    n_embd: int = 32


class CausalSelfAttention(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.attn_in = nn.Linear(cfg.n_embd, 3 * cfg.n_embd)
        self.attn_out = nn.Linear(cfg.n_embd, cfg.n_embd)
        self.n_head = cfg.n_head

    def forward(self, x):
        B, T, C = x.size()
        qkv = self.attn_in(x).view(B, T, 3, self.n_head, C // self.n_head)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        y = y.transpose(1, 2).contiguous().view(B, T, C)  # <- head_merge
        return self.attn_out(y)  # <- head_merge


class Block(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.norm_a = nn.LayerNorm(cfg.n_embd)
        self.attn = CausalSelfAttention(cfg)
        self.norm_b = nn.LayerNorm(cfg.n_embd)
        self.fc = nn.Linear(cfg.n_embd, 4 * cfg.n_embd)
        self.proj = nn.Linear(4 * cfg.n_embd, cfg.n_embd)

    def forward(self, x):
        x = x + self.attn(self.norm_a(x))
        h = F.gelu(self.fc(self.norm_b(x)), approximate="tanh")  # <- gelu_kind
        return x + self.proj(h)


class GPT(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.tok = nn.Parameter(torch.zeros(cfg.vocab_size, cfg.n_embd))
        self.pos = nn.Parameter(torch.zeros(cfg.block_size, cfg.n_embd))
        self.blocks = nn.ModuleList([Block(cfg) for _ in range(cfg.n_layer)])
        self.norm_f = nn.LayerNorm(cfg.n_embd)

    def forward(self, idx, targets):
        x = F.embedding(idx, self.tok) + self.pos[:idx.shape[1]]
        for block in self.blocks:
            x = block(x)
        logits = F.linear(self.norm_f(x), self.tok)
        return F.cross_entropy(logits.transpose(1, 2), targets)  # <- next_shift

    @classmethod
    def from_pretrained(cls, path):
        names = {"wte.weight": "tok", "wpe.weight": "pos"}
        parts = [("h.", "blocks."), ("attn.c_attn", "attn.attn_in"), ("mlp.0", "fc"),
                 ("attn.c_proj", "attn.attn_out"), ("mlp.2", "proj"),
                 ("ln_1", "norm_a"), ("ln_2", "norm_b"), ("ln_f", "norm_f")]
        ours = {}
        for name, tensor in torch.load(path, weights_only=True).items():
            if name == "lm_head.weight":
                continue
            flip = name.endswith("weight") and ("c_" in name or "mlp" in name)
            for a, b in parts:
                name = name.replace(a, b)
            ours[names.get(name, name)] = tensor.t() if flip else tensor
        model = cls(GPTConfig())
        model.load_state_dict(ours)
        return model

    def configure_optimizers(self, decay):
        matrices = [p for p in self.parameters() if p.dim() >= 2]  # <- decay_group
        vectors = [p for p in self.parameters() if p.dim() < 2]  # <- decay_group
        groups = [{"params": matrices, "weight_decay": decay},  # <- decay_group
                  {"params": vectors, "weight_decay": 0.0}]  # <- decay_group
        knows = inspect.signature(torch.optim.AdamW).parameters
        extra = {"foreach": False} if "foreach" in knows else {}
        return torch.optim.AdamW(groups, lr=0.0, betas=(0.9, 0.999), **extra)


def get_lr(it, peak=4e-3, warmup_iters=2, max_iters=5):
    if it < warmup_iters:
        return peak * (it + 1) / (warmup_iters + 1)  # <- warm_lr
    ratio = (it - warmup_iters) / (max_iters - warmup_iters)
    return peak * 0.5 * (1.0 + math.cos(math.pi * ratio))


model = GPT.from_pretrained(sys.argv[1])
opt = model.configure_optimizers(0.1)
gen = torch.Generator().manual_seed(7)
losses = []
for it in range(5):
    for group in opt.param_groups:
        group["lr"] = get_lr(it)  # <- warm_lr
    chunk = torch.randint(0, 61, (4, 16), generator=gen)
    x, y = chunk[:, :-1], chunk[:, 1:]  # <- next_shift
    loss = model(x, y)
    opt.zero_grad(set_to_none=True)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    opt.step()  # <- decay_group warm_lr
    losses.append(float(loss.detach()))
print(losses)
