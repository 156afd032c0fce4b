# SPDX-License-Identifier: Apache-2.0
"""Serving path for the little decoder: one prefill and then single-token steps over a static
key/value cache, written on plain tensors. Rotary pairs are split in halves here."""
import sys
import torch

N_HEAD, N_KV, HD, SOFTCAP, MAX_LEN = 4, 2, 12, 12.0, 16
GROUP = N_HEAD // N_KV


def split_halves(w, heads):
    """(even, odd) interleaved rows of a projection -> first half, second half of each head."""
    return w.view(heads, HD // 2, 2, -1).transpose(1, 2).reshape(w.shape)


def convert(sd):
    out = {"embed": sd["tok_embeddings.weight"], "ln_f": sd["norm.weight"], "blocks": []}
    out["lm_head"] = sd["output.weight"].t().contiguous()
    n = 1 + max(int(key.split(".")[1]) for key in sd if key.startswith("layers."))
    for i in range(n):
        get = lambda key: sd[f"layers.{i}.{key}.weight"]
        qkv = torch.cat([split_halves(get("attention.wq"), N_HEAD),
                         split_halves(get("attention.wk"), N_KV), get("attention.wv")])
        gate_up = torch.cat([get("feed_forward.w1"), get("feed_forward.w3")])
        out["blocks"].append(dict(ln1=get("attention_norm"), ln2=get("ffn_norm"), qkv=qkv.t(),
                                  proj=get("attention.wo").t(), gate_up=gate_up.t(),
                                  down=get("feed_forward.w2").t()))
    return out


def rms(x, gain):
    return gain * (x / (x.square().mean(dim=-1, keepdim=True) + 1e-5).sqrt())


def rope(x, cos, sin):
    lo, hi = x.chunk(2, dim=-1)
    return torch.cat([lo * cos - hi * sin, hi * cos + lo * sin], dim=-1)  # <- offset


class Cache:
    def __init__(self, batch, depth):
        self.k = torch.zeros(depth, batch, N_KV, MAX_LEN, HD)
        self.v = torch.zeros_like(self.k)
        self.used = 0


def attend(x, blk, layer, cache, start, end):
    b, t, d = x.shape
    q, k, v = (x @ blk["qkv"]).split([N_HEAD * HD, N_KV * HD, N_KV * HD], dim=-1)
    q = q.view(b, t, N_KV, GROUP, HD).permute(0, 2, 3, 1, 4)  # <- grouping
    k = k.view(b, t, N_KV, HD).transpose(1, 2)
    v = v.view(b, t, N_KV, HD).transpose(1, 2)
    position = torch.arange(start, end, dtype=torch.float32)  # <- offset
    phase = position[:, None] * 10000.0 ** (-torch.arange(HD // 2) * 2.0 / HD)  # <- offset
    cos, sin = phase.cos(), phase.sin()
    q, k = rope(q, cos, sin), rope(k, cos, sin)
    cache.k[layer, :, :, start:end] = k
    cache.v[layer, :, :, start:end] = v
    keys, values = cache.k[layer, :, :, :end], cache.v[layer, :, :, :end]
    scores = torch.einsum("bkgqd,bkld->bkgql", q, keys) / HD ** 0.5  # <- grouping
    seen = torch.arange(end) <= torch.arange(start, end).unsqueeze(1)  # <- causal
    scores = torch.where(seen, scores, float("-inf"))  # <- causal
    mixed = torch.einsum("bkgql,bkld->bkgqd", scores.softmax(-1), values)  # <- grouping
    return mixed.permute(0, 3, 1, 2, 4).reshape(b, t, d) @ blk["proj"]


def step(net, ids, cache):
    start, end = cache.used, cache.used + ids.shape[1]
    h = net["embed"][ids]
    for layer, blk in enumerate(net["blocks"]):
        h = h + attend(rms(h, blk["ln1"]), blk, layer, cache, start, end)
        gate, up = (rms(h, blk["ln2"]) @ blk["gate_up"]).chunk(2, dim=-1)  # <- gating
        h = h + (gate * gate.sigmoid() * up) @ blk["down"]  # <- gating
    cache.used = end
    logits = rms(h[:, -1], net["ln_f"]) @ net["lm_head"]  # <- softcap
    return (logits / SOFTCAP).tanh() * SOFTCAP  # <- softcap


net = convert(torch.load(sys.argv[1], weights_only=True))
prompt = torch.randint(0, 67, (3, 8), generator=torch.Generator().manual_seed(21))
cache = Cache(prompt.shape[0], len(net["blocks"]))
losses, feed = [], prompt
with torch.inference_mode():
    while len(losses) < 5:
        logits = step(net, feed, cache)
        best, feed = logits.max(dim=-1, keepdim=True)
        losses.append((logits.logsumexp(-1, keepdim=True) - best).mean().item())
print(losses)
