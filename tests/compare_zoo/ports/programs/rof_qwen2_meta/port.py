# SPDX-License-Identifier: Apache-2.0
"""Qwen2 training without transformers: Meta-style blocks, fused projections, complex rotary."""
import math
import sys
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)


@dataclass
class ModelArgs:
    dim: int = 32
    ffn: int = 48
    n_layers: int = 2
    n_heads: int = 4
    n_kv: int = 2
    vocab: int = 61
    norm_eps: float = 1e-5  # <- norm_eps
    theta: float = 10000.0

    @property
    def head_dim(self):
        return self.dim // self.n_heads


class RMSNorm(nn.Module):
    def __init__(self, dim, eps):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(dim))

    def forward(self, x):
        return x / (x.square().mean(-1, keepdim=True) + self.eps).sqrt() * self.weight  # <- norm_eps


class Block(nn.Module):
    def __init__(self, a):
        super().__init__()
        self.a = a
        self.wqkv = nn.Linear(a.dim, (a.n_heads + 2 * a.n_kv) * a.head_dim)
        self.wo = nn.Linear(a.dim, a.dim, bias=False)
        self.w13 = nn.Linear(a.dim, 2 * a.ffn, bias=False)
        self.w2 = nn.Linear(a.ffn, a.dim, bias=False)
        self.attention_norm = RMSNorm(a.dim, a.norm_eps)
        self.ffn_norm = RMSNorm(a.dim, a.norm_eps)

    def attend(self, x, freqs_cis):
        a, (b, t, _) = self.a, x.shape
        packed = self.wqkv(x).view(b, t, a.n_heads + 2 * a.n_kv, a.head_dim)
        q, k, v = packed.split([a.n_heads, a.n_kv, a.n_kv], dim=2)
        q, k = rotate(q, freqs_cis), rotate(k, freqs_cis)
        rep = a.n_heads // a.n_kv
        k, v = k.repeat_interleave(rep, dim=2), v.repeat_interleave(rep, dim=2)  # <- kv_repeat
        scores = torch.einsum("bqhd,bkhd->bhqk", q, k) / math.sqrt(a.head_dim)
        future = torch.ones(t, t, dtype=torch.bool).triu(1)
        weights = scores.masked_fill(future, -torch.inf).softmax(-1)
        return self.wo(torch.einsum("bhqk,bkhd->bqhd", weights, v).reshape(b, t, -1))

    def forward(self, x, freqs_cis):
        x = x + self.attend(self.attention_norm(x), freqs_cis)
        gate, up = self.w13(self.ffn_norm(x)).chunk(2, dim=-1)
        return x + self.w2(F.silu(gate) * up)


def rotate(x, freqs_cis):
    pairs = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2).contiguous())
    return torch.view_as_real(pairs * freqs_cis[: x.shape[1], None]).flatten(-2)


class Transformer(nn.Module):
    def __init__(self, a):
        super().__init__()
        self.tok_embeddings = nn.Parameter(torch.empty(a.vocab, a.dim))
        self.layers = nn.ModuleList(Block(a) for _ in range(a.n_layers))
        self.norm = RMSNorm(a.dim, a.norm_eps)
        inv = a.theta ** -(torch.arange(0, a.head_dim, 2).float() / a.head_dim)
        angles = torch.outer(torch.arange(64).float(), inv)
        self.register_buffer("freqs_cis", torch.polar(torch.ones_like(angles), angles), persistent=False)

    def forward(self, tokens):
        x = self.tok_embeddings[tokens]
        for layer in self.layers:
            x = layer(x, self.freqs_cis)
        return self.norm(x) @ self.tok_embeddings.t()


def interleave(w, heads):
    """HF keeps the rotary halves apart; here the pairs are neighbours."""
    return w.view(heads, 2, -1, *w.shape[1:]).transpose(1, 2).reshape(w.shape)


def convert(hf, a):
    out = {"tok_embeddings": hf["model.embed_tokens.weight"], "norm.weight": hf["model.norm.weight"]}
    for i in range(a.n_layers):
        src, dst = f"model.layers.{i}.", f"layers.{i}."
        for kind in ("weight", "bias"):
            q, k, v = (hf[f"{src}self_attn.{n}_proj.{kind}"] for n in "qkv")
            out[f"{dst}wqkv.{kind}"] = torch.cat([interleave(q, a.n_heads), interleave(k, a.n_kv), v])
        out[dst + "wo.weight"] = hf[src + "self_attn.o_proj.weight"]
        out[dst + "w13.weight"] = torch.cat([hf[src + "mlp.gate_proj.weight"], hf[src + "mlp.up_proj.weight"]])
        out[dst + "w2.weight"] = hf[src + "mlp.down_proj.weight"]
        out[dst + "attention_norm.weight"] = hf[src + "input_layernorm.weight"]
        out[dst + "ffn_norm.weight"] = hf[src + "post_attention_layernorm.weight"]
    return out


def batches(steps=5, size=4):
    g = torch.Generator().manual_seed(1235)
    docs = []
    for _ in range(steps * size):
        n = torch.randint(5, 15, (1,), generator=g).item()
        docs.append(torch.randint(1, 61, (n,), generator=g))
    for start in range(0, len(docs), size):
        yield nn.utils.rnn.pad_sequence(docs[start : start + size], batch_first=True, padding_value=0)


def lr_at(step, base=1e-2, warmup=1, total=8):
    if step < warmup:
        return base * step / warmup
    return base * 0.5 * (1 + math.cos(math.pi * (step - warmup) / (total - warmup)))


def clip(params, limit):
    total = torch.stack([p.grad.square().sum() for p in params]).sum().sqrt()  # <- clip_scope
    for p in params:
        p.grad.mul_((limit / (total + 1e-6)).clamp(max=1.0))  # <- clip_scope


args = ModelArgs()
net = Transformer(args)
net.load_state_dict(convert(torch.load(sys.argv[1]), args))
plain = [p for n, p in net.named_parameters() if "norm" in n or n.endswith("bias")]  # <- decay_norms
decayed = [p for p in net.parameters() if all(p is not q for q in plain)]
opt = torch.optim.AdamW([{"params": decayed, "weight_decay": 0.1}, {"params": plain}], betas=(0.9, 0.95), weight_decay=0.0)

losses = []
for step, tokens in enumerate(batches()):
    for group in opt.param_groups:
        group["lr"] = lr_at(step)
    logits = net(tokens[:, :-1])
    loss = F.cross_entropy(logits.transpose(1, 2), tokens[:, 1:], ignore_index=0)  # <- pad_labels
    opt.zero_grad(set_to_none=True)
    loss.backward()
    clip(list(net.parameters()), 0.3)
    opt.step()  # <- decay_norms
    losses.append(loss.item())

print(losses)
