# SPDX-License-Identifier: Apache-2.0
"""Transformer with complex rotary pairs (Meta layout); reads a checkpoint in the HF layout."""
import sys

import torch
import torch.nn.functional as F

DIM, N_HEADS, N_KV, BASE = 64, 8, 2, 10000.0  # <- theta
HD = DIM // N_HEADS


def interleave(w, heads):
    """HF keeps the rotary halves apart, we keep pairs next to each other."""
    return w.view(heads, 2, HD // 2, -1).transpose(1, 2).reshape(heads * HD, -1)  # <- unpermuted


class Block:
    def __init__(self, sd, i):
        g = lambda k: sd[f"layers.{i}.{k}.weight"]
        self.wq = interleave(g("self_attn.q_proj"), N_HEADS)
        self.wk = interleave(g("self_attn.k_proj"), N_KV)  # <- unpermuted
        self.wv, self.wo = g("self_attn.v_proj"), g("self_attn.o_proj")
        self.w13 = torch.cat([g("mlp.gate_proj"), g("mlp.up_proj")])  # <- gate_swap
        self.w2 = g("mlp.down_proj")
        self.attn_norm, self.ffn_norm = g("input_layernorm"), g("post_attention_layernorm")

    def attention(self, x, freqs):
        b, t, _ = x.shape
        q = apply_rotary((x @ self.wq.T).unflatten(-1, (N_HEADS, HD)), freqs)
        k = apply_rotary((x @ self.wk.T).unflatten(-1, (N_KV, HD)), freqs)  # <- unpermuted
        v = (x @ self.wv.T).unflatten(-1, (N_KV, HD))
        # query heads that share a key head sit next to each other
        q = q.unflatten(2, (N_KV, N_HEADS // N_KV))  # <- grouping
        scores = torch.einsum("bqkgd,bskd->bkgqs", q * HD ** -0.5, k)  # <- grouping unpermuted
        future = torch.arange(t)[:, None] < torch.arange(t)[None, :]  # <- diagonal
        scores = scores.masked_fill(future, float("-inf"))  # <- diagonal
        out = torch.einsum("bkgqs,bskd->bqkgd", scores.softmax(-1), v)  # <- grouping
        return out.reshape(b, t, DIM) @ self.wo.T  # <- grouping

    def ffn(self, x):
        a, b = F.linear(x, self.w13).tensor_split(2, dim=-1)  # <- gate_swap
        return F.linear(F.silu(a) * b, self.w2)  # <- gate_swap

    def __call__(self, x, freqs):
        h = x + self.attention(rms(x, self.attn_norm), freqs)
        return h + self.ffn(rms(h, self.ffn_norm))


def rms(x, g, eps=1e-5):
    return F.rms_norm(x, (x.shape[-1],), g, eps)


def precompute(t):
    inv = BASE ** (-torch.arange(0, HD, 2, dtype=torch.float32) / HD)  # <- theta
    angle = torch.arange(t, dtype=torch.float32)[:, None] * inv  # <- theta
    return torch.polar(torch.ones_like(angle), angle)


def apply_rotary(x, freqs):
    pairs = torch.view_as_complex(x.unflatten(-1, (-1, 2)).contiguous())
    return torch.view_as_real(pairs * freqs[None, :, None, :]).flatten(3)  # <- theta


def main(path):
    sd = torch.load(path, weights_only=True)
    blocks = [Block(sd, 0), Block(sd, 1)]
    out = []
    for tokens in sd["batches"]:
        freqs = precompute(tokens.shape[1])
        h = sd["embed_tokens.weight"][tokens]
        for blk in blocks:
            h = blk(h, freqs)
        logits = rms(h, sd["norm.weight"]) @ sd["lm_head.weight"].T
        picked = logits[:, :-1].gather(2, tokens[:, 1:].unsqueeze(2)).squeeze(2)
        ce = (torch.logsumexp(logits[:, :-1], 2) - picked).mean()
        out.append(float(ce + logits[:, -1].max()))
    return out


with torch.no_grad():
    losses = main(sys.argv[1])
print(losses)
