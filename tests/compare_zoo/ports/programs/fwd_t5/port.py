# SPDX-License-Identifier: Apache-2.0
"""Encoder-decoder inference with fused projections and SDPA, for checkpoints of the T5 kind."""
import bisect
import math
import sys

import torch
import torch.nn.functional as F


class Weights:
    """Reads one block; fuses q/k/v (or k/v of the cross attention) and both halves of the GLU."""

    def __init__(self, sd, prefix):
        get = lambda name: sd[f"{prefix}.{name}.weight"]
        self.qkv = torch.cat([get(f"SelfAttention.{n}") for n in "qkv"])
        self.out = get("SelfAttention.o")
        self.n1, self.n3 = get("norm"), get("ff_norm")
        self.cross = f"{prefix}.cross_norm.weight" in sd
        if self.cross:
            self.n2 = get("cross_norm")
            self.cq, self.co = get("EncDecAttention.q"), get("EncDecAttention.o")
            self.ckv = torch.cat([get("EncDecAttention.k"), get("EncDecAttention.v")])
        self.glu = torch.cat([get("wi_0"), get("wi_1")])  # <- wi_order
        self.wo = get("wo")


def thresholds(count, max_distance=20):
    """Distances at which the next bucket starts: exact ones first, then on a log scale."""
    exact = count // 2
    ratio = max_distance / exact
    logs = [exact * ratio ** (k / (count - exact)) for k in range(1, count - exact)]
    return list(range(1, exact + 1)) + [math.ceil(x) for x in logs]


def relative_bias(table, n, two_sided):
    buckets = table.shape[0]
    edges = thresholds(buckets // 2 if two_sided else buckets)  # <- direction
    lookup = torch.empty(n, n, dtype=torch.long)
    for q in range(n):
        for k in range(n):
            far = abs(k - q) if two_sided else max(q - k, 0)  # <- direction
            side = buckets // 2 if two_sided and k > q else 0  # <- direction
            lookup[q, k] = side + bisect.bisect_right(edges, far)  # <- direction
    return table[lookup].movedim(-1, 0)  # <- direction


def rms(x, w):
    return F.rms_norm(x, w.shape, w, 1e-6)


def heads(x, h=4):
    return x.unflatten(-1, (h, -1)).transpose(1, 2)


def attend(q, k, v, bias, out):
    bias = bias.expand(q.shape[0], q.shape[1], q.shape[2], k.shape[2])
    y = F.scaled_dot_product_attention(q, k, v, attn_mask=bias, scale=1.0)  # <- scaling
    return y.transpose(1, 2).flatten(2) @ out.T


def run_block(x, w, bias, memory=None, memory_bias=None):
    q, k, v = map(heads, (rms(x, w.n1) @ w.qkv.T).chunk(3, -1))
    x = x + attend(q, k, v, bias, w.out)
    if w.cross:
        k, v = map(heads, (memory @ w.ckv.T).chunk(2, -1))
        x = x + attend(heads(rms(x, w.n2) @ w.cq.T), k, v, memory_bias, w.co)
    gate, lin = (rms(x, w.n3) @ w.glu.T).chunk(2, -1)  # <- wi_order
    return x + (F.gelu(gate, approximate="tanh") * lin) @ w.wo.T  # <- wi_order


def forward(sd, encoder, decoder, ids, labels):
    emb = sd["shared.weight"]
    hidden = torch.where(ids[:, None, None, :] == 0, -math.inf, 0.0)
    table = sd["encoder.0.SelfAttention.relative_attention_bias.weight"]
    bias = relative_bias(table, ids.shape[1], two_sided=True) + hidden
    x = emb[ids]
    for w in encoder:
        x = run_block(x, w, bias)
    memory = rms(x, sd["enc_norm.weight"])
    n = labels.shape[1]
    table = sd["decoder.0.SelfAttention.relative_attention_bias.weight"]
    bias = relative_bias(table, n, two_sided=False)  # <- direction
    bias = bias.masked_fill(torch.ones(n, n).triu(1).bool(), -math.inf)[None]
    y = emb[F.pad(labels, (1, 0))[:, :n]]  # <- shift
    for w in decoder:
        y = run_block(y, w, bias, memory, hidden)
    y = rms(y, sd["dec_norm.weight"])
    return torch.einsum("btd,vd->btv", y, emb) / math.sqrt(emb.shape[1])  # <- head_scale


saved = torch.load(sys.argv[1], weights_only=True)
sd = saved["model"]
encoder = [Weights(sd, f"encoder.{i}") for i in range(2)]
decoder = [Weights(sd, f"decoder.{i}") for i in range(2)]
losses = []
with torch.inference_mode():
    for ids, labels in zip(saved["src"], saved["tgt"]):
        logp = F.log_softmax(forward(sd, encoder, decoder, ids, labels), dim=-1)
        losses.append(F.nll_loss(logp.transpose(1, 2), labels).item())
print(losses)
