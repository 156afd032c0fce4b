# SPDX-License-Identifier: Apache-2.0
"""The Llama-like model with fused wqkv and w13, complex rotary numbers and a written-out AdamW."""
import math
import sys

import torch
from torch import nn
from torch.nn import functional as F

torch.set_num_threads(1)

VOCAB, DIM, FFN, DEPTH, HEADS, KV_HEADS = 61, 32, 56, 2, 4, 2
HD = DIM // HEADS
NORM_EPS = 1e-5  # <- rms_eps


def rms(x, scale):
    return F.rms_norm(x, (x.size(-1),), scale, NORM_EPS)  # <- rms_eps


def precompute_freqs_cis(length, theta=10000.0):
    freqs = theta ** (-torch.arange(0, HD, 2, dtype=torch.float32) / HD)
    angles = torch.arange(length, dtype=torch.float32)[:, None] * freqs
    return torch.polar(torch.ones_like(angles), angles)[None, :, None, :]


def rotate(x, freqs_cis):
    pairs = torch.view_as_complex(x.unflatten(-1, (-1, 2)).contiguous())
    return torch.view_as_real(pairs * freqs_cis).flatten(-2)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention_norm = nn.Parameter(torch.empty(DIM))
        self.ffn_norm = nn.Parameter(torch.empty(DIM))
        self.wqkv = nn.Parameter(torch.empty((HEADS + 2 * KV_HEADS) * HD, DIM))
        self.wo = nn.Parameter(torch.empty(DIM, HEADS * HD))
        self.w13 = nn.Parameter(torch.empty(2 * FFN, DIM))
        self.w2 = nn.Parameter(torch.empty(DIM, FFN))

    def attend(self, x, freqs_cis):
        heads = F.linear(x, self.wqkv).unflatten(-1, (-1, HD))
        q, k, v = heads.split([HEADS, KV_HEADS, KV_HEADS], dim=2)
        q, k = rotate(q, freqs_cis), rotate(k, freqs_cis)
        k = k.repeat_interleave(HEADS // KV_HEADS, dim=2)  # <- kv_repeat
        v = v.repeat_interleave(HEADS // KV_HEADS, dim=2)  # <- kv_repeat
        q, k, v = (z.transpose(1, 2) for z in (q, k, v))
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return F.linear(out.transpose(1, 2).flatten(2), self.wo)

    def forward(self, x, freqs_cis):
        x = x + self.attend(rms(x, self.attention_norm), freqs_cis)
        gate, up = F.linear(rms(x, self.ffn_norm), self.w13).split(FFN, dim=-1)  # <- gate_up_swap
        return x + F.linear(F.silu(gate) * up, self.w2)  # <- gate_up_swap


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok_embeddings = nn.Parameter(torch.empty(VOCAB, DIM))
        self.blocks = nn.ModuleList([Block() for _ in range(DEPTH)])
        self.norm = nn.Parameter(torch.empty(DIM))
        self.output = nn.Parameter(torch.empty(VOCAB, DIM))

    def forward(self, idx, targets):
        freqs_cis = precompute_freqs_cis(idx.size(1))
        h = self.tok_embeddings[idx]
        for block in self.blocks:
            h = block(h, freqs_cis)
        logprobs = F.linear(rms(h, self.norm), self.output).log_softmax(-1)
        return -logprobs.gather(-1, targets[..., None]).mean()


def interleave(w):
    """Half-rotated rows of q or k to rows of neighbouring pairs."""
    return w.view(-1, 2, HD // 2, DIM).transpose(1, 2).reshape(-1, DIM)


def convert(sd):
    out = {
        "tok_embeddings": sd["embed_tokens.weight"],
        "norm": sd["norm.weight"],
        "output": sd["lm_head.weight"],
    }
    for i in range(DEPTH):
        old, new = f"layers.{i}.", f"blocks.{i}."
        q, k, v, o = (sd[f"{old}self_attn.{n}_proj.weight"] for n in "qkvo")
        gate, up, down = (sd[f"{old}mlp.{n}_proj.weight"] for n in ("gate", "up", "down"))
        out[new + "wqkv"] = torch.cat([interleave(q), interleave(k), v])
        out[new + "wo"] = o
        out[new + "w13"] = torch.cat([gate, up])  # <- gate_up_swap
        out[new + "w2"] = down
        out[new + "attention_norm"] = sd[old + "input_layernorm.weight"]
        out[new + "ffn_norm"] = sd[old + "post_attention_layernorm.weight"]
    return out


def learning_rate(step, peak=1e-2, warmup=4):
    return peak * min(1.0, (step + 1) / warmup)  # <- warmup_off_by_one


@torch.no_grad()
def adamw(params, moments, t, lr, b1=0.9, b2=0.95, eps=1e-8, wd=0.1):
    total = math.sqrt(sum(float(p.grad.square().sum()) for p in params))
    shrink = min(1.0, 1.0 / (total + 1e-6))
    for p, (m, v) in zip(params, moments):
        g = p.grad * shrink
        m.lerp_(g, 1 - b1)
        v.mul_(b2).addcmul_(g, g, value=1 - b2)
        if p.ndim >= 2:  # <- wd_on_norms
            p.mul_(1 - lr * wd)  # <- wd_on_norms
        denom = (v / (1 - b2**t)).sqrt_().add_(eps)
        p.sub_(lr * (m / (1 - b1**t)) / denom)
        p.grad = None


net = Transformer()
net.load_state_dict(convert(torch.load(sys.argv[1])))
params = list(net.parameters())
moments = [(torch.zeros_like(p), torch.zeros_like(p)) for p in params]

rng = torch.Generator()
rng.manual_seed(5)
batches = [torch.randint(VOCAB, (4, 17), generator=rng) for _ in range(5)]
losses = []
for it, batch in enumerate(batches):
    loss = net(batch[:, :-1], batch[:, 1:])
    loss.backward()
    adamw(params, moments, it + 1, learning_rate(it))  # <- warmup_off_by_one wd_on_norms
    losses.append(loss.item())
print(losses)
